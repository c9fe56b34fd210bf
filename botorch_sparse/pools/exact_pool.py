r"""All candidates of a finite set under the exact GP, one row for each evaluation.

With `F = L^-1 k_X` and `L L' = K + D` the posterior is

.. math:: \mu(x) = c(x) + F(x)^\top z, \qquad
    \mathrm{cov}(x, x') = k(x, x') - F(x)^\top F(x').

A further evaluation of `x_i` appends one row (the border update of `L`), at O(A n)
instead of the O(A n^2) of a posterior computed anew:

.. math:: f = \frac{\mathrm{cov}(\cdot, x_i)}{(\mathrm{var}(x_i) + \lambda / c)^{1/2}},
    \qquad \mu \leftarrow \mu + f \,
    \frac{\bar y - \mu(x_i)}{(\mathrm{var}(x_i) + \lambda / c)^{1/2}}

for a run of `c` evaluations of one candidate with mean feedback `y-bar`. The mean is
linear in the data: constant data go along, and a constant prior mean is
estimated from both (`posteriors/constant_mean.py`).
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean, ZeroMean
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import check_finite, check_kind, check_number
from botorch_sparse.batching.rules import Rule
from botorch_sparse.kernels import dense_covariance
from botorch_sparse.kernels.kernel_matrices import compares_counts
from botorch_sparse.pools.compact_rows import (
    CHUNK_ENTRIES,
    CompactRows,
    Rows,
    kernel_rows,
    mean_of,
    variance_of,
)
from botorch_sparse.pools.device_batch import Choice, DeviceBatch
from botorch_sparse.pools.kernel_columns import kernel_columns
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows, Shard
from botorch_sparse.pools.table_batch import POINTS_AT_A_TIME, validate_candidates
from botorch_sparse.posteriors.features import solve_triangular
from botorch_sparse.posteriors.nystrom import Moments
from botorch_sparse.threads import for_each, row_chunks

# Kernel columns that are computed at a time, and candidates whose rows are solved for
# at a time.
COLUMNS, PIECE = 32, 4096


class ExactPool:
    """Mean and variance of all candidates under the exact GP.

    The exact limit of `NystromPool`, for GP-UCB, GP-BUCB and expected improvement.
    Memory O(A n), with `n` the rows in use: folded points at the last `rebuild`, runs
    of one candidate since.

    Args:
        X: `A x d` candidates, or `CompactRows` of bits or counts.
        covar_module: The kernel.
        noise: Noise variance lambda of one evaluation.
        mean_module: The prior mean, zero by default.
        has_constant: Whether a constant is added to it, which the data decide on.
    """

    def __init__(
        self,
        X: Rows,
        covar_module: Kernel,
        noise: float,
        *,
        mean_module: Mean | None = None,
        has_constant: bool = False,
    ) -> None:
        validate_candidates(X)
        check_kind("covar_module", covar_module, Kernel, "a GPyTorch kernel")
        check_number("noise", noise, "(0, inf)", "need a positive variance.")
        self.X = X
        self.shard = Shard(len(X))
        self.covar_module = covar_module
        self.noise = noise
        self.mean_module = ZeroMean() if mean_module is None else mean_module
        self.has_constant = has_constant
        self.reset()

    def __len__(self) -> int:
        return self.X.shape[0]

    @torch.no_grad()
    def reset(self) -> None:
        """Forget all data."""
        self._F = self.X.new_empty(0, len(self))
        self.num_rows = 0
        self._rebuilt = (self.X[:0], self.X.new_empty(0, 0))  # points and `L`
        self._appended: list[tuple[int, Tensor]] = []  # candidates and `L_ii` since
        self.information_gain = 0.0  # log det(I + K D^-1) at the last rebuild
        self._run: _ExactRun | None = None
        self._open_row: Tensor | None = None
        self._moments = self._prior_means()
        self.variance = variance_of(self.covar_module, self.X)

    def _prior_means(self) -> "_PosteriorMeans":
        prior = mean_of(self.mean_module, self.X)
        return _PosteriorMeans.prior(prior, self.has_constant)

    def _covariances(self, points: Tensor, size: int, out: Tensor) -> Tensor:
        """The prior's of `k` points with all candidates, `k x A`.

        Args:
            points: The points.
            size: Points that share a product, which may round by their number. Counts
                round alike.
            out: Where they are written.
        """
        kernel, X = self.covar_module, self.X
        if isinstance(X, CompactRows) and X.is_cpu and compares_counts(kernel):
            return kernel_columns(kernel, X, points, out)
        step = max(1, CHUNK_ENTRIES // max(size, X.shape[-1]))
        for start in range(0, len(X), step):
            Z = kernel_rows(kernel, X, slice(start, start + step))
            for some, part in zip(out.split(size), points.split(size), strict=True):
                some[:, start : start + step] = dense_covariance(kernel, part, Z)
        return out

    def _columns(self, rows: Sequence[int]) -> Iterator[Tensor]:
        """The prior covariances of candidates with all, one by one, `A` each."""
        for start in range(0, len(rows), COLUMNS):
            some = rows[start : start + COLUMNS]
            points = torch.cat([self.X[i : i + 1] for i in some])  # uploads nothing
            yield from self._covariances(
                points, 1, self.X.new_empty(len(some), len(self))
            )

    @property
    def mean(self) -> Tensor:
        """Posterior means of all candidates, `A`."""
        return self._moments.mean

    def fork(self, *, continues: bool = True) -> "ExactPool":
        """A pool that goes on from here, while this one stays as it is.

        Both write into the same memory, each behind its own rows, and the last of
        these may be an open run's, which either writes again before it is read.

        Args:
            continues: Whether the open run may go on there, or the next one is new.
        """
        pool = copy(self)
        pool._run = copy(self._run) if continues else None
        pool._appended = [*self._appended]
        return pool

    @torch.no_grad()
    def rebuild(
        self, X: Tensor, Y: Tensor, noise: Tensor, rows: Tensor | None = None
    ) -> None:
        """Condition on (folded) data from scratch: O(A n^2).

        Args:
            X: `n x d` points, candidates or not, `n > 0`.
            Y: `n` observations.
            noise: `n` noise variances, positive.
            rows: `n` numbers of the points if all are candidates; it saves time.

        Raises:
            InputDataError: If there is NaN or infinity, on the host.
        """
        check_finite(X=X, Y=Y, noise=noise)
        n, k_diag = len(X), variance_of(self.covar_module, self.X)
        self._F = k_diag.new_empty(n + spare_rows(n), len(self))
        F = self._covariances(X, n, self._F[:n])
        if rows is None:
            K = dense_covariance(self.covar_module, X)
        else:  # between equal points it is rounded otherwise
            K = F[:, rows].diagonal_scatter(k_diag[rows])
        L, variance = psd_safe_cholesky(K + torch.diag(noise)), torch.empty_like(k_diag)

        def solve(part: slice) -> None:
            F[:, part] = solve_triangular(L, F[:, part], upper=False)
            variance[part] = k_diag[part] - F[:, part].square().sum(0)

        size, work = PIECE, n**2 * len(self)
        if not F.is_cpu:  # few long products, in one thread
            size, work = max(1, CHUNK_ENTRIES // n), 0
        for_each(row_chunks(len(self), size), work, lambda: solve)
        prior = self._prior_means()
        error = prior.observed(Y) - prior.observed(self.mean_module(X), 0.0)
        z = solve_triangular(L, error.mT, upper=False)
        self._moments, self.variance = prior.add(z, F), variance.clamp_min_(0.0)
        log_det = 2.0 * L.diagonal().log().sum() - noise.log().sum()
        self.information_gain = max(float(log_det), 0.0)
        self.num_rows, self._rebuilt, self._appended = n, (X, L), []
        self._run = self._open_row = None

    @torch.no_grad()
    def variance_at(self, X: Tensor, point: Tensor) -> Tensor:
        """Present variances at `k x d` points, `k`.

        Args:
            X: The points.
            point: Their candidate indices; a number of at least `A` for others.
        """
        there = point.to(X.device)
        variance = self.variance[there.clamp_max(len(self) - 1)]
        if bool((point >= len(self)).any()):
            # The prior's variance is a safe upper bound, in less time.
            prior = self.covar_module(X, diag=True)
            variance = torch.where(there >= len(self), prior, variance)
        return variance

    @torch.no_grad()
    def extend(self, index: Sequence[int], Y: Sequence[float]) -> None:
        """Condition on more evaluations of candidates, one after the other.

        Bits do not depend on how many come at once. Cost: O(A n) each, O(A) in a run.

        Args:
            index: Their candidates.
            Y: Their values.
        """
        before = [None if self._run is None else self._run.index, *index[:-1]]
        starts = [i != last for i, last in zip(index, before, strict=False)]
        columns = self._columns([*compress(index, starts)])
        for i, y, is_new in zip(index, Y, starts, strict=True):
            moments = self._moments
            run, f, scale = self.pend(i, next(columns) if is_new else None)
            run.moments, run.total = run.moments or moments, run.total + y
            moments, feedback = run.moments, f.new_full((), run.total / run.count)
            z = (moments.observed(feedback) - moments.of_columns[:, i]) / scale
            self._moments = moments.add(z.unsqueeze(0), f.unsqueeze(0))

    @torch.no_grad()
    def pend(
        self, index: int, k: Tensor | None = None
    ) -> tuple["_ExactRun", Tensor, Tensor]:
        """Variances with one more evaluation, whose value is not known.

        Args:
            index: Its candidate.
            k: `A` prior covariances of the candidate with all, if they are known.

        Returns:
            Its run, the run's row of `F` (`A`), and what the row was divided by.
        """
        run = self._run
        if run is None or run.index != index:
            if k is None:
                (k,) = self._columns([index])
            run = self._run = self._start_run(index, k)
            self.num_rows += 1
        run.count += 1
        scale = (run.covariance[index] + self.noise / run.count).sqrt()
        place = self.num_rows - 1 - len(self._rebuilt[0])
        self._appended[place:] = [(index, scale)]  # again for each of a run
        f = self._set_row(self.num_rows - 1, run.covariance / scale)
        self._open_row = f
        self.variance = (run.variance - f.square()).clamp_min(0.0)
        return run, f, scale

    def _start_run(self, index: int, k: Tensor) -> "_ExactRun":
        """The posterior covariance of a candidate with all."""
        F = self._rows()
        covariance = k - F[:, index] @ F
        covariance[index] = covariance[index].clamp_min(0.0)
        return _ExactRun(index, covariance, self.variance)

    def _rows(self) -> Tensor:
        """The rows `F`, `n x A`, with this pool's own open run."""
        if self._open_row is not None:
            self._F[self.num_rows - 1] = self._open_row
        return self._F[: self.num_rows]

    def _set_row(self, row: int, values: Tensor) -> Tensor:
        """Write one row of `F`; the buffer grows when it is full."""
        if row == len(self._F):
            room = self._F.new_empty(spare_rows(row), len(self))
            self._F = torch.cat([self._F, room])
        self._F[row] = values
        return values

    def cross_covariance(self, rows: Tensor | slice) -> Tensor:
        """Covariances `F(x)` of `k` rows with the whitened data, `n x k`."""
        return self._rows().mT[rows].mT  # gathered faster than columns are

    @torch.no_grad()
    def cross_covariance_at(self, X: Tensor) -> Tensor:
        """The same of `k x d` points. Cost: O(n^2 k)."""
        (points, factor), n = self._rebuilt, self.num_rows
        L = self.X.new_zeros(n, n)
        L[: len(factor), : len(factor)] = factor
        if self._appended:
            index, scales = zip(*self._appended, strict=True)
            rows = torch.tensor(index, device=L.device)
            points = torch.cat([points, self.X[rows]])
            L[len(factor) :] = self._rows()[:, rows].mT
            L.diagonal()[len(factor) :] = torch.stack(scales)
        K = dense_covariance(self.covar_module, points, X)
        return solve_triangular(L, K, upper=False)

    def explained_weights(self, cross_covariance: Tensor) -> Tensor:
        r"""Weights of `F(x)` in what the data explain of covariances with points.

        With their own :math:`F(x')`, `n x k`, these are the weights:
        :math:`\mathrm{cov}(x, x') = k(x, x') - F(x)^\top F(x')`.
        """
        return cross_covariance

    square_memory = 0  # nothing is kept: each point's row is new
    squares_at_a_time = POINTS_AT_A_TIME

    def moments(self, rows: Tensor) -> Moments:
        """Means and variances of `k` rows."""
        return Moments(self.mean[rows], self.variance[rows])

    def all_moments(self) -> Moments:
        """Those of all rows, `A` each."""
        return Moments(self.mean, self.variance)

    is_embedded = True  # all rows always are

    def upper_moments(self) -> Moments:
        """The same: they are known."""
        return self.all_moments()

    def all_variances(self) -> Tensor:
        """The variances of all rows, `A`."""
        return self.variance

    def largest(self, values: Tensor) -> Tensor:
        """The largest of the values of all rows, `A`."""
        return values.max()

    @torch.no_grad()
    def squared_covariances(self, rows: Tensor) -> Tensor:
        """Squared covariances of `k` rows with all: `k x 2 x A`. Cost: O(k A n).

        All of a covariance is embedded: both are the same.
        """
        F, K = self._rows(), self.X.new_empty(len(rows), len(self))
        self._covariances(self.X[rows], len(rows), K)
        squares = (K - F[:, rows].mT @ F).square_()
        return squares.unsqueeze(1).expand(-1, 2, -1)

    def batch(
        self,
        multiplier: float,
        rule: Rule | None = None,
        selectable: SelectableRows = ALL_ROWS,
    ) -> "ExactBatch":
        """Start a batch; see `Points`."""
        return ExactBatch(self, multiplier, rule, selectable)


