"""The exact likelihood of all observations, or of some as a rival of the bound."""

import copy
import re
import warnings
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchWarning, ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import Warp
from botorch.optim.fit import fit_gpytorch_mll_scipy
from botorch.test_functions import StyblinskiTang
from gpytorch.constraints import GreaterThan, LessThan
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import StudentTLikelihood
from gpytorch.means import ConstantMean
from gpytorch.priors import UniformPrior
from linear_operator.utils.errors import NotPSDError
from sparse_model_cases import make_mll
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit import alternating_fit as rounds
from botorch_sparse.models.fit import exact_fit
from botorch_sparse.models.fit.candidate_fits import (
    GAIN,
    Fitted,
    in_few_steps,
    left_out_density,
    loss_of,
    shuffled_rows,
)
from botorch_sparse.models.fit.exact_fit import fit_exact, on_random_rows
from botorch_sparse.models.fit.log_parameters import fit_gpytorch_mll_in_logarithms

close = torch.testing.assert_close
SHORT = {"options": {"maxiter": 4}}


def rough(n: int, noise: float = 0.1, **tkwargs: Any) -> tuple[Tensor, Tensor]:
    """A function of six inputs that few inducing points cannot follow."""
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(n, 6, generator=generator, dtype=torch.float64)
    Y = (-4 * (X - 0.6).square().sum(-1, True)).exp() + 0.5 * (5 * X[:, :3]).sin().prod(
        -1, keepdim=True
    )
    Y = (Y - Y.mean()) / Y.std()
    Y = Y + noise * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    return X.to(**tkwargs), Y.to(**tkwargs)


def fit(model: SingleTaskGP, **options: Any) -> Any:
    return fit_gpytorch_mll(make_mll(model), **options)


@pytest.fixture
def is_rival(monkeypatch):
    """Few rows are many: the exact likelihood is that of 500 of them."""
    monkeypatch.setattr(exact_fit, "MOST_EXACT", 505)
    monkeypatch.setattr(exact_fit, "FIRST_ROWS", 500)


def test_small_noise_is_found(double):
    alone, default = (SparseSingleTaskGP(*rough(520, 0.01, **double)) for _ in range(2))
    fit(alone, rounds=2)
    fit(default)
    noises = [m.likelihood.noise.item() for m in (alone, default)]
    assert noises[1] < 0.2 * noises[0]
    scores = [left_out_density(make_mll(m)) for m in (alone, default)]
    assert scores[1] > scores[0] + 0.2


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_smooth_functions_with_little_noise(seed, double):
    """Where rounding in the objective once ended half of the fits."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(560, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(560, 1, generator=generator, dtype=torch.float64)
    Y = (6 * X**3).sin().sum(-1, True) + 0.02 * noise
    model = SparseSingleTaskGP(X.to(**double), Y.to(**double))
    fit(model, max_attempts=1, rounds=1)
    assert 0.01 < model.likelihood.noise.sqrt() * Y.std() < 0.03


def test_it_is_the_exact_fit_of_random_rows(double):
    X, Y = rough(620, **double)
    model = SparseSingleTaskGP(X, Y)
    few = fit_exact(make_mll(model), {}, num_rows=200).hyperparameters
    rows = shuffled_rows(model)[:200]
    assert len(rows.unique()) == 200
    targets = model.outcome_transform(Y)[0]
    exact = SingleTaskGP(X[rows], targets[rows], outcome_transform=None)
    fit(exact)
    names = {name.removeprefix("model."): name for name in few}
    for name, value in exact.named_parameters():
        close(few[names[name]], value.detach(), rtol=5e-2, atol=5e-2)
    assert model.train_inputs[0].shape == X.shape


def wave(n: int = 120) -> tuple[Tensor, Tensor]:
    """A slope along one feature and waves along the other, with little noise."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    Y = 2 * X[:, 0] + 0.6 * (14 * X[:, 1]).sin() + 0.1 * noise
    return X, Y.unsqueeze(-1)


def far_too_long(model: SparseSingleTaskGP) -> Any:
    """The objective where the waves are noise."""
    lengthscale = torch.tensor([[0.5, 1.0]], dtype=torch.float64)
    model.covar_module.lengthscale = lengthscale
    model.likelihood.noise = 1.0
    return make_mll(model)


def shortest(part: Any, here: float = 0.0) -> Fitted:
    """The best start with shorter lengthscales, whatever it loses."""
    starts = exact_fit._shortened(part, here)
    return min(starts, key=lambda start: start.rise).fitted


def density_by_hand(
    X: Tensor, y: Tensor, lengths: tuple[float, float], noise: float
) -> float:
    """Log density of an observation, at the constant that fits best."""
    Z = X / torch.tensor(lengths, dtype=X.dtype)
    K = (-0.5 * (Z[:, None] - Z[None]).square().sum(-1)).exp()
    K = K + noise * torch.eye(len(X), dtype=X.dtype)
    ones = torch.ones_like(y)
    constant = (ones @ torch.linalg.solve(K, y)) / (ones @ torch.linalg.solve(K, ones))
    normal = torch.distributions.MultivariateNormal((constant * ones), K)
    return normal.log_prob(y).item() / len(X)


