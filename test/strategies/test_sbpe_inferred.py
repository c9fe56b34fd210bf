"""S-BPE without a kernel: a first batch, what is fitted to it, and what follows."""

import math
import warnings
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import BotorchWarning, InputDataError, UnsupportedError
from botorch.exceptions.warnings import InputDataWarning
from dense_posteriors import rbf
from gpytorch.kernels import RBFKernel
from refusals import refused
from sbpe_problems import (
    UNIT_BOX,
    arguments,
    make_table,
    play,
    rkhs_function,
    with_noise,
)
from strategy_table import are_alike, equal
from torch import Tensor

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.acquisition.confidence import SBPERadius
from botorch_sparse.strategies import SBPE
from botorch_sparse.strategies.sbpe import sbpe as sbpe_module
from botorch_sparse.strategies.sbpe.search_state import SearchState

SCALE, OFFSET = 64.0, 1024.0
LOW = torch.tensor([-512.0, 3.0, 1e-3], dtype=torch.float64)
SPAN = torch.tensor([1024.0, 0.0, 1e-4], dtype=torch.float64)


def table(num: int = 150) -> Tensor:
    """Columns of other ranges, and a constant one between."""
    X = make_table(num)
    X = torch.stack([X[:, 0], X[:, 0] * 0, X[:, 1]], -1)
    return LOW + SPAN * X


def f_of(X: Tensor) -> Tensor:
    """In units of its own, and multiples of 2^-10, so that offsets are exact.

    Noise is a function of X too, so that a value does not depend on when it is told.
    """
    U = torch.stack([(X[:, 0] + 512) / 1024, (X[:, 2] - 1e-3) / 1e-4], -1).double()
    bumps = torch.frac(1e4 * torch.sin(U @ U.new_tensor([12.9898, 78.233])))
    Y = OFFSET + SCALE * (3 * rkhs_function(0)(U) + 0.2 * bumps)
    return (Y * 2**10).round() / 2**10


def build(**overrides: Any) -> SBPE:
    """Of the table with a constant column, which is not announced."""
    given = {"candidates": table(), "num_evaluations": 60}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputDataWarning)
        return SBPE(**given | overrides)


def fitted(strategy: SBPE) -> dict[str, Any]:
    """The fit that the state holds."""
    return strategy.state_dict()["fit"]


def scaled(X: Tensor) -> Tensor:
    """The columns that vary by the table's own ranges."""
    low, high = table().aminmax(dim=0)
    return ((X - low) / (high - low))[:, high > low]


def lengthscale(strategy: SBPE) -> Tensor:
    """Of the fitted kernel, `1 x 2`."""
    return strategy.progress.prior.covar_module.lengthscale


def test_the_first_batch_is_drawn_from_the_whole_table() -> None:
    """Uniformly and without replacement: each of the 15 pairs of 6 rows as often.

    Of 600 draws each pair has 40 +- 6.1; one is off by six deviations with probability
    below 1e-7.
    """
    strategy = build(candidates=table(6), num_evaluations=6)
    domain, g = strategy.domain, torch.Generator().manual_seed(0)
    assert strategy.lengths[0] == 2
    counts = np.zeros((6, 6), dtype=int)
    for _ in range(600):
        pair = domain.sample(2, g, strategy.record.add_point)
        counts[min(pair), max(pair)] += 1
    pairs = counts[np.triu_indices(6, 1)]
    assert pairs.sum() == 600 and np.abs(pairs - 40).max() < 6 * 6.1


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ({}, 6),  # 2 d, the constant column included
        ({"num_evaluations": 12}, 4),  # a third
        ({"candidates": make_table(4)}, 4),  # the table
        ({"candidates": torch.rand(30, 12)}, 20),  # at most
        ({"candidates": torch.rand(30, 1).double()}, 5),  # at least
        ({"num_initial": 11}, 11),
        ({"candidates": None, "bounds": UNIT_BOX}, 5),
    ],
)
def test_the_schedule_covers_what_is_left(change: Any, first: int) -> None:
    strategy = build(**change)
    N = change.get("num_evaluations", 60)
    assert strategy.lengths[0] == first and sum(strategy.lengths) == N
    known = SBPE(**arguments(num_evaluations=N - first))
    assert strategy.lengths[1:] == known.lengths
    assert strategy.num_evaluations == N


