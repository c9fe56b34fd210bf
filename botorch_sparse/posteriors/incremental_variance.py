r"""The variance of many rows while data and inducing points arrive one at a time.

No feedback is involved: variances and inducing points depend on the inputs alone. With
the notation of `NystromPosterior` every row `x` keeps its features, its residual
`r(x)` and its embedded variance :math:`e(x) = \phi(x)^\top B^{-1} \phi(x)`. Both
updates are exact and cost one pass over the rows, O(A m).

*A data point* `x_s` is the row of a pending point (`posteriors/pending_points.py`),
with :math:`B^{-1}` for :math:`I - U^\top U` (Sherman and Morrison), and
:math:`a = B^{-1} \phi(x_s)`:

.. math:: u = a \, (d + \phi(x_s)^\top a)^{-1/2}, \quad
    e(x) \leftarrow e(x) - (\phi(x)^\top u)^2, \quad
    B^{-1} \leftarrow B^{-1} - u u^\top

*An inducing point* `z` (a border of `L` and of `B`), with `b` and `c` the new column of
`B` and :math:`s = c - b^\top B^{-1} b \ge 1`:

.. math::
    \phi_{m+1}(x) &= (k(x, z) - \phi(x)^\top \phi(z)) / r(z)^{1/2}, \\
    r(x) &\leftarrow r(x) - \phi_{m+1}(x)^2, \\
    e(x) &\leftarrow e(x) + (\phi_{m+1}(x) - \phi(x)^\top B^{-1} b)^2 / s.

What the first subtracts was of the size of the prior variance, and its rounding stays
while `e` falls to the noise: after `j` updates up to about `j m eps` of it. So
:math:`B^{-1}` and `e` are taken anew from the factor of `B` after `max(64, m)` updates,
for a part of what these cost, or before that comes to a thousandth of the noise: with
`m = 100` where the noise is less than 2e-9 of the prior variance. Below 2e-11 of it a
solve follows each update, O(A m^2). Nothing is certain there: one update may lose a
variance where there are more inducing points than different data points.
"""

from dataclasses import replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.kernels import prior_variance
from botorch_sparse.linear_operators.rank_one_updated import gain
from botorch_sparse.posteriors.factorization import (
    RELATIVE_RESIDUAL,
    factorize_inducing_covariance,
    inner_cholesky,
)
from botorch_sparse.posteriors.features import NystromFeatures
from botorch_sparse.posteriors.nystrom import NystromPosterior
from botorch_sparse.posteriors.pending_points import PendingRow

# Updates of the inverse after which it is taken from the factor, if m is not larger.
NUM_UPDATES = 64
# Rounding of all updates since then that is let be, relative to the noise.
ROUNDING = 1e-3
# Rows that are taken at a time where all are.
CHUNK_SIZE = 8192


