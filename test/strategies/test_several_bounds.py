"""Upper confidence bounds on several outcomes, by the textbook's dense posteriors.

`by_a_loop` looks at one row after the other, with all variances computed anew after
each point of a batch. Its weights are drawn again from the strategy's generator.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch.exceptions import UnsupportedError
from botorch.utils.sampling import manual_seed
from gpytorch.means import ZeroMean
from refusals import refused
from strategy_table import make_candidates, make_kernel
from test_textbook import textbook
from thread_ranks import together
from torch import Tensor

from botorch_sparse.distributed import ShardedDomain
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.pools.shard import RANK_TILE
from botorch_sparse.strategies import (
    BBKB,
    BKB,
    GPBUCB,
    GPUCB,
    Constraint,
    Objective,
    Strategy,
)
from botorch_sparse.strategies.data.domain import draw_seed
from botorch_sparse.strategies.data.outcomes import Outcome
from botorch_sparse.strategies.data.preference import Preference
from botorch_sparse.strategies.surrogates import joint_batch

NAN = float("nan")
A = 60
GAIN, COST = Objective("gain"), Objective("cost", minimize=True)
HEAT, MASS = Constraint("heat", upper=0.1), Constraint("mass", lower=-0.3, upper=0.3)
COLUMNS = {"gain": 0, "cost": 1, "heat": 2, "mass": 3, "yield": 1}
LENGTHSCALES, NOISES = [0.3, 0.4, 0.25, 0.5], [0.4, 0.3, 0.5, 0.25]
# What ends a batch: `C` and the bound of the textbook.
RULES: dict[str, Callable[..., float]] = {
    "global": textbook.global_bound,
    "global-local": textbook.local_bound,
}


def measure(X: Tensor, outcomes: list[Outcome]) -> Tensor:
    """`b x k` outcomes of points in the unit square, each with a little noise."""
    x, y = X.unbind(-1)
    noise = 0.02 * torch.sin(1e3 * (x + 2 * y))
    gain = torch.sin(5 * x) * torch.cos(3 * y)
    every = [gain, (X - 0.3).square().sum(-1), x * y - 0.2 * y, x - y + 0.1]
    return torch.stack([every[COLUMNS[o.name]] + noise for o in outcomes], dim=-1)


def build(outcomes: list[Outcome], kind: Any = BBKB, **options: Any) -> Strategy:
    """A strategy whose outcomes have kernels and noises of their own."""
    places = [COLUMNS[o.name] for o in outcomes]
    plain: dict[str, Any] = {
        "candidates": make_candidates(A),
        "covar_module": [make_kernel(LENGTHSCALES[i]) for i in places],
        "lam": [NOISES[i] for i in places],
        "norm_bound": 0.5,
        "noise_variance": 1e-3,
        "mean_module": ZeroMean(),
    }
    return kind(**plain | {"outcomes": iter(outcomes)} | options)


def started(strategy: Strategy, outcomes: list[Outcome], num: int = 12) -> Any:
    """With feedback on the first rows, of which some outcomes are missing."""
    X = strategy.candidates[:num]
    Y = measure(X, outcomes)
    Y[2, 0] = Y[5, 1] = NAN
    strategy.tell(X, Y)
    strategy.learn()
    return strategy


class Side:
    """One outcome by dense matrices, as the textbook has them."""

    def __init__(self, strategy: Any, column: int, size: int) -> None:
        record, X = strategy.record, strategy.candidates
        part = strategy.surrogate.parts[column]
        Y = record.Y[:size, column]
        there = ~Y.isnan()
        self.lam = strategy.statistics[column].lam
        self.K = part.view.prior.covar_module(X).to_dense().numpy()
        self.S = list(part.inducing)
        self.X = record.point[:size][there].tolist()
        data = self.X, Y[there].numpy()
        self.mean = textbook.nystrom_mean(self.K, self.S, *data, self.lam)
        self.width = strategy.radius.multiplier(strategy.statistics[column])

    def covariance(self, batch: list[int]) -> tuple[Any, Any]:
        return textbook.nystrom_covariance(self.K, self.S, self.X + batch, self.lam)

    def bounds(self, batch: list[int]) -> tuple[Any, Any]:
        sd = np.sqrt(self.lam * self.covariance(batch)[0].diagonal())
        return self.mean - self.width * sd, self.mean + self.width * sd


def order_of(
    outcomes: list[Outcome], preference: Preference, weights: Any, low: Any, high: Any
) -> tuple[bool, float]:
    """What makes one row better than another, from its `k` lower and upper bounds."""
    violation, terms = 0.0, []
    reference, scale = iter(preference.reference), iter(preference.scale)
    spread, weight = iter(preference.spread), iter(weights)
    for outcome, lower, upper in zip(outcomes, low, high, strict=True):
        if isinstance(outcome, Objective):
            terms.append(
                (upper - float(next(reference))) / float(next(scale) * next(weight))
            )
        else:
            least, most = outcome.range
            violation += max(least - upper, lower - most, 0.0) / float(next(spread))
    return violation == 0.0, -violation if violation else min(terms)


def by_a_loop(
    strategy: Any,
    outcomes: list[Outcome],
    limit: int,
    *,
    rule: str = "global-local",
    pending: list[list[int]] | None = None,
    is_once: bool = False,
) -> list[int]:
    """What `ask(limit)` chooses."""
    k, size = len(outcomes), strategy._num_learned
    before = pending or [[] for _ in outcomes]
    sides = [Side(strategy, column, size) for column in range(k)]
    preference = Preference.of(strategy.record, size)
    generator = torch.Generator()
    generator.set_state(strategy.generator.get_state())
    seed = draw_seed(generator)
    taken = set(strategy.excluded_points) if is_once else set()
    batch = list[int]()
    while len(batch) < limit:
        with manual_seed(seed + strategy._trials.num_proposed + len(batch)):
            weights = preference.draw_weights(1)[0]
        both = [s.bounds(p + batch) for s, p in zip(sides, before, strict=True)]
        low, high = np.array(both).transpose(1, 2, 0)
        rows = [row for row in range(A) if row not in taken]
        keys = [order_of(outcomes, preference, weights, low[r], high[r]) for r in rows]
        batch.append(rows[max(range(len(rows)), key=lambda i: (keys[i], -i))])
        if is_once:
            taken.add(batch[-1])
        bounds = [
            RULES[rule](*s.covariance([]), p + batch)
            for s, p in zip(sides, before, strict=True)
        ]
        if max(bounds) > strategy.rule.ratio_threshold:
            break
    return batch


CASES = {
    "one-limit": [GAIN, HEAT],
    "two-objectives": [GAIN, COST],
    "all": [COST, HEAT, GAIN, MASS],
    "infeasible": [GAIN, Constraint("heat", upper=-3.0), Constraint("mass", lower=2.5)],
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES)
def test_batches_are_chosen_as_by_a_loop(
    case: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five in a row, with sparse posteriors, and repeats of rows.

    Two rows are refreshed at first, so that most bounds are stale.
    """
    monkeypatch.setattr(joint_batch, "FIRST_BLOCK", 2)
    outcomes, sizes = CASES[case], set[int]()
    options = {"termination": rule, "ratio_threshold": 3.0, "seed": 3}
    strategy = started(build(outcomes, oversampling=0.3, **options), outcomes)
    for _ in range(5):
        expected = by_a_loop(strategy, outcomes, 8, rule=rule)
        batch = strategy.ask(8)
        assert batch.indices.tolist() == expected
        strategy.tell(batch, measure(batch.X, outcomes))
        strategy.learn()
        sizes.add(len(batch))
    assert strategy.surrogate.num_inducing() < strategy.history.num_unique
    assert 1 < max(sizes) and min(sizes) < 8  # batches that the rule ends


