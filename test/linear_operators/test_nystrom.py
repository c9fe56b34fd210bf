"""Tests of the Nystrom matrix and the diagonal that it carries along."""

import unittest
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchTensorDimensionError
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    DiagLinearOperator,
    LinearOperator,
)
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase
from torch import Tensor

from botorch_sparse.linear_operators import (
    NystromAddedDiagLinearOperator,
    NystromLinearOperator,
)


class TestSharedSuite(LinearOperatorTestCase, unittest.TestCase):
    seed = 0
    should_call_cg = False
    should_call_lanczos = False
    should_call_lanczos_diagonalization = True

    def create_linear_op(self) -> LinearOperator:
        return NystromLinearOperator(torch.randn(5, 7), residual=torch.rand(5))

    def evaluate_linear_op(self, linear_op: LinearOperator) -> Tensor:
        root = linear_op.root.tensor
        return root @ root.mT


class TestSharedSuiteBatch(TestSharedSuite):
    seed = 1

    def create_linear_op(self) -> LinearOperator:
        return NystromLinearOperator(torch.randn(2, 5, 7), residual=torch.rand(2, 5))


class TestSharedSuiteWithoutResidual(TestSharedSuite):
    seed = 2

    def create_linear_op(self) -> LinearOperator:
        return NystromLinearOperator(torch.randn(5, 7))


del LinearOperatorTestCase


@pytest.fixture
def batch(tkwargs: dict[str, Any]) -> NystromLinearOperator:
    """A 3 x 2 batch of 6 x 6 matrices of rank 4, with a residual."""
    torch.manual_seed(0)
    return NystromLinearOperator(
        torch.randn(3, 2, 6, 4, **tkwargs), residual=torch.rand(3, 2, 6, **tkwargs)
    )


def test_batch_is_a_loop(batch: NystromLinearOperator) -> None:
    for i, j in torch.cartesian_prod(torch.arange(3), torch.arange(2)).tolist():
        single = NystromLinearOperator(batch.root.tensor[i, j], batch.residual[i, j])
        assert torch.allclose(batch.to_dense()[i, j], single.to_dense())
        assert torch.allclose(batch.diagonal()[i, j], single.to_dense().diagonal())


def test_the_residual_is_not_in_the_matrix(batch: NystromLinearOperator) -> None:
    root = batch.root.tensor
    assert torch.allclose(batch.to_dense(), root @ root.mT)
    assert torch.allclose(batch.diagonal(), (root @ root.mT).diagonal(dim1=-2, dim2=-1))


def test_the_residual_follows_the_root(batch: NystromLinearOperator) -> None:
    r = batch.residual
    rebuilt = batch.representation_tree()(*batch.representation())
    rows = torch.tensor([4, 0], device=r.device)
    for operator, expected in [
        (rebuilt, r),
        (batch.clone(), r),
        (batch.detach(), r),
        (batch.double(), r.double()),
        (batch.to(dtype=torch.float32), r.float()),
        (batch[1], r[1]),
        (batch[:, 0], r[:, 0]),
        (batch[1:, :, :3, :3], r[1:, :, :3]),
        (batch[torch.tensor([0, 0, 2])], r[torch.tensor([0, 0, 2])]),
        (batch[0, 1]._getitem(rows, rows), r[0, 1][rows]),
        (batch.expand(4, 3, 2, 6, 6), r.expand(4, 3, 2, 6)),
        (batch.permute(1, 0, 2, 3), r.permute(1, 0, 2)),
        (batch.unsqueeze(0), r.unsqueeze(0)),
        (batch.mT, r),
        (batch * 4.0, 4 * r),
    ]:
        assert isinstance(operator, NystromLinearOperator)
        assert torch.equal(operator.residual, expected)
        assert operator.root.shape[:-1] == expected.shape


def test_a_batch_of_factors_scales_matrix_and_residual(
    batch: NystromLinearOperator,
) -> None:
    factors = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).to(batch.residual)
    scaled = batch * factors[..., None, None]
    assert torch.allclose(
        scaled.to_dense(), batch.to_dense() * factors[..., None, None], rtol=1e-4
    )
    assert torch.allclose(scaled.residual, batch.residual * factors[..., None])


def test_an_off_diagonal_block_has_no_residual(batch: NystromLinearOperator) -> None:
    block = batch[..., :2, 2:5]
    assert not isinstance(block, NystromLinearOperator)
    assert torch.allclose(block.to_dense(), batch.to_dense()[..., :2, 2:5])


def test_adding_a_diagonal_gives_the_solvable_operator(
    batch: NystromLinearOperator,
) -> None:
    d = torch.rand(3, 2, 6).to(batch.residual) + 1
    constant = ConstantDiagLinearOperator(d[..., :1], diag_shape=6)
    for operator, diagonal in [
        (batch + DiagLinearOperator(d), d),
        (batch + constant, d[..., :1].expand_as(d)),
        (batch.add_diagonal(d), d),
        (batch.add_diagonal(d[..., :1]), d[..., :1].expand_as(d)),
        (batch.add_diagonal(d[0, 0, 0]), d[0, 0, 0].expand_as(d)),
        (batch.add_jitter(0.5), torch.full_like(d, 0.5)),
    ]:
        assert isinstance(operator, NystromAddedDiagLinearOperator)
        assert torch.allclose(
            operator.to_dense(), batch.to_dense() + torch.diag_embed(diagonal)
        )
        penalty = 0.5 * (batch.residual / diagonal).sum(-1)
        assert torch.allclose(operator.collapsed_penalty(), penalty)


def test_gradients_of_a_product_reach_the_root(double: dict[str, Any]) -> None:
    torch.manual_seed(0)
    root = torch.randn(2, 4, 3, requires_grad=True, **double)
    residual, rhs = torch.rand(2, 4, **double), torch.randn(2, 4, 2, **double)
    torch.autograd.gradcheck(lambda R: NystromLinearOperator(R, residual) @ rhs, root)


@pytest.mark.parametrize("shape", [(5,), (6, 1), (2, 6), ()])
def test_a_residual_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BotorchTensorDimensionError, match="one entry per row"):
        NystromLinearOperator(torch.randn(6, 2), residual=torch.rand(shape))
