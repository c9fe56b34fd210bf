"""What strategies on tables keep on the host, and bring to an accelerator at once."""

from typing import Any

import pytest
import simulated_device
import torch
from gpytorch.means import Mean, ZeroMean
from strategy_table import make_candidates, make_kernel, objective
from torch import Tensor

from botorch_sparse.pools import embedding
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import (
    condition_with_constant_mean,
    posterior_of_chosen,
)
from botorch_sparse.posteriors.incremental_variance import IncrementalVariance
from botorch_sparse.posteriors.pseudo_data import pseudo_data
from botorch_sparse.strategies import BBKB
from botorch_sparse.strategies.data.domain import domain_of
from botorch_sparse.strategies.data.run_record import (
    FoldedEvaluations,
    RunRecord,
    evaluations_at,
)

needs_simulation = pytest.mark.skipif(
    not simulated_device.IS_AVAILABLE, reason="needs torch >= 2.9"
)


def test_folded_values_and_points_beside_the_table(double: dict[str, Any]) -> None:
    X = make_candidates(5, **double)
    history = RunRecord(domain_of(X, {}))
    beside = history.add_point(X[0] + 1)
    values = FoldedEvaluations.of(
        torch.tensor([3, beside, 3, 1]), torch.tensor([1.0, 2.0, 4.0, 8.0]).double()
    )
    assert values.point.tolist() == [3, beside, 1] and len(values) == 3
    data = evaluations_at(history, values, torch.tensor([2, 0]))
    assert data.Y.tolist() == [2.5, 2.0, 8.0] and data.counts.tolist() == [2, 1, 1]
    assert data.number.tolist() == [3, beside, 1] and data.chosen.tolist() == [2, 0]
    expected = torch.stack([X[3], X[0] + 1, X[1]])
    assert data.X.tolist() == expected.tolist() and data.X.device == X.device
    assert history.points(torch.tensor([beside])).tolist() == [expected[1].tolist()]


@pytest.mark.parametrize("mean", [ZeroMean(), None], ids=["zero", "constant"])
@pytest.mark.parametrize("num_copies", [0, 3], ids=["regular", "singular"])
def test_posterior_of_chosen(
    num_copies: int, mean: Mean | None, double: dict[str, Any]
) -> None:
    """Points that others explain are left out, as by `from_data`."""
    X = make_candidates(40, **double)
    X = torch.cat([X, X[:num_copies] + 1e-10])
    kernel, Y, noise = make_kernel(**double), objective(X), X.new_full((len(X),), 0.1)
    chosen = torch.arange(0, len(X), 2, device=X.device)
    chosen = torch.cat([chosen, chosen.new_tensor([41])]) if num_copies else chosen
    k_diag = torch.ones_like(chosen, dtype=X.dtype)
    posterior = posterior_of_chosen(
        kernel, X, Y, noise, chosen, k_diag, mean_module=mean, chunk_size=2048
    )
    prior = NystromPosterior.prior(kernel, X[chosen])
    expected = (
        prior.condition(X, Y, noise)
        if mean is not None
        else condition_with_constant_mean(prior, X, Y, noise)
    )
    Z = make_candidates(60, **double)[40:]
    for ours, theirs in zip(posterior.moments(Z), expected.moments(Z), strict=True):
        # B has eigenvalues from 1 to n / noise = 430, and L^-1 amplifies by at most
        # 1 / sqrt(1e-14): sums of rounding errors stay below eps * 430 * 1e7.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert posterior.num_inducing == expected.num_inducing


def test_a_factor_that_nobody_waits_for(double: dict[str, Any]) -> None:
    """NaN where jitter is needed: without data, `I - B^-1` is zero."""
    X, kernel = make_candidates(20, **double), make_kernel(**double)
    prior = NystromPosterior.prior(kernel, X[:5])
    assert bool(pseudo_data(prior, is_awaited=False)[0].tril().isnan().any())
    posterior = prior.condition(X, objective(X), X.new_full((20,), 0.1))
    factors = [pseudo_data(posterior, is_awaited=b)[0] for b in (False, True)]
    assert factors[0].tolist() == factors[1].tolist()


@needs_simulation
def test_a_pool_that_failed_for_rounding_is_embedded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Choices are those of a strategy whose first try did."""

    def run() -> list[int]:
        tkwargs = {"dtype": torch.float64, "device": simulated_device.DEVICE}
        X, kernel = make_candidates(60, **tkwargs), make_kernel(**tkwargs)
        strategy = BBKB(X, kernel, lam=1e-2)
        return strategy.run(objective, 12, progress=False).indices.tolist()

    def failing(
        posterior: NystromPosterior, *, is_awaited: bool = True
    ) -> tuple[Tensor, Tensor]:
        factor, z = pseudo_data(posterior)
        return (factor, z) if is_awaited else (factor * torch.nan, z * torch.nan)

    with simulated_device.accelerator():
        expected = run()
        monkeypatch.setattr(embedding, "pseudo_data", failing)
        assert run() == expected


def test_what_is_known_of_a_row_is_not_asked_again(double: dict[str, Any]) -> None:
    X, kernel = make_candidates(20, **double), make_kernel(**double)
    growing = IncrementalVariance(kernel, X, 0.1)
    rows = torch.arange(20, device=X.device)
    assert bool((growing.unexplained(rows) > 0).all())
    assert not growing.add_inducing(3, is_unexplained=False)
    assert growing.residual[3].item() == 0 and growing.num_inducing == 0
    assert growing.add_inducing(4, is_unexplained=True) and growing.inducing == [4]
    assert growing.unexplained(rows)[4].item() <= 0
