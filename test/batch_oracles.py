"""Random problems on candidate tables and their dense, slow answers in NumPy.

Nothing is updated here: after every point of a batch all is computed anew from
matrices over all candidates, with `oracles.DENSE`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import oracles
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel
from gpytorch.means import ZeroMean
from numpy.typing import NDArray
from torch import Tensor

from botorch_sparse.batching import BatchView, Local, Rule
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.pools import ExactPool, NystromPool
from botorch_sparse.pools.device_batch import DeviceMoments, RankOneBatch
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows
from botorch_sparse.posteriors import NystromPosterior

Array = NDArray[np.float64]
T = TypeVar("T")

KINDS = ["nystrom", "exact"]
HOST = {"dtype": torch.float64, "device": torch.device("cpu")}


def fewer(cases: Sequence[T], tkwargs: dict[str, Any], count: int = 1) -> Sequence[T]:
    """All cases in float64 on the host, else the first of them.

    Another device or dtype takes the same formulas through other kernels: what a case
    can show there it shows once, and each operation has its price.
    """
    return cases if tkwargs == HOST else cases[:count]


class DevicePool(NystromPool):
    """Candidates embedded as on an accelerator, also on the host."""

    on_device = True


def device_batch(
    kind: type[RankOneBatch],
    pool: NystromPool,
    multiplier: float,
    rule: Rule | None = None,
    selectable: SelectableRows = ALL_ROWS,
) -> RankOneBatch:
    """A batch of an accelerator, whichever of them the pool would start."""
    assert isinstance(pool._state, DeviceMoments)
    return kind(pool, pool._state, multiplier, rule, selectable)


@dataclass(frozen=True)
class OnePlate:
    """A rule of a user: the local one, and no more points than wells."""

    wells: int
    ratio_threshold: float = 8.0

    def bound(self, batch: BatchView) -> float | Tensor:
        filled = self.ratio_threshold * batch.size / (self.wells - 0.5)
        is_full = filled > self.ratio_threshold
        return filled if is_full else Local(self.ratio_threshold).bound(batch)


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

    @property
    def data(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points, values and noise variances of the evaluations."""
        return self.X[self.row], self.Y, self.noise

    def make_kernel(self, **tkwargs: Any) -> Kernel:
        return oracles.make_kernel(self.kernel, **tkwargs)

    def posterior(self, **tkwargs: Any) -> NystromPosterior:
        X, Y, noise, S = (t.to(**tkwargs) for t in (*self.data, self.X[self.inducing]))
        return NystromPosterior.from_data(self.make_kernel(**tkwargs), X, Y, noise, S)

    def pool(
        self,
        kind: type[NystromPool] = NystromPool,
        *,
        max_memory: int = 2**30,
        **tkwargs: Any,
    ) -> NystromPool:
        pool = kind(self.X.to(**tkwargs), self.lam, max_memory=max_memory)
        pool.update(self.posterior(**tkwargs))
        return pool

    def exact_pool(self, **tkwargs: Any) -> ExactPool:
        kernel = self.make_kernel(**tkwargs)
        pool = ExactPool(self.X.to(**tkwargs), kernel, self.lam)
        pool.rebuild(*(t.to(**tkwargs) for t in self.data))
        return pool

    def model(self, kind: str, **tkwargs: Any) -> SingleTaskGP:
        """The model in its own space: no transforms, known noise."""
        X, Y, noise = (t.to(**tkwargs) for t in self.data)
        kwargs = {
            "train_X": X,
            "train_Y": Y.unsqueeze(-1),
            "train_Yvar": noise.unsqueeze(-1),
            "covar_module": self.make_kernel(**tkwargs),
            "mean_module": ZeroMean(),
            "outcome_transform": None,
        }
        if kind == "exact":
            return SingleTaskGP(**kwargs).eval()
        S = self.X[self.inducing].to(**tkwargs)
        return SparseSingleTaskGP(**kwargs, inducing_points=S).eval()


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


