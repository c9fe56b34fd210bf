"""Every strategy on every device: the choices of the CPU, and data where they were."""

from functools import cache, partial
from typing import Any

import box_table
import pytest
import sbpe_problems
import strategy_table
import torch
from finish_runs import OBJECTIVES, TABLES
from strategy_cases import OUTCOMES, three_outcomes
from torch import Tensor

from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies import Strategy

OUTSIDE = torch.tensor([[1.5, -0.5], [0.1, 2.0], [1.5, -0.5]], dtype=torch.float64)
CPU = torch.device("cpu")
HARDWARE = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
# Sample paths rest on the order of the pivots, which an accelerator does without.
TABLE_CASES = [("table", name) for name in [*strategy_table.GP, "random"]]
TABLE_CASES += [("sbpe", name) for name in ("table", "every", "exact", "random")]
BOX_CASES = [("box", name) for name in box_table.KNOWN]
BOX_CASES += [("box", name) for name in ("bbkb-inferred", "gssbo", "gssbo-known")]
BOX_CASES += [("box", "rssbo"), ("box", "random"), ("box", "regions")]
BOX_CASES += [("sbpe", "box"), ("sbpe", "box-random")]


def on_table(domain: str, name: str, **tkwargs: Any) -> Strategy:
    """A strategy whose candidates and kernel have a dtype and a device."""
    problems: Any = {"table": strategy_table, "sbpe": sbpe_problems}[domain]
    return TABLES[domain][name](
        candidates=strategy_table.make_candidates(40, **tkwargs),
        covar_module=problems.make_kernel(**tkwargs),
    )


def half_way(strategy: Strategy, f: Any) -> Strategy:
    """Points beside the table, a batch told in parts, and the rest of it pending."""
    outside = OUTSIDE.to(strategy.candidates)
    strategy.tell(outside, f(outside))
    strategy.run(f, 10, progress=False)
    batch = strategy.ask(3)
    strategy.tell(batch.X[:1], f(batch.X[:1]).cpu())
    return strategy


@cache
def choices_on_cpu(domain: str, name: str, dtype: torch.dtype) -> Tensor:
    """What a strategy chooses without any interruption."""
    f = OBJECTIVES[domain]
    strategy = half_way(on_table(domain, name, dtype=dtype, device=CPU), f)
    return strategy.run(f, 20, progress=False).indices


@pytest.mark.one_in(5)
@pytest.mark.parametrize("domain, name", TABLE_CASES)
def test_tables(domain: str, name: str, tkwargs: dict[str, Any]) -> None:
    """A run that was interrupted on the device chooses what the CPU chooses."""
    f = OBJECTIVES[domain]
    strategy = on_table(domain, name, **tkwargs)
    strategy.load_state_dict(
        half_way(on_table(domain, name, **tkwargs), f).state_dict()
    )
    history = strategy.run(f, 20, progress=False)
    expected = choices_on_cpu(domain, name, tkwargs["dtype"])
    assert history.indices.tolist() == expected.tolist()
    for tensor in (history.X, history.Y, strategy.X_pending):
        assert tensor.dtype == tkwargs["dtype"]
        assert tensor.device == strategy.candidates.device
    known = history.indices >= 0
    chosen = strategy.candidates[history.indices[known].to(tkwargs["device"])]
    assert bool((history.X.cpu()[known] == chosen.cpu()).all())
    if domain == "sbpe":
        assert strategy.recommend().X.device == strategy.candidates.device
    elif name in strategy_table.GP:
        assert strategy.confidence_gap() < float("inf")


def inferred(name: str, **tkwargs: Any) -> Strategy:
    """A strategy that has fitted its hyperparameters, after points of its own."""
    strategy = strategy_table.INFERRED[name](
        candidates=strategy_table.make_candidates(40, **tkwargs),
        refit=RefitSchedule(every=12),
        seed=2,
    )
    strategy.run(strategy_table.objective, 12, progress=False)
    return strategy


@cache
def inferred_on_cpu(name: str) -> Strategy:
    """The same on the CPU."""
    return inferred(name, dtype=torch.float64, device=CPU)


@pytest.mark.parametrize("name", ["bbkb", "gpucb"])
def test_inferred_tables(name: str, double: dict[str, Any]) -> None:
    """Kernel, noise and scales are where the table is; resume is bit-identical."""
    if double["device"].type == "cpu":
        strategy = inferred_on_cpu(name)
    else:
        strategy = inferred(name, **double)
    expected = inferred_on_cpu(name)
    assert torch.equal(strategy.history.indices, expected.history.indices)
    X = strategy.candidates
    mean, sd = strategy.predict(X)
    assert mean.device == sd.device == X.device
    for ours, theirs in zip((mean, sd), expected.predict(X.cpu()), strict=True):
        # two fits end at 5e-4 of a parameter's deviation, and ten times that
        torch.testing.assert_close(ours.cpu(), theirs, rtol=0.02, atol=0.005)
    other = strategy_table.INFERRED[name](
        candidates=X, refit=RefitSchedule(every=12), seed=9
    )
    other.load_state_dict(strategy.state_dict())
    assert torch.equal(other.predict(X)[0], mean)
    assert torch.equal(other.ask(2).X, strategy.ask(2).X)


