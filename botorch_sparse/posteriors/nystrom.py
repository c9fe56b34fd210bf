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
    RankOneUpdatedLinearOperator,
    UpdatableCholeskyLinearOperator,
)
from botorch_sparse.posteriors.appending import append_inducing
from botorch_sparse.posteriors.batching import by_rows, inner_rows, solve_rows
from botorch_sparse.posteriors.factorization import InducingFactor, factorize_batch
from botorch_sparse.posteriors.inner_factor import inner_cholesky
from botorch_sparse.posteriors.kernel_batch import prior_variance
from botorch_sparse.posteriors.low_rank_update import LowRankUpdate, absorb
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

    Batch dimensions broadcast, and fantasies keep one factor and their `updates`.

    Cost, with `n` data points and `m` inducing points: O(n m^2) to build, O(m^2) for
    each point predicted.

    Attributes:
        covar_module: The kernel `k`.
        mean_module: The prior mean `c`.
        inducing_points: `batch_shape x m x d`, in the order of the pivots.
        inducing_index: `batch_shape x m`, where each point kept stands among the
            inducing points that were asked for.
        chol_inducing: `batch_shape x m x m`, the factor `L` of `K_SS`.
        chol_inner: `batch_shape x m x m`, the factor `L_B` of `B` before the `updates`.
        weights: `batch_shape x m`, the vector `a`.
        chunk_size: Rows embedded at a time.
        kept: `batch_shape x m`, False for inducing points that are left out of one
            element of a batch but not of another; None where all are in.
        updates: Conditioning that is not in `chol_inner`; see `absorbed`.
    """

    covar_module: Kernel
    mean_module: Mean
    inducing_points: Tensor
    inducing_index: Tensor
    chol_inducing: Tensor
    chol_inner: Tensor
    weights: Tensor
    chunk_size: int = CHUNK_SIZE
    kept: Tensor | None = None
    updates: tuple[LowRankUpdate, ...] = ()

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
            chunk_size: Rows embedded at a time; results differ by rounding.

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
        relative_residual: float | None = None,
    ) -> "NystromPosterior":
        r"""The posterior without data: its features and residual are the prior's.

        Args:
            covar_module: The kernel `k`.
            inducing_points: As in `from_data`.
            mean_module: The prior mean `c`, zero by default.
            chunk_size, relative_residual: As in the field, and in `factorize_batch`.

        Returns:
            The posterior of no observations. Cost: O(m^3).
        """
        K_SS = covar_module(inducing_points).to_dense()
        return cls.from_factor(
            covar_module,
            inducing_points,
            factorize_batch(K_SS, relative_residual),
            mean_module=mean_module,
            chunk_size=chunk_size,
        )

    @classmethod
    def from_factor(
        cls,
        covar_module: Kernel,
        inducing_points: Tensor,
        factor: InducingFactor,
        *,
        mean_module: Mean | None = None,
        chunk_size: int = CHUNK_SIZE,
    ) -> "NystromPosterior":
        """The posterior without data, given the factor of `K_SS`.

        Args:
            covar_module: The kernel `k`.
            inducing_points: As in `from_data`.
            factor: What `factorize_batch` returned for their covariance.
            mean_module: The prior mean `c`, zero by default.
            chunk_size: As in the field.
        """
        L, index, m = factor.chol, factor.index, factor.index.shape[-1]
        S = inducing_points.expand(*L.shape[:-2], *inducing_points.shape[-2:])
        return cls(
            covar_module=covar_module,
            mean_module=ZeroMean() if mean_module is None else mean_module,
            inducing_points=torch.take_along_dim(S, index.unsqueeze(-1), dim=-2),
            inducing_index=index,
            chol_inducing=L,
            chol_inner=torch.eye(m, dtype=L.dtype, device=L.device).expand_as(L),
            weights=L.new_zeros(L.shape[:-1]),
            chunk_size=chunk_size,
            kept=factor.kept,
        )

    @property
    def num_inducing(self) -> int:
        """The number `m` of inducing points in use."""
        return self.chol_inducing.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the predictions at a `q x d` tensor."""
        factors = (self.chol_inducing, self.chol_inner, *(u.rows for u in self.updates))
        shapes = [factor.shape[:-2] for factor in factors]
        return torch.broadcast_shapes(*shapes, self.weights.shape[:-1])

    def features(self, X: Tensor) -> Tensor:
        r"""Nystrom features :math:`\phi(x) = L^{-1} k_S(x)`, one row for each point.

        Args:
            X: A `batch_shape x q x d` tensor.

        Returns:
            A `batch_shape x q x m` tensor. Cost: O(q m^2).
        """
        return by_rows(
            X,
            self.chol_inducing.shape[:-2],
            lambda Z: self.features_from_covariance(self.covariance_with_inducing(Z)),
        )

    def covariance_with_inducing(self, X: Tensor) -> Tensor:
        """Prior covariance `k_S(x)`, `batch_shape x m x q`, inducing points first."""
        if self.num_inducing == 0:
            return X.new_zeros(*X.shape[:-2], 0, X.shape[-2])
        covariance = self.covar_module(self.inducing_points, X).to_dense()
        return covariance if self.kept is None else covariance * self.kept.unsqueeze(-1)

    def features_from_covariance(self, covariance: Tensor) -> Tensor:
        """Features `batch_shape x q x m` from `k_S(x)` (`batch_shape x m x q`)."""
        phi = torch.linalg.solve_triangular(self.chol_inducing, covariance, upper=False)
        return phi.mT

    def whiten(self, features: Tensor) -> Tensor:
        r"""Whitened features :math:`w(x) = L_B^{-1} \phi(x)`, `batch_shape x q x m`."""
        w = solve_rows(self.chol_inner, features)
        for update in self.updates:
            w = update.apply(w)
        return w

    def residual(self, X: Tensor, features: Tensor) -> Tensor:
        r"""Residual variance :math:`r(x, x)`, `batch_shape x q`, clamped at zero."""
        k_diag = prior_variance(self.covar_module, X)
        return (k_diag - features.square().sum(-1)).clamp_min(0.0)

    def mean(self, X: Tensor) -> Tensor:
        r"""Posterior mean :math:`c(x) + w(x)^\top a`, `batch_shape x q`."""
        w = self.whiten(self.features(X))
        return self.mean_module(X) + inner_rows(w, self.weights)

    def representer_weights(self) -> Tensor:
        r"""Weights of `k_S(x)` in the mean, `batch_shape x m`.

        .. math:: \mu(x) = c(x) + k_S(x)^\top \beta, \qquad
            \beta = L^{-\top} L_B^{-\top} a

        With them a mean alone costs O(m). Cost: O(m^2), O(m^3) with `updates`.
        """
        known = self.absorbed()
        weights = known.weights.unsqueeze(-1)
        for factor in (known.chol_inner, known.chol_inducing):
            weights = torch.linalg.solve_triangular(factor.mT, weights, upper=True)
        return weights.squeeze(-1)

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
            return joint_covariance(self.covar_module, X, phi, w)
        phi2 = self.features(X2)
        residual = self.covar_module(X, X2).to_dense() - phi @ phi2.mT
        return residual + w @ self.whiten(phi2).mT

    def moments(self, X: Tensor) -> Moments:
        r"""Posterior mean and variance, in row chunks.

        Args:
            X: A `batch_shape x q x d` tensor.

        Returns:
            Mean and variance, each `batch_shape x q`. Cost: O(q m^2) time,
            O(chunk_size m) memory, unless `X` or the posterior's own tensors require
            gradients. The kernel's parameters get none for more than one chunk if
            the posterior was built without.
        """
        if X.shape[-2] <= self.chunk_size:
            return self._moments_of_chunk(X)
        sources = (X, self.inducing_points, self.chol_inducing, self.weights)
        has_graph = any(tensor.requires_grad for tensor in sources)
        if not (has_graph and torch.is_grad_enabled()):
            with torch.no_grad():
                return self._moments_in_place(X)
        parts = [self._moments_of_chunk(chunk) for chunk in self._chunks(X)]
        return Moments(*(torch.cat(part, dim=-1) for part in zip(*parts, strict=True)))

    def _moments_in_place(self, X: Tensor) -> Moments:
        """The same without gradients.

        Results are written where there is room for all. In tensors of their own they
        would lie in what each chunk gives back, and the next one would find no room
        there: 11 GB instead of 0.1 for 10^6 rows and m = 1000.
        """
        q, start = X.shape[-2], 0
        shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
        both = self.weights.new_empty(2, *shape, q)
        for chunk in self._chunks(X):
            rows = slice(start, start + chunk.shape[-2])
            for whole, part in zip(both, self._moments_of_chunk(chunk), strict=True):
                whole[..., rows] = part
            start = rows.stop
        return Moments(*both)

    def _moments_of_chunk(self, X: Tensor) -> Moments:
        phi = self.features(X)
        w = self.whiten(phi)
        mean = self.mean_module(X) + inner_rows(w, self.weights)
        variance = self.residual(X, phi) + w.square().sum(-1)
        return Moments(mean, variance.expand_as(mean))

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

        The residual is the price of a frozen set ([Calandriello2020]_, Section 3).

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
            Y: `batch_shape x q` observations; leading dimensions that `X` lacks are
                observations of the same points, and share their factor.
            noise: `batch_shape x q` noise variances, positive.

        Returns:
            A new posterior. Cost: O(q m^2), and O(m^3) for several points. For batches
            of `X` the factor stays, and O(q m) of `updates` for each element are added.
        """
        L_B, q = self.chol_inner, X.shape[-2]
        if q == 0:
            batch_shape = torch.broadcast_shapes(self.batch_shape, Y.shape[:-1])
            return replace(self, weights=self.weights.expand(*batch_shape, -1))
        is_fantasy = bool(self.updates) or X.shape[:-2] != L_B.shape[:-2]
        if is_fantasy and q < self.num_inducing:
            return self._condition_fantasies(X, Y, noise)
        if self.updates:
            return self.absorbed().condition(X, Y, noise)
        if q < self.num_inducing:
            V = self.features(X).mT / noise.sqrt().unsqueeze(-2)
            error = (Y - self.mean_module(X)) / noise.sqrt()
            moment = V @ error.unsqueeze(-1)
            L_new = UpdatableCholeskyLinearOperator(L_B).add_low_rank(V)
            chol_inner = L_new.cholesky().to_dense()
        else:
            gram, moment = self.statistics(X, Y, noise)
            chol_inner = inner_cholesky(L_B @ L_B.mT + gram)
        b = L_B @ self.weights.unsqueeze(-1) + moment
        return self.replace_inner(chol_inner, b)

    def absorbed(self) -> "NystromPosterior":
        """The same posterior with its `updates` in `chol_inner`. Cost: O(m^3)."""
        if not self.updates:
            return self
        L_B, a = absorb(self.chol_inner, self.weights, self.updates)
        return replace(self, chol_inner=L_B, weights=a, updates=())

    def append_inducing(
        self, X_new: Tensor, X: Tensor, Y: Tensor, noise: Tensor
    ) -> "NystromPosterior":
        """Append inducing points `X_new` (`p x d`), given all data so far.

        See `botorch_sparse.posteriors.appending`. Cost: O(n (m + p)^2).
        """
        return append_inducing(self, X_new, X, Y, noise)

    def statistics(self, X: Tensor, Y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        r"""The sums :math:`\Phi D^{-1} \Phi^\top` and :math:`\Phi D^{-1} (y - c)`.

        Returns:
            A `batch_shape x m x m` and a `batch_shape x m x 1` tensor. Cost: O(n m^2).
        """
        m = self.num_inducing
        gram, moment = X.new_zeros(m, m), X.new_zeros(m, 1)
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

    def replace_inner(self, L_B: Tensor, b: Tensor) -> "NystromPosterior":
        """The same inducing set with a new `L_B` and `a = L_B^-1 b`."""
        return replace(self, chol_inner=L_B, weights=solve_rows(L_B, b.mT).squeeze(-2))

    def _condition_fantasies(
        self, X: Tensor, Y: Tensor, noise: Tensor
    ) -> "NystromPosterior":
        r"""One of `updates`, and :math:`a' = F^\top (a + P z)` with scaled errors."""
        added = self.features(X) / noise.sqrt().unsqueeze(-1)
        update = LowRankUpdate.from_rows(added, self.whiten(added))
        z = (Y - self.mean_module(X)) / noise.sqrt()
        a = self.weights + inner_rows(update.rows.mT, z)
        weights = update.apply(a.unsqueeze(-2)).squeeze(-2)
        return replace(self, weights=weights, updates=(*self.updates, update))

    def _chunks(self, X: Tensor) -> Iterator[Tensor]:
        """`X` in chunks of rows."""
        yield from X.split(self.chunk_size, dim=-2)


def joint_covariance(kernel: Kernel, X: Tensor, phi: Tensor, w: Tensor) -> Tensor:
    r"""The posterior covariance :math:`r(x, x') + w(x)^\top w(x')` of points.

    Args:
        kernel: The kernel.
        X: `batch_shape x q x d` points.
        phi: Their features, `batch_shape x q x m`.
        w: Their whitened features, `batch_shape x q x m`.

    Returns:
        A `batch_shape x q x q` tensor, the residual's diagonal clamped at zero. Cost:
        O(q^2 m).
    """
    if X.shape[-2] == 1:
        K = kernel(X, diag=True).unsqueeze(-1)
    else:
        K = kernel(X).to_dense()
    residual = K.diagonal(dim1=-2, dim2=-1) - phi.square().sum(-1)
    below_zero = residual.clamp_max(0.0).diag_embed()
    return K - phi @ phi.mT - below_zero + w @ w.mT
