"""The subset GP is the exact GP of its rows, whatever happened before."""

from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Log
from gpytorch.mlls import ExactMarginalLogLikelihood
from subset_model_cases import (
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


def tolerance(tkwargs: dict[str, Any]) -> dict[str, float]:
    small = 1e-8 if tkwargs["dtype"] == torch.float64 else 2e-3
    return {"rtol": small, "atol": small}


def check_posterior(
    model: SubsetSingleTaskGP, data: tuple[Tensor | None, ...], tkwargs: Any
) -> None:
    """Mean and joint covariance, at a batch of points, against the dense ones."""
    X = 3 * torch.rand(2, 4, 2, generator=torch.Generator().manual_seed(5)).to(
        **tkwargs
    )
    posterior, expected = model.posterior(X), dense_posterior(model, data, X)
    close(posterior.mean, expected.mean, **tolerance(tkwargs))
    close(
        posterior.distribution.covariance_matrix,
        expected.distribution.covariance_matrix,
        **tolerance(tkwargs),
    )


def check_rows(model: SubsetSingleTaskGP, data: tuple[Tensor | None, ...]) -> None:
    """Training data are the chosen rows, in their order; full data are all."""
    index = model.subset_indices
    assert torch.equal(model.all_train_X, data[0])
    assert torch.equal(model.all_train_Y, data[1])
    assert (model.all_train_Yvar is None) == (data[2] is None)
    assert len(index.unique()) == len(index) == model.train_targets.shape[-1]
    raw = model.train().train_inputs[0]
    model.eval()
    expected = data[0][index]
    assert torch.equal(raw, expected.expand_as(raw))
    n = len(data[0])
    assert {0, 1, n - 1} <= set(index.tolist())


@every_kind
@pytest.mark.parametrize("selection", ["gradient", "random", "recent"])
def test_it_is_exact_on_its_rows_as_data_come(
    m: int, fixed_noise: bool, transform: bool, selection: str, tkwargs: dict[str, Any]
) -> None:
    data = make_data(60, m, fixed_noise, **tkwargs)
    model = make_model(rows(data, slice(40)), transform, selection=selection)
    check_rows(model, rows(data, slice(40)))
    for n in (41, 42, 45, 60):
        old = model.num_observations
        model.add_observations(*rows(data, slice(old, n)))
        so_far = rows(data, slice(n))
        check_posterior(model, so_far, tkwargs)
        check_rows(model, so_far)
        new = set(range(old, n)) if n - old <= 10 else set(range(n - 10, n))
        assert new <= set(model.subset_indices.tolist())


@pytest.mark.parametrize("fixed_noise", [False, True])
def test_no_observations_change_nothing(
    fixed_noise: bool, double: dict[str, Any]
) -> None:
    data = make_data(40, fixed_noise=fixed_noise, **double)
    model = make_model(data)
    before, num = model.subset, model.num_selections
    model.add_observations(*rows(data, slice(0)))
    assert model.subset is before and model.num_selections == num


def test_rows_of_few_data_are_all(double: dict[str, Any]) -> None:
    data = make_data(20, **double)
    model = make_model(rows(data, slice(5)))
    for n in range(6, 15):
        model.add_observations(*rows(data, slice(n - 1, n)))
        assert model.subset_indices.tolist()[: min(n, 2)] == [0, 1]
        assert len(model.subset_indices) == min(n, 12)
    everything = make_model(data, subset_size=None)
    assert everything.subset_indices.tolist() == list(range(20))
    assert everything.num_selections == 0 != model.num_selections


@pytest.mark.parametrize("gradients", ["pilot", "exact"])
@pytest.mark.parametrize("reading", ["contribution", "column", "scalar"])
@every_kind
def test_the_choice_is_that_of_the_gradients(
    m: int,
    fixed_noise: bool,
    transform: bool,
    reading: str,
    gradients: str,
    double: dict[str, Any],
) -> None:
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


def test_seeds_reproduce(double: dict[str, Any]) -> None:
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


def test_given_rows_are_in_order_and_stay_before_the_new(
    double: dict[str, Any],
) -> None:
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


def test_a_callable_selects(double: dict[str, Any]) -> None:
    asked = []

    def best(
        model: SubsetSingleTaskGP, num: int, forced: Tensor, generator: Any
    ) -> Tensor:
        asked.append((num, forced.tolist(), len(model.subset_indices)))
        order = model.all_train_Y.squeeze(-1).argsort(descending=True)
        others = order[~torch.isin(order, forced)]
        return torch.cat([forced, others[: num - len(forced)]])

    data = make_data(40, **double)
    model = make_model(data, selection=best)
    assert asked == [(12, [0, 1, 39], 12)]
    top = data[1].squeeze(-1).topk(9).indices.tolist()
    assert set(top) <= set(model.subset_indices.tolist())


def test_the_size_may_change(double: dict[str, Any]) -> None:
    data = make_data(40, **double)
    model = make_model(data)
    for size in (6, 20, None, 8):
        model.subset_size = size
        model.reselect()
        assert len(model.subset_indices) == (size or 40)
        check_posterior(model, data, double)


def test_a_fit_is_that_of_the_rows(double: dict[str, Any]) -> None:
    data = make_data(40, **double)
    model = make_model(data)
    exact = exact_on_subset(model, data)
    for each in (model, exact):
        fit_gpytorch_mll(
            ExactMarginalLogLikelihood(each.likelihood, each),
            optimizer_kwargs={"options": {"maxiter": 20}},
        )
    found, expected = model.covar_module, exact.covar_module
    close(found.lengthscale, expected.lengthscale, rtol=1e-5, atol=0)
    check_posterior(model, data, double)


@pytest.mark.parametrize("training", [False, True])
def test_a_failed_selection_changes_nothing(
    training: bool, double: dict[str, Any]
) -> None:
    fails = False

    def selection(model: Any, num: int, forced: Tensor, generator: Any) -> Tensor:
        if fails:
            raise RuntimeError("no")
        return torch.arange(num, device=forced.device)

    data = make_data(42, **double)
    options: Any = {"num_newest": 0, "selection": selection}
    model = make_model(rows(data, slice(40)), transform=True, **options)
    model.train(training)
    fails, before, inputs = True, model.subset, model.train_inputs[0]
    with pytest.raises(RuntimeError, match="no"):
        model.add_observations(*rows(data, slice(40, 42)))
    assert model.subset is before
    assert torch.equal(model.train_inputs[0], inputs)
    assert model.training == training
    check_posterior(model, rows(data, slice(40)), double)


def test_transforms_are_of_all_data_until_they_are_refitted(
    double: dict[str, Any],
) -> None:
    """Units must not change while hyperparameters stand, nor by a fit to the rows."""
    data = make_data(60, **double)
    model = make_model(rows(data, slice(40)), transform=True)
    X, Y = data[0], data[1]

    def check_are_of(X: Tensor, Y: Tensor) -> None:
        close(model.outcome_transform.means[0], Y.mean(0))
        close(model.outcome_transform.stdvs[0], Y.std(0))
        close(model.input_transform.mins[0], X.amin(0))

    check_are_of(X[:40], Y[:40])
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), **ONCE)
    model.add_observations(X[40:] + 9, Y[40:] + 9)
    check_are_of(X[:40], Y[:40])
    shifted = (torch.cat([X[:40], X[40:] + 9]), torch.cat([Y[:40], Y[40:] + 9]))
    model.refit_transforms()
    check_are_of(*shifted)
    check_posterior(model, (*shifted, None), double)


def test_a_transform_that_cannot_be_standardize(double: dict[str, Any]) -> None:
    X, Y, _ = make_data(40, **double)
    model = make_model((X, Y.exp(), None), outcome_transform=Log())
    model.add_observations(X[:1] + 0.1, Y[:1].exp())
    expected = model.all_train_Y[model.subset_indices].log().squeeze(-1)
    close(model.train_targets, expected)
    assert model.posterior(X[:2]).mean.shape == (2, 1)