def test_nothing_is_ruled_out_by_the_first_batch() -> None:
    strategy = play(build(), f_of, 1)
    record = strategy.history.rounds[0]
    assert (record.length, record.num_evaluations, record.survivors) == (6, 6, 150)
    assert math.isnan(record.beta) and record.max_width == math.inf
    assert bool(strategy.survivors.all()) and strategy.confidence_gap() == math.inf
    with pytest.raises(UnsupportedError, match="no confidence bounds before"):
        strategy.recommend()
    play(strategy, f_of, 1)
    assert strategy.recommend().lower < strategy.recommend().upper


def test_mean_noise_and_scale_are_those_of_the_first_batch() -> None:
    """The constant by dense generalized least squares under the fitted prior."""
    strategy = play(build(num_initial=15), f_of, 1)
    fit, Y = fitted(strategy), strategy.history.Y
    assert fit["last_fit"] == 15
    assert fit["scale"] == pytest.approx(float(Y.std()), rel=1e-12)
    lam = strategy.progress.prior.lam
    X = scaled(strategy.history.X)
    covariance = rbf(X, X, lengthscale(strategy)) + lam * np.eye(15)
    weights = np.linalg.solve(covariance, np.ones(15))
    center = float(weights @ Y.numpy() / weights.sum())
    # An error of the solution is at most cond(K + lam I) eps, and K is at most 15.
    error = (15 + lam) / lam * 1e-15 * float(Y.abs().max())
    assert fit["center"] == pytest.approx(center, abs=100 * error)
    assert abs(center - float(Y.mean())) > 1e-3 * float(Y.std())
    radius = strategy.radius
    assert isinstance(radius, SBPERadius)
    assert radius.noise_variance == lam and radius.norm_bound == 1.0
    batches = 4 * (math.ceil(math.log2(math.log2(45))) + 1) * 150
    assert radius.num_intervals == batches
    # B of the 12 that are left of 18; of 18 it would be 4
    assert build(num_evaluations=18).radius.num_intervals == 4 * 3 * 150


def test_lam_and_noise_std_that_are_given_are_in_units_of_Y() -> None:
    given = play(build(lam=4.0, noise_std=3.0, mgf_radius=0.5), f_of, 1)
    scale = fitted(given)["scale"]
    assert scale > 10
    assert given.progress.prior.lam == pytest.approx(4.0 / scale**2, rel=1e-14)
    assert given.radius.noise_variance == pytest.approx(9.0 / scale**2, rel=1e-14)
    assert given.radius.mgf_radius == pytest.approx(0.5 * scale, rel=1e-14)
    same = play(build(), f_of, 1)
    assert equal(fitted(same), fitted(given))


