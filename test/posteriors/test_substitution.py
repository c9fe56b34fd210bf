"""Blocked forward substitution against LAPACK's."""

from itertools import product
from typing import Any

import torch
from device_cases import sweep

from botorch_sparse.posteriors.substitution import BlockedSubstitution


def lower(m: int, condition: float, **tkwargs: Any) -> torch.Tensor:
    """A Cholesky factor in pivot order: diagonal from 1 down to 1 / condition."""
    g = torch.Generator().manual_seed(m)
    L = torch.randn(m, m, generator=g, dtype=torch.float64).tril(-1) / max(m, 1)
    scale = torch.logspace(0, -torch.tensor(condition).log10().item(), m).double()
    return ((L + torch.eye(m)) * scale).to(**tkwargs)


@sweep("m, block_size", product([0, 1, 31, 32, 33, 100], [1, 7, 32, 200]), [(33, 32)])
def test_solves(m: int, block_size: int, tkwargs: dict[str, Any]) -> None:
    L = lower(m, 10.0, **tkwargs)
    b = torch.randn(m, 50, generator=torch.Generator().manual_seed(1)).to(**tkwargs)
    expected = torch.linalg.solve_triangular(L, b, upper=False)
    actual = BlockedSubstitution(L, block_size).solve(b)
    tolerance = 1e-12 if tkwargs["dtype"] == torch.float64 else 1e-4
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def test_backward_error_of_an_ill_conditioned_factor(double: dict[str, Any]) -> None:
    """`L x` comes back to rounding, although the condition number is 1e6."""
    L = lower(150, 1e6, **double)
    b = torch.randn(150, 40, generator=torch.Generator().manual_seed(2)).to(**double)
    x = BlockedSubstitution(L).solve(b)
    error = (L @ x - b).abs() / (L.abs() @ x.abs())
    assert error.max() < 1e-13


def test_writes_where_it_is_told(double: dict[str, Any]) -> None:
    L, b = lower(40, 10.0, **double), torch.ones(40, 6, **double)
    room = torch.full((40, 10), 7.0, **double)
    out = room[:, 2:8]
    assert BlockedSubstitution(L).solve(b, out=out) is out
    torch.testing.assert_close(L @ out, b)
    assert (room[:, :2] == 7).all() and (room[:, 8:] == 7).all()
