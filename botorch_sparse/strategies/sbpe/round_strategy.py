"""Rounds of S-BPE: the points of a batch first, then its feedback at once.

Where a run stands is a value, so that one assignment undoes a step that failed.
"""

import math
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import torch
from botorch.exceptions import BotorchWarning, InputDataError, UnsupportedError
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.confidence import ConfidenceRadius
from botorch_sparse.argument_checks import check_whole
from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.pools.table_batch import validate_candidates
from botorch_sparse.posteriors.incremental_variance import IncrementalVariance
from botorch_sparse.strategies.core.strategy import HAS_A_PLAN, Strategy
from botorch_sparse.strategies.core.transaction import step
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.feedback import Points
from botorch_sparse.strategies.data.history import Batch, History
from botorch_sparse.strategies.data.run_record import (
    AppendOnlyList,
    BatchRecord,
    FoldedEvaluations,
    RunRecord,
    evaluations_at,
)
from botorch_sparse.strategies.sbpe.bounds import (
    BatchBounds,
    Recommendation,
    batch_posterior,
    batch_statistics,
    certified_inducing_points,
    confidence_radius,
)
from botorch_sparse.strategies.sbpe.design import Design
from botorch_sparse.strategies.sbpe.exploration import BatchExploration
from botorch_sparse.strategies.sbpe.surviving_region import SurvivingRegion
from botorch_sparse.strategies.sbpe.surviving_rows import TableSurvivors
from botorch_sparse.strategies.surrogates.prior import (
    PosteriorSettings,
    Prior,
    kernel_config,
)
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource

Survivors: TypeAlias = TableSurvivors | SurvivingRegion


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


