"""Cases of BoTorch's own suite in which `SingleTaskGP` was replaced, written anew.

The source distribution of BoTorch holds no tests. Those whose names are in the
docstrings failed there for a sparse model. What is left is named in
docs/reference/faults/botorch_tests.md. `test_botorch_lists.py`, `test_botorch_saas.py`
and `test_botorch_objectives.py` have lists, priors, objectives and sample paths.
"""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.kernels import LinearTruncatedFidelityKernel
from botorch.models.likelihoods.sparse_outlier_noise import (
    SparseOutlierGaussianLikelihood,
)
from botorch.models.relevance_pursuit import (
    backward_relevance_pursuit,
    forward_relevance_pursuit,
)
from botorch.models.robust_relevance_pursuit_model import (
    RobustRelevancePursuitMixin,
    RobustRelevancePursuitSingleTaskGP,
)
from botorch.models.transforms import Normalize
from botorch.optim.fit import fit_gpytorch_mll_scipy, fit_gpytorch_mll_torch
from botorch.optim.utils.acquisition_utils import get_X_baseline
from botorch.sampling.pathwise.utils import get_train_inputs
from botorch.utils.constraints import NonTransformedInterval
from botorch.utils.context_managers import delattr_ctx
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from sparse_model_cases import sine_data
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP, training_noise

pytestmark = [
    pytest.mark.filterwarnings("ignore:The inducing points reached their cap"),
    # BoTorch's backward pursuit, of its own noise model.
    pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True"),
    pytest.mark.filterwarnings("ignore:.*ITERATIONS REACHED LIMIT"),
    pytest.mark.filterwarnings("ignore:`scipy_minimize` terminated"),
]

# As many inducing points as training points, or few.
SIZES = pytest.mark.parametrize("size", [None, 5], ids=["exact", "sparse"])
OUTLIERS = {28, 29, 30, 31}


def fitted(model: SingleTaskGP, steps: int, **options: Any) -> None:
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": steps}}, **options)


def outlying() -> tuple[Tensor, Tensor]:
    """A sine whose last four of 32 values have the wrong sign."""
    X = torch.linspace(0, 1, 32, dtype=torch.double)
    X = X[torch.randperm(32, generator=torch.Generator().manual_seed(0))].unsqueeze(-1)
    Y = 1.5 + (12 * X).sin()
    Y[-4:] = -3.0
    return X, Y


def support(model_class: type[SingleTaskGP], pursuit: Any, **options: Any) -> set[int]:
    """The observations that a pursuit of four outliers takes for those."""
    X, Y = outlying()
    noise = NonTransformedInterval(1e-6, 1e-2, initial_value=1e-3)
    likelihood = SparseOutlierGaussianLikelihood(
        base_noise=HomoskedasticNoise(noise_constraint=noise).double(),
        dim=len(X),
        convex_parameterization=pursuit is forward_relevance_pursuit,
    )
    lengthscale = NonTransformedInterval(0.1, torch.inf, initial_value=0.2)
    scale = NonTransformedInterval(0.01, 10.0, initial_value=0.1)
    kernel = RBFKernel(ard_num_dims=1, lengthscale_constraint=lengthscale)
    model = model_class(
        X,
        Y,
        likelihood=likelihood,
        covar_module=ScaleKernel(kernel, outputscale_constraint=scale).double(),
        mean_module=ZeroMean(),
        input_transform=Normalize(d=1),
        **options,
    )
    noise_model, _ = pursuit(
        sparse_module=model.likelihood.noise_covar,
        mll=ExactMarginalLogLikelihood(model.likelihood, model),
        sparsity_levels=[4] if pursuit is forward_relevance_pursuit else [8, 4],
        optimizer_kwargs={"options": {"maxiter": 20}},
    )
    assert model.posterior(X, observation_noise=True).variance.isfinite().all()
    return set(noise_model.support)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pursuit", [forward_relevance_pursuit, backward_relevance_pursuit]
)
def test_relevance_pursuit(pursuit):
    """`test_relevance_pursuit.py`: a noise model that knows the training inputs."""
    exact = support(SingleTaskGP, pursuit)
    assert len(exact & OUTLIERS) >= 3
    assert len(support(SparseSingleTaskGP, pursuit) & OUTLIERS) >= 3
    assert len(support(SparseSingleTaskGP, pursuit, max_inducing_points=15)) == 4