@pytest.mark.parametrize("way", ["STARTS", "MOST_SHORTENED"])
def test_waves_that_a_fit_takes_for_noise_are_found(way, monkeypatch):
    """As dense as any of a grid, in either way; without both they stay noise."""
    X, Y = wave()
    found = []
    tried, nothing = getattr(exact_fit, way), {"STARTS": (), "MOST_SHORTENED": 0}
    monkeypatch.setattr(exact_fit, "LEAP", (0.25, 0.25))
    for name, none in nothing.items():
        monkeypatch.setattr(exact_fit, name, none)
    for each in (nothing[way], tried):
        monkeypatch.setattr(exact_fit, way, each)
        model = SparseSingleTaskGP(X, Y)
        fit_exact(far_too_long(model), {}, num_rows=len(X))
        lengths = model.covar_module.lengthscale.view(-1).tolist()
        noise = model.likelihood.noise.item()
        y = model.train_targets.detach()
        found.append(density_by_hand(X, y, (lengths[0], lengths[1]), noise))
    best = max(
        density_by_hand(X, y, (first, second), noise)
        for first in (0.5, 0.7, 1.0, 1.5)
        for second in (0.1, 0.15, 0.2, 0.4, 1.0, 3.0)
        for noise in (0.01, 0.02, 0.1, 0.3)
    )
    assert found[1] > best - 0.03 and found[0] < best - 0.5


@pytest.mark.parametrize("why", ["fails", "gains nothing"])
def test_a_shorter_lengthscale_that_serves_nothing_leaves_no_trace(why, monkeypatch):
    X, Y = wave()
    original, starts = exact_fit.fit_once, list[Tensor]()
    monkeypatch.setattr(exact_fit, "LEAP", (0.25, 0.25))
    monkeypatch.setattr(exact_fit, "STARTS", ())

    def fitted(part: Any, options: Any) -> None:
        starts.append(part.model.covar_module.lengthscale.detach().clone())
        if len(starts) == 1:
            original(part, options)
            starts.append(part.model.covar_module.lengthscale.detach().clone())
            return
        if why == "fails":
            raise ModelFittingError("no")
        part.model.covar_module.lengthscale = 9.0

    monkeypatch.setattr(exact_fit, "fit_once", fitted)
    model = SparseSingleTaskGP(X, Y)
    fit_exact(far_too_long(model), {}, num_rows=len(X))
    _, optimum, *shorter = starts
    assert torch.equal(model.covar_module.lengthscale, optimum)
    assert [(each < optimum).sum() for each in shorter] == [1, 1]  # much noise is left


@pytest.mark.parametrize("why", ["fails", "gains nothing"])
def test_a_start_that_serves_nothing_leaves_no_trace(why, monkeypatch):
    """Each begins at the first hyperparameters, of few rows and with some noise."""
    X, Y = wave()
    original, begun = exact_fit.fit_once, list[tuple[int, float, float]]()
    monkeypatch.setattr(exact_fit, "FEW_ROWS", 40)
    monkeypatch.setattr(exact_fit, "MOST_SHORTENED", 0)
    optimum = list[Tensor]()

    def fitted(part: Any, options: Any) -> None:
        kernel, y = part.model.covar_module, part.model.train_targets
        share = part.likelihood.noise.item() / y.var().item()
        begun.append((len(y), kernel.lengthscale[0, 0].item(), share))
        if len(begun) == 1:
            original(part, options)
            optimum.append(kernel.lengthscale.detach().clone())
        elif why == "fails":
            raise ModelFittingError("no")
        else:
            kernel.lengthscale = 9.0

    monkeypatch.setattr(exact_fit, "fit_once", fitted)
    model = SparseSingleTaskGP(X, Y)
    fit_exact(far_too_long(model), {}, num_rows=len(X))
    (num, first, _), *others = begun
    assert num == len(X)
    assert others == [
        (40, pytest.approx(length * first), pytest.approx(noise))
        for length, noise in exact_fit.STARTS
    ]
    assert torch.equal(model.covar_module.lengthscale, optimum[0])


def test_when_shorter_lengthscales_are_tried(monkeypatch):
    """Of fits that move, and that are not told when to end."""
    tried = list[int]()
    monkeypatch.setattr(exact_fit, "STARTS", ())
    original = exact_fit._shortened

    def counted(part: Any, here: float) -> Any:
        tried.append(1)
        return original(part, here)

    monkeypatch.setattr(exact_fit, "_shortened", counted)
    monkeypatch.setattr(exact_fit, "LEAP", (0.25, 0.25))
    X, Y = wave()
    model = SparseSingleTaskGP(X, Y)
    options = {"optimizer_kwargs": {"options": {"maxiter": 99}}}
    fit_exact(far_too_long(model), options, num_rows=len(X))
    assert not tried
    fit_exact(far_too_long(model), {}, num_rows=len(X))
    assert len(tried) == 2  # the second one finds none
    fit_exact(make_mll(model), {}, num_rows=len(X))
    assert len(tried) == 2


