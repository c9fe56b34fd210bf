"""Why rows are proposed: chances, differences and neighbours."""

import re
from argparse import Namespace

import numpy as np
import pytest
import torch
from laboratory import DEFAULTS, HEAT, NUM, SOLVENT, Laboratory, Table, lines, loss
from scipy.stats import norm

pytest.importorskip("pandas")

from botorch_sparse.strategies import BBKB, Constraint, Objective, ThompsonSampling
from botorch_sparse.strategies.data.outcomes import Outcomes
from botorch_sparse.suggest.candidate_pool import Pool, read_pool
from botorch_sparse.suggest.outcome_options import Outcome
from botorch_sparse.suggest.reasons import (
    DRAWN,
    EXPLOITS,
    EXPLORES,
    chance_not_dominated,
    chance_within,
    explain,
    percent,
)
from botorch_sparse.suggest.results import Results, read_results
from botorch_sparse.suggest.selection import rebuild

A, B = Objective("a"), Objective("b", minimize=True)
REASON = re.compile(
    r"(exploits|explores): predicted (\S+) \((\S+) to (\S+)\), best so far (\S+) "
    r"\((\S+)\); (less than 1|more than 99|\d+)% chance to beat it; "
    r"(?:unlike (\S+): (.+); )?nearest measured: (\S+), (\S+)"
)


def learned(
    lab: Laboratory, outcomes: tuple[Outcome, ...], table: Table
) -> tuple[BBKB | ThompsonSampling, Pool, Results]:
    pool = read_pool(lab.pool, "id", outcomes)
    results = read_results([lab.write("m.csv", table)], pool)
    options = Namespace(strategy="thompson", batch=3, **DEFAULTS)
    return rebuild(options, pool, results, []), pool, results


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_reason_has_the_prediction_the_chance_and_the_neighbours(
    lab: Laboratory, sign: float
) -> None:
    """Each part computed from the posterior's own kernel and predictions."""
    outcomes = (Objective("loss", minimize=sign > 0),)
    table = [["id", "loss"], *([f"c{i}", sign * loss(i)] for i in range(20))]
    strategy, pool, results = learned(lab, outcomes, table)
    rows = list(range(20, NUM))
    explained = explain(strategy, pool, results, rows, 1)
    assert explained[0][2] == DRAWN
    X = strategy.candidates
    mean, sd = strategy.predict(X) or ()
    best = min(range(20), key=loss)
    Z = X[:, (X.max(0).values > X.min(0).values)]
    Z = (Z - Z.min(0).values) / (Z.max(0).values - Z.min(0).values)
    K = strategy.posterior.covar_module(Z).to_dense().detach()
    for row, (shown_mean, shown_sd, reason) in zip(
        rows[1:], explained[1:], strict=True
    ):
        found = REASON.fullmatch(reason)
        assert found is not None, reason
        word, value, low, high, attained, name, chance, other, cells, *near = (
            found.groups()
        )
        m, s = float(mean[row]), float(sd[row])
        assert float(shown_mean) == pytest.approx(m, rel=1e-4)
        assert float(shown_sd) == pytest.approx(s, rel=1e-4)
        for shown, expected in [(value, m), (low, m - 1.96 * s), (high, m + 1.96 * s)]:
            assert float(shown) == pytest.approx(expected, rel=1e-3, abs=1e-3 * s)
        assert float(attained) == pytest.approx(sign * loss(best), rel=1e-3)
        assert name == f"c{best}" and other in (None, name)
        better = norm.cdf((loss(best) - sign * m) / s)
        assert percent(better) == f"{chance}%"
        assert f"{word}: " == (EXPLOITS if better >= 0.5 else EXPLORES)
        nearest = K[row, :20].argsort(descending=True, stable=True)[:2]
        covariances = [float(K[row, int(each[1:])]) for each in near]
        assert covariances == pytest.approx(K[row, nearest].tolist())
        for cell in (cells or "").split(", ") if "gas" not in (cells or "") else []:
            column, mine, _, theirs = cell.rsplit(" ", 3) if cell else [""] * 4
            if column == "solvent":
                assert (mine, theirs) == (SOLVENT[row % 3], SOLVENT[best % 3])
            elif column == "heat":
                assert float(mine) == HEAT[row] and float(theirs) == HEAT[best]


def test_columns_that_matter_set_rows_apart(lab: Laboratory) -> None:
    """The target depends on one of three columns: that one is named, first or alone."""
    rng = np.random.default_rng(0)
    X = rng.random((60, 3)).round(6)
    lab.write(
        "pool.csv", [["id", "x", "y", "z"], *([f"c{i}", *X[i]] for i in range(60))]
    )
    table = [["id", "loss"], *([f"c{i}", np.sin(6 * X[i, 1])] for i in range(40))]
    strategy, pool, results = learned(lab, (Objective("loss"),), table)
    rows = list(range(40, 60))
    explained = explain(strategy, pool, results, rows, 0)
    best = int(np.sin(6 * X[:40, 1]).argmax())
    named = 0
    for row, (*_, reason) in zip(rows, explained, strict=True):
        if abs(X[row, 1] - X[best, 1]) > 0.1:
            assert f"unlike c{best}: y {X[row, 1]} for {X[best, 1]}" in reason
            named += 1
    assert named > 10