def by_hand(strategy: SBPE, **kwargs: Any) -> SBPE:
    """With the fitted kernel on the scaled table."""
    kernel = RBFKernel(ard_num_dims=2).double().requires_grad_(False)
    kernel.lengthscale = lengthscale(strategy).detach()
    lam = strategy.progress.prior.lam
    return SBPE(
        scaled(strategy.candidates),
        kernel,
        num_evaluations=sum(strategy.lengths[1:]),
        lam=lam,
        noise_std=lam**0.5,
        **kwargs,
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("minimize", [False, True], ids=["maximize", "minimize"])
@pytest.mark.parametrize(
    "options", [{}, {"refresh": "exact", "norm_bound": 0.5}], ids=["sparse", "exact"]
)
def test_what_follows_is_the_known_kernel(options: Any, minimize: bool) -> None:
    """Points, survivors and intervals of S-BPE on the scaled table with standardized
    feedback, built by hand."""
    options = options | {"constants": "practical"}
    strategy = play(build(minimize=minimize, **options), f_of, 1)
    fit = fitted(strategy)
    center, scale = fit["center"], fit["scale"]
    twin, sign = by_hand(strategy, **options), -1.0 if minimize else 1.0
    assert twin.lengths == strategy.lengths[1:]
    for number in range(1, 4):
        batch, same = strategy.ask(), twin.ask()
        assert torch.equal(batch.indices, same.indices)
        Y = f_of(batch.X)
        strategy.tell(batch, Y)
        twin.tell(same, (sign * Y - center) / scale)
        assert torch.equal(strategy.survivors, twin.survivors)
        ours, theirs = strategy.history.rounds[number], twin.history.rounds[number - 1]
        assert ours.survivors == theirs.survivors
        assert ours.beta == pytest.approx(theirs.beta, rel=1e-10)
        assert ours.max_width == pytest.approx(scale * theirs.max_width, rel=1e-8)
        assert strategy.confidence_gap() == pytest.approx(
            scale * twin.confidence_gap(), rel=1e-8
        )
        X = strategy.candidates[:9]
        for part, expected in zip(
            strategy.last_bounds.interval(X),
            twin.last_bounds.interval(scaled(X)),
            strict=True,
        ):
            torch.testing.assert_close(
                part, center + scale * expected, rtol=1e-8, atol=0
            )
    assert int(strategy.survivors.sum()) < 100
    ours, theirs = strategy.recommend(), twin.recommend()
    assert ours.index == theirs.index
    sides = (theirs.upper, theirs.lower) if minimize else (theirs.lower, theirs.upper)
    for got, expected in zip(
        (ours.mean, ours.lower, ours.upper), (theirs.mean, *sides), strict=True
    ):
        assert got == pytest.approx(sign * (center + scale * expected), rel=1e-8)


@pytest.mark.parametrize("minimize", [False, True], ids=["maximize", "minimize"])
def test_predictions_are_those_of_the_last_batch(minimize: bool) -> None:
    """Dense, by the exact posterior, in the units and the sign of the feedback."""
    strategy = play(build(minimize=minimize, refresh="exact"), f_of, 1)
    assert strategy.predict(strategy.candidates) is None
    assert strategy.history.best().mean is None
    play(strategy, f_of, 2)
    units = strategy.progress.prior
    lam = units.lam
    lengths, history = lengthscale(strategy), strategy.history
    last = history.batch_number == history.batch_number.max()
    X, Z = scaled(history.X[last]), scaled(strategy.candidates)
    K, cross = (torch.from_numpy(rbf(X, A, lengths)) for A in (X, Z))
    K += lam * torch.eye(len(K), dtype=torch.float64)
    center = -units.center if minimize else units.center
    weights = torch.linalg.solve(K, cross)
    expected = center + (history.Y[last] - center) @ weights
    deviation = units.scale * (1 - (cross * weights).sum(0)).sqrt()
    mean, sd = strategy.predict(strategy.candidates)
    scale = units.scale / lam  # of rounding: the condition number is n / lam at most
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-10 * scale)
    torch.testing.assert_close(sd, deviation, rtol=0, atol=1e-7 * scale)
    best = history.best()
    assert best.mean == float(strategy.predict(best.X[None])[0])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("box", [False, True], ids=["table", "box"])
def test_units_of_the_feedback_change_no_choice(box: bool) -> None:
    """An offset and a factor that are exact in floating point."""
    change: dict[str, Any] = {"constants": "practical"}
    if box:
        change |= {"candidates": None, "bounds": UNIT_BOX, "num_evaluations": 15}
        change |= {"raw_samples": 16, "num_restarts": 1}

    def f(X: Tensor) -> Tensor:
        return (rkhs_function(0)(X) * 2**20).round() / 2**20 if box else f_of(X)

    plain = play(build(**change), f, 2)
    X = plain.history.X.double()
    for factor, offset in ((1.0, 2.0**12), (2.0**6, 0.0), (2.0**-9, -(2.0**3))):
        other = play(build(**change), lambda X, a=factor, b=offset: a * f(X) + b, 2)
        # Parameters differ by rounding, which fits may magnify: by their tolerance.
        near = {"rtol": 0, "atol": 0.02 if box else 0}
        torch.testing.assert_close(other.history.X, plain.history.X, **near)
        for ours, theirs in zip(
            other.last_bounds.interval(X), plain.last_bounds.interval(X), strict=True
        ):
            near = {"rtol": 1e-3, "atol": 1e-3 * float(theirs.std())}
            torch.testing.assert_close((ours - offset) / factor, theirs, **near)
        if not box:
            assert torch.equal(other.survivors, plain.survivors)
            assert other.recommend().index == plain.recommend().index


@pytest.mark.one_in(4)
@pytest.mark.parametrize("told", [2, 6, 9, 20], ids="first fit second third".split())
@pytest.mark.parametrize("exploration", ["variance", "random"])
def test_resume_at_any_point(told: int, exploration: Any) -> None:
    """In the first batch, right after the fit, in the next one, and in a third one.

    What the other strategy saw before leaves no trace.
    """
    given = {"exploration": exploration, "minimize": True}
    straight, used = build(seed=1, **given), build(seed=7, **given)
    while len(straight.history) < told:
        batch = straight.ask(min(2, told - len(straight.history)))
        straight.tell(batch, f_of(batch.X))
    if straight.num_left:
        straight.ask(1)
    used.run(f_of, 40, progress=False)
    used.load_state_dict(straight.state_dict())
    assert equal(used.state_dict(), straight.state_dict())
    for strategy in (straight, used):
        strategy.run(f_of, 60, progress=False)
    assert are_alike(straight, used)
    assert straight.recommend().lower == used.recommend().lower


