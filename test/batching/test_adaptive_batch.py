"""Adaptive batches against a dense greedy loop, on choices and on boxes."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from batch_oracles import (
    HOST,
    KINDS,
    Dense,
    OnePlate,
    assert_close,
    fewer,
    sparse_problem,
)
from botorch.acquisition import UpperConfidenceBound, qLogExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from host_copies import HostCopies
from refusals import refused

from botorch_sparse.acquisition import (
    BatchUpperConfidenceBound,
    ExactRatio,
    GlobalLocal,
    LocalRatioBound,
)
from botorch_sparse.acquisition.frozen import FrozenPosterior
from botorch_sparse.batching import (
    MAX_BOX_BATCH,
    Global,
    Local,
    Product,
    acquisition_batch,
    optimize_adaptive_batch,
)
from botorch_sparse.models import SparseSingleTaskGP

BETA = 4.0
RULES: dict[str, Any] = {"global": Global, "local": Local, "product": Product}
BOUNDS: dict[str, Any] = {
    "local": LocalRatioBound,
    "global-local": GlobalLocal,
    "exact": ExactRatio,
}
BOX = [[0.0, 0.0], [1.0, 1.0]]
FAST: dict[str, Any] = {
    "num_restarts": 1,
    "raw_samples": 8,
    "retry_on_optimization_warning": False,
    "options": {"seed": 0, "maxiter": 10, "n_burnin": 50},
}


def dense_batch(dense: Dense, noise: float, threshold: float, rule: str) -> list[int]:
    """Everything anew for every point."""
    batch: list[int] = []
    while True:
        d = np.full(len(batch), noise)
        sigma = np.sqrt(dense.variance_after(batch, d).clip(1e-12))
        batch.append(int((dense.mean + BETA**0.5 * sigma).argmax()))
        d = np.full(len(batch), noise)
        bound = {
            "global": lambda b=batch, d=d: dense.global_bound(b, d),
            "product": lambda b=batch, d=d: dense.product_bound(b, d),
            "exact": lambda b=batch, d=d: dense.exact_ratio(b, d).max(),
        }.get(rule, lambda b=batch, d=d: dense.local_bound(b, d, "both").max())
        if bound() > threshold or len(batch) == 40:
            return batch


def continuous(step: int = 2, **tkwargs: Any) -> SparseSingleTaskGP:
    """Every `step`-th point an inducing point; the exact GP for one."""
    g = torch.Generator().manual_seed(0)
    X = torch.rand(40, 2, generator=g, dtype=torch.float64).to(**tkwargs)
    Y = (5 * X).sin().sum(-1, keepdim=True)
    transform = Normalize(2)
    S = X[::step]
    model = SparseSingleTaskGP(X, Y, input_transform=transform, inducing_points=S)
    model.covar_module.lengthscale, model.likelihood.noise = 0.4, 0.3
    return model.eval()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("rule", [*RULES, "exact"])
@pytest.mark.parametrize("kind", KINDS)
def test_choices_are_the_dense_greedy_batch(
    kind: str, rule: str, double: dict[str, Any]
) -> None:
    sizes = []
    for seed in fewer(range(4), double):
        problem = sparse_problem(seed)
        dense, noise = Dense(problem, kind), float(problem.noise.mean())
        threshold = 1 + 2.5 * float(dense.variance.max()) / noise
        model = problem.model(kind, **double)
        ucb, bound = BatchUpperConfidenceBound(model, BETA), ExactRatio(model)
        end = (bound, threshold) if rule == "exact" else (RULES[rule](threshold),)
        batch = optimize_adaptive_batch(
            ucb, *end, choices=problem.X.to(**double), max_batch_size=40
        )
        expected = dense_batch(dense, noise, threshold, rule)
        assert batch.indices is not None
        assert batch.indices.tolist() == expected
        assert torch.equal(batch.X.cpu(), problem.X[expected])
        crossed = batch.bound > threshold
        assert batch.reason == ("ratio_threshold" if crossed else "max_batch_size")
        assert ucb.X_pending is None and not len(bound.X_batch)
        sizes.append(len(expected))
    assert max(sizes) > 2


# BoTorch's joint posterior of a choice and itself, pending, is singular.
@pytest.mark.filterwarnings("ignore:A not p.d.")
@pytest.mark.parametrize("acqf", ["batch", "log-ei"])
def test_unique_choices_are_those_of_ever_fewer(
    acqf: str, double: dict[str, Any]
) -> None:
    """What is chosen, and what equals it, is left out of the choices by hand."""
    model = continuous(**double)
    g = torch.Generator().manual_seed(3)
    num = len(fewer(range(12), double, 5))
    X = torch.rand(num, 2, generator=g, dtype=torch.float64).to(**double)
    X, pending = torch.cat([X, X[:4]]), X[:1] + 0.01

    def build() -> Any:
        if acqf == "batch":
            known: Any = BatchUpperConfidenceBound(model, BETA)
        else:
            sampler = SobolQMCNormalSampler(torch.Size([32]), seed=0)
            known = qLogExpectedImprovement(model, 0.0, sampler=sampler)
        known.set_X_pending(pending)
        return known

    batch = optimize_adaptive_batch(
        build(), GlobalLocal(model), 1e6, choices=X, unique=True
    )
    assert batch.reason == "choices" and batch.indices is not None
    left, known = torch.arange(len(X), device=X.device), build()
    for row in batch.indices:
        one = optimize_adaptive_batch(
            known, GlobalLocal(model), 1e6, choices=X[left], max_batch_size=1
        )
        assert torch.equal(one.X[0], X[row])  # of equal rows either will do
        left = left[(X[left] != X[row]).any(-1)]
        known.set_X_pending(torch.cat([known.X_pending, X[row : row + 1]]))
    assert len(batch.X) == num and not len(left)


def test_choices_are_embedded_once(
    double: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no pool fits and their features do, phi and w; else at every step."""
    model, weights = two_outputs(**double)
    X = torch.rand(30, 2, generator=torch.Generator().manual_seed(2)).to(**double)
    ucb = BatchUpperConfidenceBound(model, BETA, posterior_transform=weights)
    f = ucb.frozen.batch
    needed = 2 * X.element_size() * 2 * len(X) * (f.phi.shape[-1] + f.w.shape[-1])
    chosen, features = [], FrozenPosterior.features
    for memory, passes in ((needed, 1), (needed - 1, 12)):
        monkeypatch.setattr(acquisition_batch, "MAX_MEMORY", memory)
        rows = []

        def spy(self: FrozenPosterior, X: torch.Tensor, rows: list[int] = rows) -> Any:
            rows.append(len(X))
            return features(self, X)

        with patch.object(FrozenPosterior, "features", spy):
            batch = optimize_adaptive_batch(
                ucb, Local(1e9), choices=X, max_batch_size=12
            )
        assert rows.count(len(X)) == passes and batch.reason == "max_batch_size"
        chosen.append(batch.indices)
    assert torch.equal(*chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_pending_points_count_from_the_start(kind: str, double: dict[str, Any]) -> None:
    """A batch that goes on after a part of it is pending is the whole batch."""
    problem = sparse_problem(9)
    model, X = problem.model(kind, **double), problem.X.to(**double)
    ucb, rule = BatchUpperConfidenceBound(model, BETA), GlobalLocal(model)
    whole = optimize_adaptive_batch(ucb, rule, 1e9, choices=X, max_batch_size=8)
    bound = LocalRatioBound(model, whole.X).maximum(choices=X)
    whole = optimize_adaptive_batch(ucb, rule, bound * 0.999, choices=X)
    for part in (1, 2):
        ucb.set_X_pending(whole.X[:part])
        rest = optimize_adaptive_batch(ucb, rule, bound * 0.999, choices=X)
        assert torch.equal(torch.cat([whole.X[:part], rest.X]), whole.X)
        assert torch.equal(ucb.X_pending, whole.X[:part])


def test_any_acquisition_function(double: dict[str, Any]) -> None:
    """The rule decides the size of a batch of qLogEI, and its model may be another."""
    problem = sparse_problem(9)
    model, X = problem.model("exact", **double), problem.X.to(**double)
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
    acqf = qLogExpectedImprovement(model, best_f=0.0, sampler=sampler)
    rule = LocalRatioBound(problem.model("nystrom", **double))
    batch = optimize_adaptive_batch(acqf, rule, 3.0, choices=X, max_batch_size=5)
    assert batch.reason == "ratio_threshold" or len(batch.X) == 5
    assert acqf.X_pending is None
    assert len(batch.values) == len(batch.X)
    ucb = UpperConfidenceBound(model, BETA)
    with pytest.raises(UnsupportedError, match="Try BatchUpperConfidenceBound"):
        optimize_adaptive_batch(ucb, rule, 3.0, choices=X)


@pytest.mark.one_in(2)
@pytest.mark.slow_sim
def test_box(tkwargs: dict[str, Any]) -> None:
    """The rule holds before the last point, and not after it."""
    model = continuous(**tkwargs)
    box = torch.tensor(BOX, **tkwargs)
    ucb = BatchUpperConfidenceBound(model, BETA)
    for name in fewer(["global-local", "local"], tkwargs):
        rule = BOUNDS[name]
        batch = optimize_adaptive_batch(
            ucb, rule(model), 2.5, bounds=box, optimizer_options=FAST
        )
        assert batch.reason == "ratio_threshold" and batch.indices is None
        assert batch.bound > 2.5 and len(batch.X) > 1
        assert ((batch.X >= 0) & (batch.X <= 1)).all() and batch.X.dtype == box.dtype
        before = rule(model, batch.X[:-1])
        assert before.bound(2.5, bounds=box, optimizer_options=FAST) <= 2.5
        for s in range(len(batch.X)):  # values are the bounds at the time
            ucb.set_X_pending(batch.X[:s])
            value = ucb(batch.X[s : s + 1].unsqueeze(0))
            assert_close(value, batch.values[s : s + 1], rtol=1e-4)
        ucb.set_X_pending(None)


def test_seed_and_state(double: dict[str, Any]) -> None:
    """The same batch under a seed, whatever the global generator; all is restored."""
    model, box = continuous(**double), torch.tensor(BOX, **double)
    pending = torch.tensor([[0.2, 0.7]], **double)
    ucb, rule = BatchUpperConfidenceBound(model, BETA, pending), GlobalLocal(model)
    batches = []
    kwargs: dict[str, Any] = {"bounds": box, "optimizer_options": FAST}
    kwargs["max_batch_size"] = 2
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.random.get_rng_state()
        batches.append(optimize_adaptive_batch(ucb, rule, 9.0, **kwargs))
        assert torch.equal(state, torch.random.get_rng_state())
        assert torch.equal(ucb.X_pending, pending) and not len(rule.X_batch)
    assert torch.equal(batches[0].X, batches[1].X)
    target = "botorch_sparse.batching.acquisition_batch.optimize_acqf"
    with patch(target, wraps=optimize_acqf) as spy:
        optimize_adaptive_batch(ucb, rule, 9.0, **kwargs)
    seeds = [call.kwargs["options"]["seed"] for call in spy.call_args_list]
    assert seeds == [0, 1]  # other starts for each point
    with patch(target, side_effect=RuntimeError), pytest.raises(RuntimeError):
        optimize_adaptive_batch(ucb, rule, 2.5, bounds=box)
    assert torch.equal(ucb.X_pending, pending) and not len(rule.X_batch)


def test_constraints(double: dict[str, Any]) -> None:
    model, box = continuous(**double), torch.tensor(BOX, **double)
    ucb, rule = BatchUpperConfidenceBound(model, BETA), LocalRatioBound(model)
    index, ones = torch.tensor([0, 1], device=box.device), torch.ones(2, **double)

    def ball(x: torch.Tensor) -> torch.Tensor:
        return 0.09 - (x - 0.5).square().sum(-1)

    starts = torch.full((1, 1, 2), 0.5, **double)
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"inequality_constraints": [(index, -ones, -0.6)]}, lambda X: 0.6 - X.sum(-1)),
        (
            {"equality_constraints": [(index, ones, 0.8)]},
            lambda X: -(X.sum(-1) - 0.8).abs(),
        ),
        ({"fixed_features": {1: 0.3}}, lambda X: -(X[:, 1] - 0.3).abs()),
        (
            {
                "nonlinear_inequality_constraints": [(ball, True)],
                "batch_initial_conditions": starts,
                "num_restarts": 1,
                "raw_samples": None,
            },
            ball,
        ),
    ]
    for options, slack in cases:
        batch = optimize_adaptive_batch(
            ucb,
            rule,
            2.5,
            bounds=box,
            max_batch_size=2,
            optimizer_options=FAST | options,
        )
        assert (slack(batch.X) >= -1e-6).all()


