"""Functions on boxes, all to be minimized."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.test_functions import (
    Ackley,
    Griewank,
    Hartmann,
    Levy,
    Rastrigin,
    Rosenbrock,
)
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


class BinaryAckley:
    """Ackley's function of 20 features, of which the first ten are 0 or 1.

    The minimum, zero, is at a pattern of bits and a point that a fixed seed draws: at
    zeros and in the middle of the box it would be found by methods that look there.
    """

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(0)
        self.bits = torch.randint(2, (10,), generator=g).double()
        self.middle = torch.rand(10, generator=g, dtype=torch.float64) - 0.5
        self.function = Ackley(dim=20)
        low = torch.cat([torch.zeros(10), -torch.ones(10)]).double()
        self.bounds = torch.stack([low, torch.ones(20).double()])
        self.discrete_dims = {j: (0, 1) for j in range(10)}

    def __call__(self, X: Tensor) -> Tensor:
        """Values of `n x 20` points, `n`."""
        X = X.double()
        away = [(X[:, :10] - self.bits).abs(), X[:, 10:] - self.middle]
        return self.function(torch.cat(away, dim=-1))


class PestControl:
    """Which of four pesticides to use at each of 25 stages, or none [Oh2019]_.

    The costs of one season, to minimize: what is paid for them, with a discount for
    using one often, and the stages at which more than a tenth of the products is
    infested, by 100 simulations of spread and control. Pests get used to a pesticide
    that comes again. The random numbers of the simulations are always the same.
    """

    num_stages, num_simulations, tolerated = 25, 100, 0.1
    price = np.array([0.0, 1.0, 0.8, 0.7, 0.5])
    discount = np.array([0.0, 0.2, 0.3, 0.3, 0.0])
    survival = np.array([1.0, 2.0, 3.0, 3.0, 5.0]) / 7  # second parameters of a beta
    habituation = np.array([0.0, 1.0, 2.5, 2.0, 0.5]) / 7

    def __init__(self) -> None:
        n = self.num_stages
        self.bounds = torch.tensor([[0.0] * n, [4.0] * n], dtype=torch.float64)
        self.cat_dims = {j: range(5) for j in range(n)}

    def __call__(self, X: Tensor) -> Tensor:
        """Costs of `n x 25` plans, `n`."""
        return torch.tensor([self._cost(x) for x in X.round().long().numpy()]).double()

    def _cost(self, plan: np.ndarray) -> float:
        g, n = np.random.default_rng(0), self.num_stages
        uses = np.bincount(plan, minlength=5)
        paid = (self.price * (1 - self.discount * uses / n))[plan].sum()
        infested = g.beta(1.0, 30.0, self.num_simulations)
        survival, above = self.survival.copy(), 0.0
        for choice in plan:
            above += float((infested > self.tolerated).mean())
            spread = g.beta(1.0, 17 / 3, self.num_simulations)
            killed = g.beta(1.0, survival[choice], self.num_simulations)
            if choice:
                infested = (1 - killed) * infested
                survival[choice] += self.habituation[choice] / n
            else:
                infested = infested + spread * (1 - infested)
        return float(paid) + above


class LowAutocorrelation:
    r"""Binary sequences of 50 signs whose autocorrelations are low (LABS), to minimize.

    Minus the merit factor, :math:`-n^2 / (2 \sum_k C_k^2)` with :math:`C_k = \sum_i s_i
    s_{i+k}`; the best sequence of 50 has 8.17 [Packebusch2016]_.
    """

    num = 50

    def __init__(self) -> None:
        bounds = [[0.0] * self.num, [1.0] * self.num]
        self.bounds = torch.tensor(bounds, dtype=torch.float64)
        self.discrete_dims = {j: (0, 1) for j in range(self.num)}

    def __call__(self, X: Tensor) -> Tensor:
        """Values of `n x 50` sequences of 0 and 1, `n`."""
        s, n = 2 * X.double().round() - 1, self.num
        lags = [(s[:, :-k] * s[:, k:]).sum(-1).square() for k in range(1, n)]
        return -(n**2) / (2 * torch.stack(lags).sum(0))


class Moved:
    """A function in other coordinates: its minimum is elsewhere, and axes are turned.

    At `x` in the box from -1 to 1 it is `f(z + r Q (x - c))`. `f` has its minimum at
    `z`, so this one has it at `c`, which is drawn from the inner half of the box. `Q`
    is a rotation, or nothing.

    Args:
        function: `f`, from `n x d` points to `n` values.
        dim: `d`.
        minimum: `z`, in each coordinate.
        radius: `r`, of the box in units of `f`.
        is_rotated: Whether axes are turned, at random by a fixed seed.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        dim: int,
        *,
        minimum: float = 0.0,
        radius: float = 5.0,
        is_rotated: bool = True,
    ) -> None:
        g = torch.Generator().manual_seed(dim)
        self.function, self.minimum, self.radius = function, minimum, radius
        self.center = torch.rand(dim, generator=g, dtype=torch.float64) - 0.5
        normal = torch.randn(dim, dim, generator=g, dtype=torch.float64)
        self.Q = torch.linalg.qr(normal)[0] if is_rotated else torch.eye(dim).double()
        self.bounds = torch.tensor([[-1.0] * dim, [1.0] * dim], dtype=torch.float64)

    def __call__(self, X: Tensor) -> Tensor:
        """Values of `n x d` points, `n`."""
        Z = self.minimum + self.radius * (X.double() - self.center) @ self.Q.mT
        return self.function(Z)


