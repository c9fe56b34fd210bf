"""Strategies without a kernel whose values differ by powers of ten."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from botorch_sparse.acquisition import UnknownHyperparameters
from botorch_sparse.strategies import (
    BBKB,
    GPUCB,
    Constraint,
    ExpectedImprovement,
    Objective,
    ThompsonSampling,
)
from botorch_sparse.strategies.surrogates.log_warp import LogWarp, LogWarpTransform
from botorch_sparse.strategies.surrogates.prior import Prior
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource
from botorch_sparse.strategies.surrogates.surrogate import Surrogate

F64 = torch.float64
ROWS = torch.rand(200, 3, generator=torch.Generator().manual_seed(5), dtype=F64)
BOUNDS = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=F64)
TABLES: dict[str, Callable[..., Any]] = {
    "thompson": lambda **more: ThompsonSampling(ROWS, batch_size=4, **more),
    "improvement": lambda **more: ExpectedImprovement(ROWS, batch_size=4, **more),
    "bbkb": lambda **more: BBKB(ROWS, **more),
    "exact": lambda **more: GPUCB(ROWS, **more),
}
BOXES: dict[str, Callable[..., Any]] = {
    "thompson": lambda **more: ThompsonSampling(bounds=BOUNDS, batch_size=4, **more),
    "exact": lambda **more: GPUCB(bounds=BOUNDS, **more),
}
EACH = [*TABLES.values(), *BOXES.values()]
NAMES = [f"table-{name}" for name in TABLES] + [f"box-{name}" for name in BOXES]


def steep(X: Tensor) -> Tensor:
    """From -e^4 or so to 0: a quadratic function's exponential."""
    return 1.0 - (12 * (X - 0.3).square().mean(-1)).exp()


def run(strategy: Any, f: Any = steep, num: int = 32) -> Any:
    """Rows that are told, and eight that it chooses."""
    strategy.tell(ROWS[: num - 8], f(ROWS[: num - 8]))
    strategy.run(f, num, progress=False)
    strategy.learn()
    return strategy


def warps_of(strategy: Any) -> list[LogWarp | None]:
    return [part.view.prior.warp for part in strategy.surrogate.parts]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", EACH, ids=NAMES)
def test_units_of_the_feedback_change_nothing(make: Any) -> None:
    """Values on a logarithmic scale, and the same in other units, to the bit."""
    strategy, other = run(make()), run(make(), lambda X: 2.0**20 * steep(X))
    (warp,), (there,) = warps_of(strategy), warps_of(other)
    assert warp is not None and there is not None
    assert there == LogWarp(2.0**20 * warp.best, 2.0**20 * warp.unit)
    assert torch.equal(strategy.history.X, other.history.X)
    for mine, its in zip(strategy.predict(ROWS), other.predict(ROWS), strict=True):
        assert torch.equal(2.0**20 * mine, its)


PAIRS = [(ROWS[:60], ROWS[:60, 0] - (ROWS[:60, 1] - 0.3).square())]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name, options",
    [
        ("thompson", {"robust": True}),
        ("thompson", {"related": PAIRS}),
        ("thompson", {"cost": 1.0 + ROWS[:, 0]}),
        ("improvement", {"robust": True, "related": PAIRS, "cost": 1.0 + ROWS[:, 0]}),
        ("bbkb", {"robust": True, "related": PAIRS}),
    ],
)
def test_the_same_with_other_options(name: str, options: dict[str, Any]) -> None:
    """Choices in other units, and predictions; after a move to another table too."""
    strategy = run(TABLES[name](**options))
    other = run(TABLES[name](**options), lambda X: 2.0**20 * steep(X))
    assert None not in warps_of(strategy)
    assert torch.equal(strategy.history.X, other.history.X)
    mean, sd = strategy.predict(ROWS)
    known = strategy.history.X
    assert (strategy.predict(known)[0] / strategy.history.values - 1).abs().mean() < 0.1
    if "cost" not in options:
        strategy.set_candidates(ROWS.flip(0))
        for before, after in zip((mean, sd), strategy.predict(ROWS), strict=True):
            assert torch.allclose(before, after, rtol=1e-6)


