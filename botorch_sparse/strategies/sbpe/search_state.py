"""Where S-BPE stands: a value, so that one assignment undoes a failed step."""

import warnings
from collections.abc import Collection
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import torch
from botorch.exceptions import UnsupportedError
from botorch.exceptions.warnings import InputDataWarning
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    ConfidenceRadius,
    SBPEContinuousRadius,
    SBPERadius,
)
from botorch_sparse.pools.table_batch import validate_candidates
from botorch_sparse.posteriors.incremental_variance import IncrementalVariance
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.evaluations import AppendOnlyList
from botorch_sparse.strategies.data.history import History
from botorch_sparse.strategies.sbpe.bounds import BatchBounds
from botorch_sparse.strategies.sbpe.design import Design
from botorch_sparse.strategies.sbpe.exploration import BatchExploration
from botorch_sparse.strategies.sbpe.search_prior import SearchPrior
from botorch_sparse.strategies.sbpe.surviving_region import SurvivingRegion
from botorch_sparse.strategies.sbpe.surviving_rows import TableSurvivors
from botorch_sparse.strategies.surrogates.prior_fitting import ModelBuilder

Survivors: TypeAlias = TableSurvivors | SurvivingRegion
PLAIN = ("first_ask", "drawn", "is_begun")


@dataclass(frozen=True, eq=False)
class SearchState:
    """What batches have left, by which prior, and the one in progress.

    Attributes:
        prior: Kernel, noise and units.
        radius: The confidence radius.
        design: How points are chosen.
        left: What is not ruled out.
        fit: What the prior was made from; None where it was given.
        first_ask: Of the batch in progress.
        last_bounds: Of the last batch that had feedback.
        points: Numbers of the points of the batch in progress, which grow with it.
        drawn: Numbers of all its points, where they were drawn at its start.
        pool: Points that were drawn at its start, `k x d` in float64; none on a table.
        is_begun: Whether there is a batch in progress.
        log: The state of its exploration, at this value's start.
    """

    prior: SearchPrior
    radius: ConfidenceRadius
    design: Design
    left: Survivors
    fit: dict[str, Any] | None = None
    first_ask: int = 0
    last_bounds: BatchBounds | None = None
    points: AppendOnlyList[int] = field(default_factory=AppendOnlyList)
    drawn: list[int] = field(default_factory=list)
    is_begun: bool = False
    pool: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    log: dict[str, Any] | None = None

    @classmethod
    def at_start(
        cls,
        domain: Domain,
        design: Design,
        prior: SearchPrior,
        fit: dict[str, Any] | None = None,
    ) -> Self:
        """Nothing is ruled out of a domain.

        Raises:
            InputDataError: If candidates are not finite.
            UnsupportedError: For a table that is elsewhere.
        """
        left: Survivors
        if domain.table is not None:
            validate_candidates(domain.table.X)
            left = TableSurvivors.everything(domain.table.X, prior.units)
        elif domain.box is not None:
            left = SurvivingRegion.everything(domain.box)
        else:
            raise UnsupportedError(
                f"Got {domain}; need a table that is here, or a box."
            )
        radius = design.given_radius or paper_radius(left, prior, design)
        return cls(prior, radius, design, left, fit)

    @cached_property
    def exploration(self) -> BatchExploration:
        """The variances that the batch compares. O(A m) for each point, once."""
        prior, left = self.prior, self.left
        X = left.explored if isinstance(left, TableSurvivors) else self.pool
        growing = IncrementalVariance(prior.covar_module, X, prior.lam)
        exploration = BatchExploration(growing, self.design.policy)
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

    def ended(self, first_ask: int) -> "SearchState":
        """Between two batches."""
        points = AppendOnlyList[int]()
        none: dict[str, Any] = {"points": points, "drawn": [], "is_begun": False}
        return replace(self, first_ask=first_ask, pool=self.pool[:0], log=None, **none)

    def begun(self, length: int, generator: torch.Generator) -> "SearchState":
        """At the start of a batch of some length."""
        begun = replace(self, is_begun=True)
        if isinstance(self.left, TableSurvivors):
            return begun
        num = length if self.design.is_random else self.design.raw_samples
        return replace(begun, pool=self.left.sample(num, generator))

    def next_point(
        self, history: History, generator: torch.Generator, failed: Collection[int]
    ) -> int:
        """The number of the next point, which joins the batch. O(A m) on a table.

        Args:
            history: Where new points get their numbers.
            generator: For what is drawn.
            failed: Rows of a table that are not to come again.
        """
        left, design, place = self.left, self.design, len(self.points)
        if self.drawn:
            number = self.drawn[place]
        elif isinstance(left, TableSurvivors) and design.is_random:
            number = left.draw(generator, failed)
        elif isinstance(left, TableSurvivors):
            number = left.explore(self.exploration, generator, failed)
        elif design.is_random:
            number = history.add_point(left.box.clamp(self.pool[place]))
        else:
            batch = self.exploration, self.points, design.num_restarts
            number = left.explore(*batch, history, generator)
        self.points.append(number)
        return number

    def config(self, domain: Domain) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        prior, design = self.prior, self.design
        kernel = ModelBuilder(domain.ranges, prior.covar_module, prior.lam)
        return {
            "kernel": kernel.kernel_config(domain.few()),
            "lam": prior.lam,
            "policy": fingerprint(design.policy, "refresh"),
            "search": [design.exploration, design.raw_samples, design.num_restarts],
            "radius": fingerprint(self.radius, "radius"),
        }

    def state_dict(self) -> dict[str, Any]:
        """All that changes but for the prior, as tensors and plain values."""
        last, log = self.last_bounds, self._log
        if log is not None:
            log = log | {"events": [list(event) for event in log["events"]]}
        return {
            **{name: deepcopy(getattr(self, name)) for name in PLAIN},
            "points": list(self.points),
            "left": self.left.state_dict(),
            "last_bounds": None if last is None else last.state_dict(),
            "pool": self.pool,
            "log": log,
        }

    def of_state(self, state: dict[str, Any], device: torch.device) -> "SearchState":
        """The progress by the same prior that a state came from."""
        last = state["last_bounds"]
        if last is not None:
            last = BatchBounds.of_state(last, self.prior, device)
        return replace(
            self,
            **{name: deepcopy(state[name]) for name in PLAIN},
            points=AppendOnlyList(state["points"]),
            left=self.left.of_state(state["left"], self.prior),
            last_bounds=last,
            pool=state["pool"].to(device),
            log=state["log"],
        )