@pytest.mark.parametrize("noisy, is_found", [(exact_fit.NOISY, True), (2.0, False)])
def test_a_wave_that_much_noise_hides_is_found(noisy, is_found, monkeypatch):
    """By an eighth of its lengthscale; by half of it the objective is worse."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(400, 2, generator=g, dtype=torch.float64)
    Y = (30 * X[:, :1]).sin() + 0.7 * torch.randn(400, 1, generator=g).double()
    mll = make_mll(SparseSingleTaskGP(X, Y))
    lengthscale = torch.tensor([[0.5, 0.9]], dtype=torch.float64)
    mll.model.covar_module.lengthscale = lengthscale
    mll.likelihood.noise = 1.0
    part = on_random_rows(mll, 400)
    before = exact_fit._loss(part)
    monkeypatch.setattr(exact_fit, "NOISY", noisy)
    starts = exact_fit._shortened(part, before)
    found = [start for start in starts if start.rise < start.most]
    assert bool(found) == is_found
    assert exact_fit._loss(part) == before
    if found:
        shortest(part, before).give(part)
        shorter = part.model.covar_module.lengthscale.detach() / lengthscale
        assert 0.125 < shorter[0, 0] < 0.2 and shorter[0, 1] == 1.0  # it has a bound
        assert part.likelihood.noise.item() == pytest.approx(0.8, rel=1e-3)
        assert exact_fit._loss(part) < before - 0.01


def test_a_feature_that_much_noise_hides_is_found(monkeypatch):
    """By a third of its lengthscale, with most of the noise."""
    function, n = StyblinskiTang(6), 200
    g = torch.Generator().manual_seed(1)
    X = torch.rand(n, 6, generator=g, dtype=torch.float64)
    Y = function(10.0 * X - 5.0).unsqueeze(-1)
    noise = torch.randn(n, 1, generator=g).double()
    Y = (Y - Y.mean()) / Y.std() + 0.5 * noise
    found = list[tuple[float, float]]()
    for much in (torch.inf, exact_fit.NOISY):
        monkeypatch.setattr(exact_fit, "NOISY", much)
        mll = make_mll(SparseSingleTaskGP(X, Y))
        fit_exact(mll, {}, num_rows=n)
        lengths = mll.model.covar_module.lengthscale.view(-1)
        found.append((lengths[-1].item(), exact_fit._loss(on_random_rows(mll, n))))
    (longer, before), (shorter, after) = found
    assert shorter < 0.5 * longer and after < before - 0.01


@pytest.mark.parametrize(
    "noisy, of_few, of_less, of_second, is_found",
    [
        (torch.inf, 0.25, 0.5, 1.01, True),
        (torch.inf, 0.25, 0.5, 1.03, False),
        (torch.inf, 0.25, 0.255, 1.01, False),  # it gains less than less noise loses
        (torch.inf, 0.13, 0.5, 0.9, False),  # the few lose too much
        (0.0, 0.25, 0.255, 0.99, True),
        (0.0, 0.25, 0.2, 0.96, False),
    ],
)
def test_few_rows_say_which_lengthscales_and_all_whether(
    noisy, of_few, of_less, of_second, is_found, monkeypatch
):
    """The first and second are best for the few; the third one would be for all."""
    X, Y = rough(120, dtype=torch.float64)
    mll = make_mll(SparseSingleTaskGP(X[:, :3], Y))
    mll.model.covar_module.lengthscale = torch.tensor([[1.0, 2.0, 3.0]]).double()
    part, few = on_random_rows(mll, len(X)), on_random_rows(mll, 60)
    few.model.covar_module.lengthscale = 7.0
    noise = part.likelihood.noise.item()
    losses = {
        (60, 1): 0.3,
        (60, 2): 0.28,
        (60, 3): 0.9,
        (120, 1): 1.1,
        (120, 2): of_second,
        (120, 3): 0.2,
    }

    def known(mll: Any) -> float:
        lengths, num = mll.model.covar_module.lengthscale, len(mll.model.train_targets)
        changed = (lengths.view(-1) != torch.tensor([1.0, 2.0, 3.0])).nonzero()
        if len(changed) == 1:
            return losses[num, changed.item() + 1]
        if len(changed) > 1:
            return torch.inf
        if num == 120:
            return 1.0
        return of_few if mll.likelihood.noise.item() == noise else of_less

    begun = list[float]()

    def go_on(part: Any, start: Fitted, before: float, options: Any) -> bool:
        assert part.model.covar_module.lengthscale.view(-1).tolist() == [1.0, 2.0, 3.0]
        assert before == 1.0
        start.give(part)
        begun.append(known(part))
        return True

    monkeypatch.setattr(exact_fit, "_loss", known)
    monkeypatch.setattr(exact_fit, "NOISY", noisy)
    monkeypatch.setattr(exact_fit, "MOST_COMPARED", 2)
    monkeypatch.setattr(exact_fit, "_go_on", go_on)
    assert exact_fit._leap(part, few, {}) == is_found
    assert begun == ([of_second] if is_found else [])


@pytest.mark.parametrize("noise", [1e-3, 0.3])
def test_what_short_lengthscales_explain_may_be_noise(noise, monkeypatch):
    """Longer ones with ten times the noise, where the objective is no worse there."""
    X, Y = rough(60, 0.5, dtype=torch.float64)
    mll = make_mll(SparseSingleTaskGP(X, Y))
    mll.model.covar_module.lengthscale, mll.likelihood.noise = 0.3, noise
    part = on_random_rows(mll, len(X))
    before = exact_fit._loss(part)
    (longer,) = exact_fit._lengthened(part, before)
    is_found = longer.rise < longer.most
    assert is_found == (noise == 1e-3)
    assert exact_fit._loss(part) == before
    monkeypatch.setattr(exact_fit, "_shortened", lambda *_: [])
    begun = list[tuple[float, float]]()

    def seen(part: Any, options: Any) -> None:
        kernel, noise = part.model.covar_module, part.likelihood.noise.item()
        begun.append((kernel.lengthscale.max().item(), noise))

    monkeypatch.setattr(exact_fit, "fit_once", seen)
    assert exact_fit._leap(part, part, {}) == is_found
    expected = [(pytest.approx(0.36), pytest.approx(0.01))]
    assert begun == (expected if is_found else [])


def test_only_what_is_fitted_is_shortened():
    """Within constraints; all else is as it was, to the last bit."""
    X, Y = wave()
    model = SparseSingleTaskGP(X, Y)
    mll = far_too_long(model)
    limit = GreaterThan(2.0)
    model.covar_module.register_constraint("raw_lengthscale", limit, replace=True)
    model.covar_module.lengthscale = torch.tensor([[3.0, 5.0]], dtype=torch.float64)
    before = {name: p.detach().clone() for name, p in mll.named_parameters()}
    part = on_random_rows(mll, len(X))
    shorter = shortest(part)
    for name, parameter in part.named_parameters():
        assert torch.equal(parameter, before[name])
    raw = shorter.hyperparameters["model.covar_module.raw_lengthscale"]
    assert sorted(limit.transform(raw).view(-1).tolist()) in ([2.5, 5.0], [3.0, 3.5])
    limit = LessThan(9.0)  # whose lower bound is minus infinity
    part.model.covar_module.register_constraint("raw_lengthscale", limit, replace=True)
    part.model.covar_module.lengthscale = torch.tensor([[3.0, 5.0]])
    assert exact_fit._shortened(part, 0.0)
    part.model.covar_module.raw_lengthscale.requires_grad_(False)
    assert not exact_fit._shortened(part, 0.0)


def test_all_lengthscales_are_shortened_together_with_the_best_constant():
    """All of them gain more than any one, where all were too long."""
    X, _ = wave(60)
    Y = 30.0 * (X - 0.4).square().sum(-1, keepdim=True).exp()
    model = SparseSingleTaskGP(X, Y, outcome_transform=None)
    fit(model)
    optimum = model.covar_module.lengthscale.detach().clone()
    mll, (length, less) = make_mll(model), exact_fit.TOGETHER
    least = model.covar_module.raw_lengthscale_constraint.lower_bound
    model.covar_module.lengthscale = least + (optimum - least) / length
    model.likelihood.noise = model.likelihood.noise.detach() / less
    model.mean_module.initialize(constant=model.mean_module.constant.item() + 5.0)
    part = on_random_rows(mll, len(X))
    start = Fitted.of(part)
    shortest(part).give(part)
    close(part.model.covar_module.lengthscale.detach(), optimum)
    loss = exact_fit._loss(part)
    constant = part.model.mean_module.constant.item()
    for step in (-0.1, 0.1):
        part.model.mean_module.initialize(constant=constant + step)
        assert exact_fit._loss(part) > loss
    start.give(part)
    part.model.mean_module.raw_constant.requires_grad_(False)
    _, found = exact_fit._with_all_shorter(part)
    name = "model.mean_module.raw_constant"
    assert found.hyperparameters[name] == start.hyperparameters[name]


@pytest.mark.parametrize("limit", ["prior", "constraint"])
def test_a_constant_that_may_not_move_stays(limit):
    """Where a step of one leads out of its prior, or of its constraint."""
    X, Y = wave(60)
    mean = ConstantMean(constant_prior=UniformPrior(-0.5, 0.5))
    if limit == "constraint":
        mean = ConstantMean(constant_constraint=GreaterThan(0.0))
    mean = mean.to(X)
    model = SparseSingleTaskGP(X, Y, mean_module=mean)
    mean.initialize(constant=0.2)
    part = on_random_rows(make_mll(model), len(X))
    before = part.model.covar_module.lengthscale.detach().clone()
    loss, found = exact_fit._with_all_shorter(part)
    assert loss < torch.inf
    assert torch.equal(part.model.covar_module.lengthscale, before)
    found.give(part)
    assert part.model.mean_module.constant.item() == pytest.approx(0.2)
    assert (part.model.covar_module.lengthscale < before).all()


def test_lengthscales_that_their_prior_forbids_are_not_tried():
    X, Y = wave(60)
    kernel = RBFKernel(ard_num_dims=2, lengthscale_prior=UniformPrior(0.3, 5.0))
    model = SparseSingleTaskGP(X, Y, covar_module=kernel.to(X))
    model.covar_module.lengthscale = torch.tensor([[0.4, 3.0]], dtype=torch.float64)
    part = on_random_rows(make_mll(model), len(X))
    shortest(part).give(part)
    assert part.model.covar_module.lengthscale[0].tolist() == pytest.approx([0.4, 1.5])


def test_few_rows_say_too_little_of_the_noise_of_all():
    """Ten times and a hundred times theirs are tried, as long as the loss falls."""
    X, Y = wave()
    part = on_random_rows(make_mll(SparseSingleTaskGP(X, Y)), len(X))
    noises = part.likelihood.noise_covar
    part.model.covar_module.lengthscale = torch.tensor([[1.0, 0.15]])
    losses = []
    for exponent in range(-3, 1):
        noises.initialize(noise=10.0**exponent)
        losses.append(exact_fit._loss(part))
    best = losses.index(min(losses))
    assert 0 < best < 3
    noises.initialize(noise=1e-3)
    loss, found = exact_fit._with_noise_of_all(part)
    assert loss == pytest.approx(min(losses))
    noise = found.hyperparameters["likelihood.noise_covar.raw_noise"].item()
    assert noise == pytest.approx(10.0 ** (best - 3))


@pytest.mark.parametrize("more", [torch.nan, torch.inf, 1.0])
def test_more_noise_ends_where_it_gains_nothing(more, monkeypatch):
    X, Y = wave(60)
    part, losses = on_random_rows(make_mll(SparseSingleTaskGP(X, Y)), 60), [1.0, more]
    noise = part.likelihood.noise.item()
    monkeypatch.setattr(exact_fit, "_loss", lambda part: losses.pop(0))
    loss, found = exact_fit._with_noise_of_all(part)
    assert loss == 1.0 and not losses
    assert found.hyperparameters["likelihood.noise_covar.raw_noise"].item() == noise


def test_what_is_kept_is_all_of_it(double, monkeypatch, is_rival):
    """Inputs are those of the warping that was kept; its points' cap is reported."""
    scores = iter([0.0, 1.0])
    monkeypatch.setattr(
        rounds, "left_out_density", lambda *_: torch.tensor(next(scores))
    )
    monkeypatch.setattr(rounds, "fit_bound", lambda mll, *_, **__: Fitted.of(mll))
    X, Y = rough(540, **double)
    warp = Warp(6, [0, 1], concentration0_prior=None, concentration1_prior=None)
    options: Any = {"input_transform": warp.to(**double), "max_inducing_points": 20}
    model = SparseSingleTaskGP(X, Y, **options)
    fit(model, optimizer_kwargs=SHORT)
    kept = model.train_inputs[0].clone()
    model.train()
    model.eval()
    assert torch.equal(model.train_inputs[0], kept)