@pytest.mark.parametrize("change", [{"lam": 1.0}, {"noise_std": 0.1}, {"delta": 0.1}])
def test_a_state_of_other_arguments_is_refused(change: dict[str, Any]) -> None:
    state = play(build(), f_of, 1).state_dict()
    refused("does not fit this strategy", build(**change).load_state_dict, state)
    same_for_now = {"lam": build().progress.prior.lam}
    with pytest.raises(InputDataError, match=r"does not fit this strategy.*'lam'"):
        build(**same_for_now).load_state_dict(state)
    known = SBPE(**arguments(candidates=table(), num_evaluations=60))
    refused("does not fit this strategy", known.load_state_dict, state)
    strategy = build()
    with pytest.raises(InputDataError, match="The state is damaged"):
        strategy.load_state_dict(state | {"fit": {"center": 0.0}})
    assert fitted(strategy) is None and strategy.lengths[0] == 6
    assert equal(play(strategy, f_of, 1).state_dict()["fit"], state["fit"])


@pytest.mark.parametrize("is_withdrawn", [True, False], ids=["withdrawn", "equal"])
def test_feedback_that_nothing_can_be_fitted_to(is_withdrawn: bool) -> None:
    """More feedback helps; else the next batch is drawn too, which is announced."""
    strategy = build()
    batch = strategy.ask()
    if is_withdrawn:
        strategy.withdraw(batch)
    else:
        strategy.tell(batch, torch.full((6,), 3.0))
    assert len(strategy.history.rounds) == 0 and fitted(strategy) is None
    drawn = deepcopy(strategy)
    X = strategy.candidates[:3]
    strategy.tell(X, f_of(X))
    assert fitted(strategy)["last_fit"] == len(strategy.history)
    assert len(strategy.ask()) == strategy.lengths[1]
    with pytest.warns(BotorchWarning, match=r"fewer than two.*The next batch, of 8 "):
        second = drawn.ask()
    assert len(second) == drawn.lengths[1] == 8 and fitted(drawn) is None
    assert not set(second.indices.tolist()) & set(drawn.history.indices.tolist())
    assert [r.survivors for r in drawn.history.rounds] == [150]
    drawn.tell(second, f_of(second.X))
    assert fitted(drawn)["last_fit"] == len(drawn.history)
    play(drawn, f_of, 1)
    assert drawn.recommend().lower < drawn.recommend().upper


def constant(X: Tensor) -> Tensor:
    return torch.full((len(X),), 3.0)


@pytest.mark.parametrize("domain", ["table", "few rows", "box"])
def test_constant_feedback_goes_on_to_the_horizon(domain: str) -> None:
    """Without bounds. A table's rows come once each, before any comes again."""
    place: dict[str, Any] = {"candidates": table(20 if domain == "few rows" else 150)}
    if domain == "box":
        ends = torch.stack([torch.zeros(2), torch.ones(2)]).double()
        place = {"candidates": None, "bounds": ends}
    strategy, twin = build(**place), build(**place)
    with pytest.warns(BotorchWarning) as caught:
        history = strategy.run(constant, 60, progress=False)
    texts = [str(w.message) for w in caught]
    assert all("fewer than two different values" in text for text in texts)
    assert len(texts) == len(history.rounds) == len(strategy.lengths)
    assert "horizon ends without bounds" in texts[-1]
    assert len(history) == 60 and strategy.is_finished and fitted(strategy) is None
    with pytest.raises(UnsupportedError, match="after two values differ"):
        strategy.recommend()
    if domain != "box":
        num = len(strategy.candidates)
        assert len(set(history.indices[:num].tolist())) == min(num, 60)
        assert bool(strategy.survivors.all())
    with pytest.warns(BotorchWarning, match="fewer than two"):
        twin.run(constant, 23, progress=False)
    other = build(**place)
    other.load_state_dict(twin.state_dict())
    with pytest.warns(BotorchWarning, match="fewer than two"):
        for s in (twin, other):
            s.run(constant, 60, progress=False)
    assert are_alike(twin, other) and equal(twin.history.X, history.X)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("domain", ["table", "box"])
