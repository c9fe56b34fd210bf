"""The pivoted factor of `K_SS` where `K_SS` is singular to rounding."""

from typing import Any

import oracles
import pytest
import torch
from device_cases import sweep
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.posteriors import (
    NystromFeatures,
    NystromPosterior,
    factorize_inducing_covariance,
)
from botorch_sparse.posteriors.factorization import (
    factorize_batch,
    inner_cholesky,
    product_with_transpose,
)


def points(m: int, d: int = 2, **tkwargs: Any) -> Tensor:
    g = torch.Generator().manual_seed(3)
    return torch.rand(m, d, generator=g, dtype=torch.float64).to(**tkwargs)


def tolerance(tkwargs: dict[str, Any]) -> float:
    return 1e-13 if tkwargs["dtype"] == torch.float64 else 1e-5


def gram(name: str, S: Tensor) -> Tensor:
    return oracles.make_kernel(name, dtype=S.dtype, device=S.device)(S).to_dense()


@sweep(
    "name, m",
    [(name, m) for name in oracles.KERNELS for m in (1, 8, 40)],
    [("matern52", 8), ("rbf", 40), ("linear", 8)],
)
def test_factor_of_the_points_kept(name, m, tkwargs):
    K = gram(name, points(m, **tkwargs))
    L, kept = factorize_inducing_covariance(K)
    assert L.dtype == K.dtype and kept.dtype == torch.int64
    assert torch.equal(L, L.tril()) and (L.diagonal() > 0).all()
    assert len(kept.unique()) == len(kept) == len(L)
    scale = K.diagonal().max()
    error = (L @ L.mT - K[kept][:, kept]).abs().max() / scale
    assert error < tolerance(tkwargs)
    # What was left out is explained by what was kept, to the threshold and rounding.
    phi = torch.linalg.solve_triangular(L, K[kept], upper=False)
    residual = (K.diagonal() - phi.square().sum(0)).abs().max() / scale
    assert residual < 10 * tolerance(tkwargs)


@pytest.mark.parametrize(
    "name, rank", [("linear", 2), ("polynomial", 6), ("sum", None), ("matern12", None)]
)
def test_finite_rank_kernels(name, rank, double):
    _, kept = factorize_inducing_covariance(gram(name, points(25, **double)))
    assert len(kept) == (25 if rank is None else rank)


def test_duplicates_are_left_out(tkwargs):
    S = points(6, **tkwargs)
    near = 1e-9 if tkwargs["dtype"] == torch.float64 else 1e-5
    S = torch.cat([S, S, S + near])
    K = gram("matern52", S)
    L, kept = factorize_inducing_covariance(K)
    assert sorted((kept % 6).tolist()) == list(range(6))
    torch.testing.assert_close(L @ L.mT, K[kept][:, kept])


def test_different_scales(double):
    """What counts is relative to each point's own prior variance."""
    K = torch.diag(torch.tensor([1e8, 1.0, 1e-8, 1e-40, 0.0], **double))
    L, kept = factorize_inducing_covariance(K)
    assert sorted(kept.tolist()) == [0, 1, 2, 3]
    torch.testing.assert_close(L @ L.mT, K[kept][:, kept], rtol=1e-12, atol=0)


def test_zero_prior_variance(tkwargs):
    S = torch.cat([torch.zeros(2, 2, **tkwargs), points(1, **tkwargs)])
    L, kept = factorize_inducing_covariance(gram("linear", S))
    assert kept.tolist() == [2]
    L, kept = factorize_inducing_covariance(gram("linear", S[:2]))
    assert L.shape == (0, 0) and kept.shape == (0,)


def test_no_points(double):
    L, kept = factorize_inducing_covariance(torch.zeros(0, 0, **double))
    assert L.shape == (0, 0) and kept.tolist() == []


