"""Tests of the updates of a Cholesky factor."""

import random
import unittest
from itertools import product
from typing import Any
from unittest.mock import patch

import mpmath
import pytest
import torch
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from device_cases import on_the_host, sweep
from linear_operator.operators import (
    LinearOperator,
    RootLinearOperator,
    TriangularLinearOperator,
)
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from botorch_sparse.linear_operators import UpdatableCholeskyLinearOperator


class TestSharedSuite(LinearOperatorTestCase, unittest.TestCase):
    seed = 0
    should_call_cg = False
    should_call_lanczos = False
    should_call_lanczos_diagonalization = True

    def create_linear_op(self) -> LinearOperator:
        chol = torch.tensor(
            [
                [3.0, 0.0, 0.0, 0.0, 0.0],
                [-1.0, 2.0, 0.0, 0.0, 0.0],
                [1.0, 4.0, 1.0, 0.0, 0.0],
                [0.0, 2.0, 3.0, 2.0, 0.0],
                [-4.0, 2.0, 3.0, 1.0, 3.0],
            ]
        )
        return UpdatableCholeskyLinearOperator(chol)

    def evaluate_linear_op(self, linear_op: LinearOperator) -> Tensor:
        chol = linear_op.chol
        return chol @ chol.mT


class TestSharedSuiteBatch(TestSharedSuite):
    seed = 0

    def create_linear_op(self) -> LinearOperator:
        eye = torch.eye(5)
        chol = torch.stack([torch.randn(5, 5).tril(-1) + d * eye for d in (2.0, 3.0)])
        return UpdatableCholeskyLinearOperator(chol)


del LinearOperatorTestCase


def _spd(*shape: int, **tkwargs: Any) -> Tensor:
    root = torch.randn(*shape[:-1], shape[-1] + 3, **tkwargs)
    eye = torch.eye(shape[-1], **tkwargs)
    return root @ root.mT + eye


def _make(*shape: int, **tkwargs: Any) -> UpdatableCholeskyLinearOperator:
    return UpdatableCholeskyLinearOperator(
        torch.linalg.cholesky(_spd(*shape, **tkwargs))
    )


def _check(operator: UpdatableCholeskyLinearOperator, expected: Tensor) -> None:
    """The operator is of the class, is ``expected``, and its factor is a factor."""
    tolerance = 1e-10 if expected.dtype == torch.float64 else 1e-4
    L = operator.chol
    assert isinstance(operator, UpdatableCholeskyLinearOperator)
    assert torch.equal(L, L.tril()) and (L.diagonal(dim1=-2, dim2=-1) > 0).all()
    assert torch.allclose(L @ L.mT, expected, rtol=tolerance, atol=tolerance * 10)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@sweep(
    "batch_shape, m, q",
    product([(), (2,), (3, 2)], [1, 2, 7], [1, 2, 9]),
    [((3, 2), 7, 1), ((2,), 7, 2)],
)
def test_add_low_rank(batch_shape, m, q, tkwargs):
    operator = _make(*batch_shape, m, m, **tkwargs)
    V = torch.randn(*batch_shape, m, q, **tkwargs)
    expected = operator.to_dense() + V @ V.mT
    _check(operator.add_low_rank(V), expected)
    _check(operator + RootLinearOperator(V), expected)


@pytest.mark.parametrize("q", [1, 3])
def test_add_low_rank_broadcasts_and_is_a_loop(q, double):
    operator, V = _make(5, 5, **double), torch.randn(4, 5, q, **double)
    updated = operator.add_low_rank(V)
    assert updated.shape == (4, 5, 5)
    for i in range(4):
        assert torch.allclose(updated.chol[i], operator.add_low_rank(V[i]).chol)
    wide = _make(4, 5, 5, **double)
    _check(wide.add_low_rank(V[0]), wide.to_dense() + V[0] @ V[0].mT)


