"""Folded repeats against unfolded data: moments and log likelihood."""

import oracles
import pytest
import torch
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior, RepeatedRows, fold_repeats


def repeated_data(lam: float, equal: bool) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    points = torch.rand(12, 2, generator=g, dtype=torch.float64)
    X = points[torch.randint(12, (60,), generator=g)]
    Y = X.sum(-1).sin() + lam**0.5 * torch.randn(60, generator=g, dtype=torch.float64)
    spread = torch.zeros(60) if equal else torch.rand(60, generator=g)
    return X, Y, lam * (1.0 + 3.0 * spread.double())


def test_rows_in_order_of_appearance(tkwargs):
    X = torch.tensor([[3.0, 1], [0, 0], [3, 1], [-2, 5], [0, 0], [3, 1]], **tkwargs)
    rows = RepeatedRows.find(X)
    assert rows.first.tolist() == [0, 1, 3]
    assert rows.inverse.tolist() == [0, 1, 0, 2, 1, 0]
    assert rows.sum(torch.ones(6, **tkwargs)).tolist() == [3, 2, 1]
    torch.testing.assert_close(X[rows.first][rows.inverse], X)


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(n, double):
    rows = RepeatedRows.find(torch.rand(n, 3, **double))
    assert rows.first.tolist() == rows.inverse.tolist() == list(range(n))
    folded = fold_repeats(rows, torch.ones(n, **double), torch.ones(n, **double))
    assert folded.Y.shape == folded.noise.shape == (n,)
    assert folded.log_likelihood_gain.abs() < 1e-12


def test_signed_zeros_are_one_point(double):
    X = torch.tensor([[0.0, 1.0], [-0.0, 1.0]], **double)
    assert RepeatedRows.find(X).first.tolist() == [0]


def test_neighbours_are_two_points(tkwargs):
    one = torch.ones(1, 1, **tkwargs)
    X = torch.cat([one, torch.nextafter(one, 2 * one)])
    assert RepeatedRows.find(X).first.tolist() == [0, 1]


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("lam", [1e-4, 1e-1])
@pytest.mark.parametrize("name", ["rbf", "matern52", "linear", "product"])
def test_folded_equals_unfolded(name, lam, equal, double):
    X, Y, noise = repeated_data(lam, equal)
    S = torch.cat([X[:4], X[:2], torch.full((1, 2), 0.4, dtype=torch.float64)])
    Z = torch.cat([X[:3], torch.rand(5, 2, generator=torch.Generator().manual_seed(2))])
    rows = RepeatedRows.find(X.to(**double))
    folded = fold_repeats(rows, Y.to(**double), noise.to(**double))
    assert len(folded.Y) == len(rows.first) == 12
    posterior = NystromPosterior.from_data(
        oracles.make_kernel(name, **double),
        X[rows.first.cpu()].to(**double),
        folded.Y,
        folded.noise,
        S.to(**double),
    )
    moments = posterior.moments(Z.to(**double))
    dense = oracles.DENSE[name]
    expected = oracles.dtc(dense, X, Y, noise, S, Z)
    close = {"rtol": 1e-6, "atol": 1e-8}
    torch.testing.assert_close(moments.mean.cpu(), expected.mean, **close)
    torch.testing.assert_close(moments.variance.cpu(), expected.variance, **close)
    unfolded = oracles.dtc_log_likelihood(dense, X, Y, noise, S)
    U, y, d = oracles.to_cpu(X[rows.first.cpu()], folded.Y, folded.noise)
    value = oracles.dtc_log_likelihood(dense, U, y, d, S)
    value = value + folded.log_likelihood_gain.cpu()
    torch.testing.assert_close(value, unfolded, rtol=1e-8, atol=1e-6)


def test_gradients(double):
    X, Y, noise = (t.to(**double)[:10] for t in repeated_data(0.3, equal=False))
    rows = RepeatedRows.find(X)
    assert len(rows.first) < 10
    Y.requires_grad_()
    noise = noise.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda y, d: tuple(fold_repeats(rows, y, d)), (Y, noise)
    )