def test_sizes(double: dict[str, Any]) -> None:
    problem = sparse_problem(7)
    model, X = problem.model("nystrom", **double), problem.X.to(**double)
    ucb, rule = BatchUpperConfidenceBound(model, BETA), LocalRatioBound(model)
    one = optimize_adaptive_batch(ucb, Global(1.0), choices=X)
    assert len(one.X) == 1 and one.reason == "ratio_threshold"
    on = optimize_adaptive_batch(ucb, Global(one.bound), choices=X)
    assert len(on.X) == 2 and on.bound > one.bound  # it was reached, not crossed
    least = optimize_adaptive_batch(ucb, Global(1.0), choices=X, min_batch_size=4)
    assert len(least.X) == 4 and least.reason == "ratio_threshold"
    most = optimize_adaptive_batch(ucb, Global(1e9), choices=X, max_batch_size=3)
    assert len(most.X) == 3 and most.reason == "max_batch_size"
    assert torch.equal(most.X[:1], one.X)
    box = torch.stack([torch.zeros_like(X[0]), torch.ones_like(X[0])])
    for match, kwargs in (
        ("need 1 <= min_batch_size", {"choices": X, "min_batch_size": 0}),
        ("need 1 <=", {"choices": X, "min_batch_size": 3, "max_batch_size": 2}),
        ("Give either choices or bounds", {}),
        ("points of a box never repeat", {"bounds": X[:2], "unique": True}),
        (r"choices of shape \(0, .\)", {"choices": X[:0]}),
        (r"choices of shape \(.*, 9\)", {"choices": X.new_ones(4, 9)}),
        ("1 rows that are not f", {"choices": torch.cat([X, X[:1] / 0 * 0])}),
        (
            "each search sets itself",
            {"bounds": box, "optimizer_options": {"q": 2}},
        ),
        (
            "each search sets itself",
            {"bounds": box, "optimizer_options": {"return_best_only": False}},
        ),
        ("need at least 1, such as 2", {"choices": X, "ratio_threshold": 0.9}),
    ):
        refused(match, optimize_adaptive_batch, ucb, rule, **kwargs)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("step", [1, 2], ids=["exact", "nystrom"])
