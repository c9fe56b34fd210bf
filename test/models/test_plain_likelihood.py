"""The closed form of the likelihood, against GPyTorch's modules."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Warp
from botorch.optim.closures import get_loss_closure_with_grads
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import FixedGaussianNoise
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from gpytorch.mlls import (
    AddedLossTerm,
    ExactMarginalLogLikelihood,
    LeaveOneOutPseudoLikelihood,
    SumMarginalLogLikelihood,
)
from gpytorch.priors import GammaPrior, LogNormalPrior, NormalPrior
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit import log_parameters
from botorch_sparse.models.fit.log_parameters import fit_gpytorch_mll_in_logarithms
from botorch_sparse.models.fit.plain_likelihood import (
    MOST_POINTS,
    PlainLikelihood,
    plain_closure,
)

G = torch.Generator().manual_seed(3)
X = 4 * torch.rand(30, 3, generator=G).double() - 1
Y = (2 * X).sin().sum(-1, keepdim=True) + 0.1 * torch.randn(30, 1, generator=G).double()
FREE = GreaterThan(1e-3, transform=None, initial_value=0.5)


def matern(nu: float = 2.5, num: int | None = 3, **options: Any) -> Kernel:
    options = {"lengthscale_constraint": FREE} | options
    return MaternKernel(nu, ard_num_dims=num, **options)


KERNELS: dict[str, Callable[[], Kernel | None]] = {
    "default": lambda: None,
    "matern52": lambda: matern(lengthscale_prior=LogNormalPrior(0.3, 0.8)),
    "matern32": lambda: matern(1.5),
    "one lengthscale": lambda: matern(num=None),
    "rbf": lambda: RBFKernel(ard_num_dims=3, lengthscale_constraint=FREE),
}


def made(model: Any = SingleTaskGP, **options: Any) -> ExactMarginalLogLikelihood:
    """An objective at other than the first hyperparameters."""
    single = model(options.pop("X", X), options.pop("Y", Y), **options)
    mll = ExactMarginalLogLikelihood(single.likelihood, single).train()
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in mll.parameters():
            p.mul_(1.0 + 0.5 * torch.rand(p.shape, generator=g).to(p)).add_(0.01)
    return mll


def trained(mll: ExactMarginalLogLikelihood) -> dict[str, Tensor]:
    return {n: p for n, p in mll.named_parameters() if p.requires_grad}


def assert_same(mll: ExactMarginalLogLikelihood) -> None:
    """But for rounding."""
    parameters = trained(mll)
    ours, theirs = (
        make(mll, parameters) for make in (plain_closure, get_loss_closure_with_grads)
    )
    assert ours is not None
    (loss, gradient), (expected, slopes) = ours(), theirs()
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-9)
    for mine, its in zip(gradient, slopes, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-7, atol=1e-9)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that the closed form is evaluated."""
    found, before = list[int](), PlainLikelihood.loss_and_gradient

    def counted(self: PlainLikelihood) -> Any:
        found.append(1)
        return before(self)

    monkeypatch.setattr(PlainLikelihood, "loss_and_gradient", counted)
    return found


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("model", [SingleTaskGP, SparseSingleTaskGP])
@pytest.mark.parametrize("scaled", [True, False])
def test_value_and_gradient(kernel: str, model: Any, scaled: bool) -> None:
    options: dict[str, Any] = {"covar_module": KERNELS[kernel]()}
    if scaled:
        options["input_transform"] = Normalize(3)
    if model is SparseSingleTaskGP:
        options["inducing_points"] = X
    assert_same(made(model, **options))


def test_devices(device: torch.device) -> None:
    mll = made(X=X.to(device), Y=Y.to(device))
    (loss, gradient), parameters = plain_closure(mll, trained(mll))(), trained(mll)
    expected, slopes = get_loss_closure_with_grads(mll, parameters)()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(list(gradient), list(slopes), rtol=1e-6, atol=1e-7)


def test_some_parameters_alone() -> None:
    """In the order in which they are asked for."""
    mll = made()
    mll.model.mean_module.raw_constant.requires_grad_(False)
    assert len(trained(mll)) == 2
    assert_same(mll)


def test_points_that_are_equal_or_far_from_zero() -> None:
    Z = torch.cat([X, X[:5]]) + 1e6
    assert_same(made(X=Z, Y=torch.cat([Y, Y[:5] + 0.1])))


class OwnKernel(MaternKernel):
    """One that does something besides, as far as anyone knows."""