class Noisy:
    """A function whose values have Gaussian noise.

    Args:
        function: From `n x d` points to `n` values, with `bounds`.
        noise: Standard deviation of each evaluation's noise.
        seed: Of the noise.
    """

    def __init__(self, function: Any, noise: float, seed: int) -> None:
        self.true, self.bounds = function, function.bounds
        self.noise, self.generator = noise, torch.Generator().manual_seed(seed)

    def __call__(self, X: Tensor) -> Tensor:
        """Values of `n x d` points, `n`."""
        Y = self.true(X)
        noise = torch.randn(len(Y), generator=self.generator, dtype=torch.float64)
        return Y + self.noise * noise


def zakharov(X: Tensor) -> Tensor:
    """Zakharov's function of `n x d` points, `n`: one direction is steep."""
    steep = (0.5 * torch.arange(1, X.shape[-1] + 1) * X).sum(-1)
    return X.square().sum(-1) + steep**2 + steep**4


def ellipsoid(X: Tensor) -> Tensor:
    """A quadratic function of `n x d` points whose condition is 10^6, `n`."""
    weights = 10 ** torch.linspace(0, 6, X.shape[-1], dtype=torch.float64)
    return (weights * X.square()).sum(-1)


@dataclass(frozen=True)
class Problem:
    """A function and how often it is evaluated.

    Attributes:
        make: From a seed to the function, which has `bounds`, `2 x d`, and may have
            `discrete_dims` or `cat_dims`.
        total: Evaluations.
        digits: Of its values in tables.
    """

    make: Callable[[int], Any]
    total: int = 10_000
    digits: int = 4


def noisy_hartmann(noise: float) -> Problem:
    """Hartmann's function of six features, whose values reach from -3.3 to 0."""
    return Problem(lambda seed: Noisy(Hartmann(), noise, seed), 1000)


WIDE = [(-5.0, 10.0)] * 20  # the optimum is not in the middle
FAR = [(-1e3, 1e3)] * 20  # a moved function is asked for what is outside of its box
PROBLEMS = {
    "ackley20": Problem(lambda _: Ackley(dim=20, bounds=WIDE)),
    "levy20": Problem(lambda _: Levy(dim=20, bounds=WIDE)),
    "hartmann6": Problem(lambda _: Hartmann()),
    "rosenbrock20": Problem(
        lambda _: Moved(
            Rosenbrock(dim=20, bounds=FAR), 20, minimum=1.0, is_rotated=False
        )
    ),
    "rosenbrock20-rotated": Problem(
        lambda _: Moved(Rosenbrock(dim=20, bounds=FAR), 20, minimum=1.0)
    ),
    "zakharov20": Problem(lambda _: Moved(zakharov, 20)),
    "ellipsoid20": Problem(lambda _: Moved(ellipsoid, 20)),
    "rastrigin20": Problem(lambda _: Moved(Rastrigin(dim=20, bounds=FAR), 20)),
    "griewank20": Problem(
        lambda _: Moved(Griewank(dim=20, bounds=FAR), 20, radius=100.0)
    ),
    "noisy-levy10": Problem(
        lambda seed: Noisy(
            Moved(Levy(dim=10, bounds=FAR[:10]), 10, minimum=1.0), 1.0, seed
        )
    ),
    "noisy-hartmann6-0.1": noisy_hartmann(0.1),
    "noisy-hartmann6-0.5": noisy_hartmann(0.5),
    "noisy-hartmann6-1": noisy_hartmann(1.0),
    "rover60": Problem(lambda _: Rover(), digits=3),
    "swimmer16": Problem(Swimmer, total=1000, digits=1),
    "ackley-binary": Problem(lambda _: BinaryAckley(), total=1000),
    "pest-control": Problem(lambda _: PestControl(), total=1000, digits=2),
    "labs50": Problem(lambda _: LowAutocorrelation(), total=1000, digits=3),
}
