"""Which rows should a subset model keep? Selections by the accuracy of its mean.

    python -m benchmarks.gssbo_default --store FILE.json    # goes on
    python -m benchmarks.gssbo_default --report FILE.json   # runs nothing

A Matern-5/2 kernel that is known, functions drawn from its prior, n = 200 rows, M = 60,
the first 20 rows forced. Rows are spread evenly (`uniform`), in five heaps after an
even design (`clustered`), or those of GP-UCB (`optimization`). The error is the root
mean square of the difference of the subset's mean and the full GP's, at 500 points
spread evenly and at the best 40 rows. Each number is the median over seeds; ranges are
in the store.
"""

import argparse
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import MaternKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from benchmarks.store import Store
from botorch_sparse.models import SubsetSingleTaskGP

NUM_ROWS, NUM_INITIAL, SUBSET_SIZE, NUM_BEST = 200, 20, 60, 40
LENGTHSCALES = {2: 0.3, 6: 0.8}
KINDS = ("uniform", "clustered", "optimization")
NOISES = (1e-3, 0.1)
READINGS = ("contribution", "column", "scalar")
SELECTIONS: dict[str, dict[str, str]] = {
    "mixed": {"selection": "mixed"},
    "leverage": {"selection": "leverage"},
    "random": {"selection": "random"},
    "recent": {"selection": "recent"},
    **{reading: {"reading": reading} for reading in READINGS},
}
WHERE = ("everywhere", "near the best")
SETTINGS = {
    f"{dim}, {kind}, {noise:g}": (dim, kind, noise)
    for dim, kind, noise in product(LENGTHSCALES, KINDS, NOISES)
}


class Setting:
    """A function of the prior, and the rows of a kind.

    Args:
        dim: The number of inputs.
        kind: One of `KINDS`.
        noise: Variance of the observations.
        seed: Of all.
    """

    def __init__(self, dim: int, kind: str, noise: float, seed: int) -> None:
        self.dim, self.noise = dim, noise
        self.generator = torch.Generator().manual_seed(seed)
        self.kernel = MaternKernel(nu=2.5).double()
        self.kernel.lengthscale = LENGTHSCALES[dim]
        self.centres = self.even(500)
        K = self.kernel(self.centres).to_dense() + 1e-8 * torch.eye(500).double()
        self.weights = torch.linalg.solve(torch.linalg.cholesky(K).mT, self.normal(500))
        self.X = self.even(NUM_INITIAL)
        self.Y = self.observed(self.X)
        rest = NUM_ROWS - NUM_INITIAL
        if kind == "uniform":
            self.add(self.even(rest))
        elif kind == "clustered":
            heap = torch.randint(5, (rest,), generator=self.generator)
            self.add(self.near(self.even(5)[heap]))
        else:
            for _ in range(rest):
                self.add(self.largest_bound())

    def even(self, num: int) -> Tensor:
        """Points of the unit cube."""
        size = (num, self.dim)
        return torch.rand(size, generator=self.generator, dtype=torch.float64)

    def normal(self, *size: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(*size, generator=self.generator, dtype=torch.float64)

    def near(self, X: Tensor) -> Tensor:
        """Points near others."""
        return (X + 0.05 * self.normal(*X.shape)).clamp(0, 1)

    def observed(self, X: Tensor) -> Tensor:
        """Noisy values, `n x 1`."""
        f = self.kernel(X, self.centres).to_dense() @ self.weights
        return (f + self.noise**0.5 * self.normal(len(X))).unsqueeze(-1)

    def add(self, X: Tensor) -> None:
        """Further rows."""
        self.X, self.Y = torch.cat([self.X, X]), torch.cat([self.Y, self.observed(X)])

    def largest_bound(self) -> Tensor:
        """The largest upper confidence bound of even points and some near the best."""
        best = self.X[self.Y.argmax()].expand(200, -1)
        X = torch.cat([self.even(500), self.near(best)])
        posterior = self.model(subset_size=None).posterior(X)
        bound = posterior.mean + 2 * posterior.variance.sqrt()
        return X[bound.argmax()].unsqueeze(0)

    def model(self, **options: Any) -> SubsetSingleTaskGP:
        """The exact GP of some rows, under what is known."""
        likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-6)).double()
        likelihood.noise = self.noise
        model = SubsetSingleTaskGP(
            self.X,
            self.Y,
            likelihood=likelihood,
            covar_module=self.kernel,
            mean_module=ZeroMean(),
            outcome_transform=None,
            num_initial=NUM_INITIAL,
            **options,
        )
        return model.eval()


@torch.no_grad()
def errors(dim: int, kind: str, noise: float, seed: int) -> dict[str, list[float]]:
    """In the order of `WHERE`, by selection."""
    setting = Setting(dim, kind, noise, seed)
    best = setting.X[setting.Y.squeeze(-1).topk(NUM_BEST).indices]
    X = torch.cat([setting.even(500), best])
    exact, found = setting.model(subset_size=None).posterior(X).mean, {}
    for name, options in SELECTIONS.items():
        model = setting.model(subset_size=SUBSET_SIZE, seed=seed, **options)
        squares = (model.posterior(X).mean - exact).square()
        parts = squares[:-NUM_BEST], squares[-NUM_BEST:]
        found[name] = [float(f"{part.mean().sqrt():.4g}") for part in parts]
    return found


def run_missing(store: Store, seeds: int) -> None:
    """Make those settings that are not stored yet, or with fewer seeds."""
    for key, what in SETTINGS.items():
        stored = store.records.get(key, {}).get(WHERE[0], {}).get("random", [])
        if len(stored) >= seeds:
            continue
        runs = [errors(*what, seed) for seed in range(seeds)]
        table = {
            where: {name: [r[name][i] for r in runs] for name in SELECTIONS}
            for i, where in enumerate(WHERE)
        }
        store.add(key, table)


def report(store: Store) -> None:
    """Print medians, and how many runs have less of an error than random choice."""
    found = {key: store.records[key] for key in SETTINGS if key in store.records}
    for where in WHERE:
        tables = {key: record[where] for key, record in found.items()}
        print(f"| error {where}: inputs, rows, noise |", " | ".join(SELECTIONS), "|")
        print("|---" * (1 + len(SELECTIONS)) + "|")
        for key, table in tables.items():
            medians = [f"{statistics.median(table[name]):.3f}" for name in SELECTIONS]
            print(f"| {key} |", " | ".join(medians), "|")
        for kind in KINDS:
            alike = [table for key, table in tables.items() if kind in key]
            print(f"| {kind}, runs with less than random rows |", end="")
            for name in SELECTIONS:
                pairs = [
                    own < random
                    for table in alike
                    for own, random in zip(table[name], table["random"], strict=True)
                ]
                print(f" {sum(pairs)} of {len(pairs)} |", end="")
            print()
        print()
    print(store.made(found))


def main(arguments: list[str] | None = None) -> None:
    """Run what is not stored yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--store", type=Path, help="JSON file of the runs so far")
    parser.add_argument("--report", type=Path, help="only print this file")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    store = Store(args.report or args.store)
    if args.report is None:
        run_missing(store, args.seeds)
    report(store)


if __name__ == "__main__":
    main()
