"""All candidates of a finite set under one Nystrom posterior.

References:
    [Calandriello2020]_ Section 3.1 and Appendix A.3 (pre-embedding, lazy evaluation).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import check_number, check_whole
from botorch_sparse.batching.rules import Rule
from botorch_sparse.kernels import dense_covariance
from botorch_sparse.pools.branch_and_bound import Bounds, CandidateMoments, size_of
from botorch_sparse.pools.cross_covariance import CrossCovariance, KernelColumns
from botorch_sparse.pools.device_batch import BlockBatch, EagerBatch, eager_is_cheaper
from botorch_sparse.pools.embedding import Embedding, one_thread
from botorch_sparse.pools.host_batch import HostBatch
from botorch_sparse.pools.local_bounds import squares_of_all
from botorch_sparse.pools.pool_protocol import (
    ALL_ROWS,
    POINTS_AT_A_TIME,
    Moments,
    SelectableRows,
    on_device,
    validate_candidates,
)
from botorch_sparse.pools.shard import Shard
from botorch_sparse.pools.table_batch import TableBatch
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.pseudo_data import pseudo_data_factor, whitening_matrix


@dataclass(frozen=True)
class InducingOrder:
    """Inducing points that explain much of the candidates, kept between boundaries.

    Attributes:
        points: The points as bytes, those first that explain most.
        share: What the first bound left when the order was new; zero before that.
    """

    points: tuple[bytes, ...] = ()
    share: float = 0.0

    def of(self, keys: Sequence[bytes]) -> list[int]:
        """Where those of them are that are still among the inducing points."""
        place = {key: i for i, key in enumerate(keys)}
        return list(dict.fromkeys(place[key] for key in self.points if key in place))

    def after(self, share: float) -> "InducingOrder":
        """The order for the next boundary; none where the share has doubled."""
        if self.share == 0.0:
            return InducingOrder(self.points, max(share, 1e-2))
        return self if share <= 2 * self.share else InducingOrder()


def greedy_order(F: Tensor, sample: Tensor) -> list[int]:
    """The third of the pseudo-observations that explain most of a sample.

    Args:
        F: `m x m`, the factor of their covariance.
        sample: `m x k` covariances of them with the sample.

    Returns:
        Their indices. Cost: O(m^2 (m + k)).
    """
    rest, explained = (F @ F.mT).numpy(), sample.numpy().copy()
    variance = rest.diagonal().copy()
    least = 1e-14 * variance
    order: list[int] = []
    for _ in range(-(-len(F) // 3)):
        score = np.einsum("ij,ij->i", explained, explained)
        score /= np.maximum(rest.diagonal(), least)
        score[order] = -1.0
        j = int(score.argmax())
        order.append(j)
        column = rest[:, j] / max(rest[j, j], least[j])
        explained -= np.outer(column, explained[j])
        rest -= np.outer(column, rest[j])
    return order


# Bytes that the pool may keep beside the candidates themselves.
MAX_MEMORY = 2 * 1024**3
# Candidates whose kernel is evaluated at a time.
CHUNK_SIZE = 2**12
DEVICE_CHUNK_SIZE = 2**15  # few long products on an accelerator
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
    some of rows that may be the next ones. Of many candidates only those are embedded
    there that can have the largest bound (`pools/branch_and_bound.py`), until all
    variances are asked for.

    Cost: O(A m^2) for `update`, or a part of it.

    Args:
        X: `A x d` candidates.
        noise: Noise variance lambda of one evaluation.
        max_memory: Bytes for covariances with inducing points, past and present.
        chunk_size: Rows embedded at a time.
        table_size: Rows of the table that `X` is a part of, which decides what rounds
            alike; None where `X` is all of it.

    Raises:
        BotorchTensorDimensionError: If `X` is not `A x d` with `A > 0`.
        InputDataError: If `X` is not finite floating point, or a number is out of
            range.
    """

    def __init__(
        self,
        X: Tensor,
        noise: float = 1.0,
        *,
        max_memory: int = MAX_MEMORY,
        chunk_size: int | None = None,
        table_size: int | None = None,
    ) -> None:
        validate_candidates(X)
        check_number("noise", noise, "(0, inf)")
        check_number("max_memory", max_memory, "[0, inf)")
        if chunk_size is not None:
            check_whole("chunk_size", chunk_size)
        self.X = X
        self.noise = noise
        self.max_memory = int(max_memory)
        self.table_size = table_size or len(X)
        default = DEVICE_CHUNK_SIZE if on_device(X) else CHUNK_SIZE
        self.chunk_size = chunk_size or default
        self._columns = KernelColumns()
        self._promising = torch.arange(0)  # of the largest bounds in the last batch
        self._order = InducingOrder()
        self.reset()

    def reset(self, k_diag: Tensor | None = None) -> None:
        """Forget the posterior.

        Args:
            k_diag: `A` prior variances, if they are known.
        """
        self._state: _HostState | _DeviceState | None = None
        zero = self.X.new_zeros(len(self))
        self._prior = Moments(zero, zero if k_diag is None else k_diag)

    def snapshot(self) -> Any:
        """What `restore` needs; nothing is copied."""
        return self._state, self._prior, self.noise

    def restore(self, snapshot: Any) -> None:
        """Become what the pool was at the snapshot."""
        self._state, self._prior, self.noise = snapshot
        self._columns.clear()

    def __len__(self) -> int:
        return self.X.shape[0]

    @property
    def on_device(self) -> bool:
        """Whether a copy to the host has to wait for an accelerator."""
        return on_device(self.X)

    @property
    def posterior(self) -> NystromPosterior | None:
        """The posterior, if there is one."""
        return None if self._state is None else self._state.posterior

    @property
    def in_memory(self) -> bool:
        """Whether the covariances of all candidates with `S` are at hand."""
        return self._state is not None and self._state.in_memory

    @property
    def is_embedded(self) -> bool:
        """Whether the moments of all candidates are known."""
        return self._state is None or self._state.is_embedded

    @property
    def num_exact(self) -> int:
        """Candidates whose moments are known."""
        state = self._state
        if isinstance(state, _HostState) and not state.is_embedded:
            return int(state.known.is_exact.sum())
        return len(self)

    @property
    def square_memory(self) -> int:
        """See `Points`."""
        row = 2 * self.X.element_size()
        room = self.max_memory // 4 // (row * self.table_size)
        return room * row * len(self) if self.fits_in_memory(self._num_inducing) else 0

    @property
    def squares_at_a_time(self) -> int:
        """See `Points`; more where each pass computes `k_S(x)` anew."""
        if self.fits_in_memory(self._num_inducing):
            return POINTS_AT_A_TIME
        row = 2 * self.X.element_size()
        room = self.max_memory // 4 // (row * self.table_size)
        return max(POINTS_AT_A_TIME, min(MOST_SQUARES, room))

    def fits_in_memory(self, num_inducing: int) -> bool:
        """Whether `k_S(x)` of the whole table may be kept, in half the memory."""
        size = self.table_size * num_inducing * self.X.element_size()
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
            is_awaited: If False, the host waits for nothing. All variances may be NaN
                then, for rounding alone, and the pool has to be updated once more.
        """
        if k_diag is None:
            k_diag = posterior.covar_module(self.X, diag=True)
        prior = Moments(posterior.mean_module(self.X), k_diag)
        if self.on_device:
            self._state = self._updated_there(posterior, prior, is_awaited)
        else:
            with one_thread():
                state = self._updated_here(posterior, prior)
            if not state.known.screens:
                state.known.resolve_all()
            self._state = state
        self._prior = prior
        self.noise = self.noise if noise is None else noise

    def _updated_here(
        self, posterior: NystromPosterior, prior: Moments
    ) -> "_HostState":
        m, num = posterior.num_inducing, self.table_size
        embedding = Embedding.of(posterior)
        fits = m > 0 and self.fits_in_memory(m)
        is_large = m > 0 and num * m >= SCREENED
        # Bounds take a pass over all columns, also those that were computed in vain.
        likely = self.X[:0] if is_large else self.X[self._promising]
        cross = CrossCovariance(
            self.X,
            embedding,
            self._columns if fits else None,
            likely,
            self.max_memory // 2 // (num * self.X.element_size()),
            self.max_memory // 4,
        )
        limits = None
        if is_large:
            order, largest = self._ordered(cross), float(prior.variance.max())
            limits = Bounds.of(embedding, order, largest)
            limits = limits if limits.is_sharp else None
        known = CandidateMoments(embedding, cross, prior, limits)
        return _HostState(posterior, embedding.whitening, known)

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

    def _updated_there(
        self, posterior: NystromPosterior, prior: Moments, is_awaited: bool
    ) -> "_DeviceState":
        """The same on an accelerator, in few long products."""
        m, width = posterior.num_inducing, self._width
        L = pseudo_data_factor(posterior, is_awaited=is_awaited)
        whitening = whitening_matrix(posterior)
        weights = posterior.weights @ whitening
        mean, variance = prior.mean.clone(), prior.variance.clone()
        fits, num_tiles = self.fits_in_memory(m), -(-len(self) // width)
        tiles = self.X.new_empty(num_tiles, m, width) if fits else None
        for i, (rows, X) in enumerate(self._tiles_of_rows()):
            K = posterior.covariance_with_inducing(X)
            if tiles is not None:
                K = tiles[i].copy_(K)
            mean[rows] += (weights @ K)[: size_of(rows)]
            f = torch.linalg.solve_triangular(L, K, upper=False)
            variance[rows] -= f.square_().sum(0)[: size_of(rows)]
        rounding = torch.finfo(variance.dtype).eps * prior.variance
        moments = Moments(mean, torch.maximum(variance, rounding))
        return _DeviceState(posterior, whitening, moments, tiles)

    @property
    def _width(self) -> int:
        """Rows of a tile, the same for any part of the table."""
        return min(self.chunk_size, self.table_size)

    def _tiles_of_rows(self) -> Iterator[tuple[slice, Tensor]]:
        """The rows of each tile, and their coordinates; the last ones are repeated."""
        for start in range(0, len(self), self._width):
            rows = slice(start, min(start + self._width, len(self)))
            X, missing = self.X[rows], self._width - size_of(rows)
            yield rows, torch.cat([X, X[-1:].expand(missing, -1)]) if missing else X

    def tiles(self) -> Iterator[Tensor]:
        """`k_S(x)` of all candidates in order, `m x k` of one `k`; the last is padded.

        Their products have one shape, whichever rows of the table are here.
        """
        state = self._embedded()
        if isinstance(state, _DeviceState) and state.tiles is not None:
            yield from state.tiles
            return
        for start in range(0, len(self), self._width):
            rows = torch.arange(start, start + self._width, device=self.X.device)
            yield self.cross_covariance(rows.clamp_max(len(self) - 1))

    def hold(self, posterior: NystromPosterior) -> None:
        """Take a posterior without embedding the candidates; moments are not known.

        For sample paths, which need neither variances nor features. Cost: O(A).
        """
        unknown = self.X.new_full((len(self),), torch.nan)
        whitening = self.X.new_empty(0, 0)
        self._state = _DeviceState(posterior, whitening, Moments(unknown, unknown))

    @torch.no_grad()
    def moments(self, rows: Tensor) -> Moments:
        """See `Points`; those of the prior before any posterior."""
        if isinstance(self._state, _HostState) and not self._state.is_embedded:
            self._state.known.resolve(rows.unique())
        mean, variance = self._present()
        return Moments(mean[rows], variance[rows])

    @torch.no_grad()
    def all_moments(self) -> Moments:
        """See `Points`."""
        if not self.is_embedded and isinstance(self._state, _HostState):
            self._state.known.resolve_all()
        return self._present()

    def all_variances(self) -> Tensor:
        """See `Points`."""
        return self.all_moments().variance

    def _present(self) -> Moments:
        """What is known of all."""
        return self._prior if self._state is None else self._state.moments

    @property
    def _num_inducing(self) -> int:
        return self._embedded().posterior.num_inducing

    def cross(self, rows: Tensor | slice) -> Tensor:
        """`w(x)` of some candidates, `k x m`. Cost: O(k m^2)."""
        state = self._embedded()
        return (state.whitening @ state.cross_covariance(self.X, rows)).mT

    def batch(
        self,
        multiplier: float,
        rule: Rule | None = None,
        choosable: SelectableRows = ALL_ROWS,
    ) -> TableBatch:
        """See `Points`."""
        state = self._embedded()
        if isinstance(state, _HostState):
            self._screen(state.known, multiplier, choosable)
            batch = HostBatch(self, state.known, multiplier, rule, choosable)
            self._promising = batch.promising(NUM_PROMISING)
            return batch
        if self.in_memory and eager_is_cheaper(self.table_size, self._num_inducing):
            return EagerBatch(self, multiplier, rule, choosable)
        return BlockBatch(self, multiplier, rule, choosable)

    @torch.no_grad()
    def _screen(
        self, known: CandidateMoments, multiplier: float, choosable: SelectableRows
    ) -> None:
        """Embed the candidates that may have the largest bound.

        A good first value comes from those that were best before.
        """
        if known.is_whole:
            return
        rows = torch.arange(len(self))
        if choosable.excluded is not None:
            rows = rows[torch.ones_like(rows).index_fill_(0, choosable.excluded, 0) > 0]
        first = self._promising
        if not len(first):
            first = rows[:: max(1, len(rows) // SAMPLE_SIZE)]
        known.resolve(first)
        is_open = choosable.mean(known.mean).isfinite()
        bounds = known.bounds(multiplier)
        best = bounds.where(known.is_exact & is_open, -torch.inf).max()
        rows = rows[~known.is_exact[rows]]
        known.screen(multiplier, rows, float(best), grows=True)
        self._order = self._order.after(known.share)

    @property
    def shard(self) -> Shard:
        """All rows are here."""
        return Shard(len(self))

    def largest(self, values: Tensor) -> Tensor:
        """See `Points`."""
        return values.max()

    @torch.no_grad()
    def squared_covariances(self, rows: Tensor) -> Tensor:
        r"""Squared posterior covariances of all candidates with the points of a batch.

        .. math:: \mathrm{cov}(x, x_s)^2, \qquad (w(x)^\top w(x_s))^2

        the terms of the local bound ([Calandriello2020]_ Lemma 3, Appendix B.3). With
        :math:`\phi = L_B w` both come from one product:
        :math:`\mathrm{cov}(x, x_s) = k(x, x_s) + w(x)^\top (I - L_B^\top L_B) w(x_s)`.

        Args:
            rows: `k` candidates `x_s`.

        Returns:
            A `k x 2 x A` tensor. Cost: O(k A m).
        """
        return self.squares_with(self.X[rows], self.cross_covariance(rows))

    @torch.no_grad()
    def squares_with(self, X_s: Tensor, K_s: Tensor) -> Tensor:
        """The same with `k` points that may be of another part of the table.

        Args:
            X_s: `k x d` points.
            K_s: `m x k`, their covariances with the inducing points.
        """
        state = self._embedded()
        if isinstance(state, _HostState):
            return squares_of_all(state.known, X_s, K_s)
        L_B, k = state.posterior.chol_inner, len(X_s)
        w_s = (state.whitening @ K_s).mT  # k x m
        both = torch.stack([w_s - (w_s @ L_B.mT) @ L_B, w_s], dim=1) @ state.whitening
        both = both.view(2 * k, -1)
        squares = self.X.new_empty(k, 2, len(self))
        covar_module = state.posterior.covar_module
        for (rows, X), K in zip(self._tiles_of_rows(), self.tiles(), strict=True):
            products = (both @ K).view(k, 2, -1)
            products[:, 0] += dense_covariance(covar_module, X_s, X)
            squares[..., rows] = products.square_()[..., : size_of(rows)]
        return squares

    def cross_covariance(self, index: Tensor | slice) -> Tensor:
        """`k_S(x)` of some candidates, `m x k`; looked up, or computed if streamed."""
        return self._embedded().cross_covariance(self.X, index)

    @property
    def whitening(self) -> Tensor:
        """The matrix that turns `k_S(x)` into `w(x)`, `m x m`."""
        return self._embedded().whitening

    def _embedded(self) -> "_HostState | _DeviceState":
        if self._state is None:
            raise InputDataError(
                "The pool has no posterior yet: call update(posterior) first."
            )
        return self._state


@dataclass(frozen=True, eq=False)
class _HostState:
    """A posterior on the host, and what is known of the candidates under it.

    Attributes:
        posterior: The posterior.
        whitening: The matrix that turns `k_S(x)`, in the embedding's order, into
            `w(x)`, `m x m`.
        known: What is known of the candidates.
    """

    posterior: NystromPosterior
    whitening: Tensor
    known: CandidateMoments

    @property
    def in_memory(self) -> bool:
        return self.known.cross.in_memory

    @property
    def is_embedded(self) -> bool:
        return self.known.is_whole

    @property
    def moments(self) -> Moments:
        return Moments(self.known.mean, self.known.variance)

    def cross_covariance(self, X: Tensor, index: Tensor | slice) -> Tensor:
        """`k_S(x)` of some candidates, `m x k`."""
        return self.known.cross.of(index)


@dataclass(frozen=True, eq=False)
class _DeviceState:
    """A posterior on an accelerator, and the moments of all candidates.

    Attributes:
        posterior: The posterior.
        whitening: The matrix that turns `k_S(x)` into `w(x)`, `m x m`.
        moments: Those of all candidates.
        tiles: `t x m x k`, `k_S(x)` of all, `k` at a time, where they are kept.
    """

    posterior: NystromPosterior
    whitening: Tensor
    moments: Moments
    tiles: Tensor | None = None
    is_embedded: ClassVar[bool] = True

    @property
    def in_memory(self) -> bool:
        return self.tiles is not None

    def cross_covariance(self, X: Tensor, index: Tensor | slice) -> Tensor:
        """`k_S(x)` of some candidates, `m x k`."""
        if self.tiles is None:
            return self.posterior.covariance_with_inducing(X[index])
        width = self.tiles.shape[-1]
        if isinstance(index, slice):
            start, stop, step = index.indices(len(X))
            tile, place = divmod(start, width)
            if step == 1 and place + stop - start <= width:
                return self.tiles[tile, :, place : place + stop - start]
            index = torch.arange(start, stop, step, device=X.device)
        return self.tiles[index // width, :, index % width].mT
