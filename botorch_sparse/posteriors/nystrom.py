r"""The Nystrom (DTC) posterior, written once.

With inducing points `S`, data `(X, y)`, noise variances `D = diag(d_i)` and prior mean
`c`, the posterior of BKB and BBKB ([Calandriello2019]_ Eqs. 3-5, [Calandriello2020]_
Eqs. 1-3; the papers divide the variance by lambda), of Titsias' optimal variational
distribution [Titsias2009]_, and, with `S = X`, of the exact GP is

.. math::
    L L^\top &= K_{SS}, & \phi(x) &= L^{-1} k_S(x), \\
    L_B L_B^\top &= B = I + \Phi D^{-1} \Phi^\top, & w(x) &= L_B^{-1} \phi(x), \\
    a &= L_B^{-1} \Phi D^{-1} (y - c), & \mu(x) &= c(x) + w(x)^\top a, \\
    r(x, x') &= k(x, x') - \phi(x)^\top \phi(x'), &
    \mathrm{cov}(x, x') &= r(x, x') + w(x)^\top w(x').

`B` has eigenvalues of at least one: it is the well-conditioned place to factorize.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from botorch_sparse.linear_operators import (
    PosteriorCovarianceLinearOperator,
    RankOneUpdatedLinearOperator,
    UpdatableCholeskyLinearOperator,
)
from botorch_sparse.posteriors.factorization import (
    factorize_inducing_covariance,
    independent_points,
)
from botorch_sparse.posteriors.validation import validate_data

# Rows embedded at a time: a chunk of m = 100 features is about the size of an L2 cache.
CHUNK_SIZE = 2048


class Moments(NamedTuple):
    """Posterior mean and variance, each `batch_shape x q`."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True, eq=False)