def test_chances_of_several_outcomes() -> None:
    """Against closed forms; 1,024 draws are off by 5 sds, 0.08, once in 10^6 cases."""
    mean, sd = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0])
    limit = Constraint("c", lower=1.0, upper=4.0)
    inside = norm.cdf(0.5) - norm.cdf(-1.0)
    assert chance_within((A, B, limit), mean, sd) == pytest.approx(inside)
    assert chance_within((A, B), mean[:2], sd[:2]) is None
    # a is beyond 1.2, or b below 1.5
    both = Outcomes.of((A, B), minimize=False)
    all_of_them = Outcomes.of((A, B, limit), minimize=False)
    front = torch.tensor([[1.2, 1.5, 2.0]]).double()
    dominated = norm.cdf(0.4) * norm.sf(-0.5)
    draws = mean + sd * np.random.default_rng(0).standard_normal((1024, 3))
    chance = chance_not_dominated(both, front[:, :2], draws[:, :2])
    assert chance == pytest.approx(1 - dominated, abs=0.08)
    chance = chance_not_dominated(all_of_them, front, draws)
    assert chance == pytest.approx((1 - dominated) * inside, abs=0.08)
    assert chance_not_dominated(both, front[:0, :2], draws[:, :2]) == 1.0


def test_reasons_of_several_outcomes(lab: Laboratory) -> None:
    def told(row: int) -> str:
        return f"c{row},{loss(row)},{HEAT[row]}"

    table = "|".join(["id,loss,gain", *map(told, range(20))])
    limited = (Objective("loss", minimize=True), Constraint("gain", upper=60.0))
    strategy, pool, results = learned(lab, limited, table)
    mean, sd = strategy.predict(strategy.candidates) or ()
    feasible = [i for i in range(20) if HEAT[i] <= 60]
    best = min(feasible, key=loss)
    for row, (*shown, reason) in zip(
        range(20, NUM), explain(strategy, pool, results, range(20, NUM), 0), strict=True
    ):
        assert len(shown) == 4
        assert f"best so far {loss(best):.4g} (c{best}); " in reason
        within = norm.cdf(60, *(float(each[row, 1]) for each in (mean, sd)))
        assert f"; {percent(within)} chance to keep to all limits; " in reason
    both = (Objective("loss", minimize=True), Objective("gain"))
    strategy, pool, results = learned(lab, both, table)
    explained = explain(strategy, pool, results, range(20, NUM), 0)
    assert all("% chance to belong to the front; " in each[-1] for each in explained)
    assert {each[-1].split(":")[0] for each in explained} <= {"exploits", "explores"}


def test_without_a_feasible_row_there_is_none_to_beat(lab: Laboratory) -> None:
    table = lines("id,loss,gain", "c{0},{0},9{0}", 9)
    outcomes = (Objective("loss"), Constraint("gain", upper=1.0))
    strategy, pool, results = learned(lab, outcomes, table)
    for *_, reason in explain(strategy, pool, results, [12, 13], 0):
        assert reason.startswith(EXPLORES) and "so far" not in reason
        assert "less than 1% chance to keep to all limits" in reason


def test_what_has_no_unit_yet_has_no_chance(lab: Laboratory) -> None:
    """All values of the objective are equal, and those of the constraint are not."""
    table = lines("id,loss,gain", "c{0},5,{0}", 9)
    outcomes = (Objective("loss"), Constraint("gain", upper=4.0))
    strategy, pool, results = learned(lab, outcomes, table)
    for *_, reason in explain(strategy, pool, results, [12, 13], 0):
        assert "nan" not in reason and "chance to beat" not in reason
        assert reason.startswith(EXPLORES) and "chance to keep to all limits" in reason


def test_chances_are_never_certain() -> None:
    shown = [percent(x) for x in (0.0, 0.004, 0.014, 0.5, 0.986, 1.0)]
    assert shown == ["less than 1%"] * 2 + ["1%", "50%", "99%", "more than 99%"]


def test_neighbours_beside_the_pool_have_their_line(lab: Laboratory) -> None:
    header = "id,heat,solvent,dose,lid,loss"
    table = [f"old{i},{HEAT[25] + i / 8},{SOLVENT[25 % 3]},0,1,{i}" for i in range(2)]
    rest = [f"c{i},,,,,{loss(i)}" for i in range(9)]
    strategy, pool, results = learned(
        lab, (Objective("loss"),), "|".join([header, *table, *rest])
    )
    assert {*strategy.history.indices.tolist()} == {*range(9), 30, 31}
    reasons = [each[-1] for each in explain(strategy, pool, results, range(9, NUM), 0)]
    assert any("line 2 (key 'old0')" in reason for reason in reasons)
