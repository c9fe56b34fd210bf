"""What is better of several outcomes, by loops and by the volume that it stands for."""

import math
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from torch import Tensor

from botorch_sparse.strategies import Constraint, Objective, RandomSearch
from botorch_sparse.strategies.data.outcomes import Outcome, Outcomes
from botorch_sparse.strategies.data.preference import (
    Preference,
    dominated_hypervolume,
    feasible_front,
    reference_point,
)

NAN = float("nan")
VALUES = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0])
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=12)
OUTCOMES: list[Outcome] = [
    Objective("gain"),
    Objective("cost", minimize=True),
    Constraint("heat", lower=-1.0, upper=0.5),
]


def strategy_of(Y: list[tuple[float, ...]], outcomes: list[Outcome]) -> RandomSearch:
    """A strategy that was told one point for each row, in the user's signs."""
    X = torch.arange(float(len(Y))).double().unsqueeze(-1)
    strategy = RandomSearch(torch.cat([X, X + 100]), outcomes=outcomes)
    strategy.tell(X, Y)
    return strategy


def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Whether gain and cost of one are as good as the other's, and one is better."""
    pairs = [(a[0], b[0]), (-a[1], -b[1])]
    return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)


@given(ROWS)
def test_the_front_and_its_volume(Y: list[tuple[float, ...]]) -> None:
    """Equal values are all on the front; the volume is counted cell by cell."""
    history = strategy_of(Y, OUTCOMES).history
    feasible = [y for y in Y if -1.0 <= y[2] <= 0.5]
    front = [y for y in feasible if not any(dominates(z, y) for z in feasible)]
    assert history.pareto().values.tolist() == [list(y) for y in front]
    cells = [-2.0, -0.5, 0.0, 0.25, 1.0, 3.0]
    volume = 0.0
    for (x0, x1), (c0, c1) in product(pairwise(cells), repeat=2):
        if any(y[0] >= x1 and y[1] <= c0 for y in feasible):
            volume += (x1 - x0) * (c1 - c0)
    assert history.hypervolume([-2.0, 3.0]) == pytest.approx(volume, abs=1e-9)


@given(ROWS, st.integers(0, 99))
def test_the_order_of_paths(Y: list[tuple[float, ...]], seed: int) -> None:
    """Feasible first and by their scalarization, else by the violation."""
    strategy = strategy_of([*Y, (1.0, 0.0, 0.0), (0.0, 1.0, 4.0)], OUTCOMES)
    preference = Preference.of(strategy.record)
    torch.manual_seed(seed)
    weights = preference.draw_weights(1)
    rows = torch.tensor(Y, dtype=torch.double)
    signed = rows * torch.tensor([1.0, -1.0, 1.0])
    levels = [x[0].tolist() for x in preference.levels(signed.unsqueeze(0), weights)]
    reference, scale = preference.low.tolist(), preference.scale.tolist()
    spread, w = float(preference.spread), weights[0].tolist()
    for i, (gain, cost, heat) in enumerate(Y):
        below, above = max(-1.0 - heat, 0.0), max(heat - 0.5, 0.0)
        parts = [(gain - reference[0]) / scale[0], (-cost - reference[1]) / scale[1]]
        value = min(part / weight for part, weight in zip(parts, w, strict=True))
        if below + above == 0:
            assert levels[0][i] == pytest.approx(value) and levels[1][i] == -math.inf
        else:
            assert levels[0][i] == -math.inf
            assert levels[1][i] == pytest.approx(-(below + above) / spread)


@pytest.mark.parametrize("num", [2, 3])
def test_scalarizations_stand_for_the_hypervolume(num: int) -> None:
    """[ZhangGolovin2020]_; with a false alarm in a hundred thousand runs."""
    outcomes = Outcomes(tuple(Objective(i, threshold=0.0) for i in range(num)))
    F = torch.tensor([[1.0, 2.0, 0.5], [2.0, 0.5, 1.0], [1.5, 1.5, 0.2]]).double()
    F = F[:, :num]
    one = torch.ones(num, dtype=torch.double)
    preference = Preference(outcomes, 0 * one, 0 * one, one, one[:0])
    torch.manual_seed(0)
    weights = preference.draw_weights(200_000)
    assert weights.square().sum(-1).sub(1.0).abs().max() < 1e-12
    assert bool((weights >= 0).all())
    values = preference.value(F.unsqueeze(0), weights.unsqueeze(1)).amax(-1) ** num
    constant = math.pi ** (num / 2) / (2**num * math.gamma(num / 2 + 1))
    found, error = constant * float(values.mean()), constant * float(values.std())
    volume = dominated_hypervolume(F, 0 * one)
    assert abs(found - volume) < 4.4 * error / len(weights) ** 0.5


