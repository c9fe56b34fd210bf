"""Trust regions that go on from results kept elsewhere, and a note of the rest."""

import json
from dataclasses import replace

import pytest
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_sparse.strategies import Constraint, Objective, TrustRegionBBKB
from botorch_sparse.strategies.trust_region import trust_region

F64 = torch.float64
BOUNDS = torch.tensor([[0.0] * 4, [1.0] * 4], dtype=F64)


def valley(X: Tensor) -> Tensor:
    return -(X - 0.3).square().sum(-1) - 5 * (X[:, 1] - X[:, 0] ** 2).square()


def steep(X: Tensor) -> Tensor:
    return -(-60 * valley(X)).exp()


def noisy(X: Tensor) -> Tensor:
    g = torch.Generator().manual_seed(int(1e6 * X.sum()))
    return valley(X) + 0.3 * torch.randn(len(X), generator=g, dtype=F64)


def several(X: Tensor) -> Tensor:
    return torch.stack([valley(X), X.sum(-1), X[:, 0]], dim=-1)


OUTCOMES = [Objective("a"), Objective("b", minimize=True), Constraint("c", upper=0.6)]
CASES = {
    "valley": (valley, {}),
    "steep": (steep, {}),
    "noise": (noisy, {}),
    "regions": (valley, {"num_regions": 3, "num_initial": 5}),
    "mixed": (valley, {"discrete_dims": {3: (0, 0.3, 1)}, "cat_dims": {2: (0, 1)}}),
    "outcomes": (several, {"outcomes": OUTCOMES}),
}


def made(options: dict[str, object]) -> TrustRegionBBKB:
    return TrustRegionBBKB(bounds=BOUNDS, batch_size=5, seed=0, **options)