def sparse_problem(seed: int, **kwargs: Any) -> Problem:
    """A random problem with fewer inducing points than data."""
    problem = make_problem(seed, num_candidates=20 + seed % 40, **kwargs)
    n = len(problem.row)
    if n < 3:
        return sparse_problem(seed + 10_000, **kwargs)
    problem.inducing = problem.inducing[: max(1, n // 2)]
    return problem


def random_batch(problem: Problem, seed: int, size: int = 6) -> tuple[list[int], Array]:
    """Candidates, some of them twice, and a noise variance for each."""
    g = np.random.default_rng(seed)
    batch = g.integers(0, len(problem.X), size).tolist()
    batch[-1] = batch[0]
    return batch, problem.lam * g.uniform(0.5, 2.0, size)


def tensors(
    problem: Problem, batch: Sequence[int], noise: Array, **tkwargs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """All candidates as t-batches of one, the batch's points, their noise."""
    X = problem.X.to(**tkwargs)
    return X.unsqueeze(-2), X[list(batch)], torch.from_numpy(noise).to(**tkwargs)


class Dense:
    """Mean, covariances and variances of all candidates, with a batch pending.

    Args:
        problem: The problem.
        kind: `"nystrom"`, whose inducing set stands still, or `"exact"`.

    Noise variances of a batch's evaluations are the problem's own where not given.
    """

    def __init__(self, problem: Problem, kind: str = "nystrom") -> None:
        self.lam = problem.lam
        dense = oracles.DENSE[problem.kernel]
        if kind == "exact":
            exact = oracles.exact(dense, *problem.data, problem.X)
            self.mean: Array = exact.mean.numpy()
            self.full: Array = exact.covariance.numpy()
            self.embedded, self.residual = self.full, np.zeros(len(self.full))
            return
        X, S = problem.X, problem.X[problem.inducing]
        K = dense(X, X).numpy()
        eigenvalues, V = np.linalg.eigh(dense(S, S).numpy())
        keep = eigenvalues > 1e-13 * eigenvalues.max(initial=0.0)
        basis = V[:, keep] / np.sqrt(eigenvalues[keep])
        phi = dense(X, S).numpy() @ basis  # A x m
        data = phi[problem.row.numpy()]
        weighted = data.T / problem.noise.numpy()
        inverse = np.linalg.inv(np.eye(keep.sum()) + weighted @ data)
        self.mean = phi @ inverse @ weighted @ problem.Y.numpy()
        self.residual = (K - phi @ phi.T).diagonal().clip(0.0)
        self.embedded = phi @ inverse @ phi.T
        self.full = K - phi @ phi.T + self.embedded

    @property
    def variance(self) -> Array:
        return self.residual + self.embedded.diagonal()

    def covariance_after(
        self, batch: Sequence[int], noise: Array | None = None
    ) -> Array:
        """The embedded covariance with a batch pending, by one dense solve.

        Evaluations of one candidate are one, their precisions added.
        """
        precision = 1 / self._noise(batch, noise)
        index, which = np.unique(np.asarray(batch, dtype=int), return_inverse=True)
        d = 1 / np.bincount(which, precision, len(index))
        C = self.embedded[np.ix_(index, index)] + np.diag(d)
        gain = np.linalg.solve(C, self.embedded[index]).T
        return self.embedded - gain @ self.embedded[index]

    def variance_after(self, batch: Sequence[int], noise: Array | None = None) -> Array:
        return self.residual + self.covariance_after(batch, noise).diagonal()

    def exact_ratio(self, batch: Sequence[int], noise: Array | None = None) -> Array:
        return self.variance / self.variance_after(batch, noise)

    def local_bound(
        self, batch: Sequence[int], noise: Array | None = None, kind: str = "both"
    ) -> Array:
        """The local bound at every candidate."""
        d = self._noise(batch, noise)
        full = (self.full[:, list(batch)] ** 2 / d).sum(-1)
        embedded = (self.embedded[:, list(batch)] ** 2 / d).sum(-1)
        sums = {"paper": full, "embedded": embedded, "both": np.maximum(full, embedded)}
        return 1 + sums[kind] / self.variance

    def global_bound(self, batch: Sequence[int], noise: Array | None = None) -> float:
        d = self._noise(batch, noise)
        return float(1 + (self.variance[list(batch)] / d).sum())

    def product_bound(self, batch: Sequence[int], noise: Array | None = None) -> float:
        d = self._noise(batch, noise)
        before = [self.variance_after(batch[:s], d[:s])[i] for s, i in enumerate(batch)]
        return float(np.prod(1 + np.array(before) / d))

    def product_of_first(
        self, batch: Sequence[int], noise: Array | None = None
    ) -> float:
        d = self._noise(batch, noise)
        return float(np.prod(1 + self.variance[list(batch)] / d))

    def _noise(self, batch: Sequence[int], noise: Array | None) -> Array:
        return np.full(len(batch), self.lam) if noise is None else noise


def assert_close(
    actual: Tensor | Array | float, expected: Tensor | Array | float, **tolerance: float
) -> None:
    """Compare on the host in float64."""
    actual, expected = (
        v.detach().cpu().double().numpy() if isinstance(v, Tensor) else v
        for v in (actual, expected)
    )
    np.testing.assert_allclose(actual, expected, **tolerance)
