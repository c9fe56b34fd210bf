"""Axes of small trust regions: the Hessian nearby, coordinates, and whole runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_sparse.models import RefitSchedule
from botorch_sparse.strategies import Constraint, Objective, TrustRegionBBKB
from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource
from botorch_sparse.strategies.trust_region import (
    Region,
    local_surrogate,
    trust_region,
)
from botorch_sparse.strategies.trust_region.axes import (
    SKEWED,
    Frame,
    axes_of,
    local_hessian,
)
from botorch_sparse.strategies.trust_region.trust_region import candidates_around

F64 = torch.float64


def rotation(dim: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(dim, dim, generator=g, dtype=F64))[0]


def steps(num: int, dim: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(num, dim, generator=g, dtype=F64) - 0.5


@pytest.mark.parametrize("num", [18, 30, 200])
def test_the_hessian_of_a_quadratic(num: int) -> None:
    """Any weights give it back, up to a factor, whether it is convex or not."""
    Q, U = rotation(4), steps(num, 4)
    H = Q @ torch.diag(torch.tensor([100.0, 3.0, 1.0, -0.5]).double()) @ Q.mT
    losses = 5 + U @ torch.tensor([1.0, -2.0, 0.0, 0.3]).double()
    found = local_hessian(U, losses + (U @ H * U).sum(-1) / 2)
    assert found is not None
    factor = found.norm() / H.norm()
    assert factor > 0 and torch.allclose(found / factor, H, rtol=1e-4, atol=1e-3)


def test_weights_of_the_regression() -> None:
    """Normal equations of the nearest points, by tricube weights and by values."""
    U = steps(40, 2)
    losses = U[:, 0] + 3 * U[:, 0] ** 4 - U[:, 1] ** 3 + U.prod(-1)
    found = local_hessian(U, losses)
    away = U.square().sum(-1).sqrt().numpy()
    near = np.argsort(away)[:12]
    u, r, y = U.numpy()[near], away[near], losses.numpy()[near]
    y = y - y.min()
    y = y / np.quantile(y, 0.1)
    w = ((1 - (r / (1.01 * r.max())) ** 3) ** 3) / (1 + y) ** 2
    a, b = u.T
    Phi = np.stack([np.ones(12), a, b, a * a, a * b, b * b], axis=-1)
    *_, aa, ab, bb = np.linalg.solve(Phi.T @ (w[:, None] * Phi), Phi.T @ (w * y))
    expected = torch.tensor([[2 * aa, ab], [ab, 2 * bb]])
    assert found is not None
    scale = np.median(np.sort(r)[:6][-1])  # torch's median is the lower of two
    assert torch.allclose(found, scale**2 * expected, rtol=1e-6)


def test_no_hessian_of_few_points_or_of_equal_values() -> None:
    U = steps(40, 4)
    losses = U.square().sum(-1)
    assert local_hessian(U[:17], losses[:17]) is None  # of 15 coefficients
    assert local_hessian(U, torch.ones(40).double()) is None
    assert local_hessian(0 * U, losses) is None


def test_a_feature_that_does_not_vary_has_no_curvature() -> None:
    U = steps(40, 3)
    U[:, 0] = 0.0
    found = local_hessian(U, 3 * U[:, 1] ** 2 + U[:, 2] ** 2)
    assert found is not None
    expected = torch.diag(torch.tensor([0.0, 3.0, 1.0]).double())
    assert torch.allclose(found / found[2, 2], expected, atol=1e-6)


def test_points_of_one_distance_count() -> None:
    """Which are the farthest of the model, too."""
    U = steps(40, 3)
    U = U / U.norm(dim=-1, keepdim=True)
    U[0] = 0.0
    found = local_hessian(U, U @ torch.tensor([1.0, 0.0, 0.0]).double() + U[:, 1] ** 2)
    assert found is not None and float(found[1, 1] / found[0, 0].abs()) > 1.5


def test_axes_make_a_hessian_round() -> None:
    Q, values = rotation(5), torch.tensor([1e4, 9.0, 1.0, 1.0, -4.0]).double()
    axes, longer = axes_of(Q @ torch.diag(values) @ Q.mT)
    assert torch.allclose(axes.det().abs(), torch.ones(()).double())
    round_one = axes.mT @ (Q @ torch.diag(values.abs()) @ Q.mT) @ axes
    geometric = values.abs().log().mean().exp()
    assert torch.allclose(round_one, geometric * torch.eye(5).double(), atol=1e-6)
    diagonal = (Q.square() * values.abs()).sum(-1)
    assert longer == pytest.approx(float((diagonal / geometric).log().mean() / 2))
    assert axes_of(torch.diag(values))[1] == pytest.approx(0.0, abs=1e-12)
    assert bool((axes.norm(dim=0).diff() <= 1e-12).all())  # by curvature, not by sign
    flat, _ = axes_of(torch.diag(torch.tensor([1.0, 0.0]).double()))
    assert flat.norm(dim=0).max() / flat.norm(dim=0).min() == pytest.approx(1e3)


def test_noise_alone_is_not_skewed() -> None:
    """Symmetric matrices of independent entries, as errors of a Hessian are."""
    for dim in (4, 10, 20, 40):
        G = torch.stack([steps(dim, dim, seed) for seed in range(20)])
        longer = [axes_of(g + g.mT)[1] for g in G]
        assert float(torch.tensor(longer).median()) < SKEWED


def source_along(box: Box, axes: Tensor | None) -> PriorSource:
    made = TrustRegionBBKB(bounds=box.bounds)
    return made.surrogate.source.turned(axes)


def test_coordinates_of_a_frame() -> None:
    box = Box(torch.tensor([[-1.0, 0.0, 5.0], [1.0, 10.0, 6.0]], dtype=F64))
    axes, _ = axes_of(rotation(3) @ torch.diag(torch.tensor([1e3, 1.0, 5.0])).double())
    center, sides = torch.tensor([0.1, 2.0, 5.4]).double(), torch.full((3,), 0.02)
    source = source_along(box, axes)
    frame = Frame.of(box, source, center, sides.double())
    X = center + 0.01 * steps(20, 3)
    Z = frame.coordinates(X)
    unit = (X - box.bounds[0]) / (box.bounds[1] - box.bounds[0])
    assert torch.allclose(Z @ axes.mT, unit)
    assert torch.allclose(frame.points(Z), X)
    low, high = frame.box.bounds
    assert torch.allclose(high - low, sides.double())
    assert torch.allclose((low + high) / 2, frame.coordinates(center))
    found = frame.points(candidates_around(frame.box, frame.center, frame.sides, 64, 0))
    inside = (frame.coordinates(found) - frame.center).abs() <= sides / 2 + 1e-12
    assert len(found) == 64 and bool(inside.all())
    outside = frame.points(100 * torch.ones(2, 3).double())
    assert bool((outside >= box.bounds[0]).all() and (outside <= box.bounds[1]).all())
    wide = Frame.of(box, source, center, torch.full((3,), 100.0).double())
    low, high = wide.box.bounds  # at most as long as the domain, in any feature
    assert torch.allclose(((high - low) * axes.abs()).amax(0), torch.ones(3).double())
    plain = Frame.of(box, source_along(box, None), center, sides.double())
    assert plain.points(X) is X and plain.coordinates(X) is X and plain.box is box


DIM = 4
BOUNDS = torch.tensor([[0.0] * DIM, [2.0] * DIM], dtype=F64)


def ridge(X: Tensor) -> Tensor:
    """A quadratic whose condition is 10^4; its peak, zero, is at 0.8."""
    Z = (X - 0.8) @ rotation(DIM).to(X)
    return -(torch.tensor([1.0, 10.0, 1e3, 1e4]).to(Z) * Z.square()).sum(-1)


def separable(X: Tensor) -> Tensor:
    return -(torch.tensor([1.0, 10.0, 1e3, 1e4]).to(X) * (X - 0.8).square()).sum(-1)


def small(
    f: Any = ridge, length: float = 1 / 32, bounds: Tensor = BOUNDS, **options: Any
) -> TrustRegionBBKB:
    """With a small region in a valley, of which 40 points are known.

    It is fitted after each batch.
    """
    options = {"refit": RefitSchedule(every=5), **options}
    made = TrustRegionBBKB(bounds=bounds, batch_size=5, num_initial=5, **options)
    X = (0.9 + 0.3 * steps(40, DIM)).to(bounds)
    for index, value in options.get("fixed_features", {}).items():
        X[:, index] = value
    for index in options.get("discrete_dims", {}):
        X[:, index] = (100 * X[:, index]).round() / 100
    made.tell(X, f(X))
    Y = made.record.Y[:, 0]
    region = Region(0, length=length, center=int(Y.argmax()))
    regions = (region, *made.regions[1:])
    runs = replace(made.surrogate.runs, regions=regions)
    made.surrogate = replace(made.surrogate, runs=runs)
    return made


def turned(made: TrustRegionBBKB, f: Any = ridge, num: int = 2) -> TrustRegionBBKB:
    for _ in range(num):
        batch = made.ask()
        made.tell(batch, f(batch.X))
    made.ask()
    return made


def test_a_region_in_a_valley_is_turned() -> None:
    made = turned(small())
    axes = made.surrogate.axes
    assert made.regions[0].is_turned and axes is not None
    long = axes[:, axes.norm(dim=0).argmax()]
    valley = rotation(DIM)[:, 0]  # where the curvature is one
    assert float((long / long.norm() @ valley).abs()) > 0.99
    assert float(axes.norm(dim=0).max() / axes.norm(dim=0).min()) > 30


def noisy(X: Tensor) -> Tensor:
    g = torch.Generator().manual_seed(int(1e6 * X.sum()))
    return ridge(X) + 200 * torch.randn(len(X), generator=g, dtype=F64)


def cut(X: Tensor) -> Tensor:
    return torch.stack([ridge(X), X.sum(-1)], dim=-1)


ONE = torch.ones(DIM, dtype=F64)
FEATURES: dict[str, tuple[Any, dict[str, Any]]] = {
    "along the features": (separable, {}),
    "noise": (noisy, {}),
    "regions": (ridge, {"num_regions": 2}),
    "constraint": (
        ridge,
        {"inequality_constraints": [(torch.arange(DIM), -ONE, -6.0)]},
    ),
    "outcomes": (cut, {"outcomes": [Objective("a"), Constraint("b", upper=6.0)]}),
    "fixed": (ridge, {"fixed_features": {0: 0.8}}),
    "discrete": (ridge, {"discrete_dims": {0: torch.linspace(0, 2, 201).tolist()}}),
    "kernel": (ridge, {"covar_module": MaternKernel().double(), "lam": 1e-4}),
}


@pytest.mark.parametrize("case", FEATURES)
def test_others_keep_their_features(case: str) -> None:
    f, options = FEATURES[case]
    made = turned(small(f, **options), f)
    assert made.surrogate.axes is None and not made.regions[0].is_turned


def test_many_features_are_axes() -> None:
    """Where a quadratic model would take more points than a posterior."""
    for dim, expected in ((1, False), (2, True), (43, True), (44, False)):
        bounds = torch.tensor([[0.0] * dim, [1.0] * dim], dtype=F64)
        made = TrustRegionBBKB(bounds=bounds)
        assert not made.surrogate._may_turn(made.record)  # of no points
        assert made.surrogate._may_turn([None] * 2000) == expected  # type: ignore


def curved(X: Tensor) -> Tensor:
    a, b = X[:, :2].mean(-1), X[:, 2:].mean(-1)
    return -(100 * (b - a.square()).square() + (1 - a).square() + 0.1 * X[:, 0] ** 4)


def test_axes_are_those_of_the_losses() -> None:
    """Weights favour what is good: the regression of gains has other ones."""
    made = small(curved)
    center = made.record.points(torch.tensor([made.regions[0].center]))
    made = turned(made, curved, num=1)
    X, Y = made.history.X, made.record.Y[:, 0]
    U = (X - center) / 2  # sides of the box
    found = made.surrogate.axes
    hessian, other = local_hessian(U, -Y), local_hessian(U, Y)
    assert found is not None and hessian is not None and other is not None
    assert torch.allclose(found.abs(), axes_of(hessian)[0].abs(), rtol=1e-4)
    assert not torch.allclose(found.abs(), axes_of(other)[0].abs(), rtol=0.1)


def corner(X: Tensor) -> Tensor:
    return 1e5 * (1 - X).sum(-1) + ridge(X)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
def test_batches_at_a_corner_are_new_points(dtype: torch.dtype) -> None:
    """Though many candidates are beyond it."""
    bounds = torch.tensor([[0.75] * DIM, [2.0] * DIM], dtype=dtype)
    made = small(corner, 2**-8, bounds)
    made.tell(bounds[:1], corner(bounds[:1]))
    made = turned(made, corner, num=3)
    assert made.surrogate.axes is not None
    X = torch.cat([made.history.X, made.X_pending])
    at_corner = made._around(made.regions[0])
    assert len(at_corner.unique(dim=0)) == len(at_corner) < 2000
    assert X.dtype == dtype and len(X.unique(dim=0)) == len(X) == 61


def test_axes_go_with_fits() -> None:
    """Results that come one by one leave both as they are, until five are there."""
    made = turned(small())
    X, axes = made.X_pending, made.surrogate.axes
    for x in X[:4]:
        made.tell(x.unsqueeze(0), ridge(x.unsqueeze(0)))
        made.ask(1)
        assert made.surrogate.axes is axes
    made.tell(X[4:], ridge(X[4:]))
    made.ask(1)
    assert made.surrogate.axes is not axes


def test_a_region_that_turns_may_grow() -> None:
    """It is 1/40 long at least, and one that is longer stays as it is."""
    for length, expected in ((1 / 32, 1 / 32), (2**-8, 1 / 40)):
        made = small(length=length)
        (region,) = made.surrogate._turned(made.record).regions
        assert region.is_turned and region.length == pytest.approx(expected)


@pytest.mark.parametrize("is_turned", [False, True])
def test_small_gains_are_successes_of_turned_regions(
    is_turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_surrogate, "SKEWED", torch.inf)
    monkeypatch.setattr(trust_region, "BEST", 2)
    made = small()
    region = replace(made.regions[0], is_turned=is_turned)
    runs = replace(made.surrogate.runs, regions=(region,))
    made.surrogate = replace(made.surrogate, runs=runs)
    batch = made.ask()
    values = made.record.Y[:, 0].sort(descending=True).values
    lead = values[0] - values.median()
    gain = 2e-3 * (values[0] - values[1]) + 2e-5 * lead
    assert gain < 0.9e-3 * lead
    made.tell(batch, (values[0] + gain).expand(len(batch)))
    made.ask()
    (region,) = made.regions
    assert region.is_turned == is_turned
    assert region.successes == int(is_turned)
    assert region.length == (1 / 32 if is_turned else 1 / 64)


def test_a_large_region_keeps_its_features() -> None:
    assert turned(small(length=0.2)).surrogate.axes is None


def test_a_region_is_turned_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on in place of its end once."""
    monkeypatch.setattr(local_surrogate, "SKEWED", torch.inf)
    made = small(separable, length=1.01 * 2**-12)
    worse = made.history.best().value - 1.0
    for length, run, is_turned in ((0.025, 0, True), (0.8, 1, False)):
        batch = made.ask()
        made.tell(batch, separable(batch.X).clamp(max=worse))
        made.ask()
        region = made.regions[0]
        found = (round(region.length, 9), region.run, region.is_turned)
        assert found == (length, run, is_turned)
        runs = replace(
            made.surrogate.runs, regions=(replace(region, length=1.01 * 2**-12),)
        )
        made.surrogate = replace(made.surrogate, runs=runs)


