"""What the confidence bounds of S-BPE rest on, checked densely on random problems."""

import math
from typing import Any

import oracles
import pytest
import torch
from sbpe_problems import arguments, play, rkhs_function
from torch import Tensor

from botorch_sparse.inducing import RecursiveRLSSampler, accuracy_certificate
from botorch_sparse.posteriors.incremental_variance import IncrementalVariance
from botorch_sparse.strategies import SBPE
from botorch_sparse.strategies.sbpe import bounds as bounds_module
from botorch_sparse.strategies.sbpe import exploration as exploration_module
from botorch_sparse.strategies.sbpe import search_state as state_module
from botorch_sparse.strategies.sbpe.design import Design
from botorch_sparse.strategies.sbpe.exploration import BatchExploration
from botorch_sparse.strategies.surrogates.prior import Prior

KERNEL = "matern52"
DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def explore(
    refresh: Any, num: int, kernel: str = KERNEL, lam: float = 0.02, **tkwargs: Any
) -> tuple[BatchExploration, list[float]]:
    """A batch on a table, the bound after each point."""
    g = torch.Generator().manual_seed(1)
    X = torch.rand(300, 2, generator=g, dtype=torch.float64).to(**tkwargs)
    growing = IncrementalVariance(oracles.make_kernel(kernel, **tkwargs), X, lam)
    design = Design(refresh, delta=0.1, num_batches=3)
    exploration, bounds = BatchExploration(growing, design), []
    for _ in range(num):
        exploration.add(exploration.argmax(), g)
        bounds.append(exploration.bound)
        if len(bounds) % 5 == 0:
            assert true_r(exploration, kernel) <= exploration.bound + 1e-6
    return exploration, bounds


def true_r(exploration: BatchExploration, kernel: str) -> float:
    """The largest eigenvalue of the residual matrix, repeats as rows of their own."""
    X = exploration.posterior.X.cpu()
    k = oracles.DENSE[kernel]
    q = oracles.nystrom_kernel(k, X[exploration.posterior.inducing], rtol=1e-14)
    points = X[exploration.points]
    error = k(points, points) - q(points, points)
    return float(torch.linalg.eigvalsh(error)[-1]) / exploration.posterior.noise


