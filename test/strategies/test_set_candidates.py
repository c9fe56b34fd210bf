"""Candidates that change from round to round."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from dense_posteriors import dense_moments
from gpytorch.means import ZeroMean
from refusals import refused
from strategy_table import equal, make_kernel, without_times
from torch import Tensor

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.distributed import ALONE, ShardedDomain
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    SBPE,
    CandidateTable,
    RandomSearch,
    ThompsonSampling,
)
from botorch_sparse.strategies.data.run_record import RunRecord

pd = pytest.importorskip("pandas")

LENGTHSCALE, LAM, BETA = 0.4, 0.05, 9.0


def rows(num: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.rand(num, 2, generator=g, dtype=torch.float64)


def objective(X: Tensor) -> Tensor:
    return (5 * X[:, 0]).sin() + (3 * X[:, 1]).cos()


FIRST, SECOND = rows(40), rows(50, 1)
UCB: dict[str, Any] = {
    "covar_module": make_kernel(LENGTHSCALE),
    "lam": LAM,
    "radius": FixedBeta(BETA),
    "mean_module": ZeroMean(),
}
# Every point an inducing point: the exact posterior, to be compared with.
SPARSE = UCB | {"sampler": PosteriorVarianceSampler(1e6)}
MAKERS: dict[str, Any] = {
    "bbkb": partial(BBKB, **SPARSE),
    "bkb": partial(BKB, **SPARSE),
    "gpucb": partial(GPUCB, **UCB),
    "gpbucb": partial(GPBUCB, **UCB),
    "thompson": partial(
        ThompsonSampling, covar_module=make_kernel(LENGTHSCALE), lam=LAM, batch_size=3
    ),
    "inferred": partial(BBKB, batch_size=3),
    "random": partial(RandomSearch, batch_size=3),
}
DENSE = ["bbkb", "bkb", "gpucb", "gpbucb"]
by_name = pytest.mark.parametrize("name", MAKERS)


def played(name: str, num: int = 6, X: Tensor = FIRST, **options: Any) -> Any:
    """A strategy that was told so many evaluations."""
    strategy = MAKERS[name](X, **options)
    strategy.run(objective, num, progress=False)
    return strategy


@pytest.mark.parametrize("name", DENSE)
def test_choices_are_those_of_the_dense_posterior(name: str) -> None:
    """Over each table, by all feedback: also on rows that are gone."""
    strategy = played(name)
    for X in (SECOND, torch.cat([FIRST[:5], SECOND]), SECOND[:1], rows(60, 2)):
        strategy.set_candidates(X)
        assert torch.equal(strategy.candidates, X)
        seen, Y = strategy.history.X, strategy.history.Y
        mean, variance = dense_moments(
            seen, Y, None, X, LENGTHSCALE, LAM, has_constant=False
        )
        batch = strategy.ask(1)
        assert batch.indices is not None
        assert batch.indices.tolist() == [int((mean + 3 * variance**0.5).argmax())]
        strategy.tell(batch, objective(batch.X))


@by_name
def test_history_and_predictions_stay(name: str) -> None:
    """What was evaluated; rows that are gone have no number until they return."""
    strategy = played(name)
    X, Y = strategy.history.X, strategy.history.Y
    indices, before = strategy.history.indices, strategy.predict(SECOND)
    strategy.set_candidates(torch.cat([SECOND, FIRST[indices[:1]]]))
    history = strategy.history
    assert torch.equal(history.X, X) and torch.equal(history.Y, Y)
    first = X[0] == X
    expected = torch.where(first.all(-1), len(SECOND), -1)
    assert history.indices.tolist() == expected.tolist()
    if before is not None:
        for now, then in zip(strategy.predict(SECOND), before, strict=True):
            torch.testing.assert_close(now, then, rtol=1e-6, atol=1e-9)
    strategy.set_candidates(FIRST)
    assert torch.equal(history.indices, indices)
    assert history.best().row == int(indices[Y.argmax()])


def test_a_history_is_read_of_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another thread sets a table between numbers and coordinates."""
    strategy, points = played("random"), RunRecord.points
    X, best = strategy.history.X, strategy.history.best()
    tables = [torch.cat([SECOND, FIRST])]

    def late(self: RunRecord, *numbers: Any) -> Tensor:
        if tables:
            strategy.set_candidates(tables.pop())
        return points(self, *numbers)

    with monkeypatch.context() as patch:
        patch.setattr(RunRecord, "points", late)
        assert torch.equal(strategy.history.X, X)
        tables.append(FIRST.flip(0))
        assert torch.equal(strategy.history.best().X, best.X)
    assert torch.equal(strategy.history.X, X)


