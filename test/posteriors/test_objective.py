"""The two passes over blocks of rows, against the dense Gaussian and its gradient."""

import math
from typing import Any

import pytest
import torch
from botorch.exceptions import UnsupportedError
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor
from torch.func import functional_call

from botorch_sparse.posteriors import NystromFeatures
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


@pytest.mark.one_in(3)
@pytest.mark.parametrize("batch_shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("block_size", [None, 6 * 5, 1])
def test_value_and_all_gradients(batch_shape, collapsed, block_size, double):
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


def test_no_block_is_larger_than_asked_or_kept(double):
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


def test_rows_of_one_block_are_evaluated_once(double):
    problem = Problem(**double)
    problem.kernel.__class__ = Recorder
    features = problem.features()
    SIZES.clear()
    args = (features, problem.X, problem.error, problem.noise)
    low_rank_objective(*args, with_residual=False).backward()
    assert SIZES.count(23) == 1


def test_hyperparameters_from_another_computation(double):
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


def objective(problem: Problem) -> Tensor:
    return low_rank_objective(
        problem.features(), problem.X, problem.error, problem.noise
    )


@pytest.mark.parametrize("name", ["kernel", "X", "S", "error", "noise"])
def test_second_derivatives_are_refused(name, double):
    problem = Problem(**double)
    leaf = next(problem.kernel.parameters())
    leaf = leaf if name == "kernel" else getattr(problem, name)
    with pytest.raises(UnsupportedError, match="create_graph=True"):
        torch.autograd.grad(objective(problem), leaf, create_graph=True)


def test_replaced_parameters_are_refused(double):
    """The gradient is that of the parameters that are in place."""
    problem = Problem(**double)
    names = [name for name, _ in problem.kernel.named_parameters()]
    others = [(p + 0.5).detach().requires_grad_() for p in problem.kernel.parameters()]

    class Objective(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = problem.kernel

        def forward(self, with_gradient: bool) -> Any:
            value = objective(problem)
            return torch.autograd.grad(value, others) if with_gradient else value

    state = {f"kernel.{k}": v for k, v in zip(names, others, strict=True)}
    value = functional_call(Objective(), state, (False,))
    with pytest.raises(UnsupportedError, match="functional_call"):
        torch.autograd.grad(value, others)
    inside = functional_call(Objective(), state, (True,))
    problem.kernel.load_state_dict(dict(zip(names, others, strict=True)))
    leaves = list(problem.kernel.parameters())
    expected = torch.autograd.grad(problem.dense(True), leaves)
    torch.testing.assert_close(inside, expected, rtol=1e-7, atol=1e-7)


def test_saved_tensors_are_taken_once(double):
    """`torch.utils.checkpoint`, which computes them again, gives them once."""
    problem = Problem(**double)
    kept: list[Tensor | None] = []

    def pack(tensor: Tensor) -> int:
        kept.append(tensor)
        return len(kept) - 1

    def unpack(index: int) -> Tensor:
        tensor, kept[index] = kept[index], None
        assert tensor is not None
        return tensor

    features = problem.features()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        value = low_rank_objective(features, problem.X, problem.error, problem.noise)
    value.backward()
