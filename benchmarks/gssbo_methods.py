"""The methods of the benchmark of GSSBO, each from a problem to a run."""

import time
from collections.abc import Callable
from typing import Any

import torch
from botorch.models.transforms import Normalize
from botorch.utils.transforms import unnormalize
from torch import Tensor

from benchmarks.gssbo_baselines import (
    BETA,
    LANDMARKS,
    OPTIMIZER_OPTIONS,
    REFIT_GROWTH,
    Loop,
    matern,
)
from benchmarks.gssbo_problems import NUM_INITIAL, Problem
from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.models import (
    RefitSchedule,
    SparseSingleTaskGP,
    SubsetSingleTaskGP,
)
from botorch_sparse.strategies import BBKB, GSSBO, RSSBO, Strategy
from botorch_sparse.strategies.model_building import ModelBuilder

# About what Z = 4 gave the authors; the model sizes of all methods but two.
SUBSET_SIZE = 100
READINGS = ("contribution", "column", "scalar")
Run = dict[str, Any]


class MaternBuilder(ModelBuilder):
    """The models of BBKB with the kernel that all others have."""

    def _model(
        self, X: Tensor, Y: Tensor, inducing_points: Tensor
    ) -> SparseSingleTaskGP:
        bounds, dim = self.bounds, self.bounds.shape[-1]
        return SparseSingleTaskGP(
            X,
            Y,
            covar_module=matern(dim),
            input_transform=Normalize(dim, bounds=bounds, learn_bounds=False),
            inducing_points=inducing_points,
        )


def common(problem: Problem) -> dict[str, Any]:
    """What all strategies are given."""
    return {
        "bounds": problem.bounds,
        "radius": FixedBeta(BETA),
        "refit": RefitSchedule(growth=REFIT_GROWTH),
        "num_initial": NUM_INITIAL,
        "optimizer_options": OPTIMIZER_OPTIONS,
        "seed": problem.seed,
    }


def make_bbkb(problem: Problem) -> BBKB:
    """BBKB, in batches of its own size."""
    strategy = BBKB(**common(problem))
    source = strategy.surrogate.source
    source.builder = MaternBuilder(source.builder.bounds, None, None)
    return strategy


def make_mini_meta(problem: Problem) -> BBKB:
    """mini-META."""
    strategy = BBKB(**common(problem), repeat="until-uncertainty-halves")
    source = strategy.surrogate.source
    source.builder = MaternBuilder(source.builder.bounds, None, None)
    return strategy


def make_selection(selection: str) -> Callable[[Problem], GSSBO]:
    """GSSBO of a selection."""
    return lambda problem: GSSBO(
        **common(problem), subset_size=SUBSET_SIZE, selection=selection
    )


def make_all(problem: Problem) -> GSSBO:
    """GP-UCB with the code of GSSBO."""
    return GSSBO(**common(problem), subset_size=None)