def test_one_scalar_a_step_visits_the_host(step: int, double: dict[str, Any]) -> None:
    """The sum bound until it crosses, then the maximum of the local one."""
    model, axis = continuous(step, **double), torch.linspace(0, 1, 15, **double)
    choices = torch.cartesian_prod(axis, axis)
    model.likelihood.noise = 1.0
    ucb, sizes = BatchUpperConfidenceBound(model, 100.0), []
    for end in ((Global(3.0),), (GlobalLocal(model), 3.0), (Local(3.0),)):
        seen = []
        for limit in (1, 1000):
            with HostCopies() as copies:
                batch = optimize_adaptive_batch(
                    ucb, *end, choices=choices, max_batch_size=limit
                )
            seen.append((len(batch.X), copies.count))
        (_, at_first), (size, total) = seen
        sizes.append(size)
        # A batch's start asks for more, and so does the step where the sum crosses.
        # On the host a pool of features is NumPy's.
        if step == 1 or double != HOST:
            assert at_first < 20 and total - at_first <= size + 1, copies.places
    assert 1 < sizes[0] < sizes[1] == sizes[2]


def two_outputs(**tkwargs: Any) -> tuple[SingleTaskGP, ScalarizedPosteriorTransform]:
    X = torch.rand(30, 2, generator=torch.Generator().manual_seed(1)).to(**tkwargs)
    Y = torch.cat([X.sum(-1, keepdim=True).sin(), X[:, :1] ** 2], -1)
    weights = ScalarizedPosteriorTransform(torch.tensor([1.0, -0.5], **tkwargs))
    return SingleTaskGP(X, Y, input_transform=Normalize(2)).eval(), weights