@pytest.mark.one_in(5)
@by_name
def test_the_same_table_changes_nothing(name: str) -> None:
    """In the middle of a batch; states have the same bits but for the tables before."""
    strategy, twin = played(name), played(name)
    batches = [s.ask(2) for s in (strategy, twin)]
    strategy.set_candidates(FIRST.clone())
    for s, batch in zip((strategy, twin), batches, strict=True):
        s.tell(batch, objective(batch.X))
        s.run(objective, 14, progress=False)
    states = [without_times(s.state_dict()) for s in (strategy, twin)]
    assert len(states[0].pop("earlier")) == 1 + len(states[1].pop("earlier"))
    assert equal(*states)


@by_name
def test_a_table_without_a_pending_row_is_refused_whole(name: str) -> None:
    strategy = played(name)
    batch = strategy.ask(2)
    before = strategy.state_dict()
    refused("points of the batch in progress", strategy.set_candidates, SECOND)
    assert equal(strategy.state_dict(), before)
    assert torch.equal(strategy.candidates, FIRST)
    strategy.withdraw(batch)
    strategy.set_candidates(SECOND)
    strategy.run(objective, 10, progress=False)


def test_what_is_told_and_not_learned_has_to_be_learned_first() -> None:
    strategy = MAKERS["gpbucb"](FIRST, ratio_threshold=1e3)
    strategy.run(objective, 1, progress=False)
    batch = strategy.ask(2)
    strategy.tell(batch.ids[:1], objective(batch.X[:1]))
    left = torch.cat([SECOND, batch.X[1:]])
    if not torch.equal(batch.X[0], batch.X[1]):
        refused("told and not learned", strategy.set_candidates, left)
    strategy.learn()
    strategy.set_candidates(left)
    assert strategy.pending.tolist() == [len(SECOND)]


@by_name
def test_a_run_resumes_on_its_last_table(name: str, tmp_path: Path) -> None:
    """The state of another one does not fit."""
    strategy, path = played(name), tmp_path / "state.pt"
    strategy.save(path)
    union = torch.cat([SECOND, FIRST[::2]])
    strategy.set_candidates(union)
    strategy.run(objective, 9, progress=False, checkpoint=path)  # it knows all of it
    with pytest.raises(InputDataError, match="candidates"):
        MAKERS[name](FIRST).resume(path)
    if name != "inferred":  # whose inputs are scaled by the first table
        MAKERS[name](union).resume(path)


def test_a_checkpoint_of_another_table_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    played("random", X=SECOND).save(path)
    strategy = played("random")
    with pytest.raises(InputDataError, match="does not know all of it"):
        strategy.run(objective, 9, progress=False, checkpoint=path)


def test_a_checkpoint_from_before_a_round_trip_is_replaced(tmp_path: Path) -> None:
    """Points beside a table may have other numbers after it."""
    path, strategy = tmp_path / "state.pt", RandomSearch(FIRST, seed=0)
    strategy.set_candidates(torch.cat([FIRST, FIRST + 100.0]))
    strategy.fail(strategy.restore_trials([len(FIRST) + 5]).ids)
    strategy.set_candidates(FIRST)
    strategy.tell(FIRST[:1] + 50.0, [0.0])
    strategy.save(path)
    before = strategy.record.point.clone()
    strategy.set_candidates(SECOND)
    strategy.set_candidates(FIRST)
    assert not torch.equal(strategy.record.point, before)
    strategy.run(objective, 3, progress=False, checkpoint=path)
    assert len(strategy.history) == 3


def test_inferred_inputs_stay_scaled() -> None:
    """By the first table's ranges, which a state agrees on."""
    strategy = played("inferred")
    wide = torch.cat([FIRST, 3 * SECOND])
    strategy.set_candidates(wide)
    state = strategy.state_dict()
    twin = MAKERS["inferred"](FIRST)
    twin.set_candidates(wide)
    twin.load_state_dict(state)
    with pytest.raises(InputDataError, match="scaled_by"):
        MAKERS["inferred"](wide).load_state_dict(state)


@pytest.mark.filterwarnings("ignore:Columns x1")
def test_a_column_that_was_left_out_may_not_vary() -> None:
    flat = FIRST * torch.tensor([1.0, 0.0])
    strategy = MAKERS["inferred"](flat)
    refused(r"'x1'.* vary", strategy.set_candidates, FIRST)


