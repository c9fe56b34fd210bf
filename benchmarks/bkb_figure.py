r"""Figure 1 of [Calandriello2019]_ (BKB): variances that do not starve, with figures.

A function drawn from a GP on [0, 1], evaluations sampled uniformly in [0, 0.5], and BKB
told of them one by one: mean and three standard deviations after 6, 63 and 215. The
paper's "bandwidth sigma^2 = 100" is read as :math:`e^{-100 (x - x')^2 / 2}`, a
lengthscale of 0.1: one of 10 or 100 would make a straight line. It names neither noise
nor q-bar; here they are 0.1 and 2, that of the authors' experiments.

Printed, over seeds: inducing points; the smallest and largest ratio of BKB's variance
to the exact GP's on each half; the smallest such ratio of the subset of regressors,
which is BKB's variance without the residual and starves; and how much of f lies within
the band.

    python -m benchmarks.bkb_figure --store FILE.json --plot FIGURE.png
    python -m benchmarks.bkb_figure --report FILE.json
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from benchmarks.store import Store
from botorch_sparse.plotting import plot_confidence_band
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies import BKB

SEEN_AT = (6, 63, 215)
LENGTHSCALE, NOISE_SD, WIDTH = 0.1, 0.1, 3.0
NUM_POINTS = 1001


@dataclass(frozen=True)
class Picture:
    """What is drawn at one t.

    Attributes:
        posterior: BKB's.
        f: The function at the points `X`.
        X: `num_points x 1` points of [0, 1].
        exact: The exact GP's variances there.
        rows: Those evaluated, with their feedback `Y`.
    """

    posterior: NystromPosterior
    f: Tensor
    X: Tensor
    exact: Tensor
    rows: Tensor
    Y: Tensor

    def figures(self) -> dict[str, float]:
        """What is printed of it."""
        mean, variance = self.posterior.moments(self.X)
        features = self.posterior.features(self.X)
        regressors = variance - self.posterior.residual(self.X, features)
        inside = (mean - self.f).abs() <= WIDTH * variance.sqrt()
        ratio, seen = variance / self.exact, self.X[:, 0] <= 0.5
        return {
            "num_inducing": float(self.posterior.num_inducing),
            "seen_min": float(ratio[seen].min()),
            "seen_max": float(ratio[seen].max()),
            "unseen_min": float(ratio[~seen].min()),
            "unseen_max": float(ratio[~seen].max()),
            "regressors_min": float((regressors / self.exact).min()),
            "inside": float(inside.double().mean()),
        }


def kernel() -> RBFKernel:
    """The kernel of the figure."""
    found = RBFKernel().double().requires_grad_(False)
    found.lengthscale = LENGTHSCALE
    return found


def pictures(
    seed: int, seen_at: Sequence[int] = SEEN_AT, num_points: int = NUM_POINTS
) -> dict[int, Picture]:
    """By t, what BKB has learned of the function of a seed."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.linspace(0, 1, num_points, dtype=torch.float64).unsqueeze(-1)
    K = kernel()(X).to_dense()
    values, vectors = torch.linalg.eigh(K)
    e = torch.randn(num_points, dtype=torch.float64, generator=generator)
    f = vectors @ (values.clamp_min(0).sqrt() * e)
    rows = torch.randint(num_points // 2 + 1, (max(seen_at),), generator=generator)
    noise = torch.randn(len(rows), dtype=torch.float64, generator=generator)
    Y = f[rows] + NOISE_SD * noise
    lam, seen = NOISE_SD**2, {}
    strategy = BKB(
        X, kernel(), lam=lam, noise_variance=lam, mean_module=ZeroMean(), seed=seed
    )
    for t, row in enumerate(rows.tolist(), start=1):
        strategy.tell(X[row : row + 1], Y[t - 1 : t])
        if t in seen_at:
            S = rows[:t]
            L = torch.linalg.cholesky(K[S][:, S] + lam * torch.eye(t))
            down = torch.linalg.solve_triangular(L, K[S], upper=False)
            exact = K.diagonal() - down.square().sum(0)
            seen[t] = Picture(strategy.posterior, f, X, exact, S, Y[:t])
    return seen


def report(store: Store, seeds: int) -> None:
    """Print the medians over seeds, and the extremes."""
    print(
        f"{'t':>4}{'seeds':>6}{'m':>5}  {'variance over the exact one':^33}"
        f"{'regressors':>12}{'f in the':>10}\n{'':17}{'[0, 0.5]':^16}"
        f"{'(0.5, 1]':^16}{'at least':>13}{'band':>10}"
    )
    for t in SEEN_AT:
        found = [
            store.records[f"{t}/{seed}"]
            for seed in range(seeds)
            if f"{t}/{seed}" in store.records
        ]
        column = {name: [one[name] for one in found] for name in (found or [{}])[0]}
        column.pop("made", None)
        if column:
            m = sum(column["num_inducing"]) / len(found)
            print(
                f"{t:>4}{len(found):>6}{m:>5.0f}"
                f"{min(column['seen_min']):>9.3f} to{max(column['seen_max']):6.3f}"
                f"{min(column['unseen_min']):>8.3f} to{max(column['unseen_max']):6.3f}"
                f"{min(column['regressors_min']):>11.1e}"
                f"{sum(column['inside']) / len(found):>10.3f}"
            )


def plot(shown: Mapping[int, Picture], path: Path) -> None:
    """A panel for each t."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    panels = figure.subplots(1, len(shown), sharey=True)
    for panel, (t, picture) in zip(panels, shown.items(), strict=True):
        plot_confidence_band(
            picture.posterior.moments,
            picture.X,
            beta=WIDTH**2,
            truth=lambda x, f=picture.f: f[(x[:, 0] * (len(f) - 1)).round().long()],
            observations=(picture.X[picture.rows], picture.Y),
            inducing_points=picture.posterior.inducing_points,
            ax=panel,
        )
        panel.set(title=f"t = {t}, m = {picture.posterior.num_inducing}")
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--store", type=Path, help="JSON file of finished runs")
    parser.add_argument("--report", type=Path, help="only print this file")
    parser.add_argument("--plot", type=Path, help="PNG or SVG file of seed 0")
    args = parser.parse_args(arguments)
    store = Store(args.report or args.store)
    for seed in range(args.seeds) if args.report is None else ():
        if any(f"{t}/{seed}" not in store.records for t in SEEN_AT):
            for t, picture in pictures(seed).items():
                store.add(f"{t}/{seed}", picture.figures())
    print(store.made(store.records))
    report(store, args.seeds)
    if args.plot:
        plot(pictures(0), args.plot)


if __name__ == "__main__":
    main()
