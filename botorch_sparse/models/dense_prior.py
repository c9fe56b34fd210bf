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

from functools import reduce
from math import log, pi
from operator import add
from typing import Any, Self

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator.operators import DiagLinearOperator, SumLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_sparse.kernels import kernel_for_fit
from botorch_sparse.threads import threads_for

# Rows of which LAPACK's inverse takes longer than that of two halves: on one thread
# 3,000 take 0.85 s as one and 0.67 s as two, and 1,500 take as long either way.
MOST_AS_ONE = 2000


class DensePrior(MultivariateNormal):
    """A Gaussian whose `log_prob` has its gradient in closed form."""

    @classmethod
    def of(cls, prior: MultivariateNormal) -> Self:
        """A prior with the kernel that a fit evaluates, where it is in float64."""
        covariance = prior.lazy_covariance_matrix
        is_lazy = isinstance(covariance, LazyEvaluatedKernelTensor)
        if is_lazy and covariance.dtype == torch.float64:
            kernel = kernel_for_fit(covariance.kernel, covariance.dtype)
            covariance = LazyEvaluatedKernelTensor(
                covariance.x1, covariance.x2, kernel, **covariance.params
            )
        return cls(prior.mean, covariance)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of its density; O(n^3)."""
        covariance, diagonal = self.lazy_covariance_matrix, value.new_zeros(())
        if isinstance(covariance, SumLinearOperator):
            *terms, last = covariance.linear_ops
            if isinstance(last, DiagLinearOperator):  # noise, without a matrix of it
                diagonal, covariance = last.diagonal(), reduce(add, terms)
        error = value - self.mean
        return _LogDensity.apply(error, covariance.to_dense(), diagonal)


class _LogDensity(torch.autograd.Function):
    """The logarithm of the density of errors, `... x n`, with mean zero; in float64.

    The covariance is a matrix, to whose diagonal something is added.
    """

    @staticmethod
    def forward(
        ctx: Any, error: Tensor, covariance: Tensor, diagonal: Tensor
    ) -> Tensor:
        with threads_for(covariance.shape[-1] ** 3 / 3):
            factor, weights = _solved(error, covariance, diagonal)
        ctx.save_for_backward(error, covariance, diagonal, factor, weights)
        log_det = 2.0 * factor.diagonal(dim1=-1, dim2=-2).log().sum(-1)
        value = (error.double() * weights).sum(-1) + log_det
        return (-0.5 * (value + error.shape[-1] * log(2 * pi))).to(error)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        error, covariance, diagonal, factor, weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # what comes back is differentiated once more
            factor, weights = _solved(error, covariance, diagonal)
        with threads_for(2 * factor.shape[-1] ** 3 / 3):
            inverse = cholesky_inverse(factor)
        slope = (weights.unsqueeze(-1) * weights.unsqueeze(-2)).sub_(inverse)
        grad = grad.double().unsqueeze(-1)
        of_covariance = 0.5 * grad.unsqueeze(-1) * slope
        of_diagonal = of_covariance.diagonal(dim1=-2, dim2=-1).to(diagonal)
        of_diagonal = of_diagonal.sum_to_size(diagonal.shape)
        return (-grad * weights).to(error), of_covariance.to(covariance), of_diagonal


def _solved(
    error: Tensor, covariance: Tensor, diagonal: Tensor
) -> tuple[Tensor, Tensor]:
    """The Cholesky factor of a covariance, and its inverse times errors; float64."""
    K = covariance.to(torch.float64, copy=True)
    K.diagonal(dim1=-2, dim2=-1).add_(diagonal)
    factor = psd_safe_cholesky(K)
    weights = torch.cholesky_solve(error.double().unsqueeze(-1), factor)
    return factor, weights.squeeze(-1)


def cholesky_inverse(L: Tensor) -> Tensor:
    r"""`torch.cholesky_inverse`, by matrix products where there are many rows.

    With blocks :math:`A, B, C` of the factor and :math:`V = B A^{-1}`,

    .. math::
        \left( L L^\top \right)^{-1} = \begin{pmatrix}
            (A A^\top)^{-1} + V^\top S V & -V^\top S \\ -S V & S
        \end{pmatrix}, \qquad S = (C C^\top)^{-1} .

    Args:
        L: `... x n x n` lower triangular factors.

    Returns:
        The inverses, `... x n x n`. Cost: O(n^3).
    """
    n = L.shape[-1]
    if n <= MOST_AS_ONE:
        return torch.cholesky_inverse(L)
    half = n // 2
    A, B, C = L[..., :half, :half], L[..., half:, :half], L[..., half:, half:]
    V = torch.linalg.solve_triangular(A, B, upper=False, left=False)
    S = cholesky_inverse(C)
    lower, inverse = -S @ V, torch.empty_like(L)
    inverse[..., :half, :half] = cholesky_inverse(A) - V.mT @ lower
    inverse[..., half:, :half] = lower
    inverse[..., :half, half:] = lower.mT
    inverse[..., half:, half:] = S
    return inverse