def test_feedback_of_zeros_and_ones_goes_on_to_the_horizon(domain: str) -> None:
    place: dict[str, Any] = {"candidates": table(150)}
    if domain == "box":
        ends = torch.stack([torch.zeros(2), torch.ones(2)]).double()
        place = {"candidates": None, "bounds": ends}
    strategy = build(**place)
    history = strategy.run(lambda X: (X[:, 0] > 0.5).double(), 60, progress=False)
    assert len(history) == 60 and strategy.is_finished
    assert {*history.Y.flatten().tolist()} == {0.0, 1.0}


def test_a_row_that_fails_is_not_drawn_again() -> None:
    """Where rows come more than once, since there are fewer than points."""
    strategy = build(candidates=table(8), num_initial=2)
    with pytest.warns(BotorchWarning, match="fewer than two"):
        strategy.run(constant, 12, progress=False)
        strategy.fail(bad := strategy.ask(1))
        strategy.run(constant, 59, progress=False)
    row = int(bad.indices)
    assert row not in strategy.history.indices[12:].tolist()
    assert row in strategy.history.indices[:12].tolist()


def test_rare_successes_are_fitted_to_once_there_is_one() -> None:
    """Feedback of 0 and 1, with no 1 in the first batch."""
    strategy = build()
    first = set(deepcopy(strategy).ask().indices.tolist())
    with pytest.warns(BotorchWarning, match="fewer than two"):
        second = deepcopy(strategy)
        second.tell(batch := second.ask(), 0.0 * constant(batch.X))
        success = int(second.ask().indices[0])
    assert success not in first

    def f(rows: Tensor) -> Tensor:
        return (rows == success).double()

    with pytest.warns(BotorchWarning, match="fewer than two"):
        history = strategy.run(f, 60, progress=False, by_index=True)
    assert len(history) == 60 and history.best().row == success
    assert [math.isnan(r.beta) for r in history.rounds[:3]] == [True, True, False]
    assert fitted(strategy)["last_fit"] == 14 and bool(strategy.survivors[success])


def test_data_from_before_count_for_the_fit_alone() -> None:
    """Points that are withdrawn are missing there, and are not replaced."""
    strategy = build()
    X = strategy.candidates[:10]
    strategy.tell(X, f_of(X))
    batch = strategy.ask()
    strategy.tell(batch.X[:4], f_of(batch.X[:4]))
    strategy.withdraw(batch)
    assert strategy.history.rounds[0].num_evaluations == 4
    assert fitted(strategy)["last_fit"] == 14
    play(strategy, f_of, 1)
    assert float(strategy.last_bounds.data["counts"].sum()) == strategy.lengths[1]


