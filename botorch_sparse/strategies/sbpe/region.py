r"""What S-BPE has not ruled out of a continuous domain.

After every batch the points with :math:`u_i(x) \ge \max l_i` remain ([Vakili2022]_
Eq. 15 and Algorithm 1): an intersection of sets that only a membership test describes.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import BotorchTensorDimensionError, BotorchWarning
from botorch.generation.gen import gen_candidates_scipy
from botorch.optim import optimize_acqf
from torch import Tensor
from torch.nn import Module

from botorch_sparse.strategies.box import Box
from botorch_sparse.strategies.sbpe.bounds import BatchBounds
from botorch_sparse.strategies.seeding import draw_seed

# Points of the domain that `sample` tests at most before it walks from known ones.
MAX_TRIES = 2**13
# Steps of a walk, and shrinkages of the interval in each.
WALK_STEPS, SHRINKAGES = 16, 40
# Halvings of a step that has left the region.
BISECTIONS = 30
# A walk that has moved by less, as a share of the sides, says that nothing is left.
COLLAPSED = 1e-6


class SurvivingRegion:
    """A box and the cuts of past batches.

    Args:
        box: The domain.
        cuts: Bounds of past batches, with their thresholds.
        anchor: `1 x d`, the best point known, which survives; None before any batch.
    """

    def __init__(
        self,
        box: Box,
        cuts: list[BatchBounds] | None = None,
        anchor: Tensor | None = None,
    ) -> None:
        self.box = box
        self.cuts = list(cuts or [])
        self.anchor = anchor

    def slack(self, X: Tensor) -> Tensor:
        """The smallest of the cuts' slacks at `n x d` points, `n`. Differentiable."""
        X = X.double()
        if not self.cuts:
            return torch.full_like(X[:, 0], float("inf"))
        return torch.stack([cut.slack(X) for cut in self.cuts]).amin(0)

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
        starts = found
        if self.anchor is not None:
            starts = torch.cat([found, self.anchor.double()])
        start = torch.randint(len(starts), (n - len(found),), generator=generator)
        walked = self._walk(starts[start.to(starts.device)], generator)
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

    def _walk(self, X: Tensor, generator: torch.Generator) -> Tensor:
        """Hit and run from `n x d` surviving points; all walks at once."""
        for _ in range(WALK_STEPS):
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

    def maximize(
        self,
        function: Callable[[Tensor], Tensor],
        starts: Tensor,
        options: dict[str, int] | None = None,
    ) -> Tensor:
        """Improve on surviving points by `optimize_acqf`, within the region.

        Args:
            function: From `n x d` points to `n` values; differentiable.
            starts: `k x d` surviving points; the result is no worse than the best one.
            options: For the optimizer.

        Returns:
            A `1 x d` surviving point in the dtype of the bounds.
        """
        constraints = [(lambda x: self.slack(x.unsqueeze(0)).squeeze(0), True)]
        arguments = self.box.arguments()
        if self.cuts:
            arguments["nonlinear_inequality_constraints"] = constraints
        batch_limit = 1 if self.cuts else len(starts)
        with warnings.catch_warnings():
            # The best start is kept whatever the optimizer has to say.
            warnings.simplefilter("ignore")
            X, _ = optimize_acqf(
                _Pointwise(function),
                q=1,
                num_restarts=len(starts),
                batch_initial_conditions=starts.unsqueeze(1),
                options={"batch_limit": batch_limit, "maxiter": 20, **(options or {})},
                retry_on_optimization_warning=False,
                gen_candidates=self._generate,
                **arguments,
            )
        tried = self.box.clamp(torch.cat([X.detach().view(-1, self.box.dim), starts]))
        with torch.no_grad():
            values = function(tried.double())
            values[~self.contains(tried, 0.0)] = float("-inf")
        if not bool((values > float("-inf")).any()):
            return tried[-len(starts) :][:1]  # starts that float32 has rounded out
        return tried[int(values.argmax())].unsqueeze(0)

    def _generate(
        self, initial_conditions: Tensor, acquisition_function: Module, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Candidates of the optimizer, drawn back to their starts where it left.

        SLSQP may end outside by a little, which `optimize_acqf` takes for a failure.
        """
        X, values = gen_candidates_scipy(
            initial_conditions, acquisition_function, **options
        )
        start = initial_conditions.squeeze(1)
        step = X.squeeze(1) - start
        outside = ~self.contains(start + step, 0.0)
        if not bool(outside.any()):
            return X, values
        low = torch.where(outside, 0.0, 1.0).to(X)
        high = torch.ones_like(low)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            inside = self.contains(start + middle.unsqueeze(-1) * step, 0.0)
            low, high = (
                torch.where(inside, middle, low),
                torch.where(inside, high, middle),
            )
        X = (start + low.unsqueeze(-1) * step).unsqueeze(1)
        with torch.no_grad():
            return X, acquisition_function(X)


class _Pointwise(AcquisitionFunction):
    """A function of single points in the form that the optimizers need."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        Module.__init__(self)
        self._function = function

    def forward(self, X: Tensor) -> Tensor:
        """`b x 1 x d` to `b`."""
        return self._function(X.squeeze(-2))
