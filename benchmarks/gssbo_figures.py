"""Two figures of [Wei2025]_ with our implementation, as PNG files in a folder.

`python -m benchmarks.gssbo_figures FOLDER --store FILE.json`

`gssbo_samples.png` (its Figure 7): of the first 200 samples of GP-UCB on Hartmann6,
which 100 each selection keeps. `gssbo_buffer.png` (its Figure 4): cumulative regret for
four factors Z of the dynamic buffer. Its clock is not that of the machine: an
iteration takes time in proportion to its samples (see `SampleClock`), so that Z decides
on M as it did for the authors.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.gssbo import done, load, run_missing
from benchmarks.gssbo_baselines import Loop, matern
from benchmarks.gssbo_methods import FACTORS, READINGS, SUBSET_SIZE
from benchmarks.gssbo_problems import NUM_INITIAL, Problem
from botorch_sparse.models import SubsetSingleTaskGP

NUM_SAMPLES = 200
BUFFER_PROBLEMS = ("hartmann6", "powell50")
BUFFER_METHODS = (*(f"gssbo-Z={Z}" for Z in FACTORS), "rssbo-Z=4", "gp-ucb")
# The share of the samples that counts as near the optimum.
BEST = 0.2


def kept(X: Tensor, Y: Tensor, selection: str, reading: str) -> Tensor:
    """The rows that a selection keeps, under hyperparameters fitted to all of them."""
    model = SubsetSingleTaskGP(X, Y, covar_module=matern(X.shape[-1]), seed=0)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    chosen = SubsetSingleTaskGP(
        X,
        Y,
        covar_module=model.covar_module,
        likelihood=model.likelihood,
        mean_module=model.mean_module,
        subset_size=SUBSET_SIZE,
        num_initial=NUM_INITIAL,
        selection=selection,
        reading=reading,
    )
    return chosen.reselect().subset_indices


def draw_samples(folder: Path, seed: int = 0) -> None:
    """Which samples stay, in the first two dimensions."""
    from matplotlib import pyplot as plt

    loop = Loop(Problem("hartmann6", seed))
    while len(loop.X) < NUM_SAMPLES:
        loop.step()
    X, Y = loop.X, loop.Y
    threshold = Y.quantile(1 - BEST)
    panels = {"GP-UCB, all 200": torch.arange(NUM_SAMPLES)}
    for reading in READINGS:
        panels[f"GSSBO, {reading}"] = kept(X, Y, "gradient", reading)
    panels["RSSBO"] = kept(X, Y, "random", "contribution")
    figure, axes = plt.subplots(1, len(panels), figsize=(16, 3.6), sharey=True)
    for axis, (title, rows) in zip(axes, panels.items(), strict=True):
        order = rows[Y[rows].flatten().argsort()]
        image = axis.scatter(
            X[order, 0], X[order, 1], c=Y[order].flatten(), s=14, cmap="viridis"
        )
        image.set_clim(float(Y.min()), float(Y.max()))
        best = int((Y[rows] >= threshold).sum())
        spread = float(X[rows].var(dim=0).sum())
        axis.set_title(title)
        axis.set_xlabel(f"{best} of the best 40\nvariance {spread:.2f}")
        print(f"{title}: {len(rows)} samples, {best} of the best 40, {spread:.3f}")
    figure.colorbar(image, ax=axes, label="value")
    figure.savefig(folder / "gssbo_samples.png", dpi=120, bbox_inches="tight")
    plt.close(figure)


def draw_buffer(folder: Path, args: argparse.Namespace) -> None:
    """Cumulative regret for each Z, the mean over seeds."""
    from matplotlib import pyplot as plt

    runs = load(args.store)
    run_missing(args, runs)
    figure, axes = plt.subplots(1, len(args.problems), figsize=(11, 4))
    for axis, name in zip(axes, args.problems, strict=True):
        for method in args.methods:
            stored = list(done(runs, name, method, args.seeds).values())
            if not stored:
                continue
            regret = torch.tensor([r["regret"][: args.total] for r in stored]).cumsum(
                -1
            )
            size = sum(r["size"] for r in stored) / len(stored)
            label = f"{method}, M = {size:.0f}"
            axis.plot(regret.mean(0), "--" if method == "gp-ucb" else "-", label=label)
            last = ", ".join(f"{r:.4g}" for r in regret[:, -1].tolist())
            print(f"{name}, {label}: {regret[:, -1].mean():.4g} ({last})")
        axis.set(title=f"{name}, clock of samples", xlabel="evaluations")
        axis.set_ylabel("cumulative regret")
        axis.legend(fontsize=8)
    figure.savefig(folder / "gssbo_buffer.png", dpi=120, bbox_inches="tight")
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    """Draw both."""
    matplotlib.use("Agg")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=["samples", "buffer"])
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--total", type=int, default=300)
    args: Any = parser.parse_args(arguments)
    args.problems, args.methods = BUFFER_PROBLEMS, BUFFER_METHODS
    args.first_seed = 0
    torch.set_num_threads(1)
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.only != "buffer":
        draw_samples(args.folder)
    if args.only != "samples":
        draw_buffer(args.folder, args)


if __name__ == "__main__":
    main()
