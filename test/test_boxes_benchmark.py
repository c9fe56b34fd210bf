"""Peers of the benchmark on boxes."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import box_methods, boxes
from benchmarks.box_methods import METHODS, Run
from benchmarks.box_problems import (
    BinaryAckley,
    LowAutocorrelation,
    Moved,
    Noisy,
    PestControl,
    Rover,
    zakharov,
)
from benchmarks.spherical_linear import SphericalLinearKernel, spherical_linear_gp

F64 = torch.float64
BOUNDS = torch.tensor([[-1.0, 0.0], [3.0, 2.0]], dtype=F64)


def bowl(X: Tensor) -> Tensor:
    return (X - torch.tensor([0.5, 0.6]).to(X)).square().sum(-1)


def test_the_kernel_is_that_of_the_paper() -> None:
    """Products on the unit sphere, onto which the pole projects a plane."""
    kernel = SphericalLinearKernel(3).double()
    kernel.lengthscale = torch.tensor([0.4, 1.0, 2.5], dtype=F64)
    kernel.initialize(raw_linear=torch.tensor([0.7]), raw_radius=torch.tensor([-0.4]))
    linear, part = (1 / (1 + math.exp(-raw)) for raw in (0.7, -0.4))
    X = np.random.default_rng(0).uniform(size=(7, 3))
    scale = np.array([0.4, 1.0, 2.5])
    corner = sum((0.5 / each) ** 2 for each in scale)
    points = []
    for x in X:
        z = (x - 0.5) / scale / math.sqrt(part * corner)
        # The line from the north pole through (z, 0) meets the sphere here.
        step = 2 / (1 + z @ z)
        points.append([*(step * z), 1 - step])
    on_sphere = np.array(points)
    assert np.allclose((on_sphere**2).sum(-1), 1.0)
    expected = (1 - linear) + linear * on_sphere @ on_sphere.T
    inputs = torch.from_numpy(X)
    with torch.no_grad():
        found = kernel(inputs).to_dense()
        assert np.allclose(found, expected)
        assert np.allclose(kernel(inputs[:2], inputs).to_dense(), expected[:2])
        assert np.allclose(kernel(inputs, diag=True), expected.diagonal())


def test_its_model_begins_at_the_modes_of_its_priors() -> None:
    X = torch.rand(9, 4, dtype=F64)
    model = spherical_linear_gp(X, X[:, :1])
    lengthscale = model.covar_module.lengthscale
    assert torch.allclose(lengthscale, torch.tensor(math.exp(2**0.5 - 3)).to(X))
    assert float(model.likelihood.noise.detach()) == pytest.approx(math.exp(-5))


# Samples of points by a kernel of rank four.
@pytest.mark.filterwarnings("ignore:A not p.d., added jitter")
@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.OptimizationWarning")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param("log-ei", marks=pytest.mark.slow),
        pytest.param("log-ei-sparse", marks=pytest.mark.slow),
        "log-ei-spherical",
    ],
)
def test_expected_improvement(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of four, in the box; a point of one is near the minimum."""
    monkeypatch.setattr(box_methods, "BATCH_SIZE", 4)
    asked = list[Tensor]()

    def f(X: Tensor) -> Tensor:
        asked.append(X)
        return bowl(X)

    run = Run(f, BOUNDS, total=15, seed=0)
    METHODS[method](run)
    assert [len(X) for X in asked] == [4, 4, 4, 3]
    assert len(run.values) == len(run.seconds) == 15
    X = torch.cat(asked)
    assert bool(((X >= BOUNDS[0]) & (X <= BOUNDS[1])).all())
    assert min(run.values) < 0.01  # of random points one run in twenty


def test_nearest_neighbours() -> None:
    """Neither first points nor evaluations are a number of whole batches."""
    pytest.importorskip("enn")
    bounds = BOUNDS.repeat(1, 8)
    run = Run(lambda X: X.square().sum(-1), bounds, total=210, seed=0)
    METHODS["turbo-enn"](run)
    assert len(run.values) == 220
    assert max(run.values[-20:]) < min(run.values[:40])


def test_share_of_a_peers_time() -> None:
    """Medians over the seeds that came so far; of two functions, one is too slow."""
    records = {
        boxes.key_of(name, method, seed, 10_000): {
            "at": [20, 500],
            "seconds": [1.0, seconds + seed],
        }
        for name, ours in (("levy20", 9.0), ("ackley20", 19.0))
        for method, seconds in (("trust-region", ours), ("turbo-1", 79.0))
        for seed in range(3)
    }
    store = SimpleNamespace(records=records)
    found = boxes.time_beside(store, 500, 3)  # type: ignore[arg-type]
    assert "CPU time 0.12 to 0.25 of turbo-1's on 2" in found
    assert found.endswith("MORE than a fifth on ackley20 0.25")
    assert boxes.time_beside(store, 1000, 3) == ""  # type: ignore[arg-type]


