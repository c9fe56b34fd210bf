"""Ask and tell in rounds: points of a batch first, then its feedback at once."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

from botorch.exceptions import BotorchWarning, UnsupportedError
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.confidence import ConfidenceRadius
from botorch_sparse.argument_checks import check_whole
from botorch_sparse.strategies.core.strategy import HAS_A_PLAN, Strategy
from botorch_sparse.strategies.core.transaction import step
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.evaluations import BatchRecord, FoldedValues
from botorch_sparse.strategies.data.feedback import Points
from botorch_sparse.strategies.data.history import Batch, History, evaluations_at
from botorch_sparse.strategies.sbpe.bounds import (
    BatchBounds,
    BatchData,
    Recommendation,
    bounds_of_feedback,
)
from botorch_sparse.strategies.sbpe.round_history import Round
from botorch_sparse.strategies.sbpe.search_state import SearchState


class RoundStrategy(Strategy):
    """What `SBPE` does between the choice of a point and the cut of a batch.

    A batch ends when all of its points are proposed and told or withdrawn; until then
    there is nothing more to ask for. `ask(max_batch_size)` proposes a part of a batch:
    the points are the same in whatever parts they are asked for. Points that are
    withdrawn are not replaced, and should fail for reasons other than their value. Rows
    of a table that failed do not come again, in this batch or a later one, do not
    survive its end and are not recommended: what is proved holds for the other rows.

    Args:
        domain: The table, or the box.
        progress: Where it starts.
        lengths: Lengths of the batches.
        seed: Seed of the strategy's generator.
        minimize: See `Strategy`.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        progress: SearchState,
        lengths: list[int],
        seed: int,
        minimize: bool = False,
    ) -> None:
        super().__init__(domain, seed=seed, minimize=minimize)
        self.progress = progress
        self.lengths = lengths

    @property
    def radius(self) -> ConfidenceRadius:
        """The confidence radius."""
        return self.progress.radius

    @property
    def last_bounds(self) -> BatchBounds | None:
        """The bounds of the last batch that had feedback; None before any."""
        return self.progress.last_bounds

    @property
    def round_number(self) -> int:
        """Number of the batch in progress, from 0."""
        return len(self.record.rounds)

    @property
    def num_left(self) -> int:
        """Points of the batch in progress that are still to be proposed."""
        if self.round_number == len(self.lengths):
            return 0
        return self.lengths[self.round_number] - len(self.progress.points)

    @property
    def is_finished(self) -> bool:
        """Whether the horizon is reached, or all that survives has failed."""
        is_over = self.round_number == len(self.lengths)
        return is_over or self.progress.left.is_exhausted(self._failed)

    @step
    @override
    def ask(
        self,
        max_batch_size: int | None = None,
        *,
        max_seconds: float | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Batch:
        num = len(self.record.batches)
        batch = super().ask(max_batch_size, max_seconds=max_seconds, progress=progress)
        if len(self.record.batches) > num:
            num_inducing = self.progress.num_inducing
            self.record.batches.change(-1, num_inducing=num_inducing)
        return batch

    def _is_batch_over(self) -> bool:
        """Whether all points of the batch are proposed, and some are pending."""
        return self.num_left == 0 and bool(self._pending_here())

    @step
    @override
    def fail(self, trials: Batch | Iterable[int], *, retry: bool = False) -> None:
        super().fail(trials, retry=retry)
        if not retry:
            self._learn()  # the batch ends if nothing else is missing

    @step
    @override
    def withdraw(self, trials: Batch | Iterable[int]) -> None:
        super().withdraw(trials)
        self._learn()

    def run(
        self, objective: Callable[[Tensor], Any], num_evaluations: int, **options: Any
    ) -> History:
        """See `Strategy.run`: to the horizon at most, which is announced."""
        check_whole("num_evaluations", num_evaluations, least=0)
        proposed = int(self.history.batches.column("size").sum())
        left = sum(self.lengths) - proposed + len(self._trials)
        reachable = len(self.history) + left
        if num_evaluations > reachable:
            warnings.warn(
                f"The horizon of {sum(self.lengths)} evaluations ends with {reachable} "
                f"in the history, not num_evaluations={num_evaluations}: points that "
                "are withdrawn are not replaced, and a longer horizon needs a new "
                "strategy.",
                BotorchWarning,
                stacklevel=2,
            )
        num_evaluations = min(num_evaluations, reachable)
        return super().run(objective, num_evaluations, **options)

    def recommend(self) -> Recommendation:
        """The surviving point of largest lower confidence bound, with its interval.

        With `minimize` that of smallest upper bound. The bounds are those of all
        batches together: each holds with the same probability, and the last batch may
        be short.

        Raises:
            UnsupportedError: Before the end of the first batch that has bounds.
        """
        if self.last_bounds is None:
            raise UnsupportedError(
                "There are no confidence bounds before the feedback of the first batch "
                "is told."
            )
        found = self.progress.left.recommend(self.history, self._failed)
        return found.negated() if self.minimize else found

    def _pending_here(self) -> list[int]:
        """Pending points of the batch in progress."""
        return [t.point for t in self._trials if t.batch >= self.progress.first_ask]

    def _told(self) -> list[int]:
        """Places in the history of the feedback for the batch in progress."""
        is_here = self.history.batch_number >= self.progress.first_ask
        return is_here.nonzero().squeeze(-1).tolist()

    def _select(self, max_batch_size: int | None) -> list[int]:
        if self.num_left == 0:
            self._end_round()
        if self.round_number == len(self.lengths):
            raise UnsupportedError(
                f"All {sum(self.lengths)} evaluations of the horizon have been "
                "proposed: see recommend(), or start with more num_evaluations."
            )
        if self.progress.left.is_exhausted(self._failed):
            raise UnsupportedError(
                "All candidates that are not ruled out have failed: none is left."
            )
        if not self.progress.is_begun:
            self.progress = self._begun(self.lengths[self.round_number])
        self.progress = self.progress.moved()
        size = min(self.num_left, max_batch_size or self.num_left)
        context = self.history, self.generator, self._failed
        chosen = [self.progress.next_point(*context)]
        while self._ask_limit(len(chosen)) and len(chosen) < size:
            chosen.append(self.progress.next_point(*context))
        return chosen

    def _begun(self, length: int) -> SearchState:
        """At the start of a batch of some length."""
        return self.progress.begun(length, self.generator)

    def _learn(self) -> None:
        if self.num_left == 0 and not self._pending_here() and self._can_conclude():
            self._end_round()
        super()._learn()

    def _end_round(self) -> None:
        """Take the feedback of the batch into account, and look no more at it."""
        if self.round_number == len(self.lengths):
            return
        progress, record = self._concluded(self._told())
        self.progress = progress.ended(len(self.record.batches))
        self.record.rounds = (*self.record.rounds, record)

    def _can_conclude(self) -> bool:
        """Whether a batch that is over may end; if not, the next `ask` says why."""
        return True

    def _concluded(self, places: list[int]) -> tuple[SearchState, Round]:
        """What feedback at some places of the history makes of a batch."""
        record = Round(self.lengths[self.round_number], len(places))
        if not places:
            return self.progress, record
        at = self.progress
        exploration = None if at.design.is_random else at.exploration
        bounds = bounds_of_feedback(
            self._data(places),
            at.prior,
            at.radius,
            at.design.policy,
            exploration,
            self.generator,
        )
        left, record = at.left.cut(
            bounds, record, self._failed, at.pool, at.design.num_restarts
        )
        record = replace(
            record,
            num_inducing=bounds.posterior.num_inducing,
            beta=bounds.multiplier**2,
            offset=bounds.units.scale * bounds.offset,
            lambda_max=bounds.lambda_max,
        )
        return replace(at, left=left, last_bounds=bounds), record

    def _data(self, places: list[int]) -> BatchData:
        """The feedback at some places of the history."""
        history = self.history
        values = FoldedValues.of(history.point[places], history.values[places])
        data = evaluations_at(self.history, values)
        return BatchData(data.X, data.Y, data.counts)

    @override
    def restore_trials(self, pending: Points, failed: Iterable[int] = ()) -> Batch:
        raise UnsupportedError(f"{type(self).__name__} {HAS_A_PLAN}")

    def _describe(self) -> BatchRecord:
        last = self.last_bounds
        beta = float("nan") if last is None else last.multiplier**2
        return BatchRecord(size=0, num_inducing=self.progress.num_inducing, beta=beta)

    def _state(self) -> dict[str, Any]:
        rounds = {"rounds": [asdict(each) for each in self.record.rounds]}
        return super()._state() | rounds | self.progress.state_dict()

    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        self.record.rounds = tuple(Round(**each) for each in state["rounds"])
        self.progress = self.progress.of_state(state, self.candidates.device)
