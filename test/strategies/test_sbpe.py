"""S-BPE on tables: its promises, and its limits."""

import math
from typing import Any

import oracles
import pytest
import torch
from botorch.exceptions import UnsupportedError
from sbpe_problems import (
    INFERS,
    LAM,
    NOISE,
    arguments,
    make_table,
    play,
    rkhs_function,
    with_noise,
)

from botorch_sparse.acquisition.confidence import (
    FixedBeta,
)
from botorch_sparse.strategies import SBPE


def coverage(seeds: range, **overrides: Any) -> tuple[int, int, int]:
    """Runs in which an interval missed f; in which the maximizer was lost; rounds."""
    missed = lost = rounds = 0
    for seed in seeds:
        f = rkhs_function(seed)
        strategy = SBPE(**arguments(seed=seed, **overrides))
        X = strategy.candidates
        objective, values = with_noise(f, seed), f(X)
        outside = False
        while len(strategy.history) < 120:
            explored = strategy.survivors
            batch = strategy.ask()
            strategy.tell(batch, objective(batch.X))
            assert strategy.last_bounds is not None
            lower, upper = strategy.last_bounds.interval(X[explored])
            truth = values[explored]
            outside |= bool(((truth < lower) | (truth > upper)).any())
            rounds += 1
        missed += outside
        lost += not bool(strategy.survivors[values.argmax()])
    return missed, lost, rounds


SLOW: dict[str, Any] = {"marks": pytest.mark.slow}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("num", "overrides"),
    [
        (5, {}),
        (5, {"bias": "sharp"}),
        pytest.param(100, {}, **SLOW),
        pytest.param(100, {"bias": "sharp"}, **SLOW),
        pytest.param(100, {"exploration": "random"}, **SLOW),
        pytest.param(100, {"refresh": "exact"}, **SLOW),
    ],
)
def test_intervals_hold_and_the_maximizer_survives(
    num: int, overrides: dict[str, Any]
) -> None:
    """At most delta = 0.1 of the runs may fail.

    By the union bound over 200 candidates far fewer do: none of five. Were delta used
    up, more than 10 of 100 would fail with probability P(Bin(100, 0.1) > 10) = 0.42.
    """
    missed, lost, rounds = coverage(range(num), **overrides)
    assert missed <= num // 10 and lost <= num // 10 and rounds > 2 * num


def test_rounds_say_what_happened() -> None:
    strategy = SBPE(**arguments())
    objective = with_noise(rkhs_function(0), 0)
    history = strategy.run(objective, 120, progress=False)
    rounds = history.rounds
    assert [r.length for r in rounds] == strategy.lengths == [11, 37, 67, 5]
    assert [r.num_evaluations for r in rounds] == strategy.lengths
    assert [b.size for b in history.batches] == strategy.lengths
    survivors = [r.survivors for r in rounds]
    assert survivors == sorted(survivors, reverse=True)
    assert survivors[-1] == int(strategy.survivors.sum()) < 200
    for r in rounds:
        assert 0 <= r.lambda_max <= 1.0 and r.offset == 0.0
        L = math.log(4 * 4 * 200 / 0.1)
        beta = 2 + math.sqrt(r.lambda_max) + NOISE * math.sqrt(2 * L / LAM)
        assert math.sqrt(r.beta) == pytest.approx(beta, rel=1e-12)
    bounds = strategy.last_bounds  # its points are few, and their eigenvalue exact
    assert bounds is not None
    X, S = bounds.data["X"], bounds.data["inducing"]
    k, root = oracles.DENSE["matern52"], (bounds.data["counts"] / LAM).sqrt()
    E = root[:, None] * (k(X, X) - oracles.nystrom_kernel(k, S)(X, X)) * root
    assert bounds.lambda_max == pytest.approx(float(torch.linalg.eigvalsh(E)[-1]))
    widths = [r.max_width for r in rounds[:3]]
    assert widths == sorted(widths, reverse=True)
    assert [b.num_inducing for b in history.batches] == [r.num_inducing for r in rounds]


