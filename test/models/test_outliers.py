"""A robust model finds outliers, names them, and is the plain model without any."""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from botorch.exceptions import BotorchWarning, ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize, Standardize, Warp
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.mlls import MarginalLogLikelihood
from sparse_model_cases import make_mll
from torch import Tensor

from botorch_sparse.acquisition import BatchUpperConfidenceBound
from botorch_sparse.models import SparseSingleTaskGP, loo_cv, training_noise
from botorch_sparse.models.fit import (
    alternating_fit,
    candidate_fits,
    exact_fit,
    robust_fit,
)
from botorch_sparse.posteriors import Moments
from botorch_sparse.posteriors.outlier_noise import is_far, outlier_noise

N = 60
WRONG = [7, 30, 41]
SHORT = {"optimizer_kwargs": {"options": {"maxiter": 40}}}


def data(values: tuple[float, ...] = (6.0, -5.0, 8.0)) -> tuple[Tensor, Tensor]:
    """A curve with noise, some of whose values are wrong."""
    generator = torch.Generator().manual_seed(0)
    X = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(-1)
    noise = torch.randn(N, 1, generator=generator, dtype=torch.float64)
    Y = (7 * X).sin() + 0.1 * noise
    for row, value in zip(WRONG, values, strict=False):
        Y[row] = value
    return X, Y


def model_of(is_sparse: bool, X: Tensor, Y: Tensor, **options) -> SparseSingleTaskGP:
    points = X[..., ::5, :] if is_sparse else None
    return SparseSingleTaskGP(X, Y, inducing_points=points, **options)


def fitted(is_sparse: bool, X: Tensor, Y: Tensor, **options) -> SparseSingleTaskGP:
    model = model_of(is_sparse, X, Y, robust=True, **options)
    with pytest.warns(BotorchWarning, match="taken to be outliers.*rows"):
        fit_gpytorch_mll(make_mll(model), **SHORT)
    return model


def outliers(model: SparseSingleTaskGP) -> list[int]:
    return (model.outlier_noise > 0).nonzero()[..., -1].unique().tolist()


def kernel_matrix(n: int) -> np.ndarray:
    x = np.linspace(0, 1, n)
    return np.exp(-0.5 * ((x[:, None] - x) / 0.2) ** 2)


