"""Functions on boxes, all to be minimized."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.test_functions import Ackley, Hartmann, Levy
from torch import Tensor


class Rover:
    r"""The trajectory problem of Wang et al. (2018), in 60 dimensions, to minimize.

    Thirty points of the plane are control points of a B-spline of degree three that
    is clamped at its ends. The cost is

    .. math:: \int c(x(t)) \, |x'(t)| \, dt
        + 10 (\lVert x_{1,2} - s \rVert_1 + \lVert x_{59,60} - g \rVert_1) - 5

    with 0.05 for each unit of length, and 20 more inside of an obstacle. The
    obstacles are 30 squares of side 0.1 that a fixed seed draws, since the paper shows
    its own in a figure alone: values are not those of other work.
    """

    num_points = 30
    num_steps = 1000

    def __init__(self) -> None:
        self.start = torch.tensor([0.05, 0.05], dtype=torch.float64)
        self.goal = torch.tensor([0.95, 0.95], dtype=torch.float64)
        g = torch.Generator().manual_seed(2018)
        corners = 0.9 * torch.rand(400, 2, generator=g, dtype=torch.float64)
        middle = corners + 0.05
        ends = torch.stack([self.start, self.goal])
        is_far = (middle.unsqueeze(1) - ends).abs().amax(-1).amin(-1) > 0.15
        self.low = corners[is_far][:30]
        self.basis = clamped_basis(self.num_points, 3, self.num_steps)
        self.bounds = torch.tensor([[0.0] * 60, [1.0] * 60], dtype=torch.float64)

    def __call__(self, X: Tensor) -> Tensor:
        """Costs of `n x 60` points, `n`."""
        points = X.double().view(-1, self.num_points, 2)
        path = self.basis @ points
        middle = (path[:, 1:] + path[:, :-1]) / 2
        length = (path[:, 1:] - path[:, :-1]).norm(dim=-1)
        beside = middle.unsqueeze(-2) - self.low
        is_hit = ((beside >= 0) & (beside <= 0.1)).all(-1).any(-1)
        cost = ((20.0 * is_hit + 0.05) * length).sum(-1)
        ends = (points[:, 0] - self.start).abs().sum(-1)
        ends = ends + (points[:, -1] - self.goal).abs().sum(-1)
        return cost + 10.0 * ends - 5.0


def clamped_basis(num_points: int, degree: int, num_steps: int) -> Tensor:
    """Values of a clamped B-spline's basis by de Boor's recursion, steps x points."""
    inner = torch.linspace(0, 1, num_points - degree + 1, dtype=torch.float64)
    knots = torch.cat([inner[:1].expand(degree), inner, inner[-1:].expand(degree)])
    t = torch.linspace(0, 1, num_steps, dtype=torch.float64)[:, None].clamp_max(
        1 - 1e-9
    )
    basis = ((t >= knots[:-1]) & (t < knots[1:])).double()
    for k in range(1, degree + 1):
        rise, fall = knots[k:-1] - knots[: -k - 1], knots[k + 1 :] - knots[1:-k]
        up = torch.where(rise > 0, (t - knots[: -k - 1]) / rise, 0.0)
        down = torch.where(fall > 0, (knots[k + 1 :] - t) / fall, 0.0)
        basis = up * basis[:, :-1] + down * basis[:, 1:]
    return basis


class Swimmer:
    """Linear policies of MuJoCo's swimmer, 16 parameters, by the return of an episode.

    The state of each episode begins with noise, which the seed decides on; an
    evaluation takes a thousand steps of the simulator.
    """

    def __init__(self, seed: int) -> None:
        import gymnasium

        made = gymnasium.make("Swimmer-v5", disable_env_checker=True)
        self.steps = made.spec.max_episode_steps
        self.environment = made.unwrapped
        self.shape = (made.action_space.shape[0], made.observation_space.shape[0])
        self.episode = 1_000_000 * seed
        d = self.shape[0] * self.shape[1]
        self.bounds = torch.tensor([[-1.0] * d, [1.0] * d], dtype=torch.float64)

    def __call__(self, X: Tensor) -> Tensor:
        """Negated returns of `n x 16` policies, `n`."""
        return torch.tensor([-self._episode(x) for x in X.double().numpy()])

    def _episode(self, x: np.ndarray) -> float:
        policy, total = x.reshape(self.shape), 0.0
        self.episode += 1
        state, _ = self.environment.reset(seed=self.episode)
        for _ in range(self.steps):
            action = np.clip(policy @ state, -1.0, 1.0)
            state, reward, *_ = self.environment.step(action)
            total += float(reward)
        return total


@dataclass(frozen=True)
class Problem:
    """A function and how often it is evaluated.

    Attributes:
        make: From a seed to the function, which has `bounds`, `2 x d`.
        total: Evaluations.
        digits: Of its values in tables.
    """

    make: Callable[[int], Any]
    total: int = 10_000
    digits: int = 4


WIDE = [(-5.0, 10.0)] * 20  # the optimum is not in the middle
PROBLEMS = {
    "ackley20": Problem(lambda _: Ackley(dim=20, bounds=WIDE)),
    "levy20": Problem(lambda _: Levy(dim=20, bounds=WIDE)),
    "hartmann6": Problem(lambda _: Hartmann()),
    "rover60": Problem(lambda _: Rover(), digits=3),
    "swimmer16": Problem(Swimmer, total=1000, digits=1),
}