@on_the_host
@pytest.mark.parametrize("q", [1, 5])
@pytest.mark.parametrize("cond", [1e4, 1e12])
def test_add_low_rank_is_accurate_where_refactoring_is_not(q, cond, double):
    """Against 50 digits, in the metric of the result; ``cond`` is that of LL'."""
    m = 20
    basis = torch.linalg.qr(torch.randn(m, m, dtype=torch.float64)).Q
    spectrum = torch.logspace(0, -torch.tensor(cond).log10().item() / 2, m).double()
    R = torch.linalg.qr((basis * spectrum).mT).R
    L = R.mT * R.diagonal().sign()
    V = torch.randn(m, q, dtype=torch.float64)
    with mpmath.workdps(50):
        exact_L, exact_V = mpmath.matrix(L.tolist()), mpmath.matrix(V.tolist())
        exact = mpmath.cholesky(exact_L * exact_L.T + exact_V * exact_V.T)
    exact = torch.tensor(
        [[float(exact[i, j]) for j in range(m)] for i in range(m)], dtype=torch.float64
    )

    def error(chol: Tensor) -> float:
        whitened = torch.linalg.solve_triangular(exact, chol.cpu(), upper=False)
        eye = torch.eye(m, dtype=torch.float64)
        return (whitened @ whitened.mT - eye).abs().max().item()

    operator = UpdatableCholeskyLinearOperator(L.to(**double))
    updated = operator.add_low_rank(V.to(**double)).chol
    assert error(updated) < 1e-14 * cond**0.5
    refactored = torch.linalg.cholesky_ex(L @ L.mT + V @ V.mT).L
    assert not error(refactored) < 10 * error(updated)


@sweep(
    "batch_shape, m, p",
    product([(), (2,), (3, 2)], [0, 1, 6], [0, 1, 3]),
    [((), 0, 1), ((3, 2), 6, 3)],
)
def test_append(batch_shape, m, p, tkwargs):
    A = _spd(*batch_shape, m + p, m + p, **tkwargs)
    operator = UpdatableCholeskyLinearOperator(torch.linalg.cholesky(A[..., :m, :m]))
    _check(operator.append(A[..., :m, m:], A[..., m:, m:]), A)


def test_append_factorizes_the_new_block_only(double):
    A = _spd(2, 30, 30, **double)
    operator = UpdatableCholeskyLinearOperator(torch.linalg.cholesky(A[:, :28, :28]))
    sizes = []
    factorize = torch.linalg.cholesky_ex

    def spy(matrix: Tensor) -> Any:
        sizes.append(matrix.shape[-1])
        return factorize(matrix)

    with patch("torch.linalg.cholesky_ex", spy):
        operator.append(A[:, :28, 28:], A[:, 28:, 28:])
    assert sizes == [2]


def test_append_broadcasts(double):
    A = _spd(6, 6, **double)
    operator = UpdatableCholeskyLinearOperator(torch.linalg.cholesky(A[:4, :4]))
    cross = A[:4, 4:] * torch.tensor([1.0, 0.5, 0.1], **double)[:, None, None]
    grown = operator.append(cross, A[4:, 4:])
    assert grown.shape == (3, 6, 6)
    for i in range(3):
        expected = operator.append(cross[i], A[4:, 4:]).chol
        assert torch.allclose(grown.chol[i], expected)


@sweep(
    "batch_shape, index",
    product([(), (2,), (3, 2)], [0, 1, 3, 5, -1, -6]),
    [((), 5), ((3, 2), 1)],
)
def test_delete(batch_shape, index, tkwargs):
    operator = _make(*batch_shape, 6, 6, **tkwargs)
    kept = [i for i in range(6) if i != index % 6]
    _check(operator.delete(index), operator.to_dense()[..., kept, :][..., kept])


def test_delete_the_only_row(double):
    assert _make(1, 1, **double).delete(0).shape == (0, 0)


def test_updates_leave_the_operator_alone(double):
    operator = _make(4, 4, **double)
    before = operator.chol.clone()
    operator.add_low_rank(torch.randn(4, 1, **double))
    operator.append(torch.zeros(4, 1, **double), torch.ones(1, 1, **double))
    operator.delete(1)
    assert torch.equal(operator.chol, before)


