"""What the benchmark of fits draws, measures and prints."""

import math
from argparse import Namespace

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.test_functions import Branin
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks import fits
from benchmarks.fits import Case, draw, execute, key_of, report
from benchmarks.store import Record, Store
from botorch_sparse.models.fit.plain_likelihood import MOST_POINTS, PlainLikelihood

CASE = Case("Branin", 40, 0.1, 3)
MADE = "commit {}, 2026-01-0{}, a processor, 1 threads, torch 2"


def test_rows_of_a_function() -> None:
    """Values are those of the function in units of what is fitted, with noise."""
    data = draw(CASE)
    assert data.X.shape == (40, 2) and data.test_X.shape == (1000, 2)
    low, high = Branin().bounds.double()
    f = Branin()(low + (high - low) * torch.cat([data.X, data.test_X]))
    f = (f - f[:40].mean()) / f[:40].std()
    error = torch.cat([data.Y, data.test_Y]).squeeze(-1) - f
    assert error.std().item() == pytest.approx(0.1, rel=0.1)
    assert error.mean().abs().item() < 0.02
    again, other = draw(CASE), draw(CASE._replace(seed=4))
    assert torch.equal(again.Y, data.Y) and not torch.equal(other.Y, data.Y)


def test_a_run_measures_new_observations() -> None:
    """By the normal density of an exact GP that is fitted and asked here."""
    found = execute(CASE, "exact")
    data = draw(CASE)
    model = SingleTaskGP(data.X, data.Y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    with torch.no_grad():
        latent = model.posterior(data.test_X)
    variance = (
        latent.variance + model.likelihood.noise * model.outcome_transform.stdvs**2
    )
    normal = torch.distributions.Normal(latent.mean, variance.sqrt())
    nlpd = -normal.log_prob(data.test_Y).mean().item()
    assert found["nlpd"] == pytest.approx(nlpd, abs=2e-5)
    error = (data.test_Y - latent.mean).square().mean().item()
    assert found["rmse"] == pytest.approx(math.sqrt(error), abs=2e-5)
    covered = (normal.cdf(data.test_Y) - 0.5).abs() <= 0.475
    with torch.no_grad():
        mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
        objective = mll(model(*model.train_inputs), model.train_targets).item()
    assert found["loss"] == pytest.approx(-objective, abs=2e-5)
    assert found["coverage"] == pytest.approx(covered.double().mean().item(), abs=2e-3)


def run(nlpd: float, seconds: float, commit: str, day: int) -> Record:
    return {"nlpd": nlpd, "seconds": seconds, "made": MADE.format(commit, day)}


def test_the_table() -> None:
    """Three cases, of which two were timed on the same day, and one is far.

    Objectives of two are known: one optimum is better than the exact fit's, one worse.
    """
    store = Store(None)
    runs = {
        1: (run(0.10, 2.0, "a", 1), run(0.09, 8.0, "b", 1)),
        2: (run(0.50, 3.0, "a", 1), run(0.40, 6.0, "b", 1)),
        0: (run(0.20, 1.0, "a", 1), run(0.20, 9.0, "a", 2)),
    }
    for seed, pair in runs.items():
        for method, record in zip(("sparse", "exact"), pair, strict=True):
            store.records[key_of(CASE._replace(seed=seed), method)] = record
    for seed, losses in {1: (0.70, 0.68), 2: (0.90, 0.91)}.items():
        for method, loss in zip(("sparse", "exact"), losses, strict=True):
            store.records[key_of(CASE._replace(seed=seed), method)]["loss"] = loss
    args = Namespace(
        names=["Branin"], sizes=[40], noises=[0.1], seeds=3, methods=["sparse"]
    )
    _, _, row, _, *far = report(store, args).splitlines()
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        *("**sparse**", "40", "3", "+0.0100", "67%", "67%", "+0.100", "1 of 2"),
        *("2", "7", "2.5", "3", "2", "0"),
    ]
    (line,) = far
    assert "Branin, n = 40, noise 0.1, seed 2: 0.500, exact 0.400" in line
    assert line.endswith("(objectives -0.900 and -0.910)")


def test_the_exact_fit_by_formulas_stands_in_but_for_seconds() -> None:
    store = Store(None)
    key, (ours, exact) = key_of(CASE, "closed-form"), (run(0.1, 2.0, "a", 1),) * 2
    store.records = {key_of(CASE, "sparse"): ours, key: exact | {"nlpd": 0.05}}
    args = Namespace(
        names=["Branin"], sizes=[40], noises=[0.1], seeds=4, methods=list(fits.MODELS)
    )
    rows = report(store, args).splitlines()
    cells = [cell.strip() for cell in rows[2].split("|")[1:-1]]
    assert cells[:4] == ["**sparse**", "40", "1", "+0.0500"] and cells[8] == "0"
    assert not any("closed-form" in row for row in rows)
    store.records[key]["loss"] = store.records[key_of(CASE, "sparse")]["loss"] = 1.0
    store.records[key_of(CASE, "exact")] = run(0.05, 6.0, "a", 1)
    _, _, ours_row, of_both, *_ = report(store, args).splitlines()
    assert "| 0 of 1 | 1 | 6 | 2 | 3 | 3 | 0 |" in ours_row
    assert of_both.startswith("| **closed-form** | 40 | 1 | +0.0000")


def test_by_formulas_it_is_the_exact_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more points than fits of ours take them for."""
    calls, original = list[int](), PlainLikelihood.loss_and_gradient

    def counted(self: PlainLikelihood) -> object:
        calls.append(len(self.Y))
        return original(self)

    monkeypatch.setattr(PlainLikelihood, "loss_and_gradient", counted)
    case = CASE._replace(n=MOST_POINTS + 1)
    exact = execute(case, "exact")
    assert not calls
    closed = execute(case, "closed-form")
    assert set(calls) == {case.n}
    assert closed["loss"] == pytest.approx(exact["loss"], abs=1e-4)
    assert closed["nlpd"] == pytest.approx(exact["nlpd"], abs=1e-3)


def test_names_are_known() -> None:
    """Twenty functions, ten of them at two dimensions, and ten targets of tables."""
    assert len({name for name, _ in fits.FUNCTIONS.values()}) == 20
    assert (len(fits.FUNCTIONS), len(fits.TARGETS)) == (30, 10)