@dataclass(frozen=True, eq=False)
class SearchState:
    """What batches have left, by which prior, and the batch in progress.

    Attributes:
        source: Makes the prior, and what the kernel takes of points.
        design: How points are chosen.
        prior: Kernel, noise and units.
        radius: The confidence radius.
        left: What is not ruled out.
        last_bounds: Of the last batch that had feedback.
        first_ask: Of the batch in progress.
        is_begun: Whether there is a batch in progress.
        points: Numbers of the points of the batch in progress, which grow with it.
        drawn: Numbers of all its points, where they were drawn at its start.
        pool: Points that were drawn at its start, `k x d` in float64; none on a table.
        log: The state of its exploration, at this value's start.
    """

    source: PriorSource
    design: Design
    prior: Prior
    radius: ConfidenceRadius
    left: Survivors
    last_bounds: BatchBounds | None = None
    first_ask: int = 0
    is_begun: bool = False
    points: AppendOnlyList[int] = field(default_factory=AppendOnlyList)
    drawn: tuple[int, ...] = ()
    pool: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    log: dict[str, Any] | None = None

    @classmethod
    def at_start(
        cls, domain: Domain, source: PriorSource, design: Design, prior: Prior
    ) -> Self:
        """Nothing is ruled out of a domain, a table that is here or a box."""
        if design.lam is not None:
            prior = replace(prior, lam=design.lam / prior.scale**2)
        left: Survivors
        if domain.box is not None:
            left = SurvivingRegion.everything(domain.box)
        else:
            validate_candidates(domain.own_rows)
            left = TableSurvivors.everything(domain.own_rows, prior)
        radius = confidence_radius(domain, source, prior, design)
        return cls(source, design, prior, radius, left)

    @cached_property
    def exploration(self) -> BatchExploration:
        """The variances that the batch compares. O(A m) for each point, once."""
        prior, left = self.prior, self.left
        X = left.explored if isinstance(left, TableSurvivors) else self.pool
        inputs = self.source.inputs(X)
        growing = IncrementalVariance(prior.covar_module, inputs, prior.lam)
        exploration = BatchExploration(growing, self.design)
        if self.log is not None:
            exploration.replay(self.log)
        return exploration

    @property
    def _is_built(self) -> bool:
        return "exploration" in vars(self)

    @property
    def _log(self) -> dict[str, Any] | None:
        """The log of the exploration, if there is one. O(1)."""
        return self.exploration.log() if self._is_built else self.log

    @property
    def num_inducing(self) -> int:
        """Inducing points of the batch in progress; none where points are drawn."""
        if not self._is_built and self.log is None:
            return 0
        return self.exploration.posterior.num_inducing

    def moved(self) -> "SearchState":
        """The same value, whose batch does not grow with this one's. O(1).

        The variances go with it: this one builds them from its log if it is needed
        once more, since what takes them may fail half way.
        """
        vars(self)["log"] = self._log
        moved = replace(self, points=self.points.fork())
        if self._is_built:
            vars(moved)["exploration"] = vars(self).pop("exploration")
        return moved

    def begun(self, length: int, generator: torch.Generator) -> "SearchState":
        """Algorithm 1, line 4: at the start of a batch of some length."""
        begun = replace(self, is_begun=True)
        if isinstance(self.left, TableSurvivors):
            return begun
        num = length if self.design.is_random else self.design.raw_samples
        return replace(begun, pool=self.left.sample(num, generator))

    def next_point(
        self, known: RunRecord, generator: torch.Generator, failed: Collection[int]
    ) -> int:
        """Algorithm 1, lines 6-9: the next point joins the batch. O(A m) on a table."""
        left, design, place = self.left, self.design, len(self.points)
        if self.drawn:
            number = self.drawn[place]
        elif isinstance(left, TableSurvivors) and design.is_random:
            number = left.draw(generator, failed)
        elif isinstance(left, TableSurvivors):
            number = left.explore(self.exploration, generator, failed)
        elif design.is_random:
            number = known.add_point(left.box.clamp(self.pool[place]))
        else:
            batch = self.exploration, self.points, self.pool, self.source.inputs
            number = left.explore(*batch, design.num_restarts, known, generator)
        self.points.append(number)
        return number

    @torch.no_grad()
    def bounds(
        self, data: FoldedEvaluations, generator: torch.Generator
    ) -> BatchBounds:
        """Algorithm 1, line 16: the bounds that feedback of a batch gives. O(n m^2).

        Feedback may be missing. The residual matrix of a part is a principal submatrix
        of the batch's: the bound on its largest eigenvalue holds for it too.
        """
        source, prior, design = self.source, self.prior, self.design
        X, counts, num_draws, r = source.inputs(data.X), data.counts, 0, math.inf
        if design.is_random:
            inducing = certified_inducing_points(prior, X, counts, design, generator)
        else:
            growing = self.exploration.posterior
            inducing = growing.X[growing.inducing]
            num_draws, r = self.exploration.num_draws, self.exploration.bound
        kept = {"X": data.X, "Y": prior.standardize(data.Y), "counts": counts}
        kept["inducing"] = inducing
        posterior = batch_posterior(source, prior, **kept)
        certificate = accuracy_certificate(
            posterior,
            X,
            prior.lam / counts,
            delta=design.draw_delta(num_draws + 1),
            generator=generator,
        )
        r = min(certificate.lambda_max, r)
        statistics = batch_statistics(posterior, X, counts, prior.lam, r)
        mean, variance = posterior.moments(X)
        if not bool((mean + variance).isfinite().all()):
            raise InputDataError(
                "The kernel returned NaN or infinity, and nothing was learned. Check "
                "the kernel's hyperparameters."
            )
        return BatchBounds(
            posterior,
            prior,
            source.inputs,
            self.radius.multiplier(statistics),
            self.radius.offset(statistics),
            r,
            data=kept,
        )

    def cut(
        self, bounds: BatchBounds, failed: Collection[int]
    ) -> tuple["SearchState", dict[str, Any]]:
        """Algorithm 1, line 17: what bounds leave, and what a `Round` says of it."""
        num_restarts = self.design.num_restarts
        left, found = self.left.cut(bounds, failed, self.pool, num_restarts)
        return replace(self, left=left, last_bounds=bounds), found | {
            "num_inducing": bounds.posterior.num_inducing,
            "beta": bounds.multiplier**2,
            "offset": self.prior.scale * bounds.offset,
            "lambda_max": bounds.lambda_max,
        }

    def ended(self, first_ask: int) -> "SearchState":
        """Between two batches."""
        points, pool = AppendOnlyList[int](), self.pool[:0]
        blank: dict[str, Any] = {"is_begun": False, "drawn": (), "log": None}
        return replace(self, first_ask=first_ask, points=points, pool=pool, **blank)

    def state_dict(self) -> dict[str, Any]:
        """All that changes, as tensors and plain values."""
        prior, last, log = self.prior, self.last_bounds, self._log
        if log is not None:
            log = log | {"events": [list(event) for event in log["events"]]}
        fit = {"prior": prior.state_dict(), "center": prior.center}
        return {
            "fit": None if prior.last_fit is None else fit,
            "left": self.left.state_dict(),
            "last_bounds": None if last is None else last.state_dict(),
            "first_ask": self.first_ask,
            "is_begun": self.is_begun,
            "points": list(self.points),
            "drawn": self.drawn,
            "pool": self.pool,
            "log": log,
        }

    def of_state(self, state: dict[str, Any], domain: Domain) -> "SearchState":
        """The run on the same domain that a state came from."""
        start, source = self, self.source
        if source.is_inferred:
            prior, fit = source.initial(), state["fit"]
            if fit is not None:
                prior = source.from_state(fit["prior"])
                prior = replace(prior, center=fit["center"])
            start = SearchState.at_start(domain, source, self.design, prior)
        last, context = state["last_bounds"], (source, start.prior)
        if last is not None:
            last = BatchBounds.of_state(last, *context, domain.device)
        plain = {n: state[n] for n in ("first_ask", "is_begun", "drawn", "log")}
        return replace(
            start,
            **plain,
            left=start.left.of_state(state["left"], *context),
            last_bounds=last,
            points=AppendOnlyList(state["points"]),
            pool=state["pool"].to(domain.device),
        )


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

    def run(
        self, objective: Callable[[Tensor], Any], num_evaluations: int, **options: Any
    ) -> History:
        """See `Strategy.run`: to the horizon at most, which is announced."""
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
                "is told."
            )
        found = self.progress.left.recommend(self.record, self._failed)
        return found.negated() if self.minimize else found

    @override
    def restore_trials(self, pending: Points, failed: Iterable[int] = ()) -> Batch:
        raise UnsupportedError(f"{type(self).__name__} {HAS_A_PLAN}")

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
        """Whether a batch that is over may end; if not, the next `ask` says why."""
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
