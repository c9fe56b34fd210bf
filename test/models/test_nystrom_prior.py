"""The low-rank objective against dense Gaussians."""

import copy
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models import MixedSingleTaskGP
from forbid_large import ForbidLarge
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sparse_model_cases import dense_objective, dense_prior, make_model
from torch import Tensor

from botorch_sparse.models import NystromPrior, SparseSingleTaskGP
from botorch_sparse.models.nystrom_prior import nystrom_prior

close = torch.testing.assert_close
KERNELS = {"rbf": RBFKernel, "matern": MaternKernel}
folds = pytest.mark.parametrize("repeats", [0, 5])


def make(
    repeats: int, kernel: str = "rbf", fixed_noise: bool = False, **tkwargs: Any
) -> SparseSingleTaskGP:
    """A model in train mode whose kernel has an output scale."""
    covar_module = ScaleKernel(KERNELS[kernel](ard_num_dims=2)).to(**tkwargs)
    covar_module.outputscale = 1.7
    options = {"covar_module": covar_module}
    model = make_model(
        (), 1, fixed_noise, n=25, m=8, repeats=repeats, options=options, **tkwargs
    )
    model.mean_module.initialize(constant=0.3)
    return model.train()


def objective(model: SparseSingleTaskGP) -> Tensor:
    prior = model(*model.train_inputs)
    return model.likelihood(prior).log_prob(model.train_targets)


@folds
@pytest.mark.parametrize("fixed_noise", [True, False])
@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_float32_data_lose_nothing_to_the_kernel(repeats, fixed_noise, device):
    """Only mean and noise are rounded to float32, in which `K_SS` is singular."""
    model = make(repeats, "rbf", fixed_noise, dtype=torch.float32, device=device)
    model.covar_module.base_kernel.lengthscale = 2.0
    exact = copy.deepcopy(model).double()
    value, expected = objective(model), dense_objective(exact)
    assert value.dtype == torch.float32
    # Each of the n terms e_i^2 / d_i, log d_i and so on is known to a few ulp.
    y = exact.train_targets
    d = exact.likelihood.noise.detach().expand_as(y)
    terms = 1 + (y - exact.mean_module.constant).detach().square() / d
    size = 4 * torch.finfo(torch.float32).eps * terms.sum().item()
    close(value.double(), expected, rtol=0.0, atol=size)
    gradients = torch.autograd.grad(value, list(model.parameters()))
    close(
        [gradient.double() for gradient in gradients],
        list(torch.autograd.grad(expected, list(exact.parameters()))),
        rtol=0.0,
        atol=size / d.min().item(),
    )


def test_what_is_no_objective_is_refused(double):
    """A dense likelihood of n points is not what anyone asks of this prior."""
    model = make(5, **double)
    prior, y = model(*model.train_inputs), model.train_targets
    noisy = model.likelihood(prior)
    with pytest.raises(UnsupportedError, match="NystromPriorLinearOperator"):
        prior.log_prob(y)
    for part, values in ((noisy * 2.0, y), (noisy[:5], y[:5])):
        with pytest.raises(UnsupportedError, match="do not scale or slice"):
            part.log_prob(values)


@folds
def test_the_prior_is_a_gaussian_like_others(repeats, double):
    """Its moments, parts of it, samples, and the gradient of its moments."""
    model = make(repeats, "matern", **double)
    prior, (mean, Q, _) = model(*model.train_inputs), dense_prior(model)
    close(prior.mean, mean)
    close(prior.covariance_matrix, Q)
    close(prior.variance, Q.diagonal())
    close(prior[3:9].covariance_matrix, Q[3:9, 3:9])
    close((prior * 2.0).covariance_matrix, 4.0 * Q)
    batch = prior.expand(torch.Size([2])).lazy_covariance_matrix
    close(batch.to_dense(), Q.expand(2, *Q.shape))
    assert prior.rsample(torch.Size([4])).shape == (4, 25)
    noisy = model.likelihood(prior)
    close(noisy.variance, Q.diagonal() + model.likelihood.noise)
    weights = torch.linspace(0.0, 1.0, len(Q), **double)
    kernel = list(model.covar_module.parameters())
    close(
        torch.autograd.grad(weights @ prior.variance, kernel),
        torch.autograd.grad(weights @ Q.diagonal(), kernel),
    )


def test_kernels_of_categories_form_no_square(double):
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


@pytest.mark.parametrize(
    "given", [(None,), (RBFKernel(),), (torch.zeros(3), RBFKernel()), ([0.0], [[1.0]])]
)
def test_what_is_no_mean_and_covariance(given):
    """Such as the kernel of a prior, which a model takes."""
    with pytest.raises(InputDataError, match=r"need `n` numbers.*covar_module=kernel"):
        NystromPrior(*given)
    assert NystromPrior(torch.zeros(3), torch.eye(3)).event_shape == (3,)