def test_units_do_not_matter() -> None:
    """Objectives in thousandths and constraints in thousands give the same levels."""
    Y = [(1.0, 2.0, 0.2), (2.0, 3.0, 0.9), (0.5, 0.5, -3.0), (0.1, 0.2, 0.4)]
    outcomes = [OUTCOMES[0], OUTCOMES[1], Constraint("heat", -1000.0, 500.0)]
    scaled = [(1e-3 * a, 1e3 * b, 1e3 * c) for a, b, c in Y]
    levels = []
    for rows, wanted in ((Y, OUTCOMES), (scaled, outcomes)):
        record = strategy_of(rows, wanted).record
        torch.manual_seed(0)
        preference = Preference.of(record)
        weights = preference.draw_weights(5)
        signed = record.Y.expand(5, -1, -1)
        levels.append(torch.stack(preference.levels(signed, weights)))
    assert torch.allclose(*levels, rtol=1e-9)


def test_what_is_not_known_decides_nothing() -> None:
    outcomes = Outcomes(tuple(OUTCOMES))
    one = torch.ones(2, dtype=torch.double)
    preference = Preference(outcomes, 0 * one, 0 * one, one, one[:1])
    Y = torch.tensor([[2.0, NAN, NAN], [NAN, 3.0, 0.8], [1.0, 5.0, NAN]]).double()
    value = preference.value(Y, torch.tensor([0.5, 0.25]).double())
    assert value.tolist() == [4.0, 12.0, 2.0]
    smooth = preference.value(Y, torch.tensor([0.5, 0.25]).double(), 0.1)
    assert smooth.tolist() == pytest.approx(value.tolist(), abs=0.1 * math.log(2))
    assert smooth[0] == value[0] and smooth[2] <= value[2]
    assert preference.violation(Y).tolist() == pytest.approx([0.0, 0.3, 0.0])
    assert preference.violation(Y, 0.1).tolist() == pytest.approx([0.0, 0.4, 0.0])
    assert feasible_front(outcomes, Y).tolist() == []


def test_the_reference_point_stands_still() -> None:
    """Thresholds first; else a quantile of the first twenty points that have it."""
    outcomes = Outcomes((Objective("a"), Objective("b", threshold=3.0), OUTCOMES[1]))
    g = torch.Generator().manual_seed(0)
    Y = torch.rand(50, 3, generator=g).double()
    Y[3, 0] = NAN
    first = sorted(Y[[0, 1, 2, *range(4, 21)], 0].tolist())
    expected = first[4] + 0.75 * (first[5] - first[4])  # at a quarter of 19 steps
    for num in (21, 30, 50):
        reference = reference_point(outcomes, Y[:num])
        assert float(reference[0]) == pytest.approx(expected) and reference[1] == 3.0
    assert reference_point(outcomes, Y[:0]).tolist() == [0.0, 3.0, 0.0]
    minimized = Objective("c", minimize=True, threshold=3.0)
    assert reference_point(Outcomes((minimized,)), Y[:0, :1]).tolist() == [-3.0]


def test_scalarizations_start_lower_where_there_is_no_threshold() -> None:
    """From the quartile of the first twenty, by 50 over the number of points."""
    Y = [(float(i), 2.0 * i, 0.0) for i in range(20)]
    outcomes = [Objective("a"), Objective("b", threshold=3.0), OUTCOMES[2]]
    for num, steps in ((20, 19 / 4), (50, 19 / 4), (100, 19 / 8), (500, 19 / 40)):
        more = [(30.0 + i, 0.0, 0.0) for i in range(num - 20)]
        preference = Preference.of(strategy_of([*Y, *more], outcomes).record)
        assert preference.low.tolist() == pytest.approx([steps, 3.0])
        assert preference.reference.tolist() == pytest.approx([19 / 4, 3.0])


