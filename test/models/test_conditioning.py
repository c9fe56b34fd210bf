"""Conditioning and fantasies of a sparse model, against dense closed forms."""

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from botorch import settings
from botorch.exceptions import InputDataError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from sparse_model_cases import (
    BATCHES,
    CLOSE,
    check,
    dtc,
    make_model,
    observed,
    random_data,
    transformed,
)
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.inducing_points import EXACT_SIZE

close = torch.testing.assert_close
F = 3  # fantasies


def new_data(
    model: SparseSingleTaskGP, same_inputs: bool, fixed_noise: bool, **tkwargs: Any
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Two points for each of `F` fantasies; noise as `fantasize` passes it."""
    batch, num_outputs = tuple(model.batch_shape), model.num_outputs
    X, Y, Yvar = random_data((F, *batch), num_outputs, n=2, seed=3, **tkwargs)
    if same_inputs:
        return X[0], Y, {"noise": Yvar[0]} if fixed_noise else {}
    return X, Y, {"noise": Yvar} if fixed_noise else {}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("transform", [None, "normalize"])
@pytest.mark.parametrize("same_inputs", [False, True])
@pytest.mark.filterwarnings("ignore:Non-strict enforcement of botorch tensor")
def test_conditioning_is_the_closed_form(
    batch, num_outputs, fixed_noise, transform, same_inputs, double
):
    """Also after a copy, a pickle, and after it was built from its data again."""
    standardize = transform is not None
    model = make_model(
        batch, num_outputs, fixed_noise, standardize, transform, **double
    )
    X, Y, noise = new_data(model, same_inputs, fixed_noise, **double)
    data = observed(model) + transformed(model, X, Y, noise.get("noise"))
    conditioned = model.condition_on_observations(X, Y, **noise)
    assert conditioned.batch_shape == (F, *batch)
    for copied in (
        conditioned,
        copy.deepcopy(conditioned),
        pickle.loads(pickle.dumps(conditioned)),
    ):
        check(copied, model, data)
    conditioned.train()
    assert conditioned.train_inputs[0].shape[-2] == 16
    conditioned.eval()
    check(conditioned, model, data)
    close(conditioned.train_inputs[0], data.X)
    close(conditioned.train_targets, data.y)
    check(model, model, observed(model))


@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_nested_fantasies(fixed_noise, num_outputs, double):
    model = make_model((), num_outputs, fixed_noise, transform="normalize", **double)
    X, X2 = (random_data((5,), 1, n=q, seed=q, **double)[0] for q in (1, 2))
    first = model.fantasize(X, SobolQMCNormalSampler(torch.Size([F]), seed=1))
    second = first.fantasize(X2, SobolQMCNormalSampler(torch.Size([2]), seed=2))
    assert first.batch_shape == (F, 5) and second.batch_shape == (2, F, 5)
    joined = observed(second)
    if fixed_noise:
        own = model.likelihood.noise
        close(
            joined.d[..., -3:], own.mean(-1, keepdim=True).expand_as(joined.d[..., -3:])
        )
    check(second, model, joined)
    assert second.nystrom_posterior().updates == ()


@pytest.mark.parametrize("fixed_noise", [False, True])
def test_a_chain_keeps_nothing_but_the_data(fixed_noise, double):
    """It stays the closed form, with one factor; no model holds another or a graph."""
    model = make_model(fixed_noise=fixed_noise, transform="normalize", **double)
    conditioned, data, before = model, observed(model), []
    for seed in range(4):
        X, Y, Yvar = random_data((), 1, n=seed + 1, seed=seed, **double)
        before.append(weakref.ref(conditioned))
        noise = {"noise": Yvar} if fixed_noise else {}
        conditioned = conditioned.condition_on_observations(X, Y, **noise)
        data = data + transformed(model, X, Y, noise.get("noise"))
        assert type(conditioned) is SparseSingleTaskGP
        posterior = conditioned.nystrom_posterior()
        assert not posterior.weights.requires_grad
        assert not posterior.chol_inner.requires_grad and posterior.updates == ()
    gc.collect()
    assert [ref() for ref in before[1:]] == [None] * 3
    check(conditioned, model, data)
    assert conditioned.train_targets.shape == (24,)
    expected = conditioned.posterior(X).mean
    model.covar_module.lengthscale = 9.0  # of the first one alone
    close(conditioned.posterior(X).mean, expected)


@pytest.mark.parametrize("fixed_noise", [False, True])
@pytest.mark.parametrize("is_exact", [False, True])
def test_copies_where_a_gradient_is_attached(fixed_noise, is_exact, double):
    """A copy predicts the same, and leaves the graph behind."""
    model = make_model((), 1, fixed_noise, m=14 if is_exact else 6, **double)
    X, Y, Yvar = (t.requires_grad_() for t in random_data((), 1, n=2, **double))
    noise = {"noise": Yvar} if fixed_noise else {}
    conditioned = model.condition_on_observations(X, Y, **noise)
    test_X = random_data((), 1, n=3, seed=9, **double)[0]
    expected = conditioned.posterior(test_X).mean
    assert expected.requires_grad
    for copied in (copy.deepcopy(conditioned), pickle.loads(pickle.dumps(conditioned))):
        close(copied.posterior(test_X).mean, expected)
        assert not copied.train_targets.requires_grad


@pytest.mark.parametrize("q", [0, 8])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("fixed_noise", [False, True])
def test_number_of_new_points(q, batch, fixed_noise, double):
    """None at all, and more than there are inducing points."""
    model = make_model(batch, 2, fixed_noise, **double)
    X = random_data((5, *batch), 1, n=8, seed=4, **double)[0][..., :q, :]
    fantasies = model.fantasize(X, SobolQMCNormalSampler(torch.Size([F]), seed=1))
    assert fantasies.batch_shape == (F, 5, *batch)
    check(fantasies, model, observed(fantasies))
    assert fantasies.train_targets.shape == (F, 5, *batch, 2, 14 + q)


@pytest.mark.parametrize("is_exact", [True, False])
def test_conditioning_is_that_of_the_exact_model(is_exact, double):
    """By both routes at inducing points; an exact model stays exact at other points."""
    n = 20 if is_exact else EXACT_SIZE + 1
    X, Y, Yvar = random_data((), 1, n=n, **double)
    sparse = SparseSingleTaskGP(X, Y, Yvar, inducing_points=X).eval()
    exact = SingleTaskGP(X, Y, Yvar)
    exact.posterior(X[:1])
    assert sparse.is_exact is is_exact
    for new_X in (X[3:6], X[3:6] + 0.1) if is_exact else (X[3:6],):
        ours, theirs = (
            m.condition_on_observations(new_X, Y[3:6] + 1.0, noise=Yvar[3:6])
            for m in (sparse, exact)
        )
        ours, theirs = ours.posterior(X), theirs.posterior(X)
        close(ours.mean, theirs.mean, rtol=0, atol=1e-6)
        covariances = [p.distribution.covariance_matrix for p in (ours, theirs)]
        close(*covariances, rtol=0, atol=1e-6)


def test_given_noise_and_learned_noise_add_up(double):
    """As in a model that is built anew from all the data."""
    X, Y, _ = random_data((), 1, n=20, **double)
    noise = torch.linspace(0.01, 0.05, 20, **double)
    models = []
    for n in (17, 20):
        likelihood = FixedNoiseGaussianLikelihood(
            noise[:n], learn_additional_noise=True
        )
        model = SparseSingleTaskGP(
            X[:n],
            Y[:n],
            likelihood=likelihood,
            inducing_points=X[:6],
            outcome_transform=None,
        )
        model.likelihood.second_noise = 0.1
        models.append(model.eval())
    model, whole = models
    new = model.condition_on_observations(X[17:], Y[17:], noise=noise[17:, None])
    for _ in range(2):
        for kind in ("mean", "variance"):
            actual = getattr(new.posterior(X), kind)
            close(actual, getattr(whole.posterior(X), kind), **CLOSE)
        new.train().eval()


@pytest.mark.parametrize("is_exact", [True, False])
def test_lifecycle(is_exact, double):
    """Training data and moves after conditioning."""
    options = {"inducing_points": None} if is_exact else {}
    model = make_model(transform="normalize", options=options, **double)
    X, Y, _ = random_data((), 1, n=3, seed=8, **double)
    conditioned = model.condition_on_observations(X, Y)
    assert conditioned.is_exact == model.is_exact == is_exact
    before = conditioned.posterior(X).mean
    conditioned.train()
    assert conditioned.is_exact == is_exact
    close(conditioned.posterior(X).mean, before, **CLOSE)
    assert torch.equal(conditioned.inducing_points, model.inducing_points) != is_exact

    targets = conditioned.train_targets + 1.0
    conditioned.set_train_data(targets=targets, strict=False)
    assert (conditioned.posterior(X).mean - before).abs().max() > 0.1
    again = model.condition_on_observations(X, Y)
    moved = again.float().posterior(X.float()).mean
    close(moved.double(), before, rtol=1e-3, atol=1e-3)


def test_gradients_reach_the_fantasy_points(double):
    """Through the points, the observations, and through nested fantasies."""
    model = make_model(transform="normalize", **double)
    test_X = random_data((), 1, n=2, seed=6, **double)[0]
    X, Y, _ = random_data((2,), 1, n=2, seed=3, **double)
    X2 = random_data((2,), 1, n=1, seed=4, **double)[0]

    def moments(X: Tensor, Y: Tensor, X2: Tensor) -> tuple[Tensor, Tensor]:
        conditioned = model.condition_on_observations(X, Y)
        sampler = SobolQMCNormalSampler(torch.Size([2]), seed=1)
        nested = conditioned.fantasize(X2, sampler, propagate_grads=True)
        posterior = nested.posterior(test_X)
        return posterior.mean, posterior.distribution.covariance_matrix

    inputs = tuple(t.requires_grad_() for t in (X, Y, X2))
    assert torch.autograd.gradcheck(moments, inputs)


@pytest.mark.parametrize("transform", [None, "normalize"])
def test_an_exact_model_is_conditioned_twice_with_gradients(transform, double):
    """As the exact GP, whose look-ahead does that."""
    X, Y, _ = random_data((), 1, n=9, **double)
    test_X, x = random_data((), 1, n=3, seed=9, **double)[0], X[:1] + 0.05
    moments = []
    for kind in (SingleTaskGP, SparseSingleTaskGP):
        scale = Normalize(X.shape[-1]) if transform else None
        model = kind(X, Y, input_transform=scale).eval()
        new = x.clone().requires_grad_()
        for shift in (0.0, 0.1, 0.2):
            model.posterior(test_X)
            model = model.condition_on_observations(new + shift, Y[:1] + shift)
        mean = model.posterior(test_X).mean
        (gradient,) = torch.autograd.grad(mean.sum(), new)
        moments.append((mean.detach(), gradient))
    assert moments[0][1].abs().max() > 0.1
    torch.testing.assert_close(*moments)


def test_hyperparameters_get_gradients_when_asked(double):
    model = make_model(**double)
    X, Y, _ = random_data((2,), 1, n=1, seed=3, **double)
    lengthscale = model.covar_module.raw_lengthscale
    values = []
    for propagate in (True, False):
        with settings.propagate_grads(propagate):
            conditioned = model.condition_on_observations(X, Y)
        mean = conditioned.posterior(X[0]).mean.sum()
        values.append(torch.autograd.grad(mean, lengthscale)[0])
    model.zero_grad()
    data = observed(model) + transformed(model, X, Y)
    mean, _ = dtc(model, data, X[0])
    stdvs = model.outcome_transform.stdvs.squeeze()
    expected = torch.autograd.grad(stdvs * mean.sum(), lengthscale)[0]
    close(values[0], expected, rtol=1e-6, atol=1e-8)
    assert not torch.allclose(values[1], expected)


class TestErrors:
    """The messages of SingleTaskGP."""

    def refuse(self, model: Any, X: Any, Y: Any, match: str, **double: Any) -> None:
        with pytest.raises(RuntimeError, match=match):
            model.get_fantasy_model(torch.rand(*X, **double), torch.rand(*Y, **double))

    def test_batches(self, double):
        model = make_model((2,), **double)
        match = "Unsupported batch shapes"
        self.refuse(model, (1, 2), (4, 3, 2, 1), match, **double)
        self.refuse(model, (3, 1, 2), (3, 1), "are not broadcastable", **double)

    def test_train_mode(self, double):
        model = make_model(**double).train()
        self.refuse(model, (1, 2), (1,), "after making predictions", **double)

    def test_fixed_noise_needs_noise(self, double):
        model = make_model(fixed_noise=True, **double)
        self.refuse(model, (1, 2), (1,), "requires a `noise` kwarg", **double)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.1])
    @pytest.mark.parametrize("fixed_noise", [False, True])
    def test_noise(self, bad, fixed_noise):
        model = make_model(fixed_noise=fixed_noise)
        X, Y, noise = random_data((), 1, n=2, seed=3)
        noise[1] = bad
        with pytest.raises(InputDataError, match="variances must be finite"):
            model.condition_on_observations(X, Y, noise=noise)

    @pytest.mark.parametrize("which", [0, 1])
    def test_observations(self, which, double):
        """Refused on the CPU; a device is not waited for, and predicts NaN."""
        model = make_model(**double)
        data = random_data((), 1, n=2, seed=3, **double)[:2]
        data[which][1] = [float("nan"), -float("inf")][which]
        if double["device"].type != "cpu":
            new = model.condition_on_observations(*data)
            assert (
                new.posterior(random_data((), 1, n=2)[0].to(**double))
                .mean.isnan()
                .all()
            )
            return
        with pytest.raises(InputDataError, match="observations must be finite"):
            model.condition_on_observations(*data)
