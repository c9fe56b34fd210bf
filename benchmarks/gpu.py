"""Tables for RESULTS.md from a machine with a GPU: `make gpu`.

Shares are those of the device's own memory bandwidth and FP64 peak, as a large copy and
a large matrix product reach them in the same run. They count what cannot be avoided:
each input read once, each result written once, and the operations of the algorithm.
All is float64. Without CUDA a fiftieth of the sizes is run on the CPU.
"""

import argparse
import math
import platform
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from benchmarks import dropin_cost, scale
from benchmarks.measure import side_by_side
from botorch_sparse.batching import Local
from botorch_sparse.models import RefitSchedule
from botorch_sparse.pools import NystromPool
from botorch_sparse.pools.device_batch import EagerBatch
from botorch_sparse.pools.shard import ALL_ROWS
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies import BBKB, GSSBO, SBPE, Strategy, ThompsonSampling

# So smooth, noisy and curious that batches have tens of points, most of them different.
LENGTHSCALE, LAM, MULTIPLIER = 8.0, 0.1, 50.0
LARGEST_BATCH, POINTS = 100, 32  # of BBKB; of S-BPE in one call
PATHS = 100  # of Thompson sampling
CPU_SCALE = 0.02


class Run(NamedTuple):
    """Where, how large, and the ceilings in bytes and operations per second."""

    device: torch.device
    scale: float
    repeats: int
    bandwidth: float = 1.0
    peak: float = 1.0

    def of(self, size: int, power: float = 1.0) -> int:
        """A size at this scale; `power` is one over the exponent of its cost."""
        return max(8, int(size * self.scale**power))

    def points(self, m: int) -> int:
        """Inducing points: as many as on a GPU where there is data for them."""
        return max(3, int(m * min(1.0, self.scale / CPU_SCALE)))

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers, the same on each device."""
        generator = torch.Generator().manual_seed(0)
        X = torch.rand(*shape, dtype=torch.float64, generator=generator)
        return X.to(self.device)

    def kernel(self, lengthscale: float) -> MaternKernel:
        """A kernel whose lengthscale stays."""
        covar_module = MaternKernel(nu=2.5).double().requires_grad_(False)
        covar_module.lengthscale = lengthscale
        return covar_module.to(self.device)

    def seconds(self, **calls: Callable[[], Any]) -> dict[str, float]:
        """Medians, side by side."""
        return side_by_side(calls, self.repeats)

    def with_ceilings(self) -> "Run":
        """Measure a copy far larger than any cache, and a matrix product."""
        source, size = self.uniform(self.of(2**28)), self.of(8192, 1 / 3)
        A, target = self.uniform(size, size), torch.empty_like(source)
        took = self.seconds(copy=lambda: target.copy_(source), product=lambda: A @ A)
        return self._replace(
            bandwidth=2 * 8 * len(source) / took["copy"],
            peak=2 * size**3 / took["product"],
        )

    def shares(self, seconds: float, moved: float, operations: float) -> list[str]:
        """The shares of bandwidth and peak, as cells."""
        reached = (moved / seconds / self.bandwidth, operations / seconds / self.peak)
        return [f"{100 * share:.2g}%" for share in reached]


def line(*cells: str | float) -> str:
    """A line of a table, with seconds as text."""
    texts = [c if isinstance(c, str) else f"{1e3 * c:.3f} ms" for c in cells]
    return f"| {' | '.join(texts)} |"


def head(*cells: str) -> list[str]:
    """The first lines of a table of numbers."""
    return ["", line("", *cells), line("---", *["---:"] * len(cells))]


def pool(run: Run) -> Iterator[str]:
    """Embed, step and batch of a pool."""
    X = run.uniform(run.of(1_000_000), 20)
    yield "A pool of {} x {}:".format(*X.shape)
    yield from head("time", "of the bandwidth", "of the FP64 peak")
    for m in (300, 1000):
        yield from pool_lines(run, X, run.points(m))


@torch.no_grad()
def pool_lines(run: Run, X: Tensor, m: int) -> Iterator[str]:
    """The lines of one number of inducing points."""
    (A, d), data = X.shape, X[: 3 * m]
    Y, noise = data.sum(-1).sin(), torch.full_like(data[:, 0], LAM)
    kernel = run.kernel(LENGTHSCALE)
    posterior = NystromPosterior.from_data(kernel, data, Y, noise, X[:m])
    is_cuda = run.device.type == "cuda"
    room = torch.cuda.mem_get_info(run.device)[0] // 2 if is_cuda else 2**31
    pool = NystromPool(X, LAM, max_memory=room)
    embed = run.seconds(embed=lambda: pool.update(posterior))["embed"]
    # k_S(x) is kept if there is room; distances, a triangular product, and the mean.
    work = 8 * A * (d + m * pool.in_memory), A * m * (m + 2 * d + 2)
    yield line(f"embed, m = {m}", embed, *run.shares(embed, *work))
    bounds: list[Any] = [pool.batch(MULTIPLIER)]
    if pool.on_device and pool.in_memory:  # a look at all, whatever the pool would do
        state = pool._state
        bounds.append(EagerBatch(pool, state, MULTIPLIER, None, ALL_ROWS))
    steps = {type(ucb).__name__: partial(step, ucb) for ucb in bounds}
    for name, seconds in run.seconds(**steps).items():
        shares = run.shares(seconds, 8 * A * m, 2 * A * m)
        cells = shares if name == "EagerBatch" else ["", ""]
        yield line(f"step, m = {m}, {name}", seconds, *cells)

    def batch() -> list[int]:
        chosen: list[int] = pool.batch(MULTIPLIER, Local(2.0)).choose(LARGEST_BATCH)
        return chosen

    took, size = run.seconds(batch=batch), len(batch())
    yield line(f"batch, m = {m}, {size} points", took["batch"], "", "")


def step(ucb: Any) -> None:
    """The maximizer becomes pending."""
    ucb.append(ucb.argmax())


def models(run: Run) -> Iterator[str]:
    """What the drop-in costs, and BoTorch's own models."""
    n, m = run.of(100_000), run.points(500)
    # The exact GP takes n^3 time and many n x n matrices: a tenth of the points.
    sizes = {"sparse": n, "svgp": n, "exact": run.of(10_000, 2 / 3)}
    built = {
        name: dropin_cost.build(dropin_cost.Setting(name, size, m), run.device)
        for name, size in sizes.items()
    }
    table = dropin_cost.measure(built, run.repeats)
    yield (
        f"Models of n = {n} points (SingleTaskGP {sizes['exact']}) of "
        f"{dropin_cost.DIMENSION} dimensions, m = {m}; posteriors at "
        f"{dropin_cost.BATCH} x 1; in brackets how many times ours:"
    )
    yield from head(*(dropin_cost.TITLES[name] for name in sizes))
    for operation, took in table.items():
        ours = took.pop("sparse")
        cells = [f"{1e3 * t:.3f} ms ({t / ours:.2g})" for t in took.values()]
        # What the variational model lacks, such as fantasies, leaves its cell empty.
        cells = cells if "svgp" in took else ["", *cells]
        yield line(operation, ours, *cells)


