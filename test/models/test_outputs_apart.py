"""Several outputs are fitted as models of one output each are."""

from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms.input import Warp
from botorch.optim.closures import get_loss_closure_with_grads
from gpytorch.kernels import MaternKernel
from sparse_model_cases import make_mll
from torch import Tensor

from botorch_sparse.inducing import CertifiedSampler
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit.outputs_apart import outputs_apart
from botorch_sparse.models.inducing_points import InducingSet
from botorch_sparse.posteriors import RepeatedRows

N = 520
SHORT: dict[str, Any] = {"optimizer_kwargs": {"options": {"maxiter": 3}}}


def data(**tkwargs: Any) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(N, 2, generator=generator, dtype=torch.float64)
    Y = torch.stack([(5 * X[:, 0]).sin(), X[:, 1].square() - X[:, 0]], dim=-1)
    noise = torch.randn(N, 2, generator=generator, dtype=torch.float64)
    Y = Y + noise * torch.tensor([0.05, 0.3])
    return X.to(**tkwargs), Y.to(**tkwargs)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_as_models_of_their_own(batch_shape, double):
    """Each output has the hyperparameters that its own model has."""
    X, Y = data(**double)
    X, Y = (t.expand(*batch_shape, *t.shape) for t in (X, Y))
    model = SparseSingleTaskGP(X, Y)
    fit_gpytorch_mll(make_mll(model), **SHORT)
    for j in range(2):
        alone = SparseSingleTaskGP(X, Y[..., j : j + 1])
        fit_gpytorch_mll(make_mll(alone), **SHORT)
        pairs = [
            (model.likelihood.noise[..., j, :], alone.likelihood.noise),
            (model.mean_module.constant[..., j], alone.mean_module.constant),
            (
                model.covar_module.lengthscale[..., j, :, :],
                alone.covar_module.lengthscale,
            ),
        ]
        for together, apart in pairs:
            torch.testing.assert_close(together, apart.reshape(together.shape))
    assert model.likelihood.noise.max() > 1.1 * model.likelihood.noise.min()
    assert model.posterior(X[..., :3, :]).mean.isfinite().all()


@pytest.mark.parametrize("is_redrawn", [False, True])
def test_points_are_what_is_drawn_for_all_outputs(is_redrawn, double, monkeypatch):
    """Without another draw, if fits draw again at their end; with repeated rows."""
    draws, original = list[object](), SparseSingleTaskGP._draw

    def spied(self: Any, *args: Any) -> Any:
        draws.append(self)
        return original(self, *args)

    monkeypatch.setattr(SparseSingleTaskGP, "_draw", spied)
    X, Y = data(**double)
    X[1:9] = X[0]
    Y[7:14, 1] += 4.0  # outputs that call for different points
    model = SparseSingleTaskGP(X, Y)
    if is_redrawn:
        model.max_fit_inducing_points = None
    fit_gpytorch_mll(make_mll(model), **SHORT)
    assert any(other is model for other in draws) == is_redrawn
    drawn = model.inducing_points
    assert drawn.shape[-2] < N
    assert torch.equal(model.resparsify().inducing_points, drawn)


TOGETHER = [
    ({}, [[1, 5], [3, 5, 8]], [1, 3, 4, 7]),
    ({"max_inducing_points": 4}, [[1, 5], [3, 5, 8]], [1, 3, 4, 7]),
    ({"max_inducing_points": 3}, [[1, 5], [3, 5, 8]], None),
    ({"inducing_sampler": CertifiedSampler()}, [[1, 5], [3, 5, 8]], None),
    ({}, [range(30), range(4, 34)], "all"),  # nearly as many as there are
    ({}, [[1, 5], "all"], "all"),
    ({"max_inducing_points": 90}, [[1, 5], "all"], None),
    ({}, [[[1, 5], [3, 8]], [[3, 5], [1, 2]]], None),  # of a batch
]


@pytest.mark.parametrize("options, drawn, expected", TOGETHER)
def test_points_of_outputs_together(options, drawn, expected, double):
    """Rows 0 and 4 are the same: what follows has its place among unique rows."""
    X = torch.rand(40, 1, **double)
    X[4] = X[0]
    rows = RepeatedRows.find(X)
    sets = [
        InducingSet(X, rows.first, None, is_complete=True)
        if index == "all"
        else InducingSet(X, torch.tensor(index).to(rows.first), None)
        for index in drawn
    ]
    index = SparseSingleTaskGP(X, X, **options)._points().together(sets, rows)
    every = range(len(rows.first))
    expected = [*every] if expected == "all" else expected
    assert (None if index is None else index.tolist()) == expected


def test_where_outputs_share_something(double):
    X, Y = data(**double)
    warp = Warp(2, [0, 1], concentration0_prior=None, concentration1_prior=None)
    kernel = MaternKernel(batch_shape=torch.Size([2]))
    together = [
        SparseSingleTaskGP(X, Y, input_transform=warp.to(**double)),
        SparseSingleTaskGP(X, Y, covar_module=kernel.to(**double)),
        SparseSingleTaskGP(X, Y[:, :1]),
        SparseSingleTaskGP(X[:90], Y[:90]),
        SparseSingleTaskGP(X, Y, learn_inducing_points=True),
    ]
    assert not any(outputs_apart(make_mll(model)) for model in together)
    assert len(outputs_apart(make_mll(SparseSingleTaskGP(X, Y)))) == 2


def test_a_closure_is_of_all_outputs(double):
    """It fits the model that it was made for, and not parts of it."""
    X, Y = data(**double)
    mll = make_mll(SparseSingleTaskGP(X, Y, inducing_points=X[:9]))
    evaluate, calls = get_loss_closure_with_grads(mll, dict(mll.named_parameters())), []

    def closure() -> Any:
        calls.append(1)
        loss, grads = evaluate()
        return loss.sum(), grads

    before = mll.likelihood.noise.detach().clone()
    fit_gpytorch_mll(mll, closure=closure, **SHORT)
    assert calls and (mll.likelihood.noise != before).all()
