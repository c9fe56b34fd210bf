r"""What S-BPE has not ruled out of a continuous domain.

After every batch the points with :math:`u_i(x) \ge \max l_i` remain ([Vakili2022]_
Eq. 15 and Algorithm 1): an intersection of sets that only a membership test describes.
"""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    BotorchWarning,
    InputDataError,
)
from torch import Tensor

from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.data.domain import draw_seed
from botorch_sparse.strategies.data.run_record import RunRecord
from botorch_sparse.strategies.local_maximization import Function, maximize_from_points
from botorch_sparse.strategies.sbpe.bounds import BatchBounds, Recommendation
from botorch_sparse.strategies.sbpe.exploration import BatchExploration
from botorch_sparse.strategies.surrogates.prior import Prior
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource

# Points of the domain that `sample` tests at most before it walks from known ones.
MAX_TRIES = 2**13
# Steps of a walk, and shrinkages of the interval in each.
WALK_STEPS, SHRINKAGES = 16, 40
# A walk that has moved by less, as a share of the sides, says that nothing is left.
COLLAPSED = 1e-6


@dataclass(frozen=True, eq=False)
class SurvivingRegion:
    """A box and the cuts of past batches; a cut makes another value.

    Every batch draws surviving points whose variances are kept up to date as on a
    table. From the ones with the largest variances `optimize_acqf` climbs within the
    region.

    Attributes:
        box: The domain.
        cuts: Bounds of past batches, with their thresholds.
        best: `k x d`, the points where the thresholds were found.
    """

    box: Box
    cuts: tuple[BatchBounds, ...]
    best: Tensor

    @classmethod
    def everything(cls, box: Box) -> "SurvivingRegion":
        """All of the box, before any batch."""
        return cls(box, (), box.bounds[:0])

    @cached_property
    @torch.no_grad()
    def anchor(self) -> Tensor:
        """`1 x d`, the best point left with the largest lower bound; or none."""
        if len(self.best) == 0:
            return self.best
        left = self.best[self.contains(self.best)]
        lower = torch.stack([cut.standardized(left.double())[0] for cut in self.cuts])
        return left[int(lower.amax(0).argmax())].unsqueeze(0)

    def slack(self, X: Tensor) -> Tensor:
        """The smallest of the cuts' slacks at `n x d` points, `n`. Differentiable."""
        X = X.double()
        if not self.cuts:
            return torch.full_like(X[:, 0], float("inf"))
        return torch.stack([cut.slack(X) for cut in self.cuts]).amin(0)

    @property
    def _cut_slack(self) -> Function | None:
        """`slack`, if there are cuts."""
        return self.slack if self.cuts else None

    @torch.no_grad()
    def contains(self, X: Tensor, tolerance: float = 1e-6) -> Tensor:
        """Which of `n x d` points survive.

        Args:
            X: The points.
            tolerance: In the units of the cuts; a bound may miss its threshold by it.

        Returns:
            `n` truth values. O(n m^2) for each cut.

        Raises:
            BotorchTensorDimensionError: If `X` is not `n x d`.
        """
        if X.dim() != 2 or X.shape[-1] != self.box.dim:
            raise BotorchTensorDimensionError(
                f"Got X of shape {tuple(X.shape)}; need `n x {self.box.dim}`."
            )
        return self.box.is_feasible(X) & (self.slack(X) >= -tolerance)

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Points that survive, `n x d`, in float64.

        The domain is tried at up to 8192 points. If fewer than `n` of them survive, the
        others come from walks that start at survivors: hit and run with a shrinking
        interval, which leaves the uniform distribution on the region as it is. Where
        the walks do not get away from the best point known, the region has collapsed,
        and all points are that one.

        Warns:
            BotorchWarning: If the region has collapsed.
        """
        found = self.box.bounds.new_empty(0, self.box.dim).double()
        tried, size = 0, max(64, 2 * n)
        while len(found) < n and tried < MAX_TRIES:
            X = self.box.sample(size, seed=draw_seed(generator)).double()
            found = torch.cat([found, X[self.contains(X, 0.0)]])
            tried, size = tried + size, min(2 * size, MAX_TRIES)
        if len(found) >= n or not self.cuts:
            return found[:n]
        starts = torch.cat([found, self.anchor.double()])
        start = torch.randint(len(starts), (n - len(found),), generator=generator)
        walked = self.walk(starts[start.to(starts.device)], generator)
        side = (self.box.bounds[1] - self.box.bounds[0]).double()
        near = (walked - starts[:1]).abs() < COLLAPSED * side
        if len(found) == 0 and bool(near.all()):
            warnings.warn(
                f"Nothing but its best known point {starts[0].tolist()} is left of the "
                "surviving region, and all further points are that one. If this comes "
                "early, norm_bound or noise_std may be too small.",
                BotorchWarning,
                stacklevel=2,
            )
            return starts[:1].expand(n, -1).clone()
        return torch.cat([found, walked])

    def walk(
        self, X: Tensor, generator: torch.Generator, num_steps: int = WALK_STEPS
    ) -> Tensor:
        """Hit and run from `n x d` surviving points; all walks at once."""
        for _ in range(num_steps):
            ends = self.box.sample(2 * len(X), seed=draw_seed(generator)).double()
            pairs = torch.randperm(len(ends), generator=generator).to(X.device)
            direction = ends[pairs[: len(X)]] - ends[pairs[len(X) :]]
            high = torch.rand(len(X), 1, generator=generator, dtype=torch.float64)
            high = 2 * high.to(X.device)
            low, moved = high - 2, torch.zeros(len(X), 1, dtype=torch.bool).to(X.device)
            new = X
            for _ in range(SHRINKAGES):
                u = torch.rand(len(X), 1, generator=generator, dtype=torch.float64)
                t = low + u.to(X.device) * (high - low)
                trial = X + t * direction
                inside = self.contains(trial, 0.0).unsqueeze(-1)
                new = torch.where(inside & ~moved, trial, new)
                moved = moved | inside
                low = torch.where(~inside & (t < 0), t, low)
                high = torch.where(~inside & (t >= 0), t, high)
                if bool(moved.all()):
                    break
            X = torch.minimum(
                torch.maximum(new, self.box.bounds[0].double()),
                self.box.bounds[1].double(),
            )
        return X

    def is_exhausted(self, failed: Collection[int]) -> bool:
        """Never: there are other points."""
        return False

    def draw_pool(self, n: int, generator: torch.Generator) -> Tensor:
        """The points that a batch compares; see `sample`."""
        return self.sample(n, generator)

    def explored(self, pool: Tensor) -> Tensor:
        """The pool itself, `k x d`."""
        return pool

    def draw(
        self,
        place: int,
        pool: Tensor,
        known: RunRecord,
        generator: torch.Generator,
        failed: Collection[int],
    ) -> int:
        """The number of the point at a place in the pool, which was drawn before."""
        return known.add_point(self.box.clamp(pool[place]))

    def explore(
        self,
        exploration: BatchExploration,
        points: Sequence[int],
        pool: Tensor,
        inputs: Function,
        known: RunRecord,
        generator: torch.Generator,
        failed: Collection[int],
    ) -> int:
        """The number of the point of largest variance, which joins an exploration.

        Args:
            exploration: Of the pool, then the points of the batch.
            points: Numbers of the points so far.
            pool: `k x d` points.
            inputs: From points as they come to those that the kernel takes.
            known: Where new points get their numbers.
            generator: For what is drawn.
            failed: Numbers of points that failed, which rule out no others.
        """
        growing, variance = exploration.posterior, exploration.posterior.variance
        if growing.num_inducing == 0:  # the prior: there is nothing to choose by
            x = self.box.clamp(pool[int(variance[: len(pool)].argmax())][None])
        else:
            posterior = growing.posterior()
            x = maximize_from_points(
                lambda X: posterior.variance(inputs(X)),
                pool,
                variance[: len(pool)],
                exploration.design.num_restarts,
                self.box,
                self._cut_slack,
            )
        number = known.add_point(x.squeeze(0))
        earlier = list(dict.fromkeys(points))
        if number in earlier:
            row = exploration.num_rows + earlier.index(number)
        else:
            row = exploration.add_row(inputs(x))
        exploration.add(row, generator)
        return number

    @torch.no_grad()
    def cut(
        self,
        bounds: BatchBounds,
        failed: Collection[int],
        pool: Tensor,
        num_restarts: int,
    ) -> tuple["SurvivingRegion", dict[str, Any]]:
        r"""Cut the region by :math:`u_i(x) \ge \max l_i` (Eq. 15).

        The maximum over the region is searched from the batch's points and the pool.
        One that is missed by the search cuts off less.

        Returns:
            What is left, and what a `Round` says of that.
        """
        known = torch.cat([pool, bounds.data["X"], self.best.double()])
        known = known[self.contains(known, 0.0)]
        if len(known) == 0:  # rounding has left the best point outside, by little
            known = self.anchor.double()

        def function(X: Tensor) -> Tensor:
            return bounds.standardized(X)[0]

        lower = function(known)
        best = maximize_from_points(
            function, known, lower, num_restarts, self.box, self._cut_slack
        )
        cuts = (*self.cuts, bounds.cut_at(best))
        region = SurvivingRegion(self.box, cuts, torch.cat([self.best, best]))
        kept = region.contains(pool, 0.0)
        lower, upper = bounds.standardized(torch.cat([pool[kept], best.double()]))
        return region, {
            "fraction": float(kept.double().mean()),
            "max_width": bounds.prior.scale * float((upper - lower).max()),
        }

    @torch.no_grad()
    def recommend(self, known: RunRecord, failed: Collection[int]) -> Recommendation:
        """The surviving point of largest lower bound, by all batches."""
        x = self.anchor
        if len(x) == 0:
            raise InputDataError("No batch has ended yet; tell its feedback first.")
        intervals = [cut.interval(x.double()) for cut in self.cuts]
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
        """All but the box."""
        return {"cuts": [cut.state_dict() for cut in self.cuts], "best": self.best}

    def of_state(
        self, state: dict[str, Any], source: PriorSource, prior: Prior
    ) -> "SurvivingRegion":
        """The region of the same box that a state came from."""
        bounds = self.box.bounds
        context = source, prior, bounds.device
        cuts = tuple(BatchBounds.of_state(cut, *context) for cut in state["cuts"])
        return SurvivingRegion(self.box, cuts, state["best"].to(bounds))
