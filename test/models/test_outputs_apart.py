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

from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit.outputs_apart import outputs_apart
from botorch_sparse.models.inducing_points import InducingSet

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


def test_points_are_what_is_drawn_for_all_outputs(double, monkeypatch):
    """Without another draw."""
    draws, original = list[object](), SparseSingleTaskGP._draw

    def spied(self: Any, *args: Any) -> Any:
        draws.append(self)
        return original(self, *args)

    monkeypatch.setattr(SparseSingleTaskGP, "_draw", spied)
    X, Y = data(**double)
    Y[:7, 1] += 4.0  # outputs that call for different points
    model = SparseSingleTaskGP(X, Y)
    fit_gpytorch_mll(make_mll(model), **SHORT)
    assert all(other is not model for other in draws)
    drawn = model.inducing_points
    assert drawn.shape[-2] < N
    assert torch.equal(model.resparsify().inducing_points, drawn)


@pytest.mark.parametrize(
    "most, given, expected",
    [(4, False, [1, 3, 5, 8]), (3, False, None), (4, True, None)],
)
def test_points_together_are_at_most_the_cap(most, given, expected, double):
    X = torch.rand(40, 1, **double)
    sets = [
        InducingSet(X, X.new_tensor(rows).long(), None) for rows in ([1, 5], [3, 5, 8])
    ]
    model = SparseSingleTaskGP(
        X, X, inducing_points=X[:2] if given else None, max_inducing_points=most
    )
    index = model._points().together(sets, len(X))
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