def paper_radius(
    left: Survivors, prior: SearchPrior, design: Design
) -> ConfidenceRadius:
    r"""Theorem 3.5 with :math:`\beta(\delta / (4 B |X|))`, or Corollary 3.7.

    The corollary's `k_max` is exact for stationary kernels.
    """
    X, num_intervals = left.domain_sample(), 4.0 * design.policy.num_batches
    common: dict[str, Any] = {
        "norm_bound": design.norm_bound,
        "noise_variance": prior.noise_variance,
        "delta": design.policy.delta,
        "constants": design.constants,
        "bias": design.bias,
        "mgf_radius": design.mgf_radius * prior.units.scale,
    }
    if isinstance(left, TableSurvivors):
        return SBPERadius(**common, num_intervals=num_intervals * len(X))
    with torch.no_grad():
        kernel_bound = float(prior.covar_module(X, diag=True).max())
    return SBPEContinuousRadius(
        **common,
        num_intervals=num_intervals,
        dim=left.box.dim,
        kernel_bound=kernel_bound,
        discretization=_grid(prior, design),
    )


def _grid(prior: SearchPrior, design: Design) -> float:
    """The constant of Assumption 3.6, or one, which is announced."""
    if prior.discretization is not None:
        return prior.discretization
    if design.constants == "theory":
        kernel = type(prior.covar_module).__name__
        warnings.warn(
            f"The constant of Assumption 3.6 is not known for the kernel {kernel}: 1 "
            "is taken, and the guarantee on a continuous domain is void. Give "
            "discretization=discretization_constant(...) if its functions are "
            "Lipschitz (those of MaternKernel(nu=0.5) are not), or take an RBFKernel, "
            "an RQKernel or a smoother MaternKernel.",
            InputDataWarning,
            stacklevel=2,
        )
    return 1.0
