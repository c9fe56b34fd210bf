"""BBKB against its authors' published code, in turns in one run: seconds and regret.

The setting of `benchmarks.bbkb`: abalone and california_housing, T = 2000, both rules.
Both sides start from the same two rows and see the same noise. Seconds are those of a
side's whole loop, the first feedback included; `BENCH_CLOCK=cpu` counts CPU seconds.
In brackets they are in matrix products of 1500 x 1500, the unit of `benchmarks.bbkb`.
Before each loop there is a pause: threads of the other side's libraries spin for a
while after their last product, and would take a core from it.

The authors' code is not part of this project. `--authors PATH` names a folder with the
`bkb_lib.py` and `utils.py` of github.com/luigicarratino/batch-bkb (MIT License), which
needs scikit-learn:

    git clone https://github.com/luigicarratino/batch-bkb
    OMP_NUM_THREADS=2 python -m benchmarks.authors --authors batch-bkb

The number of threads counts for both: NumPy's products of small matrices take longer
with two threads than with one, ours do not.

Its `FastMixinKernel` takes one kernel of scikit-learn for small matrices and one for
large ones: `RBF` and `PairwiseKernel`, the fastest, or `RBF` for both (`--kernel
plain`).
"""

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from benchmarks.bbkb import SETTINGS, build, interval
from benchmarks.measure import matmul_seconds, seconds
from botorch_sparse.demo.comparison_run import noisy_rows
from botorch_sparse.demo.datasets import Table, load_table

# How many times faster ours is to be.
TARGETS = {
    ("abalone", "global"): 5,
    ("abalone", "global-local"): 5,
    ("california_housing", "global"): 10,
    ("california_housing", "global-local"): 15,
}
KERNELS = ("fast", "plain")
PAUSE = 0.5  # seconds
CLASSES = {"global": "Batch_BKB", "global-local": "Local_Batch_BKB"}


@dataclass(frozen=True)
class Setting:
    """What a run of either side is about."""

    table: Table
    lengthscale: float
    rule: str
    seed: int
    T: int

    @property
    def first(self) -> Tensor:
        """The two rows that both sides start from; the authors' code needs two."""
        generator = torch.Generator().manual_seed(1000 + self.seed)
        return torch.randperm(len(self.table.Y), generator=generator)[:2]


@dataclass(frozen=True)
class Run:
    """What came of it."""

    seconds: float
    regret: float
    batches: int


class Authors:
    """The authors' modules.

    Args:
        folder: Where `bkb_lib.py` and `utils.py` are.
        kernel: One of `KERNELS`.

    Raises:
        ModuleNotFoundError: If they, or scikit-learn, are not there.
    """

    def __init__(self, folder: Path, kernel: str) -> None:
        self.is_plain = kernel == "plain"
        sys.path.insert(0, str(folder))
        try:
            self.library = importlib.import_module("bkb_lib")
            self.utils = importlib.import_module("utils")
        finally:
            sys.path.remove(str(folder))
        self.kernels = importlib.import_module("sklearn.gaussian_process.kernels")

    def kernel(self, lengthscale: float) -> Any:
        """The RBF kernel."""
        plain = self.kernels.RBF(lengthscale)
        gamma = 0.5 / lengthscale**2
        by_products = self.kernels.PairwiseKernel(metric="rbf", gamma=gamma)
        large = plain if self.is_plain else by_products
        return self.utils.FastMixinKernel(plain, large)

    def run(self, setting: Setting) -> tuple[Tensor, int]:
        """The rows evaluated, and the number of batches, as in their example."""
        table, T = setting.table, setting.T
        numpy = importlib.import_module("numpy")
        objective = noisy_rows(table, setting.seed)
        strategy = getattr(self.library, CLASSES[setting.rule])(
            ratio_threshold=2.0,
            lam=1e-4,
            dot=self.kernel(setting.lengthscale),
            noise_variance=1e-4,
            fnorm=1.0,
            delta=1.0 / T,
            qbar=2.0,
        )
        random = numpy.random.RandomState(setting.seed)
        rows, batches = setting.first.tolist(), 1
        strategy.initialize(table.X.numpy(), rows, objective(setting.first).numpy())
        while len(rows) < T:
            chosen = strategy.predict()[0][: T - len(rows)]
            feedback = objective(torch.as_tensor(chosen)).numpy()
            strategy.update(chosen, feedback, random)
            rows, batches = [*rows, *chosen.tolist()], batches + 1
        return torch.tensor(rows), batches


