r"""All candidates of a finite set under one Nystrom posterior.

References:
    [Calandriello2020]_ Section 3.1 and Appendix A.3 (pre-embedding, lazy evaluation).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.optim.batch import BatchState
from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.optim.device_batch import (
    BlockBatch,
    EagerBatch,
    eager_is_cheaper,
)
from botorch_sparse.optim.embedding import TILE, Embedding, padded
from botorch_sparse.optim.host_batch import HostBatch
from botorch_sparse.optim.kernel_columns import KernelColumns
from botorch_sparse.optim.points import Moments, on_device, validate_candidates
from botorch_sparse.optim.rules import Rule
from botorch_sparse.optim.shards import Shard
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.pseudo_data import pseudo_data_factor, whitening_matrix

# Bytes that the pool may keep beside the candidates themselves.
MAX_MEMORY = 2 * 1024**3
# Candidates whose kernel is evaluated at a time.
CHUNK_SIZE = 2**12
DEVICE_CHUNK_SIZE = 2**15  # few long products on an accelerator
# Entries of `X` above which a kernel column by itself costs more than as one of many.
LARGE_POOL = 2**20


class NystromPool:
    r"""Candidates under one posterior, and the batches that are chosen from them.

    After `update(posterior)` the pool knows means and variances of all `A` candidates
    and, where they fit into `max_memory`, their covariances `k_S(x)` with the inducing
    points, which one small matrix turns into features,
    :math:`w(x) = L_B^{-1} L^{-1} k_S(x)`; a larger pool is streamed in row chunks, and
    covariances are computed again for the few candidates that a step looks at.

    On the CPU the kernel's columns `k(X, x_s)` of points that have once been inducing
    points are kept in `max_memory` (unless there are very many candidates): the next
    inducing set shares most of them.

    Cost: O(A m^2) for `update`.

    Args:
        X: `A x d` candidates.
        noise: Noise variance lambda of one evaluation.
        max_memory: Bytes for covariances with inducing points, past and present.
        chunk_size: Rows embedded at a time.
        table_size: Rows of the whole table where `X` are some of its rows: whether
            kernel columns are kept, which round otherwise, does not depend on the part.

    Raises:
        BotorchTensorDimensionError: If `X` is not `A x d` with `A > 0`.
        InputDataError: If `X` is not finite floating point.
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
        self.X = X
        self.noise = noise
        self.max_memory = max_memory
        self.table_size = len(X) if table_size is None else table_size
        default = DEVICE_CHUNK_SIZE if on_device(X) else CHUNK_SIZE
        self.chunk_size = chunk_size or default
        self._columns = KernelColumns()
        self.reset()

    def reset(self, k_diag: Tensor | None = None) -> None:
        """Forget the posterior.

        Args:
            k_diag: `A` prior variances, if they are known.
        """
        self._state: _State | None = None
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
    def whitening(self) -> Tensor:
        """The matrix `L_B^-1 L^-1` that turns `k_S(x)` into `w(x)`, `m x m`."""
        return self._embedded().whitening

    @property
    def num_rows(self) -> int:
        """The number `m` of inducing points, padded."""
        return padded(len(self.whitening))

    @property
    def in_memory(self) -> bool:
        """Whether the covariances of all candidates with `S` are at hand."""
        state = self._state
        return state is not None and (state.keeps_columns or state.cross is not None)

    @property
    def square_memory(self) -> int:
        """See `Points`."""
        if len(self.whitening) > self._capacity:
            return 0
        row = 2 * self.X.element_size()
        room = self.max_memory // 4 // (row * self.table_size)
        return room * row * len(self)

    def fits_in_memory(self, num_inducing: int) -> bool:
        """Whether `k_S(x)` of all candidates is kept; it may take half the memory."""
        size = len(self) * num_inducing * self.X.element_size()
        return 2 * size <= self.max_memory

    def _keeps_columns(self, num_inducing: int) -> bool:
        """Whether kernel columns are kept by point."""
        large = self.on_device or self.table_size * self.X.shape[-1] > LARGE_POOL
        return not large and 0 < num_inducing <= self._capacity

    @torch.no_grad()
    def update(
        self,
        posterior: NystromPosterior,
        k_diag: Tensor | None = None,
        *,
        noise: float | None = None,
        is_awaited: bool = True,
    ) -> None:
        """Embed all candidates under a new posterior.

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
            state = self._updated_there(posterior, prior, is_awaited)
        else:
            state = self._updated_here(posterior, prior)
        self._state, self._prior = state, prior
        self.noise = self.noise if noise is None else noise

    def _updated_here(self, posterior: NystromPosterior, prior: Moments) -> "_State":
        m = posterior.num_inducing
        embedding = Embedding(posterior)
        keeps_columns = self._keeps_columns(m)
        cross = None
        if not keeps_columns and self.fits_in_memory(m):
            cross = self.X.new_empty(m, len(self))
        state = _State(
            posterior, embedding.whitening, prior, cross, keeps_columns=keeps_columns
        )
        mean, variance = prior.mean.clone(), prior.variance.clone()
        tile = self.X.new_zeros(embedding.num_rows, TILE)
        parts = self.X.new_zeros(2, TILE)
        for start in range(0, len(self), self.chunk_size):
            chunk = slice(start, min(start + self.chunk_size, len(self)))
            K = self._kernel(state, chunk)
            if cross is not None:
                cross[:, chunk] = K
            for first in range(chunk.start, chunk.stop, TILE):
                rows = slice(first, min(first + TILE, chunk.stop))
                size = rows.stop - rows.start
                tile[:m, :size] = K[:, first - start : first - start + size]
                parts[0, :size], parts[1, :size] = mean[rows], variance[rows]
                embedding.embed(tile, parts[0], parts[1])
                mean[rows], variance[rows] = parts[:, :size]
        rounding = torch.finfo(variance.dtype).eps * prior.variance
        state.moments = Moments(mean, torch.maximum(variance, rounding))
        return state

    def _updated_there(
        self, posterior: NystromPosterior, prior: Moments, is_awaited: bool
    ) -> "_State":
        """The same on an accelerator, in few long products."""
        m, num = posterior.num_inducing, len(self)
        L = pseudo_data_factor(posterior, is_awaited=is_awaited)
        whitening = whitening_matrix(posterior)
        weights = posterior.weights @ whitening
        mean, variance = prior.mean.clone(), prior.variance.clone()
        cross = self.X.new_empty(m, num) if self.fits_in_memory(m) else None
        for start in range(0, num, self.chunk_size):
            rows = slice(start, min(start + self.chunk_size, num))
            K = posterior.covariance_with_inducing(self.X[rows])
            if cross is not None:
                K = cross[:, rows].copy_(K)
            mean[rows] += weights @ K
            f = torch.linalg.solve_triangular(L, K, upper=False)
            variance[rows] -= f.square_().sum(0)
        rounding = torch.finfo(variance.dtype).eps * prior.variance
        moments = Moments(mean, torch.maximum(variance, rounding))
        return _State(posterior, whitening, moments, cross)

    def _kernel(self, state: "_State", rows: slice) -> Tensor:
        """`k_S(x)` of a chunk, `m x chunk`."""
        if state.keeps_columns:
            slots = self._slots(state)
            return self._columns.values[:, rows].index_select(0, slots)
        if rows.stop - rows.start == self.chunk_size or len(self) < self.chunk_size:
            X = self.X[rows]
        else:  # the last chunk has the shape of all
            index = torch.arange(rows.start, rows.start + self.chunk_size)
            X = self.X[index.clamp_max_(len(self) - 1)]
        K = state.posterior.covariance_with_inducing(X)
        return K[:, : rows.stop - rows.start]

    def hold(self, posterior: NystromPosterior) -> None:
        """Take a posterior without embedding the candidates; moments are not known.

        For sample paths, which need neither variances nor features. Cost: O(A).
        """
        unknown = self.X.new_full((len(self),), torch.nan)
        whitening = self.X.new_empty(0, 0)
        self._state = _State(posterior, whitening, Moments(unknown, unknown))

    def moments(self, rows: Tensor) -> Moments:
        """See `Points`; those of the prior before any posterior."""
        mean, variance = self.all_moments()
        return Moments(mean[rows], variance[rows])

    def all_moments(self) -> Moments:
        """See `Points`."""
        return self._prior if self._state is None else self._state.moments

    def all_variances(self) -> Tensor:
        """See `Points`."""
        return self.all_moments().variance

    @torch.no_grad()
    def fill(self, index: np.ndarray, out: np.ndarray) -> None:
        """Write `k_S(x)` of `k` rows on the host into the first columns of a tile."""
        state, k = self._embedded(), len(index)
        m = len(state.whitening)
        if state.keeps_columns:
            slots = self._slots(state).numpy()
            values: np.ndarray = self._columns.values.numpy()
            place = slots[:, None] * values.shape[1] + index
            out[:m, :k] = values.reshape(-1).take(place)
        elif state.cross is not None:
            out[:m, :k] = state.cross.numpy()[:, index]
        else:
            full = np.resize(index, out.shape[1])  # one shape for all
            K = state.posterior.covariance_with_inducing(self.X[torch.from_numpy(full)])
            out[:m] = K.numpy()

    @torch.no_grad()
    def cross_covariance(self, index: Tensor | slice) -> Tensor:
        """`k_S(x)` of some candidates, `m x k`; looked up, or computed if streamed."""
        state = self._embedded()
        if state.cross is not None:
            return state.cross[:, index]
        if state.keeps_columns:
            slots = self._slots(state)
            return self._columns.values[:, index].index_select(0, slots)
        return state.posterior.covariance_with_inducing(self.X[index])

    def cross(self, rows: Tensor | slice) -> Tensor:
        """`w(x)` of some candidates, `k x m`. Cost: O(k m^2)."""
        return (self.whitening @ self.cross_covariance(rows)).mT

    def batch(
        self,
        multiplier: float,
        rule: Rule | None = None,
        choosable: Choosable = ALL,
    ) -> BatchState:
        """See `Points`."""
        m = self._embedded().posterior.num_inducing
        if not self.on_device:
            return HostBatch(self, multiplier, rule, choosable)
        if self.in_memory and eager_is_cheaper(len(self), m):
            return EagerBatch(self, multiplier, rule, choosable)
        return BlockBatch(self, multiplier, rule, choosable)

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
        posterior = state.posterior
        L_B, k = posterior.chol_inner, len(X_s)
        w_s = (self.whitening @ K_s).mT  # k x m
        both = torch.stack([w_s - (w_s @ L_B.mT) @ L_B, w_s], dim=1) @ self.whitening
        both = both.view(2 * k, -1)
        slots = self._batch_slots(state, X_s)
        whole = state.cross is not None
        step = len(self) if whole else self.chunk_size
        squares = self.X.new_empty(k, 2, len(self))
        for start in range(0, len(self), step):
            chunk = slice(start, start + step)
            products = (both @ self.cross_covariance(chunk)).view(k, 2, -1)
            products[:, 0] += (
                posterior.covar_module(X_s, self.X[chunk]).to_dense()
                if slots is None
                else self._columns.values[slots, chunk]
            )
            squares[..., chunk] = products.square_()
        return squares

    def _embedded(self) -> "_State":
        if self._state is None:
            raise InputDataError(
                "The pool has no posterior yet: call update(posterior) first."
            )
        return self._state

    @property
    def _capacity(self) -> int:
        """Kernel columns that may be kept."""
        return self.max_memory // 2 // (self.table_size * self.X.element_size())

    def _slots(self, state: "_State") -> Tensor:
        """Where the columns `k(X, x_s)` of the inducing points are kept."""
        version, slots = state.slots or (-1, torch.empty(0))
        if version != self._columns.version:
            slots = self._find(state, state.posterior.inducing_points)
            state.slots = self._columns.version, slots
        return slots

    def _batch_slots(self, state: "_State", X: Tensor) -> Tensor | None:
        """Those of other points; None where there is no room beside the former."""
        points = torch.cat([state.posterior.inducing_points, X])
        if not state.keeps_columns or len(points) > self._capacity:
            return None
        return self._find(state, points)[-len(X) :]

    def _find(self, state: "_State", points: Tensor) -> Tensor:
        covar_module = state.posterior.covar_module
        return self._columns.find(covar_module, self.X, points, self._capacity)


@dataclass(eq=False)
class _State:
    """A posterior, and what is known of the candidates under it.

    Attributes:
        posterior: The posterior.
        whitening: The matrix that turns `k_S(x)` into `w(x)`, `m x m`.
        moments: Those of all candidates.
        cross: `m x A`, `k_S(x)` of all, where it is kept whole.
        keeps_columns: Whether it is looked up among kernel columns instead.
        slots: Where these are, and for which version of the columns.
    """

    posterior: NystromPosterior
    whitening: Tensor
    moments: Moments
    cross: Tensor | None = None
    keeps_columns: bool = False
    slots: tuple[int, Tensor] | None = None
