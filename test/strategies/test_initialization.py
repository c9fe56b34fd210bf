"""Uncertainty sampling before the first batch, and warm starts from existing data."""

from copy import deepcopy
from functools import cache
from typing import Any

import box_table
import numpy as np
import pytest
import strategy_table
import torch
from botorch.exceptions import UnsupportedError
from dense_posteriors import dense_moments
from strategy_table import TABLE, make_candidates, objective
from torch import Tensor

from botorch_sparse.inducing import BLESSSampler, RecursiveRLSSampler
from botorch_sparse.strategies import BBKB, Batch, StopOnConfidenceGap, Strategy

LAM = 0.1
WIDTH = 12
NAMES = ["bbkb-global", "bbkb-global-local", "bkb", "gpucb", "gpbucb-sum"]


def build(name: str, **kwargs: Any) -> Any:
    arguments: dict[str, Any] = {"lam": LAM, "min_batch_width": WIDTH}
    return TABLE[name](**arguments | kwargs)


def dense_variance(X: Tensor, Z: Tensor) -> np.ndarray:
    """Exact variances at `Z` with evaluations at `X`, repeats counted."""
    return dense_moments(X, torch.zeros(len(X)), None, Z, 0.3, LAM)[1]


@cache
def greedy(num: int, known: tuple[int, ...], width: float) -> list[int]:
    """Algorithm 3 on so many candidates, all computed anew at each step."""
    X, chosen = make_candidates(num), list[int]()
    while True:
        variance = dense_variance(X[[*known, *chosen]], X)
        if variance.max() <= LAM / width:
            return chosen
        chosen.append(int(variance.argmax()))


@pytest.mark.parametrize("name", NAMES)
def test_first_batch_is_algorithm_three(name: str) -> None:
    X = make_candidates(60)
    strategy = build(name, candidates=X)
    batch = strategy.ask()
    assert batch.indices.tolist() == greedy(60, (), WIDTH)
    assert dense_variance(batch.X, X).max() <= LAM / WIDTH
    assert dense_variance(batch.X[:-1], X).max() > LAM / WIDTH
    strategy.tell(batch, objective(batch.X))
    assert len(strategy.ask()) < len(batch)
    assert not strategy.state_dict()["is_initializing"]


@pytest.mark.parametrize("name", ["bbkb-global", "gpucb"])
def test_it_goes_on_from_what_is_told_and_pending(name: str) -> None:
    X = make_candidates(60)
    strategy = build(name, candidates=X)
    known = [4, 17, 17, 30]
    strategy.tell(X[known], objective(X[known]))
    expected = greedy(60, tuple(known), WIDTH)
    first, second = strategy.ask(5), strategy.ask(3)  # nothing told in between
    assert first.indices.tolist() + second.indices.tolist() == expected[:8]
    strategy.tell(second, objective(second.X))
    assert strategy.ask().indices.tolist() == expected[8:]


def test_enough_data_need_no_more() -> None:
    X = make_candidates(60)
    strategy = build("bbkb-global", candidates=X)
    strategy.tell(X.repeat(20, 1), objective(X).repeat(20))
    assert dense_variance(X.repeat(20, 1), X).max() < LAM / WIDTH
    strategy.ask()
    assert not strategy.state_dict()["is_initializing"]
    strategy = build("bbkb-global", candidates=X, min_batch_width=1)
    chosen = strategy.ask().indices.tolist()
    assert chosen == greedy(60, (), 1)


@cache
def first_batch(termination: Any, threshold: float) -> tuple[BBKB, Batch]:
    """A strategy that has asked once: uncertainty sampling draws nothing."""
    strategy = BBKB(
        make_candidates(60),
        strategy_table.make_kernel(),
        lam=LAM,
        noise_variance=1e-2,
        ratio_threshold=threshold,
        termination=termination,
        min_batch_width=WIDTH,
    )
    return strategy, strategy.ask()


