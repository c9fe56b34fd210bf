"""The low-rank objective against dense Gaussians."""

import copy
import math
from typing import Any

import pytest
import torch
from botorch.exceptions import UnsupportedError
from botorch.models import MixedSingleTaskGP
from forbid_large import ForbidLarge
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean
from torch import Tensor

from botorch_sparse.models.nystrom_prior import NystromPrior, nystrom_prior
from botorch_sparse.posteriors import RepeatedRows


class Problem:
    """A small regression problem with repeated points and its dense objective."""

    def __init__(
        self,
        kernel: Any,
        fixed_noise: bool,
        dtype: torch.dtype = torch.float64,
        device: Any = None,
    ) -> None:
        tkwargs: dict[str, Any] = {"dtype": dtype, "device": device}
        generator = torch.Generator().manual_seed(3)
        X = torch.rand(25, 2, generator=generator, dtype=torch.float64)
        X = torch.cat([X, X[:9], X[:4]])
        self.X = X.to(**tkwargs)
        Y = (6 * X).sin().sum(-1)
        Y = Y + 0.1 * torch.randn(len(X), generator=generator, dtype=torch.float64)
        self.Y = Y.to(**tkwargs)
        noise = 0.05 + torch.rand(len(X), generator=generator, dtype=torch.float64)
        self.kernel = kernel.to(**tkwargs)
        self.mean = ConstantMean().to(**tkwargs)
        self.mean.initialize(constant=0.3)
        if fixed_noise:
            self.likelihood = FixedNoiseGaussianLikelihood(noise.to(**tkwargs))
        else:
            self.likelihood = GaussianLikelihood().to(**tkwargs)
            self.likelihood.noise = 0.2
        self.S = self.X[3:25:3]
        modules = [self.kernel, self.mean, self.likelihood]
        self.parameters = [p for module in modules for p in module.parameters()]

    def double(self) -> "Problem":
        """The same values in float64."""
        other = copy.copy(self)
        other.X, other.Y, other.S = (t.double() for t in (self.X, self.Y, self.S))
        modules = copy.deepcopy([self.kernel, self.mean, self.likelihood])
        other.kernel, other.mean, other.likelihood = (m.double() for m in modules)
        other.parameters = [p for module in modules for p in module.parameters()]
        return other

    def low_rank(self, folds: bool, **kwargs: Any) -> NystromPrior:
        rows = RepeatedRows.find(self.X) if folds else None
        return nystrom_prior(self.kernel, self.mean, self.S, self.X, rows, **kwargs)

    def dense_objective(self, collapsed: bool) -> Tensor:
        K = self.kernel(self.X).to_dense()
        K_SX = self.kernel(self.S, self.X).to_dense()
        K_SS = self.kernel(self.S).to_dense()
        Q = K_SX.T @ torch.linalg.solve(K_SS, K_SX)
        d = self.likelihood.noise.expand(len(self.X))
        A, e = Q + d.diag(), self.Y - self.mean(self.X)
        quad = e @ torch.linalg.solve(A, e)
        value = -0.5 * (quad + A.logdet() + len(e) * math.log(2 * math.pi))
        return value - 0.5 * ((K - Q).diagonal() / d).sum() * collapsed


KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "matern": lambda: ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("folds", [True, False])
@pytest.mark.parametrize("fixed_noise", [True, False])
def test_value_and_gradient_are_dense(
    kernel: str,
    collapsed: bool,
    folds: bool,
    fixed_noise: bool,
    double: dict[str, Any],
) -> None:
    problem = Problem(KERNELS[kernel](), fixed_noise, **double)
    prior = problem.low_rank(folds, with_residual=collapsed)
    value = problem.likelihood(prior).log_prob(problem.Y)
    expected = problem.dense_objective(collapsed)
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        torch.autograd.grad(value, problem.parameters),
        torch.autograd.grad(expected, problem.parameters),
        rtol=1e-8,
        atol=1e-8,
    )


