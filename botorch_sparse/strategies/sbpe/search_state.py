"""Where a run of S-BPE stands, as a value, so that one assignment undoes a step.

Algorithm 1 of [Vakili2022]_, lines 4 to 17, is the methods of `SearchState`;
`RoundStrategy` decides when each is called.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.acquisition.confidence import ConfidenceRadius
from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.pools.table_batch import validate_candidates
from botorch_sparse.posteriors.incremental_variance import IncrementalVariance
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.run_record import (
    AppendOnlyList,
    FoldedEvaluations,
    RunRecord,
)
from botorch_sparse.strategies.sbpe.bounds import (
    BatchBounds,
    batch_posterior,
    batch_statistics,
    certified_inducing_points,
    confidence_radius,
)
from botorch_sparse.strategies.sbpe.design import Design
from botorch_sparse.strategies.sbpe.exploration import BatchExploration
from botorch_sparse.strategies.sbpe.surviving_region import SurvivingRegion
from botorch_sparse.strategies.sbpe.surviving_rows import TableSurvivors
from botorch_sparse.strategies.surrogates.prior import Prior
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource

Survivors: TypeAlias = TableSurvivors | SurvivingRegion


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
            left = TableSurvivors.everything(domain.own_rows[:], prior)
        radius = confidence_radius(domain, source, prior, design)
        return cls(source, design, prior, radius, left)

    @cached_property
    def exploration(self) -> BatchExploration:
        """The variances that the batch compares. O(A m) for each point, once."""
        prior = self.prior
        inputs = self.source.inputs(self.left.explored(self.pool))
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
        num = length if self.design.is_random else self.design.raw_samples
        pool = self.left.draw_pool(num, generator)
        return replace(self, is_begun=True, pool=pool)

    def next_point(
        self, known: RunRecord, generator: torch.Generator, failed: Collection[int]
    ) -> int:
        """Algorithm 1, lines 6-9: the next point joins the batch. O(A m) on a table."""
        left, place, context = self.left, len(self.points), (known, generator, failed)
        if self.drawn and self.drawn[place] not in failed:
            number = self.drawn[place]
        elif self.drawn or self.design.is_random:
            number = left.draw(place, self.pool, *context)
        else:
            batch = self.exploration, self.points, self.pool, self.source.inputs
            number = left.explore(*batch, *context)
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
        points, pool = AppendOnlyList[int](), self.pool[:0].clone()
        blank: dict[str, Any] = {"is_begun": False, "drawn": (), "log": None}
        return replace(self, first_ask=first_ask, points=points, pool=pool, **blank)

    def state_dict(self) -> dict[str, Any]:
        """All that changes, as tensors and plain values."""
        prior, last, log = self.prior, self.last_bounds, self._log
        if log is not None:
            log = log | {"events": [list(event) for event in log["events"]]}
        return {
            "fit": None if prior.last_fit is None else prior.state_dict(),
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
            fit = state["fit"]
            prior = source.initial() if fit is None else source.prior_of_state(fit)
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
