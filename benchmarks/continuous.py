"""BBKB on continuous domains against BoTorch's own UCB loop with the exact GP.

Both maximize the same bound with the same settings of `optimize_acqf`, infer the same
hyperparameters every ten evaluations, and begin with the same Sobol points; the exact
loop takes one point at a time. Regret is that of the noise-free function. Runs are kept
in a JSON file, so that a long benchmark can be run in pieces.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from botorch import fit_gpytorch_mll
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin, Hartmann, Levy, SyntheticTestFunction
from botorch.utils.sampling import draw_sobol_samples, manual_seed
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import BBKB

BETA = 4.0
REFIT_EVERY = 10
OPTIONS: dict[str, Any] = {"num_restarts": 4, "raw_samples": 256}
# Standard deviation of the noise, about 5% of the function's over its domain.
PROBLEMS: dict[str, tuple[Callable[..., SyntheticTestFunction], float]] = {
    "branin": (lambda **k: Branin(**k), 2.5),
    "hartmann6": (lambda **k: Hartmann(dim=6, **k), 0.02),
    "levy20": (lambda **k: Levy(dim=20, **k), 2.0),
}
# 97.5% quantile of Student's t, by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262}


class Problem:
    """A test function to maximize, its noise drawn from a seed."""

    def __init__(self, name: str, seed: int) -> None:
        make, self.noise = PROBLEMS[name]
        self.function = make(negate=True).to(dtype=torch.float64)
        self.bounds = self.function.bounds.double()
        self.seed = seed
        self._generator = torch.Generator().manual_seed(1000 + seed)

    def initial(self, num: int) -> Tensor:
        """Sobol points, `num x d`."""
        return draw_sobol_samples(self.bounds, n=num, q=1, seed=self.seed).squeeze(1)

    def evaluate(self, X: Tensor) -> Tensor:
        """Noisy values, `n x 1`."""
        f = self.function(X).unsqueeze(-1)
        noise = torch.randn(f.shape, generator=self._generator, dtype=f.dtype)
        return f + self.noise * noise

    def regret(self, X: Tensor) -> list[float]:
        """Regret of each evaluation, in their order."""
        return (self.function.optimal_value - self.function(X)).tolist()


def make_bbkb(problem: Problem, num_inducing: int | None = None) -> BBKB:
    """The strategy under test, with the same number of inducing points if given."""
    strategy = BBKB(
        bounds=problem.bounds,
        radius=FixedBeta(BETA),
        refit=RefitSchedule(every=REFIT_EVERY),
        num_initial=1,
        oversampling=2.0 if num_inducing is None else 1e9,
        optimizer_options=OPTIONS,
        seed=problem.seed,
    )
    if num_inducing is not None:
        strategy.surrogate = replace(
            strategy.surrogate, exact_size=num_inducing, max_inducing=num_inducing
        )
    return strategy


def run_bbkb(
    problem: Problem, num_initial: int, total: int, num_inducing: int | None = None
) -> dict[str, Any]:
    """Regret and seconds after each evaluation, batch sizes, inducing points."""
    strategy = make_bbkb(problem, num_inducing)
    X = problem.initial(num_initial)
    start = time.process_time()
    strategy.tell(X, problem.evaluate(X))
    seconds = [(time.process_time() - start) / num_initial] * num_initial
    while len(seconds) < total:
        start = time.process_time()
        batch = strategy.ask(total - len(seconds))
        strategy.tell(batch, problem.evaluate(batch.X))
        each = (time.process_time() - start) / len(batch)
        seconds += [each] * len(batch)
    return {
        "regret": problem.regret(strategy.history.X),
        "seconds": seconds,
        "sizes": [b.size for b in strategy.history.batches],
        "num_inducing": [b.num_inducing for b in strategy.history.batches],
    }


class ExactLoop:
    """BoTorch's UCB loop: SingleTaskGP, one point at a time."""

    def __init__(self, problem: Problem, X: Tensor, Y: Tensor) -> None:
        self.problem, self.X, self.Y = problem, X, Y
        self.state: dict[str, Tensor] | None = None
        self.fitted = 0

    def step(self) -> tuple[float, float]:
        """Fit where due, and evaluate one more point; seconds for both parts."""
        start = time.process_time()
        model = SingleTaskGP(
            self.X,
            self.Y,
            input_transform=Normalize(self.X.shape[-1], bounds=self.problem.bounds),
        )
        if self.state is not None:
            for name, parameter in model.named_parameters():
                parameter.data.copy_(self.state[name])
        fit_start = time.process_time()
        with manual_seed(len(self.X)):
            if self.state is None or len(self.X) >= self.fitted + REFIT_EVERY:
                mll = ExactMarginalLogLikelihood(model.likelihood, model)
                fit_gpytorch_mll(mll)
                self.fitted = len(self.X)
            self.state = {k: p.detach() for k, p in model.named_parameters()}
            fit_seconds = time.process_time() - fit_start
            model.eval()
            acqf = UpperConfidenceBound(model, BETA)
            x, _ = optimize_acqf(acqf, bounds=self.problem.bounds, q=1, **OPTIONS)
        seconds = time.process_time() - start - fit_seconds
        self.X = torch.cat([self.X, x])
        self.Y = torch.cat([self.Y, self.problem.evaluate(x)])
        return seconds, fit_seconds


def run_exact(problem: Problem, num_initial: int, total: int) -> dict[str, Any]:
    """Regret and seconds after each evaluation."""
    X = problem.initial(num_initial)
    loop = ExactLoop(problem, X, problem.evaluate(X))
    seconds = [0.0] * num_initial
    while len(loop.X) < total:
        seconds.append(sum(loop.step()))
    return {"regret": problem.regret(loop.X), "seconds": seconds}