def test_stands_in_where_the_bound_fails(double, monkeypatch, is_rival):
    def fails(*args: Any, **kwargs: Any) -> None:
        raise ModelFittingError("no")

    monkeypatch.setattr(rounds, "fit_bound", fails)
    model = SparseSingleTaskGP(*rough(540, **double))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    fit(model, optimizer_kwargs=SHORT)
    assert all((p != before[name]).any() for name, p in model.named_parameters())
    assert not model.training
    with pytest.raises(ModelFittingError):
        fit(model, rounds=1)


@pytest.mark.parametrize("given", [None, 3])
def test_each_of_two_has_one_attempt_unless_both_fail(given, monkeypatch, is_rival):
    asked = []

    def fails(mll: Any, options: Any, **kwargs: Any) -> None:
        asked.append(options.get("max_attempts"))
        raise ModelFittingError("no")

    monkeypatch.setattr(rounds, "fit_bound", fails)
    monkeypatch.setattr(rounds, "fit_exact", fails)
    model = SparseSingleTaskGP(*rough(540, dtype=torch.float64))
    options = {} if given is None else {"max_attempts": given}
    with pytest.raises(ModelFittingError, match="no"):
        fit(model, **options)
    assert asked == [1, 1, None, None] if given is None else [given, given]


@pytest.mark.filterwarnings("ignore:The inducing points reached their cap")
@pytest.mark.parametrize("options", [{"max_inducing_points": 9}, {"max_memory": 10**6}])
def test_the_copy_of_some_rows(options, double):
    """It is exact, has the noise of its rows, and keeps what a transform learned.

    One far point that is not among the few must not change their scale.
    """
    X, Y = rough(540, **double)
    rows = shuffled_rows(SparseSingleTaskGP(X, Y))
    X = X.index_fill(0, rows[-1], 50.0)
    Yvar = torch.linspace(0.01, 0.1, 540, **double).unsqueeze(-1)
    model = SparseSingleTaskGP(X, Y, Yvar, input_transform=Normalize(6), **options)
    few = on_random_rows(make_mll(model), 500).model
    assert few.is_exact and few.num_inducing == 500
    assert torch.equal(few.likelihood.noise, model.likelihood.noise[rows[:500]])
    expected = model.input_transform(X)[rows[:500]]
    close(few.input_transform(few.train_inputs[0]), expected)
    assert model.input_transform.learn_coefficients
    assert model.train_inputs[0].shape[0] == len(model.train_targets) == 540
    assert model.likelihood.noise.shape == (540,)
    fit(model, optimizer_kwargs=SHORT)
    assert model.posterior(X[:3]).mean.isfinite().all()