def restore(other: TrustRegionBBKB, one: TrustRegionBBKB, **options: Tensor) -> None:
    """Give a strategy what another one knows."""
    record, of_trial = one.record, one.surrogate.runs.of_trial
    values = record.outcomes.signed_rows(record.Y)
    other.restore(
        one.history.X,
        values if len(record.outcomes) > 1 else values[:, 0],
        trials=record.trial.tolist(),
        runs=of_trial[record.trial].tolist(),
        num_learned=len(record),
        note=json.loads(json.dumps(one.note())),
        **options,
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", CASES)
def test_it_stands_where_the_other_does(case):
    """At each batch of a run, and after its results: regions, fits and predictions."""
    f, options = CASES[case]
    one = made(options)
    for _ in range(9):
        batch = one.ask()
        of_trial, other = one.surrogate.runs.of_trial, made(options)
        restore(other, one, pending=batch.X)
        assert other.regions == one.regions
        assert torch.equal(other.X_pending, batch.X)
        assert one.runs_of(batch) == [int(of_trial[i]) for i in batch.ids]
        mine, theirs = one.predict(batch.X), other.predict(batch.X)
        for here, there in zip(mine or (), theirs or (), strict=True):
            assert torch.allclose(here, there, rtol=1e-6, atol=1e-8, equal_nan=True)
        Y = f(batch.X)
        one.tell(batch, Y)
        other.tell(batch.X, Y)
        if len(one.regions) == 1:  # pending points of several are the newest one's
            one.learn()
            other.learn()
            assert [replace(r, start=0) for r in other.regions] == [
                replace(r, start=0) for r in one.regions
            ]
    assert one.regions != made(options).regions


def test_failed_points_are_known_again():
    """Candidates keep away from them as before."""
    one, other = made({}), made({})
    one.run(valley, 20, progress=False)
    assert not len(one._without_result())
    batch = one.ask()
    one.fail(batch.ids[:3])
    one.tell(batch.X[3:], valley(batch.X[3:]))
    restore(other, one, failed=batch.X[:3])
    found = other.record.points(other._without_result())
    assert torch.equal(found.sort(0).values, batch.X[:3].sort(0).values)


def test_results_in_other_units_with_a_note():
    """As a program has them that standardizes all results anew for each batch."""
    one, predicted = made({}), []
    one.run(steep, 40, progress=False)
    one.learn()
    assert one.surrogate.priors[0].warp is not None
    for scale, offset in ((1.0, 0.0), (1e-9, 0.5)):
        other = made({})
        other.restore(
            one.history.X,
            offset + scale * one.history.values,
            runs=[0] * len(one.history),
            num_learned=len(one.history),
            note=one.note(),
        )
        mean, _ = other.predict(one.history.X)
        predicted.append((mean - offset) / scale)
    best = one.history.values.argsort(descending=True)[:20]
    same, scaled = (each[best] for each in predicted)
    assert torch.allclose(same, scaled, rtol=0.05)


def test_a_run_that_began_where_others_ended(monkeypatch, tmp_path):
    """Its part is noted and saved, and those of later runs are the same too."""
    monkeypatch.setattr(trust_region, "SMALLEST_LENGTH", 0.3)
    one = made({})
    while one.regions[0].part is None:
        batch = one.ask()
        one.tell(batch, valley(batch.X))
    batch = one.ask()
    other, saved = made({}), made({})
    restore(other, one, pending=batch.X)
    one.save(tmp_path / "state.pt")
    saved.resume(tmp_path / "state.pt")
    assert other.regions == saved.regions == one.regions
    run = one.regions[0].run
    while one.regions[0].run < run + 2:
        one.tell(batch, valley(batch.X))
        saved.tell(batch.X, valley(batch.X))
        batch = one.ask()
        assert torch.equal(saved.ask().X, batch.X)
    assert one.regions[0].part is not None
    assert saved.regions == one.regions


def test_ends_of_runs_outside_of_the_domain_make_no_part(monkeypatch):
    """As of a domain that is narrower now."""
    monkeypatch.setattr(trust_region, "SMALLEST_LENGTH", 0.3)
    one, narrow = made({}), BOUNDS.clone()
    while one.regions[0].run < 3:
        batch = one.ask()
        one.tell(batch, valley(batch.X))
    narrow[1, 0] = 0.15  # where the peak is not
    other = TrustRegionBBKB(bounds=narrow, batch_size=5, num_initial=5)
    restore(other, one)
    while other.regions[0].run < 5:
        batch = other.ask()
        assert bool(other.box.is_feasible(batch.X).all())
        other.tell(batch, valley(batch.X))
        assert 0 < other.regions[0].width <= 1


def test_results_that_came_after_the_note():
    """They are learned as one round, after the others."""
    one, other = made({}), made({})
    X = torch.rand(30, 4, generator=torch.Generator().manual_seed(0), dtype=F64)
    one.tell(X[:25], valley(X[:25]))
    note = one.note()
    one.tell(X[25:], valley(X[25:]))
    other.restore(X, valley(X), num_learned=25, note=note)
    other.learn()
    assert other.regions == one.regions


def test_reports_of_one_evaluation_count_once():
    """Outcomes that come in rows of their own, with the number of their trial."""
    X = torch.rand(6, 4, generator=torch.Generator().manual_seed(0), dtype=F64)
    Y, nothing = several(X), torch.nan
    parts = [Y.clone() for _ in range(3)]
    for column, part in enumerate(parts):
        part[:, [j for j in range(3) if j != column]] = nothing
    strategy = made({"outcomes": OUTCOMES})
    trials = [*range(6)] * 3
    strategy.restore(X.repeat(3, 1), torch.cat(parts), trials=trials, runs=[0] * 18)
    assert strategy.history.num_unique == 6
    assert strategy.record.num_evaluations == 6
    assert torch.equal(strategy.history.Y, Y)


def test_points_outside_are_no_middles():
    X = torch.tensor([[0.5] * 4, [2.0] * 4, [0.2] * 4], dtype=F64)
    strategy = made({"num_initial": 3})
    strategy.restore(X, torch.tensor([1.0, 9.0, 0.0], dtype=F64))
    strategy.learn()
    (region,) = strategy.regions
    assert region.center == 0


def test_what_is_refused():
    strategy, note = made({}), made({}).note()
    X, Y = torch.rand(2, 4, dtype=F64), torch.rand(2, dtype=F64)
    with pytest.raises(BotorchTensorDimensionError, match="k x 4"):
        strategy.restore(X[:, :3], Y)
    with pytest.raises(InputDataError, match="note of 4 features and 1 outcomes"):
        strategy.restore(X, Y, note=made({"outcomes": OUTCOMES}).note())
    middle = {**note, "regions": [{**note["regions"][0], "center": [0.1, 0.2]}]}
    with pytest.raises(InputDataError, match=r"note of \[2\] features"):
        strategy.restore(X, Y, note=middle)
    for part in ([[0.1] * 4, [0.1] * 4], [[0.1] * 4], [], [["a"] * 4] * 2, 0):
        other = {**note, "regions": [{**note["regions"][0], "part": part}]}
        with pytest.raises(InputDataError, match="that no strategy made"):
            strategy.restore(X, Y, note=other)
    for bad in (torch.nan, torch.inf):
        with pytest.raises(InputDataError, match="1 values of Y that are NaN or inf"):
            strategy.restore(X, torch.tensor([0.0, bad], dtype=F64))
        with pytest.raises(InputDataError, match="finite"):
            strategy.restore(X, Y, pending=torch.full_like(X, bad))
    with pytest.raises(InputDataError, match="as large as 1e\\+200"):
        strategy.restore(X, torch.tensor([0.0, 1e200], dtype=F64))
    for numbers in (["a", "b"], [0.2, 0.7], [0, torch.nan]):
        with pytest.raises(InputDataError, match="a whole number for each"):
            strategy.restore(X, Y, trials=numbers)
    strategy.restore(X, Y)
    with pytest.raises(InputDataError, match="need a new one"):
        strategy.restore(X, Y)
    assert len(strategy.history) == 2
