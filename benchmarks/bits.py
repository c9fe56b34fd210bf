"""A batch of 20 from 10^6 x 2,048 packed bits at 200 inducing points.

Milliseconds of a tile of similarities; seconds and CPU seconds of `ask`, medians of
three, and the memory that a run takes beside the pool, which is in memory or in a file.
Bits are made up: families of rows that share most of their bits, three in a hundred of
which are set.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from gpytorch.kernels import ScaleKernel

from benchmarks.measure import (
    Clock,
    in_fresh_process,
    resident_kilobytes,
    side_by_side,
)
from botorch_sparse.kernels import TanimotoKernel
from botorch_sparse.pools import CompactRows
from botorch_sparse.strategies import BBKB, ThompsonSampling

BITS, INDUCING, BATCH, FAMILY, TILE = 2048, 200, 20, 1000, 2048
STRATEGIES = {"ThompsonSampling": ThompsonSampling, "BBKB": BBKB}


def write_bits(path: Path, num: int) -> None:
    """`num` rows of packed bits in a `.npy` file, a family at a time."""
    g = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(path, "w+", np.uint8, (num, BITS // 8))
    for start in range(0, num, FAMILY):
        shared = g.random(BITS) < 0.02
        bits = shared ^ (g.random((min(FAMILY, num - start), BITS)) < 0.01)
        rows[start : start + FAMILY] = np.packbits(bits, axis=1)


def batches(path: str, name: str, *, is_file: bool) -> tuple[list[list[int]], str]:
    """Three batches of a strategy that knows 200 rows, and what they took."""
    X = CompactRows.from_packed(path if is_file else np.load(path), BITS)
    before = resident_kilobytes()
    kernel = ScaleKernel(TanimotoKernel()).double().requires_grad_(False)
    strategy = STRATEGIES[name](X, kernel, 0.01, batch_size=BATCH, seed=0)
    g = torch.Generator().manual_seed(0)
    weights = torch.randn(BITS, dtype=torch.float64, generator=g) / 8
    known = X[torch.randperm(len(X), generator=g)[:INDUCING]]
    strategy.tell(known, known @ weights)
    chosen, clocks = list[list[int]](), list[Clock]()
    for _ in range(3):
        with (clock := Clock()):
            batch = strategy.ask(BATCH)
        clocks.append(clock)
        chosen.append(batch.indices.tolist())
        strategy.tell(batch, batch.X @ weights)
    wall, cpu = (
        statistics.median(getattr(clock, kind) for clock in clocks)
        for kind in ("wall", "cpu")
    )
    return chosen, f"{wall:.1f} s a batch ({cpu:.1f} CPU s), {before / 2**20:.2f} GiB"


def similarities(path: str) -> str:
    """Milliseconds of a tile by the kernel, and by a product of matrices."""
    X = CompactRows.from_packed(path, BITS)
    rows, points = X.entries(slice(0, TILE)), X[-INDUCING:]
    kernel = TanimotoKernel()
    took = side_by_side(
        {
            "kernel": lambda: kernel(rows, points).to_dense(),
            "product": lambda: rows.float() @ points.float().mT,
        }
    )
    return (
        f"{TILE} x {INDUCING} similarities: {1e3 * took['kernel']:.1f} ms by sums over "
        f"entries, {1e3 * took['product']:.1f} ms for the product of their matrices"
    )


def main(arguments: list[str] | None = None) -> None:
    """Print time and memory, and whether both kinds of pool have the same choices."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=1_000_000)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bits.npy"
        write_bits(path, args.candidates)
        print(similarities(str(path)))
        for name in STRATEGIES:
            every = []
            for is_file in (False, True):
                run, peak = in_fresh_process(_run, str(path), name, is_file)
                chosen, took = run
                every.append(chosen)
                where = "in a file" if is_file else "in memory"
                print(
                    f"{name}, {args.candidates} x {BITS} bits {where}: {took} before, "
                    f"at most {peak:.2f} GiB",
                    flush=True,
                )
            same = "the same" if every[0] == every[1] else "DIFFERENT"
            print(f"  {same} choices")


def _run(path: str, name: str, is_file: bool) -> tuple[list[list[int]], str]:
    return batches(path, name, is_file=is_file)


if __name__ == "__main__":
    main()