def test_modules_with_history(double):
    """What cannot be copied is fitted by the bound alone."""

    class Keeps(RBFKernel):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            self.last = super().forward(*args, **kwargs)
            return self.last

    X, Y = rough(540, **double)
    model = SparseSingleTaskGP(X, Y, covar_module=Keeps().to(**double))
    model.covar_module(X[:3], X[:3]).to_dense()
    with pytest.raises(ModelFittingError, match="cannot be copied"):
        fit_exact(make_mll(model), {})
    fit(model, optimizer_kwargs=SHORT)


def test_when(double, monkeypatch):
    """By default, where the model draws points and knows what belongs to its rows."""
    calls: list[int] = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        raise ModelFittingError("the bound is enough")

    monkeypatch.setattr(rounds, "fit_exact", counted)
    X, Y = rough(510, **double)
    short = {"options": {"maxiter": 2}}
    for asked in (
        {"rounds": 1},
        {"max_fit_inducing_points": 30},
        {"optimizer_kwargs": {**short, "timeout_sec": 9.0}},
        {"optimizer_kwargs": {**short, "bounds": {}}},
    ):
        fit(SparseSingleTaskGP(X, Y), **{"optimizer_kwargs": short, **asked})
    fit(SparseSingleTaskGP(X, Y, inducing_points=X[:9]), optimizer_kwargs=short)
    fit(SparseSingleTaskGP(X[:80], Y[:80]), optimizer_kwargs=short)
    assert not calls
    for targets in (Y, Y.expand(-1, 2)):
        fit(SparseSingleTaskGP(X, targets), optimizer_kwargs=short)
    assert calls == [1, 1, 1]  # each output has its own
    student = make_mll(SparseSingleTaskGP(X, Y))
    student.model.likelihood = StudentTLikelihood()
    assert not exact_fit.is_divisible(student, {})