def test_the_posterior_is_of_the_coordinates() -> None:
    """A dense GP of the points along the axes, with the hyperparameters that it has."""
    made = turned(small())
    surrogate, record = made.surrogate, made.record
    prior, axes = surrogate.priors[0], surrogate.axes
    assert axes is not None
    known = surrogate.values(record, surrogate.num_learned)
    X, y = record.points(known.point), known.Y.double() / prior.scale
    lengthscale = prior.covar_module.lengthscale.flatten()

    def kernel(A: Tensor, B: Tensor) -> Tensor:
        inverse = torch.linalg.inv(axes) / lengthscale.unsqueeze(-1) / 2.0
        r = 5**0.5 * torch.cdist(A @ inverse.mT, B @ inverse.mT)
        return (1 + r + r.square() / 3) * (-r).exp()

    K = kernel(X, X) + prior.lam * torch.eye(len(X)).double()
    ones = torch.ones(len(X), dtype=F64)
    mean = (ones @ torch.linalg.solve(K, y)) / (ones @ torch.linalg.solve(K, ones))
    new = 0.85 + 0.1 * steps(7, DIM, 1)
    expected = mean + kernel(new, X) @ torch.linalg.solve(K, y - mean)
    found, _ = made.predict(new)
    assert torch.allclose(found, prior.scale * expected, rtol=1e-5, atol=1e-3)


