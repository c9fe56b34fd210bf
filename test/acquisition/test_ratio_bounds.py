"""Bounds on ratios of variances against dense versions that recompute everything."""

from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from batch_oracles import (
    KINDS,
    Dense,
    assert_close,
    fewer,
    random_batch,
    sparse_problem,
    tensors,
)
from botorch.exceptions import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import RBFKernel, ScaleKernel

from botorch_sparse.acquisition import (
    BatchUpperConfidenceBound,
    ExactRatio,
    GlobalLocal,
    LocalRatioBound,
    RatioBound,
    qBatchUpperConfidenceBound,
)
from botorch_sparse.acquisition.frozen import freeze
from botorch_sparse.batching import Local, optimize_adaptive_batch
from botorch_sparse.batching.acquisition_batch import BoxBatch
from botorch_sparse.models import SparseSingleTaskGP

COVARIANCES = ["both", "embedded", "paper"]


def all_bounds(model: SingleTaskGP, X: Any, noise: Any) -> dict[str, RatioBound]:
    local = {k: LocalRatioBound(model, X, k, noise) for k in COVARIANCES}
    return {"exact": ExactRatio(model, X, noise)} | local


@pytest.mark.parametrize("kind", KINDS)
def test_every_bound_is_its_dense_version(kind, double):
    """On random problems, per-point noise, repeats."""
    for seed in fewer(range(40 if kind == "nystrom" else 10), double, 2):
        problem = sparse_problem(seed)
        dense = Dense(problem, kind)
        batch, noise = random_batch(problem, seed)
        X, X_batch, d = tensors(problem, batch, noise, **double)
        bounds = all_bounds(problem.model(kind, **double), X_batch, d)
        value = {name: bound(X) for name, bound in bounds.items()}
        expected = {"exact": dense.exact_ratio(batch, noise)}
        expected |= {
            name: dense.local_bound(batch, noise, name) for name in COVARIANCES
        }
        for name, dense_value in expected.items():
            assert_close(value[name], dense_value, rtol=1e-6)
        total = bounds["both"].global_bound()
        assert total == pytest.approx(dense.global_bound(batch, noise), rel=1e-6)
        # exact <= embedded <= both <= global <= product of the initial ratios
        order = [value[k] for k in ("exact", "embedded", "both")]
        last = total, dense.product_of_first(batch, noise)
        order += [torch.full_like(order[0], bound) for bound in last]
        for smaller, larger in pairwise(order):
            assert (smaller <= larger * (1 + 1e-9)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_adding_points_one_by_one(kind, double):
    """`add` is the constructor's, of a model or of a posterior that is frozen."""
    for seed in fewer(range(3), double):
        problem = sparse_problem(seed)
        batch, noise = random_batch(
            problem, seed, size=len(fewer(range(15), double, 5))
        )
        X, X_batch, d = tensors(problem, batch, noise, **double)
        model = problem.model(kind, **double)
        whole = all_bounds(model, X_batch, d)
        grown = all_bounds(freeze(model), None, None)
        for s in range(len(batch)):
            for bound in grown.values():
                bound.add(X_batch[s : s + 1], d[s : s + 1])
        for name, bound in whole.items():
            assert_close(grown[name](X), bound(X), rtol=1e-7)
            assert bound(X.reshape(-1, 1, 1, X.shape[-1])).shape == (len(X), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind, double):
    problem = sparse_problem(5, kernel="scaled")
    batch, noise = random_batch(problem, 5)
    X, X_batch, d = tensors(problem, batch, noise, **double)
    bounds = all_bounds(problem.model(kind, **double), X_batch, d)
    # Away from the batch's points, where Matern kernels have their kinks.
    points = (X[:3] + 0.013).requires_grad_(True)
    for name in fewer(["both", "exact", "embedded", "paper"], double):
        assert torch.autograd.gradcheck(bounds[name], (points,), atol=1e-6), name


def test_global_local_switches(double):
    problem = sparse_problem(3)
    batch, noise = random_batch(problem, 3)
    X, X_batch, d = tensors(problem, batch, noise, **double)
    model = problem.model("nystrom", **double)
    bound = LocalRatioBound(model, X_batch, "both", d)
    local, total = bound(X), bound.global_bound()
    above = GlobalLocal(model, X_batch, total + 1e-6, noise=d)
    X.requires_grad_(True)
    assert (above(X) == total).all() and above.maximum(choices=X.detach()) == total
    assert (torch.autograd.grad(above(X).sum(), X)[0] == 0).all()
    X.requires_grad_(False)
    assert torch.equal(GlobalLocal(model, X_batch, 1.0, noise=d)(X), local)


@pytest.mark.parametrize("kind", KINDS)
def test_maximum_on_a_box(kind, double):
    """From the batch's own points the search finds the maximum of a fine grid."""
    for seed in fewer(range(3), double):
        problem = sparse_problem(seed, kernel="scaled")
        problem.X = problem.X[:, :2]
        batch, noise = random_batch(problem, seed, size=4)
        _, X_batch, d = tensors(problem, batch, noise, **double)
        bound = LocalRatioBound(problem.model(kind, **double), X_batch, "both", d)
        axis = torch.linspace(0, 1, 41, **double)
        grid = torch.cartesian_prod(axis, axis)
        box = torch.tensor([[0.0] * 2, [1.0] * 2], **double)
        found, on_grid = bound.maximum(bounds=box), bound.maximum(choices=grid)
        at_batch = float(bound(X_batch.unsqueeze(-2)).max())
        assert found >= on_grid * (1 - 1e-9)
        assert at_batch <= found <= bound.global_bound() * (1 + 1e-12)
        assert on_grid - 1 <= 1.35 * (at_batch - 1)  # the peaks are at the batch
        assert not bound.terminates(found * 1.001, bounds=box)
        assert bound.terminates(at_batch * 0.999, bounds=box)


def test_no_search_while_the_global_bound_decides(double):
    problem = sparse_problem(3)
    batch, noise = random_batch(problem, 3)
    _, X_batch, d = tensors(problem, batch, noise, **double)
    model, k = problem.model("nystrom", **double), problem.X.shape[-1]
    box = torch.tensor([[0.0] * k, [1.0] * k], **double)
    target = "botorch.optim.optimize_acqf"
    bound = LocalRatioBound(model, X_batch, "both", d)
    ceiling = bound.global_bound()
    with patch(target, side_effect=AssertionError):
        assert not bound.terminates(ceiling, bounds=box)
        assert bound.terminates(1.0, bounds=box)  # a point of the batch is above it
        assert LocalRatioBound(model).maximum(bounds=box) == 1.0
    for error in (RuntimeError, ValueError):  # the global bound is the safe answer
        with patch(target, side_effect=error):
            assert bound.maximum(bounds=box) == ceiling
    with patch(target, return_value=(None, torch.tensor(float("nan")))):
        assert bound.maximum(bounds=box) == ceiling


def test_constraints_reach_the_search(double):
    problem = sparse_problem(8, kernel="scaled")
    problem.X = problem.X[:, :2]
    model = problem.model("nystrom", **double)
    X_batch = torch.tensor([[0.3, 0.2], [0.5, 0.2]], **double)
    bound = LocalRatioBound(model, X_batch)
    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **double)
    fixed = bound.maximum(bounds=box, optimizer_options={"fixed_features": {1: 0.2}})
    line = torch.stack([torch.linspace(0, 1, 400), torch.full((400,), 0.2)], -1)
    on_line = bound.maximum(choices=line.to(**double))
    assert fixed == pytest.approx(on_line, rel=1e-3)