def test_all_rows_of_few_are_fitted_exactly(double):
    """To the optimum of BoTorch's exact fit, and what predicts as it does."""
    X, Y = rough(510, **double)
    scaled = Normalize(X.shape[-1])
    model = SparseSingleTaskGP(X, Y, input_transform=copy.deepcopy(scaled))
    exact = SingleTaskGP(X, Y, input_transform=copy.deepcopy(scaled))
    fit(model)
    fit(exact)
    ours, theirs = SingleTaskGP(X, Y, input_transform=scaled), make_mll(exact).train()
    ours.load_state_dict(model.state_dict(), strict=False)
    ours = make_mll(ours).train()
    with torch.no_grad():
        losses = [
            mll(mll.model(mll.model.train_inputs[0]), mll.model.train_targets)
            for mll in (ours, theirs)
        ]
    assert losses[0] > losses[1] - 10 * GAIN
    assert dict(model.summary().rows)["exact likelihood"] == "at its optimum"
    more = model.eval().condition_on_observations(X[:2], Y[:2])
    model.set_train_data(X, Y.squeeze(-1), strict=False)
    for changed in (more, model):  # the fit was to other data
        assert changed._likelihood_gap is None


def test_half_of_many_rows_begin(double, monkeypatch):
    """Where few rows say that a fit begins far away, or all of them do."""
    monkeypatch.setattr(exact_fit, "FIRST_ROWS", 300)
    monkeypatch.setattr(exact_fit, "FEW_ROWS", 200)
    sizes: list[int] = []
    original = exact_fit.on_random_rows

    def counted(mll: Any, num_rows: int) -> Any:
        sizes.append(num_rows)
        return original(mll, num_rows)

    monkeypatch.setattr(exact_fit, "on_random_rows", counted)
    leaps = list[tuple[int, ...]]()

    def leap(*parts: Any) -> bool:
        leaps.append(tuple(len(part.model.train_targets) for part in parts[:2]))
        return False

    monkeypatch.setattr(exact_fit, "_leap", leap)
    model = SparseSingleTaskGP(*rough(520, **double))
    fit(model)
    assert sizes == [200, 300, 200, 520, 260]  # which lead the first steps
    assert leaps == [(300, 300), (520, 300)]
    sizes.clear()
    fit(model)
    assert sizes == [200, 520, 520, 260]
    sizes.clear()
    model.covar_module.lengthscale = 1.05 * model.covar_module.lengthscale
    fit(model)
    assert sizes[:3] == [200, 520, 300]

    def fails(*args: Any, **kwargs: Any) -> None:
        raise NotPSDError("no")

    sizes.clear()
    monkeypatch.setattr(exact_fit, "get_loss_closure", fails)
    fit(model)
    assert sizes[:2] == [200, 300]  # how far it is nobody knows
    assert sizes[-2:] == [520, 260]


