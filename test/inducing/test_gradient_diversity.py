"""Greedy selection by gradient diversity against loops over all candidates."""

from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from sampler_cases import brute_force
from torch import Tensor

from botorch_sparse.inducing import GradientFactors, select_by_gradient_diversity

close = torch.testing.assert_close


def make_factors(
    n: int, m: int, batch: tuple[int, ...] = (), equal: bool = False, **tkwargs: Any
) -> GradientFactors:
    torch.manual_seed(n + m)
    diagonal = torch.rand(*batch, n, **tkwargs) + 2.0
    if equal:
        diagonal = torch.full_like(diagonal, 2.5)
    rows = 0.3 * torch.randn(*batch, n, m, **tkwargs)
    return GradientFactors(diagonal, rows, torch.randn(*batch, n, **tkwargs))


def dense_of(factors: GradientFactors) -> Tensor:
    """Rows s_i (diag(d) - U U') e_i, written out; batch elements side by side."""
    n, m = factors.rows.shape[-2:]
    elements = zip(
        factors.diagonal.reshape(-1, n),
        factors.rows.reshape(-1, n, m),
        factors.scale.reshape(-1, n),
        strict=True,
    )
    return torch.cat([s[:, None] * (d.diag() - U @ U.T) for d, U, s in elements], -1)


@pytest.mark.parametrize("p", [1, 3, 40])
@pytest.mark.parametrize("forced", [[], [7], [5, 0, 11]])
def test_is_the_brute_force_greedy(p, forced, tkwargs):
    torch.manual_seed(p)
    gradients = torch.randn(30, p, **tkwargs)
    chosen = select_by_gradient_diversity(gradients, 12, forced)
    assert chosen.device == gradients.device
    assert chosen.tolist() == brute_force(gradients, 12, forced)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("noise_scale", [0.0, 0.5])
def test_factors_are_the_dense_gradients(batch, equal, noise_scale, double):
    factors = make_factors(40, 6, batch, equal, **double)
    dense = dense_of(factors)
    close(factors.to_dense(), dense)
    if noise_scale > 0:
        factors = factors.perturbed(noise_scale, torch.Generator().manual_seed(3))
        dense = factors.to_dense()
    gram = factors.gram()
    rows = [gram.row(torch.tensor([j], device=dense.device)) for j in range(40)]
    close(torch.stack(rows), dense @ dense.T, atol=1e-10, rtol=1e-10)
    close(gram.squared_norms, dense.square().sum(-1))
    chosen = select_by_gradient_diversity(factors, 20, [4, 2])
    assert chosen.tolist() == brute_force(dense, 20, [4, 2])


@pytest.mark.parametrize("of_factors", [False, True])
def test_the_perturbation_has_the_stated_moments(of_factors, double):
    n, scale, generator = 64, 0.3, torch.Generator().manual_seed(0)
    zero = GradientFactors(*(torch.zeros(s, **double) for s in [n, (n, 1), n]))
    noise = [
        zero.perturbed(scale, generator).to_dense()
        if of_factors
        else scale * torch.randn(n, n, generator=generator, dtype=torch.float64)
        for _ in range(300)
    ]
    E = torch.stack([e.cpu() for e in noise])
    # 300 n normal numbers at least: mean within 5 standard errors, variance within 5%.
    assert E.mean().abs() < 5 * scale / (300 * n) ** 0.5
    close(E.square().mean(), torch.tensor(scale**2).double(), rtol=0.05, atol=0.0)
    inner = (E @ E.mT)[:, 0, 5]
    close(inner.square().mean(), torch.tensor(n * scale**4).double(), rtol=0.5, atol=0)
    coordinates = (E[:, 3, 1:] * E[:, 3, :-1]).mean()
    assert coordinates.abs() < 5 * scale**2 / (300 * n) ** 0.5


def test_ties_go_to_the_lowest_index_and_zero_has_no_direction(tkwargs):
    scalars = torch.tensor([2.0, -1.0, 3.0, -7.0, 0.0, 5.0], **tkwargs)
    # 0 is forced; signs alternate, then 4, without direction, comes before a sum of 0.
    assert select_by_gradient_diversity(scalars, 4, [0]).tolist() == [0, 1, 2, 3]
    repeated = torch.tensor([[1.0, 0.0], [0.6, 0.8]], **tkwargs).repeat(6, 1)
    chosen = select_by_gradient_diversity(repeated, 3, [0]).tolist()
    assert chosen == [0, 1, 2]
    assert select_by_gradient_diversity(scalars, 1).tolist() == [0]
    assert select_by_gradient_diversity(0 * scalars, 3).tolist() == [0, 1, 2]


def test_all_and_none(double):
    gradients = torch.eye(4, **double)
    everything = select_by_gradient_diversity(gradients, 4, [2])
    assert everything.sort().values.tolist() == [0, 1, 2, 3]
    assert everything[0] == 2
    assert select_by_gradient_diversity(gradients, 0).tolist() == []
    assert select_by_gradient_diversity(gradients, 2, [3, 1]).tolist() == [3, 1]


def test_errors_of_factors():
    with pytest.raises(BotorchTensorDimensionError, match="n x m"):
        GradientFactors(torch.ones(3), torch.ones(4, 2), torch.ones(4))
    with pytest.raises(InputDataError, match="Got rows of gradients with NaN"):
        GradientFactors(torch.ones(4), torch.full((4, 2), torch.inf), torch.ones(4))


def test_scalars_tie_and_are_chosen_at_random():
    """All scalars of a sign have one direction; which are taken must not be the age."""
    gradients = torch.tensor([1.0, -1.0], dtype=torch.double).repeat(100) * 50
    oldest = select_by_gradient_diversity(gradients, 40)
    assert oldest.max() < 41
    generator = torch.Generator().manual_seed(0)
    chosen = select_by_gradient_diversity(gradients, 40, None, 0.1, generator)
    assert chosen.double().mean() > 80
    assert gradients[chosen].sum().abs() <= 50
