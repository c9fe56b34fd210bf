"""Default threads against one thread, alone and beside others that compute.

    python -m benchmarks.threads --repeats 1          # all jobs, some twenty minutes
    python -m benchmarks.threads --jobs BBKB "fit of" # those whose names begin so

Each job runs in a process of its own, which starts its neighbours itself: none, a
second and a third process of the same job, or one that is busy with nothing. Setting
is the environment of all of them: as it is by default, or `OMP_NUM_THREADS=1`. Seconds
are medians over repeats, after one run that is not timed. To reach: alone at most
`ALONE` times the better setting, beside neighbours at most `BESIDE` times one thread.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies import BBKB, ThompsonSampling, TrustRegionBBKB

ALONE, BESIDE = 1.3, 2.0
STEPS = 10  # one takes too little time to be measured beside others
NEIGHBOURS = {"alone": 0, "two": 1, "three": 2, "busy": 1}
THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("OMP_WAIT_POLICY", "KMP_BLOCKTIME"),
)


def table_run(strategy: type, rows: int, dim: int, total: int) -> Callable[[], None]:
    """A run on a table of a smooth function, kernel inferred."""
    X = torch.rand(rows, dim, generator=torch.Generator().manual_seed(0)).double()
    Y = (3 * X).sin().sum(-1) + X[:, 0] * X[:, 1]

    def run() -> None:
        made = strategy(X, batch_size=10, seed=0)
        made.run(lambda index: Y[index], total, progress=False, by_index=True)

    return run


def box_run(total: int) -> Callable[[], None]:
    """Trust regions on Hartmann's function of six dimensions."""
    function = Hartmann(negate=True).double()

    def run() -> None:
        made = TrustRegionBBKB(bounds=function.bounds, batch_size=10, seed=0)
        made.run(function, total, progress=False)

    return run


def model_of(kind: type, num: int) -> ExactMarginalLogLikelihood:
    """A model of Hartmann's function at random points, not fitted."""
    function = Hartmann(negate=True).double()
    X = torch.rand(num, 6, generator=torch.Generator().manual_seed(0)).double()
    noise = torch.randn(num, generator=torch.Generator().manual_seed(1)).double()
    Y = (function(X) + 0.05 * noise).unsqueeze(-1)
    model = kind(X, Y, input_transform=Normalize(6))
    return ExactMarginalLogLikelihood(model.likelihood, model)


def fit(kind: type, num: int) -> Callable[[], None]:
    """A fit of a new model."""
    return lambda: fit_gpytorch_mll(model_of(kind, num)) and None


def steps(kind: type, num: int) -> Callable[[], None]:
    """Maximizers of expected improvement, `STEPS` times, under a fitted model."""
    model = fit_gpytorch_mll(model_of(kind, num)).model
    acqf = LogExpectedImprovement(model, best_f=model.train_targets.max())
    bounds = torch.tensor([[0.0] * 6, [1.0] * 6]).double()

    def run() -> None:
        torch.manual_seed(0)
        for _ in range(STEPS):
            optimize_acqf(acqf, bounds, q=1, num_restarts=10, raw_samples=512)

    return run


JOBS: dict[str, Callable[[], Callable[[], object]]] = {
    "ThompsonSampling, 4,000 rows": partial(table_run, ThompsonSampling, 4000, 8, 300),
    "BBKB, 4,000 rows": partial(table_run, BBKB, 4000, 8, 300),
    "ThompsonSampling, 200,000 rows": partial(
        table_run, ThompsonSampling, 200_000, 10, 300
    ),
    "BBKB, 200,000 rows": partial(table_run, BBKB, 200_000, 10, 300),
    "TrustRegionBBKB, 200 evaluations": partial(box_run, 200),
    **{
        f"{name} of SparseSingleTaskGP, n = {num:,}": partial(
            job, SparseSingleTaskGP, num
        )
        for num in (300, 1000, 5000)
        for name, job in {"fit": fit, f"{STEPS} steps": steps}.items()
    },
    **{
        f"{name} of SingleTaskGP, n = {num:,}": partial(job, SingleTaskGP, num)
        for num in (300,)
        for name, job in {"fit": fit, f"{STEPS} steps": steps}.items()
    },
}


def work(name: str, repeats: int) -> None:
    """Run a job when told to on the input, and print its seconds."""
    run = JOBS[name]()
    run()
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        print(time.perf_counter() - start, flush=True)


def be_busy() -> None:
    """Take one core until the process is ended."""
    print("ready", flush=True)
    while True:
        pass


@contextmanager
def process(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """This program with other arguments; ended afterwards."""
    environment = {k: v for k, v in os.environ.items() if k not in THREAD_VARIABLES}
    command = [sys.executable, "-m", "benchmarks.threads", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = subprocess.Popen(command, env=environment | variables, text=True, **pipes)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def seconds(name: str, beside: str, repeats: int, **variables: str) -> float:
    """The median over repeats of a job beside its neighbours."""
    with ExitStack() as stack:
        open_process = partial(process, **variables)
        first = stack.enter_context(
            open_process("--work", name, "--repeats", str(repeats))
        )
        others = []
        for _ in range(NEIGHBOURS[beside]):
            arguments = (
                ("--busy",)
                if beside == "busy"
                else ("--work", name, "--repeats", "999")
            )
            others.append(stack.enter_context(open_process(*arguments)))
        for each in (first, *others):
            if each.stdout.readline() != "ready\n":
                raise RuntimeError(f"{name!r} failed; run it with --work {name!r}")
        for each in (*others, first):
            print(file=each.stdin, flush=True)
        return median(float(first.stdout.readline()) for _ in range(repeats))


def main(arguments: list[str] | None = None) -> None:
    """Print a table of seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="*", default=[""], help="how names begin")
    parser.add_argument("--beside", nargs="*", default=[*NEIGHBOURS])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--busy", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.work:
        return work(args.work, args.repeats)
    if args.busy:
        return be_busy()
    print(f"{os.cpu_count()} cores; seconds by default / with one thread (ratio)")
    print("| job |", *(f"{beside} |" for beside in args.beside))
    print("|---|" + "---|" * len(args.beside))
    missed: list[str] = []
    for name in JOBS:
        if not name.startswith(tuple(args.jobs)):
            continue
        print(f"| {name} |", end="", flush=True)
        for beside in args.beside:
            default = seconds(name, beside, args.repeats)
            one = seconds(name, beside, args.repeats, OMP_NUM_THREADS="1")
            cell = f"{default:.2f} / {one:.2f} ({default / one:.2f})"
            print(f" {cell} |", end="", flush=True)
            if default / one > (ALONE if beside == "alone" else BESIDE):
                missed.append(f"{name}, {beside}")
        print(flush=True)
    print(f"above {ALONE:g} alone or {BESIDE:g} beside: {'; '.join(missed) or 'none'}")
    return None


if __name__ == "__main__":
    main()