@pytest.mark.parametrize("kind", [BBKB, GPBUCB, GPUCB, BKB])
def test_each_row_once_by_any_posterior(kind: Any) -> None:
    """All points are inducing; BKB and GPUCB have batches of one point."""
    outcomes = CASES["all"]
    options: dict[str, Any] = {"unique": True, "batch_size": None}
    if kind in (BBKB, BKB):
        options["oversampling"] = 1e9
    if kind is GPBUCB:
        options["rule"] = "sum"
    strategy = started(build(outcomes, kind, **options), outcomes)
    limit = 1 if kind in (BKB, GPUCB) else 8
    for _ in range(5):
        rule = "global" if kind is GPBUCB else "global-local"
        expected = by_a_loop(strategy, outcomes, limit, rule=rule, is_once=True)
        batch = strategy.ask()
        assert batch.indices.tolist()[:limit] == expected
        strategy.tell(batch, measure(batch.X, outcomes))
        strategy.learn()


def test_a_batch_is_the_same_in_parts() -> None:
    """Feedback on a part of it, of some outcomes alone, changes nothing either."""
    outcomes = CASES["all"]
    options = {"ratio_threshold": 20.0, "seed": 1, "unique": True}
    whole, parts = (started(build(outcomes, **options), outcomes) for _ in range(2))
    expected = whole.ask(7)
    first = parts.ask(2)
    Y = measure(first.X, outcomes)
    Y[0, 1] = NAN
    parts.tell(first.ids[:1], Y[:1])
    rest = [*parts.ask(1).indices, *parts.ask(4).indices]
    assert [*first.indices, *rest] == expected.indices.tolist()
    assert len(expected) == 7


