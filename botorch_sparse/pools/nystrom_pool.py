"""All candidates of a finite set under one Nystrom posterior.

References:
    [Calandriello2020]_ Section 3.1 and Appendix A.3 (pre-embedding, lazy evaluation).
"""

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import check_number, check_whole
from botorch_sparse.batching.rules import Rule
from botorch_sparse.kernels.kernel_matrices import compares_counts
from botorch_sparse.pools.branch_and_bound import (
    Bounds,
    CandidateMoments,
    InducingOrder,
    greedy_order,
)
from botorch_sparse.pools.compact_rows import Rows, mean_of, variance_of
from botorch_sparse.pools.cross_covariance import CrossCovariance
from botorch_sparse.pools.device_batch import (
    BlockBatch,
    DeviceMoments,
    EagerBatch,
    eager_is_cheaper,
)
from botorch_sparse.pools.embedding import Embedding, padded
from botorch_sparse.pools.host_batch import HostBatch
from botorch_sparse.pools.kernel_columns import (
    CountColumns,
    KernelColumns,
    keeps_counts,
)
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows, Shard
from botorch_sparse.pools.table_batch import (
    POINTS_AT_A_TIME,
    TableBatch,
    validate_candidates,
)
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.nystrom import Moments
from botorch_sparse.threads import one_thread

# Bytes that the pool may keep beside the candidates themselves.
MAX_MEMORY = 2 * 1024**3
# The most entries and rows of a tile on an accelerator: few long products, and no more
# than 256 MiB of float64.
TILE_ENTRIES, TILE_ROWS = 2**25, 2**16
# Entries of `k_S(x)` from which on only promising candidates are embedded.
SCREENED = 2**23
# Points whose squares are computed in a pass over a streamed table.
MOST_SQUARES = 64
SAMPLE_SIZE = 256
NUM_PROMISING = 64


