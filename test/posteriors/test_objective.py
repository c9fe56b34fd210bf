"""The two passes over blocks of rows, against the dense Gaussian and its gradient."""

import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.objective import low_rank_objective


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

    def features(self) -> NystromPosterior:
        return NystromPosterior.prior(self.kernel, self.S)

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


class Recorder(ScaleKernel):
    """Notes the rows of each evaluation."""

    def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Any:
        SIZES.append(x2.shape[-2])
        return super().forward(x1, x2, **params)


SIZES: list[int] = []


def test_no_block_is_larger_than_asked_or_kept(double: dict[str, Any]) -> None:
    problem = Problem(**double)
    problem.kernel.__class__ = Recorder
    features, saved = problem.features(), []
    SIZES.clear()

    def record(tensor: Tensor) -> Tensor:
        saved.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        value = low_rank_objective(
            features, problem.X, problem.error, problem.noise, block_size=6 * 7
        )
    assert (6, 6) in saved
    assert all(6 * 7 >= shape.numel() for shape in saved)
    value.backward()
    assert max(SIZES) == 7


def test_rows_of_one_block_are_evaluated_once(double: dict[str, Any]) -> None:
    problem = Problem(**double)
    problem.kernel.__class__ = Recorder
    features = problem.features()
    SIZES.clear()
    args = (features, problem.X, problem.error, problem.noise)
    low_rank_objective(*args, with_residual=False).backward()
    assert SIZES.count(23) == 1


def test_hyperparameters_from_another_computation(double: dict[str, Any]) -> None:
    """Its graph serves each block, and what it began with gets the gradient."""
    problem = Problem(**double)
    log_scale = torch.tensor(0.3, requires_grad=True, **double)
    del problem.kernel._parameters["raw_outputscale"]
    problem.kernel.raw_outputscale = log_scale.exp()
    value = low_rank_objective(
        problem.features(), problem.X, problem.error, problem.noise, block_size=6 * 5
    )
    leaves = [log_scale, problem.X, problem.S, *problem.kernel.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(value, leaves),
        torch.autograd.grad(problem.dense(True), leaves),
        rtol=1e-7,
        atol=1e-7,
    )
