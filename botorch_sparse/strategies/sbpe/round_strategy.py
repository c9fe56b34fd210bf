"""Rounds of S-BPE: the points of a batch first, then its feedback at once."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from botorch.exceptions import BotorchWarning, UnsupportedError
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.confidence import ConfidenceRadius
from botorch_sparse.argument_checks import check_whole
from botorch_sparse.strategies.core.strategy import Strategy
from botorch_sparse.strategies.core.transaction import step
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.history import Batch, History
from botorch_sparse.strategies.data.run_record import (
    BatchRecord,
    FoldedEvaluations,
    evaluations_at,
)
from botorch_sparse.strategies.sbpe.bounds import (
    BatchBounds,
    Recommendation,
)
from botorch_sparse.strategies.sbpe.design import Design
from botorch_sparse.strategies.sbpe.search_state import SearchState
from botorch_sparse.strategies.surrogates.prior import (
    PosteriorSettings,
    kernel_config,
)
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource


@dataclass(frozen=True)
class Round:
    """One batch of S-BPE: points chosen blindly, then one look at their feedback.

    A first batch that a kernel is fitted to has no bounds, and leaves all.

    Attributes:
        length: Points that the schedule gave it.
        num_evaluations: Points whose feedback was there at its end.
        num_inducing: Inducing points of its posterior.
        survivors: Candidates left after it; None on a continuous domain.
        fraction: Share of what it explored that is left after it.
        beta: BoTorch's beta, the square of what multiplies the standard deviation.
        offset: What is added to the radius whatever the variance, in units of Y.
        lambda_max: Certified upper bound on the largest eigenvalue of the residual
            matrix at its points, in units of the noise variance.
        max_width: Largest width of its intervals over what is left, in units of Y.
    """

    length: int
    num_evaluations: int = 0
    num_inducing: int = 0
    survivors: int | None = None
    fraction: float = 1.0
    beta: float = float("nan")
    offset: float = 0.0
    lambda_max: float = float("nan")
    max_width: float = float("inf")


class RoundStrategy(Strategy):
    """What `SBPE` and `UncertaintyReduction` do between a point and the end of a batch.

    A batch ends when all of its points are proposed and told or withdrawn; until then
    there is nothing more to ask for. `ask(max_batch_size)` proposes a part of a batch:
    the points are the same in whatever parts they are asked for. Points that are
    withdrawn are not replaced, and should fail for reasons other than their value. Rows
    of a table that failed do not come again, in this batch or a later one, do not
    survive its end and are not recommended: what is proved holds for the other rows.

    Args:
        domain: The table, or the box.
        settings: What is known of the prior.
        design: How points are chosen.
        lengths: Lengths of the batches.
        seed: Seed of the strategy's generator.
        minimize: See `Strategy`.
    """

    has_plan: ClassVar[bool] = True

    def __init__(
        self,
        domain: Domain,
        settings: PosteriorSettings,
        design: Design,
        *,
        lengths: list[int],
        seed: int,
        minimize: bool = False,
    ) -> None:
        super().__init__(domain, seed=seed, minimize=minimize)
        source, self.lengths = PriorSource(domain, settings), lengths
        start = source.initial()
        self.progress = SearchState.at_start(domain, source, design, start)

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
        if self._is_over:
            return 0
        return self.lengths[self.round_number] - len(self.progress.points)

    @property
    def _is_over(self) -> bool:
        """Whether the horizon is reached."""
        return self.round_number == len(self.lengths)

    @property
    @override
    def is_finished(self) -> bool:
        return self._is_over or self.progress.left.is_exhausted(self._failed)

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

    @override
    def _is_batch_over(self) -> bool:
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

    @override
    def run(
        self, objective: Callable[[Tensor], Any], num_evaluations: int, **options: Any
    ) -> History:
        """Evaluate, to the horizon at most, which is announced."""
        check_whole("num_evaluations", num_evaluations, least=0)
        proposed = int(self.record.batches.column("size").sum())
        left = sum(self.lengths) - proposed + len(self._trials)
        reachable = len(self.record) + left
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

        With `minimize` the one of smallest upper bound. The bounds of all batches count
        together: each holds with the same probability, and the last batch may be short.

        Raises:
            UnsupportedError: Before the end of the first batch that has bounds.
        """
        if self.last_bounds is None:
            raise UnsupportedError(
                "There are no confidence bounds before the feedback of the first batch "
                "is told; where the kernel is inferred, of the first one after two "
                "values differ. history.best() has the best value so far."
            )
        found = self.progress.left.recommend(self.record, self._failed)
        return found.negated() if self.minimize else found

    def _pending_here(self) -> list[int]:
        """Pending points of the batch in progress."""
        return [t.point for t in self._trials if t.batch >= self.progress.first_ask]

    @override
    def _select(self, max_batch_size: int | None) -> list[int]:
        if self.num_left == 0:
            self._end_round()
        if self._is_over:
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
        context = self.record, self.generator, self._failed
        chosen = [self.progress.next_point(*context)]
        while self._ask_limit(len(chosen)) and len(chosen) < size:
            chosen.append(self.progress.next_point(*context))
        return chosen

    def _begun(self, length: int) -> SearchState:
        """At the start of a batch of some length."""
        return self.progress.begun(length, self.generator)

    @override
    def _learn(self) -> None:
        if self.num_left == 0 and not self._pending_here() and self._can_conclude():
            self._end_round()
        super()._learn()

    def _end_round(self) -> None:
        """Take the feedback of the batch into account, and look no more at it."""
        if self._is_over:
            return
        is_here = self.record.batch_number >= self.progress.first_ask
        progress, ended = self._concluded(is_here.nonzero().squeeze(-1))
        self.progress = progress.ended(len(self.record.batches))
        self.record.rounds = (*self.record.rounds, ended)

    def _can_conclude(self) -> bool:
        """Whether a batch that is over ends at once; if not, the next `ask` ends it."""
        return True

    def _concluded(self, places: Tensor) -> tuple[SearchState, Round]:
        """What feedback at some places of the record makes of a batch."""
        length = self.lengths[self.round_number]
        if len(places) == 0:
            return self.progress, Round(length)
        bounds = self.progress.bounds(self._data(places), self.generator)
        progress, found = self.progress.cut(bounds, self._failed)
        return progress, Round(length, len(places), **found)

    def _data(self, places: Tensor) -> FoldedEvaluations:
        """The feedback at some places of the record."""
        point, values = self.record.point[places], self.record.values[places]
        return evaluations_at(self.record, FoldedEvaluations.of(point, values))

    @override
    def _describe(self) -> BatchRecord:
        last = self.last_bounds
        beta = float("nan") if last is None else last.multiplier**2
        return BatchRecord(size=0, num_inducing=self.progress.num_inducing, beta=beta)

    @override
    def _config(self) -> dict[str, Any]:
        at = self.progress
        kernel = kernel_config(
            at.source.settings.covar_module, self.domain.example_rows()
        )
        return super()._config() | {"kernel": kernel, **at.design.config()}

    @override
    def _state(self) -> dict[str, Any]:
        rounds = {"rounds": [asdict(each) for each in self.record.rounds]}
        return super()._state() | rounds | self.progress.state_dict()

    @override
    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        self.record.rounds = tuple(Round(**each) for each in state["rounds"])
        self.progress = self.progress.of_state(state, self.domain)
