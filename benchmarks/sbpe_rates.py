r"""Regret of S-BPE against its horizon N, on log-log axes [Vakili2022]_.

The paper has no experiments. Its theorem has regret
:math:`N^{(\nu + d)/(2 \nu + d)}` for Matern kernels, logarithms left out; BKB's and
GP-UCB's have :math:`N^{1/2 + d/(2 \nu + d)}`, which is no less than N where
:math:`\nu \le d/2`, so that they say nothing there.

Those are the kernels here, with functions of RKHS norm `NORM` on a grid, each a
combination of kernel columns at `NUM_CENTERS` uniform points, another one for each
seed, and Gaussian noise. S-BPE has a run of its own for each N, BBKB and GP-UCB one run
whose regret is read at each N.

Slopes are least squares over the larger half of the horizons. A theorem bounds them for
the worst function and large N; a slope of 1 is regret that does not fall.

    python -m benchmarks.sbpe_rates --store FILE.json           # goes on where it was
    python -m benchmarks.sbpe_rates --report FILE.json --plot FIGURE.png
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import MaternKernel
from gpytorch.means import ZeroMean

from benchmarks.bbkb import interval
from benchmarks.store import Store
from botorch_sparse.demo.datasets import Table
from botorch_sparse.strategies import BBKB, GPUCB, SBPE, Strategy

NORM, NOISE_SD, NUM_CENTERS = 5.0, 0.1, 30
# dim, nu, lengthscale, points of the grid in each dimension
Kernel = tuple[int, float, float, int]
KERNELS: tuple[Kernel, ...] = ((1, 0.5, 1.0, 2000), (3, 1.5, 1.0, 13))
METHODS = ("S-BPE", "S-BPE sharp", "S-BPE practical", "BBKB", "GP-UCB")
HORIZONS = (250, 500, 1000, 2000, 4000, 8000)
DEAR = {3: 4000}  # by dimension, where more inducing points make long runs dear
SEQUENTIAL = 2000  # where BBKB and GP-UCB end, which have many rounds


@dataclass(frozen=True)
class Job:
    """One run; `N` is the horizon, of a method without one the end of its run."""

    dim: int
    nu: float
    lengthscale: float
    side: int
    method: str
    N: int
    seed: int

    @property
    def key(self) -> str:
        """Its name in the file."""
        return json.dumps(asdict(self))


def matern(job: Job) -> MaternKernel:
    """The kernel of a job."""
    kernel = MaternKernel(nu=job.nu).double().requires_grad_(False)
    kernel.lengthscale = job.lengthscale
    return kernel


def function(job: Job) -> Table:
    """A function of RKHS norm `NORM` on a grid of the unit cube."""
    line = torch.linspace(0, 1, job.side, dtype=torch.float64)
    X = torch.cartesian_prod(*[line] * job.dim).view(-1, job.dim)
    generator = torch.Generator().manual_seed(job.seed)
    Z = torch.rand(NUM_CENTERS, job.dim, dtype=torch.float64, generator=generator)
    a = torch.randn(NUM_CENTERS, dtype=torch.float64, generator=generator)
    kernel = matern(job)
    a *= NORM / (a @ kernel(Z).to_dense() @ a).sqrt()
    Y = kernel(X, Z).to_dense() @ a
    names = tuple(f"x{i + 1}" for i in range(job.dim))
    return Table("matern", X, Y, names, "f")


def build(job: Job, X: torch.Tensor) -> Strategy:
    """The strategy of a job, told the norm and the noise as they are."""
    shared: dict[str, Any] = {
        "covar_module": matern(job),
        "lam": NOISE_SD**2,
        "norm_bound": NORM,
        "seed": job.seed,
    }
    options: dict[str, dict[str, Any]] = {
        "S-BPE": {"bias": "paper"},
        "S-BPE sharp": {"bias": "sharp"},
        "S-BPE practical": {"constants": "practical"},
    }
    if job.method in options:
        own = {"num_evaluations": job.N, "noise_std": NOISE_SD, "delta": 0.1}
        return SBPE(X, **shared, **own, **options[job.method])
    cls = {"BBKB": BBKB, "GP-UCB": GPUCB}[job.method]
    own = {"noise_variance": NOISE_SD**2, "delta": 1 / job.N}
    return cls(X, **shared, **own, mean_module=ZeroMean())


def run(job: Job, horizons: Sequence[int]) -> dict[str, Any]:
    """Cumulative regret at the horizons up to N, and what uniform choice has there."""
    table, noise = function(job), torch.Generator().manual_seed(1000 + job.seed)

    def objective(rows: torch.Tensor) -> torch.Tensor:
        e = torch.randn(len(rows), dtype=torch.float64, generator=noise)
        return table.Y[rows] + NOISE_SD * e

    strategy = build(job, table.X)
    history = strategy.run(objective, job.N, progress=False, by_index=True)
    lost = table.Y.max() - table.Y
    regret = lost[history.indices].cumsum(0)
    ends = [N for N in horizons if N <= job.N]
    return {
        "regret": {str(N): float(regret[N - 1]) for N in ends},
        "uniform": float(lost.mean()),
        "batches": len(history.batches),
    }


def slope(ends: Sequence[int], regret: Sequence[float]) -> float:
    """Of the least squares line on log-log axes, over the larger half."""
    half = len(ends) // 2
    return float(np.polyfit(np.log(ends[half:]), np.log(regret[half:]), 1)[0])


def ends_of(kernel: Kernel, horizons: Sequence[int]) -> list[int]:
    """The horizons of a kernel."""
    return [N for N in horizons if N <= DEAR.get(kernel[0], N)]


def jobs(kernel: Kernel, seed: int, horizons: Sequence[int]) -> Iterator[Job]:
    """All runs of a seed on one kernel, the short ones first."""
    ends = ends_of(kernel, horizons)
    for N in ends:
        for method in METHODS:
            if method.startswith("S-BPE") or N == min(ends[-1], SEQUENTIAL):
                yield Job(*kernel, method, N, seed)


def curve(store: Store, chosen: Sequence[Job]) -> dict[int, float]:
    """Regret by horizon of the runs of one method and seed that are stored."""
    found: dict[int, float] = {}
    for job in chosen:
        if job.key in store.records:
            regret = store.records[job.key]["regret"]
            if job.method.startswith("S-BPE"):
                found[job.N] = regret[str(job.N)]
            else:
                found |= {int(N): value for N, value in regret.items()}
    return dict(sorted(found.items()))


def curves(
    store: Store, kernel: Kernel, seeds: int, horizons: Sequence[int]
) -> dict[str, list[dict[int, float]]]:
    """By method, a curve for each seed whose runs are all stored."""
    found: dict[str, list[dict[int, float]]] = {}
    for method in METHODS:
        for seed in range(seeds):
            every = jobs(kernel, seed, horizons)
            chosen = [job for job in every if job.method == method]
            if chosen and all(job.key in store.records for job in chosen):
                found.setdefault(method, []).append(curve(store, chosen))
    return found


def report(
    store: Store, kernels: Sequence[Kernel], seeds: int, horizons: Sequence[int]
) -> None:
    """Print slopes, and regret over that of uniform choice at each horizon."""
    for kernel in kernels:
        dim, nu, lengthscale, side = kernel
        print(
            f"Matern, nu = {nu:g}, d = {dim}, lengthscale {lengthscale:g}, grid of "
            f"{side**dim}, norm {NORM:g}, noise {NOISE_SD:g}\n"
            f"  exponents of the theorems: S-BPE {(nu + dim) / (2 * nu + dim):.3f}, "
            f"BKB and GP-UCB {0.5 + dim / (2 * nu + dim):.3f}"
        )
        ends = ends_of(kernel, horizons)
        print(f"  {'method':<17}{'seeds':>5}  {'slope':<16}regret ratio at {ends}")
        for method, found in curves(store, kernel, seeds, horizons).items():
            slopes = [slope([*one], [*one.values()]) for one in found]
            ratios = [
                statistics.mean(
                    one[N] / (N * _uniform(store, kernel, seed, horizons))
                    for seed, one in enumerate(found)
                )
                for N in found[0]
            ]
            text = " ".join(f"{ratio:.3f}" for ratio in ratios)
            print(f"  {method:<17}{len(found):>5}  {_shown(slopes):<16}{text}")


def _shown(values: list[float]) -> str:
    return interval(values) if len(values) > 1 else f"{values[0]:.3f}"


def _uniform(store: Store, kernel: Kernel, seed: int, horizons: Sequence[int]) -> float:
    """What uniform choice loses in an evaluation."""
    return next(
        float(store.records[job.key]["uniform"])
        for job in jobs(kernel, seed, horizons)
        if job.key in store.records
    )


def plot(
    store: Store,
    kernels: Sequence[Kernel],
    seeds: int,
    horizons: Sequence[int],
    path: Path,
) -> None:
    """Mean regret against N, with the exponents of the theorem as dashes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(kernels)))
    for panel, kernel in zip(panels, kernels, strict=True):
        dim, nu, *_ = kernel
        for method, found in curves(store, kernel, seeds, horizons).items():
            ends = [*found[0]]
            mean = [statistics.mean(one[N] for one in found) for N in ends]
            panel.loglog(ends, mean, "o-", label=method, markersize=3)
        ends = ends_of(kernel, horizons)
        exponent, low = (nu + dim) / (2 * nu + dim), panel.get_ylim()[0]
        for power, text in ((exponent, f"$N^{{{exponent:.2f}}}$"), (1.0, "$N$")):
            line = [low * (N / ends[0]) ** power for N in ends]
            panel.loglog(ends, line, "k--", linewidth=0.8)
            panel.annotate(text, (ends[-1], line[-1]))
        panel.set_xticks(ends, [str(N) for N in ends])
        panel.minorticks_off()
        panel.set(title=f"Matern, nu = {nu:g}, d = {dim}", xlabel="N", ylabel="regret")
    panels[0].legend(fontsize=7)
    figure.savefig(path, dpi=120)


def main(
    arguments: list[str] | None = None,
    kernels: Sequence[Kernel] = KERNELS,
    horizons: Sequence[int] = HORIZONS,
) -> None:
    """Run what is missing, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--last", type=int, default=max(horizons), help="largest N")
    parser.add_argument("--store", type=Path, help="JSON file of finished runs")
    parser.add_argument("--report", type=Path, help="only print this file")
    parser.add_argument("--plot", type=Path, help="PNG or SVG file")
    args = parser.parse_args(arguments)
    store = Store(args.report or args.store)
    horizons = [N for N in horizons if N <= args.last]
    for seed in range(args.seeds) if args.report is None else ():
        for kernel in kernels:
            for job in jobs(kernel, seed, horizons):
                if job.key not in store.records:
                    store.add(job.key, run(job, horizons))
    print(store.made(store.records))
    report(store, kernels, args.seeds, horizons)
    if args.plot:
        plot(store, kernels, args.seeds, horizons, args.plot)


if __name__ == "__main__":
    main()
