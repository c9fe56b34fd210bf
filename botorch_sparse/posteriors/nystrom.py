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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import Mean, ZeroMean
from linear_operator import to_linear_operator
from torch import Tensor

from botorch_sparse.argument_checks import check_finite, check_tensors
from botorch_sparse.linear_operators import (
    RankOneUpdatedLinearOperator,
    UpdatableCholeskyLinearOperator,
)
from botorch_sparse.posteriors.factorization import (
    inner_cholesky,
    product_with_transpose,
)
from botorch_sparse.posteriors.features import (
    CHUNK_SIZE,
    NystromFeatures,
    by_rows,
    inner_rows,
    solve_rows,
)
from botorch_sparse.posteriors.joint_covariance import (
    Embedded,
    JointCovariance,
    PosteriorCovarianceLinearOperator,
)
from botorch_sparse.posteriors.low_rank_update import LowRankUpdate, absorb
from botorch_sparse.threads import for_each, sum_over

# Points above which the joint covariance stays a lazy operator.
LARGE_Q = 256


def validate_data(X: Tensor, Y: Tensor, noise: Tensor, inducing_points: Tensor) -> None:
    """Refuse data of other kinds, shapes and signs than a posterior takes."""
    check_tensors(X=X, Y=Y, noise=noise, inducing_points=inducing_points)
    if X.shape[:-1] != Y.shape or Y.shape != noise.shape:
        raise BotorchTensorDimensionError(
            f"Got X of shape {tuple(X.shape)}, Y of shape {tuple(Y.shape)} and noise "
            f"of shape {tuple(noise.shape)}; need `batch_shape x n x d` and twice "
            "`batch_shape x n`. Squeeze the output dimension of Y and expand the noise."
        )
    if inducing_points.dim() != X.dim() or inducing_points.shape[-1] != X.shape[-1]:
        raise BotorchTensorDimensionError(
            f"Got inducing points of shape {tuple(inducing_points.shape)} for X of "
            f"shape {tuple(X.shape)}; need `batch_shape x m x d` with the same `d`."
        )
    is_finite = X.isfinite().all() & Y.isfinite().all()
    if not ((noise > 0).all() & is_finite):
        check_finite(X=X.cpu(), Y=Y.cpu())
        raise InputDataError(
            f"Got a noise variance of {noise.min().item():.3g}; all must be positive. "
            "Use a small positive one for observations that are exact."
        )


