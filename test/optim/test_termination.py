"""Rules that end a batch, against dense versions that recompute everything."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batch_oracles import HOST, Dense, Problem, assert_close, fewer, make_problem
from botorch.exceptions import InputDataError
from gpytorch.kernels import RBFKernel

from botorch_sparse.optim import (
    CandidatePool,
    GlobalLocalRule,
    GlobalRule,
    LazyUCB,
    ProductRule,
    TerminationRule,
)
from botorch_sparse.posteriors import NystromPosterior

CASES = json.loads(
    (Path(__file__).parent.parent / "data/bbkb_reference_cases.json").read_text()
)


def slow_bound(dense: Dense, batch: list[int], name: str) -> float:
    if name == "global":
        return dense.global_bound(batch)
    if name == "product":
        return dense.product_bound(batch)
    return float(dense.local_bound(batch, kind=name).max())


def slow_global_local(
    dense: Dense, batch: list[int], threshold: float, kind: str
) -> bool:
    """Whether a batch may go on: everything anew, a pass over all at every point."""
    if dense.global_bound(batch) <= threshold:
        return True
    if kind == "paper" and dense.global_bound(batch[:-1]) <= threshold:
        return True
    return dense.local_bound(batch, kind=kind).max() <= threshold


def choices(seed: int, size: int, **kwargs: Any) -> tuple[Any, Dense, list[int]]:
    """A problem and a batch: argmaxes, random candidates, and many repeats."""
    problem = make_problem(seed, **kwargs)
    dense, g = Dense(problem), np.random.default_rng(seed)
    batch: list[int] = []
    ucb = LazyUCB(problem.pool(**HOST), 1.0, problem.lam)
    for _ in range(size):
        other = int(g.integers(0, len(problem.X)))
        batch.append(other if g.random() < 0.3 else ucb.argmax())
        ucb.append(batch[-1])
    return problem, dense, batch


def test_every_rule_is_its_slow_version(double: dict[str, Any]) -> None:
    """All rules, on random problems, until each ends the batch."""
    ended, seeds = 0, fewer(range(50), double, 2)
    for seed in seeds:
        problem, dense, batch = choices(seed, 12)
        pool, lam = problem.pool(**double), problem.lam
        g = np.random.default_rng(seed)
        # A threshold amid the values that the global bound takes on.
        reach = dense.global_bound(batch[: int(g.integers(1, 12))])
        threshold = 1 + (reach - 1) * float(g.uniform(0.3, 1.2))
        rules: dict[str, TerminationRule] = {
            "global": GlobalRule(pool, lam, threshold),
            "product": ProductRule(pool, lam, threshold),
            "both": GlobalLocalRule(pool, lam, threshold),
            "embedded": GlobalLocalRule(pool, lam, threshold, "embedded"),
            "paper": GlobalLocalRule(pool, lam, threshold, "paper"),
        }
        sizes = {name: len(batch) for name in rules}
        for name, rule in rules.items():
            for s, index in enumerate(batch, start=1):
                before = dense.variance_after(batch[: s - 1])[index]
                goes_on = rule.add(index, torch.tensor(before))
                if name == "global":
                    expected = dense.global_bound(batch[:s]) <= threshold
                elif name == "product":
                    expected = dense.product_bound(batch[:s]) <= threshold
                else:
                    expected = slow_global_local(dense, batch[:s], threshold, name)
                assert goes_on == expected, (name, seed, s)
                if not goes_on:
                    sizes[name] = s
                    ended += 1
                    break
            if not goes_on:
                expected_bound = slow_bound(dense, batch[: sizes[name]], name)
                assert rule.bound == pytest.approx(expected_bound, rel=1e-7)
        assert sizes["both"] >= sizes["global"]
        assert sizes["embedded"] >= sizes["both"]
        assert sizes["paper"] >= sizes["global"]
    assert ended > 2 * len(seeds)


@pytest.mark.parametrize("kind", ["both", "embedded", "paper"])
def test_reported_bound_is_never_too_small(kind: str, double: dict[str, Any]) -> None:
    """While passes over the pool are skipped, `bound` stays an upper bound."""
    for seed in fewer(range(12), double):
        problem, dense, batch = choices(800 + seed, 25, num_inducing=40)
        threshold = dense.global_bound(batch[:3])
        rule = GlobalLocalRule(problem.pool(**double), problem.lam, threshold, kind)
        for s, index in enumerate(batch, start=1):
            if not rule.add(index, 0.0):
                break
            local = slow_bound(dense, batch[:s], kind)
            assert rule.bound >= local * (1 - 1e-9)
            assert rule.bound <= dense.global_bound(batch[:s]) * (1 + 1e-9)


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


@pytest.mark.parametrize("kind", ["both", "embedded", "paper"])
def test_the_sums_of_each_kind(kind: str, double: dict[str, Any]) -> None:
    """Followed beyond the batch's end, where every point takes a pass over the pool."""
    cases = [choices(2000 + seed, 6) for seed in fewer(range(8), double)]
    if double == HOST:
        problem, batch = negative_residuals()
        dense = Dense(problem)
        both = slow_bound(dense, batch, "both")
        assert both - 1 > 1.1 * (slow_bound(dense, batch, "paper") - 1)
        cases.append((problem, dense, batch))
    for problem, dense, batch in cases:
        rule = GlobalLocalRule(problem.pool(**double), problem.lam, 1.0, kind)
        for s, index in enumerate(batch, start=1):
            first = kind == "paper" and s == 1
            assert rule.add(index, 0.0) is first
            if not first:
                expected = slow_bound(dense, batch[:s], kind)
                assert rule.bound == pytest.approx(expected, rel=1e-7)


