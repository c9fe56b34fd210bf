"""S-BPE on a table of candidates ([Vakili2022]_ Section 5.1)."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from botorch_sparse.pools.device_batch import read_scalars
from botorch_sparse.strategies.data.run_record import RunRecord
from botorch_sparse.strategies.sbpe.bounds import BatchBounds, Recommendation
from botorch_sparse.strategies.sbpe.exploration import BatchExploration
from botorch_sparse.strategies.surrogates.prior import Prior
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource


@dataclass(frozen=True, eq=False)
class TableSurvivors:
    """The rows that are left; a cut makes another value.

    Attributes:
        X: `A x d` candidates, float64.
        survivors: `A` truth values.
        intervals: `3 x A`, standardized: the largest lower and the smallest upper
            bounds of all batches that explored a row, and the posterior means of the
            batches that the first are from.
        prior: By which feedback is standardized.
    """

    X: Tensor
    survivors: Tensor
    intervals: Tensor
    prior: Prior

    @classmethod
    def everything(cls, X: Tensor, prior: Prior) -> "TableSurvivors":
        """All `A x d` candidates, before any batch."""
        ends = X.new_tensor([-torch.inf, torch.inf, 0.0], dtype=torch.float64)
        intervals = ends.unsqueeze(-1).repeat(1, len(X))
        survivors = torch.ones_like(X[:, 0], dtype=torch.bool)
        return cls(X.double(), survivors, intervals, prior)

    @property
    def lower(self) -> Tensor:
        """`A` largest lower bounds, in units of Y."""
        return self.prior.restore(self.intervals[0])

    @property
    def upper(self) -> Tensor:
        """`A` smallest upper bounds, in units of Y."""
        return self.prior.restore(self.intervals[1])

    def confidence_gap(self) -> float:
        """Largest upper less largest lower bound of the survivors, in units of Y."""
        lower, upper, _ = self.intervals[:, self.survivors].amax(-1).tolist()
        return max(0.0, self.prior.scale * (upper - lower))

    @cached_property
    def _left(self) -> Tensor:
        """The rows that survive, where the table is."""
        return self.survivors.nonzero().squeeze(-1)

    @cached_property
    def _left_here(self) -> Tensor:
        """`_left` on the host."""
        return self._left.cpu()

    def number(self, place: int) -> int:
        """The row at a place among those that survive."""
        return int(self._left_here[place])

    def draw_pool(self, n: int, generator: torch.Generator) -> Tensor:
        """No points: a batch compares the rows themselves."""
        return self.X[:0].clone()

    def explored(self, pool: Tensor) -> Tensor:
        """The surviving rows, `k x d`, all of which a batch compares."""
        return self.X[self._left]

    def _open(self, failed: Collection[int]) -> Tensor:
        """`A` truth values: the survivors that have not failed. O(A)."""
        if not failed:
            return self.survivors
        rows = torch.tensor(sorted(failed), device=self.X.device)
        return self.survivors.index_fill(0, rows, False)

    def is_exhausted(self, failed: Collection[int]) -> bool:
        """Whether all that survives has failed."""
        return len(failed) > 0 and not self._open(failed).any()

    def draw(
        self,
        place: int,
        pool: Tensor,
        known: RunRecord,
        generator: torch.Generator,
        failed: Collection[int],
    ) -> int:
        """One of the rows, but none that failed; by the generator alone."""
        left = self._left_here
        if failed:
            left = left[self._open(failed)[self._left].cpu()]
        return int(left[torch.randint(len(left), (1,), generator=generator)])

    def explore(
        self,
        exploration: BatchExploration,
        points: Sequence[int],
        pool: Tensor,
        inputs: Callable[[Tensor], Tensor],
        known: RunRecord,
        generator: torch.Generator,
        failed: Collection[int],
    ) -> int:
        """The row of largest variance, which joins an exploration. O(A m).

        Arguments are as in `SurvivingRegion`; what is about new points has no use here.
        """
        is_open = self._open(failed)[self._left] if failed else None
        place = exploration.argmax(is_open)
        exploration.add(place, generator)
        return self.number(place)

    @torch.no_grad()
    def cut(
        self,
        bounds: BatchBounds,
        failed: Collection[int],
        pool: Tensor,
        num_restarts: int,
    ) -> tuple["TableSurvivors", dict[str, Any]]:
        r"""Keep the rows with :math:`u_i(x) \ge \max l_i` (Eq. 13). O(A m^2).

        Rows that failed rule out no others, and stay where nothing else is left.
        """
        rows = self._left
        lower, upper = bounds.standardized(self.X[rows])
        is_open = self._recommendable(failed)[rows]
        threshold = lower.masked_fill(~is_open, -torch.inf).max()
        kept = is_open & (upper >= threshold)
        old_lower, old_upper, old_mean = self.intervals[:, rows]
        mean = torch.where(lower > old_lower, (lower + upper) / 2, old_mean)
        new = torch.stack([lower.maximum(old_lower), upper.minimum(old_upper), mean])
        survivors = torch.zeros_like(self.survivors).index_copy(0, rows, kept)
        intervals = self.intervals.index_copy(1, rows, new)
        widths = torch.where(kept, upper - lower, -torch.inf)
        num, width = read_scalars(kept.sum(), widths.max())
        return replace(self, survivors=survivors, intervals=intervals), {
            "survivors": int(num),
            "fraction": num / len(rows),
            "max_width": self.prior.scale * width,
        }

    def _recommendable(self, failed: Collection[int]) -> Tensor:
        """`A` truth values: survivors that have not failed, or all where all have."""
        return self.survivors if self.is_exhausted(failed) else self._open(failed)

    def recommend(self, known: RunRecord, failed: Collection[int]) -> Recommendation:
        """The survivor of largest lower bound, by all batches."""
        is_left = self._recommendable(failed)
        index = int(self.intervals[0].masked_fill(~is_left, -torch.inf).argmax())
        lower, upper, mean = self.prior.restore(self.intervals[:, index]).tolist()
        return Recommendation(
            X=known.points(torch.tensor([index])).squeeze(0),
            index=index,
            mean=mean,
            lower=lower,
            upper=upper,
        )

    def state_dict(self) -> dict[str, Any]:
        """All but the table."""
        return {"survivors": self.survivors, "intervals": self.intervals}

    def of_state(
        self, state: dict[str, Any], source: PriorSource, prior: Prior
    ) -> "TableSurvivors":
        """The survivors of the same table that a state came from."""
        tensors = {name: x.to(self.X.device) for name, x in state.items()}
        return replace(self, **tensors, prior=prior)
