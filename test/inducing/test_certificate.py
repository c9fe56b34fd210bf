"""The accuracy certificate: bounds that hold, and what they cost."""

import math
from typing import Any

import pytest
import torch
from device_cases import sweep
from gpytorch.kernels import MaternKernel, ScaleKernel
from oracles import RecordingKernel
from sampler_cases import clustered, effective_dimension, rbf, residual
from torch import Tensor

from botorch_sparse.inducing import (
    AccuracyCertificate,
    accuracy_certificate,
    accuracy_certificates,
    variance_inflation,
)
from botorch_sparse.posteriors import NystromFeatures, NystromPosterior

F64: dict[str, Any] = {"dtype": torch.float64}


def problem(seed: int, n: int = 60, m: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Points, noise variances over two orders of magnitude, and inducing indices."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=g, **F64)
    noise = 10 ** (-3 + 2 * torch.rand(n, generator=g, **F64))
    return X, noise, torch.randperm(n, generator=g)[:m]


def certify(
    X: Tensor, noise: Tensor, index: Tensor, **options: Any
) -> AccuracyCertificate:
    kernel = rbf(0.3, dtype=X.dtype, device=X.device)
    return accuracy_certificate(
        NystromPosterior.prior(kernel, X[index]), X, noise, **options
    )


def largest_eigenvalue(X: Tensor, noise: Tensor, index: Tensor) -> float:
    K = rbf(0.3, **F64)(X.cpu().double()).to_dense()
    return torch.linalg.eigvalsh(residual(K, index, noise))[-1].item()


@sweep("method", ["auto", "trace", "row-sum", "lanczos", "sampled"], ["auto"])
def test_upper_bound_on_the_largest_eigenvalue(method, tkwargs):
    """12 problems; those that draw fail with 1e-6 each."""
    for seed in range(12):
        X, noise, index = problem(seed)
        got = certify(
            X.to(**tkwargs),
            noise.to(**tkwargs),
            index.to(tkwargs["device"]),
            method=method,
            delta=1e-6,
        )
        exact = largest_eigenvalue(X.to(**tkwargs), noise.to(**tkwargs), index)
        assert got.lambda_max >= (1 - 1e-6) * exact
        assert got.lambda_max <= got.trace
        assert got.failure_probability in (0.0, 1e-6)
        if got.method == "lanczos" and got.lambda_max_estimate is not None:
            assert got.lambda_max_estimate <= exact * (1 + 1e-6)
        if method == "auto":
            assert got.lambda_max <= 1.12 * exact


def test_closed_forms():
    X, noise, index = problem(3)
    E = residual(rbf(0.3, **F64)(X).to_dense(), index, noise)
    trace = certify(X, noise, index, method="trace")
    assert trace.lambda_max == pytest.approx(E.trace().item(), rel=1e-7)
    assert (trace.method, trace.failure_probability) == ("trace", 0.0)
    assert trace.lambda_max_estimate is None
    rows = certify(X, noise, index, method="row-sum")
    expected = min(E.trace().item(), E.abs().sum(-1).max().item())
    assert rows.lambda_max == pytest.approx(expected, rel=1e-7)
    assert (trace.num_points, trace.num_inducing) == (60, 12)


def test_no_inducing_points_and_all():
    X, noise, _ = problem(4, n=30)
    nothing = certify(X, noise, torch.arange(0))
    K = rbf(0.3, **F64)(X).to_dense() / noise.sqrt() / noise.sqrt().unsqueeze(-1)
    top = torch.linalg.eigvalsh(K)[-1].item()
    assert top * (1 - 1e-9) <= nothing.lambda_max <= 1.12 * top
    assert nothing.effective_dimension_lower == 0.0
    everything = certify(X, noise, torch.arange(30))
    assert everything.lambda_max <= 1e-8
    assert everything.alpha == pytest.approx(1.0, abs=1e-3)
    assert certify(X[:0], noise[:0], torch.arange(0)).lambda_max == 0.0


def test_effective_dimension_between_its_bounds():
    kernel = rbf(0.3, **F64)
    for seed in range(20):
        X, noise, index = problem(seed)
        exact = effective_dimension(kernel(X).to_dense(), noise)
        got = certify(X, noise, index)
        assert got.effective_dimension_lower <= exact * (1 + 1e-9)
        assert exact <= got.effective_dimension * (1 + 1e-9)
        # tr Q (Q + D)^-1, and sum_i E_ii / (1 + E_ii)
        K = kernel(X).to_dense()
        E = residual(K, index, noise)
        Q = K - noise.sqrt().unsqueeze(-1) * E * noise.sqrt()
        lower = effective_dimension(Q, noise)
        assert got.effective_dimension_lower == pytest.approx(lower, rel=1e-6)
        rest = (E.diagonal() / (1 + E.diagonal())).sum().item()
        assert got.effective_dimension == pytest.approx(lower + rest, rel=1e-6)
    X, noise, index = problem(0, m=55)
    tight = certify(X, noise, index)
    assert tight.effective_dimension <= 1.05 * tight.effective_dimension_lower


def test_variance_within_alpha_both_ways():
    """`variance / alpha <= exact <= alpha variance`, and nearly reached."""
    kernel, worst = rbf(0.3, **F64), [1.0, 1.0]
    for seed in range(40):
        X, noise, index = problem(seed, n=40, m=2 + seed % 20)
        Z = torch.cat([X, 2 * torch.rand(200, 2, **F64) - 0.5])
        posterior = NystromPosterior.from_data(
            kernel, X, torch.zeros_like(noise), noise, X[index]
        )
        C = kernel(Z, X).to_dense()
        exact = 1 - (
            C * torch.linalg.solve(kernel(X).to_dense() + noise.diag(), C.mT).mT
        ).sum(-1)
        ratio = posterior.variance(Z) / exact
        alpha = accuracy_certificate(posterior, X, noise, delta=1e-9).alpha
        assert (ratio <= alpha * (1 + 1e-6)).all() and (ratio * alpha >= 1 - 1e-6).all()
        worst[0] = max(worst[0], (ratio.max().log() / math.log(alpha)).item())
        worst[1] = min(worst[1], (ratio.min().log() / math.log(alpha)).item())
    assert worst[0] > 0.3 and worst[1] < -0.3  # not a bound for nothing


def test_variance_inflation():
    assert variance_inflation(0.0) == 1.0
    assert variance_inflation(1.0) == pytest.approx((3 + math.sqrt(5)) / 2)
    for r in (1e-3, 0.5, 7.0):
        t = variance_inflation(r) - 1
        assert (1 + 1 / t) * r == pytest.approx(t)  # the proof's choice of t


def test_many_points_need_no_quadratic_pass():
    n = 6000
    X, kernel = clustered(n, **F64), RecordingKernel().double()
    noise = torch.full((n,), 1e-3, **F64)
    features = NystromFeatures.of(kernel, X[:20])
    got = accuracy_certificate(features, X, noise)
    assert got.method == "sampled" and got.lambda_max < got.trace
    assert max(shape.numel() for shape in kernel.shapes) <= 3000**2
    assert sum(shape.numel() for shape in kernel.shapes) < n * n / 2


def test_batch_is_a_loop(double):
    """Batched kernels, points and noise; and a kernel shared by all."""
    X = torch.rand(2, 3, 25, 2, **double)
    noise = 0.01 + torch.rand(2, 3, 25, **double)
    batched = ScaleKernel(
        MaternKernel(batch_shape=torch.Size([2, 3]), ard_num_dims=2),
        batch_shape=torch.Size([2, 3]),
    ).to(**double)
    batched.base_kernel.lengthscale = 0.2 + torch.rand(2, 3, 1, 2, **double)
    batched.outputscale = 0.5 + torch.rand(2, 3, **double)
    for kernel in (batched, rbf(0.4, **double)):
        posterior = NystromPosterior.from_data(
            kernel, X, torch.zeros_like(noise), noise, X[..., :6, :]
        )
        many = accuracy_certificates(posterior, X, noise)
        assert len(many) == 6
        for k, got in enumerate(many):
            i, j = divmod(k, 3)
            own = kernel[i, j] if kernel is batched else kernel
            K = own(X[i, j]).to_dense()
            E = residual(K, torch.arange(6), noise[i, j])
            assert got.trace == pytest.approx(E.trace().item(), rel=1e-6)
            top = torch.linalg.eigvalsh(E)[-1].item()
            assert top * (1 - 1e-6) <= got.lambda_max <= 1.12 * top


def test_same_seed_same_certificate():
    X, noise, index = problem(0, n=200)
    first = certify(X, noise, index, method="lanczos")
    torch.rand(5)
    assert first == certify(X, noise, index, method="lanczos")
    other = torch.Generator().manual_seed(1)
    again = certify(X, noise, index, method="lanczos", generator=other)
    assert first.lambda_max_estimate != again.lambda_max_estimate
