"""What BoTorch and GPyTorch promise of `SingleTaskGP`, of the models that replace it.

A model that uses all data equals `SingleTaskGP`; with few inducing points, or on some
of the rows, the shapes, types and state are the same.
"""

import itertools
import math
import unittest
from typing import Any

import pytest
import torch
from botorch.cross_validation import batch_cross_validation, gen_loo_cv_folds
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.test_helpers import get_pvar_expected
from botorch.utils.testing import get_random_data
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from gpytorch.test.model_test_case import BaseModelTestCase as _BaseModelTestCase
from torch import Tensor

from botorch_sparse.models import (
    SparseFantasyModel,
    SparseSingleTaskGP,
    SubsetSingleTaskGP,
)

close = torch.testing.assert_close
ONCE = {"options": {"maxiter": 1}}

pytestmark = pytest.mark.filterwarnings("ignore")


def made(
    kind: str, X: Tensor, Y: Tensor, Yvar: Tensor | None = None, **options: Any
) -> SingleTaskGP:
    """The model of a kind, of any data."""
    if kind == "sparse":
        options["inducing_points"] = X[..., ::2, :]
    if kind == "subset":
        options.update(subset_size=6, num_initial=2)
    is_sparse = kind in ("exact", "sparse")
    model_class = SparseSingleTaskGP if is_sparse else SubsetSingleTaskGP
    return model_class(X, Y, Yvar, **options)


def models_of(
    kind: str,
    batch: tuple[int, ...],
    m: int,
    fixed_noise: bool,
    transforms: bool = False,
    **tkwargs: Any,
) -> tuple[SingleTaskGP, SingleTaskGP]:
    """The model of a kind, and `SingleTaskGP`."""
    torch.manual_seed(3)
    X, Y = get_random_data(batch_shape=torch.Size(batch), m=m, **tkwargs)
    Yvar = torch.full_like(Y, 0.01) if fixed_noise else None
    bounds = torch.tensor([[-1.0], [1.0]], **tkwargs)
    options: list[dict[str, Any]] = [
        {"input_transform": Normalize(1, bounds=bounds)}  # outcomes are standardized
        if transforms
        else {"outcome_transform": None}
        for _ in range(2)
    ]
    return made(kind, X, Y, Yvar, **options[0]), SingleTaskGP(X, Y, Yvar, **options[1])


BATCH = torch.Size([3])

every_kind = pytest.mark.parametrize("kind", ["all rows", "subset", "exact", "sparse"])
both_regimes = pytest.mark.parametrize("kind", ["exact", "sparse"])
shapes = [(b, m) for b in [(), (2,), (2, 3)] for m in (1, 2)]
all_shapes = pytest.mark.parametrize(("batch", "m"), shapes)
few_shapes = pytest.mark.parametrize(("batch", "m"), shapes[:4])
all_noises = pytest.mark.parametrize("fixed_noise", [False, True])