def test_the_variances_of_a_batch_are_the_largest_of_the_outputs() -> None:
    model, weights = two_outputs(**HOST)
    model.likelihood.noise = torch.tensor([[0.1], [0.4]], **HOST)
    ucb = BatchUpperConfidenceBound(model, BETA, posterior_transform=weights)
    X = torch.rand(9, 2, generator=torch.Generator().manual_seed(2)).double()
    batch = acquisition_batch.ChoiceBatch(ucb, None, ucb.frozen, X)
    batch.append(3)
    ratio = (ucb.frozen.variance / ucb.frozen.noise)[:, 0]
    assert float(ratio.max()) > 1.01 * float(ratio.min())
    assert batch.variances == pytest.approx([batch.noise * float(ratio.max())])


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:Data .outcome observations. is not standardized")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["plain", "minimize", "minus", "log", "two"])
def test_each_point_maximizes_the_acquisition_function(
    case: str, kind: str, double: dict[str, Any]
) -> None:
    """Whatever is undone after it, with pending points that are no choices."""
    g = torch.Generator().manual_seed(3)
    X = torch.rand(30, 2, generator=g, dtype=torch.float64).to(**double)
    Y, to_scalar = 0.3 * (5 * X).sin().sum(-1, keepdim=True).exp(), None
    given: Any = Log() if case == "log" else Standardize(1)
    if case == "two":
        Y, given = torch.cat([Y, X[:, :1] ** 2], -1), Standardize(2)
    if case in ("two", "minus"):
        weights = torch.tensor([-1.0, 0.5], **double)[: Y.shape[-1]]
        to_scalar = ScalarizedPosteriorTransform(weights, offset=0.3)
    S = X if kind == "exact" else X[::3]
    model = SparseSingleTaskGP(X, Y, inducing_points=S, outcome_transform=given)
    model.likelihood.noise, model.mean_module.constant = 0.1, 0.7
    pending = X[:2] + 0.01
    ucb = BatchUpperConfidenceBound(
        model.eval(), BETA, pending, to_scalar, case != "minimize"
    )
    axis = torch.linspace(0, 1, 9, **double)
    choices = torch.cartesian_prod(axis, axis)
    batch = optimize_adaptive_batch(ucb, Local(1e9), choices=choices, max_batch_size=5)
    assert batch.indices is not None
    for s, index in enumerate(batch.indices.tolist()):
        ucb.set_X_pending(torch.cat([pending, batch.X[:s]]))
        values = ucb(choices.unsqueeze(-2)).detach()
        assert int(values.argmax()) == index
        assert float(batch.values[s]) == pytest.approx(float(values[index]), rel=1e-6)