@pytest.mark.parametrize("refresh", ["certificate", "every", "exact"])
@pytest.mark.parametrize("kernel", ["matern12", "matern52", "rbf"])
def test_the_bound_holds_at_every_step(refresh: str, kernel: str) -> None:
    num = 25 if refresh == "every" else 60
    exploration, bounds = explore(refresh, num, kernel, **DOUBLE)
    assert max(bounds) <= 1.0
    if refresh == "exact":
        assert max(bounds) < 1e-6
        assert exploration.posterior.num_inducing == len(set(exploration.points))
    if refresh == "certificate" and kernel == "rbf":
        assert exploration.posterior.num_inducing < len(set(exploration.points))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches are certified anew as often as large ones."""
    monkeypatch.setattr(exploration_module, "BLOCK_SIZE", 10)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_and_draws_are_used(double: dict[str, Any]) -> None:
    """With small blocks the whole batch is certified several times, and still holds."""
    exploration, bounds = explore("certificate", 120, lam=0.3, **double)
    assert exploration.num_draws >= 2 and max(bounds) <= 1.0
    assert exploration.base > 0
    # The trace alone would ask for more inducing points.
    trace = exploration.posterior.counts @ exploration.posterior.residual
    assert float(trace) > exploration.posterior.noise


@pytest.mark.usefixtures("small_blocks")
def test_noise_below_rounding_ends() -> None:
    """Where rounding alone exceeds the noise no inducing point helps: the bound stays
    above one, as it should, and the search for one ends."""
    g = torch.Generator().manual_seed(1)
    X = torch.rand(300, 2, generator=g, dtype=torch.float64)
    growing = IncrementalVariance(oracles.make_kernel("rbf", **DOUBLE), X, 3e-15)
    design = Design("certificate", delta=0.1, num_batches=3)
    exploration, appended = BatchExploration(growing, design), 0
    for _ in range(150):
        exploration.add(exploration.argmax(), g)
        appended = sum(kind == "append" for kind, _ in exploration.events)
        assert appended <= 2 * len(exploration.points)
    assert exploration.bound > 1.0


def test_draws_spend_half_of_delta() -> None:
    design = Design("certificate", delta=0.2, num_batches=5)
    spent = 5 * sum(design.draw_delta(j) for j in range(1, 200_000))
    assert 0.0999 < spent < 0.1
    assert design.draw_delta(3) == pytest.approx(3 * 0.2 / (math.pi**2 * 5 * 9))


@pytest.mark.parametrize("refresh", ["certificate", "every", "exact"])
def test_replay_to_the_bit(refresh: str) -> None:
    exploration, _ = explore(refresh, 20, **DOUBLE)
    other = BatchExploration(
        IncrementalVariance(
            exploration.posterior.covar_module, exploration.posterior.X, 0.02
        ),
        exploration.design,
    )
    other.replay(exploration.log())
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    for _ in range(10):
        for e, g in zip((exploration, other), generators, strict=True):
            e.add(e.argmax(), g)
        assert torch.equal(exploration.posterior.variance, other.posterior.variance)
        assert exploration.bound == other.bound
    assert list(exploration.events) == list(other.events)


def recorded(patch: pytest.MonkeyPatch, *modules: Any) -> list[float]:
    """The failure probabilities of all certificates from here on."""
    spent = list[float]()

    def certificate(*args: Any, delta: float, **kwargs: Any) -> Any:
        spent.append(delta)
        return accuracy_certificate(*args, delta=delta, **kwargs)

    for module in modules:
        patch.setattr(module, "accuracy_certificate", certificate)
    return spent


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("refresh", ["certificate", "every"])
def test_each_draw_of_a_batch_has_a_delta_of_its_own(
    refresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta_1, delta_2, ...: inducing points, certificates, and the last for bounds."""
    spent = recorded(monkeypatch, exploration_module, state_module)
    draw = RecursiveRLSSampler.__call__

    def sample(sampler: Any, *args: Any, **kwargs: Any) -> Tensor:
        spent.append(sampler.delta)
        return draw(sampler, *args, **kwargs)

    monkeypatch.setattr(RecursiveRLSSampler, "__call__", sample)
    options = arguments(num_evaluations=70, schedule=[70], refresh=refresh, lam=0.3)
    strategy = SBPE(**options | {"delta": 1e-3})
    play(strategy, rkhs_function(0))
    design = strategy.progress.design
    assert len(spent) > 2
    assert spent == [design.draw_delta(j + 1) for j in range(len(spent))]


def test_points_drawn_blindly_are_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until r is at most one, by draws of which the first is left to the bounds."""
    spent = recorded(monkeypatch, bounds_module)
    sampler = RecursiveRLSSampler(oversampling=1e-4)
    design = Design("certificate", 0.1, 3, exploration="random", sampler=sampler)
    g = torch.Generator().manual_seed(1)
    X = torch.rand(60, 2, generator=g, dtype=torch.float64)
    counts = torch.ones(60, dtype=torch.float64)
    prior = Prior(oracles.make_kernel(KERNEL, **DOUBLE), 0.02)
    S = bounds_module.certified_inducing_points(prior, X, counts, design, g)
    k = oracles.DENSE[KERNEL]
    E = (k(X, X) - oracles.nystrom_kernel(k, S)(X, X)) / 0.02
    assert 0.01 < float(torch.linalg.eigvalsh(E)[-1]) <= 1.0
    assert len(S) < 60 and len(spent) > 2
    assert spent == [design.draw_delta(j + 2) for j in range(len(spent))]