def spare_rows(num_rows: int) -> int:
    """Rows of a buffer beside those that it needs."""
    return max(16, num_rows // 4)


@dataclass(frozen=True, eq=False)
class _PosteriorMeans:
    """Posterior means of the data and, for a constant, of data that are all one."""

    of_columns: Tensor  # `1 x A` or `2 x A`, for observations `y` and `1`
    gram: Tensor  # `L^-1 [y, 1]` times itself, `1 x 1` or `2 x 2`

    @classmethod
    def prior(cls, mean: Tensor, has_constant: bool) -> "_PosteriorMeans":
        """Those without data."""
        columns = [mean, torch.zeros_like(mean)] if has_constant else [mean]
        size = len(columns)
        return cls(torch.stack(columns), mean.new_zeros(size, size))

    def observed(self, Y: Tensor, one: float = 1.0) -> Tensor:
        """The columns at observations `Y`, in front of their shape."""
        columns = [Y, torch.full_like(Y, one)]
        return torch.stack(columns[: len(self.gram)])

    def add(self, z: Tensor, F: Tensor) -> "_PosteriorMeans":
        """With `k` more rows of `L^-1 [y, 1]` (`k x 2`) and `F` (`k x A`)."""
        return _PosteriorMeans(self.of_columns + z.mT @ F, self.gram + z.mT @ z)

    @cached_property
    def mean(self) -> Tensor:
        """The posterior mean, `A`, with the constant where there is one."""
        if len(self.gram) == 1:
            return self.of_columns[0]
        y, one = self.of_columns
        least = torch.finfo(y.dtype).tiny
        constant = self.gram[0, 1] / self.gram[1, 1].clamp_min(least)
        return y + constant * (1.0 - one)


class _ExactRun:
    """Evaluations of one candidate in a row: one row of `F`."""

    def __init__(self, index: int, covariance: Tensor, variance: Tensor) -> None:
        self.index = index
        self.covariance = covariance  # with all candidates, before this run
        self.variance = variance  # of all candidates, before this run
        # Before this run, where feedback comes.
        self.moments: _PosteriorMeans | None = None
        self.count = 0
        self.total = 0.0


class ExactBatch(DeviceBatch):
    """Argmax of the bound under the exact GP with pending points; O(A n) each.

    A fork of the pool takes the pending points. The last point's row is not computed
    before it matters.
    """

    def __init__(
        self,
        pool: ExactPool,
        multiplier: float,
        rule: Rule | None,
        selectable: SelectableRows,
    ) -> None:
        super().__init__(pool, pool.all_moments(), rule, selectable)
        self._pool = pool.fork(continues=False)
        self._multiplier = multiplier
        self._last: int | None = None  # appended, but not in the variances yet

    def present_variances(self) -> Tensor:
        """The variances of all candidates with the pending points, `A`."""
        last, self._last = self._last, None
        if last is not None:
            self._make_pending(last)
        return self._pool.variance

    @override
    def values(self) -> Tensor:
        return self._mean + self._multiplier * self.present_variances().sqrt()

    @override
    def choice(self) -> Choice:
        return Choice.among_all(self.values(), self._pool.variance, self._initial)

    @override
    def _append(self, row: int) -> tuple[float, float]:
        self.present_variances()
        chosen = self._chosen
        if chosen is None or chosen[0] != row:
            return super()._append(row)
        self._chosen, self._last = None, row
        self.close(row)
        return chosen[1]

    @override
    def _make_pending(self, row: int) -> Tensor:
        before = self._pool.variance[row]
        self._pool.pend(row)
        return before
