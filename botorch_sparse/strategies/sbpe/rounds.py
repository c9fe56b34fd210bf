"""Ask and tell in rounds: points of a batch first, then its feedback at once."""

import warnings
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from botorch.exceptions import BotorchWarning, InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.acquisition.confidence import ConfidenceRadius
from botorch_sparse.strategies.base import Strategy
from botorch_sparse.strategies.box import Box
from botorch_sparse.strategies.folded import FoldedValues
from botorch_sparse.strategies.history import Batch, BatchRecord, History
from botorch_sparse.strategies.sbpe.bounds import BatchBounds, BatchData
from botorch_sparse.strategies.sbpe.history import Round, RoundHistory
from botorch_sparse.strategies.sbpe.search import Recommendation, Search
from botorch_sparse.strategies.trials import Trial


class RoundStrategy(Strategy):
    """What `SBPE` does between the choice of a point and the cut of a batch.

    A batch ends when all of its points are proposed and told or withdrawn; until then
    there is nothing more to ask for. `ask(max_batch_size)` proposes a part of a batch:
    the points are the same in whatever parts they are asked for. Points that are
    withdrawn are not replaced, and should fail for reasons other than their value. Rows
    of a table that failed do not come again, in this batch or a later one, do not
    survive its end and are not recommended: what is proved holds for the other rows.

    Args:
        candidates: `A x d` points, or None; see `Strategy`.
        box: The continuous domain, or None.
        search: Where to look.
        radius: The confidence radius.
        lengths: Lengths of the batches.
        seed: Seed of the strategy's generator.
        minimize: See `Strategy`.
    """

    history: RoundHistory
    history_type = RoundHistory

    def __init__(
        self,
        candidates: Any,
        box: Box | None,
        *,
        search: Search,
        radius: ConfidenceRadius,
        lengths: list[int],
        seed: int,
        minimize: bool = False,
    ) -> None:
        if box is None:
            super().__init__(candidates, seed=seed, minimize=minimize)
        else:
            super().__init__(
                bounds=box.bounds,
                inequality_constraints=box.inequality_constraints,
                equality_constraints=box.equality_constraints,
                fixed_features=box.fixed_features,
                seed=seed,
                minimize=minimize,
            )
        self.search = search
        self.radius = radius
        self.lengths = lengths
        self.last_bounds: BatchBounds | None = None
        self._first_ask = 0  # of the batch in progress

    @property
    def round_number(self) -> int:
        """Number of the batch in progress, from 0."""
        return len(self.history.rounds)

    @property
    def num_left(self) -> int:
        """Points of the batch in progress that are still to be proposed."""
        if self.round_number == len(self.lengths):
            return 0
        return self.lengths[self.round_number] - self.search.num_proposed

    @property
    def is_finished(self) -> bool:
        """Whether the horizon is reached, or all that survives has failed."""
        is_over = self.round_number == len(self.lengths)
        return is_over or self.search.is_exhausted(self._failed)

    def _can_select(self) -> bool:
        return self.num_left > 0 and not self.search.is_exhausted(self._failed)

    def ask(self, max_batch_size: int | None = None) -> Batch:
        """Propose the batch, or a part of it; see `Strategy.ask`.

        Returns:
            At least one point; none while all points of the batch are proposed, and
            some are still pending.

        Raises:
            UnsupportedError: If the horizon is reached, or all that survives has
                failed.
        """
        batch = super().ask(max_batch_size)
        if len(batch):
            self.history.batches[-1].num_inducing = self.search.num_inducing
        return batch

    def _is_batch_over(self) -> bool:
        """Whether all points of the batch are proposed, and some are pending."""
        return self.num_left == 0 and bool(self._pending_here())

    def _drop(self, trials: Sequence[Trial]) -> None:
        """Give up trials; the batch ends if nothing else is missing."""
        try:
            super()._drop(trials)
            self._learn()
        except BaseException:
            self._trials.restore(trials)
            raise

    def run(
        self,
        objective: Callable[[Tensor], Tensor],
        num_evaluations: int,
        **options: Any,
    ) -> History:
        """Ask, evaluate and tell, to the end of the horizon at most.

        See `Strategy.run`.

        Warns:
            BotorchWarning: If the horizon ends before `num_evaluations`, as it does
                where points were withdrawn.
        """
        proposed = sum(batch.size for batch in self.history.batches)
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
        return super().run(objective, min(num_evaluations, reachable), **options)

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
        found = self.search.recommend(self.history, self._failed)
        return found.negated() if self.minimize else found

    def _pending_here(self) -> list[int]:
        """Pending points of the batch in progress."""
        return [t.point for t in self._trials if t.batch >= self._first_ask]

    def _told(self) -> list[int]:
        """Places in the history of the feedback for the batch in progress."""
        is_here = self.history.batch_number >= self._first_ask
        return is_here.nonzero().squeeze(-1).tolist()

    def _select(self, max_batch_size: int | None) -> list[int]:
        saved = self._round_state()
        try:
            if self.num_left == 0:
                self._end_round()
            if self.round_number == len(self.lengths):
                raise UnsupportedError(
                    f"All {sum(self.lengths)} evaluations of the horizon have been "
                    "proposed: see recommend(), or start with more num_evaluations."
                )
            if self.search.is_exhausted(self._failed):
                raise UnsupportedError(
                    "All candidates that are not ruled out have failed: none is left."
                )
            if not self.search.has_started:
                self.search.start(self.lengths[self.round_number], self.generator)
            size = min(self.num_left, max_batch_size or self.num_left)
            return [
                self.search.propose(self.history, self.generator, self._failed)
                for _ in range(size)
            ]
        except BaseException:
            self._load_round_state(saved)
            raise

    def _learn(self) -> None:
        if self.num_left == 0 and not self._pending_here() and self._can_conclude():
            saved, generator = self._round_state(), self.generator.get_state()
            try:
                self._end_round()
            except BaseException:
                self._load_round_state(saved)
                self.generator.set_state(generator)
                raise
        super()._learn()

    def _end_round(self) -> None:
        """Take the feedback of the batch into account, and look no more at it."""
        if self.round_number == len(self.lengths):
            return
        record = Round(length=self.lengths[self.round_number])
        places = self._told()
        record.num_evaluations = len(places)
        self._conclude(record, places)
        self.history.rounds = [*self.history.rounds, record]
        self.search.finish()
        self._first_ask = len(self.history.batches)

    def _can_conclude(self) -> bool:
        """Whether a batch that is over may end; if not, the next `ask` says why."""
        return True

    def _conclude(self, record: Round, places: list[int]) -> None:
        """Learn from the feedback of a batch, at some places of the history."""
        if places:
            self._cut(record, self._data(places))

    def _data(self, places: list[int]) -> BatchData:
        """The feedback at some places of the history."""
        history = self.history
        values = FoldedValues.of(history.point[places], history.values[places])
        data = values.at(self.history, values.point[:0])
        return BatchData(data.X, data.Y, data.counts)

    def _cut(self, record: Round, data: BatchData) -> None:
        """Bounds, and what they rule out."""
        bounds = self.search.bounds(data, self.radius, self.generator)
        mean, variance = bounds.posterior.moments(data.X)
        if not bool((mean + variance).isfinite().all()):
            raise InputDataError(
                "The kernel returned NaN or infinity, and nothing was learned. Check "
                "the kernel's hyperparameters."
            )
        elimination = self.search.eliminate(bounds, self.history, self._failed)
        record.num_inducing = bounds.posterior.num_inducing
        record.beta = bounds.multiplier**2
        record.offset = self.search.units.scale * bounds.offset
        record.lambda_max = bounds.lambda_max
        record.survivors = elimination.num_survivors
        record.fraction = elimination.fraction
        record.max_width = self.search.units.scale * elimination.max_width
        self.last_bounds = bounds

    def _describe(self) -> BatchRecord:
        last = self.last_bounds
        beta = float("nan") if last is None else last.multiplier**2
        return BatchRecord(size=0, num_inducing=self.search.num_inducing, beta=beta)

    def _round_state(self) -> dict[str, Any]:
        """Where the rounds stand."""
        return {
            "in_use": (self.search, self.radius),
            "search": self.search.state_dict(),
            "first_ask": self._first_ask,
            "rounds": self.history.rounds,
            "last_bounds": self.last_bounds,
        }

    def _load_round_state(self, state: dict[str, Any]) -> None:
        """Go back to a state of this strategy."""
        self.search, self.radius = state["in_use"]
        self.search.load_state_dict(state["search"])
        self._first_ask = state["first_ask"]
        self.history.rounds = state["rounds"]
        self.last_bounds = state["last_bounds"]

    def _search_config(self) -> dict[str, Any]:
        """What a state must agree on about search and radius."""
        return {
            "kernel": self.search.fingerprint(),
            "lam": self.search.lam,
            "policy": repr(self.search.policy),
            "search": self.search.config(),
            "radius": repr(self.radius),
        }

    def state_dict(self) -> dict[str, Any]:
        """See `Strategy.state_dict`."""
        last = self.last_bounds
        return super().state_dict() | {
            "search": self.search.state_dict(),
            "first_ask": self._first_ask,
            "last_bounds": None if last is None else last.state_dict(),
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        self.search = copy(self.search)
        self.search.load_state_dict(state["search"])
        self._first_ask = state["first_ask"]
        last, search = state["last_bounds"], self.search
        self.last_bounds = None
        if last is not None:
            self.last_bounds = BatchBounds.from_state(
                search.covar_module,
                search.lam,
                last,
                self.candidates.device,
                search.units,
            )
