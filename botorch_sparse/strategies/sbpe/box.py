"""S-BPE on a continuous domain ([Vakili2022]_ Section 5.2)."""

from collections.abc import Collection
from typing import Any

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    ConfidenceRadius,
    SBPEContinuousRadius,
)
from botorch_sparse.strategies.box import Box
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.sbpe.bounds import BatchBounds
from botorch_sparse.strategies.sbpe.exploration import CertificatePolicy
from botorch_sparse.strategies.sbpe.region import SurvivingRegion
from botorch_sparse.strategies.sbpe.search import (
    Elimination,
    Exploration,
    Recommendation,
    Search,
)
from botorch_sparse.strategies.sbpe.units import UNITS_OF_Y, Units


class BoxSearch(Search):
    """Explores the surviving region of a box; see `Search` for the other arguments.

    Every batch draws surviving points whose variances are kept up to date as on a
    table; those of largest variance are the feasible starts from which `optimize_acqf`
    climbs within the region.

    Args:
        box: The domain.
        raw_samples: How many points are drawn for each batch.
        num_restarts: From how many of them to climb.
    """

    def __init__(
        self,
        box: Box,
        covar_module: Kernel,
        lam: float,
        policy: CertificatePolicy,
        design: Exploration,
        *,
        raw_samples: int,
        num_restarts: int,
        units: Units = UNITS_OF_Y,
    ) -> None:
        super().__init__(covar_module, lam, policy, design, units)
        self.raw_samples = raw_samples
        self.num_restarts = num_restarts
        self.region = SurvivingRegion(box)
        self._best: list[Tensor] = []  # 1 x d, the largest lower bound of each batch
        self._pool = box.bounds[:0].double()
        self._numbers: list[int] = []  # of the points in the rows behind the pool

    def radius(
        self, *, num_intervals: float, discretization: float, **common: Any
    ) -> ConfidenceRadius:
        """Corollary 3.7; its `k_max` is exact for stationary kernels."""
        with torch.no_grad():
            prior = self.covar_module(self.domain_sample(), diag=True)
        return SBPEContinuousRadius(
            **common,
            num_intervals=num_intervals,
            dim=self.region.box.dim,
            kernel_bound=float(prior.max()),
            discretization=discretization,
        )

    def config(self) -> list[Any]:
        """See `Search.config`."""
        return [self.design, self.raw_samples, self.num_restarts]

    def domain_sample(self) -> Tensor:
        """See `Search.domain_sample`."""
        return self.region.box.sample(2048, seed=0).double()

    def _domain_points(self) -> Tensor:
        return self.region.box.bounds.double()

    def _rows(self) -> Tensor:
        return self._pool

    def start(self, length: int, generator: torch.Generator) -> None:
        """See `Search.start`."""
        size = length if self.design == "random" else self.raw_samples
        self._pool = self.region.sample(size, generator)
        self._numbers = []
        self._load_exploration(None)
        self._exploration = self._explore()

    def propose(
        self,
        history: History,
        generator: torch.Generator,
        failed: Collection[int] = (),
    ) -> int:
        """See `Search.propose`."""
        is_random = self.design == "random"
        x = self._draw() if is_random else self._climb()
        number = history.add_point(x.squeeze(0))
        if number not in self._numbers:
            self._numbers = [*self._numbers, number]
            self.exploration.add_row(x.double())
        row = len(self._pool) + self._numbers.index(number)
        if is_random:
            self.exploration.record(row)
        else:
            self.exploration.add(row, generator)
        return number

    def _draw(self) -> Tensor:
        """The next point of the pool, `1 x d`."""
        place = self.num_proposed
        return self.region.box.clamp(self._pool[place : place + 1])

    def _climb(self) -> Tensor:
        """The point of largest variance, `1 x d`."""
        variance = self.exploration.posterior.variance[: len(self._pool)]
        if self.num_inducing == 0:  # the prior: nothing to choose by, or to climb
            return self.region.box.clamp(self._pool[int(variance.argmax())][None])
        top = variance.topk(min(self.num_restarts, len(variance))).indices
        posterior = self.exploration.posterior.posterior()
        return self.region.maximize(posterior.variance, self._pool[top])

    def eliminate(
        self, bounds: BatchBounds, history: History, failed: Collection[int] = ()
    ) -> Elimination:
        r"""Cut the region by :math:`u_i(x) \ge \max l_i` (Eq. 15).

        The maximum over the region is searched from the batch's points and the pool.
        One that is missed by the search cuts off less.
        """
        known = torch.cat([self._pool, bounds.state["X"], *map(_double, self._best)])
        known = known[self.region.contains(known, 0.0)]
        with torch.no_grad():
            lower = bounds.standardized(known)[0]
        top = lower.topk(min(self.num_restarts, len(lower))).indices
        best = self.region.maximize(lambda X: bounds.standardized(X)[0], known[top])
        with torch.no_grad():
            threshold = float(bounds.standardized(best.double())[0])
        cut = bounds.with_threshold(threshold)
        self._best = [*self._best, best]
        region = SurvivingRegion(self.region.box, [*self.region.cuts, cut])
        region.anchor = self._anchor(region)
        kept = region.contains(self._pool, 0.0)
        left = torch.cat([self._pool[kept], best.double()])
        with torch.no_grad():
            lower, upper = bounds.standardized(left)
        self.region = region
        return Elimination(
            num_survivors=None,
            fraction=float(kept.double().mean()),
            max_width=float((upper - lower).max()),
        )

    @torch.no_grad()
    def _anchor(self, region: SurvivingRegion) -> Tensor:
        """The surviving best point of a batch with the largest lower bound of all."""
        best = torch.cat(self._best)
        left = best[region.contains(best)]
        lower = torch.stack([cut.standardized(left.double())[0] for cut in region.cuts])
        return left[int(lower.amax(0).argmax())].unsqueeze(0)

    @torch.no_grad()
    def recommend(
        self, history: History, failed: Collection[int] = ()
    ) -> Recommendation:
        """See `Search.recommend`."""
        x = self.region.anchor
        if x is None:
            raise InputDataError("No batch has ended yet; tell its feedback first.")
        intervals = [cut.interval(x.double()) for cut in self.region.cuts]
        lower = torch.cat([low for low, _ in intervals])
        upper = torch.cat([high for _, high in intervals])
        best = int(lower.argmax())
        return Recommendation(
            X=x.squeeze(0),
            index=None,
            mean=float(lower[best] + upper[best]) / 2,
            lower=float(lower[best]),
            upper=float(upper.min()),
        )

    def state_dict(self) -> dict[str, Any]:
        """See `Search.state_dict`."""
        return {
            "cuts": [cut.state_dict() for cut in self.region.cuts],
            "best": list(self._best),
            "pool": self._pool.clone(),
            "numbers": list(self._numbers),
            "exploration": self._exploration_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Search.load_state_dict`."""
        bounds = self.region.box.bounds
        self._best = [x.to(bounds) for x in state["best"]]
        cuts = [
            BatchBounds.from_state(
                self.covar_module, self.lam, cut, bounds.device, self.units
            )
            for cut in state["cuts"]
        ]
        self.region = SurvivingRegion(self.region.box, cuts)
        if cuts:
            self.region.anchor = self._anchor(self.region)
        self._pool = state["pool"].to(bounds.device, copy=True)
        self._numbers = list(state["numbers"])
        self._load_exploration(state["exploration"])


def _double(x: Tensor) -> Tensor:
    return x.double()