def test_medians_beside_the_best_peer() -> None:
    """Medians of the runs that came so far, and how many these are."""
    records = {
        boxes.key_of(name, method, seed, 10_000): {
            "at": [20, end],
            "best": [9.0, value + seed],
            "seconds": [1.0, 2.0],
        }
        for name, mine in (("levy20", 1.0), ("ackley20", 4.0))
        for method, value, ends in (
            ("trust-region", mine, (500, 500, 500)),
            ("cma-es", 3.0, (500, 400, 400)),
            ("tpe", 8.0, (500, 500, 400)),
        )
        for seed, end in enumerate(ends)
    }
    store = SimpleNamespace(records=records)
    found = boxes.verdict(store, 500, 3)  # type: ignore[arg-type]
    assert found.startswith("- at 500: no worse on 1 of 2; WORSE on ackley20")
    assert "trust-region 3 to 3, cma-es 1 to 1, turbo-1 0 to 0, tpe 2 to 2" in found
    assert boxes.verdict(store, 1000, 3).endswith("0 of 0")  # type: ignore[arg-type]


def test_a_function_in_other_coordinates() -> None:
    moved = Moved(zakharov, 5)
    assert float(moved(moved.center[None])) == pytest.approx(0.0, abs=1e-20)
    direction = torch.randn(5, generator=torch.Generator().manual_seed(0)).double()
    step = moved.radius * moved.Q @ direction
    expected = zakharov(step[None])
    torch.testing.assert_close(moved((moved.center + direction)[None]), expected)
    torch.testing.assert_close(moved.Q @ moved.Q.mT, torch.eye(5).double())


def test_merit_factor_of_a_barker_sequence() -> None:
    """Of the thirteen signs all autocorrelations are 0 or 1: 169 / (2 * 6)."""
    labs = LowAutocorrelation()
    labs.num = 13
    barker = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1]])
    assert float(labs(barker)) == pytest.approx(-169 / 12)


def test_the_same_plan_costs_the_same() -> None:
    """Without pesticides only infested stages cost something."""
    pests = PestControl()
    infested = float(pests(torch.zeros(1, 25)))
    assert 1.0 < infested <= 25.0
    assert float(pests(torch.zeros(1, 25))) == infested


def test_prices_of_pesticides() -> None:
    """With their discounts, where no stage counts as infested."""
    pests = PestControl()
    pests.tolerated = 2.0
    plans = torch.zeros(3, 25)
    plans[1], plans[2, 7] = 1.0, 2.0
    expected = torch.tensor([0.0, 25 * 0.8, 0.8 * (1 - 0.3 / 25)]).double()
    torch.testing.assert_close(pests(plans), expected, rtol=1e-6, atol=0.0)


def test_minimum_with_bits() -> None:
    ackley = BinaryAckley()
    best = torch.cat([ackley.bits, ackley.middle])
    assert float(ackley(best[None])) == pytest.approx(0.0, abs=1e-12)
    best[0] = 1 - best[0]
    assert float(ackley(best[None])) > 0.5


def test_costs_of_straight_paths() -> None:
    """None, which ends far from the goal; a free one; one through an obstacle."""
    rover = Rover()
    assert float(rover(rover.start.repeat(30)[None])) == pytest.approx(10 * 1.8 - 5)
    torch.testing.assert_close(rover.basis.sum(-1), torch.ones(1000).double())
    share = torch.linspace(0, 1, 30, dtype=F64).unsqueeze(-1)
    straight = (rover.start + share * (rover.goal - rover.start)).reshape(1, 60)
    rover.low = torch.tensor([[2.0, 2.0]], dtype=F64)
    length = 0.9 * math.sqrt(2)
    assert float(rover(straight)) == pytest.approx(0.05 * length - 5)
    rover.low = torch.tensor([[0.45, 0.45]], dtype=F64)
    through = 20 * 0.1 * math.sqrt(2)
    found = float(rover(straight)) - (0.05 * length - 5)
    assert found == pytest.approx(through, rel=0.03)  # in steps of a thousandth


def test_the_middle_is_evaluated_again() -> None:
    """From the first batch with a middle on, one of twenty points is a known one."""
    f, asked = Noisy(Moved(zakharov, 2), 0.1, 0), list[Tensor]()

    def noted(X: Tensor) -> Tensor:
        asked.append(X)
        return f(X)

    METHODS["trust-region-repeats"](run := Run(noted, f.bounds, total=60, seed=0))
    assert len(run.values) == 60
    X = torch.cat(asked)
    assert 2 <= len(X) - len(X.unique(dim=0)) <= 3