class NystromPool:
    r"""Candidates under one posterior, and the batches that are chosen from them.

    After `update(posterior)` the pool knows means and variances of all `A` candidates
    and, where they fit into `max_memory`, their covariances `k_S(x)` with the inducing
    points, which one small matrix turns into features,
    :math:`w(x) = L_B^{-1} L^{-1} k_S(x)`; a larger pool is streamed in row chunks, and
    covariances are computed again for the few candidates that a step looks at.

    On the CPU the kernel's columns `k(X, x_s)` of points that have once been inducing
    points are kept in `max_memory`: the next inducing set shares most of them. So are
    some of rows that may be the next ones. Of bits and counts they take a byte or two
    for an entry (`pools/kernel_columns.py`). Of many candidates only those are embedded
    there that can have the largest bound (`pools/branch_and_bound.py`), until all
    variances are asked for.

    Cost: O(A m^2) for `update`, or a part of it.

    Args:
        X: `A x d` candidates, or `CompactRows` of bits or counts.
        noise: Noise variance lambda of one evaluation.
        max_memory: Bytes for covariances with inducing points, past and present. What
            `CompactRows.distinct` keeps is beside it.
        chunk_size: Rows that an accelerator embeds at a time; None for 65,536, or as
            many as have 256 MiB of covariances.
        shard: Which rows of the whole table `X` are; None for all. The table's size
            decides what rounds alike.

    Attributes:
        posterior: The posterior; None before the first.

    Raises:
        BotorchTensorDimensionError: If `X` is not `A x d` with `A > 0`.
        InputDataError: If `X` is not finite floating point, or a number is out of
            range.
    """

    def __init__(
        self,
        X: Rows,
        noise: float = 1.0,
        *,
        max_memory: int = MAX_MEMORY,
        chunk_size: int | None = None,
        shard: Shard | None = None,
    ) -> None:
        validate_candidates(X)
        check_number("noise", noise, "(0, inf)")
        check_number("max_memory", max_memory, "[0, inf)")
        if chunk_size is not None:
            check_whole("chunk_size", chunk_size)
        self.X = X
        self.noise = noise
        self.max_memory = int(max_memory)
        self.shard = Shard(len(X)) if shard is None else shard
        self.chunk_size = chunk_size
        self._columns = KernelColumns(X)
        self._promising = torch.arange(0)  # of the largest bounds in the last batch
        self._order = InducingOrder()
        self.reset()

    def reset(self, k_diag: Tensor | None = None) -> None:
        """Forget the posterior.

        Args:
            k_diag: `A` prior variances, if they are known.
        """
        self.posterior: NystromPosterior | None = None
        self._state: CandidateMoments | DeviceMoments | None = None
        zero = self.X.new_zeros(len(self))
        self._prior = Moments(zero, zero if k_diag is None else k_diag)

    def renew_columns(self) -> None:
        """Have columns of another kernel; pools share what depends on none."""
        self._columns = self._columns.successor()

    def forget_columns(self) -> None:
        """Drop the kernel's columns, as after a kernel has failed."""
        self._columns.clear()

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def on_device(self) -> bool:
        """Whether a copy to the host has to wait for an accelerator."""
        return not self.X.is_cpu

    @property
    def in_memory(self) -> bool:
        """Whether the covariances of all candidates with `S` are at hand."""
        return self._state is not None and self._state.in_memory

    @property
    def is_embedded(self) -> bool:
        """Whether the moments of all candidates are known."""
        return self._state is None or self._state.is_whole

    @property
    def is_screened(self) -> bool:
        """Whether only rows that matter are embedded, until all are asked for."""
        state = self._state
        return isinstance(state, CandidateMoments) and state.limits is not None

    @property
    def num_exact(self) -> int:
        """Candidates whose moments are known."""
        return len(self) if self._state is None else self._state.num_exact

    @property
    def square_memory(self) -> int:
        """Bytes that a batch may keep of `squared_covariances`."""
        row = 2 * self.X.element_size()
        return self._num_squares * row * len(self) if self._fits else 0

    @property
    def squares_at_a_time(self) -> int:
        """More than others have where each pass computes `k_S(x)` anew."""
        if self._fits:
            return POINTS_AT_A_TIME
        return max(POINTS_AT_A_TIME, min(MOST_SQUARES, self._num_squares))

    @property
    def _num_squares(self) -> int:
        """Points whose squares take a quarter of the memory."""
        return self.max_memory // 4 // (2 * self.X.element_size() * self.shard.num_rows)

    @property
    def _fits(self) -> bool:
        """Whether `k_S(x)` of the posterior's `S` may be kept."""
        if self.on_device:
            return self.fits_in_memory(self.num_inducing)
        return self.num_inducing <= self._capacity

    def fits_in_memory(self, num_rows: int) -> bool:
        """Whether so many numbers of each candidate take half of the memory."""
        size = self.shard.num_rows * num_rows * self.X.element_size()
        return 2 * size <= self.max_memory

    @torch.no_grad()
    def update(
        self,
        posterior: NystromPosterior,
        k_diag: Tensor | None = None,
        *,
        noise: float | None = None,
        is_awaited: bool = True,
    ) -> None:
        """Take a new posterior, and embed all candidates where that is cheap.

        Args:
            posterior: An unbatched posterior.
            k_diag: `A` prior variances of the candidates, if they are known.
            noise: Another lambda than before.
            is_awaited: If False, the host waits for nothing. All moments may be NaN
                then, for rounding alone, and the pool has to be updated once more.
        """
        if k_diag is None:
            k_diag = variance_of(posterior.covar_module, self.X)
        prior = Moments(mean_of(posterior.mean_module, self.X), k_diag)
        if self.on_device:
            self._state = DeviceMoments.of(
                Embedding.of(posterior, is_awaited=is_awaited),
                prior,
                self.X,
                self._tile_width(posterior.num_inducing),
                keeps=self.fits_in_memory(posterior.num_inducing),
            )
        else:
            with one_thread():
                state = self._updated_here(posterior, prior)
            if state.limits is None:
                state.resolve_all()
            self._state = state
        self._prior, self.posterior = prior, posterior
        self.noise = self.noise if noise is None else noise

    def _tile_width(self, num_inducing: int) -> int:
        """Rows of a tile on an accelerator; the same for any part of the table."""
        num, row = self.shard.num_rows, max(num_inducing, self.X.shape[-1])
        if self.chunk_size is not None:
            return min(self.chunk_size, num)
        most = max(1, min(TILE_ENTRIES // row, TILE_ROWS))
        tiles = -(-num // most)  # of about one size: the last one is padded
        return min(padded(-(-num // tiles)), num)

    def _updated_here(
        self, posterior: NystromPosterior, prior: Moments
    ) -> CandidateMoments:
        m = posterior.num_inducing
        embedding = Embedding.of(posterior)
        columns = self._columns_of(posterior.covar_module, posterior.inducing_points)
        is_large = self._is_large(m)
        cross = CrossCovariance(
            self.X,
            embedding,
            columns if m > 0 else None,
            self._likely(m),
            self._capacity,
            self.max_memory // 4,
        )
        limits = None
        if is_large:
            order, largest = self._ordered(cross), float(prior.variance.max())
            limits = Bounds.of(embedding, order, largest)
            limits = limits if limits.is_sharp else None
        return CandidateMoments(embedding, cross, prior, limits)

    def _is_large(self, num_inducing: int) -> bool:
        """Whether only promising candidates are embedded."""
        size = self.shard.num_rows * num_inducing
        return num_inducing > 0 and size >= SCREENED

    def _likely(self, num_inducing: int) -> Tensor:
        """Rows whose kernel columns are computed in advance.

        None of many candidates: bounds take a pass over all columns, also over those
        that were computed in vain.
        """
        is_large = self._is_large(num_inducing)
        return self.X[:0] if is_large else self.X[self._promising]

    def _columns_of(self, kernel: Kernel, points: Tensor) -> KernelColumns | None:
        """Where the columns of points are kept; None where there is no room."""
        X, are_counts = self.X, isinstance(self._columns, CountColumns)
        num_float = self._num_columns(X.element_size())
        if not keeps_counts(X, kernel, points, num_float):
            self._columns = KernelColumns(X) if are_counts else self._columns
        elif not are_counts:
            largest = self.shard.ranks.max(X.totals.max())
            self._columns = CountColumns(X, int(largest))
        return self._columns if len(points) <= self._capacity else None

    @property
    def _capacity(self) -> int:
        """The most kernel columns that are kept."""
        return self._num_columns(self._columns.entry_size)

    def _num_columns(self, entry_size: int) -> int:
        """Columns that half of the memory has room for."""
        return self.max_memory // 2 // (self.shard.num_rows * entry_size)

    def kept_covariance(
        self, covar_module: Kernel, points: Tensor, rows: Tensor
    ) -> Tensor | None:
        """`k(x, x')` of `m` points with `n` rows by the kernel's columns, `m x n`.

        Columns that are not kept are computed, for `update` too. None where there is no
        room for them, and for kernels whose rounding may depend on the table. Cost:
        O(n m), and O(A) for each new column.

        Args:
            covar_module: The kernel of the next posterior.
            points: `m x d` rows, the next inducing points.
            rows: Numbers of rows of the whole table, on the host.
        """
        is_whole = self.X.is_cpu and self.shard.ranks.size == 1
        if not (is_whole and compares_counts(covar_module)):
            return None
        with one_thread():
            columns = self._columns_of(covar_module, points)
            if columns is None:
                return None
            slots = columns.find(
                covar_module, points, self._capacity, self._likely(len(points))
            )
            return columns.at(covar_module, slots, rows)

    def _ordered(self, cross: CrossCovariance) -> Tensor:
        """The inducing points, those that explain much of the candidates first."""
        embedding = cross.embedding
        S = embedding.posterior.inducing_points
        keys = [point.tobytes() for point in S.numpy()]
        first = self._order.of(keys)
        if len(first) < len(keys) // 4:
            sample = torch.arange(0, len(self), -(-len(self) // SAMPLE_SIZE))
            first = greedy_order(embedding.factor, cross.of(sample))
            self._order = InducingOrder(tuple(keys[i] for i in first))
        return torch.tensor(first + sorted(set(range(len(keys))) - set(first)))

    def hold(self, posterior: NystromPosterior) -> None:
        """Take a posterior without embedding the candidates; moments are not known.

        For sample paths, which need neither variances nor features. Cost: O(A).
        """
        unknown = self.X.new_full((len(self),), torch.nan)
        self._state, self._prior = None, Moments(unknown, unknown)
        self.posterior = posterior

    @torch.no_grad()
    def moments(self, rows: Tensor) -> Moments:
        """Exact means and variances of `k` rows; the prior's before any posterior."""
        if self._state is not None and not self._state.is_whole:
            self._state.resolve(rows.unique())
        mean, variance = self._present()
        return Moments(mean[rows], variance[rows])

    @torch.no_grad()
    def all_moments(self) -> Moments:
        """Those of all rows, `A` each; embeds what is not embedded yet."""
        if self._state is not None:
            self._state.resolve_all()
        return self._present()

    @torch.no_grad()
    def upper_moments(self) -> Moments:
        """Upper bounds on the moments of all rows, `A` each; exact if `is_embedded`."""
        if isinstance(self._state, CandidateMoments):
            self._state.bound_all()
        mean, variance = self._present()
        return Moments(mean.clone(), variance.clone())

    def all_variances(self) -> Tensor:
        """The variances of all rows, `A`."""
        return self.all_moments().variance

    def _present(self) -> Moments:
        """What is known of all."""
        return self._prior if self._state is None else self._state.moments

    def batch(
        self,
        multiplier: float,
        rule: Rule | None = None,
        selectable: SelectableRows = ALL_ROWS,
    ) -> TableBatch:
        """Start a batch; see `Points`."""
        state = self._embedded()
        if isinstance(state, CandidateMoments):
            self._screen(state, multiplier, selectable)
            batch = HostBatch(self, state, multiplier, rule, selectable)
            self._promising = batch.promising(NUM_PROMISING)
            return batch
        m, num = state.embedding.posterior.num_inducing, self.shard.num_rows
        is_eager = state.in_memory and eager_is_cheaper(num, m)
        kind = EagerBatch if is_eager else BlockBatch
        return kind(self, state, multiplier, rule, selectable)

    @torch.no_grad()
    def _screen(
        self, known: CandidateMoments, multiplier: float, selectable: SelectableRows
    ) -> None:
        """Embed the candidates that may have the largest bound; the last best first."""
        if known.is_whole:
            return
        rows = torch.arange(len(self))
        if selectable.excluded is not None:
            rows = rows[
                torch.ones_like(rows).index_fill_(0, selectable.excluded, 0) > 0
            ]
        first = self._promising
        if not len(first):
            first = rows[:: max(1, len(rows) // SAMPLE_SIZE)]
        known.resolve(first)
        is_open = selectable.mean(known.mean).isfinite()
        bounds = known.bounds(multiplier)
        best = bounds.where(known.is_exact & is_open, -torch.inf).max()
        rows = rows[~known.is_exact[rows]]
        known.screen(multiplier, rows, float(best), grows=True)
        self._order = self._order.after(known.share)

    def largest(self, values: Tensor) -> Tensor:
        """The largest of the values of all rows, `A`."""
        return values.max()

    @torch.no_grad()
    def squared_covariances(self, rows: Tensor) -> Tensor:
        r"""Squared posterior covariances of all candidates with the points of a batch.

        .. math:: \mathrm{cov}(x, x_s)^2, \qquad (w(x)^\top w(x_s))^2

        the terms of the local bound ([Calandriello2020]_ Lemma 3, Appendix B.3).

        Args:
            rows: `k` candidates `x_s`.

        Returns:
            A `k x 2 x A` tensor. Cost: O(k A m).
        """
        state = self._embedded()
        return state.squares_with(self.X[rows], state.cross_covariance(rows))

    def cross_covariance(self, index: Tensor | slice) -> Tensor:
        """`k_S(x)` of some candidates, `m x k`; looked up, or computed if streamed."""
        return self._embedded().cross_covariance(index)

    def cross_covariance_at(self, X: Tensor) -> Tensor:
        """The same of `k x d` points, computed."""
        posterior = self._embedded().embedding.posterior
        return posterior.covariance_with_inducing(X)

    @torch.no_grad()
    def explained_weights(self, cross_covariance: Tensor) -> Tensor:
        r"""Weights of `k_S(x)` in what the data explain of covariances with points.

        .. math:: \mathrm{cov}(x, x') = k(x, x') - k_S(x)^\top (F F^\top)^{-1} k_S(x')

        with the factor of `Embedding`; the last two are the weights, `m x k`, from
        `k_S(x')` of `k` points, `m x k`. Cost: O(k m^2).
        """
        factor = self._embedded().embedding.factor
        return torch.cholesky_solve(cross_covariance, factor)

    @property
    def num_inducing(self) -> int:
        """The number `m` of inducing points in use."""
        return self._embedded().embedding.posterior.num_inducing

    def _embedded(self) -> CandidateMoments | DeviceMoments:
        if self._state is None:
            raise InputDataError(
                "The pool has no posterior yet: call update(posterior) first."
            )
        return self._state
