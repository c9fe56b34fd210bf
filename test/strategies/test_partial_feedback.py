"""Outcomes that are measured for some points only, or later, in any order."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.exceptions import BotorchError, BotorchWarning, UnsupportedError
from botorch.exceptions.warnings import InputDataWarning
from refusals import refused
from strategy_cases import ALL, OUTCOMES, SEVERAL, three_outcomes
from strategy_table import are_alike, equal, make_candidates, make_kernel, objective
from torch import Tensor

from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    GSSBO,
    SBPE,
    Constraint,
    Objective,
    RandomSearch,
    Strategy,
    ThompsonSampling,
    TrustRegionBBKB,
)

pd = pytest.importorskip("pandas")

NAN, INF = float("nan"), float("inf")
NAMES = ["yield", "cost", "waste"]
EPS = torch.finfo(torch.float64).eps
all_cases = pytest.mark.parametrize("name", SEVERAL)


def measure(X: Tensor) -> Tensor:
    return three_outcomes(objective, X)


def thompson(**options: Any) -> ThompsonSampling:
    """All points are inducing points, and batches of four rows."""
    plain: dict[str, Any] = {"candidates": make_candidates(40), "outcomes": OUTCOMES}
    plain |= {"covar_module": make_kernel(0.1), "lam": 1e-2, "oversampling": 1e9}
    return ThompsonSampling(**plain | {"batch_size": 4} | options)


def some_told(Y: Tensor, g: torch.Generator, share: float) -> tuple[Tensor, Tensor]:
    """`Y` where a share of it is measured, one of each row at least, and the rest."""
    now = torch.rand(Y.shape, generator=g) < share
    now[range(len(Y)), torch.randint(Y.shape[-1], (len(Y),), generator=g)] = True
    return Y.where(now, torch.nan), Y.where(~now, torch.nan)


@pytest.mark.parametrize("seed", range(4))
def test_told_in_parts_as_at_once(seed: int) -> None:
    """Rows that repeat, in any order, with some outcomes that never come.

    Solutions differ by rounding, times the condition number of the covariance.
    """
    g = torch.Generator().manual_seed(seed)
    rows = torch.randint(12, (30,), generator=g)
    parts, whole = thompson(), thompson()
    noise = 0.1 * torch.randn(30, 3, generator=g, dtype=torch.double)
    Y, _ = some_told(measure(parts.candidates[rows]) + noise, g, 0.8)
    parts.restore_trials(rows)
    whole.tell(parts.candidates[rows], Y)
    left = {(trial, k) for trial, k in (~Y.isnan()).nonzero().tolist()}
    while left:
        some = sorted(left)
        some = [some[i] for i in torch.randperm(len(some), generator=g)[:7]]
        left -= set(some)
        ids = sorted({trial for trial, _ in some})
        part = torch.full((len(ids), 3), NAN, dtype=torch.double)
        for trial, k in some:
            part[ids.index(trial), k] = Y[trial, k]
        parts.tell(ids, part)
        if len(left) % 3 == 0:
            parts.learn()
    assert len(parts.history) == 30 and len(parts.pending) == 0
    assert equal(parts.history.Y[parts.history.trial.argsort()], Y)
    K = make_kernel(0.1)(parts.candidates[:12]).to_dense()
    tolerance = 12 * EPS * float(torch.linalg.cond(K) * Y.nan_to_num().abs().max())
    found, expected = (s.predict(make_candidates()) for s in (parts, whole))
    assert tolerance < 1e-11
    assert torch.allclose(found[0], expected[0], rtol=0, atol=tolerance)
    assert torch.allclose(
        found[1].square(), expected[1].square(), rtol=0, atol=tolerance
    )


def test_the_order_of_points_is_that_of_a_resumed_run() -> None:
    """An outcome came in another order than its points: the same bits, before more."""
    strategy, twin = thompson(), thompson(seed=5)
    strategy.ask(4)
    strategy.tell([0, 1], [[1.0, NAN, 0.1], [2.0, 0.3, NAN]])
    strategy.tell([0, 2], [[NAN, 0.7, NAN], [0.5, NAN, 0.2]])
    strategy.learn()
    strategy.tell([2], [[NAN, 0.4, NAN]])  # told, and not learned yet
    twin.load_state_dict(strategy.state_dict())
    X = make_candidates()
    assert equal(list(twin.predict(X)), list(strategy.predict(X)))
    posteriors = zip(twin.posterior, strategy.posterior, strict=True)
    assert all(torch.equal(a.chol_inner, b.chol_inner) for a, b in posteriors)


@pytest.mark.one_in(6)
@all_cases
def test_an_outcome_that_nobody_has_measured(name: str) -> None:
    """Points are chosen by the others; it may come for all of them."""
    make, f, _ = ALL[name]
    strategy = make(batch_size=4)
    for _ in range(3):
        batch = strategy.ask()
        Y = f(batch.X)
        Y[:, 1] = NAN
        strategy.tell(batch, Y)
    history = strategy.history
    assert history.missing("cost").tolist() == list(range(12))
    assert history.missing("yield").tolist() == []
    assert len(history.pareto()) == 0 and history.hypervolume() == 0.0
    costs = f(history.X)[:, 1].flip(0).tolist()
    strategy.tell(range(11, -1, -1), [[NAN, cost, NAN] for cost in costs])
    assert torch.equal(history.Y, f(history.X)) and len(history.pareto()) > 0
    assert len(history.missing("cost")) == 0
    assert len(strategy.ask()) == 4


@pytest.mark.one_in(3)
@pytest.mark.parametrize("known", [[1], [2]])
@all_cases
def test_what_is_known_decides(name: str, known: list[int]) -> None:
    """Points are asked for whatever was measured, also constraints alone."""
    make, f, _ = ALL[name]
    strategy = make(batch_size=3)
    for _ in range(3):
        batch = strategy.ask()
        Y = torch.full((len(batch), 3), NAN, dtype=torch.double)
        Y[:, known] = f(batch.X)[:, known]
        strategy.tell(batch, Y)
    batch = strategy.ask()
    assert len(batch) == 3 and bool(batch.X.isfinite().all())


def test_what_comes_later_is_no_trial() -> None:
    """It fills no batch, and is in none; nor does it count as another evaluation."""
    strategy = thompson()
    first, second = strategy.ask(), strategy.ask()
    now, later = measure(first.X), measure(first.X)
    now[:, 1:], later[:, 0] = NAN, NAN
    strategy.tell(first, now)
    assert strategy.state_dict()["num_learned"] == 4
    strategy.tell(first, later)
    assert strategy.state_dict()["num_learned"] == 4  # four others are out
    assert strategy.batch_points() == second.indices.tolist()
    last = strategy.history.last_batch()
    assert last.ids.tolist() == [0, 1, 2, 3] and torch.equal(last.X, first.X)
    assert len(strategy.history) == 4 and len(strategy.history.to_frame()) == 4
    strategy.tell(second, measure(second.X))
    assert strategy.state_dict()["num_learned"] == 12


def test_each_outcome_has_its_own_points_in_progress() -> None:
    """Pending ones, and those that are told and not learned yet."""
    plain = {"covar_module": make_kernel(), "lam": 0.1, "noise_variance": 0.01}
    strategy = BBKB(make_candidates(40), outcomes=OUTCOMES, **plain)
    first = strategy.ask(1)
    strategy.tell(first, [[1.0, NAN, NAN]])  # learned
    rows = strategy.restore_trials([3, 8, 5]).indices.tolist()
    strategy.tell([1], [[1.0, NAN, NAN]])
    assert strategy._points_of_outcomes() == [rows] * 3
    strategy.tell([0], [[NAN, 2.0, NAN]])
    later = [int(first.indices[0])]
    assert strategy._points_of_outcomes() == [rows, later + rows, rows]
    strategy.learn()
    assert strategy._points_of_outcomes() == [[8, 5]] * 3


@pytest.mark.one_in(2)
@pytest.mark.parametrize("is_inferred", [False, True])
@pytest.mark.parametrize("is_box", [False, True])
def test_an_outcome_that_is_told_and_not_learned(
    is_box: bool, is_inferred: bool
) -> None:
    """Its first values come while others are out: it decides nothing yet."""
    options: dict[str, Any] = {"candidates": make_candidates(40)}
    if is_box:
        options = {"bounds": torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()}
        options["optimizer_options"] = {"num_restarts": 1, "raw_samples": 8}
    if not is_inferred:
        options |= {"covar_module": make_kernel(), "lam": 0.1, "noise_variance": 0.01}
    strategy = BBKB(outcomes=OUTCOMES, batch_size=3, **options)
    X = make_candidates(40)[:20]
    strategy.tell(X, measure(X) * torch.tensor([1.0, 1.0, NAN]))
    first = strategy.ask(2)
    strategy.tell(first.ids[:1], [[NAN, NAN, 0.2]])
    assert len(strategy.ask()) > 0 and len(strategy.pending) > 1


def test_what_comes_later_is_no_initial_point() -> None:
    """As many points are drawn at the start as without it."""
    parts, whole = (
        ThompsonSampling(make_candidates(), outcomes=OUTCOMES, batch_size=2, seed=1)
        for _ in range(2)
    )
    for _ in range(3):  # of five points, in batches of two
        batch, same = parts.ask(), whole.ask()
        assert torch.equal(batch.X, same.X)
        whole.tell(same, measure(same.X))
        now, later = measure(batch.X), measure(batch.X)
        now[:, 1:], later[:, 0] = NAN, NAN
        parts.tell(batch, now)
        parts.tell(batch, later)


def test_frames_and_series_of_what_was_missing() -> None:
    """By batch, by ids, and by the frame of a file, in any order of the rows."""
    table = pd.DataFrame({"heat": range(9)}, index=[f"key-{i}" for i in range(9)])
    strategy = RandomSearch(table, batch_size=3, unique=True, outcomes=OUTCOMES)
    batch = strategy.ask()
    first = pd.DataFrame({"waste": NAN, "cost": [1.0, 2.0, 3.0], "yield": NAN})
    strategy.tell(batch, first)
    rest = pd.DataFrame({"waste": [0.2], "yield": NAN, "cost": NAN}, batch.keys[1:2])
    strategy.tell([1], rest)
    told = pd.DataFrame({"yield": [5.0, 6.0, 7.0], "cost": NAN, "waste": NAN})
    strategy.tell(batch.ids.tolist(), told.set_axis(batch.keys).iloc[::-1])
    file = batch.to_frame().iloc[[2, 0]]
    more = pd.DataFrame({"waste": [0.3, 0.1], "yield": NAN, "cost": NAN}, file.index)
    strategy.tell(file, more.iloc[::-1])
    expected = [[5.0, 1.0, 0.1], [6.0, 2.0, 0.2], [7.0, 3.0, 0.3]]
    assert strategy.history.Y.tolist() == expected
    refused("told already", strategy.tell, [1], rest)


def test_failures_and_withdrawals() -> None:
    """A trial that is told in part is told; one that is not may fail before."""
    strategy = thompson()
    batch = strategy.ask()
    strategy.fail([1], retry=True)
    strategy.tell([0, 1], [[1.0, NAN, NAN], [NAN, 2.0, NAN]])
    before = strategy.state_dict()
    for call in (strategy.fail, strategy.trial):
        refused("Trial 1 is told already", call, [1] if call == strategy.fail else 1)
    assert equal(strategy.state_dict(), before)
    strategy.withdraw(batch)  # those that are told stay so
    assert len(strategy.pending) == 0 and strategy.history.trial.tolist() == [0, 1]
    strategy.tell([1, 0], [[NAN, NAN, 0.3], [NAN, 5.0, NAN]])
    refused("Trial 3 was given up", strategy.tell, [3, 0], [[1.0] * 3, [NAN, NAN, 1.0]])
    assert strategy.history.missing("waste").tolist() == [0]
    assert strategy.history.missing("yield").tolist() == [1]


def test_an_outcome_that_comes_in_an_outage_stays() -> None:
    """Failures are forgotten only where nothing was told since."""
    strategy = thompson(candidates=make_candidates())
    strategy.tell(strategy.ask(1), [[1.0, NAN, NAN]])
    calls: list[int] = []

    def fail(X: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 50:
            strategy.tell([0], [[NAN, 2.0, NAN]])
        raise OSError("no power")

    with pytest.warns(BotorchWarning), pytest.raises(OSError, match="no power"):
        strategy.run(fail, 99, progress=False, catch=OSError)
    assert strategy.history.Y[0, :2].tolist() == [1.0, 2.0]


def test_proposals_of_another_program(tmp_path: Any) -> None:
    """Restored trials are told in parts, learned, saved and gone on with."""
    strategy, twin = thompson(), thompson(seed=4)
    batch = strategy.restore_trials([3, 8, 3, 5], failed=[1])
    strategy.tell([2, 1], [[1.0, NAN, NAN], [NAN, NAN, 0.1]])
    strategy.learn()
    strategy.tell([2], [[NAN, 2.0, NAN]])
    strategy.save(tmp_path / "state.pt")
    twin.resume(tmp_path / "state.pt")
    for s in (strategy, twin):
        s.tell([0, 3], measure(batch.X)[[0, 3]])
        s.tell([1], [[3.0, 4.0, NAN]])
        s.run(measure, 12, progress=False)
    assert are_alike(strategy, twin)
    means = strategy.history.Y[strategy.history.indices == 3].nan_to_num(0.0)
    assert len(means) == 2  # one row, twice


def test_another_table_between_two_outcomes() -> None:
    strategy, twin = thompson(), thompson()
    for s in (strategy, twin):
        s.tell(s.ask(), [[1.0, NAN, NAN], [NAN, 2.0, 0.1], [3.0, NAN, 0.2], [0.5] * 3])
    strategy.set_candidates(strategy.candidates.flip(0))
    for s in (strategy, twin):
        s.tell([2, 0], [[NAN, 0.3, NAN], [NAN, 0.1, 0.3]])
    assert equal(strategy.history.Y, twin.history.Y)
    assert torch.equal(strategy.history.X, twin.history.X)
    assert strategy.history.missing("waste").tolist() == []
    found, expected = (s.predict(make_candidates()) for s in (strategy, twin))
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_announcements_say_which_outcome() -> None:
    strategy = thompson(outcomes=[Objective("yield"), Constraint("dust", lower=0.0)])
    X = strategy.candidates[:12]
    Y = torch.stack([objective(X), 1e3 * X[:, 0]], dim=-1)
    with pytest.warns(InputDataWarning, match="varies by .* in the outcome 'dust' and"):
        strategy.tell(X, Y)
    noisy = thompson()
    X = noisy.candidates[:1].expand(40, -1)
    Y = torch.zeros(40, 3).double()
    Y[:, 1] = 2.0 * torch.tensor([-1.0, 1.0]).repeat(20)
    with pytest.warns(InputDataWarning, match="variance of .* in the outcome 'cost', "):
        noisy.tell(X, Y)


FEEDBACK: dict[str, Any] = {
    "one column": torch.ones(3, 1),
    "a vector": torch.ones(3),
    "two columns": torch.ones(3, 2),
    "four columns": torch.ones(3, 4),
    "two rows": torch.ones(2, 3),
    "three dimensions": torch.ones(3, 3, 1),
    "all NaN": torch.full((3, 3), NAN),
    "a row of NaN": [[1.0] * 3, [NAN] * 3, [1.0] * 3],
    "infinity": [[1.0] * 3, [1.0, INF, NAN], [1.0] * 3],
    "too large": [[1.0] * 3, [1.0, -1e200, NAN], [1.0] * 3],
    "texts": [["1"] * 3] * 3,
    "a column is missing": pd.DataFrame({"yield": [1.0] * 3, "cost": 1.0}),
    "an unknown name": pd.DataFrame(dict.fromkeys([*NAMES[:2], "dirt"], [1.0] * 3)),
    "one more": pd.DataFrame(dict.fromkeys([*NAMES, "dirt"], [1.0] * 3)),
    "a name twice": pd.DataFrame([[1.0] * 4] * 3, columns=[*NAMES, "cost"]),
    "a row of NaN in a frame": pd.DataFrame(
        [[1.0] * 3, [NAN] * 3, [2.0] * 3], columns=NAMES
    ),
    "a series": pd.Series([1.0] * 3),
    "a dictionary": dict.fromkeys(NAMES, [1.0] * 3),
}


@pytest.mark.parametrize("what", FEEDBACK)
@pytest.mark.parametrize("by", ["batch", "ids", "points"])
def test_bad_feedback_records_nothing(what: str, by: str) -> None:
    strategy = thompson()
    strategy.tell(strategy.ask(1), [[1.0, NAN, NAN]])
    batch = strategy.ask(3)
    given = {"batch": batch, "ids": batch.ids.tolist(), "points": batch.X}[by]
    before = strategy.state_dict()
    with pytest.raises(BotorchError, match=r"need|NaN in all outcomes or infinite"):
        strategy.tell(given, FEEDBACK[what])
    assert equal(strategy.state_dict(), before)
    refused("need one of 'yield', 'cost'", strategy.history.missing, "dirt")


def test_what_is_told_already_is_refused_whole() -> None:
    strategy = thompson()
    batch = strategy.ask()
    strategy.tell(batch, measure(batch.X)[:, :1] * torch.tensor([1.0, NAN, NAN]))
    before = strategy.state_dict()
    refused("outcome of trial 0 that is told", strategy.tell, batch, measure(batch.X))
    rows = [[NAN, 1.0, NAN], [1.0, 1.0, NAN]]
    refused("outcome of trial 2 that is told", strategy.tell, [1, 2], rows)
    refused("the same trial twice", strategy.tell, [1, 1], [[NAN, 1.0, NAN]] * 2)
    assert equal(strategy.state_dict(), before)


def names_of(*names: Any) -> list[Any]:
    return [Objective(name) for name in names]


BAD_OUTCOMES: list[tuple[Callable[[], Any], str]] = [
    (lambda: names_of("a", "a"), "each once"),
    (lambda: names_of("a", None), "one name for each"),
    (lambda: names_of(), "without an objective"),
    (lambda: [Constraint("a", upper=1.0)], "without an objective"),
    (lambda: names_of(["a"]), "name"),
    (lambda: [Constraint("a")], "at least one limit"),
    (lambda: [Constraint("a", lower=2.0, upper=1.0)], "lower <= upper"),
    (lambda: [Constraint("a", lower=NAN)], "lower"),
    (lambda: [Constraint("a", upper="1")], "upper"),
    (lambda: [Constraint(None, upper=1.0)], "name"),
    (lambda: [Objective("a", threshold=INF)], "threshold"),
    (lambda: [Objective("a", minimize="yes")], "minimize"),
    (lambda: ["a"], "need a list"),
    (lambda: {"a": 1}, "need a list"),
]


@pytest.mark.parametrize(("outcomes", "match"), BAD_OUTCOMES)
def test_bad_outcomes(outcomes: Callable[[], Any], match: str) -> None:
    def build() -> Strategy:
        return RandomSearch(make_candidates(), outcomes=outcomes())

    refused(match, build)


ONE_ONLY = [
    cls
    for cls in (BBKB, BKB, GPBUCB, GPUCB, GSSBO, SBPE, TrustRegionBBKB)
    if not cls.takes_several_outcomes
]


@pytest.mark.parametrize("cls", ONE_ONLY)
def test_strategies_of_one_objective(cls: type[Strategy]) -> None:
    options: dict[str, Any] = {"bounds": torch.tensor([[0.0], [1.0]]).double()}
    if cls is SBPE:
        options["num_evaluations"] = 20
    with pytest.raises((UnsupportedError, TypeError), match="outcomes"):
        cls(**options, outcomes=OUTCOMES)