@pytest.mark.parametrize(
    ("owner", "name"), [(sbpe_module, "fitted_prior"), (SearchState, "ended")]
)
def test_a_fit_that_is_interrupted(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in it, or after it, leaves no trace; the feedback can be told again."""
    strategy, twin = build(), play(build(), f_of, 2)
    batch = strategy.ask()
    before = strategy.state_dict()

    def interrupt(*_: Any) -> float:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            strategy.tell(batch, f_of(batch.X))
    assert equal(strategy.state_dict(), before)
    strategy.tell(batch, f_of(batch.X))
    play(strategy, f_of, 1)
    assert are_alike(strategy, twin)


def test_constant_columns_are_named_once() -> None:
    pandas = pytest.importorskip("pandas")
    X = table(40)
    frame = pandas.DataFrame({"heat": X[:, 0], "ph": X[:, 1], "salt": X[:, 2]})
    with pytest.warns(InputDataWarning, match="Columns ph of the candidates are const"):
        strategy = SBPE(frame, num_evaluations=30)
    plain = play(
        build(candidates=X[:, [0, 2]], num_evaluations=30, num_initial=6),
        lambda Z: f_of(torch.stack([Z[:, 0], Z[:, 0] * 0, Z[:, 1]], -1)),
        2,
    )
    play(strategy, f_of, 2)
    assert torch.equal(strategy.history.indices, plain.history.indices)
    assert torch.equal(strategy.survivors, plain.survivors)
    refused("all the same", build, candidates=X[:1].expand(40, -1))


def test_a_box() -> None:
    """Inputs are scaled by the bounds; what follows is S-BPE on the unit square."""
    bounds = torch.tensor([[-512.0, 0.0], [512.0, 1e-3]], dtype=torch.float64)

    def unit(X: Tensor) -> Tensor:
        return (X - bounds[0]) / (bounds[1] - bounds[0])

    def f(X: Tensor) -> Tensor:
        return OFFSET + SCALE * rkhs_function(1, 3.0)(unit(X))

    options: dict[str, Any] = {"radius": FixedBeta(4.0), "raw_samples": 24}
    options |= {"num_restarts": 1, "num_evaluations": 20, "schedule": [9, 6]}
    strategy = SBPE(bounds=bounds, **options)
    assert strategy.lengths == [5, 9, 6]
    play(strategy, f, 1)
    first = unit(strategy.history.X)
    assert len({tuple(x) for x in (first * 8).floor().tolist()}) == 5  # spread out
    play(strategy, f, 2)
    assert bool(strategy.region.box.is_feasible(strategy.history.X).all())
    best = strategy.recommend()
    assert best.lower < float(f(best.X[None])) < best.upper
    side = torch.linspace(0, 1, 41, dtype=torch.float64)
    grid = bounds[0] + torch.cartesian_prod(side, side) * (bounds[1] - bounds[0])
    assert float(f(grid).max() - f(best.X[None])) < 0.2 * float(f(grid).std())
    assert 0 < float(strategy.region.contains(grid).double().mean()) < 0.5
    options = {"num_evaluations": 17, "schedule": [12], "exploration": "random"}
    strategy = play(SBPE(bounds=bounds, raw_samples=24, **options), f, 2)
    offset = strategy.history.rounds[1].offset
    assert strategy.last_bounds is not None and strategy.last_bounds.offset > 0
    assert offset == fitted(strategy)["scale"] * strategy.last_bounds.offset
    steepest = 1 / float(lengthscale(strategy).min())
    c = max(1.0, steepest * math.sqrt(2)) ** 2  # Assumption 3.6 on the unit square
    assert strategy.radius.discretization == pytest.approx(c, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"num_evaluations": 5}, "num_evaluations=5 without covar_module; need 6"),
        ({"num_initial": 21}, "num_initial=21; need 2 to 20: different candidates"),
        ({"num_initial": 5, "candidates": table(4)}, "num_initial=5; need 2 to 4"),
        (arguments(num_initial=5), "num_initial=5 with covar_module"),
    ],
)
def test_bad_arguments(change: dict[str, Any], match: str) -> None:
    refused(match, build, **change)


@pytest.mark.parametrize("minimize", [False, True], ids=["maximize", "minimize"])
@pytest.mark.parametrize(
    "box",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["table", "box"],
)
def test_an_offset_with_a_kernel_is_announced_once(minimize: bool, box: bool) -> None:
    """By the first batch that has feedback; nothing else changes."""
    change: dict[str, Any] = {"minimize": minimize, "num_evaluations": 20}
    change |= {"schedule": [4, 4, 12]}
    if box:
        change |= {"bounds": UNIT_BOX, "raw_samples": 16, "radius": None}
    f = rkhs_function(0)
    strategy = SBPE(**arguments(**change))
    strategy.withdraw(strategy.ask())
    batch = strategy.ask()
    mean = float(f(batch.X).mean()) + 10
    with pytest.warns(InputDataWarning, match=f"with mean {mean:.3g}.*Subtract") as got:
        strategy.tell(batch, f(batch.X) + 10)
    assert len(got) == 1 and "norm_bound=1 allows for 1" in str(got[0].message)
    needed = float((f(batch.X) + 10).abs().max())
    assert f"norm_bound of at least {needed:.3g}" in str(got[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(strategy, lambda X: f(X) + 10, 1)
    assert len(strategy.history) == 16


@pytest.mark.parametrize("seed", range(4))
def test_feedback_of_the_allowed_size_is_not_announced(seed: int) -> None:
    """|f| is at most the norm; five deviations of the noise are not reached."""
    for norm in (1.0, 10.0):
        f = with_noise(rkhs_function(seed, norm), seed)
        play(SBPE(**arguments(norm_bound=norm)), f, 2)
    with pytest.warns(InputDataWarning, match="is of size"):
        play(SBPE(**arguments()), rkhs_function(seed, 100.0), 1)
    play(SBPE(**arguments(radius=FixedBeta(4.0))), rkhs_function(seed, 100.0), 1)
