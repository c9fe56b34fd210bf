"""The subset GP is the exact GP of its rows, and costs what they do."""

from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Log
from gpytorch.mlls import ExactMarginalLogLikelihood
from subset_model_cases import (
    Recorded,
    dense_posterior,
    every_kind,
    exact_on_subset,
    make_data,
    make_model,
    rows,
)
from torch import Tensor

from botorch_sparse.inducing import GradientFactors, select_by_gradient_diversity
from botorch_sparse.models import SubsetSingleTaskGP

close = torch.testing.assert_close
ONCE: dict[str, Any] = {"optimizer_kwargs": {"options": {"maxiter": 3}}}
pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


def check_posterior(
    model: SubsetSingleTaskGP, data: tuple[Tensor | None, ...], tkwargs: Any
) -> None:
    """Mean and joint covariance, at a batch of points, against the dense ones."""
    generator = torch.Generator().manual_seed(5)
    X = 3 * torch.rand(2, 4, 2, generator=generator).to(**tkwargs)
    small = 1e-8 if tkwargs["dtype"] == torch.float64 else 2e-3
    found, expected = model.posterior(X), dense_posterior(model, data, X)
    for name in ("mean", "covariance_matrix"):
        values = (getattr(p.distribution, name) for p in (found, expected))
        close(*values, rtol=small, atol=small)


def check_rows(model: SubsetSingleTaskGP, data: tuple[Tensor | None, ...]) -> None:
    """Training data are the chosen rows, in their order; full data are all."""
    index = model.subset_indices
    assert torch.equal(model.all_train_X, data[0])
    assert torch.equal(model.all_train_Y, data[1])
    assert (model.all_train_Yvar is None) == (data[2] is None)
    assert len(index.unique()) == len(index) == model.train_targets.shape[-1]
    raw = model.train().train_inputs[0]
    model.eval()
    assert torch.equal(raw, data[0][index].expand_as(raw))
    assert {0, 1, len(data[0]) - 1} <= set(index.tolist())


@every_kind
@pytest.mark.parametrize("selection", ["gradient", "random", "recent"])
def test_it_is_exact_on_its_rows_as_data_come(
    m, fixed_noise, transform, selection, tkwargs
):
    data = make_data(60, m, fixed_noise, **tkwargs)
    model = make_model(rows(data, slice(40)), transform, selection=selection)
    check_rows(model, rows(data, slice(40)))
    for n in (41, 42, 45, 60):
        old = model.num_observations
        model.add_observations(*rows(data, slice(old, n)))
        so_far = rows(data, slice(n))
        check_posterior(model, so_far, tkwargs)
        check_rows(model, so_far)
        new = range(max(old, n - 10), n)
        assert set(new) <= set(model.subset_indices.tolist())


@pytest.mark.parametrize("fixed_noise", [False, True])
def test_no_observations_change_nothing(fixed_noise, double):
    data = make_data(40, fixed_noise=fixed_noise, **double)
    model = make_model(data)
    before, num = model.subset, model.num_selections
    model.add_observations(*rows(data, slice(0)))
    assert model.subset is before and model.num_selections == num


def test_how_many_rows(double):
    """All of few data, and what is asked for; it may change."""
    data = make_data(20, **double)
    model = make_model(rows(data, slice(5)))
    for n in range(6, 15):
        model.add_observations(*rows(data, slice(n - 1, n)))
        assert model.subset_indices.tolist()[:2] == [0, 1]
        assert len(model.subset_indices) == min(n, 12)
    everything = make_model(data, subset_size=None)
    assert everything.subset_indices.tolist() == list(range(20))
    assert everything.num_selections == 0 != model.num_selections
    for size in (6, 10, None, 8):
        everything.subset_size = size
        everything.reselect()
        assert len(everything.subset_indices) == (size or 20)
        check_posterior(everything, data, double)


@pytest.mark.parametrize("gradients", ["pilot", "exact"])
@pytest.mark.parametrize("reading", ["contribution", "column", "scalar"])
@every_kind
def test_the_choice_is_that_of_the_gradients(
    m, fixed_noise, transform, reading, gradients, double
):
    data = make_data(40, m, fixed_noise, **double)
    options = {"reading": reading, "gradients": gradients, "noise_scale": 0.0}
    model = make_model(data, transform, **options)
    if gradients == "exact":
        # K_y^-1 of all data, transformed by hand; the prior mean is zero.
        exact = exact_on_subset(make_model(data, transform, subset_size=None), data)
        prior = exact.likelihood(exact.forward(exact.train_inputs[0]))
        inverse = torch.linalg.inv(prior.covariance_matrix.detach())
        error = exact.train_targets.unsqueeze(-1)
        G = {"contribution": inverse * error, "scalar": inverse @ error}
        G = G.get(reading, inverse)
        close(model.sample_gradients(), -torch.cat(list(G.reshape(m, 40, -1)), -1))
    given = model.sample_gradients()
    assert isinstance(given, GradientFactors) == (
        gradients == "pilot" and reading != "scalar"
    )
    expected = select_by_gradient_diversity(given, 12, [0, 1, 39])
    model.reselect()
    assert set(model.subset_indices.tolist()) == set(expected.tolist())


