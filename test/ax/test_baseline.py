"""The observed points that acquisition functions get."""

import pytest
import torch
from ax_problems import CAPPED
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.utils.multi_objective.pareto import is_non_dominated
from sparse_model_cases import embedded_rows

from botorch_sparse.ax import sparse_generation_strategy
from botorch_sparse.ax.baseline import best_points, mean_at, remember
from botorch_sparse.models import SparseSingleTaskGP

ONE = torch.ones(1, 1, dtype=torch.double)


def model_and_points(m: int) -> tuple[SingleTaskGP, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(40, 2, generator=generator, dtype=torch.double)
    Y = torch.stack([(3 * X[:, 0] + j * X[:, 1]).sin() for j in range(m)], dim=-1)
    return SingleTaskGP(X, Y, train_Yvar=torch.full_like(Y, 1e-4)).eval(), X


def rows(chosen: torch.Tensor, X: torch.Tensor) -> set[int]:
    distance = torch.cdist(chosen, X)
    assert (distance.min(-1).values < 1e-6).all()
    return set(distance.argmin(-1).tolist())


def test_few_points_are_all_taken():
    model, X = model_and_points(1)
    assert best_points(model, X, ONE, None, size=40) is X


def test_one_objective():
    model, X = model_and_points(1)
    mean = model.posterior(X).mean.detach().squeeze(-1)
    for weights, best in ((ONE, mean), (-ONE, -mean)):
        expected = set(best.topk(7).indices.tolist())
        assert rows(best_points(model, X, weights, None, size=7), X) == expected


def test_feasible_points_come_first():
    model, X = model_and_points(2)
    mean = model.posterior(X).mean.detach()
    weights = torch.tensor([[1.0, 0.0]], dtype=torch.double)
    A = torch.tensor([[0.0, 1.0]], dtype=torch.double)
    b = mean[:, 1].sort().values[9:11].mean().reshape(1, 1)  # ten satisfy y_2 <= b
    chosen = rows(best_points(model, X, weights, (A, b), size=14), X)
    feasible = set((mean[:, 1] <= b.squeeze()).nonzero().squeeze(-1).tolist())
    assert len(feasible) == 10 and feasible < chosen
    five = rows(best_points(model, X, weights, (A, b), size=5), X)
    best = sorted(feasible, key=lambda i: -float(mean[i, 0]))[:5]
    assert five == set(best)


def test_several_objectives():
    model, X = model_and_points(2)
    mean = model.posterior(X).mean.detach()
    weights = torch.eye(2, dtype=torch.double)
    front = set(is_non_dominated(mean).nonzero().squeeze(-1).tolist())
    size = len(front) + 3
    chosen = rows(best_points(model, X, weights, None, size=size), X)
    assert front < chosen and len(chosen) == size
    left = [i for i in range(len(X)) if i not in front]
    second = is_non_dominated(mean[left]).nonzero().squeeze(-1).tolist()
    assert chosen - front <= {left[i] for i in second} or len(second) < 3


def line_of_trials() -> tuple[SingleTaskGP, torch.Tensor]:
    """All of 40 points in a row are the front of two objectives."""
    X = torch.linspace(0, 1, 40, dtype=torch.double).unsqueeze(-1)
    Y = torch.cat([X, -X], dim=-1)
    return SingleTaskGP(X, Y, train_Yvar=torch.full_like(Y, 1e-6)).eval(), X


def test_a_large_front_is_covered():
    """No trial of it is farther from a chosen one than twice the least possible."""
    model, X = line_of_trials()
    chosen = best_points(model, X, torch.eye(2, dtype=torch.double), None, size=8)
    assert len(chosen.unique(dim=0)) == 8
    least = 2.5 / 39  # of eight groups of five in a row, each less than three from one
    assert torch.cdist(X, chosen).min(-1).values.max() < 2 * least


def test_trials_that_are_equally_good_are_taken_once_each():
    model, X = line_of_trials()
    nothing = torch.zeros(2, 2, dtype=torch.double)
    chosen = best_points(model, X, nothing, None, size=5)
    assert len(chosen.unique(dim=0)) == 5


def test_what_is_below_a_threshold_comes_after_what_counts():
    model, X = line_of_trials()
    weights = torch.eye(2, dtype=torch.double)
    goals = torch.tensor([0.495, torch.nan], dtype=torch.double)
    for size, least in ((20, 0.5), (25, 0.37)):  # the next ones are the nearest to it
        chosen = best_points(model, X, weights, None, size, goals)
        assert len(chosen) == size and chosen.min() > least


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("is_standardized", [True, False])
def test_means_of_sparse_models_are_those_of_the_posterior(m, is_standardized):
    generator = torch.Generator().manual_seed(0)
    X = 3 * torch.rand(40, 2, generator=generator, dtype=torch.double)
    Y = torch.stack([(X[:, 0] + j * X[:, 1]).sin() for j in range(m)], dim=-1)
    Y = 5 + Y if is_standardized else (Y - Y.mean(0)) / Y.std(0)
    model = SparseSingleTaskGP(
        X,
        Y,
        input_transform=Normalize(2),
        outcome_transform=Standardize(m) if is_standardized else None,
        inducing_points=X[:12],
    ).eval()
    with torch.no_grad():
        expected = model.posterior(X).mean
        found = mean_at(model, X)
    assert not model.is_exact
    assert torch.allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_observed_points_of_an_acquisition(make_client, attach, fast):
    """All, once each, as tensors; the surrogate's inputs are tensors again."""
    strategy = sparse_generation_strategy(5, seed=0, optimizer_options=fast)
    client = make_client(strategy)
    attach(client, 12)
    again = client.attach_trial(client._experiment.trials[3].arm.parameters)
    client.complete_trial(again, raw_data={"f": 1.0})
    client.get_next_trials(1)
    generator = strategy.adapter.generator
    (X,) = generator.surrogate.Xs
    assert isinstance(X, torch.Tensor) and len(X) == 13
    observed = generator._acquisition.X_observed
    assert torch.equal(observed.unique(dim=0), X.unique(dim=0))
    assert len(observed) == 12 and observed.dtype == X.dtype


@CAPPED
def test_acquisition_functions_know_their_baseline(make_client, attach, fast):
    options = {"max_inducing_points": 15}
    strategy = sparse_generation_strategy(
        5, seed=0, optimizer_options=fast, model_options=options
    )
    client = make_client(strategy)
    attach(client, 40)
    client.get_next_trials(1)
    acqf = strategy.adapter.generator._acquisition.acqf
    assert isinstance(acqf, qLogNoisyExpectedImprovement)
    assert not acqf.model.is_exact
    X = torch.cat([acqf.X_baseline, torch.rand(1, 2, dtype=torch.double)])
    with embedded_rows() as sizes:
        acqf(X[-1:].unsqueeze(0))
    assert set(sizes) == {1}


def test_each_model_of_a_list_remembers_the_baseline():
    _, X = model_and_points(1)
    sparse, exact = (
        SparseSingleTaskGP(X, X.sum(-1, keepdim=True), inducing_points=points)
        for points in (X[:9], None)
    )
    remember(ModelListGP(exact, sparse), X[:4])
    with embedded_rows() as sizes:
        sparse.posterior(X[:6])
    assert sizes == [2]
    remember(model_and_points(1)[0], X[:4])
