"""S-BPE on tables: its promises, and its limits."""

import math
from typing import Any

import numpy as np
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
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    FixedBeta,
    RadiusStatistics,
    SBPERadius,
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


@pytest.mark.parametrize("overrides", [{}, {"bias": "sharp"}], ids=["paper", "sharp"])
def test_intervals_hold_and_the_maximizer_survives(overrides: dict[str, Any]) -> None:
    """delta = 0.1: by the union bound far fewer than one run in ten fails."""
    missed, lost, rounds = coverage(range(5), **overrides)
    assert missed == lost == 0 and rounds > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [{}, {"bias": "sharp"}, {"exploration": "random"}, {"refresh": "exact"}],
    ids=["paper", "sharp", "random", "exact"],
)
def test_a_hundred_runs(overrides: dict[str, Any]) -> None:
    """At most delta = 0.1 of 100 runs may fail; a correct strategy fails this test
    with probability below P(Bin(100, 0.1) > 10) = 0.42, were its delta used up, and
    in truth with far less: its union bound is over 200 candidates."""
    missed, lost, _ = coverage(range(100), **overrides)
    assert missed <= 10 and lost <= 10


@pytest.mark.parametrize("bias", ["paper", "sharp"])
def test_theorem_3_5_at_one_point(bias: Any) -> None:
    """One-sided coverage at fixed points over 100 draws of the noise, and with a norm
    bound of zero the interval does not cover: the test can fail.

    With delta = 0.3 a one-sided bound misses with probability at most 0.3; over 100
    independent draws 46 misses or more have probability below 1e-3.
    """
    X, f = make_table(40, seed=2), rkhs_function(3)
    x = make_table(25, seed=9)
    strategy = SBPE(**arguments(candidates=X, schedule=[40], num_evaluations=40))
    design = strategy.ask().X
    S = strategy.progress.exploration.posterior.X[
        strategy.progress.exploration.posterior.inducing
    ]
    k = oracles.DENSE["matern52"]
    d = torch.full((40,), LAM, dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    E = NOISE * torch.randn(100, 40, generator=g, dtype=torch.float64)
    q = oracles.nystrom_kernel(k, S)
    error = k(design, design) - q(design, design)
    r = float(torch.linalg.eigvalsh(error)[-1].clamp_min(0)) / LAM
    variance = oracles.dtc(k, design, d, d, S, x).variance
    misses = []
    for noise in E:
        mean = oracles.dtc(k, design, f(design) + noise, d, S, x).mean
        misses.append(((f(x) - mean) / variance.sqrt()).tolist())
    deviation = torch.tensor(misses)
    radius = SBPERadius(1.0, NOISE**2, 0.3, bias=bias)
    statistics = RadiusStatistics(lam=LAM, num_evaluations=40, lambda_max=r)
    beta = radius.multiplier(statistics)
    for side in (deviation, -deviation):
        assert int((side > beta).sum(0).max()) < 46
    without = SBPERadius(0.0, 0.0, 0.3, bias=bias)
    zero = without.multiplier(statistics)
    assert int((deviation.abs() > zero).sum(0).max()) > 46


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
    widths = [r.max_width for r in rounds[:3]]
    assert widths == sorted(widths, reverse=True)
    assert [b.num_inducing for b in history.batches] == [r.num_inducing for r in rounds]


def dense_bpe(f: Any, X: Tensor, lengths: list[int]) -> tuple[list[int], list[Tensor]]:
    """Batched pure exploration with exact posteriors, all from dense inverses."""
    k, left, chosen, masks = oracles.DENSE["matern52"], torch.arange(len(X)), [], []
    for length in lengths:
        rows: list[int] = []
        for _ in range(length):
            d = torch.full((len(rows),), LAM, dtype=torch.float64)
            data = X[rows]
            variance = oracles.exact(k, data, d, d, X[left]).variance
            rows.append(int(left[variance.argmax()]))
        d = torch.full((length,), LAM, dtype=torch.float64)
        posterior = oracles.exact(k, X[rows], f(X[rows]), d, X[left])
        beta = 2 + NOISE * math.sqrt(2 * math.log(4 * 4 * len(X) / 0.1) / LAM)
        lower = posterior.mean - beta * posterior.variance.sqrt()
        upper = posterior.mean + beta * posterior.variance.sqrt()
        left = left[upper >= lower.max()]
        chosen += rows
        masks.append(left)
    return chosen, masks


def test_exact_limit_is_bpe() -> None:
    """S = X of the batch: Li and Scarlett's algorithm, recomputed densely."""
    X, f = make_table(80), rkhs_function(1)
    strategy = SBPE(**arguments(candidates=X, refresh="exact"))
    history = strategy.run(f, 120, progress=False)
    chosen, masks = dense_bpe(f, X, strategy.lengths)
    assert history.indices.tolist() == chosen
    assert strategy.survivors.nonzero().squeeze(-1).tolist() == masks[-1].tolist()
    assert len(masks[-1]) < 80


def test_sparse_bounds_are_those_of_the_dense_posterior() -> None:
    """Elimination by Eq. 13 with the batch's own points, worked out densely."""
    X, f = make_table(), with_noise(rkhs_function(2), 2)
    strategy = SBPE(**arguments())
    k = oracles.DENSE["matern52"]
    left = torch.arange(200)
    for length in strategy.lengths:
        batch = strategy.ask()
        assert len(batch) == length
        assert np.isin(batch.indices, left).all()
        growing = strategy.progress.exploration.posterior
        S = growing.X[growing.inducing]
        Y = f(batch.X)
        strategy.tell(batch, Y)
        d = torch.full((length,), LAM, dtype=torch.float64)
        posterior = oracles.dtc(k, batch.X, Y, d, S, X[left])
        beta = math.sqrt(strategy.history.rounds[-1].beta)
        lower = posterior.mean - beta * posterior.variance.sqrt()
        upper = posterior.mean + beta * posterior.variance.sqrt()
        left = left[upper >= lower.max()]
        assert strategy.survivors.nonzero().squeeze(-1).tolist() == left.tolist()
    best = strategy.recommend()
    assert best.index in left and torch.equal(best.X, X[best.index])
    assert best.lower <= best.mean <= best.upper
    assert best.lower <= float(rkhs_function(2)(X).max())


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
    gaps = []
    for _ in strategy.lengths:
        play(strategy, rkhs_function(0))
        gaps.append(strategy.confidence_gap())
    assert gaps == sorted(gaps, reverse=True) and gaps[-1] < 0.6 * gaps[0]
    best = float(rkhs_function(0)(make_table()).max())
    assert best - float(rkhs_function(0)(strategy.recommend().X[None])) <= gaps[-1]


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