def strategies(run: Run) -> Iterator[str]:
    """Points of S-BPE, batches of BBKB, iterations of GSSBO."""
    X, known = run.uniform(run.of(100_000), 4), run.of(1000, 1 / 3)
    fixed: dict[str, Any] = {"covar_module": run.kernel(0.5), "lam": 1e-2}
    sbpe, bbkb = SBPE(X, **fixed, schedule=[10**6]), BBKB(X, **fixed)
    bbkb.tell(X[:known], objective(X[:known]))
    samples, M = run.uniform(known, 6), run.of(100, 1 / 3)
    box: dict[str, Any] = {"bounds": torch.stack([0 * samples[0], 0 * samples[0] + 1])}
    box |= {"refit": RefitSchedule(growth=1e9), "num_initial": 5}
    box["optimizer_options"] = {"num_restarts": 2, "raw_samples": 64}
    subset, exact = GSSBO(**box, subset_size=M), GSSBO(**box, subset_size=None)
    for strategy in (subset, exact):
        strategy.tell(samples, objective(samples))
    took = run.seconds(
        sbpe=lambda: sbpe.ask(POINTS),
        bbkb=partial(iterate, bbkb),
        subset=partial(iterate, subset),
        exact=partial(iterate, exact),
    )
    yield f"Strategies, hyperparameters fixed, {known} samples known to the last three:"
    yield from head("time")
    yield line(f"S-BPE, one point of {len(X)}", took["sbpe"] / POINTS)
    yield line(f"BBKB, one batch on {len(X)}", took["bbkb"])
    yield line(f"GSSBO, one iteration, M = {M}", took["subset"])
    yield line("GSSBO, one iteration, all samples", took["exact"])


