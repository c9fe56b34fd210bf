"""What the demo runs on a table, and how it tells what came of it.

`find_best` is the main job: no kernel is told, each row is evaluated once. `compare` is
the setting of the experiments of [Calandriello2020]_: RBF kernel of fixed lengthscale,
prior mean zero, regularizer and noise variance 1e-4, RKHS norm bound 1, delta = 1/T,
oversampling 2, ratio threshold 2. In both the feedback is the target, scaled to [0, 1],
plus N(0, 0.01^2).

References:
    .. [Calandriello2020]
        D. Calandriello, L. Carratino, A. Lazaric, M. Valko and L. Rosasco.
        Near-linear time Gaussian process optimization with adaptive batching and
        resparsification. ICML 2020.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError
from gpytorch.kernels import Kernel, RBFKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_sparse.demo import Table
from botorch_sparse.strategies import (
    BBKB,
    GPUCB,
    History,
    RandomSearch,
    StopAfter,
    Strategy,
    ThompsonSampling,
)

GP_UCB, THOMPSON, RANDOM = "GP-UCB", "Thompson sampling", "random search"
METHODS = {"bbkb": "BBKB", "thompson": THOMPSON, "gp-ucb": GP_UCB, "random": RANDOM}
PAPER_METHODS = {
    "bbkb-global": "BBKB global",
    "bbkb": "BBKB global-local",
    "gp-ucb": GP_UCB,
    "random": RANDOM,
}


def chosen_names(methods: Sequence[str], *, paper: bool) -> list[str]:
    """The strategies that short names mean, all if there are none.

    Raises:
        InputDataError: If a name is none of the setting's.
    """
    known = PAPER_METHODS if paper else METHODS
    if unknown := [method for method in methods if method not in known]:
        raise InputDataError(
            f"--methods: there is no {unknown[0]!r} {'with' if paper else 'without'} "
            f"--paper; choose from {', '.join(known)}."
        )
    return [known[method] for method in methods or known]


LAM = 1e-4
NOISE_SD = 0.01
LENGTHSCALES = {"abalone": 17.5, "california_housing": 12.5}  # [Calandriello2020]_
Histories = dict[str, History]
Strategies = dict[str, Callable[[], Strategy]]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while strategies ran, with the histories that are finished."""

    def __init__(self, finished: Histories) -> None:
        super().__init__()
        self.finished = finished


def find_best(
    table: Table,
    *,
    num_evaluations: int,
    batch_size: int = 20,
    gp_seconds: float = 20.0,
    seed: int = 0,
    progress: bool = True,
    methods: Sequence[str] = (),
    checkpoint: Path | None = None,
) -> Histories:
    """Look for the best row with BBKB, Thompson sampling, GP-UCB and random search.

    All evaluate a row at most once. None is told a kernel.

    Args:
        table: The candidates and the function's values, `A` rows.
        num_evaluations: Evaluations `T` of each strategy; fewer where rows run out.
        batch_size: Points in each batch; GP-UCB takes them one at a time.
        gp_seconds: GP-UCB, at O(A t) to O(A t^2) per evaluation, stops after the one
            in which this time is over.
        seed: Seed of the strategies and of the noise of the feedback.
        progress: Whether to show progress bars.
        methods: Names of the strategies to run; none for all.
        checkpoint: A file for the state of one strategy after each batch, from which
            it goes on if it is there.

    Returns:
        The history of each strategy by its name.

    Raises:
        Interrupted: After Ctrl-C, with the histories that are finished.
    """
    X = table.candidates
    strategies: Strategies = {
        "BBKB": lambda: BBKB(X, batch_size=batch_size, seed=seed),
        THOMPSON: lambda: ThompsonSampling(X, batch_size=batch_size, seed=seed),
        GP_UCB: lambda: GPUCB(X, seed=seed),
        RANDOM: lambda: RandomSearch(X, batch_size=batch_size, unique=True, seed=seed),
    }
    setting = RunSetting(num_evaluations, gp_seconds, seed, progress, checkpoint)
    return _run_all(strategies, table, methods, setting)


def compare(
    table: Table,
    *,
    num_evaluations: int,
    lengthscale: float,
    gp_seconds: float = 20.0,
    seed: int = 0,
    progress: bool = True,
    methods: Sequence[str] = (),
    checkpoint: Path | None = None,
) -> Histories:
    """Run BBKB with both termination rules, GP-UCB and random search on a table.

    Rows may be evaluated again; random search draws with replacement.

    The RBF kernel's `lengthscale` is in standard deviations of the features. The other
    arguments, the result and the error are as in `find_best`.
    """
    shared: dict[str, Any] = {"candidates": table.candidates, "seed": seed}
    gp: dict[str, Any] = shared | {
        "covar_module": _kernel(table, lengthscale),
        "mean_module": ZeroMean(),
        "lam": LAM,
        "noise_variance": LAM,
        "norm_bound": 1.0,
        "delta": 1.0 / max(num_evaluations, 2),
    }
    sparse = gp | {"oversampling": 2.0, "ratio_threshold": 2.0}
    strategies: Strategies = {
        "BBKB global": lambda: BBKB(**sparse, termination="global"),
        "BBKB global-local": lambda: BBKB(**sparse, termination="global-local"),
        GP_UCB: lambda: GPUCB(**gp),
        RANDOM: lambda: RandomSearch(**shared),
    }
    setting = RunSetting(num_evaluations, gp_seconds, seed, progress, checkpoint)
    return _run_all(strategies, table, methods, setting)


