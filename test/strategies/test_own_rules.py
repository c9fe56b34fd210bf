"""A rule of one's own in a strategy, on tables and on boxes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from batch_oracles import OnePlate
from botorch.exceptions import InputDataError
from refusals import refused
from strategy_table import make_candidates, make_kernel, objective

from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.batching import MAX_BOX_BATCH, BatchView, Local
from botorch_sparse.strategies import BBKB, GPBUCB

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
OPTIONS = {"num_restarts": 1, "raw_samples": 16}


def build(cls: Any, bounds: torch.Tensor | None, rule: Any) -> Any:
    X = make_candidates(40) if bounds is None else None
    options = {} if bounds is None else {"bounds": bounds, "optimizer_options": OPTIONS}
    kernel, radius = make_kernel(), FixedBeta(100.0)
    return cls(X, kernel, 1.0, rule=rule, radius=radius, seed=0, **options)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("cls", [BBKB, GPBUCB])
@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["table", "box"])
def test_a_rule_of_ones_own(
    cls: Any, bounds: torch.Tensor | None, tmp_path: Path
) -> None:
    """It ends the batches, and a run that is saved within one goes on to the bit."""
    strategy, free = (build(cls, bounds, rule) for rule in (OnePlate(3), Local(8.0)))
    for one in (strategy, free):
        one.run(objective, 12, progress=False)
    sizes = [record.size for record in strategy.history.batches[:-1]]
    assert max(sizes) == 3 < max(record.size for record in free.history.batches)
    first = strategy.ask(1)
    strategy.save(tmp_path / "run.pt")
    twin = build(cls, bounds, OnePlate(3))
    twin.resume(tmp_path / "run.pt")
    batches = []
    for one in (strategy, twin):
        rest = one.ask()
        assert len(first) + len(rest) <= 3
        batches.append(rest.X)
    assert torch.equal(*batches)
    with pytest.raises(InputDataError, match=r"\['rule'\] differ"):
        build(cls, bounds, OnePlate(4)).resume(tmp_path / "run.pt")


def test_a_rule_without_identity_is_refused_when_a_state_is_made() -> None:
    class Unknown:
        def __init__(self) -> None:
            self.ratio_threshold = 2.0

        def bound(self, batch: BatchView) -> float:
            return batch.sum_ratio

    strategy = build(BBKB, None, Unknown())
    strategy.run(objective, 5, progress=False)
    refused(r"Got rule=.*make it a dataclass", strategy.state_dict)
    refused("need one of", build, BBKB, None, "sum")


@pytest.mark.parametrize("lam", [1e7, 1e3])
def test_a_batch_on_a_box_ends(lam: float) -> None:
    """Where a point has no variance to speak of, or else after so many."""
    points = torch.rand(2 * MAX_BOX_BATCH, 2, dtype=torch.float64)
    found = ((x.unsqueeze(0), torch.zeros(())) for x in points)
    strategy = BBKB(
        None, make_kernel(), lam, bounds=BOUNDS, optimizer_options=OPTIONS, seed=0
    )
    strategy.run(objective, 3, progress=False)
    target = "botorch_sparse.batching.acquisition_batch.optimize_acqf"
    with patch(target, side_effect=lambda *args, **kwargs: next(found)):
        size = len(strategy.ask())
    assert size == (1 if lam > 1e6 else MAX_BOX_BATCH)


class NoRule:
    """A bound that cannot be called."""

    ratio_threshold = 2.0
    bound = 1.0


@pytest.mark.parametrize("cls", [BBKB, GPBUCB])
def test_a_threshold_may_be_said_twice(cls: Any) -> None:
    X, rule = make_candidates(10), Local(3.0)
    assert cls(X, make_kernel(), 1.0, rule=rule, ratio_threshold=3.0).rule is rule
    refused(r"Got rule=.*or an object", cls, X, make_kernel(), 1.0, rule=NoRule())
    with pytest.raises(InputDataError, match=r"Got ratio_threshold=4\.0"):
        cls(X, make_kernel(), 1.0, rule=rule, ratio_threshold=4.0)


@dataclass(frozen=True)
class Lost:
    """A rule whose bound is no number from the third point on."""

    ratio_threshold: float = 8.0

    def bound(self, batch: BatchView) -> float:
        return 1.0 if batch.size < 3 else float("nan")


@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["table", "box"])
def test_a_bound_that_is_no_number_ends_the_batch(bounds: torch.Tensor | None) -> None:
    strategy = build(BBKB, bounds, Lost())
    strategy.run(objective, 8, progress=False)
    assert {record.size for record in strategy.history.batches[1:-1]} == {3}


@pytest.mark.parametrize(
    "size", [{"batch_size": 5}, {"repeat": "until-uncertainty-halves"}]
)
def test_two_ends_of_a_batch_are_refused(size: dict[str, Any]) -> None:
    with pytest.raises(InputDataError, match="would take its place"):
        BBKB(make_candidates(40), make_kernel(), 1.0, rule=OnePlate(3), **size)