class RobustGP(SparseSingleTaskGP, RobustRelevancePursuitMixin):
    """What `RobustRelevancePursuitSingleTaskGP` is with the replaced class."""

    def __init__(self, X: Tensor, Y: Tensor, **options: Any) -> None:
        super().__init__(X, Y, **options)
        self.given = X, Y, options
        RobustRelevancePursuitMixin.__init__(
            self, base_likelihood=self.likelihood, dim=len(X)
        )

    def to_standard_model(self) -> SparseSingleTaskGP:
        X, Y, options = self.given
        modules = {"covar_module": self.covar_module, "mean_module": self.mean_module}
        likelihood = self.likelihood
        return SparseSingleTaskGP(X, Y, likelihood=likelihood, **modules, **options)


def pursued(model: SingleTaskGP, steps: int) -> SingleTaskGP:
    """The model after a pursuit of at most four outliers."""
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    options = {"optimizer_kwargs": {"options": {"maxiter": steps}}}
    assert fit_gpytorch_mll(mll, numbers_of_outliers=[0, 4], **options) is mll
    assert mll.model is model
    return model


def test_the_pursuit_of_an_exact_model():
    """`RobustRelevancePursuitMixin` as a base: what BoTorch's model does.

    Their objectives round differently, which three steps hardly amplify.
    """
    X, Y = outlying()
    options = {"input_transform": Normalize(d=1)}
    ours = pursued(RobustGP(X, Y, **options), steps=3)
    theirs = pursued(RobustRelevancePursuitSingleTaskGP(X, Y, **options), steps=3)
    assert ours.is_exact
    assert torch.allclose(ours.posterior(X).mean, theirs.posterior(X).mean, rtol=1e-6)
    assert torch.allclose(ours.bmc_probabilities, theirs.bmc_probabilities, rtol=1e-6)


@pytest.mark.slow
def test_the_pursuit_of_a_sparse_model():
    """It finds what is no sine, where a plain fit follows it."""
    X, Y = outlying()
    sine = 1.5 + (12 * X).sin()
    options = {"max_inducing_points": 15, "input_transform": Normalize(d=1)}
    plain, robust = SparseSingleTaskGP(X, Y, **options), RobustGP(X, Y, **options)
    fitted(plain, 40)
    pursued(robust, 40)
    assert not robust.is_exact
    assert set(robust.likelihood.noise_covar.support) == OUTLIERS
    errors = [(m.posterior(X).mean - sine).abs().max() for m in (robust, plain)]
    assert errors[0] < 0.1 < 1.0 < errors[1], errors


def test_options_of_a_fit_that_a_pursuit_lacks():
    with pytest.raises(TypeError, match="'rounds'"):
        RobustGP(*outlying()).custom_fit(None, rounds=1)


def test_noise_of_outliers_in_units_of_the_prior():
    """`(k(x, x) + s) r / (1 - r)` above the noise `s`, as the exact GP has it."""
    X, Y = outlying()
    base = HomoskedasticNoise().double()
    base.noise = 0.3
    likelihood = SparseOutlierGaussianLikelihood(base, len(X), [28, 30])
    r = torch.tensor([0.5, 0.9], dtype=torch.double)
    likelihood.noise_covar.raw_rho.data.copy_(r)
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = 2.5
    known = {"covar_module": kernel, "outcome_transform": None}
    model = SparseSingleTaskGP(
        X, Y, likelihood=likelihood, inducing_points=X[::3], **known
    )
    noise = torch.full_like(Y, 0.3)
    noise[[28, 30], 0] += (2.5 + 0.3) * r / (1 - r)
    expected = SparseSingleTaskGP(X, Y, noise, inducing_points=X[::3], **known)
    Z = torch.rand(7, 1, dtype=torch.double)
    for mode in (True, False):
        torch.testing.assert_close(training_noise(model.train(mode)), noise[:, 0])
    ours, theirs = model.posterior(Z), expected.posterior(Z)
    torch.testing.assert_close(ours.mean, theirs.mean)
    torch.testing.assert_close(ours.variance, theirs.variance)


