"""Tests of the inverse that grows by rank-one updates."""

import unittest
from itertools import product

import pytest
import torch
from botorch.exceptions import BotorchTensorDimensionError
from device_cases import on_the_host, sweep
from linear_operator.operators import LinearOperator
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase
from torch import Tensor

from botorch_sparse.linear_operators import RankOneUpdatedLinearOperator


def _append_all(operator: LinearOperator, columns: Tensor) -> LinearOperator:
    for w in columns.unbind(-1):
        operator = operator.append(w)
    return operator


class TestSharedSuite(LinearOperatorTestCase, unittest.TestCase):
    seed = 0
    should_call_cg = False
    should_call_lanczos = False  # importing BoTorch turns Lanczos off

    def create_linear_op(self) -> LinearOperator:
        identity = RankOneUpdatedLinearOperator.identity(5)
        return _append_all(identity, torch.randn(5, 5))

    def evaluate_linear_op(self, linear_op: LinearOperator) -> Tensor:
        return torch.eye(5) - linear_op.U.mT @ linear_op.U


class TestSharedSuiteBatch(TestSharedSuite):
    seed = 1

    def create_linear_op(self) -> LinearOperator:
        identity = RankOneUpdatedLinearOperator.identity(5, batch_shape=(2,))
        return _append_all(identity, torch.randn(2, 5, 7))


del LinearOperatorTestCase


def _dense(P: Tensor) -> Tensor:
    """(I + PP')^-1 in float64 from the singular values of P."""
    vectors, values, _ = torch.linalg.svd(P.double(), full_matrices=False)
    drop = values.square() / (1 + values.square())
    eye = torch.eye(P.shape[-2], dtype=torch.float64, device=P.device)
    return eye - vectors * drop.unsqueeze(-2) @ vectors.mT


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@sweep(
    "batch_shape, j",
    product([(), (2,), (3, 2)], [0, 1, 5, 6, 7, 18]),
    [((), 0), ((3, 2), 7)],
)
def test_agrees_with_the_dense_inverse(batch_shape, j, tkwargs):
    m = 6
    identity = RankOneUpdatedLinearOperator.identity(m, batch_shape, **tkwargs)
    P = torch.randn(*batch_shape, m, j, **tkwargs)
    rhs = torch.randn(*batch_shape, m, 2, **tkwargs)
    operator, M = _append_all(identity, P), _dense(P)
    inverse = torch.eye(m, **tkwargs) + P @ P.mT
    forms = (rhs * (inverse @ rhs)).sum(-2)
    tolerance = 1e-10 if tkwargs["dtype"] == torch.float64 else 1e-3
    assert operator.U.shape == (*batch_shape, min(j, m), m)
    for actual, expected in [
        (operator.to_dense(), M),
        (operator.diagonal(), M.diagonal(dim1=-2, dim2=-1)),
        (operator @ rhs, M @ rhs.double()),
        (operator.solve(rhs), inverse @ rhs),
        (operator.solve(rhs, rhs.mT), rhs.mT @ inverse @ rhs),
        (operator.inv_quad(rhs), forms.sum(-1)),
        (operator.inv_quad(rhs, reduce_inv_quad=False), forms),
        (operator.inv_quad_logdet(rhs, logdet=True)[0], forms.sum(-1)),
        (operator.inv_quad_logdet(logdet=True)[1], torch.logdet(M)),
        (operator.logdet(), torch.logdet(M)),
        (operator[..., 1:3, 2], M[..., 1:3, 2]),
    ]:
        assert actual.dtype == tkwargs["dtype"]
        error = (actual.double() - expected.double()).abs().amax()
        assert error <= tolerance * expected.abs().amax().clamp_min(1)
    assert operator.inv_quad_logdet() == (None, None)


def test_the_rows_are_the_drops_in_variance(double):
    """w(x)'Mw(x) = w(x)'w(x) - sum_j (w(x)'u_j)^2, one pending point at a time."""
    P, x = torch.randn(4, 9, **double), torch.randn(4, **double)
    operator = RankOneUpdatedLinearOperator.identity(4, **double)
    variance = x @ x
    for j in range(9):
        variance = variance - (x @ operator.new_row(P[:, j])).square()
        operator = operator.append(P[:, j])
        assert torch.allclose(variance, x @ _dense(P[:, : j + 1]) @ x)


def test_batch_is_a_loop_and_broadcasts(double):
    P = torch.randn(3, 5, 7, **double)
    batch = _append_all(RankOneUpdatedLinearOperator.identity(5, **double), P)
    assert batch.shape == (3, 5, 5)
    for i in range(3):
        identity = RankOneUpdatedLinearOperator.identity(5, **double)
        single = _append_all(identity, P[i])
        assert torch.allclose(batch[i].to_dense(), single.to_dense())
    w = torch.randn(5, **double)
    assert torch.allclose(batch.append(w)[2].to_dense(), batch[2].append(w).to_dense())