def log_likelihood(K: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
    """The exact one, with dense matrices."""
    _, log_det = np.linalg.slogdet(K + np.diag(d))
    square = y @ np.linalg.solve(K + np.diag(d), y)
    return float(-0.5 * (square + log_det + len(y) * math.log(2 * math.pi)))


def left_out_of(K: np.ndarray, y: np.ndarray, d: np.ndarray):
    """Leave-one-out moments by the exact GP of the others, one by one."""

    def left_out(rho: Tensor) -> Moments:
        moments = []
        for i in range(len(y)):
            rest = np.delete(np.arange(len(y)), i)
            A = K[np.ix_(rest, rest)] + np.diag((d + rho.numpy())[rest])
            w = np.linalg.solve(A, K[rest, i])
            moments.append((w @ y[rest], K[i, i] - w @ K[rest, i]))
        return Moments(*torch.tensor(np.array(moments)).unbind(-1))

    return left_out


def test_variance_maximizes_the_likelihood():
    """Of one outlier; the gain, above its price, is the closed form's."""
    n, i = 25, 11
    K, d = kernel_matrix(n), np.full(n, 0.01)
    y = np.sin(7 * np.linspace(0, 1, n))
    y[i] += 4.0
    left_out, Y = left_out_of(K, y, d), torch.from_numpy(y)
    rho = outlier_noise(left_out, Y, torch.from_numpy(d), num=n).numpy()
    assert np.flatnonzero(rho).tolist() == [i]
    at = {c: log_likelihood(K, y, d + c * rho) for c in (0.0, 0.9, 1.0, 1.1)}
    assert at[1.0] > max(at[0.9], at[1.1])
    mean, variance = (m[i].item() for m in left_out(torch.zeros(n)))
    t = (y[i] - mean) ** 2 / (variance + d[i])
    gain = 0.5 * (t - 1 - math.log(t))
    assert at[1.0] - at[0.0] == pytest.approx(gain) and gain > 2 * math.log(n)


def test_no_outlier_below_the_price():
    """The same observation is one or none as the price, 2 log n, falls or rises."""
    n, i = 25, 11
    K, d, y = kernel_matrix(n), np.full(n, 0.01), np.zeros(n)
    y[i] = 1.0
    Y, noise = torch.from_numpy(y), torch.from_numpy(d)
    mean, variance = (m[i].item() for m in left_out_of(K, y, d)(torch.zeros(n)))
    t = (y[i] - mean) ** 2 / (variance + d[i])
    gain = 0.5 * (t - 1 - math.log(t))
    for factor, is_found in ((0.99, True), (1.01, False)):
        num = round(math.exp(gain / 2) * factor)
        rho = outlier_noise(left_out_of(K, y, d), Y, noise, num=num)
        assert bool(rho.any()) == is_found


def test_far_values():
    Y = torch.tensor([[1.0, 2.0, 3.0, 4.0, 99.0], [1.0, 2.0, 3.0, 4.0, 23.0]])
    assert is_far(Y, -1).tolist() == [[False] * 4 + [True], [False] * 5]
    assert not is_far(torch.tensor([0.0, 0.0, 0.0, 0.0, 5.0]), -1).any()


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("values", [(6.0, -5.0, 8.0), (-1e6, -1e6, 6740.0)])
def test_finds_the_wrong_rows(is_sparse, values):
    X, Y = data(values)
    model = fitted(is_sparse, X, Y)
    assert outliers(model) == WRONG and model.is_exact != is_sparse
    assert dict(model.summary().rows)["outliers"] == "3"
    with torch.no_grad():
        posterior = model.posterior(X, observation_noise=True)
        error = (posterior.mean - (7 * X).sin()).abs().max().item()
        sd = posterior.variance.sqrt().max().item()
    assert error < 0.2 and sd < 0.3


def test_many_gross_outliers():
    """They make all errors large, and yet are found; with no fit too."""
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(60, 5, generator=generator, dtype=torch.float64)
    Y = X.sum(-1, keepdim=True).sin()
    Y[:8] = -1e6
    fit, look = (SparseSingleTaskGP(X, Y, robust=True) for _ in range(2))
    with pytest.warns(BotorchWarning, match="8 of 60"):
        fit_gpytorch_mll(make_mll(fit), **SHORT)
    with pytest.warns(BotorchWarning, match="8 of 60"):
        look.posterior(X[:1])
    assert outliers(fit) == outliers(look) == [*range(8)]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_posterior_has_the_extra_noise(is_sparse):
    """It is the plain model's with that noise given, and so is the objective."""
    X, Y = data()
    model = fitted(is_sparse, X, Y, outcome_transform=None)
    extra = model.outlier_noise
    noise = (model.likelihood.noise + extra).detach()
    torch.testing.assert_close(training_noise(model), noise)
    plain = model_of(
        is_sparse, X, Y, train_Yvar=noise.unsqueeze(-1), outcome_transform=None
    )
    state = {k: v for k, v in model.state_dict().items() if "likelihood" not in k}
    plain.load_state_dict(state, strict=False)
    Z = torch.rand(9, 1, dtype=torch.float64)
    p, q = model.posterior(Z), plain.posterior(Z)
    torch.testing.assert_close(p.mean, q.mean)
    torch.testing.assert_close(p.variance, q.variance)
    p, q = loo_cv(model).posterior, loo_cv(plain).posterior
    torch.testing.assert_close(p.mean, q.mean)
    objective = [
        m.likelihood(m(X), X).log_prob(Y[:, 0]) for m in (model.train(), plain.train())
    ]
    torch.testing.assert_close(*objective)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_sample_paths_and_pending_points(is_sparse):
    """They follow the posterior with the extra noise."""
    X, Y = data()
    model = fitted(is_sparse, X, Y, outcome_transform=None)
    posterior = model.posterior(X)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        values = draw_matheron_paths(model, torch.Size([400]))(X).squeeze(-1)
    error = (values.mean(0) - posterior.mean.squeeze(-1)).abs()
    assert (error < 6 * posterior.variance.squeeze(-1).sqrt() / 20 + 0.01).all()
    acqf = BatchUpperConfidenceBound(model, beta=4.0)
    ucb = posterior.mean + 2 * posterior.variance.sqrt()
    torch.testing.assert_close(
        acqf(X.unsqueeze(-2)), ucb.squeeze(-1), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("is_sparse", [False, True])
def test_plain_without_outliers(is_sparse):
    """To the bit, and nothing is announced."""
    X, Y = data(())
    models = [model_of(is_sparse, X, Y, robust=robust) for robust in (False, True)]
    for model in models:
        fit_gpytorch_mll(make_mll(model), **SHORT)
    plain, robust = ({**m.state_dict()} for m in models)
    assert all(torch.equal(plain[name], robust[name]) for name in plain)
    p, q = (m.posterior(X[:7] + 0.01) for m in models)
    assert torch.equal(p.mean, q.mean) and torch.equal(p.variance, q.variance)
    assert not models[1].outlier_noise.any()


def test_plain_after_a_refit(monkeypatch):
    """What seemed an outlier between two fits, and is none in the end, is forgotten."""
    X, Y = data(())
    plain, robust = (model_of(True, X, Y, robust=robust) for robust in (False, True))
    seeming = torch.zeros(N).double().index_fill(0, torch.tensor([30]), 9.0)

    def found(least_scale: float = 1.0) -> Tensor:
        return seeming if least_scale == 0.0 else torch.zeros_like(seeming)

    monkeypatch.setattr(robust, "_found_outliers", found)
    for model in (plain, robust):
        fit_gpytorch_mll(make_mll(model), **SHORT)
    states = plain.state_dict(), robust.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not robust.outlier_noise.any()


def counted_fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many observations each fit has."""
    sizes, fit_once = list[int](), candidate_fits.fit_once

    def counted(mll: MarginalLogLikelihood, options: dict) -> None:
        sizes.append(mll.model.train_targets.shape[-1])
        fit_once(mll, options)

    for module in (alternating_fit, robust_fit, exact_fit):
        monkeypatch.setattr(module, "fit_once", counted)
    return sizes


def test_few_rows_are_fitted_in_the_search(monkeypatch):
    """And all rows once, where outliers pay for sure."""
    monkeypatch.setattr(robust_fit, "FEW_ROWS", 30)
    sizes = counted_fits(monkeypatch)
    fitted(False, *data())
    *searched, last = sizes
    assert set(searched) == {30} and 2 <= len(searched) <= 4 and last == N


def test_all_rows_are_fitted_once_where_nothing_is_found(monkeypatch):
    monkeypatch.setattr(robust_fit, "FEW_ROWS", 30)
    sizes = counted_fits(monkeypatch)
    model = model_of(False, *data(()), robust=True)
    fit_gpytorch_mll(make_mll(model), **SHORT)
    assert sizes == [30, N]


def test_the_plain_fit_is_asked_where_few_rows_do_not_tell(monkeypatch):
    """With the same result, whichever of the two is fitted."""
    monkeypatch.setattr(robust_fit, "FEW_ROWS", 30)
    expected = fitted(False, *data())
    monkeypatch.setattr(robust_fit, "CLEARLY", float("inf"))
    sizes = counted_fits(monkeypatch)
    model = fitted(False, *data())
    assert sizes.count(N) == 2 and outliers(model) == WRONG
    state, wanted = model.state_dict(), expected.state_dict()
    assert all(torch.equal(state[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("clearly", [0.0, float("inf")])
@pytest.mark.parametrize("rows", [30, 500])
def test_the_plain_fit_is_kept_unless_outliers_pay(rows, clearly, monkeypatch):
    """Here none does, as dear as they are; where that is looked at it is plain."""
    monkeypatch.setattr(robust_fit, "FEW_ROWS", rows)
    monkeypatch.setattr(robust_fit, "price_of_outlier", lambda num: 1e6)
    monkeypatch.setattr(robust_fit, "CLEARLY", clearly)
    X, Y = data((2.0, -2.0, 2.0))  # none is far
    plain, robust = (model_of(False, X, Y, robust=robust) for robust in (False, True))
    fit_gpytorch_mll(make_mll(plain), **SHORT)
    if rows == 30 and clearly == 0.0:
        with pytest.warns(BotorchWarning, match="taken to be outliers"):
            fit_gpytorch_mll(make_mll(robust), **SHORT)
        assert robust.outlier_noise.any()
        return
    fit_gpytorch_mll(make_mll(robust), **SHORT)
    states = plain.state_dict(), robust.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not robust.outlier_noise.any()


def test_a_refit_forgets_outliers_that_no_longer_pay(monkeypatch):
    """It is the plain fit from the same hyperparameters, to the bit."""
    monkeypatch.setattr(robust_fit, "FEW_ROWS", 30)
    X, Y = data((2.0, -2.0, 2.0))
    robust = fitted(False, X, Y)
    assert robust.outlier_noise.any()
    plain = copy.deepcopy(robust)
    plain.robust, plain.outlier_noise = False, torch.zeros_like(robust.outlier_noise)
    monkeypatch.setattr(robust_fit, "price_of_outlier", lambda num: 1e6)
    for model in (plain, robust):
        fit_gpytorch_mll(make_mll(model), **SHORT)
    states = plain.state_dict(), robust.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not robust.outlier_noise.any()


def test_far_values_that_are_none_in_the_end(monkeypatch):
    """The plain fit, which had not been made."""
    X, Y = data((-1e6, -1e6, 6740.0))
    plain, robust = (model_of(False, X, Y, robust=robust) for robust in (False, True))
    monkeypatch.setattr(robust, "_found_outliers", lambda least_scale=1.0: none)
    none = torch.zeros(N, dtype=torch.float64)
    plain.outcome_transform, plain.train_targets = None, robust.train_targets
    for model in (plain, robust):
        fit_gpytorch_mll(make_mll(model), **SHORT)
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, robust.get_parameter(name))
    assert not robust.outlier_noise.any()


def test_rows_that_cannot_be_fitted_apart(monkeypatch):
    """All data are fitted in the search then."""

    def fails(*args: object) -> None:
        raise ModelFittingError("no")

    expected = fitted(False, *data())
    monkeypatch.setattr(robust_fit, "FEW_ROWS", 30)
    monkeypatch.setattr(robust_fit, "on_random_rows", fails)
    model = fitted(False, *data())
    state, wanted = model.state_dict(), expected.state_dict()
    assert all(torch.equal(state[name], wanted[name]) for name in wanted)


def test_learned_points_are_those_of_the_fit_that_is_kept(monkeypatch):
    """Plain, to the bit, where that one wins after a robust one; and the other way."""
    X, Y = data((2.0, -2.0, 2.0))
    models = [
        SparseSingleTaskGP(
            X, Y, robust=robust, learn_inducing_points=True, max_inducing_points=6
        )
        for robust in (False, True, True)
    ]
    plain, robust, dear = models
    for model in (plain, robust):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BotorchWarning)
            fit_gpytorch_mll(make_mll(model), **SHORT)
    assert robust.outlier_noise.any()
    assert torch.equal(robust.learned_points, robust.inducing_points)
    monkeypatch.setattr(robust_fit, "price_of_outlier", lambda num: 1e6)
    fit_gpytorch_mll(make_mll(dear), **SHORT)
    states = plain.state_dict(), dear.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_transforms_within_transforms_learn_nothing_from_inducing_points():
    """The bounds of a warping are those of all data."""
    X, Y = data(())
    warp = Warp(1, [0])
    model = model_of(True, X, Y, robust=True, input_transform=warp)
    fit_gpytorch_mll(make_mll(model), **SHORT)
    model.train()
    mapped = model.transform_inputs(X).detach()
    points = model._transformed(X[::5]).detach()
    torch.testing.assert_close(points, mapped[::5])


def test_to_look_for_outliers_changes_nothing():
    X, Y = data()
    model = fitted(True, X, Y)
    before = model.outlier_noise
    model._found_outliers()
    assert model.outlier_noise is before


@pytest.mark.parametrize("is_sparse", [False, True])
def test_found_at_the_first_prediction(is_sparse):
    """Of new data and hyperparameters that come from elsewhere."""
    X, Y = data()
    model = fitted(is_sparse, X, Y)
    other = model_of(is_sparse, X, Y, robust=True)
    assert not other.outlier_noise.any()
    other.load_state_dict(model.state_dict())
    with pytest.warns(BotorchWarning, match="rows '?7'?, '?30'?, '?41'?"):
        found = other.eval().posterior(X).mean
    torch.testing.assert_close(found, model.posterior(X).mean, rtol=1e-3, atol=1e-3)
    assert outliers(other) == WRONG
    targets = model.train_targets.clone()
    targets[WRONG[0]] = targets[WRONG[0] - 1]
    model.set_train_data(targets=targets, strict=False)
    assert not model.outlier_noise.any()
    with pytest.warns(BotorchWarning, match="2 of 60"):
        model.posterior(X[:1])
    assert outliers(model) == WRONG[1:]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_an_input_transform_changes_nothing(is_sparse):
    """Inputs are set anew with each mode; what the fit found is of the same data."""
    X, Y = data()  # from 0 to 1 as they are
    plain = fitted(is_sparse, X, Y)
    scaled = fitted(is_sparse, X, Y, input_transform=Normalize(1))
    for model in (scaled, scaled.train(), scaled.eval()):
        torch.testing.assert_close(model.outlier_noise, plain.outlier_noise)
    new = scaled.train()
    new.set_train_data(X[:20], Y[:20, 0], strict=False)
    assert outliers(new) == []


def test_copies_keep_what_was_found():
    X, Y = data()
    model = fitted(True, X, Y)
    expected = model.posterior(X[:5]).mean
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.outlier_noise, model.outlier_noise)
        torch.testing.assert_close(other.posterior(X[:5]).mean, expected)
    single = copy.deepcopy(model).to(torch.float32)
    assert single.outlier_noise.dtype == torch.float32


@pytest.mark.parametrize("is_sparse", [False, True])
def test_conditioning(is_sparse):
    """Old rows keep their extra noise, and new ones have none."""
    X, Y = data()
    model = fitted(is_sparse, X, Y)
    new_X = torch.tensor([[0.113], [0.52]], dtype=torch.float64)
    new_Y = (7 * new_X).sin()
    more = model.condition_on_observations(new_X, new_Y)
    extra = torch.cat([model.outlier_noise, torch.zeros(2).to(X)])
    assert torch.equal(more.outlier_noise, extra)
    again = copy.deepcopy(more)
    again.train()
    again.eval()  # forgets all caches
    for Z in (new_X, X[WRONG]):
        p, q = more.posterior(Z), again.posterior(Z)
        torch.testing.assert_close(p.mean, q.mean)
        torch.testing.assert_close(p.variance, q.variance)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_fantasies(is_sparse):
    """Each is the model that is conditioned on the same values."""
    X, Y = data()
    model = fitted(is_sparse, X, Y, outcome_transform=None)
    new_X = torch.tensor([[0.113], [0.52]], dtype=torch.float64)
    sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
    fantasy = model.fantasize(new_X, sampler)
    values = fantasy.train_targets[..., -2:].unsqueeze(-1)
    p = fantasy.posterior(X[WRONG])
    for i, Z in enumerate(values):
        q = model.condition_on_observations(new_X, Z).posterior(X[WRONG])
        torch.testing.assert_close(p.mean[i], q.mean)
        torch.testing.assert_close(p.variance[i], q.variance)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_several_outputs(is_sparse):
    """Each has outliers of its own."""
    X, Y = data()
    clean = data(())[1]
    clean[20] = 9.0
    model = fitted(is_sparse, X, torch.cat([Y, clean], dim=-1))
    extra = model.outlier_noise
    assert extra.shape == (2, N)
    assert extra[0].nonzero().squeeze(-1).tolist() == WRONG
    assert extra[1].nonzero().squeeze(-1).tolist() == [20]
    first, second = (model.subset_output([j]) for j in range(2))
    assert torch.equal(first.outlier_noise, extra[0])
    assert torch.equal(second.outlier_noise, extra[1])
    p = second.posterior(X[:3])
    torch.testing.assert_close(p.mean, model.posterior(X[:3]).mean[:, 1:])


def test_outputs_that_are_fitted_apart():
    """The warning has the rows of all of them."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(520, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(520, 2, generator=generator, dtype=torch.float64)
    Y = torch.cat([(5 * X).sin(), X.square()], dim=-1) + 0.1 * noise
    Y[3, 0], Y[500, 1] = 9.0, -9.0
    model = SparseSingleTaskGP(X, Y, robust=True)
    with pytest.warns(BotorchWarning, match="2 of 520.*rows 3, 500"):
        fit_gpytorch_mll(make_mll(model), optimizer_kwargs={"options": {"maxiter": 8}})
    assert model.outlier_noise.nonzero().tolist() == [[0, 3], [1, 500]]
    noise = (
        model.likelihood.noise.squeeze(-1).sqrt() * model.outcome_transform.stdvs[0]
    ).tolist()
    assert noise == pytest.approx([0.1, 0.1], rel=0.15)


def test_known_noise():
    """It is added to the noise that was given."""
    X, Y = data()
    model = fitted(False, X, Y, train_Yvar=torch.full_like(Y, 0.01))
    assert outliers(model) == WRONG
    noise = training_noise(model) - model.outlier_noise
    torch.testing.assert_close(noise, model.likelihood.noise)


def test_a_batch_of_data():
    X, Y = data()
    Y = torch.stack([Y, data(())[1]])
    model = fitted(True, X.expand(2, N, 1), Y)
    assert model.outlier_noise[0].nonzero().squeeze(-1).tolist() == WRONG
    assert not model.outlier_noise[1].any()


def test_a_fit_that_fails_changes_nothing(monkeypatch):
    X, Y = data()
    model = fitted(True, X, Y)
    before, extra = copy.deepcopy(model.state_dict()), model.outlier_noise
    with monkeypatch.context() as patch:
        patch.setattr(model, "_found_outliers", _fail)
        with pytest.raises(ModelFittingError, match="on purpose"):
            fit_gpytorch_mll(make_mll(model), **SHORT)
    assert model.outlier_noise is extra
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def _fail(**kwargs: object) -> Tensor:
    raise ModelFittingError("on purpose")


def test_announced_once():
    X, Y = data()
    model = fitted(True, X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_gpytorch_mll(make_mll(model), **SHORT)
        model.posterior(X)


def test_scale_without_far_values():
    """The default transform is that of the other values; one that is given stays."""
    X, Y = data((-1e6, 6740.0))
    kept = torch.ones(N).bool().index_fill(0, torch.tensor(WRONG[:2]), False)
    transform = SparseSingleTaskGP(X, Y, robust=True).outcome_transform
    torch.testing.assert_close(transform.means, Y[kept].mean(0, keepdim=True))
    torch.testing.assert_close(transform.stdvs, Y[kept].std(0, keepdim=True))
    own = Standardize(m=1)
    assert (
        SparseSingleTaskGP(X, Y, outcome_transform=own, robust=True).outcome_transform
        is own
    )


def test_construct_inputs():
    from botorch.utils.datasets import SupervisedDataset

    X, Y = data()
    names = {"feature_names": ["x"], "outcome_names": ["y"]}
    inputs = SparseSingleTaskGP.construct_inputs(
        SupervisedDataset(X, Y, **names), robust=True
    )
    assert SparseSingleTaskGP(**inputs).robust
