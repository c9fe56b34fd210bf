"""Ten thousand evaluations on a box: ours, CMA-ES, TPE and random search.

Each run is kept in a JSON file as soon as it has gone further, with the state of
nothing: a run that was broken off begins anew. Seconds are CPU seconds of the method,
without the objective. All problems are minimized.

`python -m benchmarks.boxes --store FILE.json --problems ackley20 --total 2000`
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from botorch.test_functions import Ackley, Hartmann, Levy
from torch import Tensor

from benchmarks.store import read_json, write_whole
from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.strategies import BBKB, RandomSearch, Strategy, TrustRegion

BATCH_SIZE = 20
AT = (200, 500, 1000, 2000, 5000, 10000)
Objective = Callable[[Tensor], Tensor]


class Rover:
    r"""The trajectory problem of Wang et al. (2018), in 60 dimensions, to minimize.

    Thirty points of the plane are control points of a B-spline of degree three that
    is clamped at its ends. The cost is

    .. math:: \int c(x(t)) \, |x'(t)| \, dt
        + 10 (\lVert x_{1,2} - s \rVert_1 + \lVert x_{59,60} - g \rVert_1) - 5

    with 20 for each unit of length inside of an obstacle, and 0.05 elsewhere. The
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


def ackley() -> Any:
    """On a box whose middle is not the optimum."""
    return Ackley(dim=20, bounds=[(-5.0, 10.0)] * 20)


PROBLEMS: dict[str, Callable[[], Any]] = {
    "ackley20": ackley,
    "levy20": lambda: Levy(dim=20, bounds=[(-5.0, 10.0)] * 20),
    "hartmann6": lambda: Hartmann(),
    "rover60": Rover,
}


class Run:
    """What a method was told, and what it took.

    Args:
        objective: From `n x d` points to `n` values.
        bounds: `2 x d`.
        total: Evaluations.
        seed: Of the method.
    """

    def __init__(
        self, objective: Objective, bounds: Tensor, total: int, seed: int
    ) -> None:
        self.objective, self.bounds = objective, bounds.double()
        self.total, self.seed = total, seed
        self.values: list[float] = []
        self.seconds: list[float] = []  # after each value
        self._clock = time.process_time()
        self._spent = 0.0

    @property
    def is_over(self) -> bool:
        """Whether there are no evaluations left."""
        return len(self.values) >= self.total

    def evaluate(self, X: Tensor) -> Tensor:
        """Values of `n x d` points; the method's clock stands still."""
        self._spent += time.process_time() - self._clock
        with torch.no_grad():
            Y = self.objective(X).double().flatten()
        self.values += Y.tolist()
        self.seconds += [self._spent] * len(Y)
        self._clock = time.process_time()
        return Y


def by_strategy(make: Callable[..., Strategy]) -> Callable[[Run], None]:
    """A method that asks and tells one of ours."""

    def run(run: Run) -> None:
        strategy = make(bounds=run.bounds, seed=run.seed, minimize=True)
        while not run.is_over:
            batch = strategy.ask(min(BATCH_SIZE, run.total - len(run.values)))
            strategy.tell(batch, run.evaluate(batch.X))

    return run


def by_cma(run: Run) -> None:
    """CMA-ES in the unit cube, begun again from a random point where it ends."""
    import cma

    g = torch.Generator().manual_seed(run.seed)
    low, high = run.bounds
    attempt = 0
    while not run.is_over:
        start = torch.rand(len(low), generator=g, dtype=torch.float64).numpy()
        options = {
            "bounds": [0, 1],
            "popsize": BATCH_SIZE,
            "seed": 1000 * attempt + run.seed + 1,
            "verbose": -9,
        }
        search, attempt = cma.CMAEvolutionStrategy(start, 0.3, options), attempt + 1
        while not search.stop() and not run.is_over:
            Z = search.ask()
            X = low + (high - low) * torch.stack([torch.from_numpy(z) for z in Z])
            search.tell(Z, run.evaluate(X).tolist())