def whole_runs(run: Run) -> Iterator[str]:
    """`benchmarks.scale million`, and a batch of Thompson sampling of its table."""
    million = scale.PROBLEMS["million"]
    problem = replace(million, rows=run.of(million.rows), T=run.of(million.T, 1 / 3))
    edge = math.sqrt(12)  # of the cube, in columns of variance 1
    X, values = run.uniform(problem.rows, problem.dim), scale.function(problem)
    X = edge * (X - 0.5)
    bbkb = scale.build(X, problem)
    noisy = scale.noisy(
        bbkb, lambda X: torch.from_numpy(values((X / edge + 0.5).numpy()))
    )
    history = bbkb.run(lambda X: noisy(X.cpu()).to(X), problem.T, progress=False)
    took = sum(batch.ask_seconds + batch.tell_seconds for batch in history.batches)
    m = max(batch.num_inducing for batch in history.batches)
    thompson = ThompsonSampling(
        X, scale.kernel(problem).to(X), lam=0.01, batch_size=PATHS, seed=0
    )
    thompson.tell(history.X[: run.points(500)], history.Y[: run.points(500)])
    asked = run.seconds(thompson=thompson.ask)["thompson"]
    yield f"Strategies on {problem.rows} x {problem.dim}, kernels given:"
    yield from head("time")
    text = f"BBKB, {problem.T} evaluations in {len(history.batches)} batches, m = {m}"
    yield line(text, f"{took:.3g} s")
    yield line(f"Thompson sampling, a batch of {PATHS}", asked)


def objective(X: Tensor) -> Tensor:
    return (6 * X).sin().sum(-1)


def iterate(strategy: Strategy) -> None:
    """Ask and tell."""
    batch = strategy.ask()
    strategy.tell(batch, objective(batch.X))


def title(run: Run) -> Iterator[str]:
    """Date, hardware, versions and ceilings."""
    is_cuda = run.device.type == "cuda"
    name = torch.cuda.get_device_name(run.device) if is_cuda else platform.machine()
    libraries = ("torch", "botorch", "gpytorch", "linear_operator")
    versions = ", ".join(f"{library} {version(library)}" for library in libraries)
    yield f"## {datetime.now(UTC):%Y-%m-%d}: {run.device.type}, {name}\n"
    yield (
        f"Python {platform.python_version()}, {versions}; float64, "
        f"{torch.get_num_threads()} threads, medians of {run.repeats}. A copy moves "
        f"{run.bandwidth / 1e9:.3g} GB/s, a product {run.peak / 1e12:.3g} TFLOP/s."
    )


TABLES = (title, pool, models, strategies, whole_runs)


def main(
    arguments: list[str] | None = None,
    tables: Sequence[Callable[[Run], Iterable[str]]] = TABLES,
) -> None:
    """Print the tables; one that fails is named, and the others go on."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=torch.device, default=default)
    parser.add_argument("--scale", type=float, help="of the sizes; 1 on CUDA")
    parser.add_argument("--repeats", type=int, help="of which the median is taken")
    parser.add_argument("--output", type=Path, help="a file for the same lines")
    args = parser.parse_args(arguments)
    scale, repeats = (1.0, 9) if args.device.type == "cuda" else (CPU_SCALE, 3)
    run = Run(args.device, args.scale or scale, args.repeats or repeats).with_ceilings()
    lines, failed = [], []
    for table in tables:
        try:
            new = [*table(run), ""]
        except Exception as error:
            traceback.print_exc()
            failed.append(table.__name__)
            new = [f"No table of {table.__name__}: {type(error).__name__}", ""]
        torch.cuda.empty_cache()  # room for the next table's largest tensors
        print("\n".join(new), flush=True)
        lines += new
        if args.output is not None:
            args.output.write_text("\n".join(lines) + "\n")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
