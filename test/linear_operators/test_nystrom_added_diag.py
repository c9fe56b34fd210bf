"""Tests of the Nystrom matrix plus noise: values, gradients and cost."""

import math
import unittest
from itertools import product
from typing import Any
from unittest.mock import patch

import gpytorch
import pytest
import torch
from botorch.exceptions import BotorchTensorDimensionError, UnsupportedError
from device_cases import sweep
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from linear_operator.operators import (
    ConstantDiagLinearOperator,
    DiagLinearOperator,
    LinearOperator,
)
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from botorch_sparse.linear_operators import (
    NystromAddedDiagLinearOperator,
    NystromLinearOperator,
)


class TestSharedSuite(LinearOperatorTestCase, unittest.TestCase):
    seed = 4
    should_call_cg = False
    should_call_lanczos = False  # importing BoTorch turns Lanczos off

    def create_linear_op(self) -> LinearOperator:
        nystrom_op = NystromLinearOperator(torch.randn(5, 2), residual=torch.rand(5))
        return NystromAddedDiagLinearOperator(
            nystrom_op, DiagLinearOperator(torch.tensor([1.0, 2.0, 4.0, 2.0, 3.0]))
        )

    def evaluate_linear_op(self, linear_op: LinearOperator) -> Tensor:
        root = linear_op._linear_op.root.tensor
        return root @ root.mT + torch.diag_embed(linear_op._diag_tensor._diag)


class TestSharedSuiteBatch(TestSharedSuite):
    seed = 5

    def create_linear_op(self) -> LinearOperator:
        nystrom_op = NystromLinearOperator(
            torch.randn(3, 5, 2), residual=torch.rand(3, 5)
        )
        diag = torch.tensor([1.0, 2.0, 4.0, 2.0, 3.0]).repeat(3, 1)
        return NystromAddedDiagLinearOperator(nystrom_op, DiagLinearOperator(diag))


class TestSharedSuiteConstantDiag(TestSharedSuite):
    seed = 6

    def create_linear_op(self) -> LinearOperator:
        diag = ConstantDiagLinearOperator(torch.tensor([1.5]), diag_shape=5)
        return NystromAddedDiagLinearOperator(
            NystromLinearOperator(torch.randn(5, 4)), diag
        )


del LinearOperatorTestCase