def test_batch_is_each_element(tkwargs):
    """Elements of different rank: the factors of one by one, padded."""
    S = points(8, **tkwargs)
    elements = [gram(name, S) for name in ("matern52", "linear", "rbf", "polynomial")]
    elements[2] = gram("rbf", S[[0, 1, 2, 0, 1, 2, 0, 1]])
    K = torch.stack(elements).view(2, 2, 8, 8).to(**tkwargs)
    factor = factorize_batch(K)
    assert factor.kept is not None and factor.chol.shape == (2, 2, 8, 8)
    for i in range(4):
        at = (i // 2, i % 2)
        _, kept = factorize_inducing_covariance(K[at])
        rank = len(kept)
        assert torch.equal(factor.kept[at], torch.arange(8, device=K.device) < rank)
        index = factor.index[at]
        assert sorted(index[:rank].tolist()) == sorted(kept.tolist())
        assert sorted(index.tolist()) == list(range(8))
        ours, K_kept = factor.chol[at][:rank, :rank], K[at][index[:rank]]
        assert torch.equal(ours, ours.tril()) and (ours.diagonal() > 0).all()
        torch.testing.assert_close(ours @ ours.mT, K_kept[:, index[:rank]])
        rest = factor.chol[at][rank:]
        torch.testing.assert_close(rest, torch.eye(8, **tkwargs)[rank:])


def test_batch_is_cut_to_its_largest_rank(double):
    S = points(8, **double)
    factor = factorize_batch(torch.stack([gram("linear", S), gram("linear", 2 * S)]))
    assert factor.kept is None and factor.chol.shape[-1] == factor.index.shape[-1] < 8


def test_batch_of_nothing(double):
    factor = factorize_batch(torch.zeros(3, 0, 0, **double))
    assert factor.chol.shape == (3, 0, 0) and factor.index.shape == (3, 0)


def test_batch_gradients_are_those_of_each_element(double):
    S = points(6, **double)
    S[-1] = S[0]
    kernel = oracles.make_kernel("matern52", **double)
    scales = torch.tensor([0.5, 1.0], **double).view(2, 1, 1)

    def product(scale: Tensor, S: Tensor) -> Tensor:
        K = kernel(S * scale).to_dense()
        if K.dim() == 2:
            L, _ = factorize_inducing_covariance(K)
            return (L @ L.mT).sum() + L.diagonal().log().sum()
        factor = factorize_batch(K)
        L = factor.chol
        both = factor.kept.unsqueeze(-1) & factor.kept.unsqueeze(-2)
        logs = L.diagonal(dim1=-1, dim2=-2).log().sum()
        return torch.where(both, L @ L.mT, 0.0).sum() + logs

    batch = torch.stack([S, S.roll(1, 0)])
    batch[1, 0] += 0.1  # nothing is redundant in the second element
    ours = scales.clone().requires_grad_()
    product(ours, batch).backward()
    for i in range(2):
        single = scales[i].clone().requires_grad_()
        product(single, batch[i]).backward()
        torch.testing.assert_close(ours.grad[i], single.grad)


@pytest.mark.parametrize("name", ["rbf", "polynomial"])
def test_gradients_reach_the_points_kept(name, double):
    S = points(9, **double)
    S[-1] = S[0]
    kernel = oracles.make_kernel(name, **double)
    weight = torch.arange(81.0, **double).view(9, 9).sin()

    def value(lengthscale: Tensor) -> Tensor:
        K = kernel(S / lengthscale).to_dense()
        L, kept = factorize_inducing_covariance(K)
        return (weight[kept][:, kept] * (L @ L.mT)).sum()

    detached, _ = factorize_inducing_covariance(kernel(S).to_dense())
    K = kernel(S).to_dense().requires_grad_()
    attached, _ = factorize_inducing_covariance(K)
    assert attached.requires_grad and not detached.requires_grad
    torch.testing.assert_close(attached.detach(), detached, rtol=1e-6, atol=1e-7)
    one = torch.ones(1, **double).requires_grad_()
    assert torch.autograd.gradcheck(value, (one,))


def test_elements_without_a_factor(double):
    """An error on the host; on a device NaN, in that element alone."""
    good = torch.tensor([[4.0, 2.0], [2.0, 5.0]], **double)
    both = torch.stack([good, torch.diag(good.new_tensor([1.0, -1.0]))])
    torch.testing.assert_close(inner_cholesky(good) @ inner_cholesky(good).mT, good)
    if good.is_cpu:
        match = r"shape \(2, 2, 2\).*from -1 to 5.*above 2e-16 of the signal's"
        with pytest.raises(torch.linalg.LinAlgError, match=match):
            inner_cholesky(both)
        return
    L = inner_cholesky(both)
    torch.testing.assert_close(L[0], inner_cholesky(good))
    assert L[1].isnan().all()


@pytest.mark.parametrize("shape", [(4, 4), (2, 4, 4), (0, 0)])
@pytest.mark.parametrize("is_diagonal", [True, False])
def test_product_of_a_factor_with_its_transpose(shape, is_diagonal, device):
    """Its gradient knows entries that are zero."""
    L = points(32, 1)[: torch.Size(shape).numel()].view(shape).to(device).tril()
    if is_diagonal:
        L = L.diagonal(dim1=-2, dim2=-1).diag_embed()
    torch.testing.assert_close(product_with_transpose(L), L @ L.mT)
    L.requires_grad_()
    gradients = [
        torch.autograd.grad(product.exp().sum(), L)[0]
        for product in (product_with_transpose(L), L @ L.mT)
    ]
    torch.testing.assert_close(*gradients)


def test_all_doors_say_what_came():
    """Noise of the wrong sign, and noise whose inverse is infinite."""
    kernel = RBFKernel().double()
    X = torch.rand(6, 2, generator=torch.Generator().manual_seed(0)).double()
    negative = torch.full((6,), -0.1, dtype=torch.float64)
    tiny = torch.full((6,), 1e-309, dtype=torch.float64)
    prior = NystromPosterior.prior(kernel, X[:3])
    with pytest.raises(torch.linalg.LinAlgError, match="Try larger noise variances"):
        prior.condition(X, X[:, 0], negative)
    features = NystromFeatures.of(kernel, X[:3])
    with pytest.raises(torch.linalg.LinAlgError, match="Try larger noise variances"):
        accuracy_certificate(features, X, tiny)