@pytest.mark.parametrize("exploration", ["variance", "random"])
def test_no_feedback_leaks_into_a_batch(exploration: Any) -> None:
    """Other feedback, or the same in another order, changes no point of the batch in
    progress, nor its inducing points; only at its end does it count. Feedback on points
    that were never proposed does not count at all."""
    f, options = rkhs_function(0), arguments(exploration=exploration)
    reference = play(SBPE(**options), f)
    batch, rest = reference.ask(10), reference.ask()
    reference.tell(batch, f(batch.X))
    reference.tell(rest, f(rest.X))
    outside = torch.full((3, 2), 0.5, dtype=torch.float64)
    changes = (lambda Y: Y, lambda Y: Y.flip(0), lambda Y: 100 * Y - 7, lambda Y: 0 * Y)
    for number, change in enumerate(changes):
        strategy = SBPE(**options)
        strategy.tell(outside, torch.full((3,), 9.0))
        same = play(strategy, f).ask(10)
        assert torch.equal(same.indices, batch.indices)
        strategy.tell(same, change(f(same.X)))
        strategy.tell(outside, torch.full((3,), 1e3))
        more = strategy.ask()
        assert torch.equal(more.indices, rest.indices)
        strategy.tell(more, f(more.X))
        assert len(strategy.history) == len(reference.history) + 6
        ends = (s.history.rounds[-1].num_inducing for s in (strategy, reference))
        assert len(set(ends)) == 1
        bounds = (s.progress.left.lower for s in (strategy, reference))
        assert torch.equal(*bounds) == (number == 0)


@pytest.mark.parametrize("overrides", [{}, INFERS], ids=["known", "inferred"])
def test_parts_of_a_batch_are_the_batch(overrides: dict[str, Any]) -> None:
    """In whatever order they are told."""
    whole, parts = (SBPE(**arguments(**overrides)) for _ in range(2))
    f = rkhs_function(5)
    whole.run(f, 120, progress=False)
    while len(parts.history) < 120:
        batches = [parts.ask(4)]
        while parts.num_left:
            batches.append(parts.ask(4))
        for batch in reversed(batches):
            assert len(parts.ask()) == 0
            parts.tell(batch, f(batch.X))
    assert torch.equal(whole.survivors, parts.survivors)
    assert whole.recommend().index == parts.recommend().index


def test_gap_falls_and_stops_a_run() -> None:
    strategy = SBPE(**arguments())
    assert strategy.confidence_gap() == math.inf
    X, gaps, seen = strategy.candidates, [], []
    for _ in strategy.lengths:
        explored = strategy.survivors
        play(strategy, rkhs_function(0))
        gaps.append(strategy.confidence_gap())
        assert strategy.last_bounds is not None
        lower, upper = strategy.last_bounds.interval(X)
        seen.append((lower.masked_fill(~explored, -math.inf), (lower + upper) / 2))
    assert gaps == sorted(gaps, reverse=True) and gaps[-1] < 0.6 * gaps[0]
    best, top = strategy.recommend(), float(rkhs_function(0)(X).max())
    assert top - float(rkhs_function(0)(best.X[None])) <= gaps[-1]
    assert strategy.survivors[best.index] and torch.equal(best.X, X[best.index])
    lower, number = torch.stack([low[best.index] for low, _ in seen]).max(0)
    assert number < len(seen) - 1  # the last batch, a short one, knows less
    assert best.lower == pytest.approx(float(lower)) and best.lower <= top
    assert best.mean == pytest.approx(float(seen[number][1][best.index]))


def test_light_tails_and_doubling_and_practical() -> None:
    f = with_noise(rkhs_function(0), 1)
    plain = SBPE(**arguments())
    wider = SBPE(**arguments(mgf_radius=10.0))
    assert wider.radius.mgf_radius == 10.0
    for strategy in (plain, wider):
        play(strategy, f)
    assert wider.history.rounds[0].beta > plain.history.rounds[0].beta
    doubling = SBPE(**arguments(schedule="doubling"))
    doubling.run(f, 120, progress=False)
    assert [r.length for r in doubling.history.rounds] == [11, 22, 44, 43]
    practical = SBPE(**arguments(constants="practical"))
    practical.run(f, 120, progress=False)
    assert practical.survivors.sum() < doubling.survivors.sum()
    fixed = SBPE(**arguments(radius=FixedBeta(4.0)))
    fixed.run(f, 120, progress=False)
    assert {r.beta for r in fixed.history.rounds} == {4.0}


def test_default_kernel_and_positional_order() -> None:
    X = make_table(30)
    strategy = SBPE(candidates=X, num_evaluations=9, lam=1e-2, noise_std=0.1)
    assert len(strategy.run(rkhs_function(0), 9, progress=False)) == 9
    assert strategy.survivors.dtype == torch.bool
    with pytest.raises(UnsupportedError, match=r"use the mask strategy\.survivors"):
        _ = strategy.region