def test_few_rows_lead_the_steps_of_all(double):
    """To the optimum of all, in a third of the evaluations; and from a leap as well."""
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(400, 6, generator=generator, dtype=torch.float64)
    Y = (X[:, :1] * 6).sin() + X[:, 1:3].prod(-1, keepdim=True) + X[:, 3:4].square()
    Y = Y + 0.1 * torch.randn(400, 1, generator=generator, dtype=torch.float64)
    mll = make_mll(SparseSingleTaskGP(X.to(**double), Y.to(**double)))
    plain = in_few_steps({})
    exact_fit.fit_once(first := on_random_rows(mll, 200), plain)
    counts, losses = [], []
    for options in plain, exact_fit._with_curvature(plain, mll, 400):
        part, values = on_random_rows(mll, 400), list[Tensor]()
        exact_fit._copy(first, part)
        kwargs = {**options["optimizer_kwargs"], "on_evaluation": values.append}
        exact_fit.fit_once(part, {**options, "optimizer_kwargs": kwargs})
        counts.append(len(values))
        losses.append(exact_fit._loss(part))
    assert counts[1] <= 0.5 * counts[0]
    assert losses[1] == pytest.approx(losses[0], abs=2 * GAIN)
    asked = {"optimizer": fit_gpytorch_mll_scipy}
    assert exact_fit._with_curvature(asked, mll, 400) is asked
    fit_exact(mll, {"optimizer": fit_gpytorch_mll_in_logarithms}, num_rows=60)


@pytest.mark.parametrize("num, share", [(4, 0.5), (62, (2 / 65) ** (1 / 3))])
def test_how_many_rows_lead(num, share, double):
    """With many parameters fewer, since each one takes an evaluation of them."""
    X = torch.rand(300, num, **double)
    mll = make_mll(SparseSingleTaskGP(X, X[:, :1].sin()))
    few = exact_fit._with_curvature(in_few_steps({}), mll, 300)
    part = few["optimizer_kwargs"]["few"]()
    assert len(part.model.train_targets) == int(share * 300)


def test_which_fits_few_rows_lead(double, monkeypatch):
    """That of all after the first one, and leaps; none with options of the user's."""
    monkeypatch.setattr(exact_fit, "FIRST_ROWS", 100)
    monkeypatch.setattr(exact_fit, "FEW_ROWS", 60)
    led = list[tuple[int, bool]]()
    original = exact_fit.fit_once

    def seen(part: Any, options: Any) -> None:
        kwargs = options.get("optimizer_kwargs") or {}
        led.append((len(part.model.train_targets), "few" in kwargs))
        original(part, options)

    leaps = list[bool]()

    def leap(part: Any, first: Any, options: Any) -> bool:
        leaps.append("few" in (options.get("optimizer_kwargs") or {}))
        return False

    monkeypatch.setattr(exact_fit, "fit_once", seen)
    monkeypatch.setattr(exact_fit, "_leap", leap)
    X, Y = wave(200)
    fit_exact(far_too_long(SparseSingleTaskGP(X, Y)), {}, num_rows=200)
    assert (100, False) in led and led[-1] == (200, True)
    assert not any(few for size, few in led if size <= 100)
    assert leaps == [True, True]
    led.clear()
    options = {"optimizer_kwargs": {"options": {"maxiter": 9}}}
    fit_exact(far_too_long(SparseSingleTaskGP(X, Y)), options, num_rows=200)
    assert led == [(100, False), (200, False)]


def test_the_bound_stands_in_where_the_exact_likelihood_fails(double, monkeypatch):
    def fails(*args: Any, **kwargs: Any) -> None:
        raise ModelFittingError("no")

    monkeypatch.setattr(rounds, "fit_exact", fails)
    model, alone = (SparseSingleTaskGP(*rough(540, **double)) for _ in range(2))
    fit(model, optimizer_kwargs=SHORT)
    fit(alone, optimizer_kwargs=SHORT, max_fit_inducing_points=256)
    assert torch.equal(model.likelihood.noise, alone.likelihood.noise)
    assert alone._likelihood_gap is None and model._likelihood_gap is None


@pytest.mark.parametrize(
    "n, outputs, max_memory, expected",
    [
        (3000, 1, None, 3000),
        (3001, 1, None, 1500),
        (2121, 2, None, 2121),
        (2122, 2, None, 1500),
        (600, 9, None, 600),
        (3000, 1, 64 * 2000**2, 1500),
        (3000, 1, 64 * 700**2, 700),
    ],
)
def test_how_many_rows(n, outputs, max_memory, expected):
    X = torch.rand(n, 1, dtype=torch.float64)
    model = SparseSingleTaskGP(X, X.expand(-1, outputs), max_memory=max_memory)
    assert exact_fit.num_exact_rows(model) == expected