def test_seeds_reproduce(double):
    data = make_data(60, **double)

    def chosen(**options: Any) -> list[list[int]]:
        model = make_model(rows(data, slice(40)), noise_scale=10.0, **options)
        found = [model.subset_indices.tolist()]
        for n in (41, 42):
            model.add_observations(*rows(data, slice(n - 1, n)))
            found.append(model.subset_indices.tolist())
        return found

    for name in ("gradient", "random"):
        first, again, other = (chosen(selection=name, seed=i) for i in (1, 1, 2))
        assert first == again != other
    model = make_model(data, selection="random")
    seeded = [torch.Generator().manual_seed(7) for _ in range(2)]
    subsets = [model.reselect(g).subset_indices.tolist() for g in seeded]
    assert set(subsets[0]) == set(subsets[1])
    assert set(model.reselect(seeded[0]).subset_indices.tolist()) != set(subsets[0])


def test_given_rows_are_in_order_and_stay_before_the_new(double):
    data = make_data(40, **double)
    model = make_model(data, selection="recent")
    for given in ([5, 3, 20, 8], [8, 30, 5], [33, 5, 31, 1]):
        model.set_subset(torch.tensor(given))
        assert model.subset_indices.tolist() == given
        assert torch.equal(model.train().train_inputs[0], data[0][given])
        check_posterior(model, data, double)
    model.reselect()
    assert model.subset_indices.tolist()[:3] == [33, 31, 1]
    assert set(model.subset_indices.tolist()) == {0, 1, *range(30, 40)}
    model.selection = "random"
    model.reselect(num_newest=5)
    assert {0, 1, *range(35, 40)} <= set(model.subset_indices.tolist())


def test_a_callable_selects(double):
    asked = []

    def best(model: Any, num: int, forced: Tensor, generator: Any) -> Tensor:
        asked.append((num, forced.tolist(), len(model.subset_indices)))
        order = model.all_train_Y.squeeze(-1).argsort(descending=True)
        return torch.cat([forced, order[~torch.isin(order, forced)]])[:num]

    data = make_data(40, **double)
    model = make_model(data, selection=best)
    assert asked == [(12, [0, 1, 39], 12)]
    top = data[1].squeeze(-1).topk(9).indices.tolist()
    assert set(top) <= set(model.subset_indices.tolist())


def test_a_fit_is_that_of_the_rows(double):
    data = make_data(40, **double)
    model = make_model(data)
    exact = exact_on_subset(model, data)
    for each in (model, exact):
        mll = ExactMarginalLogLikelihood(each.likelihood, each)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 20}})
    found, expected = model.covar_module, exact.covar_module
    close(found.lengthscale, expected.lengthscale, rtol=1e-5, atol=0)
    check_posterior(model, data, double)


def test_transforms_are_of_all_data_until_they_are_refitted(double):
    """Units must not change while hyperparameters stand, nor by a fit to the rows."""
    X, Y, _ = make_data(60, **double)
    X[40:] += 9
    Y[40:] += 9
    model = make_model((X[:40], Y[:40], None), transform=True)

    def check_are_of(n: int) -> None:
        close(model.outcome_transform.means[0], Y[:n].mean(0))
        close(model.outcome_transform.stdvs[0], Y[:n].std(0))
        close(model.input_transform.mins[0], X[:n].amin(0))
        close(model.input_transform.ranges[0], X[:n].amax(0) - X[:n].amin(0))

    check_are_of(40)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), **ONCE)
    model.add_observations(X[40:], Y[40:])
    check_are_of(40)
    model.refit_transforms()
    check_are_of(60)
    check_posterior(model, (X, Y, None), double)


def test_a_transform_that_cannot_be_standardize(double):
    X, Y, _ = make_data(40, **double)
    model = make_model((X, Y.exp(), None), outcome_transform=Log())
    model.add_observations(X[:1] + 0.1, Y[:1].exp())
    expected = model.all_train_Y[model.subset_indices].log().squeeze(-1)
    close(model.train_targets, expected)
    assert model.posterior(X[:2]).mean.shape == (2, 1)


@pytest.mark.parametrize("selection", ["gradient", "random", "recent"])
@pytest.mark.parametrize("noise_scale", [0.0, 0.1])
def test_reselection_makes_nothing_of_size_n_squared(selection, noise_scale, double):
    n, size = 400, 10
    data = make_data(n + 1, **double)
    options = {"selection": selection, "noise_scale": noise_scale}
    model = make_model(rows(data, slice(n)), subset_size=size, **options)
    with Recorded() as done:
        model.add_observations(*rows(data, slice(n, n + 1)))
        model.posterior(data[0][:3])
    assert 0 < done.numel <= 4 * n * size
    assert max(done.factorizations) == size


def test_points_apart_share_the_factor(double):
    """An acquisition function asks for `b x 1` points: not b copies of M x M."""
    data = make_data(150, **double)
    model = make_model(data, subset_size=100).eval()
    points = data[0][:60]
    with torch.no_grad(), Recorded() as first:
        variance = model.posterior(points.unsqueeze(-2)).variance
    assert first.numel <= 60 * 100 * 10  # and not 60 * 100 * 100
    close(variance.squeeze(-1), model.posterior(points).variance)
    with Recorded() as warm:
        model.posterior(points)
    assert warm.factorizations == []
