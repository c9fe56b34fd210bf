"""A batch boundary by branch and bound against the full embedding, 10^6 x 20, m = 300.

The posterior is that of a run of BBKB on 20,000 of the rows. A boundary is what comes
between the feedback and the first points of the next batch: with the bounds of all rows
where only those that could be the maximizer are substituted to the end, or with the
variances of all rows. Both choose the same. Seconds are medians of runs in turns.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.measure import side_by_side
from benchmarks.scale import (
    NOISE_SD,
    PROBLEMS,
    Problem,
    build,
    kernel,
    noisy,
    write_table,
)
from botorch_sparse.batching import Global
from botorch_sparse.demo.datasets import Table, load_table
from botorch_sparse.pools import NystromPool
from botorch_sparse.posteriors import NystromPosterior

STEPS = 10
LEAST = 3.0


def learned(
    problem: Problem, table: Table, num_inducing: int
) -> tuple[NystromPosterior, float]:
    """The posterior of a run on a table, and the bound's multiplier."""
    X, strategy = table.X, build(table.X, problem)
    objective = noisy(strategy, table.known_values)
    while strategy.history.num_unique < num_inducing:
        more = len(strategy.history) + 100
        strategy.run(objective, more, progress=False, by_index=True)
    history = strategy.history
    number, inverse = history.indices.unique(return_inverse=True)
    counts = inverse.bincount()
    means = torch.zeros(len(number)).double()
    means.index_add_(0, inverse, history.Y).div_(counts)
    noise = NOISE_SD**2 / counts
    posterior = NystromPosterior.from_data(
        kernel(problem), X[number], means, noise, X[number[:num_inducing]]
    )
    return posterior, strategy.radius.multiplier(strategy.statistics)


def main(
    arguments: list[str] | None = None, problem: Problem = PROBLEMS["million"]
) -> None:
    """Print both times, and whether both ways choose alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=problem.rows)
    parser.add_argument("--sample", type=int, default=20_000, help="rows of the run")
    parser.add_argument("--num-inducing", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-memory", type=float, default=8.0, help="GiB of the pool")
    parser.add_argument("--folder", type=Path, default=Path("output/scale"))
    args = parser.parse_args(arguments)
    problem = replace(problem, rows=args.rows)
    path = args.folder / f"{problem.rows}x{problem.dim}.npy"
    write_table(problem, path)
    table = load_table(path)
    X, Y = table.X, table.Y
    sample = replace(table, X=X[: args.sample], Y=Y[: args.sample], part=None)
    posterior, multiplier = learned(problem, sample, args.num_inducing)
    pool = NystromPool(X, NOISE_SD**2, max_memory=int(args.max_memory * 2**30))
    k_diag = posterior.covar_module(X, diag=True)
    choices = {}

    def boundary(name: str, *, is_full: bool) -> None:
        pool.update(posterior, k_diag)
        if is_full:
            pool.all_variances()
        choices[name] = pool.batch(multiplier, Global(1e9)).choose(STEPS)

    took = side_by_side(
        {
            "full": lambda: boundary("full", is_full=True),
            "bounds": lambda: boundary("bounds", is_full=False),
        },
        args.repeats,
    )
    same = "the same" if choices["full"] == choices["bounds"] else "DIFFERENT"
    ratio = took["full"] / took["bounds"]
    print(
        f"{args.rows} x {problem.dim}, m = {posterior.num_inducing}, {STEPS} points, "
        f"{torch.get_num_threads()} threads: {took['full']:.2f} s with all variances, "
        f"{took['bounds']:.2f} s with bounds, {ratio:.1f} times faster (at least "
        f"{LEAST:g}), {same} choices"
    )


if __name__ == "__main__":
    main()