def test_few_passes_over_the_pool(double: dict[str, Any]) -> None:
    problem = make_problem(4, num_candidates=90, num_inducing=40, lam=1.0)
    pool = problem.pool(**double)
    passes, squared = [], pool.squared_covariances

    def spy(index: torch.Tensor) -> Any:
        passes.append(index.tolist())
        return squared(index)

    pool.squared_covariances = spy  # type: ignore[method-assign]
    rule, ucb, size = GlobalLocalRule(pool, 1.0, 6.0), LazyUCB(pool, 1.0, 1.0), 0
    while rule.add(index := ucb.argmax(), ucb.append(index)):
        size += 1
    assert size > 20
    assert len(passes) < size / 3
    asked = [point for points in passes for point in points]
    assert len(set(asked)) == len(asked)  # each point's squares are computed once


def test_product_rule_never_longer_than_sum_for_the_exact_posterior(
    double: dict[str, Any],
) -> None:
    for seed in fewer(range(15), double):
        problem = make_problem(seed)
        pool = problem.exact_pool(**double)
        g = np.random.default_rng(seed)
        total = GlobalRule(pool, problem.lam, 1e9)
        product = ProductRule(pool, problem.lam, 1e9)
        ucb, batch = pool.ucb(1.0, problem.lam), []
        for _ in range(8):
            index = int(g.integers(0, len(problem.X)))
            before = ucb.append(index)
            total.add(index, before)
            product.add(index, before)
            batch.append(index)
        assert total.bound <= product.bound * (1 + 1e-9)
        # det(I + K_batch / lam) under the posterior at the batch's start, and its trace
        posterior = Dense(problem, "exact").full[np.ix_(batch, batch)] / problem.lam
        assert total.bound == pytest.approx(1 + posterior.trace(), rel=1e-9)
        det = np.linalg.det(np.eye(len(batch)) + posterior)
        assert product.bound == pytest.approx(det, rel=1e-6)


def test_float32_rules(tkwargs: dict[str, Any]) -> None:
    problem, dense, batch = choices(12, 10, lam=0.1)
    rule = GlobalLocalRule(problem.pool(**tkwargs), problem.lam, 1.0)
    assert not rule.add(batch[0], 0.0)
    expected = slow_bound(dense, batch[:1], "both")
    assert rule.bound == pytest.approx(expected, rel=2e-3)


def test_unknown_local_bound(double: dict[str, Any]) -> None:
    with pytest.raises(InputDataError, match="local_bound='other'; need one of"):
        GlobalLocalRule(make_problem(0).pool(**double), 0.1, 2.0, "other")  # type: ignore[arg-type]


def reference_pool(case: dict[str, Any], **tkwargs: Any) -> CandidatePool:
    """The state of a case of the authors' code: repeats folded, noise lam / n_i."""
    X = torch.tensor(case["candidates"], **tkwargs)
    row, inverse, count = torch.tensor(case["pulled_indices"]).unique(
        return_inverse=True, return_counts=True
    )
    y = torch.tensor(case["y"], dtype=torch.float64)
    count = count.double()
    total = torch.zeros(len(row), dtype=torch.float64).index_add(0, inverse, y)
    kernel = RBFKernel().to(**tkwargs).requires_grad_(False)
    kernel.lengthscale = case["lengthscale"]
    pool = CandidatePool(X)
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
        pool = reference_pool(case, **double)
        assert_close(pool.mean, np.array(case["means"]), rtol=1e-5, atol=1e-6)
        expected = lam * np.array(case["variances_over_lambda"])
        assert_close(pool.variance, expected, rtol=1e-5)
        if streamed:
            pool.max_memory = 0
            pool.update(pool.posterior)
            assert not pool.in_memory
        rules: list[tuple[TerminationRule, str, str]] = [
            (GlobalRule(pool, lam, threshold), "global", "global_ratio_bound_at_end"),
            (
                GlobalLocalRule(pool, lam, threshold, "paper"),
                "local",
                "local_ratio_bound_max_at_end",
            ),
        ]
        for rule, name, bound in rules:
            ucb, chosen = pool.ucb(case["beta_bkb_practical"] / lam**0.5, lam), []
            while not chosen or rule.add(chosen[-1], ucb.append(chosen[-1])):
                chosen.append(ucb.argmax())
            assert chosen == case[f"batch_{name}"], case["case"]
            assert rule.bound == pytest.approx(case[bound], rel=1e-5)
