"""The two passes over blocks of rows, against the dense Gaussian and its gradient."""

import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.linear_operators import (
    NystromAddedDiagLinearOperator,
)
from botorch_sparse.models.lazy_nystrom import LazyNystromLinearOperator
from botorch_sparse.models.low_rank_objective import (
    has_known_hyperparameters,
    low_rank_objective,
)
from botorch_sparse.posteriors import NystromFeatures


class Problem:
    """Data of any batch shape, all of which ask for a gradient."""

    def __init__(self, *batch_shape: int, nu: float = 2.5, **tkwargs: Any) -> None:
        generator = torch.Generator().manual_seed(11)

        def random(*shape: int) -> Tensor:
            size = (*batch_shape, *shape)
            values = torch.rand(size, generator=generator, dtype=torch.float64)
            return values.to(**tkwargs).requires_grad_()

        self.X, self.S = random(23, 2), random(6, 2)
        self.error, self.noise = random(23), random(23)
        base = MaternKernel(nu=nu, ard_num_dims=2, batch_shape=torch.Size(batch_shape))
        self.kernel = ScaleKernel(base, batch_shape=torch.Size(batch_shape)).to(
            **tkwargs
        )
        self.leaves = [self.X, self.S, self.error, self.noise]
        self.leaves += list(self.kernel.parameters())

    def features(self) -> NystromFeatures:
        return NystromFeatures.of(self.kernel, self.S)

    def dense(self, collapsed: bool) -> Tensor:
        K_SX = self.kernel(self.S, self.X).to_dense()
        K_SS = self.kernel(self.S).to_dense()
        Q = K_SX.mT @ torch.linalg.solve(K_SS, K_SX)
        A, e = Q + self.noise.diag_embed(), self.error.unsqueeze(-1)
        quad = (e.mT @ torch.linalg.solve(A, e)).squeeze(-1).squeeze(-1)
        value = -0.5 * (quad + A.logdet() + e.shape[-2] * math.log(2 * math.pi))
        r = self.kernel(self.X, diag=True) - Q.diagonal(dim1=-1, dim2=-2)
        return value - 0.5 * (r / self.noise).sum(-1) * collapsed


@pytest.mark.parametrize("batch_shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("block_size", [None, 6 * 5, 1])
def test_value_and_all_gradients(
    batch_shape: tuple[int, ...],
    collapsed: bool,
    block_size: int | None,
    double: dict[str, Any],
) -> None:
    problem = Problem(*batch_shape, **double)
    value = low_rank_objective(
        problem.features(),
        problem.X,
        problem.error,
        problem.noise,
        with_residual=collapsed,
        block_size=block_size,
    )
    expected = problem.dense(collapsed)
    assert value.shape == batch_shape
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-8)
    weights = torch.arange(1.0, 1.0 + value.numel(), **double).reshape(value.shape)
    torch.testing.assert_close(
        torch.autograd.grad((weights * value).sum(), problem.leaves),
        torch.autograd.grad((weights * expected).sum(), problem.leaves),
        rtol=1e-7,
        atol=1e-7,
    )


def test_float32_sums_are_double(device: torch.device) -> None:
    """With noise 1e-6 of the signal float32 sums would lose the value."""
    problem = Problem(dtype=torch.float32, device=device)
    noise = torch.full_like(problem.error, 1e-6)
    args = (problem.features(), problem.X, 1e3 * problem.error, noise)
    K = problem.kernel(problem.S, problem.X).to_dense().double()
    L = args[0].chol_inducing.double()
    V = torch.linalg.solve_triangular(L, K, upper=False) * 1e3
    z = 1e6 * problem.error.double()
    A = V.mT @ V + torch.eye(len(z), dtype=z.dtype, device=device)
    expected = -0.5 * z @ torch.linalg.solve(A, z)
    value = low_rank_objective(*args, with_residual=False)
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0.0)


def test_no_block_is_larger_than_asked(double: dict[str, Any]) -> None:
    problem = Problem(**double)
    features_of, sizes = problem.features(), []

    class Recorder(ScaleKernel):
        def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Any:
            sizes.append(max(x1.shape[-2], x2.shape[-2]))
            return super().forward(x1, x2, **params)

    features_of.covar_module.__class__ = Recorder
    value = low_rank_objective(
        features_of, problem.X, problem.error, problem.noise, block_size=6 * 7
    )
    value.backward()
    assert max(sizes) == 7


def test_hidden_hyperparameters_are_seen(double: dict[str, Any]) -> None:
    kernel = ScaleKernel(RBFKernel()).to(**double)
    S = torch.rand(4, 2, **double)
    features_of = NystromFeatures.of(kernel, S)
    assert has_known_hyperparameters(features_of)
    scale = torch.tensor(0.3, requires_grad=True, **double)
    del kernel._parameters["raw_outputscale"]
    kernel.raw_outputscale = 2 * scale
    assert not has_known_hyperparameters(features_of)
    kernel.raw_outputscale = (2 * scale).detach()
    assert has_known_hyperparameters(features_of)


def test_lazy_operator_is_its_evaluation(double: dict[str, Any]) -> None:
    problem = Problem(3, **double)
    features_of = problem.features()
    lazy = LazyNystromLinearOperator(
        problem.X,
        features_of.inducing_points,
        features_of.chol_inducing,
        features_of=features_of,
        with_residual=True,
    )
    assert lazy.shape == (3, 23, 23)
    phi = features_of.features(problem.X)
    torch.testing.assert_close(lazy.to_dense(), phi @ phi.mT)
    torch.testing.assert_close(lazy.diagonal(dim1=-1, dim2=-2), phi.square().sum(-1))
    torch.testing.assert_close(lazy.residual, features_of.residual(problem.X, phi))
    torch.testing.assert_close(lazy[1, :5, :5].to_dense(), (phi @ phi.mT)[1, :5, :5])
    torch.testing.assert_close((2.0 * lazy).to_dense(), 2 * phi @ phi.mT)
    torch.testing.assert_close(
        lazy.expand(2, 3, 23, 23).to_dense(), (phi @ phi.mT).expand(2, 3, 23, 23)
    )
    noisy = lazy + DiagLinearOperator(problem.noise)
    assert isinstance(noisy, NystromAddedDiagLinearOperator)
    dense = phi @ phi.mT + problem.noise.diag_embed()
    torch.testing.assert_close(noisy.to_dense(), dense)
    rhs = problem.error.unsqueeze(-1)
    torch.testing.assert_close(noisy.solve(rhs), torch.linalg.solve(dense, rhs))
    torch.testing.assert_close(
        torch.autograd.grad((lazy @ rhs).sum(), problem.leaves[4:], retain_graph=True),
        torch.autograd.grad((phi @ phi.mT @ rhs).sum(), problem.leaves[4:]),
    )
