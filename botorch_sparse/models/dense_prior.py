r"""The exact prior of the training points, whose `log_prob` is quick to differentiate.

With the covariance `K` of the observations, the errors `e` and
:math:`\alpha = K^{-1} e`,

.. math::
    \log N(e; 0, K) = -\tfrac12 \big( e^\top \alpha + \log |K| + n \log 2 \pi \big),
    \qquad
    \frac{\partial}{\partial K} = \tfrac12 \big( \alpha \alpha^\top - K^{-1} \big).

The gradient takes one inverse. Backpropagation through the Cholesky factor, which
GPyTorch does with BoTorch's settings, takes two to three times as long.
"""

from math import log, pi
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.autograd.function import once_differentiable

from botorch_sparse.posteriors.threads import threads_for


class DensePrior(MultivariateNormal):
    """A Gaussian whose `log_prob` has its gradient in closed form, once."""

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of its density; O(n^3)."""
        covariance = self.lazy_covariance_matrix.to_dense()
        return _LogDensity.apply(value - self.mean, covariance)


class _LogDensity(torch.autograd.Function):
    """The logarithm of the density of errors, `... x n`, with mean zero; in float64."""

    @staticmethod
    def forward(ctx: Any, error: Tensor, covariance: Tensor) -> Tensor:
        with threads_for(covariance.shape[-1] ** 3 / 3):
            factor = psd_safe_cholesky(covariance.double())
        e = error.double()
        weights = torch.cholesky_solve(e.unsqueeze(-1), factor).squeeze(-1)
        ctx.save_for_backward(factor, weights)
        ctx.dtypes = error.dtype, covariance.dtype
        log_det = 2.0 * factor.diagonal(dim1=-1, dim2=-2).log().sum(-1)
        value = (e * weights).sum(-1) + log_det + e.shape[-1] * log(2 * pi)
        return (-0.5 * value).to(error)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        factor, weights = ctx.saved_tensors
        slope = weights.unsqueeze(-1) * weights.unsqueeze(-2)
        with threads_for(2 * factor.shape[-1] ** 3 / 3):
            slope -= torch.cholesky_inverse(factor)
        grad, (of_error, of_covariance) = grad.double().unsqueeze(-1), ctx.dtypes
        slope.mul_(0.5 * grad.unsqueeze(-1))
        return (-grad * weights).to(of_error), slope.to(of_covariance)
