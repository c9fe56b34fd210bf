"""A factor after thousands of updates, and the rebuild when it drifts."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from device_cases import on_the_host
from linear_operator.utils.warnings import NumericalWarning
from oracles import DENSE
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from botorch_sparse.linear_operators import (
    TrackedCholesky,
    UpdatableCholeskyLinearOperator,
)

close = torch.testing.assert_close
LAM = 1e-2


def covariance(X: Tensor, rows: list[int], columns: list[int]) -> Tensor:
    """K + lam I between some points."""
    same = torch.tensor(rows).unsqueeze(-1) == torch.tensor(columns)
    return DENSE["matern52"](X[rows], X[columns]) + LAM * same.to(X)


def relative_error(tracked: TrackedCholesky) -> float:
    L = torch.linalg.cholesky(tracked.matrix)
    return float((tracked.chol - L).norm() / L.norm())


class Walk:
    """Random appends and deletes."""

    def __init__(self, tolerance: float | None = None, **tkwargs: Any) -> None:
        self.generator = torch.Generator().manual_seed(0)
        self.X = torch.rand(2500, 3, generator=self.generator).to(**tkwargs)
        self.rows, self.next = list(range(20)), 20
        start = covariance(self.X, self.rows, self.rows)
        self.tracked = TrackedCholesky.build(start, tolerance)
        self.rebuilds = 0

    def step(self) -> None:
        if (self.draw(2) == 0 and len(self.rows) < 40) or len(self.rows) < 10:
            self.append(1 + self.draw(2))
        else:
            self.delete(sorted({self.draw(len(self.rows)) for _ in range(2)}))
        self.rebuilds += self.tracked.num_updates == 0

    def draw(self, high: int) -> int:
        return int(torch.randint(high, (1,), generator=self.generator))

    def append(self, q: int) -> None:
        new = list(range(self.next, self.next + q))
        self.tracked = self.tracked.append(
            covariance(self.X, self.rows, new), covariance(self.X, new, new)
        )
        self.rows, self.next = self.rows + new, self.next + q

    def delete(self, index: list[int]) -> None:
        self.tracked = self.tracked.delete(index)
        self.rows = [row for i, row in enumerate(self.rows) if i not in index]


@on_the_host
def test_1000_random_appends_and_deletes(tkwargs: dict[str, Any]) -> None:
    walk = Walk(**tkwargs)
    worst = 0.0
    for step in range(800):  # of one or two rows each
        walk.step()
        if step % 20 == 19:
            worst = max(worst, relative_error(walk.tracked))
    assert walk.tracked.num_updates > 1000  # no rebuild was needed
    expected = covariance(walk.X, walk.rows, walk.rows)
    assert torch.equal(walk.tracked.matrix, expected)
    is_double = tkwargs["dtype"] == torch.float64
    assert worst < (1e-8 if is_double else 1e-3)
    # What the default tolerance rests on.
    assert float(walk.tracked.drift()) < 20 * torch.finfo(tkwargs["dtype"]).eps


@on_the_host
def test_a_drift_above_the_tolerance_rebuilds(tkwargs: dict[str, Any]) -> None:
    eps = torch.finfo(tkwargs["dtype"]).eps
    walk = Walk(tolerance=1.5 * eps, **tkwargs)
    for _ in range(200):
        walk.step()
        # Drift is over the tolerance for no longer than the update that made it.
        is_new = walk.tracked.num_updates == 0
        assert is_new or float(walk.tracked.drift()) <= 1.5 * eps
    assert 0 < walk.rebuilds < 200


@pytest.mark.parametrize("place", [(5, 5), (15, 4)])
def test_a_spoiled_factor_is_found_and_rebuilt(
    place: tuple[int, int], tkwargs: dict[str, Any]
) -> None:
    eps = torch.finfo(tkwargs["dtype"]).eps
    walk = Walk(**tkwargs)
    L = walk.tracked.chol.clone()
    L[place] += 2e4 * eps
    spoiled = UpdatableCholeskyLinearOperator(L)
    good = walk.tracked
    walk.tracked = TrackedCholesky(good.matrix, spoiled, good.tolerance, 3)
    assert float(walk.tracked.drift()) > good.tolerance > float(good.drift())
    walk.append(1)
    assert walk.tracked.num_updates == 0
    assert relative_error(walk.tracked) < 20 * eps


def test_batches_are_updated_together(double: dict[str, Any]) -> None:
    X = torch.rand(2, 12, 2, **double)
    A = DENSE["rbf"](X, X) + torch.eye(12, **double)
    tracked = TrackedCholesky.build(A[:, :10, :10])
    tracked = tracked.append(A[:, :10, 10:], A[:, 10:, 10:]).delete([0, 7])
    kept = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    close(tracked.chol, torch.linalg.cholesky(A[:, kept][:, :, kept]))
    assert tracked.num_updates == 3
    assert tracked.drift().shape == (2,)


def test_many_deletions_factorize_what_is_left(double: dict[str, Any]) -> None:
    walk = Walk(**double)
    walk.delete([1, 2, 5, 8, 13])
    assert walk.tracked.num_updates == 0
    assert torch.equal(walk.tracked.matrix, covariance(walk.X, walk.rows, walk.rows))
    assert relative_error(walk.tracked) == 0
    walk.delete(list(range(len(walk.rows))))
    assert walk.tracked.chol.shape == (0, 0)


def test_a_repeated_row_calls_for_a_rebuild(double: dict[str, Any]) -> None:
    A = torch.full((2, 2), 1.0, **double)
    tracked = TrackedCholesky.build(A[:1, :1])
    with pytest.warns(NumericalWarning, match="added jitter"):
        grown = tracked.append(A[:1, 1:], A[1:, 1:])
    assert grown.num_updates == 0
    close(grown.chol @ grown.chol.mT, A, atol=1e-5, rtol=0)


class Factorizations(TorchDispatchMode):
    """Sizes of the matrices that were factorized."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if "cholesky_ex" in str(func) or "linalg_qr" in str(func):
            self.sizes.append(args[0].shape[-1])
        return func(*args, **(kwargs or {}))


def test_updates_do_not_factorize(double: dict[str, Any]) -> None:
    walk = Walk(**double)
    with Factorizations() as found:
        walk.append(2)
        walk.delete([3])
        walk.delete([0, 4, 9])
    assert found.sizes == [2]


@pytest.mark.parametrize("index", [[0, 0], [-1], [20]])
def test_rows_to_delete_are_checked(index: list[int]) -> None:
    walk = Walk(dtype=torch.float64, device="cpu")
    with pytest.raises(InputDataError, match="must be different and in"):
        walk.tracked.delete(index)
