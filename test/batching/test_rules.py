"""Rules that end a batch, against dense versions that recompute everything."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batch_oracles import (
    HOST,
    KINDS,
    Dense,
    DevicePool,
    OnePlate,
    Problem,
    assert_close,
    device_batch,
    fewer,
    make_problem,
    sparse_problem,
)
from refusals import refused
from strategy_table import make_kernel

from botorch_sparse.acquisition import BatchUpperConfidenceBound, GlobalLocal
from botorch_sparse.acquisition.ratios import LocalBound
from botorch_sparse.batching import (
    FixedSize,
    Global,
    Local,
    Product,
    Rule,
    Single,
    UntilHalved,
    rule_of,
)
from botorch_sparse.batching.acquisition_batch import ChoiceBatch
from botorch_sparse.batching.rules import GrowingBatch
from botorch_sparse.pools import NystromPool
from botorch_sparse.pools.device_batch import EagerBatch
from botorch_sparse.posteriors import NystromPosterior

CASES = json.loads(
    (Path(__file__).parent.parent / "data/bbkb_reference_cases.json").read_text()
)
RULES: dict[str, Any] = {
    "global": Global,
    "product": Product,
    "both": Local,
    "embedded": partial(Local, covariance="embedded"),
    "paper": partial(Local, covariance="paper"),
}
LOCAL: list[LocalBound] = ["both", "embedded", "paper"]


def dense_bound(dense: Dense, batch: list[int], name: str) -> float:
    if name == "global":
        return dense.global_bound(batch)
    if name == "product":
        return dense.product_bound(batch)
    return float(dense.local_bound(batch, kind=name).max())


def dense_is_over(dense: Dense, batch: list[int], threshold: float, name: str) -> bool:
    """Everything anew, the local bound at every point."""
    if name in LOCAL:
        seen = batch[:-1] if name == "paper" else batch
        if dense.global_bound(seen) <= threshold:
            return False
    return dense_bound(dense, batch, name) > threshold


def random_choices(seed: int, size: int, **kwargs: Any) -> tuple[Problem, list[int]]:
    """A problem of one noise, and a batch: argmaxes, random candidates, repeats."""
    problem, g = sparse_problem(seed, **kwargs), np.random.default_rng(seed)
    problem.count = torch.ones_like(problem.count)
    state = problem.pool(**HOST).batch(1.0)
    for _ in range(size):
        other = int(g.integers(0, len(problem.X)))
        state.append(other if g.random() < 0.3 else state.argmax())
    return problem, state.rows


def start(
    problem: Problem, kind: str, view: str, rule: Rule, **kw: Any
) -> GrowingBatch:
    """A batch on a table, in a pool or by an acquisition function at all choices."""
    if view == "pool":
        pool = problem.pool if kind == "nystrom" else problem.exact_pool
        return pool(**kw).batch(1.0, rule)
    ucb = BatchUpperConfidenceBound(problem.model(kind, **kw), 1.0)
    return ChoiceBatch(ucb, rule, ucb.frozen, problem.X.to(**kw))


@pytest.mark.one_in(9)
@pytest.mark.parametrize("view", ["pool", "acquisition"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", list(RULES))
def test_every_rule_is_its_dense_version(
    name: str, kind: str, view: str, double: dict[str, Any]
) -> None:
    """On random problems, until it ends the batch; tables and boxes say the same."""
    ended, seeds = 0, fewer(range(8), double, 1)
    for seed in seeds:
        problem, batch = random_choices(seed, 12)
        dense, g = Dense(problem, kind), np.random.default_rng(seed)
        # A threshold amid the values that the bound takes on.
        reach = dense_bound(dense, batch[: int(g.integers(1, 12))], name)
        threshold = 1 + (reach - 1) * float(g.uniform(0.3, 1.1))
        rule: Rule = RULES[name](threshold)
        seen = start(problem, kind, view, rule, **double)
        for s, row in enumerate(batch, start=1):
            assert not seen.is_over()
            before = dense.variance_after(batch[: s - 1])[row]
            seen.append(row)
            assert seen.size == s
            assert seen.variances[-1] == pytest.approx(dense.variance[row], rel=1e-6)
            assert seen.variances_before[-1] == pytest.approx(before, rel=1e-6)
            # While passes over the table are put off it is still an upper bound, and
            # where it ends a batch a lower one.
            bound = float(rule.bound(seen))
            over = dense_is_over(dense, batch[:s], threshold, name)
            expected = dense_bound(dense, batch[:s], name)
            if name in LOCAL and name != "paper":
                assert over or bound >= expected * (1 - 1e-9)
                assert bound <= dense.global_bound(batch[:s]) * (1 + 1e-9)
            assert seen.is_over() is over
            if over:
                assert threshold < bound <= expected * (1 + 1e-7)
                assert name in LOCAL or bound == pytest.approx(expected, rel=1e-7)
                ended += 1
                break
    assert double != HOST or 2 * ended >= len(seeds)


def negative_residuals() -> tuple[Problem, list[int]]:
    """A table where the embedded sum is the larger one even at its maximum.

    Under a linear kernel the batch's points lie on a cone around the first candidate,
    all with a residual of the opposite sign. (Over a table with the batch's points in
    it the maximum of the full sum is nearly always the larger, as random ones show.)
    """
    g = torch.Generator().manual_seed(0)
    sides = torch.nn.functional.normalize(torch.randn(120, 30, generator=g).double())
    X = torch.zeros(152, 32, dtype=torch.float64)
    X[0, 0], X[0, 31] = 1.0, 0.3
    X[1:121, 0], X[1:121, 1:31], X[1:121, 31] = 0.4**0.5, 0.6**0.5 * sides, -0.3
    v = torch.full((31,), -(31**-0.5), dtype=torch.float64)
    v[0] += 1  # a reflection: inducing points at equal angles to the cone's axis
    X[121:, :31] = torch.eye(31, dtype=torch.float64) - 2 * torch.outer(v, v) / (v @ v)
    row, ones = torch.arange(121, 152), torch.ones(31, dtype=torch.float64)
    return Problem(X, row, ones, 0 * ones, row, 100.0, "linear"), list(range(1, 121))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", LOCAL)
def test_the_sums_of_each_kind(kind: LocalBound, double: dict[str, Any]) -> None:
    """Just below the largest local bound a batch is over, and not just above it."""
    cases = [random_choices(2000 + seed, 6) for seed in fewer(range(8), double)]
    if double == HOST:
        problem, batch = negative_residuals()
        dense = Dense(problem)
        both = dense_bound(dense, batch, "both")
        assert both - 1 > 1.1 * (dense_bound(dense, batch, "paper") - 1)
        cases.append((problem, batch))
    for problem, batch in cases:
        dense, state = Dense(problem), problem.pool(**double).batch(1.0)
        for s, row in enumerate(batch, start=1):
            state.append(row)
            expected = dense_bound(dense, batch[:s], kind)
            for threshold in (expected * 0.95, expected * (1 - 1e-7)):
                bound = float(state.local_ratio(kind, threshold))
                assert threshold < bound <= expected * (1 + 1e-9)
            above = expected * (1 + 1e-7)
            assert state.local_ratio(kind, above) <= above


@pytest.mark.parametrize("kind", LOCAL)
def test_a_lazy_batch_ends_where_an_eager_one_does(kind: LocalBound) -> None:
    sizes = []
    for seed in range(12):
        problem = make_problem(seed, num_candidates=90, num_inducing=12, lam=0.5)
        pool, g = problem.pool(**HOST), np.random.default_rng(seed)
        there = problem.pool(DevicePool, **HOST)
        rule = Local(float(g.uniform(1.2, 5.0)), kind)
        multiplier = float(g.uniform(1.0, 20.0))
        chosen = pool.batch(multiplier, rule).choose(200)
        eager = device_batch(EagerBatch, there, multiplier, rule)
        assert chosen == eager.choose(200)
        sizes.append(len(chosen))
    assert 1 < np.median(sizes) < 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOCAL)
def test_a_batch_that_is_large_enough_ends_by_the_sum_rule(kind: LocalBound) -> None:
    """The longer of the sum rule's batch and the local one's first points."""
    num_between = 0
    for seed in range(1, 10):
        problem = make_problem(seed, num_candidates=90, num_inducing=12, lam=20.0)
        pool, g = problem.pool(**HOST), np.random.default_rng(seed)
        there = problem.pool(DevicePool, **HOST)
        threshold = float(g.uniform(1.2, 5.0))
        least = len(pool.batch(10.0, Global(threshold)).choose(200))
        least += kind == "paper"  # which looks one point late
        local = pool.batch(10.0, Local(threshold, kind)).choose(200)
        between = (least + len(local)) // 2
        num_between += least < between < len(local)
        for enough in (1, between, 200):
            expected = local[: max(least, min(len(local), enough))]
            rule = Local(threshold, kind, large_enough=enough)
            assert pool.batch(10.0, rule).choose(200) == expected
            eager = device_batch(EagerBatch, there, 10.0, rule)
            assert eager.choose(200) == expected
    assert num_between >= 3


def test_few_passes_over_the_pool(double: dict[str, Any]) -> None:
    problem = make_problem(4, num_candidates=90, num_inducing=40, lam=1.0)
    pool = problem.pool(**double)
    passes, squared, largest = [], pool.squared_covariances, pool.largest
    looks = []

    def spy(rows: torch.Tensor) -> torch.Tensor:
        passes.append(rows.tolist())
        return squared(rows)

    def look(values: torch.Tensor) -> torch.Tensor:
        looks.append(len(values))
        return largest(values)

    pool.squared_covariances = spy  # type: ignore[method-assign]
    pool.largest = look  # type: ignore[method-assign]
    size = len(pool.batch(1.0, Local(6.0)).choose(10_000))
    assert size > 20
    assert len(passes) < size / 3 and 0 < len(looks) < size / 10
    asked = [point for points in passes for point in points]
    assert len(set(asked)) == len(asked)  # each point's squares are computed once


def test_float32(tkwargs: dict[str, Any]) -> None:
    problem, batch = random_choices(12, 10, lam=0.1)
    rule = Local(1.0)
    state = problem.pool(**tkwargs).batch(1.0, rule)
    state.append(batch[0])
    expected = dense_bound(Dense(problem), batch[:1], "both")
    assert float(rule.bound(state)) == pytest.approx(expected, rel=2e-3)


def test_sizes() -> None:
    """Rules of a size, and one of a user, as limits of others."""
    problem = make_problem(4, num_candidates=60, num_inducing=20, lam=1.0)
    pool = problem.pool(**HOST)
    longest = pool.batch(1.0, Local(3.0)).choose(100)
    assert 4 < len(longest) < 100
    for rule, size in ((Single(), 1), (FixedSize(4), 4), (OnePlate(3, 3.0), 3)):
        assert pool.batch(1.0, rule).choose(100) == longest[:size]
    assert pool.batch(1.0, OnePlate(99, 3.0)).choose(100) == longest
    assert pool.batch(1.0, UntilHalved()).choose(100) == longest[:1]


def test_short_names_and_errors() -> None:
    assert rule_of("global-local", 3.0, "embedded") == Local(3.0, "embedded")
    assert [rule_of(name) for name in ("single", "global", "product")] == [
        Single(),
        Global(2.0),
        Product(2.0),
    ]
    assert rule_of(OnePlate(3)) == OnePlate(3)
    bound = GlobalLocal(make_problem(0).model("exact", **HOST))
    for other in ("sum", Local, bound, 2.0):
        refused(r"need one of \('single', 'global'", rule_of, other)
    refused(r"ratio_threshold=0\.5; need at least 1", rule_of, OnePlate(3, 0.5))
    refused("ratio_threshold=nan; need at least 1", Global, math.nan)
    refused("local_bound='other'; need one of", Local, 2.0, "other")
    refused("batch_size=0; need a size of at least", FixedSize, 0)


def reference_pool(case: dict[str, Any], streamed: bool, **tkwargs: Any) -> NystromPool:
    """The state of a case of the authors' code: repeats folded, noise lam / n_i."""
    X = torch.tensor(case["candidates"], **tkwargs)
    row, inverse, count = torch.tensor(case["pulled_indices"]).unique(
        return_inverse=True, return_counts=True
    )
    y = torch.tensor(case["y"], dtype=torch.float64)
    count = count.double()
    total = torch.zeros(len(row), dtype=torch.float64).index_add(0, inverse, y)
    kernel = make_kernel(case["lengthscale"], **tkwargs)
    pool = NystromPool(X, case["lam"], max_memory=0 if streamed else 2**30)
    pool.update(
        NystromPosterior.from_data(
            kernel,
            X[row.to(X.device)],
            (total / count).to(X),
            (case["lam"] / count).to(X),
            X[torch.tensor(case["dictionary_indices"], device=X.device)],
        )
    )
    return pool


@pytest.mark.parametrize("streamed", [False, True], ids=["memory", "streamed"])
def test_published_batches(streamed: bool, double: dict[str, Any]) -> None:
    """The six cases of the authors' code: moments, and both batches exactly."""
    for case in fewer(CASES, double):
        lam, threshold = case["lam"], case["ratio_threshold"]
        pool = reference_pool(case, streamed, **double)
        assert pool.in_memory is not streamed
        mean, variance = pool.all_moments()
        assert_close(mean, np.array(case["means"]), rtol=1e-5, atol=1e-6)
        expected = lam * np.array(case["variances_over_lambda"])
        assert_close(variance, expected, rtol=1e-5)
        rules: list[tuple[Rule, str, str]] = [
            (Global(threshold), "global", "global_ratio_bound_at_end"),
            (Local(threshold, "paper"), "local", "local_ratio_bound_max_at_end"),
        ]
        for rule, name, bound in rules:
            state = pool.batch(case["beta_bkb_practical"] / lam**0.5, rule)
            assert state.choose(10_000) == case[f"batch_{name}"], case["case"]
            assert float(rule.bound(state)) == pytest.approx(case[bound], rel=1e-5)