def test_what_was_taken_or_failed_is_known_again() -> None:
    """Each row once, over tables that share rows; copies count one by one."""
    strategy = RandomSearch(FIRST[:6], batch_size=10, unique=True)
    batch = strategy.ask(2)
    strategy.fail(batch.ids[:1])
    strategy.tell(batch.ids[1:], [1.0])
    strategy.set_candidates(SECOND[:3])
    assert not strategy.excluded_points
    strategy.run(objective, 4, progress=False)
    assert strategy.is_finished
    strategy.set_candidates(torch.cat([FIRST[:6], SECOND[:3], FIRST[:6]]))
    assert len(strategy.excluded_points) == 5
    taken = torch.cat([batch.X, SECOND[:3]])
    left = strategy.ask().X
    assert len(left) == 10
    is_copy = [bool((x == taken).all(-1).any()) for x in left]
    assert sum(is_copy) == 2  # the second ones of the two


def test_copies_are_taken_as_often_as_they_were() -> None:
    """Two equal rows, both evaluated, are two rows in the next table as well."""
    twice = torch.cat([FIRST[:2], FIRST[:2]])
    strategy = RandomSearch(twice, batch_size=4, unique=True)
    strategy.run(objective, 4, progress=False)
    strategy.set_candidates(torch.cat([SECOND[:1], twice]))
    assert strategy.ask(5).indices.tolist() == [0]


def frame(keys: list[str], solvents: list[str], heat: list[float]) -> pd.DataFrame:
    columns = {"solvent": solvents, "heat": heat}
    return pd.DataFrame(columns, index=pd.Index(keys, name="id"))


def test_keys_and_categories() -> None:
    """Keys are the new table's; categories have the first table's columns."""
    first = frame(["a", "b", "c"], ["oil", "water", "oil"], [1.0, 2.0, 3.0])
    strategy = BBKB(first, covar_module=make_kernel(LENGTHSCALE), lam=LAM)
    strategy.tell(frame(["b"], ["water"], [2.0]), [1.0])
    second = frame(["z", "y"], ["water", "water"], [2.0, 5.0])
    strategy.set_candidates(second)
    assert strategy.table.feature_names == CandidateTable.of(first).feature_names
    best = strategy.history.best()
    assert (best.key, best.row) == ("z", 0)
    assert strategy.table.frame().equals(second)
    batch = strategy.ask(1)
    told = batch.to_frame()
    assert set(told.index) <= {"z", "y"}
    strategy.tell(told, [2.0])
    with pytest.raises(InputDataError, match="'acid' is none of its categories"):
        strategy.set_candidates(frame(["q"], ["acid"], [1.0]))
    refused("the columns", strategy.set_candidates, FIRST)


def test_copies_are_known_by_their_keys() -> None:
    """A row that was evaluated is that of its key, where coordinates are the same."""
    same = {"solvents": ["oil"] * 2, "heat": [1.0] * 2}
    strategy = RandomSearch(frame(["a", "b"], **same), batch_size=1, unique=True)
    strategy.tell(strategy.table.frame(torch.tensor([1])), [1.0])
    strategy.set_candidates(frame(["c", "b"], **same))
    assert strategy.history.best().key == "b"
    assert strategy.ask(5).indices.tolist() == [0]


@pytest.mark.parametrize(
    "strategy",
    [
        SBPE(FIRST, make_kernel(LENGTHSCALE), num_evaluations=20),
        RandomSearch(bounds=[[0.0], [1.0]]),
        BBKB(bounds=[[0.0], [1.0]]),
        BBKB(ShardedDomain.of(FIRST, ALONE), make_kernel(LENGTHSCALE)),
    ],
)
def test_others_keep_their_domain(strategy: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"domain: need.*ExpectedImprovement"):
        strategy.set_candidates(FIRST)


@pytest.mark.parametrize("bad", [FIRST[:, :1], FIRST * float("nan"), FIRST[:0], None])
def test_bad_candidates_are_refused_whole(bad: Any) -> None:
    strategy = played("bbkb")
    before = strategy.state_dict()
    with pytest.raises(Exception, match=r"Got|[Nn]eed"):
        strategy.set_candidates(bad)
    assert equal(strategy.state_dict(), before)


def test_negative_numbers_in_place_of_counts_are_refused_whole() -> None:
    """Tanimoto's kernel was inferred for the first table; floats from 0 on do."""
    counts = (9 * rows(40)).to(torch.uint8)
    strategy = ThompsonSampling(counts, seed=0)
    batch = strategy.ask(6)
    strategy.tell(batch, objective(batch.X.double()))
    strategy.set_candidates(SECOND)
    nearly = SECOND.clone()
    nearly[3, 1] = -1e-3
    for table in (SECOND - 0.5, nearly):
        before = strategy.state_dict()
        match = r"Got candidates as low as -0.*Tanimoto.*need numbers from 0 on"
        refused(match, strategy.set_candidates, table)
        assert equal(strategy.state_dict(), before)
        batch = strategy.ask(2)
        strategy.tell(batch, objective(batch.X))
