"""A batch whose bounds are held by an accelerator.

Everything stays on the device: the state of a batch, and the numbers that its rule
needs. A step copies one small tensor to the host, with the choice, its variances and,
where there is one, the bound that decides whether the batch goes on.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from botorch_sparse.batching.rules import ContinueFunction, Rule, always_continue
from botorch_sparse.kernels import dense_covariance
from botorch_sparse.pools.compact_rows import Rows
from botorch_sparse.pools.embedding import Embedding, size_of
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.pools.table_batch import Points, TableBatch
from botorch_sparse.posteriors.nystrom import Moments
from botorch_sparse.posteriors.pending_points import PendingRows

# Pending rows in one product, zeros where there are none yet.
BLOCK = 32


@dataclass(frozen=True, eq=False)
class DeviceMoments:
    """The moments of all candidates under a posterior, in few long products."""

    embedding: Embedding  # the posterior's
    moments: Moments  # of all `A` candidates
    X: Rows  # `A x d` candidates
    width: int  # candidates of a tile, the same for any part of the table
    kept: Tensor | None  # `t x m x width`, all `k_S(x)` if kept; the last is padded
    is_whole: ClassVar[bool] = True

    @classmethod
    def of(
        cls, embedding: Embedding, prior: Moments, X: Rows, width: int, *, keeps: bool
    ) -> "DeviceMoments":
        """Embed all candidates; see `NystromPool.update`."""
        posterior, height = embedding.posterior, embedding.num_rows
        m = posterior.num_inducing
        mean, variance = prior.mean.clone(), prior.variance.clone()
        K = mean.new_empty(-(-len(X) // width) if keeps else 1, height, width)
        K[:, m:] = 0.0
        f = mean.new_empty(1, height, width)
        for i, (rows, part) in enumerate(_tiles(X, width) if m else ()):
            tile = K[i : i + 1] if keeps else K
            tile[0, :m] = posterior.covariance_with_inducing(part)
            added, explained = embedding.moments(tile, f)
            mean[rows] += added[0, : size_of(rows)]
            variance[rows] -= explained[0, : size_of(rows)]
        rounding = torch.finfo(variance.dtype).eps * prior.variance
        moments = Moments(mean, torch.maximum(variance, rounding))
        return cls(embedding, moments, X, width, K[:, :m] if keeps else None)

    @property
    def in_memory(self) -> bool:
        """Whether `k_S(x)` of all candidates is at hand."""
        return self.kept is not None

    @property
    def num_exact(self) -> int:
        """Candidates whose moments are known: all."""
        return len(self.X)

    def resolve(self, rows: Tensor) -> None:
        """Nothing: all are known."""

    def resolve_all(self) -> None:
        """Nothing: all are known."""

    def cross_covariance(self, index: Tensor | slice) -> Tensor:
        """`k_S(x)` of some candidates, `m x k`."""
        if self.kept is None:
            return self.embedding.posterior.covariance_with_inducing(self.X[index])
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self.X))
            tile, place = divmod(start, self.width)
            if step == 1 and place + stop - start <= self.width:
                return self.kept[tile, :, place : place + stop - start]
            index = torch.arange(start, stop, step, device=self.X.device)
        return self.kept[index // self.width, :, index % self.width].mT

    def tiles(self) -> Iterator[Tensor]:
        """`k_S(x)` of all candidates in order, `m x k` of one `k`; the last padded."""
        if self.kept is not None:
            yield from self.kept
            return
        for start in range(0, len(self.X), self.width):
            rows = torch.arange(start, start + self.width, device=self.X.device)
            yield self.cross_covariance(rows.clamp_max(len(self.X) - 1))

    def squares_with(self, X: Tensor, K: Tensor) -> Tensor:
        """Squared covariances of all candidates with points; see `CandidateMoments`."""
        k, (w, rest) = len(X), self.embedding.features(K)
        both = torch.stack([rest.mT, w.mT], dim=1).view(2 * k, -1)
        both = both @ self.embedding.whitening
        squares = self.X.new_empty(k, 2, len(self.X))
        covar_module = self.embedding.posterior.covar_module
        for (rows, part), cross in zip(
            _tiles(self.X, self.width), self.tiles(), strict=True
        ):
            products = (both @ cross).view(k, 2, -1)
            products[:, 0] += dense_covariance(covar_module, X, part)
            squares[..., rows] = products.square_()[..., : size_of(rows)]
        return squares


def _tiles(X: Rows, width: int) -> Iterator[tuple[slice, Tensor]]:
    """The rows of each tile, and their coordinates; the last ones are repeated."""
    for start in range(0, len(X), width):
        rows = slice(start, min(start + width, len(X)))
        part, missing = X[rows], width - size_of(rows)
        if missing:
            part = torch.cat([part, part[-1:].expand(missing, -1)])
        yield rows, part


def read_scalars(*scalars: Tensor) -> list[float]:
    """The values of one-element tensors, exact to 2^53, in one copy from the device."""
    return torch.cat([scalar.double().view(1) for scalar in scalars]).tolist()


def eager_is_cheaper(num_candidates: int, num_features: int) -> bool:
    """Whether updating all candidates at every step beats refreshing a block of them.

    A model of the cost on an accelerator, so that a resumed run takes the same path: an
    eager step streams all features once; the other one makes about ten passes over the
    bounds alone, to find the largest, and launches a hundred kernels more. With these
    constants both cost the same at 4e8 features, as they do on an H200.
    """
    bytes_per_second, launches, passes = 4e12, 8e-4, 10
    one_pass = 8 * num_candidates / bytes_per_second
    return num_features * one_pass < passes * one_pass + launches


class Choice(NamedTuple):
    """The largest bound: tensors of one element, not read yet."""

    row: Tensor  # whose it is
    value: Tensor  # the bound
    variance: Tensor  # with the pending points
    initial: Tensor  # at the start of the batch
    rest: Tensor | None = None  # no bound that was not looked at is above

    @classmethod
    def among_all(cls, bounds: Tensor, variance: Tensor, initial: Tensor) -> "Choice":
        """The largest of all bounds (`A`), none of them stale; O(A)."""
        row = bounds.argmax().view(1)
        return cls(
            row, *(of.index_select(0, row) for of in (bounds, variance, initial))
        )

    def is_certain(self) -> list[Tensor]:
        """Whether no other bound can be larger; empty where that is so."""
        if self.rest is None:
            return []
        return [(self.value > self.rest) | (self.rest == -torch.inf)]


class DeviceBatch(TableBatch):
    """An argmax whose answer is read together with what else a step needs to know."""

    reads_late = True

    def __init__(
        self,
        points: Points,
        moments: Moments,
        rule: Rule | None,
        selectable: SelectableRows,
    ) -> None:
        super().__init__(points, rule)
        self._initial = moments.variance
        self._mean = selectable.mean(moments.mean)
        self._once = selectable.once
        self._chosen: tuple[int, tuple[float, float]] | None = None  # the last argmax

    @abstractmethod
    def choice(self) -> Choice:
        """The candidate of largest bound; the lowest index among equals."""

    @abstractmethod
    def _make_pending(self, row: int) -> Tensor:
        """Make a candidate pending; its variance just before, a scalar."""

    def close(self, row: int) -> None:
        """Choose a candidate no more, where each is chosen once."""
        if self._once:
            self._mean[row] = -torch.inf

    def settle(self) -> None:
        """Make the next choice certain."""

    @override
    def argmax(self) -> int:
        return self._argmax_and()[0]

    def _argmax_and(self, *unread: Tensor) -> tuple[int, list[float]]:
        """The argmax, and the values of one-element tensors, in one copy."""
        choice = self.choice()
        certain = choice.is_certain()
        numbers = choice.row, choice.variance, choice.initial
        index, now, initial, *values = read_scalars(*numbers, *unread, *certain)
        if certain and not values.pop():
            self.settle()
            return self._argmax_and(*unread)
        self._chosen = int(index), (initial, now)
        self.initial[int(index)] = initial
        return int(index), values

    @override
    def _append(self, row: int) -> tuple[float, float]:
        chosen, self._chosen = self._chosen, None
        self.close(row)
        before = self._make_pending(row)
        if chosen is not None and chosen[0] == row:
            return chosen[1]
        initial, now = read_scalars(self._initial[row], before)
        return initial, now

    @override
    def choose(
        self, limit: int, continues: ContinueFunction = always_continue
    ) -> list[int]:
        """Maximizers, one after the other; see `GrowingBatch`.

        A bound that a pass over the pool has left on the device is read together with
        the next maximizer, which is looked for before it is known to be needed.
        """
        chosen: list[int] = []
        if self.is_over():
            return chosen
        following: int | None = self.argmax()
        while following is not None:
            chosen.append(following)
            if not continues(len(chosen)) or len(chosen) == limit:
                break
            self.append(following)
            following = self._following()
        return chosen

    def _following(self) -> int | None:
        """The next maximizer; None where the batch is over."""
        if self.rule is None:
            return self.argmax()
        bound = self.rule.bound(self)
        if not isinstance(bound, Tensor):
            return self.argmax() if bound <= self.rule.ratio_threshold else None
        row, (value,) = self._argmax_and(bound)
        for covariance, (known, total) in self._last_local.items():
            if known is bound:
                self._last_local[covariance] = value, total
        return row if value <= self.rule.ratio_threshold else None


class RankOneBatch(DeviceBatch):
    """A bound that the rows `u_j` of the pending points lower.

    All products have shapes that depend on the whole table alone, and what they give is
    taken off a variance in the order of the rows: its bits depend neither on when it is
    refreshed nor on which rows of the table are here.
    """

    def __init__(
        self,
        points: Points,
        embedded: DeviceMoments,
        multiplier: float,
        rule: Rule | None,
        selectable: SelectableRows,
    ) -> None:
        super().__init__(points, embedded.moments, rule, selectable)
        self._embedded = embedded
        self._multiplier = multiplier
        self._variance = self._initial
        self._rows = PendingRows(embedded.embedding.whitening[:0])

    @abstractmethod
    def look(self, row: int) -> tuple[Tensor, Tensor]:
        """A candidate's variance with the pending points (`1`), its `k_S(x)` (`m`)."""

    @abstractmethod
    def pend(self, k: Tensor) -> None:
        """Make a point pending that may be elsewhere, by its `k_S(x)` (`m`).

        That is in memory of its own: products may round by how their operands lie.
        """

    @override
    def _make_pending(self, row: int) -> Tensor:
        variance, k = self.look(row)
        self.pend(k)
        return variance

    def _bound(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean + self._multiplier * variance.clamp_min(0.0).sqrt()

    def _new_row(self, k: Tensor) -> Tensor:
        """`u_j` times `L_B^-1 L^-1`, from the point's `k_S(x)`, `m`; O(j m)."""
        whitening = self._embedded.embedding.whitening
        u = self._rows.row(whitening @ k).u(self.noise)
        self._rows = self._rows.append(u)
        return u @ whitening


class EagerBatch(RankOneBatch):
    """One product with all candidates, kept by the pool, for each pending point."""

    @override
    def values(self) -> Tensor:
        return self._bound(self._mean, self._variance)

    @override
    def choice(self) -> Choice:
        return Choice.among_all(self.values(), self._variance, self._initial)

    @override
    def look(self, row: int) -> tuple[Tensor, Tensor]:
        place = slice(row, row + 1)
        k = self._embedded.cross_covariance(place).flatten().contiguous()
        return self._variance[place], k

    @override
    def pend(self, k: Tensor) -> None:
        p = self._new_row(k)
        drop = torch.cat([p @ K for K in self._embedded.tiles()])  # w(x)'u, O(A m)
        self._variance = self._variance - drop[: len(self._variance)].square()


class BlockBatch(RankOneBatch):
    """Refreshes the candidates of largest stale bounds, a block of them at a step.

    For pools that are streamed, or so large that a pass over their features takes
    longer. A stale bound is an upper bound, so the choice is certain where the best of
    the block is above all bounds outside. Where it is not, which the same copy tells, a
    pass over all is made, and blocks double from `first_block` on: a second copy at
    that step.
    """

    first_block: ClassVar[int] = 2**13

    def __init__(
        self,
        points: Points,
        embedded: DeviceMoments,
        multiplier: float,
        rule: Rule | None,
        selectable: SelectableRows,
    ) -> None:
        super().__init__(points, embedded, multiplier, rule, selectable)
        self._base = self._initial
        self._ucb = self._bound(self._mean, self._variance)
        self._blocks: list[Tensor] = []  # `BLOCK x m` rows, and zeros
        self._num_rows = 0
        self._absorbed = 0  # blocks that `_base` knows of
        self._is_fresh = True  # whether `_ucb` and `_variance` know of all rows
        self._size = self._width = min(self.first_block, points.shard.num_rows)

    @override
    def values(self) -> Tensor:
        self._refresh()
        return self._ucb.clone()

    @override
    def choice(self) -> Choice:
        num = len(self._ucb)
        if self._size >= num:
            self._refresh()
        if self._is_fresh:
            return Choice.among_all(self._ucb, self._variance, self._initial)
        bounds, block = self._ucb.topk(self._size + 1)
        block = block[:-1]
        variance = self._variances(block)[1]
        fresh = self._bound(self._mean[block], variance)
        self._ucb[block] = fresh
        best = fresh.max().view(1)
        place = torch.where(fresh == best, block, num).argmin().view(1)
        row = block.index_select(0, place)
        initial = self._initial.index_select(0, row)
        now = variance.index_select(0, place)
        return Choice(row, best, now, initial, bounds[-1:])

    @override
    def look(self, row: int) -> tuple[Tensor, Tensor]:
        index = torch.full((1,), row, device=self._ucb.device)
        k = self._embedded.cross_covariance(index).flatten()
        return self._variances(index)[1], k

    @override
    def close(self, row: int) -> None:
        super().close(row)
        if self._once:
            self._ucb[row] = -torch.inf

    @override
    def pend(self, k: Tensor) -> None:
        block, place = divmod(self._num_rows, BLOCK)
        if place == 0:
            self._blocks.append(k.new_zeros(BLOCK, len(k)))
        self._blocks[block][place] = self._new_row(k)
        self._num_rows += 1
        self._is_fresh = False

    @override
    def settle(self) -> None:
        self._refresh()
        self._size *= 2

    def _refresh(self) -> None:
        """Fresh bounds for all candidates."""
        if not self._is_fresh:
            rows = torch.arange(len(self._ucb), device=self._ucb.device)
            self._base, self._variance = self._variances(rows)
            self._absorbed = len(self._blocks) - 1  # the last one may get more rows
            self._ucb = self._bound(self._mean, self._variance)
            self._is_fresh = True

    def _variances(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """What `_after_rows` gives for any candidates, a padded block at a time."""
        missing = -len(index) % self._width
        index = torch.cat([index, index[-1:].expand(missing)]) if missing else index
        both = [
            torch.stack(self._after_rows(part, self._embedded.cross_covariance(part)))
            for part in index.split(self._width)
        ]
        closed, fresh = torch.cat(both, dim=1)[:, : len(index) - missing]
        return closed, fresh

    def _after_rows(self, index: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
        """Variances of `k` candidates under all blocks but the last, and under all."""
        closed = fresh = self._base[index]
        for rows in self._blocks[self._absorbed :]:
            closed, fresh = fresh, fresh - (rows @ K).square().sum(0)
        return closed, fresh.clamp_min(0.0)