def test_what_is_pending_counts_by_outcome() -> None:
    """An outcome that comes late is pending for it alone, once the others learned."""
    outcomes = CASES["all"]
    strategy = started(
        build(outcomes, ratio_threshold=30.0, oversampling=1e9), outcomes
    )
    first = strategy.ask(4)
    Y = measure(first.X, outcomes)
    late = Y.clone()
    Y[0, 1] = Y[1, 1] = NAN
    strategy.tell(first.ids[:2], Y[:2])
    strategy.learn()  # with trials 2 and 3 pending
    late[:2, [0, 2, 3]] = NAN
    strategy.tell(first.ids[:1], late[:1])  # not learned yet
    rows = first.indices.tolist()
    pending = [rows[2:], [rows[0], *rows[2:]], rows[2:], rows[2:]]
    assert strategy._points_of_outcomes() == pending
    expected = by_a_loop(strategy, outcomes, 3, pending=pending)
    assert strategy.ask(3).indices.tolist() == expected
    strategy.tell(first.ids[2:], Y[2:])
    strategy.tell(strategy.pending_ids, measure(strategy.X_pending, outcomes))
    strategy.learn()
    counts = [each.num_evaluations for each in strategy.statistics]
    assert counts == [18, 17, 19, 19]


def test_an_outcome_without_feedback_is_left_out() -> None:
    outcomes = [GAIN, COST, HEAT]
    joint = build(outcomes, ratio_threshold=20.0, seed=2)
    pair = build(outcomes[:2], ratio_threshold=20.0, seed=2)
    Y = measure(joint.candidates[:12], outcomes)
    Y[:, 2] = NAN
    for strategy, columns in ((joint, [0, 1, 2]), (pair, [0, 1])):
        strategy.tell(strategy.candidates[:12], Y[:, columns])
        strategy.learn()
    batch = joint.ask(3)
    assert batch.indices.tolist() == pair.ask(3).indices.tolist()
    assert len(batch) > 1  # so that one of them does not end it
    joint.tell(batch.ids[:1], [[NAN, NAN, 0.5]])  # told, and not learned yet
    assert joint._points_of_outcomes()[2]
    joint._batch_so_far().choose(2)
    limits = build([HEAT, GAIN, COST])
    only = Y.clone()
    only[:, 0], only[:, 1:] = Y[:, 0], NAN
    limits.tell(limits.candidates[:12], only)
    limits.learn()
    assert len(limits.ask(2)) > 0


