"""Time and memory of the samplers of inducing points on a table of 241,600 rows.

Each draw is made in a fresh process, from 60,000 rows on, with noise in proportion to
the rows, so that the effective dimension stays about the same. A draw costs O(n m^2):
seconds over `n m^2` should not grow with `n`, and memory stays far below `n x n`
(430 GiB here). `BOTORCH_SPARSE_DATA` names the folder with `sgemm_gpu.csv.gz`.
"""

import argparse
import time

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import RBFKernel

from benchmarks.dropin_accuracy import load
from benchmarks.measure import in_fresh_process
from botorch_sparse.inducing import BLESSSampler, RecursiveRLSSampler

SAMPLERS = {"recursive RLS": RecursiveRLSSampler, "BLESS": BLESSSampler}
ROWS = 241_600
LENGTHSCALE = 10.0  # of 14 standardized features
RELATIVE_NOISE = 5e-4  # noise variance over the number of rows
LARGEST_GIB = 4.0


def draw(name: str, rows: int) -> tuple[int, float]:
    """The number of points that a sampler draws, and its seconds."""
    generator = torch.Generator().manual_seed(0)
    X, _ = load("sgemm_gpu", generator)
    X = X[torch.randperm(len(X), generator=generator)[:rows]]
    X = (X - X.mean(0)) / X.std(0)
    kernel = RBFKernel().double().requires_grad_(False)
    kernel.lengthscale = LENGTHSCALE
    noise = torch.full((rows,), RELATIVE_NOISE * rows, dtype=X.dtype)
    sampler = SAMPLERS[name](max_inducing_points=None)
    start = time.process_time()
    index = sampler(kernel, X, noise, generator=generator)
    return len(index), time.process_time() - start


def main(arguments: list[str] | None = None) -> None:
    """Print the figures of all samplers and sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a fortieth of the rows")
    args = parser.parse_args(arguments)
    largest = ROWS // 40 if args.short else ROWS
    for name in SAMPLERS:
        for rows in (largest // 4, largest // 2, largest):
            try:
                (m, seconds), peak = in_fresh_process(draw, name, rows)
            except InputDataError as error:
                print(f"sgemm_gpu: left out, {error}")
                return
            unit = 1e9 * seconds / (rows * m**2)
            print(
                f"{name}, n = {rows}: m = {m}, {seconds:.1f} s, {unit:.2f} ns for each "
                f"of n m^2, peak {peak:.2f} GiB (below {LARGEST_GIB:g})",
                flush=True,
            )


if __name__ == "__main__":
    main()
