"""Accuracy at equal m and seconds to fit, on california_housing and sgemm_gpu.

`SparseSingleTaskGP` against `SingleTaskVariationalGP` (SVGP) and GPyTorch's
`InducingPointKernel` (SGPR, its fast `log_prob` switched on), all with BoTorch's
defaults. A seed draws the rows, the 20% held out, and the random inducing points, alike
for all methods. Inputs and target are standardized by the mean and the standard
deviation of the training rows; RMSE and the negative log predictive density (NLPD, the
noise included) are those of the standardized target. The loss is the objective per
observation at the end of the fit, negated: the same one for ours and SGPR.

Results are kept in a JSON file, one entry for each data set, method and seed; what is
there is not run again. `sgemm_gpu.csv.gz` (UCI, SGEMM GPU kernel performance: 10 powers
of two, 4 flags, 4 runtimes in ms) is read from the folder that BOTORCH_SPARSE_DATA
names: log2 of the powers, the flags, and -log of one of the four runtimes, drawn at
random for each row.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.exceptions import InputDataError
from botorch.models.gpytorch import GPyTorchModel
from scipy.stats import t as student_t
from torch import Tensor

from benchmarks import dropin_peers
from benchmarks.store import write_whole
from botorch_sparse.demo.datasets import DATA_VARIABLE, load_table
from botorch_sparse.models import SparseSingleTaskGP

DATA = ("california_housing", "sgemm_gpu")
HELD_OUT = 0.2
POWERS = 10
OURS = ("sparse-learned", "sparse-sampled", "sparse-random", "sparse-auto")
PEERS = ("svgp", "sgpr")
SCORES = ("rmse", "nlpd")

Entry = dict[str, Any]


class Split(NamedTuple):
    """Standardized training and test rows, and `m` random training rows."""

    X: Tensor
    Y: Tensor
    test_X: Tensor
    test_Y: Tensor
    random_points: Tensor


def load(name: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features `n x d` and target `n x 1`.

    Raises:
        InputDataError: If the table is not found.
    """
    if name != "sgemm_gpu":
        table = load_table(name)
        return table.X, table.Y.unsqueeze(-1)
    path = Path(os.environ.get(DATA_VARIABLE, "")) / f"{name}.csv.gz"
    if not path.is_file():
        raise InputDataError(f"set {DATA_VARIABLE} to a folder with {name}.csv.gz")
    cells = torch.from_numpy(np.loadtxt(path, delimiter=",", skiprows=1))
    X, milliseconds = cells[:, :-4], cells[:, -4:]
    X = torch.cat([X[:, :POWERS].log2(), X[:, POWERS:]], dim=-1)
    run = torch.randint(4, (len(X), 1), generator=generator)
    return X, -milliseconds.gather(-1, run).log()


def split(name: str, seed: int, rows: int, m: int) -> Split:
    """The data of one seed; O(n d)."""
    generator = torch.Generator().manual_seed(seed)
    X, Y = load(name, generator)
    order = torch.randperm(len(X), generator=generator)[:rows]
    test, train = order.split(
        [int(HELD_OUT * len(order)), len(order) - int(HELD_OUT * len(order))]
    )
    X, Y = (_standardized(Z, Z[train]) for Z in (X, Y))
    points = X[train][torch.randperm(len(train), generator=generator)[:m]]
    return Split(X[train], Y[train], X[test], Y[test], points)


def _standardized(Z: Tensor, of: Tensor) -> Tensor:
    sd = of.std(dim=0)
    return (Z - of.mean(dim=0)) / torch.where(sd > 0, sd, 1.0)


def build(method: str, data: Split) -> GPyTorchModel:
    """A model with BoTorch's defaults, not fitted."""
    m = len(data.random_points)
    builders: dict[str, Callable[[], GPyTorchModel]] = {
        "sparse-random": lambda: dropin_peers.sparse(*data[:2], data.random_points),
        "sparse-sampled": lambda: SparseSingleTaskGP(*data[:2], max_inducing_points=m),
        "sparse-learned": lambda: SparseSingleTaskGP(
            *data[:2], max_inducing_points=m, learn_inducing_points=True
        ),
        "sparse-auto": lambda: SparseSingleTaskGP(*data[:2]),
        "svgp": lambda: dropin_peers.svgp(*data[:2], m),
        "sgpr": lambda: dropin_peers.sgpr(*data[:2], data.random_points),
    }
    return builders[method]()


def run(method: str, data: Split) -> Entry:
    """Fit, predict the held-out rows, and score."""
    fitted = dropin_peers.fit(partial(build, method, data))
    start = time.perf_counter()
    mean, variance = dropin_peers.predict(fitted.model, data.test_X)
    predicted = time.perf_counter()
    error = data.test_Y.squeeze(-1) - mean
    nlpd = 0.5 * ((2 * math.pi * variance).log() + error.square() / variance)
    return {
        "rmse": float(error.square().mean().sqrt()),
        "nlpd": float(nlpd.mean()),
        "fit_seconds": fitted.fit_seconds,
        "fit_cpu_seconds": fitted.fit_cpu_seconds,
        "construction_seconds": fitted.construction_seconds,
        "prediction_seconds": predicted - start,
        "evaluations": fitted.evaluations,
        "loss": fitted.loss,
        "num_inducing": getattr(fitted.model, "num_inducing", len(data.random_points)),
        "num_train": len(data.X),
        "threads": torch.get_num_threads(),
    }