@pytest.mark.one_in(15)
@every_kind
@all_shapes
@all_noises
@pytest.mark.parametrize("transforms", [False, True])
def test_fit_and_posterior(kind, batch, m, fixed_noise, transforms, tkwargs):
    models = models_of(kind, batch, m, fixed_noise, transforms, **tkwargs)
    model, exact = models
    for each in models:
        mll = ExactMarginalLogLikelihood(each.likelihood, each).to(**tkwargs)
        fit_gpytorch_mll(mll, optimizer_kwargs=ONCE, max_attempts=1)
    assert isinstance(model.mean_module, ConstantMean)
    assert type(model.covar_module) is RBFKernel
    assert isinstance(model.covar_module.lengthscale_prior, LogNormalPrior)
    assert [*model.state_dict()] == [*exact.state_dict()]
    for parameter in model.parameters():
        assert parameter.numel() == m * math.prod(batch)
    assert (model.batch_shape, model.num_outputs) == (torch.Size(batch), m)
    if isinstance(model, SparseSingleTaskGP):
        assert model.is_exact == (kind == "exact")
    for shape in ((*batch, 3, 1), (2, *batch, 3, 1), (3, 1), (1, 3, 1)):
        X = torch.rand(*shape, **tkwargs)
        ours, theirs = model.posterior(X), exact.posterior(X)
        noisy = model.posterior(X, observation_noise=True)
        expected = get_pvar_expected(posterior=ours, model=model, X=X, m=m)
        assert isinstance(ours, GPyTorchPosterior)
        assert ours.mean.shape == theirs.mean.shape == ours.variance.shape
        assert type(ours.distribution) is type(theirs.distribution)
        close(noisy.variance, expected, rtol=1e-4, atol=1e-5)
        if kind in ("exact", "all rows"):
            close(ours.mean, theirs.mean, rtol=1e-3, atol=1e-3)
            close(ours.variance, theirs.variance, rtol=1e-3, atol=1e-3)
    given = torch.rand(*batch, 3, m, **tkwargs)
    X = torch.rand(*batch, 3, 1, **tkwargs)
    noisy = model.posterior(X, observation_noise=given).variance
    if transforms:
        given = model.outcome_transform.untransform(given, given)[1]
    close(noisy, model.posterior(X).variance + given, rtol=1e-4, atol=1e-5)


@pytest.mark.one_in(5)
@both_regimes
@all_noises
@few_shapes
@pytest.mark.parametrize("transforms", [False, True])
def test_condition_on_observations(kind, fixed_noise, batch, m, transforms, tkwargs):
    """Different and shared inputs, and an element of a batch as a model of its own."""
    models = models_of(kind, batch, m, fixed_noise, transforms, **tkwargs)
    for each in models:
        each.posterior(torch.rand(4, 1, **tkwargs))
    X, Y = get_random_data(batch_shape=torch.Size((2, *batch)), m=m, n=3, **tkwargs)
    for inputs, shape in ((X, Y), (X[0], Y[0])):
        noise = {"noise": torch.full_like(shape, 0.01)} if fixed_noise else {}
        ours, theirs = (c.condition_on_observations(inputs, Y, **noise) for c in models)
        is_sparse = kind == "sparse"
        assert type(ours) is (SparseFantasyModel if is_sparse else SparseSingleTaskGP)
        assert ours.batch_shape == theirs.batch_shape
        for test_shape in ((4, 1), (*batch, 4, 1), (2, *batch, 4, 1)):
            test_X = torch.rand(*test_shape, **tkwargs)
            mean, expected = ours.posterior(test_X).mean, theirs.posterior(test_X).mean
            assert mean.shape == expected.shape == (2, *batch, 4, m)
            if kind == "exact":
                close(mean, expected, rtol=1e-3, atol=1e-3)
        if fixed_noise:
            assert ours.likelihood.noise.shape == theirs.likelihood.noise.shape
        assert ours.train_inputs[0].shape == theirs.train_inputs[0].shape
        assert ours.train_targets.shape == theirs.train_targets.shape


@both_regimes
@few_shapes
def test_fantasized_noise(kind, batch, m, tkwargs):
    model, _ = models_of(kind, batch, m, True, **tkwargs)
    X = torch.rand(*batch, 4, 1, **tkwargs)
    sampler = SobolQMCNormalSampler(torch.Size([3]))

    def by_output(noise: Tensor) -> Tensor:
        return noise.unsqueeze(-1) if m == 1 else noise.mT

    for given in (None, (*batch, 4, m), (*batch, 1, m)):
        noise = None if given is None else torch.full(given, 0.1, **tkwargs)
        fantasies = model.fantasize(X, sampler, observation_noise=noise)
        new = by_output(fantasies.likelihood.noise)[..., -4:, :]
        if noise is None:
            noise = by_output(model.likelihood.noise).mean(dim=-2, keepdim=True)
        assert (new == noise).all()


