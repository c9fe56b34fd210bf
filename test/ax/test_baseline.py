"""The observed points that acquisition functions get."""

import torch
from botorch.models import SingleTaskGP
from botorch.utils.multi_objective.pareto import is_non_dominated

from botorch_sparse.ax.baseline import best_points

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
    mean = model.posterior(X).mean.squeeze(-1)
    for weights, best in ((ONE, mean), (-ONE, -mean)):
        expected = set(best.topk(7).indices.tolist())
        assert rows(best_points(model, X, weights, None, size=7), X) == expected


def test_feasible_points_come_first():
    model, X = model_and_points(2)
    mean = model.posterior(X).mean
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
    mean = model.posterior(X).mean
    weights = torch.eye(2, dtype=torch.double)
    front = set(is_non_dominated(mean).nonzero().squeeze(-1).tolist())
    size = len(front) + 3
    chosen = rows(best_points(model, X, weights, None, size=size), X)
    assert front < chosen and len(chosen) == size
    left = [i for i in range(len(X)) if i not in front]
    second = is_non_dominated(mean[left]).nonzero().squeeze(-1).tolist()
    assert chosen - front <= {left[i] for i in second} or len(second) < 3
