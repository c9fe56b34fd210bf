"""Bounds on the largest eigenvalue of the residual matrix, and its products."""

import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel
from sampler_cases import clustered, rbf, residual
from torch import Tensor

from botorch_sparse.inducing.certificate import (
    DENSE_SIZE,
    ScaledResidual,
    lanczos_upper_bound,
    projection,
    row_sum_bound,
    sampled_upper_bound,
    top_eigenvalue,
)
from botorch_sparse.posteriors import NystromFeatures

F64: dict[str, Any] = {"dtype": torch.float64}


class Table(Kernel):
    """A kernel between numbers of rows that is given by its matrix."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor:
        i, j = x1.squeeze(-1).long(), x2.squeeze(-1).long()
        return self.matrix[i, j] if diag else self.matrix[i][:, j]


def given(matrix: Tensor) -> ScaledResidual:
    """A given matrix as what no inducing points leave over."""
    X = torch.arange(len(matrix), **F64).unsqueeze(-1)
    prior = NystromFeatures.of(Table(matrix), X[:0])
    return ScaledResidual(prior, X, torch.ones_like(X[:, 0]))


def spectrum(kind: str, n: int) -> Tensor:
    ranks = torch.arange(1, n + 1, **F64)
    return {
        "harmonic": 1 / ranks,
        "flat": torch.ones(n, **F64),
        "linear": 1 - ranks / (n + 1),
        "spiked": torch.cat([torch.ones(1, **F64), 0.9 * torch.ones(n - 1, **F64)]),
    }[kind]


@pytest.mark.parametrize("kind", ["harmonic", "flat", "linear", "spiked"])
def test_lanczos_bound_over_many_starts(kind):
    """It holds for 100 starts: at 1e-3 each more than 2 failures have odds of 2e-4."""
    eigenvalues = spectrum(kind, 200)
    matrix = given(eigenvalues.diag())
    failures = 0
    for seed in range(100):
        g = torch.Generator().manual_seed(seed)
        bound = lanczos_upper_bound(matrix, 1e-3, g).read()
        failures += bound.value < eigenvalues.max().item()
        assert bound.estimate is not None
        assert bound.estimate <= eigenvalues.max().item() * (1 + 1e-12)
        assert bound.value <= eigenvalues.max().item() / 0.9 * (1 + 1e-12)
    assert failures <= 2


@pytest.mark.parametrize("n", [400, 5000])
@pytest.mark.parametrize("delta", [1e-6, 1e-5, 5e-4, 1e-3, 4e-3])
def test_number_of_lanczos_steps(n, delta, monkeypatch):
    """The fewest for which `1.648 sqrt(n) exp(-sqrt(0.1) (2k - 1))` is below delta."""
    chance = [1.648 * n**0.5 * math.exp(-(0.1**0.5) * (2 * k - 1)) for k in range(60)]
    X, products = torch.arange(n, **F64).unsqueeze(-1), list[Tensor]()
    nothing = NystromFeatures.of(rbf(1.0, **F64), X[:0])
    matrix = ScaledResidual(nothing, X, torch.ones_like(X[:, 0]))

    def count(self: ScaledResidual, v: Tensor) -> Tensor:
        products.append(v)
        return v

    monkeypatch.setattr(ScaledResidual, "__matmul__", count)
    lanczos_upper_bound(matrix, delta, torch.Generator().manual_seed(0))
    assert len(products) == next(k for k in range(60) if chance[k] <= delta)


@pytest.mark.parametrize("size", [5, 40])
def test_sampled_bound_as_printed(size):
    """The bound that follows from the Ritz value of the rows drawn."""
    E, delta = spectrum("harmonic", 100).diag(), 1e-2
    g = torch.Generator().manual_seed(0)
    bound = sampled_upper_bound(given(E), E.diagonal(), delta, g, size).read()
    # Of five rows the largest eigenvalue is known; of more it is a Ritz value over 0.9.
    top = (bound.estimate or 0.0) / (1.0 if size == 5 else 0.9)
    c2 = 2 * E.trace().item() * math.log(2 / delta) / size
    root = (c2**0.5 + (c2 + 4 * top) ** 0.5) / 2
    assert bound.value == pytest.approx(root**2, rel=1e-12)
    assert bound.failure_probability == delta


def test_projection_on_the_krylov_space():
    """Ritz values are the eigenvalues of `V' A V`, with `V` from a QR factorization.

    The space is that of `k` powers of a matrix whose eigenvalues spread evenly: the
    powers have a condition number below 1e8, so that 1e-6 leaves a factor of 50.
    """
    n, k = 30, 6
    g = torch.Generator().manual_seed(4)
    V = torch.linalg.qr(torch.randn(n, n, generator=g, **F64))[0]
    A = (V * torch.linspace(0.1, 1, n, **F64)) @ V.mT
    v = torch.randn(n, generator=torch.Generator().manual_seed(0), **F64)
    powers = torch.stack([torch.linalg.matrix_power(A, i) @ v for i in range(k)], -1)
    assert torch.linalg.cond(powers) < 1e8
    W = torch.linalg.qr(powers)[0]
    got = projection(given(A), k, torch.Generator().manual_seed(0))
    expected = torch.linalg.eigvalsh(W.mT @ A @ W)
    torch.testing.assert_close(torch.linalg.eigvalsh(got), expected, rtol=1e-6, atol=0)


def test_too_few_steps_fail_where_the_bound_says_so():
    """Few steps on a long linear spectrum miss the top by more than a tenth."""
    eigenvalues = spectrum("linear", 3000) ** 8
    matrix = given(eigenvalues.diag())
    g = torch.Generator().manual_seed(0)
    assert top_eigenvalue(projection(matrix, 3, g)) < 0.9 * eigenvalues.max().item()
    assert top_eigenvalue(projection(matrix, 20, g)) > 0.9 * eigenvalues.max().item()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", ["harmonic", "flat", "spiked"])
@pytest.mark.parametrize("size", [5, 40, 400])
def test_sampled_bound_over_many_draws(kind, size):
    """At `delta = 0.1`, 100 draws: more than 25 failures have odds below 1e-5."""
    g = torch.Generator().manual_seed(9)
    V = torch.linalg.qr(torch.randn(100, 100, generator=g, **F64))[0]
    eigenvalues = spectrum(kind, 100)
    E = (V * eigenvalues) @ V.mT
    bounds = [
        sampled_upper_bound(given(E), E.diagonal(), 0.1, g, size).read().value
        for _ in range(100)
    ]
    assert sum(bound < eigenvalues.max().item() for bound in bounds) <= 25
    if size == 400:  # better than the trace by far
        assert max(bounds) < 0.6 * eigenvalues.sum().item()


@pytest.mark.parametrize("size", [20, 1000])
def test_sampled_bound_where_single_rows_matter(size):
    """The top eigenvector is one row, which few draws miss half of the time.

    20 rows: at `delta = 0.01` more than 10 failures in 200 have odds of 1e-5; 1000
    rows: hits are binomial, and the mean estimate of 16 draws has a standard error of
    0.025.
    """
    g, repeats = torch.Generator().manual_seed(3), 200 if size == 20 else 16
    eigenvalues = torch.cat([torch.ones(1, **F64), torch.full((900,), 0.01, **F64)])
    matrix = given(eigenvalues.diag())
    bounds = [
        sampled_upper_bound(matrix, eigenvalues, 0.01, g, size).read()
        for _ in range(repeats)
    ]
    assert sum(bound.value < 1.0 for bound in bounds) <= 10
    if size == 1000:
        estimates = [bound.estimate or 0.0 for bound in bounds]
        assert abs(sum(estimates) / repeats - 1.0) < 0.125


def test_streamed_products_are_those_of_the_matrix(double):
    n = DENSE_SIZE + 1
    X, index = clustered(n, **double), torch.arange(5)
    noise = torch.logspace(-3, -1, n, **double)
    prior = NystromFeatures.of(rbf(0.3, **double), X[:5])
    E = residual(rbf(0.3, **double)(X).to_dense(), index, noise).to(**double)
    v = torch.randn(n, **double)
    error = ScaledResidual(prior, X, noise)
    torch.testing.assert_close(error @ v, E @ v, rtol=1e-7, atol=1e-7)
    assert len(list(error.row_blocks())) == 6
    expected = E.abs().sum(-1).max().item()
    assert row_sum_bound(error).read().value == pytest.approx(expected, rel=1e-7)