def test_best_with_constraints() -> None:
    """The best feasible point; before there is one, the least violation."""
    outcomes = [OUTCOMES[1], OUTCOMES[2]]
    strategy = strategy_of([(1.0, 3.0), (9.0, 0.8), (5.0, 0.6), (2.0, 0.8)], outcomes)
    best = strategy.history.best()
    assert (best.row, best.value, best.is_feasible) == (2, 5.0, False)
    strategy.tell([[0.0]], [(0.0, 0.4)])  # the first point again: 1.7 in the mean
    strategy.tell(
        torch.tensor([[100.0], [101.0], [102.0]]).double(),
        [(7.0, 0.5), (6.0, -1.0), (0.0, NAN)],
    )
    best = strategy.history.best()
    assert (best.row, best.value, best.is_feasible) == (5, 6.0, True)
    front = strategy.history.pareto()
    assert front.indices is not None and front.indices.tolist() == [5]


def test_bad_outcomes() -> None:
    X = torch.rand(5, 2).double()

    def build(outcomes: Any, **options: Any) -> RandomSearch:
        return RandomSearch(X, outcomes=outcomes, **options)

    refused("without an objective", build, [OUTCOMES[2]])
    refused("each once", build, [OUTCOMES[0], OUTCOMES[0]])
    refused("one name for each", build, [OUTCOMES[0], Objective()])
    refused("minimize=True with outcomes", build, OUTCOMES, minimize=True)
    refused("need a list such as", build, ["gain"])
    refused("need a list such as", build, 3)
    refused("at least one limit", Constraint, "heat")
    refused("lower <= upper", Constraint, "heat", 2.0, 1.0)
    refused("lower", Constraint, "heat", NAN)
    refused("threshold", Objective, "gain", threshold=NAN)
    history = build(OUTCOMES).history
    refused("one for each objective", history.hypervolume, [1.0])
    refused(
        "There is no feedback yet", strategy_of([(1.0, NAN)], OUTCOMES[1:]).history.best
    )


def test_values_are_the_users() -> None:
    strategy = strategy_of([(1.0, 2.0, 0.0), (2.0, 5.0, 0.0)], OUTCOMES)
    history = strategy.history
    expected: Tensor = torch.tensor([[1.0, 2.0, 0.0], [2.0, 5.0, 0.0]]).double()
    assert torch.equal(history.pareto().values, expected)
    assert history.hypervolume([0.0, 6.0]) == pytest.approx(1 * 4 + 1 * 1)
    assert history.reference_point().tolist() == pytest.approx([1.25, 4.25])
    frame = history.pareto().to_frame()
    assert frame["cost"].tolist() == [2.0, 5.0] and "cost_mean" not in frame


GAINS, HEATS = st.sampled_from([0.0, 1.0, 2.0, 5.0, NAN]), [0.0, 0.5, 2.0, NAN]
OBSERVED = st.lists(
    st.tuples(st.integers(0, 5), GAINS, GAINS, st.sampled_from(HEATS)), max_size=20
)


@pytest.mark.slow
@given(OBSERVED, st.sampled_from([None, [0.5, 4.0], [-1.0, 6.0]]))
def test_volumes_after_each_evaluation(
    observed: list[tuple[float, ...]], reference: list[float] | None
) -> None:
    """As those of the beginnings of a run, where points repeat."""
    observed = [each for each in observed if any(y == y for y in each[1:])]
    X = torch.arange(10.0).double().unsqueeze(-1)
    strategy = RandomSearch(X, outcomes=OUTCOMES)
    rows = [int(each[0]) for each in observed]
    Y = torch.tensor([each[1:] for each in observed]).double().reshape(-1, 3)
    if len(rows):
        strategy.tell(X[rows], Y)
    if reference is None:
        reference = strategy.history.reference_point().tolist()
    start = RandomSearch(X, outcomes=OUTCOMES)
    expected = []
    for row, y in zip(rows, Y, strict=True):
        start.tell(X[row : row + 1], y.unsqueeze(0))
        expected.append(start.history.hypervolume(reference))
    volumes = strategy.history.hypervolumes(reference)
    assert volumes.tolist() == pytest.approx(expected, abs=1e-12)