class SampleClock:
    """A clock on which an iteration takes time in proportion to its samples.

    On the clock of a machine M depends on the machine, and on what else it does. On
    this one Z = 2, 4, 6, 8 give about M = 50, 100, 150, 200: with Z = 4 what the
    authors report.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.strategy: GSSBO | None = None

    def __call__(self) -> float:
        self.now += len(self.strategy.history) if self.strategy else 0
        return self.now


def make_gssbo(reading: str) -> Callable[[Problem], GSSBO]:
    """GSSBO of a reading."""
    return lambda problem: GSSBO(
        **common(problem), subset_size=SUBSET_SIZE, reading=reading
    )


def make_rssbo(problem: Problem) -> RSSBO:
    """RSSBO."""
    return RSSBO(**common(problem), subset_size=SUBSET_SIZE)


def make_dynamic(
    cls: type[GSSBO], Z: float, *, by_machine: bool
) -> Callable[[Problem], GSSBO]:
    """With the dynamic buffer.

    Args:
        cls: `GSSBO` or `RSSBO`.
        Z: Its factor.
        by_machine: Whether the clock is that of this process, or a `SampleClock`.
    """

    def make(problem: Problem) -> GSSBO:
        clock = SampleClock()
        strategy = cls(
            **common(problem), Z=Z, clock=time.process_time if by_machine else clock
        )
        clock.strategy = strategy
        return strategy

    return make


def earliest(
    model: SubsetSingleTaskGP, num: int, forced: Tensor, generator: torch.Generator
) -> Tensor:
    """The first samples, as a control."""
    rows = torch.arange(model.num_observations, device=forced.device)
    others = rows[~torch.isin(rows, forced)]
    return torch.cat([forced, others[: num - len(forced)]])


def make_earliest(problem: Problem) -> GSSBO:
    """A model of the first samples and the newest one."""
    return GSSBO(**common(problem), subset_size=SUBSET_SIZE, selection=earliest)


FACTORS = (2, 4, 6, 8)
STRATEGIES: dict[str, Callable[[Problem], Strategy]] = {
    **{f"gssbo-{r}": make_gssbo(r) for r in READINGS},
    **{f"gssbo-{s}": make_selection(s) for s in ("mixed", "leverage", "recent")},
    "mini-meta": make_mini_meta,
    "rssbo": make_rssbo,
    "gssbo-all": make_all,
    "earliest": make_earliest,
    "bbkb": make_bbkb,
    "gssbo-z4": make_dynamic(GSSBO, 4, by_machine=True),
    **{f"gssbo-Z={Z}": make_dynamic(GSSBO, Z, by_machine=False) for Z in FACTORS},
    "rssbo-Z=4": make_dynamic(RSSBO, 4, by_machine=False),
}
METHODS = (
    *(f"gssbo-{r}" for r in READINGS),
    "rssbo",
    "gp-ucb",
    "gssbo-z4",
    "bbkb",
    *(name for name in LANDMARKS if name != "gp-ucb"),
)


def run(name: str, problem: Problem, total: int) -> Run:
    """Regret and seconds of each evaluation of a method."""
    if name in STRATEGIES:
        return run_strategy(STRATEGIES[name](problem), problem, total)
    return run_loop(Loop(problem, LANDMARKS[name], SUBSET_SIZE), total)


def run_strategy(strategy: Strategy, problem: Problem, total: int) -> Run:
    """A strategy that is told the initial design."""
    X = problem.initial()
    times = Times()
    times.add(len(X), strategy.tell, X, problem.evaluate(X))
    while len(strategy.history) < total:
        batch = times.add(0, strategy.ask, total - len(strategy.history))
        times.add(len(batch), strategy.tell, batch, problem.evaluate(batch.X))
    history = strategy.history
    return {
        "regret": problem.regret(history.Y),
        "cpu": times.cpu,
        "wall": times.wall,
        "size": int(history.num_inducing[-1]),
        "selection": getattr(history, "selection_seconds", 0.0),
        "asks": len(history.batches),
    }


def run_loop(loop: Loop, total: int) -> Run:
    """A loop of BoTorch's parts."""
    cpu = wall = [0.0] * NUM_INITIAL
    while len(loop.X) < total:
        seconds = loop.step()
        cpu, wall = [*cpu, seconds[0]], [*wall, seconds[1]]
    size = total if loop.landmarks is None else min(loop.num, total)
    regret = loop.problem.regret(loop.Y)
    return {
        "regret": regret,
        "cpu": cpu,
        "wall": wall,
        "size": size,
        "failed_fits": loop.num_failed,
    }


class Times:
    """CPU and wall seconds of each evaluation, shared out over those of a batch."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self._open = (0.0, 0.0)

    def add(self, num: int, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function, and charge `num` evaluations with it and those before."""
        cpu, wall = time.process_time(), time.perf_counter()
        result = function(*args)
        c, w = self._open
        c, w = c + time.process_time() - cpu, w + time.perf_counter() - wall
        self._open = (c, w) if num == 0 else (0.0, 0.0)
        self.cpu += [c / max(1, num)] * num
        self.wall += [w / max(1, num)] * num
        return result


def points_of(loop: Loop) -> Tensor:
    """The points of a loop in the problem's own units, `n x d`."""
    return unnormalize(loop.X, loop.problem.bounds)


def seconds_per_evaluation(run: Run, start: int, stop: int) -> float:
    """Mean CPU seconds over some of the evaluations."""
    return float(torch.tensor(run["cpu"][start:stop]).mean())