def test_a_weight_is_a_number_of_times(double):
    P, w = torch.randn(2, 4, 2, **double), torch.randn(2, 4, **double)
    base = _append_all(RankOneUpdatedLinearOperator.identity(4, **double), P)
    repeated = _append_all(base, w.unsqueeze(-1).expand(2, 4, 3))
    assert torch.allclose(base.append(w, weight=3).to_dense(), repeated.to_dense())
    weights = torch.tensor([3.0, 1.0], **double)
    mixed = base.append(w, weight=weights).to_dense()
    assert torch.allclose(mixed[0], repeated.to_dense()[0])
    assert torch.allclose(mixed[1], base.append(w).to_dense()[1])


@on_the_host
@pytest.mark.parametrize("m", [5, 20])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("distinct", [3, 400])
def test_stays_positive_definite(m, scale, distinct, tkwargs):
    """400 appends, |w| = scale; without the shrinking, M reaches -200 in float32."""
    points = torch.nn.functional.normalize(torch.randn(m, distinct, **tkwargs), dim=0)
    P = scale * points[:, torch.randint(distinct, (400,))]
    identity = RankOneUpdatedLinearOperator.identity(m, **tkwargs)
    operator = _append_all(identity, P)
    eps = torch.finfo(tkwargs["dtype"]).eps
    U = operator.U.double()
    M = torch.eye(m, dtype=torch.float64, device=U.device) - U.mT @ U
    assert torch.linalg.eigvalsh(M).min() > 0
    # 4 eps per append, and as much again for rounding
    assert (M - _dense(P)).abs().max() < 8 * eps * 400


@on_the_host
@pytest.mark.parametrize("m", [5, 20])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("num", [0, 1, 4, 5, 19, 400])
def test_all_at_once(m, scale, num, tkwargs):
    """To rounding, and positive definite, with three directions or as many as rows."""
    eps = torch.finfo(tkwargs["dtype"]).eps
    for distinct in (3, 400):
        points = torch.randn(2, m, distinct, **tkwargs)
        points = scale * torch.nn.functional.normalize(points, dim=-2)
        P = points[..., torch.randint(distinct, (num,))]
        operator = RankOneUpdatedLinearOperator.from_rows(P.mT)
        assert operator.U.shape == (2, min(num, m), m)
        U = operator.U.double()
        M = torch.eye(m, dtype=torch.float64, device=U.device) - U.mT @ U
        assert torch.linalg.eigvalsh(M).min() > 0
        # 8 eps of the shrinking, and eps for each term of two sums over m and of one
        # over all rows where they are folded into m
        assert (M - _dense(P)).abs().max() < (8 + 2 * m + num) * eps


def test_all_at_once_goes_on_one_by_one(double):
    P, rhs = torch.randn(2, 5, 4, **double), torch.randn(2, 5, 3, **double)
    begun = RankOneUpdatedLinearOperator.from_rows(P[..., :3].mT)
    torch.testing.assert_close(begun.append(P[..., 3]) @ rhs, _dense(P) @ rhs)
    P.requires_grad_()

    def product(P: Tensor) -> Tensor:
        return RankOneUpdatedLinearOperator.from_rows(P.mT) @ rhs

    assert torch.autograd.gradcheck(product, (P,), fast_mode=True)


def test_gradients_reach_every_column(double):
    P = torch.randn(2, 3, 3, requires_grad=True, **double)
    weight = torch.tensor([1.5, 2.5], requires_grad=True, **double)
    rhs = torch.randn(2, 3, 2, **double)

    def moments(P: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        identity = RankOneUpdatedLinearOperator.identity(3, **double)
        operator = identity.append(P[..., 0], weight)
        operator = operator.append(P[..., 1]).append(P[..., 2])
        return operator.diagonal(), operator @ rhs, operator.solve(rhs)

    torch.autograd.gradcheck(moments, (P, weight), fast_mode=True)


@pytest.mark.parametrize("at_once", [True, False])
def test_gradients_of_dependent_columns(at_once, double):
    """More columns than m of rank two, none or one after others."""
    two = torch.randn(3, 2, **double) @ torch.randn(2, 5, **double)
    last = torch.cat([torch.randn(3, 3, **double), torch.zeros(3, 2, **double)], -1)
    rhs = torch.randn(3, 2, **double)

    def moments(P: Tensor) -> tuple[Tensor, ...]:
        if at_once:
            operator = RankOneUpdatedLinearOperator.from_rows(P.mT)
        else:
            identity = RankOneUpdatedLinearOperator.identity(3, **double)
            operator = _append_all(identity, P)
        return operator.diagonal(), operator @ rhs, operator.solve(rhs)

    for P in (two, last, torch.zeros_like(last)):
        P.requires_grad_()
        assert torch.autograd.gradcheck(moments, (P,))


def test_wrong_shapes_are_refused():
    with pytest.raises(BotorchTensorDimensionError, match="needs 4 entries"):
        RankOneUpdatedLinearOperator.identity(4).append(torch.randn(3))