@pytest.mark.parametrize("folds", [True, False])
def test_moments_of_the_prior(folds: bool, double: dict[str, Any]) -> None:
    problem = Problem(KERNELS["rbf"](), False, **double)
    prior = problem.low_rank(folds)
    K_SX = problem.kernel(problem.S, problem.X).to_dense()
    Q = K_SX.T @ torch.linalg.solve(problem.kernel(problem.S).to_dense(), K_SX)
    torch.testing.assert_close(prior.covariance_matrix, Q, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(prior.variance, Q.diagonal(), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(prior.mean, problem.mean(problem.X))


@pytest.mark.parametrize("folds", [True, False])
@pytest.mark.parametrize("fixed_noise", [True, False])
def test_float32_data_lose_nothing_to_the_kernel(
    folds: bool, fixed_noise: bool, device: torch.device
) -> None:
    """Only mean and noise are rounded to float32, in which `K_SS` is singular."""
    single = Problem(KERNELS["rbf"](), fixed_noise, torch.float32, device)
    single.kernel.base_kernel.lengthscale = 2.0
    exact = single.double()
    value = single.likelihood(single.low_rank(folds)).log_prob(single.Y)
    expected = exact.dense_objective(True)
    assert value.dtype == torch.float32
    # Each of the n terms e_i^2 / d_i, log d_i and so on is known to a few ulp.
    d = exact.likelihood.noise.detach().expand_as(exact.Y)
    terms = 1 + (exact.Y - exact.mean(exact.X)).detach().square() / d
    size = 4 * torch.finfo(torch.float32).eps * terms.sum().item()
    torch.testing.assert_close(value.double(), expected, rtol=0.0, atol=size)
    gradients = torch.autograd.grad(value, single.parameters)
    torch.testing.assert_close(
        [gradient.double() for gradient in gradients],
        list(torch.autograd.grad(expected, exact.parameters)),
        rtol=0.0,
        atol=size / d.min().item(),
    )


def test_what_is_no_objective_is_refused(double: dict[str, Any]) -> None:
    """A dense likelihood of n points is not what anyone asks of this prior."""
    problem = Problem(KERNELS["rbf"](), False, **double)
    prior = problem.low_rank(True)
    noisy = problem.likelihood(prior)
    with pytest.raises(UnsupportedError, match="NystromPriorLinearOperator"):
        prior.log_prob(problem.Y)
    with pytest.raises(UnsupportedError, match="do not scale or slice"):
        (noisy * 2.0).log_prob(problem.Y)
    with pytest.raises(UnsupportedError, match="do not scale or slice"):
        noisy[:5].log_prob(problem.Y[:5])


@pytest.mark.parametrize("folds", [True, False])
def test_the_prior_is_a_gaussian_like_others(
    folds: bool, double: dict[str, Any]
) -> None:
    """Parts of it, samples, and the gradient of its moments."""
    problem = Problem(KERNELS["matern"](), False, **double)
    prior = problem.low_rank(folds)
    K_SX = problem.kernel(problem.S, problem.X).to_dense()
    Q = K_SX.T @ torch.linalg.solve(problem.kernel(problem.S).to_dense(), K_SX)
    torch.testing.assert_close(prior[3:9].covariance_matrix, Q[3:9, 3:9])
    torch.testing.assert_close((prior * 2.0).covariance_matrix, 4.0 * Q)
    batch = prior.expand(torch.Size([2])).lazy_covariance_matrix
    torch.testing.assert_close(batch.to_dense(), Q.expand(2, *Q.shape))
    assert prior.rsample(torch.Size([4])).shape == (4, len(problem.X))
    noisy = problem.likelihood(prior)
    torch.testing.assert_close(noisy.variance, Q.diagonal() + problem.likelihood.noise)
    weights = torch.linspace(0.0, 1.0, len(Q), **double)
    kernel = list(problem.kernel.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(weights @ prior.variance, kernel),
        torch.autograd.grad(weights @ Q.diagonal(), kernel),
    )


@pytest.mark.parametrize("folds", [True, False])
def test_hyperparameters_from_another_computation(
    folds: bool, double: dict[str, Any]
) -> None:
    """Such a kernel's gradient goes through the features at hand."""
    problem = Problem(KERNELS["rbf"](), True, **double)
    log_scale = torch.tensor(0.2, requires_grad=True, **double)
    kernel = problem.kernel
    del kernel._parameters["raw_outputscale"]
    kernel.raw_outputscale = log_scale.exp()
    value = problem.likelihood(problem.low_rank(folds)).log_prob(problem.Y)
    expected = problem.dense_objective(True)
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        torch.autograd.grad(value, log_scale, retain_graph=True),
        torch.autograd.grad(expected, log_scale),
        rtol=1e-8,
        atol=1e-8,
    )


def test_no_square_factorization(
    double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(KERNELS["rbf"](), False, **double)
    sizes = []
    cholesky = torch.linalg.cholesky_ex

    def record(A: Tensor, *args: Any, **kwargs: Any) -> Any:
        sizes.append(A.shape[-1])
        return cholesky(A, *args, **kwargs)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", record)
    problem.likelihood(problem.low_rank(True)).log_prob(problem.Y).backward()
    assert sizes and max(sizes) == len(problem.S)


def test_kernels_of_categories_form_no_square(double: dict[str, Any]) -> None:
    """BoTorch's kernel of categories takes a diagonal from the matrix."""
    n, m, d = 300, 20, 5
    X = torch.rand(n, d, generator=torch.Generator().manual_seed(0)).to(**double)
    X[:, 3:] = (4 * X[:, 3:]).floor()
    mixed = MixedSingleTaskGP(X, X[:, :1], cat_dims=[3, 4])
    prior = nystrom_prior(mixed.covar_module, mixed.mean_module, X[:m], X)
    with ForbidLarge(n * m * d):
        value = mixed.likelihood(prior).log_prob(X[:, 0])
        value.backward()
    lengthscale = mixed.covar_module.kernels[0].base_kernel.kernels[0].raw_lengthscale
    assert lengthscale.grad.abs().max() > 0