class IncrementalVariance:
    """Variances of `A` rows under a growing design and a growing inducing set.

    Data and inducing points are rows. Memory O(A m); use it where each step needs the
    variance of every row, and `NystromPosterior` elsewhere.

    Args:
        covar_module: The kernel, for float64.
        X: `A x d` rows, float64.
        noise: Noise variance lambda of one observation.

    Attributes:
        counts: `A` numbers of observations of each row.
        residual: `A` residual variances `r(x)`.
        embedded: `A` embedded variances `e(x)`.
        inducing: Rows that are inducing points, in their order.
    """

    @torch.no_grad()
    def __init__(self, covar_module: Kernel, X: Tensor, noise: float) -> None:
        self.covar_module = covar_module
        self.X = X
        self.noise = noise
        self.counts = X.new_zeros(len(X))
        self._prior = prior_variance(covar_module, X).clone()
        self._largest = _largest(self._prior)
        self._start(0)

    def _start(self, num_inducing: int) -> None:
        """No features yet, room for some."""
        X = self.X
        self.residual = self._prior.clone()
        self.embedded = X.new_zeros(len(X))
        self.inducing: list[int] = []
        self._phi = X.new_empty(max(16, num_inducing), len(X))
        self._inverse = X.new_empty(0, 0)  # B^-1
        self._num_updates = 0  # of it since it came from the factor

    def __len__(self) -> int:
        return len(self.X)

    @property
    def num_inducing(self) -> int:
        """The number `m` of inducing points."""
        return len(self.inducing)

    @property
    def features(self) -> Tensor:
        """`m x A` features, one column for each row of `X`."""
        return self._phi[: self.num_inducing]

    @property
    def variance(self) -> Tensor:
        """`A` posterior variances. O(A)."""
        return (self.residual + self.embedded).clamp_min(0.0)

    @torch.no_grad()
    def observe(self, row: int) -> None:
        """One more observation of a row, its value still unknown. O(A m + m^2)."""
        self.counts[row].add_(1)
        if self.num_inducing == 0:
            return
        phi = self.features[:, row]
        a = self._inverse @ phi
        u = PendingRow(a, gain(phi, a)).u(self.noise)
        self.embedded -= (u @ self.features).square_()
        self._inverse -= torch.outer(u, u)
        self._count_update()

    def unexplained(self, rows: Tensor) -> Tensor:
        """`k` numbers: of a row that may be an inducing point it is positive. O(k)."""
        least = RELATIVE_RESIDUAL[self.X.dtype] * self._prior.index_select(0, rows)
        return self.residual.index_select(0, rows) - least

    def _observed(self) -> Tensor | slice:
        """The rows with observations, or all where the host would wait for them."""
        if self.counts.is_cpu:
            return self.counts.nonzero().squeeze(-1)
        return slice(None)

    @torch.no_grad()
    def add_inducing(self, row: int, *, is_unexplained: bool | None = None) -> bool:
        """Make a row an inducing point, unless the others explain it. O(A m + m^2).

        Whether `unexplained` is positive there may be given. Returns whether it was
        added.
        """
        r = self.residual[row].clone()
        if is_unexplained is None:
            least = RELATIVE_RESIDUAL[self.X.dtype] * self._prior[row]
            is_unexplained = bool(r > least)
        if not is_unexplained:
            self.residual[row] = 0.0
            return False
        m = self.num_inducing
        new = self.covar_module(self.X[row : row + 1], self.X).to_dense().squeeze(0)
        new = (new - self.features[:, row] @ self.features) / r.sqrt()
        data = self._observed()
        phi, weight = self.features[:, data], self.counts[data] / self.noise
        v = self._inverse @ (phi @ (weight * new[data]))
        # Once more for what is left: b, and with it rounding, is as large as 1 / noise.
        v += self._inverse @ (phi @ (weight * (new[data] - v @ phi)) - v)
        gap = new - v @ self.features
        # c - b'B^-1 b, as a sum in which nothing cancels
        schur = 1 + v @ v + weight @ gap[data].square()
        self.embedded += gap.square_() / schur
        self.residual = (self.residual - new.square()).clamp_min_(0.0)
        self.residual[row] = 0.0
        self._inverse = _border(
            self._inverse + torch.outer(v, v / schur), -v / schur, 1 / schur
        )
        if m == len(self._phi):
            self._phi = torch.cat([self._phi, torch.empty_like(self._phi)])
        self._phi[m] = new
        self.inducing.append(row)
        self._count_update()
        return True

    @torch.no_grad()
    def set_inducing(self, rows: Tensor) -> None:
        """Start again with other inducing points and the same data. O(A m^2)."""
        K = self.covar_module(self.X[rows]).to_dense()
        L, kept = factorize_inducing_covariance(K)
        chosen = rows[kept]
        self._start(len(chosen))
        cross = self.covar_module(self.X[chosen], self.X).to_dense()
        phi = torch.linalg.solve_triangular(L, cross, upper=False)
        self._phi[: len(chosen)] = phi
        self.inducing = chosen.tolist()
        self.residual = (self._prior - phi.square().sum(0)).clamp_min(0.0)
        self._inverse, self.embedded = self._solved(inner_cholesky(self._inner()))

    @torch.no_grad()
    def add_rows(self, X: Tensor) -> None:
        """More rows at the end, `k x d`. O((A + k m) m)."""
        phi, num = X.new_empty(len(self._phi), len(X)), self.num_inducing
        k_diag = prior_variance(self.covar_module, X)
        if num > 0:
            S = self.X[self.inducing]
            cross = self.covar_module(S, X).to_dense()
            L = self.features[:, self.inducing].mT.tril()
            phi[:num] = torch.linalg.solve_triangular(L, cross, upper=False)
        new = phi[:num]
        self._phi = torch.cat([self._phi, phi], dim=1)
        self.X = torch.cat([self.X, X])
        self._prior = torch.cat([self._prior, k_diag])
        if k_diag.is_cpu:  # from a device the first rows' will do, without a wait
            self._largest = max(self._largest, _largest(k_diag))
        self.counts = torch.cat([self.counts, X.new_zeros(len(X))])
        residual = (k_diag - new.square().sum(0)).clamp_min(0.0)
        self.residual = torch.cat([self.residual, residual])
        embedded = (new * (self._inverse @ new)).sum(0)
        self.embedded = torch.cat([self.embedded, embedded])

    def feature_map(self) -> NystromFeatures:
        """The features of the inducing points. O(m^2)."""
        S = torch.tensor(self.inducing, dtype=torch.long, device=self.X.device)
        return NystromFeatures(
            covar_module=self.covar_module,
            inducing_points=self.X[S],
            inducing_index=torch.arange(len(S), device=S.device),
            chol_inducing=self.features[:, S].mT.tril(),
        )

    @torch.no_grad()
    def posterior(self) -> NystromPosterior:
        """This posterior with its mean still unknown (zero weights). O(n m^2)."""
        prior = NystromPosterior.without_data(self.feature_map())
        return replace(prior, chol_inner=inner_cholesky(self._inner()))

    def _count_update(self) -> None:
        """Solve with the factor of `B` when it is time, and if it has one."""
        self._num_updates += 1
        m = self.num_inducing
        rounding = self._num_updates * m * torch.finfo(self.X.dtype).eps * self._largest
        if self._num_updates < max(NUM_UPDATES, m) and rounding < ROUNDING * self.noise:
            return
        self._num_updates = 0
        L_B, info = torch.linalg.cholesky_ex(self._inner(self._observed()))
        inverse, embedded = self._solved(L_B)
        self._inverse = torch.where(info == 0, inverse, self._inverse)
        self.embedded = torch.where(info == 0, embedded, self.embedded)

    def _solved(self, L_B: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse of `B` and the `A` embedded variances. O(A m^2)."""
        chunks = self.features.split(CHUNK_SIZE, dim=1)
        w = (torch.linalg.solve_triangular(L_B, phi, upper=False) for phi in chunks)
        return torch.cholesky_inverse(L_B), torch.cat([c.square().sum(0) for c in w])

    def _inner(self, data: Tensor | slice | None = None) -> Tensor:
        r""":math:`B = I + \Phi D^{-1} \Phi^\top`, `m x m`; O(n m^2).

        `data` are rows with all observations among them. By default the host waits for
        a device to say which have some.
        """
        data = self.counts.nonzero().squeeze(-1) if data is None else data
        phi, weight = self.features[:, data], self.counts[data] / self.noise
        B = torch.eye(len(phi), dtype=phi.dtype, device=phi.device)
        for each, w in zip(
            phi.split(CHUNK_SIZE, 1), weight.split(CHUNK_SIZE), strict=True
        ):
            B = B + (each * w) @ each.mT
        return B


def _largest(prior: Tensor) -> float:
    """The largest prior variance; the host waits for it."""
    return float(prior.max()) if len(prior) > 0 else 0.0


def _border(matrix: Tensor, column: Tensor, corner: Tensor) -> Tensor:
    """A symmetric matrix with one more row and column."""
    top = torch.cat([matrix, column.unsqueeze(-1)], dim=1)
    bottom = torch.cat([column, corner.view(1)]).unsqueeze(0)
    return torch.cat([top, bottom])