@dataclass(frozen=True)
class RunSetting:
    """How each strategy is run; see `find_best`."""

    num_evaluations: int
    gp_seconds: float
    seed: int
    progress: bool
    checkpoint: Path | None


def _run_all(
    strategies: Strategies, table: Table, methods: Sequence[str], setting: RunSetting
) -> Histories:
    names = [name for name in strategies if name in methods or not methods]
    built = {name: strategies[name]() for name in names}
    finished: Histories = {}
    try:
        for name in names:
            finished[name] = _run(name, built[name], table, setting)
    except KeyboardInterrupt as error:
        raise Interrupted(finished) from error
    return finished


def _run(name: str, strategy: Strategy, table: Table, setting: RunSetting) -> History:
    """One strategy, from its checkpoint on if there is one."""
    path = setting.checkpoint
    if path is not None and path.exists():
        strategy.resume(path)
    return strategy.run(
        noisy_rows(table, setting.seed, told=strategy.history.batch_number),
        num_evaluations=setting.num_evaluations,
        progress=setting.progress,
        by_index=True,
        checkpoint=path,
        callbacks=[StopAfter(setting.gp_seconds)] if name == GP_UCB else [],
    )


def noisy_rows(
    table: Table, seed: int, *, told: Tensor | None = None
) -> Callable[[Tensor], Tensor]:
    """Feedback at `b` rows of the table: its target plus N(0, 0.01^2).

    The noise goes on after the batches that `n` evaluations were `told` in before.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=table.Y.dtype)

    def objective(indices: Tensor) -> Tensor:
        return table.known_values(indices) + NOISE_SD * noise(len(indices)).to(table.Y)

    if told is not None:
        for size in told.unique_consecutive(return_counts=True)[1].tolist():
            noise(size)
    return objective


def default_lengthscale(table: Table) -> float:
    """The papers' lengthscales; 12.5 sqrt(d / 8) for a table of `d` other features.

    Distances between standardized rows grow as sqrt(d), and 12.5 is the papers' value
    for the 8 features of california_housing.
    """
    d = table.X.shape[-1]
    return LENGTHSCALES.get(table.name, 12.5 * math.sqrt(d / 8))


def _kernel(table: Table, lengthscale: float) -> Kernel:
    kernel = RBFKernel().to(table.X)
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


@dataclass(frozen=True)
class Outcome:
    """One run: seconds of `ask` and `tell`, batches, inducing points in the end.

    The best value has no noise, and its rank is among all rows, 1 for the best. Regret
    is cumulative, over the regret expected of uniform choice.
    """

    evaluations: float
    seconds: float
    rounds: float
    inducing: float
    best: float
    rank: float
    regret: float

    @classmethod
    def of(cls, history: History, table: Table) -> "Outcome":
        """The outcome of a run on the rows of a table."""
        rows = history.indices
        return cls(
            evaluations=len(history.Y),
            seconds=history.seconds,
            rounds=len(history.batches),
            inducing=history.batches[-1].num_inducing,
            best=table.values(rows).max().item(),
            rank=int(table.best_rank(rows)[-1]),
            regret=table.regret_ratio(rows)[-1].item(),
        )

    @classmethod
    def median(cls, outcomes: Sequence["Outcome"]) -> "Outcome":
        """Median of each number."""
        columns = zip(*(vars(o).values() for o in outcomes), strict=True)
        return cls(*map(statistics.median, columns))


def format_table(runs: Sequence[Histories], table: Table) -> str:
    """One line per strategy: cost, sizes and quality; medians of several seeds."""
    head = "method,evaluations,seconds,rounds,inducing,best,rank,regret".split(",")
    lines = ["{:<18}{:>12}{:>9}{:>8}{:>10}{:>8}{:>7}{:>8}".format(*head)]
    for name in runs[0]:
        o = Outcome.median([Outcome.of(run[name], table) for run in runs])
        inducing = f"{o.inducing:g}" if o.inducing else "-"
        lines.append(
            f"{name:<18}{o.evaluations:>12g}{o.seconds:>9.2f}{o.rounds:>8g}"
            f"{inducing:>10}{o.best:>8.3f}{o.rank:>7g}{o.regret:>8.3f}"
        )
    return "\n".join(lines)


def format_seeds(runs: Sequence[Histories], table: Table) -> str:
    """The best row's rank for each seed, and how often it beats random search."""
    lines = ["rank of the best row, seed by seed:"]
    ranks = {
        name: [int(table.best_rank(run[name].indices)[-1]) for run in runs]
        for name in runs[0]
    }
    for name, values in ranks.items():
        lines.append(f"{name:<18}" + "".join(f"{value:>6}" for value in values))
    if RANDOM not in ranks:
        return "\n".join(lines)
    wins = [
        f"{name} on {sum(a < b for a, b in zip(values, ranks[RANDOM], strict=True))}"
        for name, values in ranks.items()
        if name != RANDOM
    ]
    lines.append(f"better than random search, of {len(runs)} seeds: {', '.join(wins)}")
    return "\n".join(lines)