@pytest.mark.slow
def test_how_far_the_bound_is(double, is_rival, monkeypatch):
    """A fit that is kept against the likelihood says how far it is, and warns once."""
    X, Y = rough(520, 0.01, **double)
    scores = iter([1.0, 0.0] * 2)
    monkeypatch.setattr(
        rounds, "left_out_density", lambda *_: torch.tensor(next(scores))
    )
    model = SparseSingleTaskGP(X, Y)
    with pytest.warns(BotorchWarning, match="max_fit_inducing_points"):
        fit(model)
    gap = model._likelihood_gap.per_observation
    exact = make_mll(SparseSingleTaskGP(X, Y))
    at_optimum = on_random_rows(exact, 500)
    fit_gpytorch_mll(at_optimum)
    bound = on_random_rows(make_mll(model), 500)
    of_both = [mll.train() for mll in (at_optimum, bound)]
    with torch.no_grad():
        values = [
            mll(mll.model(mll.model.train_inputs[0]), mll.model.train_targets)
            for mll in of_both
        ]
    close(torch.tensor(gap), (values[0] - values[1]).cpu().float(), rtol=0.02, atol=0.0)
    assert f"{gap:.2g} an observation" in str(model.summary())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(model)


LIMITED: list[tuple[int | None, dict[str, Any]]] = [
    (None, {"max_fit_inducing_points": 20}),
    (None, {"optimizer_kwargs": SHORT}),
    (30, {}),
]


@pytest.mark.parametrize("num_given, options", LIMITED)
def test_the_summary_looks_where_no_fit_did(num_given, options, double, monkeypatch):
    """As far as an exact GP gets from there that BoTorch fits; nothing is changed."""
    X, Y = rough(520, 0.01, **double)
    points = None if num_given is None else X[:num_given]
    model = SparseSingleTaskGP(X, Y, inducing_points=points)
    fit(model, **options)
    state, mean = model._state, model.posterior(X).mean
    text = dict(model.summary().rows)["exact likelihood"]
    assert torch.equal(model.posterior(X).mean, mean) and not model.training
    monkeypatch.setattr(exact_fit, "fit_once", None)  # the second time it is known
    assert dict(model.summary().rows)["exact likelihood"] == text
    monkeypatch.undo()
    assert model._state.chosen is state.chosen and model._likelihood_gap is None
    exact = make_mll(SingleTaskGP(X, Y))
    exact.load_state_dict(make_mll(model).state_dict(), strict=False)
    losses = [loss_of(exact)]
    fit_gpytorch_mll(exact)
    losses.append(loss_of(exact))
    gap = float(losses[0] - losses[1])
    assert gap > 0.01
    shown = re.fullmatch(r"(.*) an observation below its optimum", text)
    assert shown and float(shown[1]) == pytest.approx(gap, rel=0.06, abs=2e-4)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_fit_survives_a_likelihood_that_has_no_factor(
    double, is_rival, monkeypatch, fails_at
):
    """Of the fit that is kept, nothing is said then; of the other one it is no matter.

    With a fidelity kernel and 4,000 points it happened.
    """
    original, calls = exact_fit.loss_of, []

    def fails(part: Any) -> Any:
        calls.append(part)
        if len(calls) - 1 == fails_at:
            raise NotPSDError("no factor")
        return original(part)

    def compared(*args: Any) -> Any:
        monkeypatch.setattr(exact_fit, "loss_of", fails)
        return exact_fit.likelihood_gap(*args)

    monkeypatch.setattr(rounds, "likelihood_gap", compared)
    model = SparseSingleTaskGP(*rough(520, **double))
    fit(model)
    assert len(calls) == 2
    if fails_at == 0:
        assert model._likelihood_gap is None
    else:
        assert model._likelihood_gap.per_observation == 0.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"ftol": GAIN}),
        ({"maxiter": 9}, {"maxiter": 9, "ftol": GAIN}),
        ({"gtol": 1e-8}, {"gtol": 1e-8}),
        ({"ftol": 1e-9, "maxiter": 9}, {"ftol": 1e-9, "maxiter": 9}),
    ],
)
def test_steps_of_little_gain_end_a_fit_unless_the_user_says_when(given, expected):
    options = in_few_steps({"optimizer_kwargs": {"options": given}})
    assert options["optimizer_kwargs"]["options"] == expected
    asked: Any = {"optimizer_kwargs": {"method": "Adam"}}
    assert in_few_steps(asked) is asked


@pytest.mark.one_in(2)
@pytest.mark.parametrize("given", [{}, {"rounds": 1}])
def test_the_bound_ends_so_by_default(double, is_rival, monkeypatch, given):
    """Asking for rounds asks for SciPy's criteria."""
    seen, original = [], rounds.fit_once

    def spied(mll: Any, options: Any) -> None:
        seen.append((options.get("optimizer_kwargs") or {}).get("options", {}))
        original(mll, options)

    monkeypatch.setattr(rounds, "fit_once", spied)
    fit(SparseSingleTaskGP(*rough(520, **double)), **given)
    assert seen and all(of == ({} if given else {"ftol": GAIN}) for of in seen)
