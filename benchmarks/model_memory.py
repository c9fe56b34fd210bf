"""What a sparse model needs of memory: many predictions, and a chain of conditioning.

    python -m benchmarks.model_memory

Each line comes from a process of its own, and says how much its peak rose over what
it was before.
"""

import argparse

import torch

from benchmarks.measure import in_fresh_process, peak_kilobytes
from botorch_sparse.models import SparseSingleTaskGP

MEGABYTE = 2**10  # in kilobytes


def small_model(n: int, num_inducing: int) -> SparseSingleTaskGP:
    """A model in six dimensions that has predicted once."""
    X = torch.rand(
        n, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    Y = (6 * X).sin().sum(-1, keepdim=True)
    model = SparseSingleTaskGP(X, Y, inducing_points=X[:num_inducing])
    model.posterior(X[:2])
    return model


def predict(num_rows: int, num_inducing: int) -> float:
    """The rise in MB of a posterior's variances at many rows."""
    model = small_model(2 * num_inducing, num_inducing)
    X = torch.rand(num_rows, 6, dtype=torch.float64)
    before = peak_kilobytes()
    with torch.no_grad():
        model.posterior(X).variance.sum()
    return (peak_kilobytes() - before) / MEGABYTE


def condition(num_steps: int, num_inducing: int) -> list[float]:
    """The rise in MB after a tenth, a half and all of the steps, one point each."""
    model = small_model(2 * num_inducing, num_inducing).eval()
    before, rises = peak_kilobytes(), []
    for step in range(1, num_steps + 1):
        x, y = torch.rand(1, 6).double(), torch.rand(1, 1).double()
        model = model.condition_on_observations(x, y)
        if step in (num_steps // 10, num_steps // 2, num_steps):
            rises.append((peak_kilobytes() - before) / MEGABYTE)
    return rises


def main(arguments: list[str] | None = None) -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=10_000)
    args = parser.parse_args(arguments)
    rise, _ = in_fresh_process(predict, args.rows, 1000)
    print(f"posterior of {args.rows} rows, m = 1000: {rise:.0f} MB", flush=True)
    for m in (100, 300):
        rises, _ = in_fresh_process(condition, args.steps, m)
        parts = ", ".join(f"{rise:.0f}" for rise in rises)
        print(
            f"{args.steps} conditionings of one point, m = {m}: {parts} MB after a "
            "tenth, a half and all",
            flush=True,
        )


if __name__ == "__main__":
    main()