@pytest.mark.slow_sim
def test_each_device(device: torch.device) -> None:
    """Predictions are those of the host, points are on the device."""
    there, here = (turned(small(bounds=BOUNDS.to(d)), num=1) for d in (device, "cpu"))
    assert there.X_pending.device.type == device.type
    assert there.surrogate.axes is not None and here.surrogate.axes is not None
    axes = there.surrogate.axes.cpu()
    assert torch.allclose(axes, here.surrogate.axes, rtol=1e-4)
    X = 0.9 + 0.1 * steps(5, DIM, 2)
    mean, _ = there.predict(X.to(device))
    assert torch.allclose(mean.cpu(), here.predict(X)[0], rtol=1e-4, atol=1e-2)
    assert len(turned(there).history) == 55


@pytest.mark.slow
def test_a_valley_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred evaluations get much nearer to the peak than along the features."""

    def best() -> float:
        return turned(small(), num=20).history.best().value

    along_axes = best()
    monkeypatch.setattr(local_surrogate, "SKEWED", torch.inf)
    assert along_axes > 0.1 * best()


def test_a_turned_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    made, often = turned(small()), RefitSchedule(every=5)
    made.save(tmp_path / "run.pt")
    other = TrustRegionBBKB(bounds=BOUNDS, batch_size=5, num_initial=5, refit=often)
    other.resume(tmp_path / "run.pt")
    assert other.surrogate.axes is not None
    for strategy in (made, other):
        strategy.tell(strategy.X_pending, ridge(strategy.X_pending))
    for _ in range(3):
        one, two = made.ask(), other.ask()
        assert torch.equal(one.X, two.X)
        made.tell(one, ridge(one.X))
        other.tell(two, ridge(two.X))


def test_a_note_has_the_axes() -> None:
    made = turned(small())
    note = json.loads(json.dumps(made.note()))
    other = TrustRegionBBKB(bounds=BOUNDS, batch_size=5, num_initial=5)
    other.restore(
        made.history.X,
        made.record.Y[:, 0],
        num_learned=len(made.record),
        pending=made.X_pending,
        note=note,
    )
    assert other.surrogate.axes is not None
    assert torch.equal(other.surrogate.axes, made.surrogate.axes)
    X = 0.9 + 0.1 * steps(5, DIM, 2)
    for one, two in zip(made.predict(X), other.predict(X), strict=True):
        assert torch.allclose(one, two)