class Moments(NamedTuple):
    """Posterior mean and variance, each `batch_shape x q`."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True, eq=False)
class NystromPosterior:
    r"""Nystrom (DTC) posterior of a Gaussian process [Calandriello2019]_.

    Its state is `(S, L, L_B, a)`, the first two in `feature_map`: nothing of the size
    of the data is kept. Build it with `from_data`; every update returns a new
    posterior. With no inducing points it is the prior. All variances are Bayesian:
    divide by lambda for the papers' scaling.

    Batch dimensions broadcast, and fantasies keep one factor and their `updates`.

    Cost, with `n` data points and `m` inducing points: O(n m^2) to build, O(m^2) for
    each point predicted.

    Attributes:
        feature_map: The features of the inducing points, which know no data.
        mean_module: The prior mean `c`.
        chol_inner: `batch_shape x m x m`, the factor `L_B` of `B` before the `updates`.
        weights: `batch_shape x m`, the vector `a`.
        updates: Conditioning that is not in `chol_inner`; see `absorbed`.
    """

    feature_map: NystromFeatures
    mean_module: Mean
    chol_inner: Tensor
    weights: Tensor
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
        chunk_size: int | None = None,
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
            chunk_size: Rows embedded at a time, by default what suits the device;
                results differ by rounding.

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
        chunk_size: int | None = None,
    ) -> "NystromPosterior":
        r"""The posterior without data: its features and residual are the prior's.

        Args:
            covar_module: The kernel `k`.
            inducing_points: As in `from_data`.
            mean_module: The prior mean `c`, zero by default.
            chunk_size: As in `NystromFeatures`.

        Returns:
            The posterior of no observations. Cost: O(m^3).
        """
        feature_map = NystromFeatures.of(
            covar_module, inducing_points, chunk_size=chunk_size
        )
        return cls.without_data(feature_map, mean_module)

    @classmethod
    def without_data(
        cls, feature_map: NystromFeatures, mean_module: Mean | None = None
    ) -> "NystromPosterior":
        """The posterior of no observations with given features. Cost: O(m^2)."""
        L, m = feature_map.chol_inducing, feature_map.num_inducing
        return cls(
            feature_map=feature_map,
            mean_module=ZeroMean() if mean_module is None else mean_module,
            chol_inner=torch.eye(m, dtype=L.dtype, device=L.device).expand_as(L),
            weights=L.new_zeros(L.shape[:-1]),
        )

    @property
    def covar_module(self) -> Kernel:
        """The kernel, of `feature_map` like the properties that follow."""
        return self.feature_map.covar_module

    @property
    def inducing_points(self) -> Tensor:
        """Inducing points `batch_shape x m x d`."""
        return self.feature_map.inducing_points

    @property
    def inducing_index(self) -> Tensor:
        """Where each stands among those that were asked for."""
        return self.feature_map.inducing_index

    @property
    def chol_inducing(self) -> Tensor:
        """The factor `L` of `K_SS`, `batch_shape x m x m`."""
        return self.feature_map.chol_inducing

    @property
    def chunk_size(self) -> int:
        """Rows that are embedded at a time, and kept."""
        return self.feature_map.chunk_size or CHUNK_SIZE

    @property
    def kept(self) -> Tensor | None:
        """Which inducing points are in use, `batch_shape x m`; None for all."""
        return self.feature_map.kept

    @property
    def num_inducing(self) -> int:
        """The number `m` of inducing points in use."""
        return self.feature_map.num_inducing

    def features(self, X: Tensor) -> Tensor:
        r"""Features :math:`\phi(x)`, `batch_shape x q x m`. Cost: O(q m^2)."""
        return self.feature_map.features(X)

    def covariance_with_inducing(self, X: Tensor) -> Tensor:
        """Prior covariance `k_S(x)`, `batch_shape x m x q`."""
        return self.feature_map.covariance_with_inducing(X)

    def features_from_covariance(self, covariance: Tensor) -> Tensor:
        """Features `batch_shape x q x m` from `k_S(x)` (`batch_shape x m x q`)."""
        return self.feature_map.features_from_covariance(covariance)

    def residual(self, X: Tensor, features: Tensor) -> Tensor:
        r"""Residual variance :math:`r(x, x)`, `batch_shape x q`, clamped at zero."""
        return self.feature_map.residual(X, features)

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the predictions at a `q x d` tensor."""
        factors = (self.chol_inducing, self.chol_inner, *(u.rows for u in self.updates))
        shapes = [factor.shape[:-2] for factor in factors]
        return torch.broadcast_shapes(*shapes, self.weights.shape[:-1])

    def whiten(self, features: Tensor) -> Tensor:
        r"""Whitened features :math:`w(x) = L_B^{-1} \phi(x)`, `batch_shape x q x m`."""
        w = solve_rows(self.chol_inner, features)
        for update in self.updates:
            w = update.apply(w)
        return w

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
        _, phi, w = embedded = self.embed(X)
        if X2 is None:
            return self._joint_covariance(embedded)
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
            gradients. Otherwise the parameters of the kernel and of the prior mean
            get none for more than one chunk.
        """
        if X.shape[-2] <= self.chunk_size:
            return self._moments_of_chunk(X)
        sources = (X, self.inducing_points, self.chol_inducing, self.weights)
        has_graph = any(tensor.requires_grad for tensor in sources)
        if not (has_graph and torch.is_grad_enabled()):
            with torch.no_grad():
                return self._moments_in_place(X)
        chunks = (X[..., rows, :] for rows in self.feature_map.chunks(X))
        parts = [self._moments_of_chunk(chunk) for chunk in chunks]
        return Moments(*(torch.cat(part, dim=-1) for part in zip(*parts, strict=True)))

    def _moments_in_place(self, X: Tensor) -> Moments:
        """The same without gradients.

        Results are written where there is room for all. In tensors of their own they
        would lie in what each chunk gives back, and the next one would find no room
        there: 11 GB instead of 0.1 for 10^6 rows and m = 1000.
        """
        shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
        both = self.weights.new_empty(2, *shape, X.shape[-2])

        def write(rows: slice) -> None:
            parts = self._moments_of_chunk(X[..., rows, :])
            for whole, part in zip(both, parts, strict=True):
                whole[..., rows] = part

        features, mean = self.feature_map, self.mean_module
        for_each(features.chunks(X), features.work(X, mean), lambda: write)
        return Moments(*both)

    def _moments_of_chunk(self, X: Tensor) -> Moments:
        return self.moments_of(self.embed(X))

    def moments_of(self, embedded: Embedded) -> Moments:
        """Posterior mean and variance of points whose features are known."""
        X, phi, w = embedded
        mean = self.mean_module(X) + inner_rows(w, self.weights)
        variance = self.residual(X, phi) + w.square().sum(-1)
        return Moments(mean, variance.expand_as(mean))

    def embed(self, X: Tensor) -> Embedded:
        """The features of points, and the same whitened. Cost: O(q m^2)."""
        phi = self.features(X)
        return Embedded(X, phi, self.whiten(phi))

    def _joint_covariance(self, embedded: Embedded) -> Tensor:
        """The joint covariance of points, its residual's diagonal clamped at zero."""
        X, phi, w = embedded
        kernel = self.covar_module
        K = kernel(X).to_dense() if X.shape[-2] > 1 else kernel(X, diag=True)[..., None]
        residual = K.diagonal(dim1=-2, dim2=-1) - phi.square().sum(-1)
        below_zero = residual.clamp_max(0.0).diag_embed()
        return K - phi @ phi.mT - below_zero + w @ w.mT

    def predict(
        self,
        X: Tensor,
        *,
        embedded: Embedded | None = None,
        on_dense: Callable[[int], None] | None = None,
    ) -> MultivariateNormal:
        r"""The joint posterior at `X`.

        .. math::
            \mu(x) = c(x) + w(x)^\top a, \qquad
            \mathrm{cov}(x, x') = k(x, x') - \phi(x)^\top \phi(x') + w(x)^\top w(x')

        Args:
            X: A `batch_shape x q x d` tensor; `batch_shape` broadcasts with the batch
                shape of the posterior. Results have its dtype.
            embedded: The points with their features, where these are known.
            on_dense: Called with `q` when a joint covariance is formed that was not
                formed here.

        Returns:
            A Gaussian over `broadcast(batch_shape, self.batch_shape) x q`. Cost for `b`
            batches: O(b q m^2), and O(b q^2 m) for the joint covariance. For large `q`
            it is formed when something asks for it: means and variances of all data
            take O(chunk_size m) memory. So do batches of one point.
        """
        batch_shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
        Z = X.to(self.inducing_points.dtype)
        if embedded is None and Z.shape[-2] == 1:
            # Many batches of one point are many rows, which `moments` takes in chunks.
            moments = by_rows(
                Z, self.batch_shape, lambda R: torch.stack(self.moments(R), dim=-1)
            )
            mean, variance = moments.unbind(-1)
            mean, variance = (t.expand(*batch_shape, 1) for t in (mean, variance))
            dense = variance.unsqueeze(-1).to(X.dtype)
            return MultivariateNormal(mean.to(X.dtype), to_linear_operator(dense))
        if embedded is None and Z.shape[-2] <= self.chunk_size:
            embedded = self.embed(Z)
        if embedded is None:
            mean, variance = self.moments(Z)
        else:  # what is the same for all fantasies is computed once, then expanded
            _, phi, w = embedded
            mean = self.mean_module(Z) + inner_rows(w, self.weights)
        mean = mean.expand(*batch_shape, Z.shape[-2]).to(X.dtype)
        if embedded is not None and Z.shape[-2] <= LARGE_Q:
            dense = self._joint_covariance(embedded).to(X.dtype)
            dense = dense.expand(*batch_shape, *dense.shape[-2:])
            return MultivariateNormal(mean, to_linear_operator(dense))
        if embedded is not None:
            variance = self.residual(Z, phi) + w.square().sum(-1)
        joint = JointCovariance(
            self.covar_module,
            self.embed,
            batch_shape,
            Z,
            self.chunk_size,
            embedded,
            on_dense,
        )
        covariance = PosteriorCovarianceLinearOperator.of(
            joint, variance.expand(*batch_shape, -1), X.dtype
        )
        return MultivariateNormal(mean, covariance)

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
        scaled = w / noise.sqrt().unsqueeze(-1)
        return RankOneUpdatedLinearOperator.from_rows(scaled)

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

        Raises:
            InputDataError: If there is NaN or infinity, on the host.
        """
        check_finite(X=X, Y=Y, noise=noise)
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
            chol_inner = inner_cholesky(product_with_transpose(L_B) + gram)
        b = L_B @ self.weights.unsqueeze(-1) + moment
        return self.replace_inner(chol_inner, b)

    def absorbed(self) -> "NystromPosterior":
        """The same posterior with its `updates` in `chol_inner`. Cost: O(m^3)."""
        if not self.updates:
            return self
        L_B, a = absorb(self.chol_inner, self.weights, self.updates)
        return replace(self, chol_inner=L_B, weights=a, updates=())

    def statistics(self, X: Tensor, Y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        r"""The sums :math:`\Phi D^{-1} \Phi^\top` and :math:`\Phi D^{-1} (y - c)`.

        Returns:
            A `batch_shape x m x m` and a `batch_shape x m x 1` tensor. Cost: O(n m^2).
        """
        m = self.num_inducing

        def add_up(chunks: Sequence[slice]) -> tuple[Tensor, Tensor]:
            gram, moment = X.new_zeros(m, m), X.new_zeros(m, 1)
            for rows in chunks:
                chunk = X[..., rows, :]
                phi = self.features(chunk)
                scaled = phi / noise[..., rows].unsqueeze(-1)
                error = (Y[..., rows] - self.mean_module(chunk)).unsqueeze(-1)
                gram = gram + scaled.mT @ phi
                moment = moment + scaled.mT @ error
            return gram, moment

        features, mean = self.feature_map, self.mean_module
        work = features.work(X, mean)
        gram, moment = sum_over(features.chunks(X), work, add_up)
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