class _LargestTensor(TorchDispatchMode):
    """Record the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


def _make(
    *batch_shape: int, n: int = 12, m: int = 4, **tkwargs: Any
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    root = torch.randn(*batch_shape, n, m, **tkwargs)
    noise = torch.rand(*batch_shape, n, **tkwargs) + 0.1
    return root, noise, torch.randn(*batch_shape, n, 3, **tkwargs)


def _operator(root: Tensor, noise: Tensor) -> NystromAddedDiagLinearOperator:
    return NystromLinearOperator(root) + DiagLinearOperator(noise)


def _close(actual: Tensor, expected: Tensor) -> bool:
    tolerance = 1e-8 if actual.dtype == torch.float64 else 1e-3
    return torch.allclose(actual, expected, rtol=tolerance, atol=tolerance)


@sweep("batch_shape, m", product([(), (2,), (3, 2)], [1, 4, 20]), [((3, 2), 4)])
def test_agrees_with_the_dense_matrix(
    batch_shape: tuple[int, ...], m: int, tkwargs: dict[str, Any]
) -> None:
    root, noise, rhs = _make(*batch_shape, m=m, **tkwargs)
    operator = _operator(root, noise)
    A = root @ root.mT + torch.diag_embed(noise)
    solution = torch.linalg.solve(A, rhs)
    forms = (rhs * solution).sum(-2)
    assert _close(operator.solve(rhs), solution)
    assert _close(operator.solve(rhs, rhs.mT), rhs.mT @ solution)
    assert _close(operator.logdet(), torch.logdet(A))
    assert _close(operator.inv_quad(rhs), forms.sum(-1))
    assert _close(operator.inv_quad(rhs, reduce_inv_quad=False), forms)
    inv_quad, logdet = operator.inv_quad_logdet(rhs, logdet=True)
    assert _close(inv_quad, forms.sum(-1)) and _close(logdet, torch.logdet(A))
    assert _close(operator.diagonal(), A.diagonal(dim1=-2, dim2=-1))
    assert operator.inv_quad_logdet() == (None, None)


def test_batch_is_a_loop(double: dict[str, Any]) -> None:
    root, noise, rhs = _make(3, **double)
    batch = _operator(root, noise)
    inv_quad, logdet = batch.inv_quad_logdet(rhs, logdet=True)
    for i in range(3):
        single = _operator(root[i], noise[i]).inv_quad_logdet(rhs[i], logdet=True)
        assert torch.allclose(inv_quad[i], single[0])
        assert torch.allclose(logdet[i], single[1])
        chosen = batch[i].inv_quad_logdet(rhs[i], logdet=True)
        assert torch.allclose(chosen[0], single[0])


def test_batches_of_root_and_noise_broadcast(double: dict[str, Any]) -> None:
    root, _, rhs = _make(**double)
    noise = torch.rand(3, 12, **double) + 0.1
    for operator in [_operator(root, noise), _operator(root.unsqueeze(0), noise)]:
        A = root @ root.mT + torch.diag_embed(noise)
        assert operator.shape == (3, 12, 12)
        assert operator.collapsed_penalty().shape == operator.logdet().shape == (3,)
        assert _close(operator.solve(rhs), torch.linalg.solve(A, rhs.expand(3, 12, 3)))
        assert _close(operator.logdet(), torch.logdet(A))
        assert _close(operator[1].solve(rhs), torch.linalg.solve(A[1], rhs))


def test_a_vector_is_one_column(double: dict[str, Any]) -> None:
    root, noise, rhs = _make(**double)
    operator, y = _operator(root, noise), rhs[:, 0]
    assert torch.allclose(operator.solve(y), operator.solve(rhs)[:, 0])
    expected = operator.inv_quad(rhs, reduce_inv_quad=False)[0]
    assert torch.allclose(operator.inv_quad(y), expected)
    assert torch.allclose(operator.inv_quad_logdet(y)[0], expected)


def test_the_quadratic_form_does_not_cancel(double: dict[str, Any]) -> None:
    """A y in the span of the features: the subtracted form loses 12 digits."""
    root, _, _ = _make(**double)
    noise = torch.full((12,), 1e-12, **double)
    y, coefficients = root[:, :1], root.new_tensor([1.0, 0.0, 0.0, 0.0])
    # y = Phi' e_1, so y'A^-1 y = e_1' (I - (I + G)^-1) e_1 with G = Phi Phi' / noise
    G = root.mT @ root / 1e-12
    exact = 1 - torch.linalg.inv(torch.eye(4, **double) + G)[0] @ coefficients
    assert _operator(root, noise).inv_quad(y).item() == pytest.approx(exact.item())
    subtracted = (y * y / 1e-12).sum() - (
        y.mT @ root @ torch.linalg.solve(torch.eye(4, **double) + G, root.mT @ y)
    ).squeeze() / 1e-24
    assert abs(subtracted - exact) > 1e-6


def test_gradients_reach_root_noise_and_rhs(double: dict[str, Any]) -> None:
    inputs = [t.requires_grad_() for t in _make(2, n=6, m=3, **double)]

    def objective(root: Tensor, noise: Tensor, rhs: Tensor) -> tuple[Tensor, ...]:
        operator = _operator(root, noise)
        return (*operator.inv_quad_logdet(rhs, logdet=True), operator.solve(rhs))

    torch.autograd.gradcheck(objective, inputs, fast_mode=True)


def test_gradients_of_the_penalty_reach_residual_and_noise(
    double: dict[str, Any],
) -> None:
    root, noise, _ = _make(2, n=6, m=3, **double)
    residual = torch.rand(2, 6, requires_grad=True, **double)

    def penalty(residual: Tensor, noise: Tensor) -> Tensor:
        operator = NystromLinearOperator(root, residual) + DiagLinearOperator(noise)
        return operator.collapsed_penalty()

    expected = sum(residual[:, i] / noise[:, i] for i in range(6)) / 2
    assert torch.allclose(penalty(residual, noise), expected)
    torch.autograd.gradcheck(penalty, (residual, noise.requires_grad_()))


def test_the_class_survives_what_gpytorch_does_to_it(tkwargs: dict[str, Any]) -> None:
    root, noise, _ = _make(3, **tkwargs)
    residual = torch.rand(3, 12, **tkwargs)
    base = NystromLinearOperator(root, residual)
    operator = base + DiagLinearOperator(noise)
    dense = operator.to_dense()
    factors = torch.tensor([1.0, 2.0, 3.0], **tkwargs)
    half = torch.diag_embed(torch.full((3, 12), 0.5, **tkwargs))
    for result, expected in [
        (operator.evaluate_kernel(), dense),
        (operator.add_jitter(0.5), dense + half),
        (operator.add_diagonal(noise), dense + torch.diag_embed(noise)),
        (operator + DiagLinearOperator(noise), dense + torch.diag_embed(noise)),
        (operator[1], dense[1]),
        (operator[..., 2:7, 2:7], dense[..., 2:7, 2:7]),
        (operator.expand(2, 3, 12, 12), dense.expand(2, 3, 12, 12)),
        (operator.unsqueeze(0), dense.unsqueeze(0)),
        (operator.double(), dense.double()),
        (operator * 3.0, dense * 3),
        (operator * factors[:, None, None], dense * factors[:, None, None]),
        (operator.mT, dense),
    ]:
        assert isinstance(result, NystromAddedDiagLinearOperator)
        assert torch.allclose(result.to_dense(), expected, rtol=1e-4)
        assert result._linear_op.residual.shape == result.shape[:-1]


def test_repeated_rows_keep_their_shared_noise(double: dict[str, Any]) -> None:
    root, noise, _ = _make(**double)
    rows = torch.tensor([0, 0, 3], device=root.device)
    operator = _operator(root, noise)
    assert torch.allclose(operator[rows].to_dense(), operator.to_dense()[rows])
    assert torch.allclose(
        operator._getitem(rows, rows).to_dense(), operator.to_dense()[rows][:, rows]
    )


def test_no_residual_gives_no_penalty(tkwargs: dict[str, Any]) -> None:
    root, noise, _ = _make(2, **tkwargs)
    penalty = _operator(root, noise).collapsed_penalty()
    assert torch.equal(penalty, torch.zeros(2, **tkwargs))


@pytest.mark.parametrize("fixed_noise", [False, True])
def test_nothing_n_by_n_is_built(fixed_noise: bool, double: dict[str, Any]) -> None:
    """Under the settings that BoTorch leaves: every fast computation off."""
    n, m = 300, 5
    root, noise, rhs = _make(n=n, m=m, **double)
    root.requires_grad_()
    if fixed_noise:
        likelihood = FixedNoiseGaussianLikelihood(noise=noise)
    else:
        likelihood = GaussianLikelihood().to(**double)
    sizes = []

    def spy(factorize: Any) -> Any:
        def wrapped(A: Tensor, *args: Any, **kwargs: Any) -> Any:
            sizes.append(A.shape[-1])
            return factorize(A, *args, **kwargs)

        return wrapped

    with (
        gpytorch.settings.fast_computations(False, False, False),
        patch("torch.linalg.cholesky", spy(torch.linalg.cholesky)),
        patch("torch.linalg.cholesky_ex", spy(torch.linalg.cholesky_ex)),
        patch("torch.linalg.eigh", spy(torch.linalg.eigh)),
        _LargestTensor() as largest,
    ):
        prior = MultivariateNormal(
            root.new_zeros(n), NystromLinearOperator(root, noise)
        )
        covariance = likelihood(prior).lazy_covariance_matrix
        assert isinstance(covariance, NystromAddedDiagLinearOperator)
        inv_quad, logdet = covariance.inv_quad_logdet(rhs, logdet=True)
        value = inv_quad + logdet + covariance.collapsed_penalty()
        (value + covariance.logdet() + covariance.inv_quad(rhs[:, 0])).backward()
        covariance.solve(rhs)
        covariance.diagonal()
    assert sizes == [m]
    assert largest.numel <= n * m
    assert root.grad.shape == (n, m)


def test_log_prob_is_the_normal_density(double: dict[str, Any]) -> None:
    root, noise, rhs = _make(**double)
    with gpytorch.settings.fast_computations(log_prob=True):
        mvn = MultivariateNormal(torch.zeros(12, **double), _operator(root, noise))
        log_prob = mvn.log_prob(rhs[:, 0])
    A = root @ root.mT + torch.diag(noise)
    form = rhs[:, 0] @ torch.linalg.solve(A, rhs[:, 0])
    expected = -0.5 * (form + torch.logdet(A) + 12 * math.log(2 * math.pi))
    assert torch.allclose(log_prob, expected)


def test_wrong_parts_are_refused() -> None:
    nystrom_op = NystromLinearOperator(torch.randn(4, 2))
    with pytest.raises(UnsupportedError, match="got NystromLinearOperator and Tensor"):
        NystromAddedDiagLinearOperator(nystrom_op, torch.rand(4))
    with pytest.raises(UnsupportedError, match="got DiagLinearOperator and Nystrom"):
        NystromAddedDiagLinearOperator(DiagLinearOperator(torch.rand(4)), nystrom_op)
    with pytest.raises(BotorchTensorDimensionError, match=r"n = 4 .* has 3"):
        NystromAddedDiagLinearOperator(nystrom_op, DiagLinearOperator(torch.rand(3)))


@pytest.mark.parametrize("shape", [(1, 2), (5, 2), (3,)])
def test_a_right_hand_side_of_another_size_is_refused(shape: tuple[int, ...]) -> None:
    operator = NystromLinearOperator(torch.randn(4, 2)).add_jitter(1.0)
    rhs = torch.randn(shape)
    for method in [operator.inv_quad, operator.inv_quad_logdet]:
        with pytest.raises(BotorchTensorDimensionError, match="needs 4"):
            method(rhs)