def run_large(problem: Problem, size: int, steps: int) -> dict[str, Any]:
    """Seconds per evaluation from `size` points on, for both."""
    X = problem.initial(size)
    Y = problem.evaluate(X)
    loop = ExactLoop(problem, X, Y)
    loop.step()  # a first fit, from scratch, that neither is charged with
    loop.fitted = 0
    exact = [loop.step() for _ in range(steps)]
    step = statistics.mean(seconds for seconds, _ in exact)
    fit = max(seconds for _, seconds in exact)
    strategy = make_bbkb(problem)
    strategy.tell(X, Y)
    start = time.process_time()
    strategy.run(problem.evaluate, size + 2 * REFIT_EVERY, progress=False)
    ours = (time.process_time() - start) / (2 * REFIT_EVERY)
    m = strategy.history.num_inducing.tolist()
    return {"exact": step + fit / REFIT_EVERY, "ours": ours, "num_inducing": m}


def interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95% interval."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, float("nan")
    t = STUDENT.get(len(values) - 1, 1.96)
    return mean, t * statistics.stdev(values) / len(values) ** 0.5


def report(name: str, runs: dict[str, dict[str, Any]], seeds: int, at: int) -> None:
    """Print the figures of one problem."""
    values: dict[str, list[list[float]]] = {}
    for method in ("bbkb", "exact"):
        done = [runs[k] for s in range(seeds) if (k := f"{name}/{method}/{s}") in runs]
        values[method] = [
            [sum(r["regret"][:at]) for r in done],
            [min(r["regret"][:at]) for r in done],
            [sum(r["seconds"][:at]) for r in done],
        ]
    for i, what in enumerate(("cumulative regret", "simple regret", "seconds")):
        cells = []
        for method, columns in values.items():
            if columns[i]:
                mean, half = interval(columns[i])
                cells.append(f"{method} {mean:.4g} +- {half:.2g}")
        print(f"  {what} at {at}: {', '.join(cells)}")
    report_speed(name, runs, seeds)


def inducing_after(run: dict[str, Any], evaluations: int) -> int:
    """The inducing points with which the batch of an evaluation was chosen."""
    last = len(run["seconds"]) - sum(run["sizes"])
    for size, number in zip(run["sizes"], run["num_inducing"], strict=True):
        last += size
        if last >= evaluations:
            return number
    return run["num_inducing"][-1]


def report_speed(name: str, runs: dict[str, dict[str, Any]], seeds: int) -> None:
    """Print how the cost of an evaluation grows."""
    for seed in range(seeds):
        if (key := f"{name}/bbkb/{seed}") in runs:
            run = runs[key]
            n = len(run["seconds"])
            early = statistics.mean(run["seconds"][n // 10 : 3 * n // 10])
            late = statistics.mean(run["seconds"][8 * n // 10 :])
            m = [inducing_after(run, at) for at in (n // 5, 9 * n // 10)]
            print(
                f"  seed {seed}: seconds per evaluation {early:.3f} around {n // 5} "
                f"(m = {m[0]}), {late:.3f} up to {n} (m = {m[1]}): {late / early:.2f} "
                f"times; {len(run['sizes'])} batches, the last of {run['sizes'][-3:-1]}"
            )
    if (key := f"{name}/large/0") in runs:
        run = runs[key]
        print(
            f"  seconds per evaluation from {run['size']} points: exact "
            f"{run['exact']:.3f}, bbkb {run['ours']:.3f} "
            f"({run['exact'] / run['ours']:.1f} times fewer), m = "
            f"{run['num_inducing'][-1]}"
        )


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The arguments; the short mode takes small ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="sizes for a quick look")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="*", default=["bbkb", "exact", "large"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--total", type=int, default=1000)
    parser.add_argument("--exact-total", type=int, default=400)
    parser.add_argument(
        "--num-inducing",
        type=int,
        help="as many inducing points at all sizes, to compare seconds",
    )
    parser.add_argument("--large-size", type=int, default=1500)
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    args = parser.parse_args(arguments)
    if args.short:
        args.seeds, args.total, args.exact_total, args.large_size = 1, 40, 25, 200
        args.problems = ["branin"]
    return args


def main(arguments: list[str] | None = None) -> None:
    """Run what is not stored yet, and print the figures."""
    args = parse(arguments)
    runs = {}
    if args.store is not None and args.store.exists():
        runs = json.loads(args.store.read_text())
    for name in args.problems:
        num_initial = max(5, 2 * Problem(name, 0).bounds.shape[-1])
        for seed in range(args.seeds):
            for method in args.methods:
                key = f"{name}/{method}/{seed}"
                if key in runs or (method == "large" and seed > 0):
                    continue
                problem = Problem(name, seed)
                if method == "bbkb":
                    runs[key] = run_bbkb(
                        problem, num_initial, args.total, args.num_inducing
                    )
                elif method == "exact":
                    runs[key] = run_exact(problem, num_initial, args.exact_total)
                else:
                    runs[key] = run_large(problem, args.large_size, steps=3)
                    runs[key]["size"] = args.large_size
                if args.store is not None:
                    args.store.write_text(json.dumps(runs))
        print(f"{name}, beta = {BETA}, noise {PROBLEMS[name][1]}", flush=True)
        report(name, runs, args.seeds, args.exact_total)


if __name__ == "__main__":
    main()