class OwnModel(SingleTaskGP):
    """The same."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x)


def own_likelihood(**options: Any) -> GaussianLikelihood:
    noise = GreaterThan(1e-4, transform=None, initial_value=0.1)
    return GaussianLikelihood(noise_constraint=noise, **options)


def frozen() -> ExactMarginalLogLikelihood:
    """What has no gradient, and is asked for."""
    mll = made()
    mll.likelihood.noise_covar.raw_noise.requires_grad_(False)
    return mll


def custom_loss() -> ExactMarginalLogLikelihood:
    mll = made()
    mll.model.compute_custom_loss = lambda *_: torch.zeros(())
    return mll


def tied() -> ExactMarginalLogLikelihood:
    mll = made(likelihood=own_likelihood())
    mll.likelihood.noise_covar.raw_noise = mll.model.mean_module.raw_constant
    return mll


def other_noise() -> ExactMarginalLogLikelihood:
    mll = made(likelihood=own_likelihood())
    mll.likelihood.noise_covar = FixedGaussianNoise(torch.full((30,), 0.1).double())
    return mll


def added_loss() -> ExactMarginalLogLikelihood:
    mll = made()
    mll.model.register_added_loss_term("more")
    mll.model.update_added_loss_term("more", Added())
    return mll


class Added(AddedLossTerm):
    def loss(self, *params: Any) -> Tensor:
        return torch.ones(())


LONG = torch.rand(MOST_POINTS + 1, 3, generator=G).double()
OTHERS: dict[str, Callable[[], Any]] = {
    "scaled kernel": lambda: made(covar_module=ScaleKernel(matern())),
    "another kernel": lambda: made(covar_module=LinearKernel()),
    "own kernel": lambda: made(covar_module=OwnKernel(lengthscale_constraint=FREE)),
    "some columns": lambda: made(covar_module=matern(num=2, active_dims=(0, 1))),
    "a sum": lambda: made(covar_module=matern() + matern()),
    "softplus": lambda: made(covar_module=MaternKernel(2.5, ard_num_dims=3)),
    "matern12": lambda: made(covar_module=matern(0.5)),
    "frozen": frozen,
    "a loss of its own": custom_loss,
    "one parameter twice": tied,
    "eval": lambda: made().eval(),
    "a prior of the mean": lambda: made(
        mean_module=ConstantMean(constant_prior=NormalPrior(0.0, 1.0))
    ),
    "a bounded mean": lambda: made(
        mean_module=ConstantMean(constant_constraint=Interval(-2.0, 2.0))
    ),
    "a prior of a transform": lambda: made(
        covar_module=matern(
            lengthscale_prior=LogNormalPrior(0.3, 0.8, transform=torch.log1p)
        )
    ),
    "another noise": other_noise,
    "an added loss": added_loss,
    "zero mean": lambda: made(mean_module=ZeroMean()),
    "linear mean": lambda: made(mean_module=LinearMean(3)),
    "another prior": lambda: made(
        covar_module=matern(lengthscale_prior=GammaPrior(3.0, 6.0))
    ),
    "softplus noise": lambda: made(likelihood=GaussianLikelihood()),
    "another prior of noise": lambda: made(
        likelihood=own_likelihood(noise_prior=GammaPrior(1.1, 0.05))
    ),
    "given noise": lambda: made(train_Yvar=torch.full_like(Y, 0.1)),
    "own model": lambda: made(OwnModel),
    "two outputs": lambda: made(Y=torch.cat([Y, Y], -1)),
    "float32": lambda: made(X=X.float(), Y=Y.float()),
    "many": lambda: made(X=LONG, Y=LONG.sum(-1, keepdim=True).sin()),
    "inducing points": lambda: made(SparseSingleTaskGP, inducing_points=X[:8]),
}


@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")
@pytest.mark.filterwarnings("ignore:.*recommended to use double precision")
@pytest.mark.parametrize("name", OTHERS)
def test_other_models_go_by_their_modules(name: str) -> None:
    mll = OTHERS[name]()
    assert plain_closure(mll, dict(mll.named_parameters())) is None


def test_other_objectives_go_by_their_modules() -> None:
    mll = made()
    other = LeaveOneOutPseudoLikelihood(mll.likelihood, mll.model).train()
    assert plain_closure(other, trained(mll)) is None
    apart = ExactMarginalLogLikelihood(own_likelihood().double(), mll.model)
    assert (
        plain_closure(apart.train(), dict(mll.model.mean_module.named_parameters()))
        is None
    )
    many = SumMarginalLogLikelihood(mll.likelihood, ModelListGP(mll.model))
    assert plain_closure(many.train(), trained(mll)) is None


def test_extra_noise_of_outliers() -> None:
    mll = made(SparseSingleTaskGP, inducing_points=X)
    assert_same(mll)
    for extra in (torch.zeros(30), torch.tensor([9.0, 0.0, 0.5] * 10)):
        mll.model.outlier_noise = extra.double()
        assert_same(mll.train())


def test_learned_transforms_go_by_their_modules() -> None:
    warped = made(X=(X + 1) / 4, input_transform=Warp(3, [0, 1, 2]))
    assert plain_closure(warped, trained(warped)) is None


@pytest.mark.parametrize(
    ("options", "is_closed"),
    [
        ({"parameters": {}}, True),
        ({"bounds": {"model.mean_module.raw_constant": (0.1, 0.2)}}, True),
        ({"closure_kwargs": {}}, False),
        ({"callback": lambda *_: None}, True),
    ],
)
def test_options_of_the_optimizer_go_through(
    calls: list[int], options: dict[str, Any], is_closed: bool
) -> None:
    ours, theirs = made(SparseSingleTaskGP), made(SingleTaskGP)
    for mll in (ours, theirs):
        given = dict(options)
        if "parameters" in given:  # the noise alone
            (name,) = (n for n, _ in mll.named_parameters() if n.endswith("raw_noise"))
            given["parameters"] = {name: mll.get_parameter(name)}
        fit_gpytorch_mll(mll, optimizer_kwargs=given)
    assert bool(calls) == is_closed
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"optimizer": fit_gpytorch_mll_in_logarithms}])
def test_a_fit_takes_it_and_ends_where_modules_end(
    calls: list[int], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    ours, theirs = made(SparseSingleTaskGP), made(SingleTaskGP)
    fit_gpytorch_mll(ours, **options)
    monkeypatch.setattr(log_parameters, "plain_closure", lambda *_: None)
    num = len(calls)
    fit_gpytorch_mll(theirs, **options)
    assert len(calls) == num > 5
    losses = [
        float(get_loss_closure_with_grads(mll.train(), trained(mll))()[0].detach())
        for mll in (ours, theirs)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