@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
@pytest.mark.parametrize("kind", KINDS)
def test_order_holds_in_float32(kind, device):
    """Near data of so little noise that variances are at the rounding of float32."""
    kernel = ScaleKernel(RBFKernel()).to(device).requires_grad_(False)
    kernel.outputscale, kernel.base_kernel.lengthscale = 20.0, 2.0
    for seed in range(4 if device.type == "cpu" else 1):
        X = torch.rand(30, 2, generator=torch.Generator().manual_seed(seed)).to(device)
        Y = Standardize(1)(X.sum(-1, keepdim=True).sin())[0]
        args, kwargs = (X, Y, torch.full_like(Y, 1e-4)), {"outcome_transform": None}
        model = (
            SingleTaskGP(*args, covar_module=kernel, **kwargs)
            if kind == "exact"
            else SparseSingleTaskGP(
                *args, covar_module=kernel, **kwargs, inducing_points=X[::3]
            )
        )
        bounds = [bound(model, X[:4]) for bound in (ExactRatio, LocalRatioBound)]
        values = [bound(X.unsqueeze(-2)) for bound in bounds]
        values.append(torch.full_like(values[0], bounds[1].global_bound()))
        for smaller, larger in pairwise(values):
            assert (smaller <= larger * (1 + 1e-5)).all()
        assert (values[0] >= 1).all() and values[0].dtype == torch.float32


