"""S-BPE on a table of candidates ([Vakili2022]_ Section 5.1)."""

from collections.abc import Collection
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import ConfidenceRadius, SBPERadius
from botorch_sparse.optim.transfers import read
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.sbpe.bounds import BatchBounds
from botorch_sparse.strategies.sbpe.exploration import CertificatePolicy
from botorch_sparse.strategies.sbpe.search import (
    Elimination,
    Exploration,
    Recommendation,
    Search,
)
from botorch_sparse.strategies.sbpe.units import UNITS_OF_Y, Units


class TableSearch(Search):
    """Explores the surviving rows of a table; see `Search` for the other arguments.

    Args:
        candidates: `A x d` points.

    Attributes:
        survivors: `A` truth values.
    """

    def __init__(
        self,
        candidates: Tensor,
        covar_module: Kernel,
        lam: float,
        policy: CertificatePolicy,
        design: Exploration,
        units: Units = UNITS_OF_Y,
    ) -> None:
        super().__init__(covar_module, lam, policy, design, units)
        self.X = candidates.double()
        infinity = torch.full_like(self.X[:, 0], float("inf"))
        self._keep(infinity > 0)
        self._lower, self._upper = -infinity, infinity  # in the search's units
        self._mean = torch.zeros_like(infinity)

    @property
    def lower(self) -> Tensor:
        """`A` largest lower bounds of all batches that explored a row, units of Y."""
        return self.units.restore(self._lower)

    @property
    def upper(self) -> Tensor:
        """`A` smallest upper bounds likewise."""
        return self.units.restore(self._upper)

    @property
    def mean(self) -> Tensor:
        """`A` posterior means of the batches that `lower` is from."""
        return self.units.restore(self._mean)

    def confidence_gap(self) -> float:
        """Largest upper less largest lower bound of the survivors, in units of Y."""
        upper, lower = self._upper[self.survivors], self._lower[self.survivors]
        return max(0.0, self.units.scale * float(upper.max() - lower.max()))

    def _keep(self, survivors: Tensor) -> None:
        """Go on with these candidates; their rows are looked up once."""
        self.survivors = survivors
        self._left = survivors.nonzero().squeeze(-1)
        self._left_here = self._left.cpu()

    def radius(
        self, *, num_intervals: float, discretization: float, **common: Any
    ) -> ConfidenceRadius:
        r"""Theorem 3.5 with :math:`\beta(\delta / (4 B |X|))`; see `Search.radius`."""
        return SBPERadius(**common, num_intervals=num_intervals * len(self.X))

    def config(self) -> list[Any]:
        """See `Search.config`."""
        return [self.design]

    def domain_sample(self) -> Tensor:
        """See `Search.domain_sample`."""
        return self.X

    def _domain_points(self) -> Tensor:
        return self.X[:: -(-len(self.X) // 4)]

    def _rows(self) -> Tensor:
        return self.X[self._left]

    def start(self, length: int, generator: torch.Generator) -> None:
        """See `Search.start`."""
        self._load_exploration(None)
        self._exploration = self._explore()

    def _without(self, failed: Collection[int]) -> Tensor:
        """`A` truth values: the survivors that have not failed. O(A)."""
        if not failed:
            return self.survivors
        rows = torch.tensor(sorted(failed), device=self.X.device)
        return self.survivors.index_fill(0, rows, False)

    def is_exhausted(self, failed: Collection[int]) -> bool:
        """See `Search.is_exhausted`."""
        return len(failed) > 0 and not self._without(failed).any()

    def propose(
        self,
        history: History,
        generator: torch.Generator,
        failed: Collection[int] = (),
    ) -> int:
        """See `Search.propose`."""
        is_open = self._without(failed)[self._left] if failed else None
        if self.design == "random":
            row = self._draw(generator, is_open)
            self.exploration.record(row)
        else:
            row = self.exploration.argmax(len(self._left), is_open)
            self.exploration.add(row, generator)
        return int(self._left_here[row])

    def _draw(self, generator: torch.Generator, is_open: Tensor | None) -> int:
        """The place of a row among the survivors."""
        if is_open is None:
            return int(torch.randint(len(self._left), (1,), generator=generator))
        places = is_open.cpu().nonzero().squeeze(-1)
        return int(places[torch.randint(len(places), (1,), generator=generator)])

    @torch.no_grad()
    def eliminate(
        self, bounds: BatchBounds, history: History, failed: Collection[int] = ()
    ) -> Elimination:
        r"""Keep the rows with :math:`u_i(x) \ge \max l_i` (Eq. 13). O(A m^2).

        Rows that failed rule out no others, and stay where nothing else is left.
        """
        rows = self._left
        lower, upper = bounds.standardized(self.X[rows])
        if failed and not self.is_exhausted(failed):
            is_open = self._without(failed)[rows]
            kept = is_open & (upper >= lower[is_open].max())
        else:
            kept = upper >= lower.max()
        better = lower > self._lower[rows]
        mean = torch.where(better, (lower + upper) / 2, self._mean[rows])
        survivors = torch.zeros_like(self.survivors)
        survivors[rows[kept]] = True
        # New tensors: a snapshot may hold the old ones.
        self._mean = self._mean.index_copy(0, rows, mean)
        self._lower = self._lower.index_copy(0, rows, lower.maximum(self._lower[rows]))
        self._upper = self._upper.index_copy(0, rows, upper.minimum(self._upper[rows]))
        self._keep(survivors)
        widths = torch.where(kept, upper - lower, -torch.inf)
        num_survivors, max_width = read(kept.sum(), widths.max())
        return Elimination(
            num_survivors=int(num_survivors),
            fraction=num_survivors / len(rows),
            max_width=max_width,
        )

    def recommend(
        self, history: History, failed: Collection[int] = ()
    ) -> Recommendation:
        """See `Search.recommend`."""
        is_left = self.survivors
        if not self.is_exhausted(failed):
            is_left = self._without(failed)
        lower = torch.where(is_left, self._lower, float("-inf"))
        index = int(lower.argmax())
        return Recommendation(
            X=history.points(torch.tensor([index])).squeeze(0),
            index=index,
            mean=self.units.restore(float(self._mean[index])),
            lower=self.units.restore(float(self._lower[index])),
            upper=self.units.restore(float(self._upper[index])),
        )

    def state_dict(self) -> dict[str, Any]:
        """See `Search.state_dict`."""
        return {
            "survivors": self.survivors.clone(),
            "lower": self._lower.clone(),
            "upper": self._upper.clone(),
            "mean": self._mean.clone(),
            "exploration": self._exploration_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Search.load_state_dict`."""
        self._keep(state["survivors"].to(self.X.device, copy=True))
        for name in ("lower", "upper", "mean"):
            setattr(self, f"_{name}", state[name].to(self.X.device, copy=True))
        self._load_exploration(state["exploration"])


class InitialDraw(TableSearch):
    """Rows drawn uniformly and without replacement, before there is a kernel."""

    def __init__(
        self,
        candidates: Tensor,
        covar_module: Kernel,
        lam: float,
        policy: CertificatePolicy,
    ) -> None:
        super().__init__(candidates, covar_module, lam, policy, "random")
        self._drawn: list[int] = []

    def start(self, length: int, generator: torch.Generator) -> None:
        """See `Search.start`; at most as many as there are rows."""
        super().start(length, generator)
        order = torch.randperm(len(self.X), generator=generator)
        self._drawn = order[:length].tolist()

    def propose(
        self,
        history: History,
        generator: torch.Generator,
        failed: Collection[int] = (),
    ) -> int:
        """See `Search.propose`; no row comes twice, also none that failed. O(1)."""
        row = self._drawn[self.num_proposed]
        self.exploration.record(row)
        return row

    def state_dict(self) -> dict[str, Any]:
        """See `Search.state_dict`."""
        return super().state_dict() | {"drawn": list(self._drawn)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Search.load_state_dict`."""
        super().load_state_dict(state)
        self._drawn = list(state["drawn"])