def batch_widths(seed: int, termination: Any, threshold: float) -> tuple[bool, bool]:
    """Whether all batches were as wide as promised: exactly, and P (C - 1) / 3."""
    strategy, batch = deepcopy(first_batch(termination, threshold))
    strategy.generator.manual_seed(seed)
    exact, wide = [], []
    strategy.tell(batch, objective(batch.X))
    for _ in range(2):
        leverage = strategy.surrogate.view.pool.all_moments().variance.max() / LAM
        batch = strategy.ask()
        exact.append(len(batch) >= (threshold - 1) / float(leverage))
        wide.append(len(batch) >= WIDTH * (threshold - 1) / 3)
        strategy.tell(batch, objective(batch.X))
    return all(exact), all(wide)


@pytest.mark.parametrize("termination", ["global", "global-local"])
def test_later_batches_are_wide(termination: str) -> None:
    runs = [batch_widths(seed, termination, 2.0) for seed in range(20)]
    assert all(exact for exact, _ in runs)
    assert sum(wide for _, wide in runs) >= 19  # 95%


def test_batches_of_a_larger_threshold_are_wider() -> None:
    runs = [batch_widths(seed, "global", 5.0) for seed in range(3)]
    assert runs == [(True, True)] * 3


@pytest.mark.parametrize("name", ["bbkb-global", "bkb"])
def test_warm_start_through_bless(name: str, monkeypatch: Any) -> None:
    """The first inducing set is BLESS's draw from the data; later ones are not."""
    calls: list[tuple[int, str]] = []
    for cls in (BLESSSampler, RecursiveRLSSampler):
        original = cls.__call__

        def spy(self: Any, *args: Any, _call: Any = original, **kwargs: Any) -> Tensor:
            calls.append((len(args[1]), type(self).__name__))
            return _call(self, *args, **kwargs)

        monkeypatch.setattr(cls, "__call__", spy)
    X = make_candidates(400)
    strategy = TABLE[name](candidates=X, lam=LAM, initial_sampler=BLESSSampler(4.0))
    strategy.tell(X[:300], objective(X[:300]))
    assert calls == [(300, "BLESSSampler")]
    assert 3 < strategy.surrogate.view.num_inducing() < 200
    mean, f = strategy.surrogate.view.pool.all_moments().mean, objective(X)
    assert float((mean - f).square().mean()) < 0.05 * float(f.var())
    strategy.run(objective, 320, progress=False)
    assert len(calls) == 1 and len(strategy.history) == 320
    default = TABLE[name](candidates=X, lam=LAM)
    default.tell(X[:300], objective(X[:300]))
    assert calls[1:] == [(300, "RecursiveRLSSampler")]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [*NAMES, "box"])
def test_stopping(name: str) -> None:
    """Bounds of a box are those at so many of its points, up to what lies between."""
    make, f = (TABLE | {"box": box_table.TABLE["bkb"]})[name], objective
    tolerance, error = 0.5, 1e-6
    if name == "box":
        f, tolerance, error = box_table.objective, 0.8, 0.02
    strategy, before = make(lam=LAM), make(lam=LAM)
    assert strategy.confidence_gap() == float("inf")
    rule = StopOnConfidenceGap(tolerance)
    history = strategy.run(f, 3000, progress=False, callbacks=[rule])
    assert 1 < len(history) < 3000
    X = strategy.box.sample(65536, 0) if name == "box" else strategy.candidates
    mean, sd = strategy.predict(X)
    width = strategy.radius.multiplier(strategy.statistics) * sd
    gap = float((mean + width).max() - (mean - width).max())
    assert strategy.confidence_gap() == pytest.approx(gap, abs=error)
    assert strategy.confidence_gap() <= tolerance
    # One batch earlier the gap was above.
    before.run(f, len(history) - history.batches[-1].size, progress=False)
    assert before.confidence_gap() > tolerance


def test_random_search_cannot_stop() -> None:
    strategy: Strategy = TABLE["random"]()
    with pytest.raises(UnsupportedError, match="RandomSearch has no confidence bounds"):
        strategy.run(objective, 20, progress=False, callbacks=[StopOnConfidenceGap(1)])