def ours(setting: Setting) -> tuple[Tensor, int]:
    """The rows evaluated, and the number of batches."""
    table, seed, T = setting.table, setting.seed, setting.T
    strategy = build(table, setting.lengthscale, setting.rule, seed, T)
    objective = noisy_rows(table, seed)
    strategy.tell(table.X[setting.first], objective(setting.first))
    history = strategy.run(objective, T, progress=False, by_index=True)
    return history.indices, len(history.batches)


def measured(run: Callable[[Setting], tuple[Tensor, int]], setting: Setting) -> Run:
    """Seconds and regret of one run."""
    found: list[tuple[Tensor, int]] = []
    time.sleep(PAUSE)
    took = seconds(lambda: found.append(run(setting)))
    rows, batches = found[0]
    return Run(took, float(setting.table.regret_ratio(rows)[-1]), batches)


def report(authors: Authors, setting: Setting, seeds: int, repeats: int) -> None:
    """Print the ratio of seconds and the regrets of one table and rule."""
    theirs, mine, ratios = [], [], []
    short = replace(setting, T=min(setting.T, 100))
    for run in (authors.run, ours):  # what is done once in a process
        run(short)
    for seed in range(seeds):
        one = replace(setting, seed=seed)
        pairs = [
            (measured(authors.run, one), measured(ours, one)) for _ in range(repeats)
        ]
        ratios += [a.seconds / b.seconds for a, b in pairs]
        theirs.append(pairs[-1][0])
        mine.append(pairs[-1][1])
    name, unit = setting.table.name, matmul_seconds()
    print(
        f"{name}, {setting.rule}: {statistics.median(ratios):.1f} times faster (at "
        f"least {TARGETS[name, setting.rule]}; {min(ratios):.1f} to {max(ratios):.1f})"
    )
    for label, runs in (("authors", theirs), ("ours", mine)):
        regrets = [run.regret for run in runs]
        took = statistics.median(run.seconds for run in runs)
        print(
            f"  {label}: {took:.2f} s ({took / unit:.1f} matrix products), "
            f"{statistics.median(run.batches for run in runs):.0f} batches, "
            f"regret ratio {shown(regrets)}"
        )
    differences = [b.regret - a.regret for a, b in zip(theirs, mine, strict=True)]
    print(f"  regret, ours less theirs: {shown(differences)}", flush=True)


def shown(values: list[float]) -> str:
    """Mean, and the half width of its 95% interval if there are more."""
    return interval(values) if len(values) > 1 else f"{values[0]:.3f}"


def main(arguments: list[str] | None = None) -> None:
    """Print three lines and a ratio for each table and rule."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--authors", type=Path, help="a folder with bkb_lib.py")
    parser.add_argument("--kernel", default="fast", choices=KERNELS)
    parser.add_argument("--tables", nargs="+", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--rules", nargs="+", default=list(CLASSES), choices=CLASSES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=1, help="runs of each seed")
    parser.add_argument("--evaluations", type=int, default=2000)
    args = parser.parse_args(arguments)
    if args.authors is None:
        print("left out: needs github.com/luigicarratino/batch-bkb, see --authors")
        return
    authors, T = Authors(args.authors, args.kernel), args.evaluations
    print(
        f"BBKB and its authors' code, T = {T}, {args.seeds} seeds x {args.repeats}, "
        f"kernel {args.kernel}, {torch.get_num_threads()} threads:"
    )
    for name in args.tables:
        try:
            table = load_table(name)
        except InputDataError as error:
            print(f"{name}: left out, {error}")
            continue
        for rule in args.rules:
            setting = Setting(table, SETTINGS[name][0], rule, 0, T)
            report(authors, setting, args.seeds, args.repeats)


if __name__ == "__main__":
    main()
