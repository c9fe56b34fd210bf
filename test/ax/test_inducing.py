"""Inducing points for new observations, against dense matrices."""

from typing import Any

import pytest
import torch
from ax_problems import CAPPED
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize

from botorch_sparse.ax.extended_inducing import HEADROOM, extended_inducing_points
from botorch_sparse.models import SparseSingleTaskGP

pytestmark = CAPPED

WIDTH = 4.0


def data(n: int, m: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    X = WIDTH * torch.rand(n, 2, generator=generator, dtype=torch.double)
    Y = torch.stack([(X.sum(-1) * (j + 1)).sin() for j in range(m)], dim=-1)
    return X, (Y - Y.mean(0)) / Y.std(0)


def model_of(m: int, **options: Any) -> SparseSingleTaskGP:
    X, Y = data(30, m)
    bounds = torch.tensor([[0.0, 0.0], [WIDTH, WIDTH]], dtype=torch.double)
    model = SparseSingleTaskGP(
        X,
        Y,
        input_transform=Normalize(2, bounds=bounds),
        outcome_transform=None,
        **options,
    )
    model.likelihood.noise = 0.02 * torch.ones(m).squeeze()
    return model.eval()


def unexplained(model: SparseSingleTaskGP, X: Any, S: Any) -> torch.Tensor:
    """`(K - Q) / noise` over the rows of X given inducing points S, densely."""
    X, S = X / WIDTH, S / WIDTH
    total = torch.zeros(len(X), len(X), dtype=torch.double)
    ell = model.covar_module.lengthscale.detach().reshape(-1, 1, 2)
    noise = model.likelihood.noise.detach().reshape(-1)

    def k(A: torch.Tensor, B: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (-0.5 * torch.cdist(A / scale, B / scale).square()).exp()

    for scale, variance in zip(ell, noise, strict=True):
        K, KXS, KSS = k(X, X, scale), k(X, S, scale), k(S, S, scale)
        total += (K - KXS @ torch.linalg.pinv(KSS, hermitian=True) @ KXS.T) / variance
    return total


@pytest.mark.parametrize("m", [1, 2])
def test_new_points_are_explained_to_the_tolerance(m):
    model = model_of(m, max_inducing_points=12)
    X, _ = data(40, m, seed=1)
    S = model.inducing_points
    extended = extended_inducing_points(model, X)
    added = extended[len(S) :]
    assert torch.equal(extended[: len(S)], S)
    assert 0 < len(added) <= int(HEADROOM * 12) - len(S)
    assert (torch.cdist(added, X).min(-1).values < 1e-6).all()
    first = unexplained(model, X, S).diagonal()
    assert torch.equal(added[0], X[first.argmax()])
    second = unexplained(model, X, extended[: len(S) + 1]).diagonal()
    assert torch.equal(added[1], X[second.argmax()])


def test_with_room_the_trace_left_is_at_most_one_and_no_point_is_wasted():
    model = model_of(1, inducing_points=data(30, 1)[0][:10], max_inducing_points=200)
    model.covar_module.lengthscale = 0.3
    X, _ = data(60, 1, seed=2)
    extended = extended_inducing_points(model, X)
    assert unexplained(model, X, extended).trace() <= 1.0 + 1e-6
    assert unexplained(model, X, extended[:-1]).trace() > 1.0


def test_points_that_are_known_add_nothing():
    model = model_of(1, max_inducing_points=12)
    S = model.inducing_points
    assert torch.equal(extended_inducing_points(model, S.flip(0)), S)


def test_models_without_inducing_points_have_none():
    X, Y = data(20, 1)
    X = X / WIDTH
    assert extended_inducing_points(SingleTaskGP(X, Y), X) is None
    assert extended_inducing_points(SparseSingleTaskGP(X, Y), X) is None
