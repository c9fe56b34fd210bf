r"""Exact argmax of the bound of `optim.ucb`, for pools on an accelerator.

Everything stays on the device: the state of a batch, and the numbers that its rule
needs. A step copies one small tensor to the host, with the choice, its variances and,
where there is one, the bound that decides whether the batch goes on.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from botorch_sparse.optim.choosable import ALL, Choosable

if TYPE_CHECKING:
    from botorch_sparse.optim.candidate_pool import CandidatePool


def eager_is_cheaper(num_candidates: int, num_features: int) -> bool:
    """Whether updating all candidates at every step beats refreshing a block of them.

    A model of the cost on an accelerator, so that a resumed run takes the same path: an
    eager step streams all features once; the other one makes about ten passes over the
    bounds alone, to find the largest, and launches ten kernels more.

    Args:
        num_candidates: Number of candidates `A`.
        num_features: Number of features `m`.
    """
    bytes_per_second, launch, passes = 2e12, 5e-6, 10
    one_pass = 8 * num_candidates / bytes_per_second
    return num_features * one_pass < passes * (one_pass + launch)


def read(*scalars: Tensor) -> list[float]:
    """The values of tensors of one element, in one copy from the device.

    Integers up to 2^53 come through as they are.
    """
    return torch.cat([scalar.double().view(1) for scalar in scalars]).tolist()


def upload(*vectors: Tensor, device: torch.device) -> list[Tensor]:
    """Vectors of the host on a device, in one copy, or as they are if it is the host.

    Integers up to 2^53 come through as they are.
    """
    if device.type == "cpu":
        return list(vectors)
    packed = torch.cat([vector.double() for vector in vectors]).to(device)
    parts = packed.split([len(vector) for vector in vectors])
    return [part.to(v.dtype) for part, v in zip(parts, vectors, strict=True)]


class Choice(NamedTuple):
    """Tensors of one element, not read yet."""

    row: Tensor
    variance: Tensor  # with the pending points
    is_certain: Tensor | None = None  # None where it always is

    @classmethod
    def among_all(cls, bounds: Tensor, variance: Tensor) -> "Choice":
        """The largest of all bounds (`A`), none of them stale; O(A)."""
        index = bounds.argmax()
        return cls(index, variance.index_select(0, index.view(1)))


class OneReadUCB(ABC):
    """An argmax whose answer is read together with what else a step needs to know.

    Args:
        initial: Variances of all candidates at the batch's start, `A`.
        mean: Their means, `A`.
        choosable: Which of them may be chosen.

    Attributes:
        firsts: Those that are known on the host, by candidate.
    """

    def __init__(self, initial: Tensor, mean: Tensor, choosable: Choosable) -> None:
        self._initial = initial
        self._mean = choosable.mean(mean)
        self._once = choosable.once
        self.firsts: dict[int, float] = {}
        self._chosen = -1  # the last argmax
        self._now: float | None = None  # its variance, as long as that is known

    @abstractmethod
    def _choose(self) -> Choice:
        """The candidate of largest bound; the lowest index among equals."""

    @abstractmethod
    def _append(self, index: int) -> Tensor:
        """Make a candidate pending; its variance just before, a scalar."""

    def _refresh_all(self) -> None:  # noqa: B027 (only where a choice may be uncertain)
        """Make the next choice certain."""

    def argmax(self) -> int:
        """The candidate of largest bound; ties go to the lowest index."""
        return self.argmax_and()[0]

    def argmax_and(self, *unread: Tensor) -> tuple[int, list[float]]:
        """The argmax, and the values of some scalars, in one copy from the device.

        Args:
            *unread: Tensors of one element.
        """
        choice = self._choose()
        first = self._initial.index_select(0, choice.row.view(1))
        certain = [] if choice.is_certain is None else [choice.is_certain]
        index, now, initial, *values = read(
            choice.row, choice.variance, first, *unread, *certain
        )
        if certain and not values.pop():
            self._refresh_all()
            return self.argmax_and(*unread)
        self._chosen, self._now = int(index), now
        self.firsts[self._chosen] = initial
        return self._chosen, values

    def initial(self, index: int) -> float:
        """A candidate's variance at the start; known already where it was an argmax."""
        if index not in self.firsts:
            self.firsts[index] = float(self._initial[index])
        return self.firsts[index]

    def append(self, index: int) -> float | Tensor:
        """Make a candidate pending; its variance just before.

        Returns:
            A number for the last argmax, else a scalar on the device.
        """
        now = self._now if index == self._chosen else None
        self._now = None
        if self._once:
            self._mean[index] = -torch.inf
        before = self._append(index)
        return before if now is None else now


