"""Random problems on candidate tables and their dense, slow answers in NumPy.

Nothing is updated here: after every point of a batch all is computed anew, from the
inverse of `I + P P'` (Nystrom) or of the kernel matrix (exact), with `oracles.DENSE`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import oracles
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.optim import CandidatePool, ExactCandidatePool
from botorch_sparse.posteriors import NystromPosterior

Array = NDArray[np.float64]


@dataclass
class Problem:
    """A table, evaluations of some of its rows with repeats folded, inducing rows."""

    X: Tensor  # A x d, float64
    row: Tensor  # n evaluated rows, unique
    count: Tensor  # n
    Y: Tensor  # n means
    inducing: Tensor  # m of the evaluated rows
    lam: float
    kernel: str

    @property
    def noise(self) -> Tensor:
        return self.lam / self.count

    def make_kernel(self, **tkwargs: Any) -> Kernel:
        return oracles.make_kernel(self.kernel, **tkwargs)

    def posterior(self, **tkwargs: Any) -> NystromPosterior:
        X = self.X.to(**tkwargs)
        row = self.row.to(X.device)
        return NystromPosterior.from_data(
            self.make_kernel(**tkwargs),
            X[row],
            self.Y.to(**tkwargs),
            self.noise.to(**tkwargs),
            X[self.inducing.to(X.device)],
        )

    def pool(self, *, max_memory: int = 2**30, **tkwargs: Any) -> CandidatePool:
        pool = CandidatePool(self.X.to(**tkwargs), max_memory=max_memory)
        pool.update(self.posterior(**tkwargs))
        return pool

    def exact_pool(self, **tkwargs: Any) -> ExactCandidatePool:
        X = self.X.to(**tkwargs)
        pool = ExactCandidatePool(X, self.make_kernel(**tkwargs), self.lam)
        data = (X[self.row], self.Y.to(**tkwargs), self.noise.to(**tkwargs))
        pool.rebuild(*data)
        return pool


def make_problem(
    seed: int,
    *,
    kernel: str | None = None,
    num_candidates: int | None = None,
    lam: float | None = None,
    num_inducing: int | None = None,
) -> Problem:
    """A random problem; sizes, noise and kernel are random where not given."""
    g = np.random.default_rng(seed)
    A = num_candidates or int(g.integers(12, 90))
    X = g.random((A, int(g.integers(2, 4))))
    n = int(g.integers(1, max(2, A // 2)))
    row = g.choice(A, n, replace=False)
    m = num_inducing if num_inducing is not None else int(g.integers(1, n + 1))
    Y = np.sin(5 * X[row]).sum(-1) + 0.1 * g.standard_normal(n)
    return Problem(
        X=torch.from_numpy(X),
        row=torch.from_numpy(row),
        count=torch.from_numpy(g.integers(1, 6, n)).double(),
        Y=torch.from_numpy(Y),
        inducing=torch.from_numpy(g.choice(row, min(m, n), replace=False)),
        lam=lam or float(10 ** g.uniform(-2.5, 0.5)),
        kernel=kernel or str(g.choice(["matern32", "scaled"])),
    )


class DenseNystrom:
    """Mean and covariances of all candidates with the inducing set frozen."""

    def __init__(self, problem: Problem) -> None:
        dense = oracles.DENSE[problem.kernel]
        X, S = problem.X, problem.X[problem.inducing]
        K = dense(X, X).numpy()
        eigenvalues, V = np.linalg.eigh(dense(S, S).numpy())
        keep = eigenvalues > 1e-13 * eigenvalues.max(initial=0.0)
        basis = V[:, keep] / np.sqrt(eigenvalues[keep])
        phi = dense(X, S).numpy() @ basis  # A x m
        data = phi[problem.row.numpy()]
        precision = 1 / problem.noise.numpy()
        B = np.eye(keep.sum()) + (data.T * precision) @ data
        inverse = np.linalg.inv(B)
        self.lam = problem.lam
        self.mean: Array = phi @ inverse @ (data.T * precision) @ problem.Y.numpy()
        self.residual: Array = (K - phi @ phi.T).diagonal().clip(0.0)
        self.W: Array = phi @ np.linalg.inv(np.linalg.cholesky(B)).T
        self.embedded: Array = self.W @ self.W.T
        self.full: Array = K - phi @ phi.T + self.embedded

    @property
    def variance(self) -> Array:
        return self.residual + self.embedded.diagonal()

    def variance_after(self, batch: Sequence[int]) -> Array:
        """The variance with a batch pending, from a dense inverse of `I + P P'`."""
        P = self.W[list(batch)].T / np.sqrt(self.lam)
        M = np.linalg.inv(np.eye(len(P)) + P @ P.T)
        return self.residual + np.einsum("am,mk,ak->a", self.W, M, self.W)


class DenseExact:
    """The exact posterior of all candidates under any data and pending rows."""

    def __init__(self, kernel: str, X: Tensor) -> None:
        self.K: Array = oracles.DENSE[kernel](X, X).numpy()

    def mean_variance(
        self, row: Sequence[int], Y: Sequence[float], noise: Sequence[float]
    ) -> tuple[Array, Array]:
        row = list(row)
        C = self.K[np.ix_(row, row)] + np.diag(noise)
        gain = np.linalg.solve(C, self.K[row]).T
        variance = self.K.diagonal() - (gain * self.K[:, row]).sum(-1)
        return gain @ np.asarray(Y), variance


def assert_close(
    actual: Tensor | Array | float, expected: Array | float, **tolerance: float
) -> None:
    """Compare on the host in float64."""
    if isinstance(actual, Tensor):
        actual = actual.detach().cpu().double().numpy()
    np.testing.assert_allclose(actual, expected, **tolerance)