def key(data: str, method: str, seed: int, args: argparse.Namespace) -> str:
    """The name of an entry: all that it depends on."""
    return f"{data} rows={args.rows} m={args.num_inducing} {method} seed={seed}"


def run_missing(entries: dict[str, Entry], args: argparse.Namespace) -> None:
    """Run what is not in `entries`, and write the file after each entry."""
    for data in args.data:
        for seed in range(args.seeds):
            missing = [
                method
                for method in args.methods
                if key(data, method, seed, args) not in entries
            ]
            if not missing:
                continue
            try:
                rows = split(data, seed, args.rows, args.num_inducing)
            except InputDataError as error:
                print(f"{data}: left out, {error}")
                break
            for method in missing:
                entry = run(method, rows)
                entries[key(data, method, seed, args)] = entry
                write(entries, args.output)
                print(f"  {data}, {method}, seed {seed}: {describe(entry)}", flush=True)


def describe(entry: Entry) -> str:
    """One run in a line."""
    return (
        f"m = {entry['num_inducing']}, RMSE {entry['rmse']:.4f}, NLPD "
        f"{entry['nlpd']:.4f}, fit {entry['fit_seconds']:.1f} s "
        f"({entry['evaluations']} evaluations to {entry['loss']:.4f})"
    )


def write(entries: dict[str, Entry], output: Path | None) -> None:
    """Replace the file in one step, so that an interrupted run leaves a whole one."""
    if output is not None:
        write_whole(output, json.dumps(entries, indent=1))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and the half width of its 95% interval (Student's t); NaN for one value."""
    if len(values) < 2:
        return values[0], math.nan
    quantile = student_t.ppf(0.975, len(values) - 1)
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values), half


def report(entries: dict[str, Entry], args: argparse.Namespace) -> None:
    """Means of each method, and ours against each peer, paired over the seeds."""
    for data in args.data:
        found = {
            method: {
                seed: entries[name]
                for seed in range(args.seeds)
                if (name := key(data, method, seed, args)) in entries
            }
            for method in args.methods
        }
        found = {method: runs for method, runs in found.items() if runs}
        for method, runs in found.items():
            print(f"{data}, {method}: {summary(list(runs.values()))}")
        for ours in (method for method in OURS if method in found):
            for peer in (method for method in PEERS if method in found):
                print(f"  {ours} against {peer}: {against(found[ours], found[peer])}")


def summary(runs: list[Entry]) -> str:
    """Means with their 95% intervals."""
    scores = [f"{score.upper()} {shown([r[score] for r in runs])}" for score in SCORES]
    losses = [run["loss"] for run in runs if "loss" in run]
    if losses:
        scores.append(f"loss {shown(losses)} ({len(losses)} seeds)")
    seconds = shown([run["fit_seconds"] for run in runs], "{:.1f}")
    m = statistics.mean(run["num_inducing"] for run in runs)
    return f"m = {m:.0f}, {', '.join(scores)}, fit {seconds} s, {len(runs)} seeds"


def shown(values: Sequence[float], number: str = "{:.4f}") -> str:
    """Mean and half width; the value alone where there is one."""
    mean, half = (number.format(value) for value in interval(values))
    return mean if len(values) < 2 else f"{mean} +- {half.removeprefix('+')}"


def against(ours: dict[int, Entry], peers: dict[int, Entry]) -> str:
    """Differences and time ratios of the seeds that both have."""
    seeds = sorted(ours.keys() & peers.keys())
    if not seeds:
        return "no seed in common"
    parts = []
    for score in SCORES:
        differences = [ours[s][score] - peers[s][score] for s in seeds]
        mean, half = interval(differences)
        verdict = " (worse)" if mean - half > 0 else " (no worse)"
        parts.append(
            f"{score.upper()} by {shown(differences, '{:+.4f}')}"
            f"{verdict if len(seeds) > 1 else ' (one seed)'}"
        )
    wall, cpu = (
        statistics.median(peers[s][unit] / ours[s][unit] for s in seeds)
        for unit in ("fit_seconds", "fit_cpu_seconds")
    )
    times = f"fit {wall:.2f} times shorter (at least 3), {cpu:.2f} in CPU time"
    return ", ".join([*parts, times])


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    methods = [*OURS, *PEERS]
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--methods", nargs="+", default=methods, choices=methods)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=50_000, help="drawn at random")
    parser.add_argument("--num-inducing", type=int, default=200)
    parser.add_argument("--output", type=Path, help="JSON file, read and extended")
    parser.add_argument("--report", action="store_true", help="of the file; run none")
    parser.add_argument("--short", action="store_true", help="one seed, 1500 rows")
    args = parser.parse_args(arguments)
    if args.short:
        args.seeds, args.rows, args.num_inducing = 1, 1500, 20
    entries: dict[str, Entry] = {}
    if args.output is not None and args.output.is_file():
        entries = json.loads(args.output.read_text(encoding="utf-8"))
    if not args.report:
        print(f"at most {args.rows} rows, {torch.get_num_threads()} threads:")
        run_missing(entries, args)
    report(entries, args)


if __name__ == "__main__":
    main()