class _RankOneUCB(OneReadUCB):
    """A bound that the rows `u_j` of the pending points lower.

    Args:
        pool: An embedded pool.
        multiplier: What multiplies the Bayesian standard deviation.
        noise: Noise variance of a pending evaluation (lambda).
        choosable: What may be chosen; all candidates by default.
    """

    def __init__(
        self,
        pool: "CandidatePool",
        multiplier: float,
        noise: float,
        choosable: Choosable = ALL,
    ) -> None:
        super().__init__(pool.variance, pool.mean, choosable)
        self._pool = pool
        self._multiplier = multiplier
        self._noise = noise
        self._variance = pool.variance.clone()
        self._U = pool.whitening[:0]

    def _bound(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean + self._multiplier * variance.clamp_min(0.0).sqrt()

    def _new_row(self, k: Tensor) -> Tensor:
        """`u_j` times `L_B^-1 L^-1`, from the point's `k_S(x)`, `m x 1`; O(j m)."""
        w = (self._pool.whitening @ k).squeeze(-1)
        a = w - self._U.mT @ (self._U @ w)
        u = a / (self._noise + torch.maximum(w @ a, a @ a)).sqrt()
        self._U = torch.cat([self._U, u.unsqueeze(0)])
        return u @ self._pool.whitening


class EagerUCB(_RankOneUCB):
    """One matrix-vector product over all candidates for each pending point.

    Arguments as in `LazyUCB`; the pool keeps its features.
    """

    def values(self) -> Tensor:
        """The bounds of all candidates, `A`."""
        return self._bound(self._mean, self._variance)

    def _choose(self) -> Choice:
        return Choice.among_all(self.values(), self._variance)

    def _append(self, index: int) -> Tensor:
        before = self._variance[index]
        p = self._new_row(self._pool.cross_covariance(slice(index, index + 1)))
        drop = p @ self._pool.cross_covariance(slice(None))  # w(x)'u for all x, O(A m)
        self._variance = self._variance - drop.square()
        return before


class BlockUCB(_RankOneUCB):
    """Refreshes the candidates of largest stale bounds, a block of them at a step.

    For pools that are streamed, or so large that a pass over their features takes
    longer. A stale bound is an upper bound, so the choice is certain where the best of
    the block is above all bounds outside. Where it is not, which the same copy tells,
    a pass over all is made, and blocks double: a second copy at that step.

    Arguments as in `LazyUCB`.

    Attributes:
        first_block: Candidates refreshed at a step, at first.
    """

    first_block: ClassVar[int] = 1024

    def __init__(
        self,
        pool: "CandidatePool",
        multiplier: float,
        noise: float,
        choosable: Choosable = ALL,
    ) -> None:
        super().__init__(pool, multiplier, noise, choosable)
        self._ucb = self._bound(self._mean, self._variance)
        self._P = pool.whitening[:0]  # rows that `_variance` does not know of
        self._size = self.first_block

    def values(self) -> Tensor:
        """The bounds of all candidates, `A`, all of them refreshed."""
        self._absorb()
        return self._ucb.clone()

    def _choose(self) -> Choice:
        num = len(self._ucb)
        if self._size >= num:
            self._absorb()
        if not len(self._P):
            return Choice.among_all(self._ucb, self._variance)
        bounds, block = self._ucb.topk(self._size + 1)
        variance = self._variance_of(block)
        fresh = self._bound(self._mean[block], variance)[:-1]
        self._ucb[block[:-1]] = fresh
        best = fresh.max()
        place = torch.where(fresh == best, block[:-1], num).argmin().view(1)
        index = block.index_select(0, place)
        is_certain = best > bounds[-1]
        return Choice(index, variance.index_select(0, place), is_certain)

    def _append(self, index: int) -> Tensor:
        k = self._pool.cross_covariance(slice(index, index + 1))
        before = self._variance[index] - (self._P @ k).square().sum()
        if self._once:
            self._ucb[index] = -torch.inf
        self._P = torch.cat([self._P, self._new_row(k).unsqueeze(0)])
        return before.clamp_min(0.0)

    def _variance_of(self, index: Tensor | slice) -> Tensor:
        """Fresh variances of some candidates, `k`. Cost: O(k m) for each row."""
        drop = self._P @ self._pool.cross_covariance(index)
        return (self._variance[index] - drop.square().sum(0)).clamp_min(0.0)

    def _refresh_all(self) -> None:
        self._absorb()
        self._size *= 2

    def _absorb(self) -> None:
        """Fresh bounds for all candidates, which from now on start from these rows."""
        if len(self._P):
            starts = range(0, len(self._ucb), self._pool.chunk_size)
            chunks = (slice(s, s + self._pool.chunk_size) for s in starts)
            self._variance = torch.cat([self._variance_of(rows) for rows in chunks])
            self._ucb = self._bound(self._mean, self._variance)
            self._P = self._P[:0]