def test_custom_modules(tkwargs):
    """Modules without a batch shape serve all outputs and elements."""
    for batch, m in itertools.product([(), (2,)], [1, 2]):
        X, Y = get_random_data(batch_shape=torch.Size(batch), m=m, **tkwargs)
        modules = {
            "mean_module": ZeroMean(),
            "covar_module": RBFKernel(),
            "likelihood": GaussianLikelihood(),
        }
        for points in ({}, {"inducing_points": X[..., ::2, :]}):
            model = SparseSingleTaskGP(X, Y, **modules, **points)
            assert all(getattr(model, k) is v for k, v in modules.items())
            assert model.posterior(X).mean.shape == Y.shape
            conditioned = model.condition_on_observations(X[..., :2, :], Y[..., :2, :])
            assert conditioned.posterior(X).mean.shape == Y.shape


@all_noises
@pytest.mark.parametrize(("batch", "m"), [((), 1), ((), 2), ((2,), 2)])
def test_batch_cross_validation(fixed_noise, batch, m, double):
    """One model of `n` training sets of `n - 1` points."""
    torch.manual_seed(1)
    X, Y = get_random_data(batch_shape=torch.Size(batch), m=m, n=10, **double)
    Yvar = torch.full_like(Y, 0.01) if fixed_noise else None
    folds = gen_loo_cv_folds(X, Y, Yvar)
    options = {"fit_args": {"optimizer_kwargs": ONCE}}
    ours, theirs, subset = (
        batch_cross_validation(cls, ExactMarginalLogLikelihood, folds, **options, **kw)
        for cls, kw in (
            (SparseSingleTaskGP, {}),
            (SingleTaskGP, {}),
            (SubsetSingleTaskGP, {"model_init_kwargs": {"subset_size": 8}}),
        )
    )
    for result in (ours, subset):
        assert result.posterior.mean.shape == (*batch, 10, 1, m)
    assert ours.observed_Y.shape == (*batch, 10, 1, m)
    close(ours.posterior.mean, theirs.posterior.mean, rtol=1e-5, atol=1e-5)


class _GPyTorchModelCase(_BaseModelTestCase):
    """GPyTorch's own cases for models with one output."""

    kind: str

    def create_model(self, train_x: Tensor, train_y: Tensor, likelihood: Any) -> Any:
        return made(self.kind, train_x, train_y.unsqueeze(-1), likelihood=likelihood)

    def create_test_data(self) -> Tensor:
        return torch.rand(20, 1, dtype=torch.float64)

    def create_likelihood_and_labels(self) -> tuple[Any, Tensor]:
        return GaussianLikelihood(), torch.randn(20, dtype=torch.float64)

    def create_batch_test_data(self, batch_shape: torch.Size = BATCH) -> Tensor:
        return torch.rand(*batch_shape, 20, 1, dtype=torch.float64)

    def create_batch_likelihood_and_labels(
        self, batch_shape: torch.Size = BATCH
    ) -> tuple[Any, Tensor]:
        labels = torch.randn(*batch_shape, 20, dtype=torch.float64)
        return GaussianLikelihood(batch_shape=batch_shape), labels


class TestExactModelCase(_GPyTorchModelCase, unittest.TestCase):
    kind = "exact"


class TestSparseModelCase(_GPyTorchModelCase, unittest.TestCase):
    kind = "sparse"


class TestAllRowsModelCase(_GPyTorchModelCase, unittest.TestCase):
    kind = "all rows"


class TestSubsetModelCase(_GPyTorchModelCase, unittest.TestCase):
    kind = "subset"

    def test_forward_train(self, batch_shape=()):
        """On the rows in use, which are fewer than GPyTorch expects."""
        x = self.create_batch_test_data(torch.Size(batch_shape))
        model = self.create_model(x, x.squeeze(-1), GaussianLikelihood()).train()
        output = model(*model.train_inputs)
        assert output.mean.shape == (*batch_shape, 6)
        assert output.log_prob(model.train_targets).isfinite().all()

    def test_batch_forward_train(self):
        self.test_forward_train((3,))

    def test_multi_batch_forward_train(self):
        self.test_forward_train((2, 3))
