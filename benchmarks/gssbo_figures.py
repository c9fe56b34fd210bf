"""Two figures of [Wei2025]_ with our implementation, as PNG files in a folder.

    python -m benchmarks.gssbo_figures FOLDER --store FILE.json   # goes on
    python -m benchmarks.gssbo_figures --report FILE.json         # runs nothing

`gssbo_samples.png` (its Figure 7): of the first 200 samples of GP-UCB on Hartmann6,
which 100 each selection keeps; and how many of them its rule of 5% asks for (appendix
A.1). `gssbo_buffer.png` (its Figure 4): cumulative regret for four factors Z of the
dynamic buffer, by a clock that counts samples (`SampleClock`), so that Z decides on M
as it did for the authors.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import matplotlib
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.gssbo import Plan, done, interval, key, run_missing
from benchmarks.gssbo_default import SELECTIONS
from benchmarks.gssbo_methods import FACTORS, Loop, Run, Setting, matern
from benchmarks.gssbo_problems import NUM_INITIAL, Problem
from benchmarks.store import Store
from botorch_sparse.inducing import (
    exact_gradients,
    select_by_gradient_diversity,
    smallest_subset_size,
)
from botorch_sparse.models import SubsetSingleTaskGP

NUM_SAMPLES = 200
BUFFER = Setting()
BUFFER_PROBLEMS = ("hartmann6", "powell50")
BUFFER_METHODS = (*(f"Z={Z}" for Z in FACTORS), "rssbo-Z=4", "gp-ucb")
# The share of the samples that counts as near the optimum.
BEST = 0.2


def fitted(X: Tensor, Y: Tensor) -> dict[str, Any]:
    """Modules whose hyperparameters are fitted to all samples."""
    model = SubsetSingleTaskGP(X, Y, covar_module=matern(X.shape[-1]))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    names = ("covar_module", "likelihood", "mean_module")
    return {name: getattr(model, name) for name in names}


def draw_samples(folder: Path, setting: Setting, seed: int = 0) -> None:
    """Which samples stay, in the first two dimensions."""
    from matplotlib import pyplot as plt

    loop = Loop(Problem("hartmann6", seed), setting)
    while len(loop.X) < NUM_SAMPLES:
        loop.step()
    X, Y = loop.X, loop.Y
    threshold = Y.quantile(1 - BEST)
    panels, modules = {"all 200": torch.arange(NUM_SAMPLES)}, fitted(X, Y)
    size: dict[str, Any] = {"subset_size": setting.size, "num_initial": NUM_INITIAL}
    for name, options in SELECTIONS.items():
        model = SubsetSingleTaskGP(X, Y, **modules, **size, **options)
        # Chosen again, by gradients under a subset that was chosen.
        panels[name] = model.reselect().subset_indices
    figure, axes = plt.subplots(1, len(panels), figsize=(22, 3.6), sharey=True)
    for axis, (title, rows) in zip(axes, panels.items(), strict=True):
        order = rows[Y[rows].flatten().argsort()]
        image = axis.scatter(*X[order, :2].T, c=Y[order].flatten(), s=14)
        image.set_clim(float(Y.min()), float(Y.max()))
        best = int((Y[rows] >= threshold).sum())
        axis.set(title=title, xlabel=f"{best} of the best 40")
        print(f"{title}: {len(rows)} samples, {best} of the best 40")
    figure.colorbar(image, ax=axes, label="value")
    figure.savefig(folder / "gssbo_samples.png", dpi=120, bbox_inches="tight")
    plt.close(figure)
    report_smallest(SubsetSingleTaskGP(X, Y, **modules))


@torch.no_grad()
def report_smallest(model: SubsetSingleTaskGP) -> None:
    """M by the rule of 5% (its appendix A.1), for three orders of the samples."""
    X, kernel = model.all_train_X, model.covar_module
    error = model.train_targets - model.mean_module(X)  # in units of the model
    noise = model.likelihood.noise.expand(len(X))
    gradients = exact_gradients(kernel, X, error, noise)
    orders = {
        "as sampled": torch.arange(len(X)),
        "by leverage": model.rows_by_leverage(len(X), torch.arange(NUM_INITIAL)),
        "by gradients": select_by_gradient_diversity(
            gradients, len(X), torch.arange(NUM_INITIAL)
        ),
    }
    for name, order in orders.items():
        print(f"M of the 5% rule, {name}: {smallest_subset_size(kernel, X, order)}")


def buffer_runs(store: Store, name: str, seeds: int) -> dict[str, dict[int, Run]]:
    """The runs of each method on a problem, of those seeds that all methods have."""
    stored = {m: done(store, BUFFER, name, m, seeds) for m in BUFFER_METHODS}
    common = sorted(set.intersection(*(set(one) for one in stored.values())))
    return {method: {s: one[s] for s in common} for method, one in stored.items()}


def report_buffer(store: Store, seeds: int) -> None:
    """Print a table of each problem, from the stored runs."""
    told = []
    for name in BUFFER_PROBLEMS:
        found = buffer_runs(store, name, seeds)
        regret = {
            method: [float(sum(run["regret"])) for run in own.values()]
            for method, own in found.items()
        }
        peer = regret["gp-ucb"]
        print(
            f"{name}, {BUFFER.total} evaluations, {len(peer)} seeds: "
            "cumulative regret, over that of GP-UCB with the same seed, M in the end"
        )
        for method, own in regret.items() if peer else ():
            told += [key(BUFFER, name, method, seed) for seed in found[method]]
            ratios = [a / b for a, b in zip(own, peer, strict=True)]
            size = statistics.mean(run["size"] for run in found[method].values())
            print(
                f"  {method:10s} {interval(own):18s} {interval(ratios):18s} {size:.0f}"
            )
    print(store.made(told))


def draw_buffer(folder: Path, store: Store, seeds: int) -> None:
    """Cumulative regret for each Z, the mean over seeds."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(BUFFER_PROBLEMS), figsize=(11, 4))
    for axis, name in zip(axes, BUFFER_PROBLEMS, strict=True):
        for method, own in buffer_runs(store, name, seeds).items():
            runs = list(own.values())
            regret = torch.tensor([run["regret"] for run in runs]).cumsum(-1)
            size = statistics.mean(run["size"] for run in runs)
            label = f"{method}, M = {size:.0f}"
            axis.plot(regret.mean(0), "--" if method == "gp-ucb" else "-", label=label)
        axis.set(title=f"{name}, {len(own)} seeds")
        axis.set(xlabel="evaluations", ylabel="cumulative regret")
        axis.legend(fontsize=8)
    figure.savefig(folder / "gssbo_buffer.png", dpi=120, bbox_inches="tight")
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    """Draw both, or print what is stored of the second."""
    matplotlib.use("Agg")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="of the figures")
    parser.add_argument("--only", choices=["samples", "buffer"])
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args(arguments)
    if args.report is not None:
        report_buffer(Store(args.report), args.seeds)
        return
    if args.folder is None:
        parser.error("the folder of the figures, or --report FILE")
    torch.set_num_threads(1)
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.only != "buffer":
        draw_samples(args.folder, BUFFER)
    if args.only != "samples":
        store = Store(args.store)
        run_missing(store, Plan(BUFFER, BUFFER_PROBLEMS, BUFFER_METHODS, args.seeds))
        draw_buffer(args.folder, store, args.seeds)


if __name__ == "__main__":
    main()