class NystromPosterior:
    r"""Nystrom (DTC) posterior of a Gaussian process [Calandriello2019]_.

    Its state is `(S, L, L_B, a)`: nothing of the size of the data is kept. Build it
    with `from_data`; every update returns a new posterior. With no inducing points it
    is the prior. All variances are Bayesian: divide by lambda for the papers' scaling.

    Cost, with `n` data points and `m` inducing points: O(n m^2) to build, O(m^2) for
    each point predicted.

    Attributes:
        covar_module: The kernel `k`.
        mean_module: The prior mean `c`.
        inducing_points: `batch_shape x m x d`, in the order of the pivots.
        inducing_index: `m`, where each point kept stands among the inducing points that
            were asked for.
        chol_inducing: `batch_shape x m x m`, the factor `L` of `K_SS`.
        chol_inner: `batch_shape x m x m`, the factor `L_B` of `B`.
        weights: `batch_shape x m`, the vector `a`.
        chunk_size: Rows embedded at a time.
    """

    covar_module: Kernel
    mean_module: Mean
    inducing_points: Tensor
    inducing_index: Tensor
    chol_inducing: Tensor
    chol_inner: Tensor
    weights: Tensor
    chunk_size: int = CHUNK_SIZE

    @classmethod
    def from_data(
        cls,
        covar_module: Kernel,
        X: Tensor,
        Y: Tensor,
        noise: Tensor,
        inducing_points: Tensor,
        *,
        mean_module: Mean | None = None,
        chunk_size: int = CHUNK_SIZE,
    ) -> "NystromPosterior":
        r"""Condition on data, in row chunks.

        Args:
            covar_module: The kernel `k`.
            X: `batch_shape x n x d` inputs; repeats are allowed, and cheaper when they
                are folded before (`fold_repeats`).
            Y: `batch_shape x n` observations.
            noise: `batch_shape x n` noise variances `d_i`, positive.
            inducing_points: `batch_shape x m x d`; points that the others explain to
                rounding are left out.
            mean_module: The prior mean `c`, zero by default.
            chunk_size: Rows embedded at a time. Results agree across chunk sizes to
                rounding, and to the bit for equal ones.

        Returns:
            The posterior. Cost: O(n m^2) time, O(chunk_size m) memory.

        Raises:
            BotorchTensorDimensionError: If the shapes do not fit.
            InputDataError: If a noise variance is not positive.
        """
        validate_data(X, Y, noise, inducing_points)
        prior = cls.prior(
            covar_module,
            inducing_points,
            mean_module=mean_module,
            chunk_size=chunk_size,
        )
        return prior.condition(X, Y, noise)

    @classmethod
    def prior(
        cls,
        covar_module: Kernel,
        inducing_points: Tensor,
        *,
        mean_module: Mean | None = None,
        chunk_size: int = CHUNK_SIZE,
    ) -> "NystromPosterior":
        r"""The posterior without data: its features and residual are the prior's.

        Args:
            covar_module: The kernel `k`.
            inducing_points: `batch_shape x m x d`; points that the others explain to
                rounding are left out.
            mean_module: The prior mean `c`, zero by default.
            chunk_size: Rows embedded at a time.

        Returns:
            The posterior of no observations. Cost: O(m^3).
        """
        K_SS = covar_module(inducing_points).to_dense()
        L, kept = factorize_inducing_covariance(K_SS)
        m = kept.shape[0]
        return cls(
            covar_module=covar_module,
            mean_module=ZeroMean() if mean_module is None else mean_module,
            inducing_points=inducing_points[..., kept, :],
            inducing_index=kept,
            chol_inducing=L,
            chol_inner=torch.eye(m, dtype=L.dtype, device=L.device).expand_as(L),
            weights=L.new_zeros(L.shape[:-1]),
            chunk_size=chunk_size,
        )

    @property
    def num_inducing(self) -> int:
        """The number `m` of inducing points in use."""
        return self.chol_inducing.shape[-1]

    def features(self, X: Tensor) -> Tensor:
        r"""Nystrom features :math:`\phi(x) = L^{-1} k_S(x)`, one row for each point.

        Args:
            X: A `batch_shape x q x d` tensor.

        Returns:
            A `batch_shape x q x m` tensor. Cost: O(q m^2).
        """
        return self.features_from_covariance(self.covariance_with_inducing(X))

    def covariance_with_inducing(self, X: Tensor) -> Tensor:
        """Prior covariance `k_S(x)`, `batch_shape x m x q`, inducing points first."""
        if self.num_inducing == 0:
            return X.new_zeros(*X.shape[:-2], 0, X.shape[-2])
        return self.covar_module(self.inducing_points, X).to_dense()

    def features_from_covariance(self, covariance: Tensor) -> Tensor:
        """Features `batch_shape x q x m` from `k_S(x)` (`batch_shape x m x q`)."""
        phi = torch.linalg.solve_triangular(self.chol_inducing, covariance, upper=False)
        return phi.mT

    def whiten(self, features: Tensor) -> Tensor:
        r"""Whitened features :math:`w(x) = L_B^{-1} \phi(x)`, `batch_shape x q x m`."""
        w = torch.linalg.solve_triangular(self.chol_inner, features.mT, upper=False)
        return w.mT

    def residual(self, X: Tensor, features: Tensor) -> Tensor:
        r"""Residual variance :math:`r(x, x)`, `batch_shape x q`, clamped at zero."""
        k_diag = self.covar_module(X, diag=True)
        return (k_diag - features.square().sum(-1)).clamp_min(0.0)

    def mean(self, X: Tensor) -> Tensor:
        r"""Posterior mean :math:`c(x) + w(x)^\top a`, `batch_shape x q`."""
        w = self.whiten(self.features(X))
        return self.mean_module(X) + (w @ self.weights.unsqueeze(-1)).squeeze(-1)

    def variance(self, X: Tensor) -> Tensor:
        r"""Posterior variance :math:`r(x, x) + w(x)^\top w(x)`, `batch_shape x q`."""
        return self.moments(X).variance

    def covariance(self, X: Tensor, X2: Tensor | None = None) -> Tensor:
        r"""Posterior covariance :math:`r(x, x') + w(x)^\top w(x')`.

        Args:
            X: A `batch_shape x q x d` tensor.
            X2: A `batch_shape x q2 x d` tensor, `X` by default; with the default the
                diagonal's residual is clamped at zero.

        Returns:
            A `batch_shape x q x q2` tensor. Cost: O((q + q2) m^2 + q q2 m).
        """
        phi = self.features(X)
        w = self.whiten(phi)
        if X2 is None:
            return PosteriorCovarianceLinearOperator(
                X, phi, w, covar_module=self.covar_module
            ).to_dense()
        phi2 = self.features(X2)
        residual = self.covar_module(X, X2).to_dense() - phi @ phi2.mT
        return residual + w @ self.whiten(phi2).mT

    def moments(self, X: Tensor) -> Moments:
        r"""Posterior mean and variance, in row chunks.

        Args:
            X: A `batch_shape x q x d` tensor.

        Returns:
            Mean and variance, each `batch_shape x q`. Cost: O(q m^2) time,
            O(chunk_size m) memory.
        """
        means, variances = [], []
        for chunk in self._chunks(X):
            phi = self.features(chunk)
            w = self.whiten(phi)
            mean = (w @ self.weights.unsqueeze(-1)).squeeze(-1)
            means.append(self.mean_module(chunk) + mean)
            variances.append(self.residual(chunk, phi) + w.square().sum(-1))
        return Moments(torch.cat(means, dim=-1), torch.cat(variances, dim=-1))

    def hallucinate(
        self, X_pending: Tensor, noise: Tensor
    ) -> RankOneUpdatedLinearOperator:
        r"""Variance-only update on points whose feedback is still to come.

        With :math:`p_s = w(x_s) / \sqrt{d_s}` it is
        :math:`(I + \sum_s p_s p_s^\top)^{-1}` in the whitened space; see
        `hallucinated_variance`.

        Args:
            X_pending: A `batch_shape x j x d` tensor of pending points.
            noise: `batch_shape x j` noise variances, positive.

        Returns:
            The operator. Cost: O(j m^2).
        """
        w = self.whiten(self.features(X_pending))
        update = RankOneUpdatedLinearOperator.identity(
            self.num_inducing, w.shape[:-2], dtype=w.dtype, device=w.device
        )
        for p in (w / noise.sqrt().unsqueeze(-1)).unbind(-2):
            update = update.append(p)
        return update

    def hallucinated_variance(
        self, X: Tensor, update: RankOneUpdatedLinearOperator
    ) -> Tensor:
        r"""Variance with `S` frozen and the pending points' noise still unknown.

        .. math:: \mathrm{var}_t(x) = r(x, x) + w(x)^\top (I + P P^\top)^{-1} w(x)

        Pending points shrink the embedded part alone ([Calandriello2020]_, Section 3):
        the residual is the price of a frozen inducing set.

        Args:
            X: A `batch_shape x q x d` tensor.
            update: What `hallucinate` returned.

        Returns:
            A `batch_shape x q` tensor. Cost: O(q m^2 + q j m).
        """
        phi = self.features(X)
        w = self.whiten(phi)
        return self.residual(X, phi) + (w * (update @ w.mT).mT).sum(-1)

    def condition(self, X: Tensor, Y: Tensor, noise: Tensor) -> "NystromPosterior":
        r"""Add data with the inducing set fixed: a rank-`q` update of `B`.

        .. math::
            B' = B + \Phi_q D_q^{-1} \Phi_q^\top, \quad
            L_{B'} a' = L_B a + \Phi_q D_q^{-1} (y_q - c)

        Args:
            X: A `batch_shape x q x d` tensor.
            Y: `batch_shape x q` observations.
            noise: `batch_shape x q` noise variances, positive.

        Returns:
            A new posterior. Cost: O(q m^2) for one point, O(q m^2 + m^3) for more.
        """
        L_B, q = self.chol_inner, X.shape[-2]
        if q < self.num_inducing:
            V = self.features(X).mT / noise.sqrt().unsqueeze(-2)
            error = (Y - self.mean_module(X)) / noise.sqrt()
            moment = V @ error.unsqueeze(-1)
            L_new = UpdatableCholeskyLinearOperator(L_B).add_low_rank(V)
            chol_inner = L_new.cholesky().to_dense()
        else:
            gram, moment = self._statistics(X, Y, noise)
            chol_inner = torch.linalg.cholesky(L_B @ L_B.mT + gram)
        b = L_B @ self.weights.unsqueeze(-1) + moment
        return self._replace_inner(chol_inner, b)

    def append_inducing(
        self, X_new: Tensor, X: Tensor, Y: Tensor, noise: Tensor
    ) -> "NystromPosterior":
        r"""Append inducing points: border updates of `L` and `L_B`.

        Needs the data again, since the new features must be taken at all of them. New
        points that the present ones explain to rounding are left out.

        Args:
            X_new: A `p x d` tensor of points to append.
            X: All data so far, `n x d`.
            Y: `n` observations.
            noise: `n` noise variances.

        Returns:
            A new posterior, whose `inducing_index` counts through the present inducing
            points and then `X_new`. Cost: O(n (m + p)^2) for the statistics, O(m^2 p)
            for the factors.
        """
        S, m = self.inducing_points, self.num_inducing
        # Taken once: for fewer rows the kernel would round otherwise, and the points
        # that are independent in one rounding need not be in another.
        cross = self.covariance_with_inducing(X_new)
        corner = self.covar_module(X_new).to_dense()
        phi = self.features_from_covariance(cross)
        kept = independent_points(corner - phi @ phi.mT, corner.diagonal())
        X_new, cross, corner = X_new[kept], cross[:, kept], corner[kept][:, kept]
        grown = replace(
            self,
            inducing_points=torch.cat([S, X_new], dim=-2),
            inducing_index=torch.cat([torch.arange(m, device=S.device), m + kept]),
            chol_inducing=_append(self.chol_inducing, cross, corner),
        )
        gram, b = grown._statistics(X, Y, noise)
        B_corner = gram[m:, m:] + torch.eye(len(kept), dtype=S.dtype, device=S.device)
        L_B = _append(self.chol_inner, gram[:m, m:], B_corner)
        return grown._replace_inner(L_B, b)

    def _statistics(self, X: Tensor, Y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        r"""The sums :math:`\Phi D^{-1} \Phi^\top` and :math:`\Phi D^{-1} (y - c)`."""
        m = self.inducing_points.shape[-2]
        gram = X.new_zeros(*X.shape[:-2], m, m)
        moment = X.new_zeros(*X.shape[:-2], m, 1)
        start = 0
        for chunk in self._chunks(X):
            rows = slice(start, start + chunk.shape[-2])
            start = rows.stop
            phi = self.features(chunk)
            scaled = phi / noise[..., rows].unsqueeze(-1)
            error = (Y[..., rows] - self.mean_module(chunk)).unsqueeze(-1)
            gram = gram + scaled.mT @ phi
            moment = moment + scaled.mT @ error
        return gram, moment

    def _replace_inner(self, L_B: Tensor, b: Tensor) -> "NystromPosterior":
        """The same inducing set with a new `L_B` and `a = L_B^-1 b`."""
        a = torch.linalg.solve_triangular(L_B, b, upper=False).squeeze(-1)
        return replace(self, chol_inner=L_B, weights=a)

    def _chunks(self, X: Tensor) -> Iterator[Tensor]:
        """`X` in chunks of rows."""
        yield from X.split(self.chunk_size, dim=-2)


def _append(L: Tensor, cross: Tensor, corner: Tensor) -> Tensor:
    """Factor of the matrix of `L` bordered by `cross` and `corner`."""
    grown = UpdatableCholeskyLinearOperator(L).append(cross, corner)
    return grown.cholesky().to_dense()