def test_devices(device: torch.device) -> None:
    """Tables and boxes, choices and predictions."""
    for strategy in (
        ThompsonSampling(ROWS.to(device), batch_size=4),
        ExpectedImprovement(ROWS.to(device), batch_size=4),
        ThompsonSampling(bounds=BOUNDS.to(device), batch_size=4),
    ):
        X = ROWS[:24].to(device)
        strategy.tell(X, steep(X))
        strategy.run(steep, 32, progress=False)
        assert warps_of(strategy) != [None]
        assert (strategy.predict(X)[0] / steep(X) - 1).abs().mean() < 0.1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", EACH, ids=NAMES)
def test_predictions_are_in_units_of_the_feedback(make: Any) -> None:
    """Means at known points are their values, within the noise of a fit."""
    strategy = run(make())
    X, Y = strategy.history.X, strategy.history.values
    mean, sd = strategy.predict(X)
    assert ((mean - Y).abs() <= 0.05 * Y.abs() + 5 * sd).all()
    assert (sd > 0).all() and (sd < 0.2 * Y.abs() + 1.0).all()


def test_quantiles_of_the_feedback() -> None:
    """Those of the posterior, on the scale on which it is normal; and back."""
    strategy = run(TABLES["improvement"]())
    view, (warp,) = strategy.surrogate.view, warps_of(strategy)
    assert warp is not None
    mean, sd = strategy.predict(ROWS)
    W, variance = view.pool.all_moments()
    ends = torch.tensor([[-1.96], [0.0], [0.7]], dtype=F64)
    expected = warp.inverse(view.prior.scale * (W + ends * variance.sqrt()))
    values = view.prior.at_deviations(mean, sd, ends)
    assert torch.allclose(values, expected)
    deviations = view.prior.deviations(mean, sd, values)
    assert torch.allclose(deviations, ends.expand(-1, len(ROWS)), atol=1e-6)


@pytest.mark.parametrize("name", ["thompson", "bbkb", "improvement"])
def test_smooth_functions_keep_their_values(name: str) -> None:
    strategy = run(TABLES[name](), lambda X: (4 * X).sin().sum(-1))
    assert warps_of(strategy) == [None]


def test_noisy_values_stay_as_they_are() -> None:
    g = torch.Generator().manual_seed(1)
    noise = torch.randn(len(ROWS), generator=g, dtype=F64)
    strategy = TABLES["thompson"]()
    Y = steep(ROWS)
    strategy.tell(ROWS, Y + 0.3 * Y.median().abs() * noise)
    strategy.learn()
    assert warps_of(strategy) == [None]


def test_a_kernel_that_is_given_is_of_the_values() -> None:
    kernel = ScaleKernel(MaternKernel(ard_num_dims=3))
    kernel.outputscale = 1e3
    assert warps_of(run(ThompsonSampling(ROWS, kernel, 1e-2))) == [None]


def test_the_scale_is_chosen_when_evaluations_have_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the first fit, and at those that come to a further power of two."""
    compared = counted(monkeypatch)
    ours = ThompsonSampling(ROWS, num_initial=5, batch_size=1)
    ours.run(steep, 40, progress=False)
    assert [num.bit_length() for num, _ in compared] == [2, 3, 4, 5, 6]


def test_a_fit_takes_the_scale_of_what_is_known() -> None:
    """Also where it does not compare scales."""
    strategy = run(TABLES["thompson"]())
    prior = strategy.surrogate.view.prior
    assert prior.last_fit == 32
    strategy.run(steep, 40, progress=False)
    after = strategy.surrogate.view.prior
    assert after.last_fit == 40 and after.warp != prior.warp
    assert after.warp == LogWarp.of(strategy.history.values)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """Evaluations and lengthscale factors of each comparison from here on."""
    compared, before = list[tuple[int, float]](), PriorSource.on_better_scale

    def compare(self: Any, fitted: Any, warp: Any, record: Any, seed: int) -> Any:
        compared.append((len(record), fitted.lengthscale_factor))
        return before(self, fitted, warp, record, seed)

    monkeypatch.setattr(PriorSource, "on_better_scale", compare)
    return compared


@pytest.mark.filterwarnings("ignore:Values lie far from all others")
def test_values_that_lie_apart_count_for_the_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all evaluations: at 20, and where 32 and 64 are there."""
    compared, strategy = counted(monkeypatch), TABLES["bbkb"](robust=True)
    Y = (4 * ROWS).sin().sum(-1)
    Y[::8] = -1e6
    for start, end in ((0, 20), (20, 40), (40, 66), (66, 84), (84, 110)):
        strategy.tell(ROWS[start:end], Y[start:end])
        strategy.learn()
    assert [num for num, _ in compared] == [17, 35, 57]


