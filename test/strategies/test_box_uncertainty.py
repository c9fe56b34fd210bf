"""Uncertainty sampling on boxes, against dense variances on a fine grid."""

from typing import Any

import pytest
import torch
from botorch.exceptions import InputDataError
from dense_posteriors import dense_moments
from gpytorch.kernels import LinearKernel, RBFKernel
from torch import Tensor

from botorch_sparse.strategies import BBKB, BKB, GPBUCB, GPUCB

# How much less than the largest variance local searches may find.
LAM, WIDTH, FOUND = 0.1, 4, 0.9
LENGTHSCALE = torch.tensor([0.6, 0.9], dtype=torch.float64)
BOUNDS = torch.tensor([[0.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
SIDE = torch.linspace(0, 1, 41, dtype=torch.float64)
GRID = BOUNDS[0] + torch.cartesian_prod(SIDE, SIDE) * (BOUNDS[1] - BOUNDS[0])
OPTIONS = {"num_restarts": 4, "raw_samples": 64}


def make_kernel() -> RBFKernel:
    kernel = RBFKernel(ard_num_dims=2).double().requires_grad_(False)
    kernel.lengthscale = LENGTHSCALE
    return kernel


def build(strategy: Any = BBKB, **change: Any) -> Any:
    arguments = {"covar_module": make_kernel(), "bounds": BOUNDS, "lam": LAM}
    arguments |= {"min_batch_width": WIDTH, "optimizer_options": OPTIONS}
    return strategy(**arguments | change)


def largest(X: Tensor, Z: Tensor = GRID) -> float:
    """The largest exact variance on the grid with evaluations at `X`."""
    return float(
        dense_moments(X, torch.zeros(len(X)), None, Z, LENGTHSCALE, LAM)[1].max()
    )


def objective(X: Tensor) -> Tensor:
    return (3 * X).sin().sum(-1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("strategy", [BBKB, BKB, GPUCB, GPBUCB])
def test_first_batch_is_algorithm_three(strategy: Any) -> None:
    """Each point is the most uncertain one, and the last one leaves the width.

    Variances are compared with the largest of a grid, a lower bound of the maximum.
    """
    s = build(strategy)
    X = s.ask().X
    assert largest(X) <= LAM / WIDTH / FOUND
    assert largest(X[:-1], X[-1:]) > LAM / WIDTH
    for i in range(1, len(X)):
        assert largest(X[:i], X[i : i + 1]) >= FOUND * largest(X[:i])
    s.tell(X, objective(X))
    assert 1 <= len(s.ask(3)) <= 3
    assert not s.state_dict()["is_initializing"]


def test_it_goes_on_from_what_is_told_and_pending() -> None:
    """Whole or in parts, with the same variances at the end."""
    s = build()
    known = GRID[[100, 900, 900]]
    s.tell(known, objective(known))
    first, second = s.ask(3), s.ask(4)
    seen = torch.cat([known, first.X])
    assert largest(seen, second.X[:1]) >= FOUND * largest(seen)
    s.tell(second, objective(second.X))
    third = s.ask()
    assert largest(torch.cat([seen, second.X, third.X])) <= LAM / WIDTH / FOUND


@pytest.mark.slow
def test_later_batches_are_wide() -> None:
    """P (C - 1) / 3 points or more by A.5, here 4, for the sum rule."""
    s = build(termination="global", ratio_threshold=4.0, oversampling=30.0)
    for _ in range(2):
        batch = s.ask()
        s.tell(batch, objective(batch.X))
    assert s.history.batches[1].size >= WIDTH * (4 - 1) / 3 * FOUND


def test_where_the_prior_is_not_flat_its_maximum_comes_first() -> None:
    """A linear kernel is most uncertain at a corner."""
    kernel = LinearKernel().double().requires_grad_(False)
    kernel.variance = 1.0
    X = build(covar_module=kernel).ask(1).X
    assert X.abs().tolist() == [[1.0, 1.0]]


@pytest.mark.slow
def test_constraints_hold() -> None:
    constraint = (torch.tensor([0, 1]), torch.ones(2).double(), 0.5)
    s = build(inequality_constraints=[constraint])
    X = s.ask(6).X
    assert bool((X.sum(-1) >= 0.5 - 1e-6).all())


def test_time_ends_a_batch() -> None:
    batch = build().ask(max_seconds=1e-9)
    assert len(batch) == 1 and "time was over" in batch.note


def test_it_needs_a_kernel() -> None:
    with pytest.raises(InputDataError, match="min_batch_width=3 without covar_module"):
        BBKB(bounds=BOUNDS, min_batch_width=3)
    with pytest.raises(InputDataError, match="min_batch_width=3 without covar_module"):
        BBKB(GRID, min_batch_width=3)
