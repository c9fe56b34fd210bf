"""What BoTorch promises of `SingleTaskGP`, in both regimes of the sparse model.

With few data the model is exact, and everything equals `SingleTaskGP`; with fewer
inducing points than data the shapes, types and state are the same.
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
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.models.transforms.input import InputStandardize
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.test_helpers import get_pvar_expected
from botorch.utils.testing import get_random_data
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from gpytorch.test.model_test_case import BaseModelTestCase as _BaseModelTestCase
from torch import Tensor

from botorch_sparse.models import SparseFantasyModel, SparseSingleTaskGP

close = torch.testing.assert_close
ONCE = {"options": {"maxiter": 1}}

pytestmark = pytest.mark.filterwarnings("ignore")


class Case:
    """Data, and the two models of them."""

    def __init__(
        self,
        batch: tuple[int, ...],
        m: int,
        fixed_noise: bool,
        sparse: bool,
        transforms: bool = False,
        **tkwargs: Any,
    ) -> None:
        torch.manual_seed(3)
        X, Y = get_random_data(batch_shape=torch.Size(batch), m=m, **tkwargs)
        bounds = torch.tensor([[-1.0], [1.0]], **tkwargs)
        self.data = {
            "train_X": X,
            "train_Y": Y,
            "train_Yvar": torch.full_like(Y, 0.01) if fixed_noise else None,
        }
        self.options = [
            {
                "outcome_transform": Standardize(m, batch_shape=torch.Size(batch)),
                "input_transform": Normalize(1, bounds=bounds),
            }
            if transforms
            else {"outcome_transform": None}
            for _ in range(2)
        ]
        points = {"inducing_points": X[..., ::2, :]} if sparse else {}
        self.model = SparseSingleTaskGP(**self.data, **self.options[0], **points)
        self.exact = SingleTaskGP(**self.data, **self.options[1])


BATCH = torch.Size([3])

both_regimes = pytest.mark.parametrize("sparse", [False, True])
all_shapes = pytest.mark.parametrize(
    ("batch", "m"), [(b, m) for b in [(), (2,), (2, 3)] for m in (1, 2)]
)
all_noises = pytest.mark.parametrize("fixed_noise", [False, True])


@both_regimes
@all_shapes
@all_noises
@pytest.mark.parametrize("transforms", [False, True])
def test_fit_and_posterior(
    sparse: bool,
    batch: tuple[int, ...],
    m: int,
    fixed_noise: bool,
    transforms: bool,
    tkwargs: dict[str, Any],
) -> None:
    case = Case(batch, m, fixed_noise, sparse, transforms, **tkwargs)
    model = case.model
    for each in (model, case.exact):
        mll = ExactMarginalLogLikelihood(each.likelihood, each).to(**tkwargs)
        fit_gpytorch_mll(mll, optimizer_kwargs=ONCE, max_attempts=1)
    assert isinstance(model.mean_module, ConstantMean)
    assert type(model.covar_module) is RBFKernel
    assert isinstance(model.covar_module.lengthscale_prior, LogNormalPrior)
    assert [*model.state_dict()] == [*case.exact.state_dict()]
    for parameter in model.parameters():
        assert parameter.numel() == m * math.prod(batch)
    assert model.is_exact == (not sparse)
    for shape in ((*batch, 3, 1), (2, *batch, 3, 1), (3, 1), (1, 3, 1)):
        X = torch.rand(*shape, **tkwargs)
        ours, theirs = model.posterior(X), case.exact.posterior(X)
        noisy = model.posterior(X, observation_noise=True)
        expected = get_pvar_expected(posterior=ours, model=model, X=X, m=m)
        assert isinstance(ours, GPyTorchPosterior)
        assert ours.mean.shape == theirs.mean.shape == ours.variance.shape
        assert type(ours.distribution) is type(theirs.distribution)
        close(noisy.variance, expected, rtol=1e-4, atol=1e-5)
        if not sparse:
            close(ours.mean, theirs.mean, rtol=1e-3, atol=1e-3)
            close(ours.variance, theirs.variance, rtol=1e-3, atol=1e-3)
    given = torch.rand(*batch, 3, m, **tkwargs)
    X = torch.rand(*batch, 3, 1, **tkwargs)
    noisy = model.posterior(X, observation_noise=given).variance
    if transforms:
        given = model.outcome_transform.untransform(given, given)[1]
    close(noisy, model.posterior(X).variance + given, rtol=1e-4, atol=1e-5)


@both_regimes
@all_noises
@pytest.mark.parametrize(("batch", "m"), [((), 1), ((), 2), ((2,), 1), ((2,), 2)])
@pytest.mark.parametrize("transforms", [False, True])
def test_condition_on_observations(
    sparse: bool,
    fixed_noise: bool,
    batch: tuple[int, ...],
    m: int,
    transforms: bool,
    tkwargs: dict[str, Any],
) -> None:
    """Different and shared inputs, and an element of a batch as a model of its own."""
    case = Case(batch, m, fixed_noise, sparse, transforms, **tkwargs)
    models = (case.model, case.exact)
    for each in models:
        each.posterior(torch.rand(4, 1, **tkwargs))
    X, Y = get_random_data(batch_shape=torch.Size((2, *batch)), m=m, n=3, **tkwargs)
    for inputs, shape in ((X, Y), (X[0], Y[0])):
        noise = {"noise": torch.full_like(shape, 0.01)} if fixed_noise else {}
        ours, theirs = (c.condition_on_observations(inputs, Y, **noise) for c in models)
        assert type(ours) is (SparseFantasyModel if sparse else SparseSingleTaskGP)
        assert ours.batch_shape == theirs.batch_shape
        for test_shape in ((4, 1), (*batch, 4, 1), (2, *batch, 4, 1)):
            test_X = torch.rand(*test_shape, **tkwargs)
            mean, expected = ours.posterior(test_X).mean, theirs.posterior(test_X).mean
            assert mean.shape == expected.shape == (2, *batch, 4, m)
            if not sparse:
                close(mean, expected, rtol=1e-3, atol=1e-3)
        if fixed_noise:
            assert ours.likelihood.noise.shape == theirs.likelihood.noise.shape
        assert ours.train_inputs[0].shape == theirs.train_inputs[0].shape
        assert ours.train_targets.shape == theirs.train_targets.shape


@both_regimes
@pytest.mark.parametrize(("batch", "m"), [((), 1), ((), 2), ((2,), 1), ((2,), 2)])
def test_fantasized_noise(
    sparse: bool, batch: tuple[int, ...], m: int, tkwargs: dict[str, Any]
) -> None:
    model = Case(batch, m, True, sparse, **tkwargs).model
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


@both_regimes
def test_fantasies_apply_the_input_transform(
    sparse: bool, tkwargs: dict[str, Any]
) -> None:
    case = Case((), 1, False, sparse, transforms=True, **tkwargs)
    X = torch.rand(4, 1, **tkwargs)
    fantasies = case.model.fantasize(X, SobolQMCNormalSampler(torch.Size([3])))
    seen = case.model.input_transform(X).expand(3, -1, -1)
    close(fantasies.train_inputs[0][:, -4:], seen)


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_outcome_transforms(
    batch: tuple[int, ...], m: int, tkwargs: dict[str, Any]
) -> None:
    X, Y = get_random_data(batch_shape=torch.Size(batch), m=m, **tkwargs)
    default = SparseSingleTaskGP(X, Y)
    assert isinstance(default.outcome_transform, Standardize)
    assert default.outcome_transform._batch_shape == torch.Size(batch)
    none = SparseSingleTaskGP(X, Y, outcome_transform=None)
    assert not hasattr(none, "outcome_transform")
    assert not hasattr(none, "input_transform")
    log = SparseSingleTaskGP(X, Y.abs() + 1, outcome_transform=Log())
    assert (log.posterior(X).rsample(torch.Size([5])) > 0).all()


def test_custom_modules(tkwargs: dict[str, Any]) -> None:
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


def test_construct_inputs_and_likelihood(tkwargs: dict[str, Any]) -> None:
    X, Y = get_random_data(batch_shape=torch.Size(), m=1, **tkwargs)
    names = {"feature_names": ["x0"], "outcome_names": ["y"]}
    data = SupervisedDataset(X, Y, Yvar=torch.full_like(Y, 0.01), **names)
    inputs = SparseSingleTaskGP.construct_inputs(data, inducing_points=X[:4])
    model = SparseSingleTaskGP(**inputs)
    assert isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
    assert torch.equal(model.inducing_points, X[:4])


@pytest.mark.parametrize("transform", [Normalize, InputStandardize])
def test_fit_leaves_inputs_alone(transform: Any, tkwargs: dict[str, Any]) -> None:
    X = torch.rand(5, 2, **tkwargs)
    model = SparseSingleTaskGP(X, X**2, input_transform=transform(d=2))
    fit_gpytorch_mll(
        ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs=ONCE
    )
    assert model.input_transform(X).shape == X.shape
    close(model.train_inputs[0][0], model.input_transform(X))


@all_noises
@pytest.mark.parametrize(("batch", "m"), [((), 1), ((), 2), ((2,), 2)])
def test_batch_cross_validation(
    fixed_noise: bool, batch: tuple[int, ...], m: int, double: dict[str, Any]
) -> None:
    """One model of `n` training sets of `n - 1` points."""
    torch.manual_seed(1)
    X, Y = get_random_data(batch_shape=torch.Size(batch), m=m, n=10, **double)
    Yvar = torch.full_like(Y, 0.01) if fixed_noise else None
    results = [
        batch_cross_validation(
            model_cls,
            ExactMarginalLogLikelihood,
            gen_loo_cv_folds(X, Y, Yvar),
            fit_args={"optimizer_kwargs": ONCE},
        )
        for model_cls in (SparseSingleTaskGP, SingleTaskGP)
    ]
    assert results[0].posterior.mean.shape == (*batch, 10, 1, m)
    assert results[0].observed_Y.shape == (*batch, 10, 1, m)
    close(results[0].posterior.mean, results[1].posterior.mean, rtol=1e-5, atol=1e-5)


class _GPyTorchModelCase(_BaseModelTestCase):
    """GPyTorch's own cases for models with one output."""

    sparse: bool

    def create_model(self, train_x: Tensor, train_y: Tensor, likelihood: Any) -> Any:
        points = {"inducing_points": train_x[..., ::4, :]} if self.sparse else {}
        return SparseSingleTaskGP(
            train_x, train_y.unsqueeze(-1), likelihood=likelihood, **points
        )

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
    sparse = False


class TestSparseModelCase(_GPyTorchModelCase, unittest.TestCase):
    sparse = True
