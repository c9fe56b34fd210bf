"""Models of random problems, and what a batch makes of their variances, densely.

Everything is recomputed from matrices over all candidates; nothing is updated.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import oracles
import torch
from batch_oracles import Array, DenseNystrom, Problem, make_problem
from botorch.models import SingleTaskGP
from gpytorch.means import ZeroMean

from botorch_sparse.models import SparseSingleTaskGP

KINDS = ["nystrom", "exact"]


def sparse_problem(seed: int, **kwargs: Any) -> Problem:
    """A random problem with fewer inducing points than data."""
    problem = make_problem(seed, num_candidates=20 + seed % 40, **kwargs)
    n = len(problem.row)
    if n < 3:
        return sparse_problem(seed + 10_000, **kwargs)
    problem.inducing = problem.inducing[: max(1, n // 2)]
    return problem


def make_model(problem: Problem, kind: str, **tkwargs: Any) -> SingleTaskGP:
    """The model of a problem, in its own space: no transforms, known noise."""
    X = problem.X.to(**tkwargs)
    row = problem.row.to(X.device)
    kwargs = {
        "train_X": X[row],
        "train_Y": problem.Y.to(**tkwargs).unsqueeze(-1),
        "train_Yvar": problem.noise.to(**tkwargs).unsqueeze(-1),
        "covar_module": problem.make_kernel(**tkwargs),
        "mean_module": ZeroMean(),
        "outcome_transform": None,
    }
    if kind == "exact":
        return SingleTaskGP(**kwargs).eval()
    S = X[problem.inducing.to(X.device)]
    return SparseSingleTaskGP(**kwargs, inducing_points=S).eval()


class DenseFrozen:
    """Mean, covariances and variances of all candidates, with a batch pending.

    Args:
        problem: The problem.
        kind: `"nystrom"` or `"exact"`.
    """

    def __init__(self, problem: Problem, kind: str) -> None:
        nystrom = DenseNystrom(problem)
        self.mean, self.residual = nystrom.mean, nystrom.residual
        self.full, self.embedded = nystrom.full, nystrom.embedded
        if kind == "exact":
            K = oracles.DENSE[problem.kernel](problem.X, problem.X).numpy()
            row = problem.row.numpy()
            C = K[np.ix_(row, row)] + np.diag(problem.noise.numpy())
            gain = np.linalg.solve(C, K[row]).T
            self.mean = gain @ problem.Y.numpy()
            self.full = self.embedded = K - gain @ K[row]
            self.residual = np.zeros(len(K))

    @property
    def variance(self) -> Array:
        return self.residual + self.embedded.diagonal()

    def covariance_after(self, batch: Sequence[int], noise: Array) -> Array:
        """The embedded covariance with a batch pending, by one dense solve."""
        index = list(batch)
        C = self.embedded[np.ix_(index, index)] + np.diag(noise)
        gain = np.linalg.solve(C, self.embedded[index]).T
        return self.embedded - gain @ self.embedded[index]

    def variance_after(self, batch: Sequence[int], noise: Array) -> Array:
        return self.residual + self.covariance_after(batch, noise).diagonal()

    def exact_ratio(self, batch: Sequence[int], noise: Array) -> Array:
        return self.variance / self.variance_after(batch, noise)

    def local_bound(self, batch: Sequence[int], noise: Array, kind: str) -> Array:
        full = (self.full[:, list(batch)] ** 2 / noise).sum(-1)
        embedded = (self.embedded[:, list(batch)] ** 2 / noise).sum(-1)
        sums = {"paper": full, "embedded": embedded, "both": np.maximum(full, embedded)}
        return 1 + sums[kind] / self.variance

    def global_bound(self, batch: Sequence[int], noise: Array) -> float:
        return float(1 + (self.variance[list(batch)] / noise).sum())

    def product_bound(self, batch: Sequence[int], noise: Array) -> float:
        before = [
            self.variance_after(batch[:s], noise[:s])[i] for s, i in enumerate(batch)
        ]
        return float(np.prod(1 + np.array(before) / noise))

    def product_of_first(self, batch: Sequence[int], noise: Array) -> float:
        return float(np.prod(1 + self.variance[list(batch)] / noise))


def random_batch(problem: Problem, seed: int, size: int = 6) -> tuple[list[int], Array]:
    """Candidates, some of them twice, and a noise variance for each."""
    g = np.random.default_rng(seed)
    batch = g.integers(0, len(problem.X), size).tolist()
    batch[-1] = batch[0]
    return batch, problem.lam * g.uniform(0.5, 2.0, size)


def tensors(
    problem: Problem, batch: Sequence[int], noise: Array, **tkwargs: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All candidates as t-batches of one, the batch's points, their noise."""
    X = problem.X.to(**tkwargs)
    return X.unsqueeze(-2), X[list(batch)], torch.from_numpy(noise).to(**tkwargs)
