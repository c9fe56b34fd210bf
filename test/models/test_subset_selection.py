"""Which rows are chosen by default, and by leverage against the dense formula."""

from typing import Any

import pytest
import torch
from subset_model_cases import every_kind, make_data, make_model
from torch import Tensor

from botorch_sparse.models import SubsetSingleTaskGP
from botorch_sparse.strategies import GSSBO

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


def leverages(model: SubsetSingleTaskGP, data: Any, rows: list[int]) -> Tensor:
    """Exact variances given noisy observations of rows, over the noise; outputs sum."""
    X = model.transform_inputs(data[0])
    K = model.covar_module(X.expand(*model.train_inputs[0].shape[:-2], -1, -1))
    K, n = K.to_dense().detach().reshape(-1, len(X), len(X)), len(X)
    if data[2] is None:
        d = model.likelihood.noise.detach().reshape(-1, 1).expand(-1, n)
    else:
        d = model.outcome_transform.eval()(data[1], data[2])[1].mT
    total = torch.zeros_like(X[:, 0])
    for k, noise in zip(K, d, strict=True):
        A = k[rows][:, rows] + noise[rows].diag()
        explained = (k[:, rows] * torch.linalg.solve(A, k[rows]).mT).sum(-1)
        total += (k.diagonal() - explained) / noise
    return total


@every_kind
def test_the_largest_leverage_is_next(m, fixed_noise, transform, double):
    data = make_data(40, m, fixed_noise, **double)
    model = make_model(data, transform, selection="leverage")
    model.covar_module.lengthscale = 0.3
    chosen = model.rows_by_leverage(12, torch.tensor([0, 1, 39]))
    assert chosen[:3].tolist() == [0, 1, 39]
    for t in range(3, 12):
        expected = leverages(model, data, chosen[:t].tolist())
        expected[chosen[:t]] = -torch.inf
        assert expected[chosen[t]] >= (1 - 1e-9) * expected.max()
    model.reselect()
    assert set(model.subset_indices.tolist()) == set(chosen.tolist())
    half = model.rows_by_leverage(8, chosen[:3])
    assert half.tolist() == chosen[:8].tolist()  # fewer are the first of more
    model.selection = "mixed"
    mixed = [set(model.reselect().subset_indices.tolist()) for _ in range(2)]
    assert set(half.tolist()) <= mixed[0] & mixed[1] and mixed[0] != mixed[1]


def test_a_repeated_point_waits_for_all_others(double):
    """What is known hardly tells anything, the more so with little noise."""
    X, Y, _ = make_data(12, **double)
    X, Y = torch.cat([X, X[:1].expand(20, -1)]), torch.cat([Y, Y[:1].expand(20, -1)])
    model = make_model((X, Y, None), num_initial=1, num_newest=0)
    model.likelihood.noise = 1e-3
    rows = model.rows_by_leverage(12, torch.tensor([0]))
    assert sorted(rows.tolist()) == list(range(12))


def test_defaults(double):
    """An option of gradients is a choice by gradients; a selection goes before all."""
    data = make_data(40, **double)
    assert make_model(data).selection == "leverage"
    for option in ({"reading": "scalar"}, {"gradients": "exact"}, {"noise_scale": 0.0}):
        model = make_model(data, **option)
        assert model.selection == "gradient"
        found = (model.reading, model.gradients, model.noise_scale)
        given = {"reading": "contribution", "gradients": "pilot", "noise_scale": 0.1}
        assert found == tuple((given | option).values())
    assert make_model(data, selection="recent", reading="column").selection == "recent"
    bounds = torch.tensor([[0.0], [1.0]], **double)
    strategies = [GSSBO(bounds=bounds), GSSBO(bounds=bounds, reading="column")]
    selections = [s.surrogate.options.selection for s in strategies]
    assert selections == ["leverage", "gradient"]