def test_statistics_are_each_outcome_s_own() -> None:
    """As of strategies with one outcome, told the same."""
    outcomes = CASES["all"]
    every = {"oversampling": 1e9, "initial_sampler": PosteriorVarianceSampler(1e9)}
    joint = started(build(outcomes, **every), outcomes)
    for _ in range(3):
        batch = joint.ask(4)
        joint.tell(batch, measure(batch.X, outcomes))
    joint.learn()
    history = joint.history
    for column, (outcome, found) in enumerate(
        zip(outcomes, joint.statistics, strict=True)
    ):
        place = COLUMNS[outcome.name]
        kernel, lam = make_kernel(LENGTHSCALES[place]), NOISES[place]
        options = every | {"covar_module": kernel, "lam": lam}
        alone = BBKB(
            joint.candidates, norm_bound=0.5, mean_module=ZeroMean(), **options
        )
        batches = joint.record.batch_number
        for number in batches.unique():
            now = (batches == number) & ~history.Y[:, column].isnan()
            alone.tell(history.X[now], history.Y[now, column])
            alone.learn()
        assert found.num_evaluations == alone.statistics.num_evaluations
        assert found.log_det_sum == pytest.approx(alone.statistics.log_det_sum)
        assert found.lam == lam
    betas = [joint.radius.botorch_beta(each) for each in joint.statistics]
    joint.ask(1)
    assert history.batches[-1].beta == max(betas)


NORM, XI = 2.0, 0.1
PROVED = {"constants": "theory", "num_evaluations": 60, "delta": 0.1}


def proved(outcomes: list[Outcome], **options: Any) -> Strategy:
    """BBKB with a theorem's constants."""
    plain = {"covar_module": make_kernel(), "lam": 1.0, "mean_module": None}
    plain |= PROVED | {"norm_bound": NORM, "noise_variance": XI**2, "seed": 4}
    return build(outcomes, **plain | options)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_objectives", [1, 2])
def test_what_is_proved_holds(num_objectives: int, seed: int) -> None:
    """Bounds hold everywhere; regret and violation of each point are within them.

    It fails with a probability of at most 0.1; seeds are fixed, and the bounds are
    wider than the errors by a factor.
    """
    g = np.random.default_rng(seed)
    K = make_kernel()(make_candidates(A)).to_dense().numpy()
    weights = g.standard_normal((A, num_objectives + 1))
    f = NORM * K @ weights / np.sqrt(np.einsum("ik,ij,jk->k", weights, K, weights))
    limit = float(np.median(f[:, -1]))
    outcomes = [Objective("gain", threshold=-1.0), Objective("yield", threshold=-1.0)]
    outcomes = [*outcomes[:num_objectives], Constraint("heat", upper=limit)]
    strategy: Any = proved(outcomes)
    is_feasible = f[:, -1] <= limit
    for _ in range(6):
        generator = torch.Generator()
        generator.set_state(strategy.generator.get_state())
        first, draw = strategy._trials.num_proposed, draw_seed(generator)
        is_learned = strategy._num_learned > 0
        batch = strategy.ask(6)
        rows = batch.indices.tolist()
        for s, row in enumerate(rows if is_learned else []):
            sides = [
                Side(strategy, j, strategy._num_learned) for j in range(f.shape[1])
            ]
            low, high = np.array([s_.bounds(rows[:s]) for s_ in sides]).transpose(
                1, 2, 0
            )
            assert np.all((low <= f) & (f <= high))
            widths = (high - low)[row]
            assert f[row, -1] <= limit + widths[-1]
            with manual_seed(draw + first + s):
                weight = strategy._stated.draw_weights(1)[0].numpy()
            scaled = (f[:, :-1] + 1.0) / weight
            regret = scaled.min(-1)[is_feasible].max() - scaled[row].min()
            assert regret <= (widths[:-1] / weight).max()
        noise = XI * g.standard_normal((len(rows), f.shape[1]))
        strategy.tell(batch, torch.from_numpy(f[rows] + noise))
        strategy.learn()


def test_outcomes_share_delta() -> None:
    """With a theorem's constants, and for any radius of a kernel that is given."""
    outcomes = [GAIN, HEAT]
    strategy: Any = proved(outcomes)
    alone: Any = proved([GAIN], delta=0.05)
    assert strategy.radius == alone.radius
    samplers = [
        (s.surrogate.parts[0].sampler, s.surrogate.parts[0].initial_sampler)
        for s in (strategy, alone)
    ]
    assert samplers[0] == samplers[1]
    for kind in (BBKB, BKB, GPUCB, GPBUCB):
        pair: Any = build(outcomes, kind, delta=0.1)
        assert pair.radius.delta == 0.05 and len(pair.statistics) == 2