def test_scales_are_compared_with_the_lengthscales_of_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = counted(monkeypatch)
    radius = UnknownHyperparameters(growth=0.4, norm_growth=0.0, start=2)
    strategy = BBKB(ROWS, radius=radius)
    strategy.run(steep, 40, progress=False)
    strategy.learn()
    assert strategy.surrogate.view.prior.lengthscale_factor < 1.0
    assert len(compared) > 2 and {factor for _, factor in compared} == {1.0}
    assert warps_of(strategy) != [None]


def test_rows_that_are_appended_are_on_the_scale() -> None:
    """The pool that rows are chosen by, and the posterior of all data at once."""
    strategy = run(TABLES["exact"]())
    view = strategy.surrogate.view
    assert view.num_rebuilt < 32 and warps_of(strategy) != [None]
    moments = view.posterior.moments(view.source.inputs(ROWS))
    for ours, theirs in zip(view.pool.all_moments(), moments, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_gaps_keep_their_digits_far_from_zero() -> None:
    prior = Prior(MaternKernel(), 0.1, scale=1e-9, center=1e9)
    assert prior.gap(1.001, 1.0) == pytest.approx(1e-12)


@pytest.mark.parametrize("name", ["bbkb", "exact"])
def test_the_gap_is_in_units_of_the_feedback(name: str) -> None:
    """From the moments of all rows, by the formula of the scale."""
    strategy = run(TABLES[name]())
    view, (warp,) = strategy.surrogate.view, warps_of(strategy)
    assert warp is not None
    mean, variance = view.pool.all_moments()
    sd = variance.clamp_min(0.0).sqrt()

    def restored(z: Tensor) -> Tensor:
        w = view.prior.scale * z
        below = warp.best - warp.unit * ((-w / warp.unit).exp() - 1)
        return torch.where(w < 0, below, warp.best + w)

    gap = restored((mean + 2 * sd + 0.1).max()) - restored((mean - 2 * sd - 0.1).max())
    assert view.confidence_gap(2.0, 0.1) == pytest.approx(float(gap), rel=1e-9)


def test_the_model_of_a_box_is_of_the_feedback() -> None:
    """BoTorch's posterior of it: medians, deviations and samples; its data."""
    strategy = run(BOXES["thompson"]())
    assert warps_of(strategy) != [None]
    mean, sd = strategy.predict(ROWS)
    posterior = strategy.model.posterior(ROWS)
    assert torch.allclose(posterior.mean.squeeze(-1), mean)
    assert torch.allclose(posterior.variance.sqrt().squeeze(-1), sd)
    samples = posterior.rsample(torch.Size([512])).squeeze(-1)
    is_above = (samples > mean).double().mean(0)
    assert ((is_above - 0.5).abs() < 6 * 0.5 / 512**0.5).all()  # six deviations
    targets = strategy.model.train_targets.unsqueeze(-1)
    told = strategy.model.outcome_transform.untransform(targets)[0].squeeze(-1)
    assert torch.allclose(told, strategy.history.values)


def test_a_transform_takes_variances_along() -> None:
    """To first order, and back."""
    warp, Y = LogWarp(3.0, 2.0), torch.tensor([[-50.0], [1.0], [4.0]], dtype=F64)
    transform, step = LogWarpTransform(warp), 1e-6
    W, Wvar = transform(Y, torch.full_like(Y, 0.25))
    slope = (warp(Y + step) - warp(Y - step)) / (2 * step)
    assert torch.allclose(Wvar, 0.25 * slope.square(), rtol=1e-6)
    back, Yvar = transform.untransform(W, Wvar)
    assert torch.allclose(back, Y) and torch.allclose(Yvar, torch.full_like(Y, 0.25))


def test_a_scale_is_part_of_the_state_dict() -> None:
    warp, other = LogWarp(0.1, 1 / 3), LogWarpTransform(LogWarp(3.0, 2.0))
    other.load_state_dict(LogWarpTransform(warp).state_dict())
    assert other.warp == warp


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", EACH, ids=NAMES)
def test_a_run_goes_on_to_the_same_bits(make: Any, tmp_path: Path) -> None:
    strategy, saved = run(make()), make()
    strategy.save(tmp_path / "state.pt")
    saved.resume(tmp_path / "state.pt")
    assert warps_of(saved) == warps_of(strategy) != [None]
    for _ in range(3):
        batch, other = strategy.ask(), saved.ask()
        assert torch.equal(batch.X, other.X)
        strategy.tell(batch, steep(batch.X))
        saved.tell(other, steep(other.X))


def two(X: Tensor) -> Tensor:
    """What is steep, to be minimized, and what is not."""
    return torch.stack([-steep(X), X[:, 0]], dim=-1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("make", EACH, ids=NAMES)
@pytest.mark.parametrize("is_limited", [True, False])
def test_objectives_have_scales_and_constraints_have_none(
    make: Any, is_limited: bool
) -> None:
    """Predictions of each are in its own units."""
    second = Constraint("b", upper=0.5) if is_limited else Objective("b")
    outcomes = [Objective("a", minimize=True), second]
    strategy = run(make(outcomes=outcomes), two)
    first, other = warps_of(strategy)
    assert first is not None and other is None
    Y = two(strategy.history.X)
    mean, sd = strategy.predict(strategy.history.X)
    assert ((mean - Y).abs() <= 0.05 * Y.abs() + 5 * sd).all()
    assert (sd > 0).all() and (sd < 0.2 * Y.abs() + 1.0).all()


def test_a_steep_constraint_is_taken_as_it_is() -> None:
    """Which side of it matters no likelihood says."""
    outcomes = [Objective("b"), Constraint("a", upper=3.0)]
    strategy = run(TABLES["thompson"](outcomes=outcomes), lambda X: two(X).flip(-1))
    assert warps_of(strategy) == [None, None]


def test_improvements_of_several_objectives_are_in_their_units(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By draws of the values that are then scalarized, one at a time."""
    outcomes = [Objective("a", minimize=True), Objective("b")]
    strategy = run(TABLES["improvement"](outcomes=outcomes), two)
    batch = strategy._no_batch()
    parts, preference = batch._parts, batch._preference
    rows = torch.arange(len(ROWS))
    moments = {i: part.given_draws(rows) for i, part in enumerate(parts)}
    drawn = torch.stack(
        [
            part.in_units(moments[i][0] + moments[i][1] * batch._z[i])
            for i, part in enumerate(parts)
        ],
        dim=-1,
    )
    value = preference.value(drawn, batch._weights)
    expected = value - batch._best
    assert warps_of(strategy)[0] is not None
    assert torch.allclose(batch._above(moments), expected)
    known = torch.stack([part.in_units(part.means(strategy.record)) for part in parts])
    best = preference.value(known.mT.unsqueeze(0), batch._weights).amax(-1)
    assert torch.allclose(batch._best.squeeze(-1), best)


def test_improvement_on_the_best_value_is_that_of_the_feedback() -> None:
    """Above the best known value both scales are the same: draws of the feedback."""
    strategy = TABLES["improvement"]()
    worst = steep(ROWS).argsort()[:100]
    strategy.tell(ROWS[worst], steep(ROWS[worst]))
    strategy.learn()
    batch, (warp,) = strategy._no_batch(), warps_of(strategy)
    assert warp is not None
    batch._best = torch.zeros_like(batch._best)  # where the scale says the best is
    (part,), rows = batch._parts, torch.arange(len(ROWS))
    mean, sd = part.given_draws(rows)
    grid = torch.special.ndtri((torch.arange(20_000, dtype=F64) + 0.5) / 20_000)
    Y = part.in_units(mean.squeeze(0) + sd * grid.unsqueeze(-1))
    expected = (Y - warp.best).clamp_min(0.0).mean(0)
    is_large = expected > 1e-3 * expected.max()
    gain = batch.log_gain(rows).exp()
    assert is_large.sum() > 1
    assert torch.allclose(gain[is_large], expected[is_large], rtol=1e-2)


def test_shorter_lengthscales_keep_the_scale() -> None:
    surrogate = run(TABLES["thompson"]()).surrogate
    assert isinstance(surrogate, Surrogate)
    prior = surrogate.view.prior
    assert surrogate.source.shrunk(prior, 0.5).warp == prior.warp != None  # noqa: E711


@pytest.mark.slow
@pytest.mark.parametrize("name", ["thompson", "improvement"])
def test_it_finds_what_is_best(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer evaluations than without logarithms, by means of ten runs."""
    best = list[float]()
    for is_warped in (True, False):
        with monkeypatch.context() as patch:
            if not is_warped:
                patch.setattr(LogWarp, "of", lambda Y: None)
            runs = [run(TABLES[name](seed=seed), num=40) for seed in range(10)]
        best.append(sum(float(each.history.values.max()) for each in runs))
    assert best[0] >= best[1]