def test_transforms_and_default_noise(double):
    """Ratios are those of the transformed space; units of X and Y do not matter."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(40, 2, generator=g).to(**double)
    Y = (5 * X).sin().sum(-1, keepdim=True)
    Yvar = (0.01 + 0.1 * torch.rand(40, 1, generator=g)).to(**double)
    values = []
    for scale, shift in ((1.0, 0.0), (30.0, -7.0)):
        model = SparseSingleTaskGP(
            scale * X + shift,
            scale * Y + shift,
            scale**2 * Yvar,
            input_transform=Normalize(2),
            inducing_points=scale * X[::4] + shift,
        )
        bound = LocalRatioBound(model, scale * X[:3] + shift + 0.01 * scale)
        assert_close(bound.frozen.noise, model.likelihood.noise.mean().expand(3))
        values.append(bound((scale * X + shift).unsqueeze(-2)))
    assert_close(values[1], values[0], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_several_outputs_take_the_largest_ratio(kind, double):
    problem = sparse_problem(2)
    X, X_batch, _ = tensors(problem, [0, 1, 2], np.ones(3), **double)
    X_train, Y = X.squeeze(-2)[problem.row], problem.Y.to(**double).unsqueeze(-1)
    Y = torch.cat([Y, -(Y**2)], -1)
    Yvar = torch.tensor([0.1, 0.5], **double).expand_as(Y).contiguous()
    kernel = problem.make_kernel(**double)  # one for both outputs, and a noise each

    def build(*args: Any) -> SingleTaskGP:
        kwargs = {"covar_module": kernel, "outcome_transform": None}
        if kind == "exact":
            return SingleTaskGP(*args, **kwargs)
        S = X_train[: len(X_train) // 2]
        return SparseSingleTaskGP(*args, **kwargs, inducing_points=S)

    joint = build(X_train, Y, Yvar)
    singles = [build(X_train, Y[:, [i]], Yvar[:, [i]]) for i in range(2)]
    for cls in (LocalRatioBound, ExactRatio):
        expected = torch.stack([cls(m, X_batch)(X) for m in singles]).amax(0)
        assert_close(cls(joint, X_batch)(X), expected, rtol=1e-8)
    totals = [LocalRatioBound(model, X_batch).global_bound() for model in singles]
    total = LocalRatioBound(joint, X_batch).global_bound()
    assert total == pytest.approx(max(totals), rel=1e-8)


def test_errors(double):
    problem = sparse_problem(2)
    model = problem.model("nystrom", **double)
    X = problem.X.to(**double)
    with pytest.raises(UnsupportedError, match="ModelListGP of 2 outputs; need one"):
        LocalRatioBound(ModelListGP(model, model))
    batched = SingleTaskGP(torch.rand(2, 5, 1, **double), torch.rand(2, 5, 1, **double))
    with pytest.raises(UnsupportedError, match=r"batch shape \(2,\)"):
        LocalRatioBound(batched)
    with pytest.raises(InputDataError, match=r"ratio_threshold=0.5; need at least 1"):
        LocalRatioBound(model, X[:2]).terminates(0.5, choices=X)
    with pytest.raises(InputDataError, match="Give either choices or bounds"):
        LocalRatioBound(model, X[:2]).maximum()
    for noise in (torch.ones(3, **double), torch.tensor([1.0, 0.0], **double)):
        with pytest.raises(InputDataError, match="for 2 points; need one positive"):
            LocalRatioBound(model, X[:2], noise=noise)
    with pytest.raises(AssertionError, match="q=1"):
        LocalRatioBound(model, X[:2])(X[:6].view(3, 2, -1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [2, 4])
def test_points_of_another_width_are_refused(kind, width, double):
    """At each door, before anything has changed; the model has three features."""
    model = sparse_problem(0).model(kind, **double)
    few, box = torch.rand(3, width, **double), torch.rand(2, width, **double).cumsum(0)
    many = torch.rand(40, width, **double)
    ucb = BatchUpperConfidenceBound(model, 4.0)
    qucb = qBatchUpperConfidenceBound(model, 4.0)
    bound = GlobalLocal(model, torch.rand(2, 3, **double))
    local = LocalRatioBound(model, bound.X_batch)  # which looks at any domain
    calls = [
        (ucb, few[:, None]),
        (qucb, few[:, None]),
        (bound, few[:, None]),
        (bound.add, few),
        (lambda X: local.maximum(choices=X), many),
        (lambda X: local.maximum(bounds=X), box),
        *((each.set_X_pending, few) for each in (ucb, qucb, bound)),
        *((partial(adaptive, each), box) for each in (ucb, qucb)),
        *((partial(BoxBatch, each, None), box) for each in (ucb, qucb)),
    ]
    for call, X in calls:
        with pytest.raises(BotorchTensorDimensionError, match=f"{width}.*; need .*3"):
            call(X)
    assert ucb.X_pending is None and qucb.X_pending is None
    assert bound.X_batch.shape == (2, 3)
    with pytest.raises(InputDataError, match="need `A x 3`"):
        optimize_adaptive_batch(qucb, Local(2.0), choices=many)


def adaptive(acqf, bounds):
    return optimize_adaptive_batch(acqf, Local(2.0), bounds=bounds)