# BoTorch's joint posterior of a choice and itself, pending, is singular.
@pytest.mark.filterwarnings("ignore:A not p.d.")
def test_a_rule_of_ones_own(double: dict[str, Any]) -> None:
    """On choices in a pool, on choices by any function, on a box."""
    model, axis = continuous(**double), torch.linspace(0, 1, 9, **double)
    ucb = BatchUpperConfidenceBound(model, BETA)
    choices = torch.cartesian_prod(axis, axis)
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
    qei = qLogExpectedImprovement(model, best_f=0.0, sampler=sampler)
    for acqf in (ucb, qei):
        batch = optimize_adaptive_batch(acqf, OnePlate(3), choices=choices)
        assert len(batch.X) == 3 and batch.reason == "ratio_threshold"
    box: dict[str, Any] = {"bounds": torch.tensor(BOX, **double)}
    box["optimizer_options"] = FAST
    assert len(optimize_adaptive_batch(ucb, OnePlate(2), **box).X) == 2
    ucb.set_X_pending(choices[:1])  # it is in the batch
    assert len(optimize_adaptive_batch(ucb, OnePlate(2), choices=choices).X) == 1
    with pytest.raises(InputDataError, match="which has its own; leave the first out"):
        optimize_adaptive_batch(ucb, OnePlate(2), 3.0, choices=choices)
    refused("need one of", optimize_adaptive_batch, ucb, 3.0, choices=choices)


def test_both_forms_of_a_rule(double: dict[str, Any]) -> None:
    """The rule, the bound for each `x`, and a subclass of it, which no pool serves."""

    class Renamed(LocalRatioBound):
        pass

    problem = sparse_problem(7)
    model, X = problem.model("nystrom", **double), problem.X.to(**double)
    ucb = BatchUpperConfidenceBound(model, BETA)
    threshold = 1 + 2.5 * float(ucb.frozen.add(X).variance.max() / ucb.frozen.lam)
    rule = optimize_adaptive_batch(ucb, Local(threshold), choices=X)
    assert len(rule.X) > 2
    for bound in (GlobalLocal(model), LocalRatioBound(model), Renamed(model)):
        batch = optimize_adaptive_batch(ucb, bound, threshold, choices=X)
        assert torch.equal(batch.X, rule.X)
        assert batch.bound == pytest.approx(rule.bound, rel=1e-7)


def test_a_batch_on_a_box_is_not_endless(double: dict[str, Any]) -> None:
    """It ends where a point has no variance to speak of, or at its default size."""
    model, bounds = continuous(**double), torch.tensor(BOX, **double)
    points = torch.rand(2 * MAX_BOX_BATCH, 1, 2).to(**double)
    found = iter(zip(points, points[:, 0, 0], strict=True))
    target = "botorch_sparse.batching.acquisition_batch.optimize_acqf"
    for noise, reason, size in (
        (1e9, "variance", 1),
        (1e3, "max_batch_size", len(fewer(range(MAX_BOX_BATCH), double, 3))),
    ):
        model.likelihood.noise = noise
        limit = None if size in (1, MAX_BOX_BATCH) else size
        ucb = BatchUpperConfidenceBound(model, BETA)
        with patch(target, side_effect=lambda *args, **kwargs: next(found)):
            batch = optimize_adaptive_batch(
                ucb, Local(), bounds=bounds, max_batch_size=limit
            )
        assert (batch.reason, len(batch.X)) == (reason, size)
        assert 1 < batch.bound < 2