SEVERAL = [("table", name) for name in ("thompson", "improvement", "bbkb-global")]
SEVERAL += [("table", "gpucb"), ("table", "random"), ("box", "thompson")]
SEVERAL += [("box", "bbkb-global"), ("box", "regions")]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("domain, name", SEVERAL)
def test_several_outcomes(domain: str, name: str, double: dict[str, Any]) -> None:
    """Batches, the front and predictions are where the candidates are."""
    candidates = strategy_table.make_candidates(40, **double)
    bounds = box_table.BOUNDS.to(**double)
    given = {"candidates": candidates} if domain == "table" else {"bounds": bounds}
    if name not in ("random", "regions"):
        given["covar_module"] = box_table.make_kernel().to(double["device"])
    strategy = TABLES[domain][name](**given, outcomes=OUTCOMES)
    f = partial(three_outcomes, OBJECTIVES[domain])
    for _ in range(4):
        batch = strategy.ask(4)
        assert batch.X.device == bounds.device
        strategy.tell(batch, f(batch.X))
    front = strategy.history.pareto()
    assert len(front.X) > 0 and strategy.history.hypervolume([-9.0, 9.0]) > 0
    found = strategy.predict(batch.X) or ()
    for tensor in (front.X, strategy.history.Y, *found):
        assert tensor.device == bounds.device


def on_box(domain: str, name: str, seed: int = 0, **tkwargs: Any) -> Strategy:
    """A strategy whose bounds have a dtype and a device."""
    change: dict[str, Any] = {"bounds": box_table.BOUNDS.to(**tkwargs)}
    if domain == "sbpe":
        change["covar_module"] = sbpe_problems.make_kernel(**tkwargs)
    elif name in (*box_table.KNOWN, "gssbo-known"):
        change["covar_module"] = box_table.make_kernel().to(tkwargs["device"])
    elif name != "random":
        change["refit"] = RefitSchedule(every=10)  # one fit takes most of the time
    return TABLES[domain][name](seed=seed, **change)


def told_asked_resumed(domain: str, name: str, **tkwargs: Any) -> Strategy:
    """Six points, part of a batch, a new strategy that goes on, and one more point."""
    first, f = on_box(domain, name, **tkwargs), box_table.objective
    X = first.box.sample(6, 0)
    first.tell(X, f(X))
    batch = first.ask(2)
    first.tell(batch.X[:1], f(batch.X[:1]).cpu())
    resumed = on_box(domain, name, seed=9, **tkwargs)
    resumed.load_state_dict(first.state_dict())
    resumed.ask(1)
    return resumed


@cache
def on_cpu(domain: str, name: str) -> Strategy:
    """The same on the CPU."""
    return told_asked_resumed(domain, name, dtype=torch.float64, device=CPU)


def assert_data_stay(strategy: Strategy, tkwargs: dict[str, Any]) -> None:
    """Points and feedback are in the box, with its dtype and device."""
    for tensor in (strategy.history.X, strategy.history.Y, strategy.X_pending):
        assert tensor.dtype == tkwargs["dtype"]
        assert tensor.device == strategy.box.bounds.device
    X = torch.cat([strategy.history.X, strategy.X_pending])
    low, high = strategy.box.bounds
    assert bool(((X >= low) & (X <= high)).all())
    assert strategy.history.num_extra == len(X) == 7 + len(strategy.pending)
    model = getattr(strategy, "model", None)
    if model is not None:  # it learns in float64
        train_X = getattr(model, "all_train_X", model.train_inputs[0])
        assert train_X.dtype == torch.float64 and train_X.device == X.device


@pytest.mark.one_in(5)
@pytest.mark.parametrize("domain, name", BOX_CASES)
def test_boxes(domain: str, name: str, double: dict[str, Any]) -> None:
    """Points are close to those that the same steps lead to on the CPU."""
    if double["device"].type == "cpu":
        strategy = on_cpu(domain, name)
    else:
        strategy = told_asked_resumed(domain, name, **double)
    assert_data_stay(strategy, double)
    # L-BFGS ends at a relative tolerance of 2e-9 in the value, whose square root
    # bounds what is left in a point: 5e-5, and 20 times that after two searches.
    expected = on_cpu(domain, name)
    for X, Z in (
        (strategy.history.X, expected.history.X),
        (strategy.X_pending, expected.X_pending),
    ):
        torch.testing.assert_close(X.cpu(), Z, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    "domain, name",
    [("box", "bbkb-inferred"), ("box", "gssbo"), ("box", "random"), ("sbpe", "box")],
)
@pytest.mark.parametrize("device", HARDWARE, indirect=True)
def test_float32_boxes(domain: str, name: str, device: torch.device) -> None:
    single = {"dtype": torch.float32, "device": device}
    assert_data_stay(told_asked_resumed(domain, name, **single), single)
