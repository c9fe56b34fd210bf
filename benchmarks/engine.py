"""The end of a batch on a large table, new code and old in one run.

All candidates under a new posterior and the first choice of the next batch. The
posterior is that of a run of BBKB on a part of the table, so that evaluations are where
a run has them. `--old PATH` takes the root of another working tree (`git worktree add
PATH REVISION`) and runs its code in turns.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import MaternKernel

from benchmarks.measure import seconds

DIM, LAM = 20, 0.1
SUBSET = 5000


def table(num_candidates: int) -> torch.Tensor:
    """Uniform candidates."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(num_candidates, DIM, dtype=torch.float64, generator=generator)


def kernel(lengthscale: float) -> MaternKernel:
    """A kernel whose lengthscale stays."""
    covar_module = MaternKernel(nu=2.5).double().requires_grad_(False)
    covar_module.lengthscale = lengthscale
    return covar_module


def run_of_bbkb(lengthscale: float, evaluations: int) -> dict[str, Any]:
    """Evaluations and inducing points of a run on a part of the table."""
    from botorch_sparse.strategies import BBKB

    X, covar_module = table(SUBSET), kernel(lengthscale)
    generator = torch.Generator().manual_seed(1)
    centers = torch.rand(8, DIM, dtype=torch.float64, generator=generator)
    f = covar_module(X, centers).to_dense() @ torch.randn(
        8, dtype=torch.float64, generator=generator
    )
    noise = LAM**0.5 * torch.randn(100_000, dtype=torch.float64, generator=generator)
    strategy = BBKB(X, covar_module, LAM, noise_variance=LAM, norm_bound=1.0)
    f = (f - f.mean()) / f.std()
    history = strategy.run(
        lambda rows: (f[rows] + noise[rows]).unsqueeze(-1),
        evaluations,
        progress=False,
        by_index=True,
    )
    posterior: Any = strategy.surrogate.view.pool.posterior
    rows, counts = history.indices.unique(return_counts=True)
    return {
        "X": X[rows],
        "Y": (f + noise[: len(X)])[rows],
        "noise": LAM / counts,
        "S": posterior.inducing_points,
        "lengthscale": lengthscale,
        "multiplier": strategy.radius.multiplier(strategy.statistics),
    }


def boundary(problem: dict[str, Any], num_candidates: int) -> dict[str, Any]:
    """Seconds of a batch's end and of the next points, by the code imported."""
    from botorch_sparse import pools
    from botorch_sparse.posteriors import NystromPosterior

    X, multiplier = table(num_candidates), problem["multiplier"]
    posterior = NystromPosterior.from_data(
        kernel(problem["lengthscale"]), *(problem[k] for k in ("X", "Y", "noise", "S"))
    )
    pool = pools.NystromPool(X, LAM)
    k_diag = torch.ones(len(X), dtype=X.dtype)
    rows: list[int] = []
    state: list[Any] = []

    def end() -> None:
        pool.update(posterior, k_diag)
        state[:] = [pool.batch(multiplier)]
        rows[:] = [state[0].argmax()]

    def step() -> None:
        state[0].append(rows[-1])
        rows.append(state[0].argmax())

    first, second = seconds(end), seconds(end)
    steps = [seconds(step) for _ in range(10)]
    return {
        "first": first,
        "end": second,
        "step": sum(steps) / len(steps),
        "rows": rows,
        "m": posterior.num_inducing,
        "embedded": int(pool.num_exact),
    }


def in_tree(root: Path, problem: Path, num_candidates: int) -> dict[str, Any]:
    """`boundary` in a process of its own, with the code of a tree."""
    here = Path(__file__).resolve().parent.parent
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{here}"}
    arguments = ["--problem", str(problem), "--candidates", str(num_candidates)]
    output = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), *arguments],
        cwd=root,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    result: dict[str, Any] = json.loads(output.stdout.splitlines()[-1])
    return result


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each code and repeat."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--evaluations", type=int, default=1500)
    parser.add_argument("--lengthscale", type=float, default=4.0)
    parser.add_argument("--old", type=Path, help="the root of another tree")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--problem", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.problem is not None:
        problem = torch.load(args.problem, weights_only=True)
        print(json.dumps(boundary(problem, args.candidates)))
        return
    trees = {"new": Path(__file__).resolve().parent.parent}
    if args.old is not None:
        trees["old"] = args.old
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.pt"
        torch.save(run_of_bbkb(args.lengthscale, args.evaluations), file)
        for _ in range(args.repeats):
            for name, root in trees.items():
                found = in_tree(root, file, args.candidates)
                print(
                    f"{name}: {args.candidates} x {DIM}, m = {found['m']}, "
                    f"{torch.get_num_threads()} threads: batch boundary "
                    f"{found['first']:.2f} s at first, {found['end']:.2f} s then, "
                    f"{1e3 * found['step']:.1f} ms a step, {found['embedded']} "
                    f"embedded; rows {found['rows'][:4]}...",
                    flush=True,
                )


if __name__ == "__main__":
    main()
