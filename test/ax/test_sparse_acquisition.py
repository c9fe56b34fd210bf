"""Rows of a table that may be proposed."""

import torch

from botorch_sparse.ax.sparse_acquisition import feasible_choices, rows_in


def test_rows_are_found_up_to_rounding():
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([1.0, 1e-6, 1e6], dtype=torch.double)
    X = scale * torch.rand(50, 3, generator=generator, dtype=torch.double)
    known = X[[3, 3, 40]] * (1 + 1e-15)
    assert rows_in(X, known).nonzero().squeeze(-1).tolist() == [3, 40]
    nearby = X[:1] + scale * torch.tensor([0.0, 1e-6, 0.0])
    assert not rows_in(nearby, X).any()


def test_zero_columns():
    X = torch.tensor([[0.0, 1.0], [0.0, 2.0]])
    assert rows_in(X, X[1:]).tolist() == [False, True]


def test_constraints_and_fixed_features():
    X = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))
    kept = feasible_choices(X, {0: 2.0}, None)
    assert kept.tolist() == [[2.0, 0.0], [2.0, 1.0], [2.0, 2.0]]
    constraint = (torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]), -1.0)  # sum <= 1
    kept = feasible_choices(X, None, [constraint])
    assert kept.tolist() == [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    assert len(feasible_choices(X, {0: 2.0}, [constraint])) == 0
