"""Which trial feedback is about: any order, any way to say it, by a list as oracle."""

import io
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from botorch_sparse.strategies import Batch, RandomSearch

pd = pytest.importorskip("pandas")

BOUNDS = torch.tensor([[0.0, 1000.0], [1.0, 1005.0]], dtype=torch.float64)
GRID = torch.cartesian_prod(torch.tensor([0.125, 1.0]), torch.arange(2.0) + 1000)
TABLE = torch.cat([GRID, GRID]).double() / 3  # each row comes twice
KEYS = pd.MultiIndex.from_product([["p", "q"], range(8)], names=["plate", "well"])
DOMAINS: dict[str, dict[str, Any]] = {
    "box": {"bounds": BOUNDS},
    "rows": {"candidates": TABLE},
    "keys": {
        "candidates": pd.DataFrame(
            TABLE.numpy(), columns=["x0", "x1"], index=pd.Index(range(7, -1, -1))
        )
    },
    "named keys": {
        "candidates": pd.DataFrame(
            TABLE.numpy(),
            columns=["x0", "x1"],
            index=pd.Index(range(7, -1, -1), name="id"),
        )
    },
    "two keys": {
        "candidates": pd.DataFrame(TABLE.numpy(), columns=["x0", "x1"], index=KEYS[:8])
    },
}
# How feedback may be given, and whether it is by trial, by row or by coordinates.
BY_TRIAL = ["ids", "list", "batch", "frame", "file", "trials of a file"]
BY_ROW = ["batch without ids", "frame by key", "file by key"]
BY_POINT = ["points", "six digits", "list of points"]


def reread(frame: pd.DataFrame) -> pd.DataFrame:
    """What comes back from a CSV file with six digits."""
    return pd.read_csv(io.StringIO(frame.to_csv(float_format="%.6g")))


class FeedbackMatching(RuleBasedStateMachine):
    """A strategy, and lists of the trials that are pending and of what was told."""

    @initialize(kind=st.sampled_from(list(DOMAINS)), seed=st.integers(0, 9))
    def build(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.strategy = RandomSearch(**DOMAINS[kind], batch_size=4, seed=seed)
        for _ in range(2):  # from now on ids are no numbers of rows
            self.strategy.withdraw(self.strategy.ask())
        self.pending: dict[int, tuple[int, tuple[float, ...]]] = {}  # number, point
        self.failed: set[int] = set()  # to be asked for once more
        self.told: list[tuple[int, tuple[float, ...], float]] = []

    @rule(size=st.integers(1, 4))
    def ask(self, size: int) -> None:
        again = sorted(self.failed)[:size]
        batch = self.strategy.ask(size)
        assert batch.ids is not None and batch.ids.tolist()[: len(again)] == again
        numbers = self.strategy.pending.tolist()
        places = {id: i for i, id in enumerate(self.strategy.pending_ids.tolist())}
        for id, x in zip(batch.ids.tolist(), batch.X.tolist(), strict=True):
            self.pending[id] = numbers[places[id]], tuple(x)
        self.failed -= set(again)

    def some(self, data: Any) -> list[int]:
        """Ids of pending trials, in any order."""
        ids = st.sampled_from(sorted(self.pending))
        return data.draw(st.lists(ids, min_size=1, max_size=5, unique=True))

    def batch_of(self, ids: list[int]) -> Batch:
        X = torch.tensor([self.pending[id][1] for id in ids], dtype=torch.float64)
        rows = torch.tensor([self.pending[id][0] for id in ids])
        table = self.strategy.table
        is_box = self.kind == "box"
        return Batch(X, None if is_box else rows, -1, torch.tensor(ids), table)

    def given(self, way: str, ids: list[int]) -> Any:
        """What is told of trials in one way."""
        batch = self.batch_of(ids)
        frame = batch.to_frame()
        no_trial = frame.drop(columns="trial")
        digits = [[float(f"{v:.6g}") for v in x] for x in batch.X.tolist()]
        X: dict[str, Any] = {
            "ids": batch.ids,
            "list": ids,
            "batch": batch,
            "frame": frame,
            "file": reread(frame),
            "trials of a file": reread(frame)[["trial"]],
            "batch without ids": Batch(batch.X, batch.indices),
            "frame by key": no_trial,
            "file by key": reread(no_trial),
            "points": batch.X,
            "six digits": torch.tensor(digits, dtype=torch.float64),
            "list of points": batch.X.tolist(),
        }
        return X[way]

    def expected(self, way: str, ids: list[int]) -> list[int]:
        """The trials that are meant: the oldest ones, where trials are not said."""
        if way in BY_TRIAL:
            return ids
        kind, left, found = 0 if way in BY_ROW else 1, dict(self.pending), []
        for id in ids:
            what = self.pending[id][kind]
            found.append(min(i for i, each in left.items() if each[kind] == what))
            del left[found[-1]]
        return found

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def tell(self, data: Any) -> None:
        by_row = {"box": [], "rows": BY_ROW[:1]}.get(self.kind, BY_ROW)
        way = data.draw(st.sampled_from(BY_TRIAL + by_row + BY_POINT))
        ids = self.some(data)
        values = [float(len(self.told) + i) for i in range(len(ids))]
        meant = self.expected(way, ids)
        self.strategy.tell(self.given(way, ids), values)
        for id, value in zip(meant, values, strict=True):
            _, x = self.pending.pop(id)
            self.failed.discard(id)
            self.told.append((id, x, value))

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), is_batch=st.booleans(), retry=st.booleans())
    def fail_or_withdraw(self, data: Any, is_batch: bool, retry: bool) -> None:
        ids = self.some(data)
        given = self.batch_of(ids) if is_batch else ids
        if retry:
            self.strategy.fail(given, retry=True)
            self.failed |= set(ids)
            return
        self.strategy.withdraw(given)
        for id in ids:
            del self.pending[id]
        self.failed -= set(ids)

    @precondition(lambda self: not self.pending)
    @rule(place=st.integers(0, 7))
    def tell_what_nobody_waits_for(self, place: int) -> None:
        x = TABLE[place] if self.kind != "box" else BOUNDS[0] + place / 16
        self.strategy.tell(x.unsqueeze(0), [float(place)])
        self.told.append((-1, tuple(x.tolist()), float(place)))

    @rule(seed=st.integers(0, 9))
    def go_on_in_another_process(self, seed: int) -> None:
        other = RandomSearch(**DOMAINS[self.kind], batch_size=4, seed=seed)
        other.load_state_dict(self.strategy.state_dict())
        self.strategy = other

    @invariant()
    def strategy_knows_the_same(self) -> None:
        if not hasattr(self, "told"):
            return
        history = self.strategy.history
        assert self.strategy.pending_ids.tolist() == sorted(self.pending)
        assert self.strategy.pending.tolist() == [
            self.pending[id][0] for id in sorted(self.pending)
        ]
        assert history.trial.tolist() == [id for id, _, _ in self.told]
        assert list(map(tuple, history.X.tolist())) == [x for _, x, _ in self.told]
        assert history.Y.tolist() == [value for _, _, value in self.told]


FeedbackMatching.TestCase.settings = settings(
    max_examples=40, stateful_step_count=15, deadline=None
)
TestFeedbackMatching = FeedbackMatching.TestCase
