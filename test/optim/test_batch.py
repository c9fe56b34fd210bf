"""Batches against the dense recomputation of every bound."""

from typing import Any

import numpy as np
import pytest
from batch_oracles import Array, Dense, assert_close, fewer, make_problem

from botorch_sparse.optim.points import Batch


def brute_force(dense: Dense, multiplier: float, batch: list[int]) -> Array:
    """The bounds of all, from variances computed anew."""
    return dense.mean + multiplier * np.sqrt(dense.variance_after(batch))


def follow(
    state: Batch, dense: Dense, multiplier: float, steps: int, tolerance: float
) -> None:
    """Every choice attains the dense maximum, every variance is the dense one."""
    batch: list[int] = []
    for _ in range(steps):
        expected = brute_force(dense, multiplier, batch)
        row = state.argmax()
        assert expected[row] >= expected.max() - tolerance
        state.append(row)
        before = dense.variance_after(batch)[row]
        assert state.variances_before[-1] == pytest.approx(before, abs=tolerance)
        batch.append(row)
    expected = brute_force(dense, multiplier, batch)
    assert_close(state.values(), expected, atol=tolerance)
    assert state.rows == batch


@pytest.mark.parametrize("max_memory", [0, 2**30], ids=["streamed", "kept"])
def test_choices_are_those_of_a_brute_force(
    max_memory: int, double: dict[str, Any]
) -> None:
    for seed in fewer(range(20), double, 2):
        problem = make_problem(seed, lam=0.1)
        pool = problem.pool(max_memory=max_memory, **double)
        follow(pool.batch(2.0), Dense(problem), 2.0, 15, 1e-7)