@SIZES
def test_the_baseline_of_an_acquisition_function(size):
    """`test_get_X_baseline`: the training inputs, as they came."""
    X, Y = sine_data()
    for transform in (None, Normalize(d=2)):
        model = SparseSingleTaskGP(
            X, Y, input_transform=transform, max_inducing_points=size
        )
        acquisition = qLogExpectedImprovement(model, best_f=0.0)
        assert get_X_baseline(acquisition).equal(X)
        model.posterior(X)
        assert get_X_baseline(acquisition).equal(X)
    batch = torch.stack([X, X + 0.1])
    model = SparseSingleTaskGP(batch, torch.stack([Y, Y]), max_inducing_points=size)
    assert get_X_baseline(qLogExpectedImprovement(model, best_f=0.0)).equal(X)


@SIZES
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_training_inputs_before_and_after_the_transform(num_outputs, size):
    """`pathwise/test_utils.py::test_get_train_inputs`."""
    X, Y = sine_data()
    Y = torch.cat([Y, Y.cos()], dim=-1)[:, :num_outputs]
    model = SparseSingleTaskGP(
        X, Y, input_transform=Normalize(d=2), max_inducing_points=size
    )
    X = model.train_inputs[0]
    Z = model.input_transform(X)
    for mode in (model.train, model.eval):
        mode()
        assert get_train_inputs(model, transformed=False)[0].equal(X)
        assert get_train_inputs(model, transformed=True)[0].equal(Z)
    plain = patch.object(model, "_original_train_inputs", new=None)
    with delattr_ctx(model, "input_transform"), plain:
        for transformed in (False, True):
            assert get_train_inputs(model, transformed=transformed)[0].equal(Z)


@SIZES
@pytest.mark.parametrize(
    ("optimizer", "steps"),
    [
        (fit_gpytorch_mll_scipy, {"options": {"maxiter": 5}}),
        (fit_gpytorch_mll_torch, {"step_limit": 5}),
    ],
)
@pytest.mark.parametrize("bound", [None, 0.1])
def test_optimizers_bounds_and_parameters_that_play_no_role(
    optimizer, steps, bound, size
):
    """`test_fit.py::test_fit_gpytorch_mll`."""
    X, Y = sine_data(10)
    model = SparseSingleTaskGP(X, Y, max_inducing_points=size)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    before = model.covar_module.raw_lengthscale.detach().clone()
    limits = {"likelihood.noise_covar.raw_noise": (bound, None)}
    options = steps if bound is None else {**steps, "bounds": limits}
    if bound is None:
        mll.register_parameter("dummy", torch.nn.Parameter(X.new_tensor([5.0])))
    fit_gpytorch_mll(mll, optimizer=optimizer, optimizer_kwargs=options, max_attempts=2)
    assert not mll.training
    assert not model.covar_module.raw_lengthscale.equal(before)
    assert bound is None or model.likelihood.raw_noise.item() >= bound - 1e-12
    assert bound is not None or mll.dummy.grad is None


@pytest.mark.parametrize("power, is_definite", [(0.5, False), (1.0, True)])
def test_a_fidelity_kernel_of_a_power_that_is_not_whole(power, is_definite):
    """Is no kernel: `(1 + s t)^0.5` is `1 + s t / 2 - (s t)^2 / 8`, and so on.

    The other feature is the same everywhere, so that all Matern kernels are one.
    """
    kernel = LinearTruncatedFidelityKernel([0], dimension=2).double()
    kernel.power = power
    s = torch.linspace(0, 1, 9, dtype=torch.float64)
    K = kernel(torch.stack([s, torch.zeros_like(s)], dim=-1)).to_dense()
    expected = 1 + (1 - s).outer(1 - s) * (1 + s.outer(s)) ** power
    torch.testing.assert_close(K, expected)
    least = torch.linalg.eigvalsh(K.detach()).min().item()
    assert (least > -1e-12) == is_definite and (is_definite or least < -1e-4)
