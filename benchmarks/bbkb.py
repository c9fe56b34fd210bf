"""BBKB on abalone and california_housing: seconds in matrix products, and regret.

The setting of [Calandriello2020]_: T = 2000, lam = noise = 1e-4, F = 1, delta = 1/T,
oversampling 2, threshold 2, practical radius. `benchmarks.authors` runs the authors'
NumPy code beside it, in the same unit.
"""

import argparse
import math
import statistics

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from scipy.stats import t as student_t

from benchmarks.measure import matmul_seconds
from botorch_sparse.demo.comparison_run import noisy_rows
from botorch_sparse.demo.datasets import Table, load_table
from botorch_sparse.strategies import BBKB, History

SETTINGS = {
    "abalone": (17.5, {"global": 4, "global-local": 8}, 0.32),
    "california_housing": (12.5, {"global": 60, "global-local": 80}, 0.06),
}


def build(
    table: Table, lengthscale: float, termination: str, seed: int, T: int
) -> BBKB:
    """The paper's strategy."""
    kernel = RBFKernel().to(table.X)
    kernel.lengthscale = lengthscale
    return BBKB(
        table.X,
        covar_module=kernel.requires_grad_(False),
        lam=1e-4,
        mean_module=ZeroMean(),
        noise_variance=1e-4,
        norm_bound=1.0,
        delta=1.0 / T,
        oversampling=2.0,
        ratio_threshold=2.0,
        termination=termination,  # type: ignore[arg-type]
        seed=seed,
    )


def run(
    table: Table, lengthscale: float, termination: str, seed: int, T: int
) -> History:
    """One run."""
    strategy = build(table, lengthscale, termination, seed, T)
    return strategy.run(noisy_rows(table, seed), T, progress=False, by_index=True)


def interval(values: list[float]) -> str:
    """Mean and the half width of its 95% interval (Student's t)."""
    quantile = student_t.ppf(0.975, len(values) - 1)
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.3f} +- {half:.3f}"


def report(name: str, seeds: int, T: int) -> None:
    """Print time and regret of both rules on one table."""
    lengthscale, most, ratio = SETTINGS[name]
    try:
        table = load_table(name)
    except InputDataError as error:
        print(f"{name}: left out, {error}")
        return
    for termination, limit in most.items():
        products, regrets, batches, asks, tells = [], [], [], [], []
        for seed in range(seeds):
            unit = matmul_seconds()
            history = run(table, lengthscale, termination, seed, T)
            products.append(history.seconds / unit)
            regrets.append(float(table.regret_ratio(history.indices)[-1]))
            batches.append(len(history.batches))
            asks.append(sum(batch.ask_seconds for batch in history.batches))
            tells.append(sum(batch.tell_seconds for batch in history.batches))
        print(
            f"{name}, {termination}: ask {statistics.median(asks):.2f} s, tell "
            f"{statistics.median(tells):.2f} s, {statistics.median(products):.1f} "
            f"matrix products (at most {limit}; {min(products):.1f} to "
            f"{max(products):.1f}), {statistics.median(batches):.0f} batches, regret "
            f"ratio {interval(regrets)} (at most {ratio})",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each table and rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=2000)
    args = parser.parse_args(arguments)
    print(f"BBKB, T = {args.evaluations}, {args.seeds} seeds, {_threads()}:")
    for name in SETTINGS:
        report(name, args.seeds, args.evaluations)


def _threads() -> str:
    return f"{torch.get_num_threads()} threads"


if __name__ == "__main__":
    main()