@on_the_host
def test_three_hundred_random_appends_and_deletes(double):
    """A kernel matrix with noise: sizes wander from 20 to 50."""
    X = torch.rand(350, 3, **double)
    K = torch.exp(-(torch.cdist(X, X) ** 2)) + 1e-4 * torch.eye(350, **double)
    rng = random.Random(0)
    inside, outside = list(range(20)), list(range(20, 350))
    operator = UpdatableCholeskyLinearOperator(torch.linalg.cholesky(K[:20, :20]))
    for _ in range(300):
        if len(inside) == 20 or (len(inside) < 50 and rng.random() < 0.5):
            new = outside.pop(rng.randrange(len(outside)))
            operator = operator.append(K[inside][:, [new]], K[[new]][:, [new]])
            inside.append(new)
        else:
            i = rng.randrange(len(inside))
            operator = operator.delete(i)
            outside.append(inside.pop(i))
    A = K[inside][:, inside]
    assert (operator.to_dense() - A).norm() < 1e-9 * A.norm()
    expected = torch.linalg.cholesky(A)
    assert (operator.chol - expected).norm() < 1e-9 * expected.norm()


def test_gradients_flow_through_every_update(double):
    L = _make(2, 4, 4, **double).chol.requires_grad_()
    one, two = (torch.randn(2, 4, q, requires_grad=True, **double) for q in (1, 2))
    cross = torch.randn(2, 4, 2, requires_grad=True, **double)
    corner = 100 * torch.eye(2, **double).repeat(2, 1, 1)
    for update, inputs in [
        (lambda L, V: L.add_low_rank(V), (one,)),
        (lambda L, V: L.add_low_rank(V), (two,)),
        (lambda L, C, D: L.append(C, D + D.mT), (cross, corner.requires_grad_())),
        (lambda L: L.delete(1), ()),
    ]:
        # tril: a perturbation above the diagonal is no input of the factor

        def chol(L: Tensor, *args: Tensor, update: Any = update) -> Tensor:
            return update(UpdatableCholeskyLinearOperator(L.tril()), *args).chol

        torch.autograd.gradcheck(chol, (L, *inputs), fast_mode=True)


def test_a_principal_block_and_a_batch_of_factors(double):
    operator = _make(2, 5, 5, **double)
    dense = operator.to_dense()
    assert torch.allclose(operator[..., 1:4, 1:4].to_dense(), dense[..., 1:4, 1:4])
    rhs = torch.randn(3, 1, **double)
    block = operator[..., :3, :3]
    assert torch.allclose(
        block.solve(rhs), torch.linalg.solve(dense[..., :3, :3], rhs.expand(2, 3, 1))
    )
    factors = torch.tensor([2.0, 3.0], **double)[:, None, None]
    _check(operator * factors, dense * factors)
    _check(operator[1], dense[1])


def test_a_factor_of_the_wrong_kind_is_refused():
    with pytest.raises(BotorchTensorDimensionError, match="batch_shape x m x m"):
        UpdatableCholeskyLinearOperator(torch.ones(3, 2))
    upper = TriangularLinearOperator(torch.eye(3), upper=True)
    with pytest.raises(UnsupportedError, match="upper triangular"):
        UpdatableCholeskyLinearOperator(upper)


def test_an_update_that_does_not_fit_is_refused(double):
    operator = _make(3, 3, **double)
    with pytest.raises(BotorchTensorDimensionError, match="needs 3 rows"):
        operator.add_low_rank(torch.ones(2, 1, **double))
    for cross, corner in [((2, 1), (1, 1)), ((3, 1), (2, 2)), ((3, 2), (1, 2))]:
        with pytest.raises(BotorchTensorDimensionError, match="border of a matrix of"):
            operator.append(torch.ones(cross, **double), torch.ones(corner, **double))
    for index in (3, -4):
        with pytest.raises(InputDataError, match=f"Cannot delete row {index}"):
            operator.delete(index)


def test_a_repeated_row_is_refused(double):
    operator = _make(2, 3, 3, **double)
    A = operator.to_dense()
    corner = A[:, :1, :1] + torch.tensor([1.0, -1e-8], **double)[:, None, None]
    with pytest.raises(NotPSDError, match="in 1 of 2 batch elements"):
        operator.append(A[:, :, :1], corner)
