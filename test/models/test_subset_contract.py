"""What GPyTorch and BoTorch promise of `SingleTaskGP`, of the subset model too."""

import math
import unittest
from typing import Any

import pytest
import torch
from botorch.cross_validation import batch_cross_validation, gen_loo_cv_folds
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.test_helpers import get_pvar_expected
from botorch.utils.testing import get_random_data
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from gpytorch.test.model_test_case import BaseModelTestCase as _BaseModelTestCase
from torch import Tensor

from botorch_sparse.models import SubsetSingleTaskGP

close = torch.testing.assert_close
pytestmark = pytest.mark.filterwarnings("ignore")

ONCE = {"options": {"maxiter": 1}}
THREE = torch.Size([3])


@pytest.mark.parametrize("size", [None, 6])
@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize(
    ("batch", "m"), [(b, m) for b in [(), (2,), (2, 3)] for m in (1, 2)]
)
def test_modules_fit_and_posterior(
    batch: tuple[int, ...],
    m: int,
    fixed_noise: bool,
    size: int | None,
    double: dict[str, Any],
) -> None:
    torch.manual_seed(3)
    shape = torch.Size(batch)
    X, Y = get_random_data(batch_shape=shape, m=m, **double)
    Yvar = torch.full_like(Y, 0.01) if fixed_noise else None
    model = SubsetSingleTaskGP(X, Y, Yvar, subset_size=size)
    exact = SingleTaskGP(X, Y, Yvar)
    assert isinstance(model.mean_module, ConstantMean)
    assert isinstance(model.covar_module, RBFKernel)
    assert isinstance(model.covar_module.lengthscale_prior, LogNormalPrior)
    names = dict(exact.named_parameters())
    assert {k: p.shape for k, p in model.named_parameters()} == {
        k: p.shape for k, p in names.items()
    }
    assert model.state_dict().keys() == exact.state_dict().keys()
    assert (model.batch_shape, model.num_outputs) == (shape, m)
    for each in (model, exact):
        mll = ExactMarginalLogLikelihood(each.likelihood, each)
        fit_gpytorch_mll(mll, optimizer_kwargs=ONCE, max_attempts=1)
    T = torch.rand(*batch, 3, 1, **double)
    posterior, expected = model.posterior(T), exact.posterior(T)
    assert isinstance(posterior, GPyTorchPosterior)
    assert posterior.mean.shape == posterior.variance.shape == (*batch, 3, m)
    if size is None:
        close(posterior.mean, expected.mean)
        close(posterior.variance, expected.variance)
    noisy = model.posterior(T, observation_noise=True)
    close(noisy.variance, get_pvar_expected(posterior, model, T, m))


def test_cross_validation_and_model_lists(double: dict[str, Any]) -> None:
    X, Y = get_random_data(batch_shape=torch.Size(), m=1, n=12, **double)
    folds = gen_loo_cv_folds(train_X=X, train_Y=Y)
    result = batch_cross_validation(
        model_cls=SubsetSingleTaskGP,
        mll_cls=ExactMarginalLogLikelihood,
        cv_folds=folds,
        fit_args={"optimizer_kwargs": ONCE},
        model_init_kwargs={"subset_size": 8},
    )
    assert result.posterior.mean.shape == (12, 1, 1)
    models = ModelListGP(
        SubsetSingleTaskGP(X, Y, subset_size=5), SubsetSingleTaskGP(X[:8], Y[:8])
    )
    assert models.posterior(X).mean.shape == (12, 2)


class TestSubsetModelCase(_BaseModelTestCase, unittest.TestCase):
    """GPyTorch's own cases, at their sizes."""

    subset_size: int | None = 20

    def create_model(self, train_x: Tensor, train_y: Tensor, likelihood: Any) -> Any:
        return SubsetSingleTaskGP(
            train_x,
            train_y.unsqueeze(-1),
            likelihood=likelihood,
            subset_size=self.subset_size,
            num_initial=2,
        )

    def create_test_data(self) -> Tensor:
        return torch.randn(50, 1)

    def create_likelihood_and_labels(self) -> tuple[GaussianLikelihood, Tensor]:
        torch.manual_seed(0)
        return GaussianLikelihood(), torch.randn(50) + 2

    def create_batch_test_data(self, batch_shape: Any = THREE) -> Tensor:
        return torch.randn(*batch_shape, 50, 1)

    def create_batch_likelihood_and_labels(
        self, batch_shape: Any = THREE
    ) -> tuple[GaussianLikelihood, Tensor]:
        torch.manual_seed(0)
        labels = torch.randn(*batch_shape, 50) + 2
        return GaussianLikelihood(batch_shape=batch_shape), labels

    def test_forward_train(self) -> None:
        x, (likelihood, y) = (
            self.create_test_data(),
            self.create_likelihood_and_labels(),
        )
        model = self.create_model(x, y, likelihood).train()
        output = model(*model.train_inputs)
        assert output.mean.shape == (20,)
        assert math.isfinite(output.log_prob(model.train_targets).item())

    test_batch_forward_train = test_forward_train
    test_multi_batch_forward_train = test_forward_train


class TestAllDataModelCase(TestSubsetModelCase):
    """The same with all data."""

    subset_size = None
    test_forward_train = _BaseModelTestCase.test_forward_train
    test_batch_forward_train = _BaseModelTestCase.test_batch_forward_train
    test_multi_batch_forward_train = _BaseModelTestCase.test_multi_batch_forward_train


del _BaseModelTestCase
