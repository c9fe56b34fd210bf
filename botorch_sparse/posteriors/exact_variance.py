"""The exact posterior variance of few points, which grows by their borders."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.linear_operators import UpdatableCholeskyLinearOperator


@dataclass(frozen=True, eq=False)
class ExactVariance:
    r"""The exact posterior variance of points that were evaluated, whatever came of it.

    With :math:`L L^\top = K + D`:
    :math:`k(x, x) - |L^{-1} k_X(x)|^2`. Evaluating it costs O(n^2) for each point.

    Attributes:
        covar_module: The kernel of points as they come.
        X: `n x d` points, repeats allowed, float64.
        chol: `L`, `n x n`.
    """

    covar_module: Kernel
    X: Tensor
    chol: Tensor

    @classmethod
    def prior(cls, covar_module: Kernel, bounds: Tensor) -> Self:
        """The variance before any points, within `2 x d` bounds."""
        none = bounds[:0].double()
        return cls(covar_module, none, none.new_zeros(0, 0))

    @torch.no_grad()
    def given(self, X: Tensor, noise: Tensor) -> Self:
        r"""The variance given more points, by the border of the factor.

        Args:
            X: `k x d` points.
            noise: Their `k` noise variances.

        Returns:
            The variance. Cost: O(n^2 k + k^3).
        """
        cross = self.covar_module(self.X, X).to_dense()
        corner = self.covar_module(X).to_dense() + torch.diag_embed(noise)
        grown = UpdatableCholeskyLinearOperator(self.chol).append(cross, corner)
        return replace(self, X=torch.cat([self.X, X]), chol=grown.chol)

    def __call__(self, X: Tensor) -> Tensor:
        """The variance at `q x d` points, `q`; differentiable."""
        explained = self._whitened(X).square().sum(-2)
        return (self.covar_module(X, diag=True) - explained).clamp_min(0.0)

    def _whitened(self, X: Tensor) -> Tensor:
        r""":math:`L^{-1} k_X(x)`, `n x q`."""
        cross = self.covar_module(self.X, X).to_dense()
        return torch.linalg.solve_triangular(self.chol, cross, upper=False)