def by_tpe(run: Run) -> None:
    """Optuna's tree-structured Parzen estimator, batches by constant liar."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    sampler = optuna.samplers.TPESampler(
        seed=run.seed, multivariate=True, constant_liar=True
    )
    study = optuna.create_study(sampler=sampler)
    space = {
        f"x{i}": optuna.distributions.FloatDistribution(low, high)
        for i, (low, high) in enumerate(run.bounds.mT.tolist())
    }
    while not run.is_over:
        trials = [study.ask(space) for _ in range(BATCH_SIZE)]
        X = [[trial.params[name] for name in space] for trial in trials]
        Y = run.evaluate(torch.tensor(X, dtype=torch.float64))
        for trial, y in zip(trials, Y.tolist(), strict=True):
            study.tell(trial, y)


def bbkb(**given: Any) -> Strategy:
    """The strategy for boxes with a regret bound."""
    return BBKB(**given, radius=FixedBeta(4.0), batch_size=BATCH_SIZE)


def trust_region(**given: Any) -> Strategy:
    """Ours, one region."""
    return TrustRegion(**given, batch_size=BATCH_SIZE)


def trust_regions(**given: Any) -> Strategy:
    """Ours, five regions."""
    return TrustRegion(**given, batch_size=BATCH_SIZE, num_regions=5)


def trust_region_ucb(**given: Any) -> Strategy:
    """Ours by the bound."""
    return TrustRegion(**given, batch_size=BATCH_SIZE, acquisition="ucb")


def random_search(**given: Any) -> Strategy:
    """The yardstick."""
    return RandomSearch(**given, batch_size=BATCH_SIZE)


METHODS: dict[str, Callable[[Run], None]] = {
    "trust-region": by_strategy(trust_region),
    "trust-region-5": by_strategy(trust_regions),
    "trust-region-ucb": by_strategy(trust_region_ucb),
    "bbkb": by_strategy(bbkb),
    "random": by_strategy(random_search),
}
if find_spec("cma"):
    METHODS["cma-es"] = by_cma
if find_spec("optuna"):
    METHODS["tpe"] = by_tpe


def read(store: Path | None) -> dict[str, Any]:
    """The runs in a file; none if there is no file."""
    held: dict[str, Any] = {} if store is None else read_json(store)
    return held


def add(store: Path | None, key: str, run: dict[str, Any]) -> None:
    """Write a run beside those that the file has now, whole or not at all."""
    if store is not None:
        write_whole(store, json.dumps(read(store) | {key: run}))


def execute(problem: str, method: str, seed: int, total: int) -> dict[str, Any]:
    """One run: the best values so far and seconds, one in twenty, and the end."""
    f = PROBLEMS[problem]()
    run = Run(f, f.bounds, total, seed)
    METHODS[method](run)
    best = torch.tensor(run.values[:total]).cummin(0).values.tolist()
    kept = [*range(BATCH_SIZE - 1, total - 1, BATCH_SIZE), total - 1]
    return {
        "total": total,
        "at": [i + 1 for i in kept],
        "best": [best[i] for i in kept],
        "seconds": [run.seconds[i] for i in kept],
        "versions": {"torch": torch.__version__, "threads": torch.get_num_threads()},
    }


def cells(runs: list[dict[str, Any]], total: int) -> Iterator[str]:
    """Medians over seeds at some numbers of evaluations; how the time grows."""
    for at in (*(n for n in AT if n < total), total):
        place = [max(i for i, n in enumerate(r["at"]) if n <= at) for r in runs]
        best = [r["best"][i] for r, i in zip(runs, place, strict=True)]
        seconds = [r["seconds"][i] for r, i in zip(runs, place, strict=True)]
        yield f"{statistics.median(best):.3f} ({statistics.median(seconds):.3g} s)"


def report(held: dict[str, Any], problems: list[str], total: int) -> str:
    """Markdown: best value (CPU seconds) by evaluations, one table for a problem."""
    lines = list[str]()
    ends = [f"at {n}" for n in (*(n for n in AT if n < total), total)]
    for problem in problems:
        lines += ["", f"### {problem}", f"| method | seeds | {' | '.join(ends)} |"]
        lines.append("|---" * (len(ends) + 2) + "|")
        for method in METHODS:
            keys = [k for k in held if k.startswith(f"{problem}/{method}/")]
            runs = [held[k] for k in keys if held[k]["total"] == total]
            if runs:
                row = " | ".join(cells(runs, total))
                lines.append(f"| {method} | {len(runs)} | {row} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run what is not stored yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--total", type=int, default=10_000)
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    args = parser.parse_args(arguments)
    held = read(args.store)
    for problem in args.problems:
        for seed in range(args.seeds):
            for method in args.methods:
                key = f"{problem}/{method}/{seed}/{args.total}"
                if key in held:
                    continue
                held[key] = execute(problem, method, seed, args.total)
                add(args.store, key, held[key])
                last = held[key]
                print(
                    f"{key}: {last['best'][-1]:.4f}, {last['seconds'][-1]:.1f} CPU s",
                    flush=True,
                )
    print(report(held, args.problems, args.total))


if __name__ == "__main__":
    main()