def test_what_no_theorem_covers_is_refused() -> None:
    given = Objective("gain", threshold=0.0)
    refused("'cost'.*without a threshold", proved, [given, COST])
    proved([given, Objective("cost", minimize=True, threshold=1.0), HEAT])
    proved([GAIN, HEAT])
    refused("without covar_module", proved, [GAIN, HEAT], covar_module=None, lam=None)
    strategy = started(build([GAIN, HEAT]), [GAIN, HEAT])
    with pytest.raises(UnsupportedError, match="a confidence gap"):
        strategy.confidence_gap()
    with pytest.raises(UnsupportedError, match="min_batch_width"):
        build([GAIN, HEAT], min_batch_width=3)


def test_a_point_is_repeated_until_the_first_variance_halves() -> None:
    outcomes = [GAIN, HEAT]
    options = {"repeat": "until-uncertainty-halves"}
    strategy = started(build(outcomes, oversampling=1e9, **options), outcomes)
    (row,) = by_a_loop(strategy, outcomes, 1)
    sides = [Side(strategy, column, 12) for column in range(2)]
    leverage = max(side.covariance([])[0][row, row] for side in sides)
    assert strategy.ask().indices.tolist() == [row] * int(np.ceil(1 / leverage))


@pytest.mark.slow
def test_a_box_is_as_good_as_its_best_grid_point() -> None:
    """By bounds, with points of the batch pending; one climb may end second best."""
    outcomes = [GAIN, COST, HEAT]
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()
    strategy: Any = build(
        outcomes, candidates=None, bounds=bounds, ratio_threshold=20.0, seed=2
    )
    X = make_candidates(15)
    strategy.tell(X, measure(X, outcomes))
    strategy.learn()
    ticks = torch.linspace(0, 1, 81).double()
    grid = torch.cartesian_prod(ticks, ticks)
    state = strategy.generator.get_state()
    batch = strategy._batch_so_far()
    assert len(batch.choose(4)) == 4
    strategy.generator.set_state(state)
    again, preference = strategy._batch_so_far(), batch.joint.preference
    num_best = 0
    for row in batch.rows[:3]:
        point = strategy.record.points(torch.tensor([row]))
        for one in again.known:
            one.add(point, row)
        with torch.no_grad():
            levels = preference.levels(
                again._values(torch.cat([point, grid])), again.weights
            )[0][0]
        assert bool(levels[0] > -torch.inf)
        assert float((levels > levels[0]).double().mean()) < 0.05
        num_best += float(levels[0]) >= float(levels[1:].max()) - 0.02
        again.append(row)
    assert num_best >= 2
    points = torch.cat([X, strategy.record.points(torch.tensor(batch.rows[:3]))])
    for column, one in enumerate(again.known):
        K = make_kernel(LENGTHSCALES[column])(torch.cat([points, grid])).to_dense()
        inducing = strategy.surrogate.inducing[column]
        S = [strategy.record.point.tolist().index(point) for point in inducing]
        S = list(range(18)) if len(S) == 15 else S  # exact, pending points included
        lam = NOISES[column]
        relative, _ = textbook.nystrom_covariance(K.numpy(), S, list(range(18)), lam)
        found = one.frozen.present_variance(one.frozen.features(grid))
        expected = lam * relative.diagonal()[len(points) :]
        np.testing.assert_allclose(found.detach().squeeze(), expected, rtol=1e-6)


@pytest.mark.slow
def test_ranks_choose_what_one_process_chooses() -> None:
    """To the row, with bounds of their own rows on each."""
    X = torch.rand(3 * RANK_TILE, 2, generator=torch.Generator().manual_seed(0))
    outcomes = [GAIN, COST, HEAT]

    def run(candidates: Any) -> list[int]:
        strategy = BBKB(candidates, outcomes=outcomes, batch_size=5)
        for _ in range(4):
            batch = strategy.ask()
            strategy.tell(batch, measure(batch.X, outcomes))
        return strategy.history.indices.tolist()

    table = X.double()
    expected = run(table)
    assert len({row // RANK_TILE for row in expected}) > 1
    found = together(2, lambda ranks: run(ShardedDomain.of(table, ranks)))
    assert found == [expected] * 2
