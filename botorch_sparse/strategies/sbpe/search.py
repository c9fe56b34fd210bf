"""Where S-BPE looks: what a table of candidates and a box have in common."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import ConfidenceRadius
from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.posteriors.growing import GrowingPosterior
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.sbpe.bounds import (
    BatchBounds,
    BatchData,
    batch_posterior,
    bounds_of_batch,
    certified_inducing_points,
)
from botorch_sparse.strategies.sbpe.exploration import (
    BatchExploration,
    CertificatePolicy,
)
from botorch_sparse.strategies.sbpe.units import UNITS_OF_Y, Units

Exploration = Literal["variance", "random"]


@dataclass(frozen=True)
class Recommendation:
    """The point to use, and where its value lies, in units of Y.

    Attributes:
        X: `d` coordinates.
        index: Its row in the table; None on a continuous domain.
        mean: Posterior mean of the batch whose lower bound is the largest there; with
            `minimize` the one whose upper bound is the smallest.
        lower: Largest lower bound of all batches.
        upper: Smallest upper bound of all batches.
    """

    X: Tensor
    index: int | None
    mean: float
    lower: float
    upper: float

    def negated(self) -> "Recommendation":
        """The same of minus the function."""
        return replace(self, mean=-self.mean, lower=-self.upper, upper=-self.lower)


@dataclass(frozen=True)
class Elimination:
    """What the end of a batch did.

    Attributes:
        num_survivors: Candidates left; None on a continuous domain.
        fraction: Share of what was explored that is left; on a continuous domain
            estimated from the points that the batch could choose from.
        max_width: Largest width of the batch's intervals over what is left, in the
            search's units.
    """

    num_survivors: int | None
    fraction: float
    max_width: float


class Search(ABC):
    """One batch at a time: choose points blindly, then cut by their feedback.

    Args:
        covar_module: The kernel, for float64.
        lam: Noise variance of one observation, in `units`.
        policy: When inducing points are chosen again.
        design: `"variance"` or `"random"`.
        units: Of the feedback that kernel and `lam` are for.
    """

    def __init__(
        self,
        covar_module: Kernel,
        lam: float,
        policy: CertificatePolicy,
        design: Exploration,
        units: Units = UNITS_OF_Y,
    ) -> None:
        self.covar_module = covar_module
        self.lam = lam
        self.policy = policy
        self.design = design
        self.units = units
        self._exploration: BatchExploration | None = None
        self._saved: dict[str, Any] | None = None  # to build it from at the next need

    @abstractmethod
    def start(self, length: int, generator: torch.Generator) -> None:
        """Begin a batch of some length."""

    @abstractmethod
    def propose(
        self,
        history: History,
        generator: torch.Generator,
        failed: Collection[int] = (),
    ) -> int:
        """The number of the next point, which joins the batch. O(A m) on a table.

        Args:
            history: Where new points get their numbers.
            generator: For what is drawn.
            failed: Rows of a table that are not to come again.
        """

    @abstractmethod
    def eliminate(
        self, bounds: BatchBounds, history: History, failed: Collection[int] = ()
    ) -> Elimination:
        """Cut by a batch's bounds; rows that failed do not survive."""

    @abstractmethod
    def recommend(
        self, history: History, failed: Collection[int] = ()
    ) -> Recommendation:
        """The largest lower bound of all batches, over what survives."""

    def is_exhausted(self, failed: Collection[int]) -> bool:
        """Whether all that survives has failed; never so on a continuous domain."""
        return False

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All there is to know, as tensors and plain values."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the search of a saved run."""

    @abstractmethod
    def radius(
        self, *, num_intervals: float, discretization: float, **common: Any
    ) -> ConfidenceRadius:
        """The radius that the paper takes on this domain.

        Args:
            num_intervals: What the confidence level is divided by, at each point.
            discretization: See `SBPEContinuousRadius`.
            **common: Arguments of `SBPERadius`.
        """

    @abstractmethod
    def config(self) -> list[Any]:
        """Plain values that a state must agree on."""

    @torch.no_grad()
    def fingerprint(self) -> dict[str, Any]:
        """The kernel's parameters, and a few of its values, rounded."""
        X = self._domain_points()
        K = self.covar_module(X).to_dense().flatten().tolist()
        state = self.covar_module.state_dict()
        values = {name: value.tolist() for name, value in state.items()}
        return {"values": [f"{value:.4g}" for value in K]} | values

    @abstractmethod
    def domain_sample(self) -> Tensor:
        """The table, or points all over the box, always the same, float64."""

    @abstractmethod
    def _domain_points(self) -> Tensor:
        """Four points of the domain or fewer, always the same."""

    @abstractmethod
    def _rows(self) -> Tensor:
        """What the batch in progress may choose from, float64."""

    @property
    def num_inducing(self) -> int:
        """Inducing points of the batch in progress."""
        return self.exploration.posterior.num_inducing if self.has_started else 0

    @property
    def has_started(self) -> bool:
        """Whether there is a batch in progress."""
        return self._exploration is not None or self._saved is not None

    @property
    def exploration(self) -> BatchExploration:
        """The batch in progress."""
        if self._exploration is None:
            exploration = self._explore()
            if self._saved is not None:
                exploration.load_state_dict(self._saved)
            self._exploration, self._saved = exploration, None
        return self._exploration

    @property
    def num_proposed(self) -> int:
        """Points of the batch in progress."""
        if self._exploration is not None:
            return len(self._exploration.points)
        events = [] if self._saved is None else self._saved["events"]
        return sum(event >= 0 for event in events)

    def finish(self) -> None:
        """No batch is in progress any more."""
        self._load_exploration(None)

    def _explore(self) -> BatchExploration:
        rows = GrowingPosterior(self.covar_module, self._rows(), self.lam)
        return BatchExploration(rows, self.policy)

    def _exploration_state(self) -> dict[str, Any] | None:
        """The batch in progress as plain values; None between batches."""
        if self._exploration is None:
            return self._saved
        return self._exploration.state_dict()

    def _load_exploration(self, state: dict[str, Any] | None) -> None:
        """Take over a batch in progress; nothing is computed before it is needed."""
        self._exploration, self._saved = None, state

    @torch.no_grad()
    def bounds(
        self, data: BatchData, radius: ConfidenceRadius, generator: torch.Generator
    ) -> BatchBounds:
        """The bounds that feedback for the batch, or a part of it, gives.

        Feedback comes in units of Y. The residual matrix of a part is a principal
        submatrix of that of the batch: the bound on its largest eigenvalue holds for it
        too.
        """
        exploration, is_blind = self.exploration, self.design == "random"
        data = data._replace(Y=self.units.standardize(data.Y))
        inducing = exploration.posterior.X[exploration.posterior.inducing]
        if is_blind:
            inducing = certified_inducing_points(
                self.covar_module, self.lam, data, self.policy, generator
            )
        posterior = batch_posterior(self.covar_module, self.lam, data, inducing)
        certificate = accuracy_certificate(
            posterior,
            data.X,
            self.lam / data.counts,
            delta=self.policy.draw_delta(exploration.num_draws + 1),
            generator=generator,
        )
        known = float("inf") if is_blind else exploration.bound
        r = min(certificate.lambda_max, known)
        return bounds_of_batch(
            posterior, data, inducing, radius, self.lam, r, self.units
        )
