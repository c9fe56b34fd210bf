"""Gradient diversity for surrogates that are no plain GP ([Wei2025]_ appendix B.5)."""

from typing import Any

import pytest
import torch
from device_cases import on_the_host, sweep
from gpytorch.kernels import MaternKernel
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from botorch_sparse.inducing import select_by_gradient_diversity
from botorch_sparse.models import SubsetSingleTaskGP

N, NUM, FORCED = 80, 20, [0, 1, 79]


def make_data(**tkwargs: Any) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(N, 2, generator=generator, dtype=torch.float64).to(**tkwargs)
    return X, torch.sin(6 * X[:, 0]) * X[:, 1]


def trained(network: nn.Module, X: Tensor, Y: Tensor, steps: int = 150) -> nn.Module:
    """A network after a few steps of Adam on the squared error."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    network.eval()
    for _ in range(steps):
        optimizer.zero_grad()
        (network(X).squeeze(-1) - Y).square().mean().backward()
        optimizer.step()
    return network


def per_sample_gradients(network: nn.Module, X: Tensor, Y: Tensor) -> Tensor:
    """Gradients of each sample's squared error in all parameters, `n x p`."""
    parameters = {k: v.detach() for k, v in network.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return (functional_call(network, parameters, (x,)).squeeze(-1) - y).square()

    # Masks of dropout are drawn anew for each sample.
    gradients = vmap(grad(loss), (None, 0, 0), randomness="different")(parameters, X, Y)
    return torch.cat([g.flatten(start_dim=1) for g in gradients.values()], dim=-1)


def spread(gradients: Tensor, index: Tensor) -> float:
    """The variance of directions, Eq. 1, times M^2 / (M^2 - 0)."""
    directions = gradients[index] / gradients[index].norm(dim=-1, keepdim=True)
    return float(1 - directions.mean(0).square().sum())


def random_spreads(gradients: Tensor) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    forced = torch.tensor(FORCED)
    others = torch.tensor([i for i in range(N) if i not in FORCED])
    draws = [others[torch.randperm(N - 3, generator=generator)] for _ in range(50)]
    return [
        spread(gradients, torch.cat([forced, draw[: NUM - 3]]).to(gradients.device))
        for draw in draws
    ]


def check_is_greedy(gradients: Tensor, chosen: Tensor) -> None:
    """Each sample after the forced ones has the smallest sum of cosines."""
    directions = gradients / gradients.norm(dim=-1, keepdim=True)
    for t in range(len(FORCED), NUM):
        scores = directions @ directions[chosen[:t]].sum(0)
        scores[chosen[:t]] = torch.inf
        assert scores[chosen[t]] <= scores.min() + 1e-9


class LastLayerLaplace:
    """A Bayesian last layer on the features of a network: Laplace's approximation."""

    def __init__(self, network: nn.Sequential, X: Tensor, Y: Tensor) -> None:
        self.features = network[:-1].eval()
        F = self.features(X).detach()
        eye = torch.eye(F.shape[-1], dtype=F.dtype, device=F.device)
        self.L = torch.linalg.cholesky(F.mT @ F / 0.01 + eye)
        self.w = torch.cholesky_solve(F.mT @ Y.unsqueeze(-1) / 0.01, self.L)

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        F = self.features(X).detach()
        v = torch.linalg.solve_triangular(self.L, F.mT, upper=False)
        return (F @ self.w).squeeze(-1), v.square().sum(0)


def make_network(dropout: float, **tkwargs: Any) -> nn.Sequential:
    torch.manual_seed(2)
    layers = [nn.Linear(2, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 1)]
    return nn.Sequential(*layers).to(**tkwargs)


@on_the_host
@pytest.mark.parametrize("kind", ["laplace", "dropout"])
def test_a_small_bayesian_network(kind: str, double: dict[str, Any]) -> None:
    X, Y = make_data(**double)
    network = trained(make_network(0.2, **double), X, Y)
    network.train(kind == "dropout")
    gradients = per_sample_gradients(network, X, Y)
    assert gradients.shape == (N, 2 * 16 + 16 + 16 + 1)
    chosen = select_by_gradient_diversity(gradients, NUM, FORCED)
    check_is_greedy(gradients, chosen)
    assert spread(gradients, chosen) > max(random_spreads(gradients))
    if kind == "laplace":
        mean, variance = LastLayerLaplace(network, X[chosen], Y[chosen]).moments(X)
    else:
        samples = torch.stack([network(X).squeeze(-1) for _ in range(50)])
        mean, variance = samples.mean(0), samples.var(0)
    assert (mean - Y).square().mean() < Y.var()
    assert (variance > 0).all()


class DeepKernel(MaternKernel):
    """A Matern kernel of the features of a network."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(nu=2.5)
        self.network = network

    def forward(self, x1: Tensor, x2: Tensor, **kwargs: Any) -> Tensor:
        return super().forward(self.network(x1), self.network(x2), **kwargs)


@on_the_host
def test_a_deep_kernel_gp_as_a_surrogate(double: dict[str, Any]) -> None:
    X, Y = make_data(**double)
    network = trained(make_network(0.0, **double), X, Y)
    gradients = per_sample_gradients(network, X, Y)
    chosen = select_by_gradient_diversity(gradients, NUM, FORCED)
    check_is_greedy(gradients, chosen)
    assert spread(gradients, chosen) > max(random_spreads(gradients))


@sweep("reading", ["contribution", "column", "scalar"], ["contribution"])
def test_a_deep_kernel_in_the_subset_gp(reading: str, double: dict[str, Any]) -> None:
    X, Y = make_data(**double)
    network = trained(make_network(0.0, **double), X, Y)[:2]
    model = SubsetSingleTaskGP(
        X,
        Y.unsqueeze(-1),
        covar_module=DeepKernel(network),
        subset_size=NUM,
        num_initial=2,
        reading=reading,
    )
    assert {0, 1, N - 1} <= set(model.subset_indices.tolist())
    model.add_observations(X[:1] + 0.01, Y[:1].unsqueeze(-1))
    assert (model.posterior(X).mean.squeeze(-1) - Y).square().mean() < Y.var()
