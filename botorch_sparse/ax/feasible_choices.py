"""Rows of a table: those that satisfy constraints, and those that are known."""

import numpy as np
import torch
from torch import Tensor

# Digits that tell rows apart, relative to the largest value of a column.
DIGITS = 10

InequalityConstraints = list[tuple[Tensor, Tensor, float]]


def feasible_choices(
    choices: Tensor,
    fixed_features: dict[int, float] | None,
    inequality_constraints: InequalityConstraints | None,
) -> Tensor:
    """The choices that satisfy linear constraints and fixed features.

    Args:
        choices: `A x d` choices.
        fixed_features: Values of some columns, by their index.
        inequality_constraints: As in `optimize_acqf`.
    """
    keep = torch.ones(len(choices), dtype=torch.bool, device=choices.device)
    for column, value in (fixed_features or {}).items():
        keep &= (choices[:, column] - value).abs() <= 1e-9 * max(1.0, abs(value))
    for indices, coefficients, rhs in inequality_constraints or []:
        keep &= choices[:, indices] @ coefficients.to(choices) >= rhs - 1e-8
    return choices[keep]


def rows_in(X: Tensor, known: Tensor) -> Tensor:
    """Which rows of `X` are rows of `known` too, up to rounding.

    Args:
        X: `k x d` points.
        known: `n x d` points.

    Returns:
        `k` booleans. Cost: O((k + n) d log(k + n)).
    """
    both = torch.cat([X, known.to(X)]).detach().cpu()
    scale = both.abs().amax(0).clamp_min(torch.finfo(both.dtype).tiny)
    digits = np.round((both / scale).numpy() * 10.0**DIGITS).astype(np.int64)
    digits = np.ascontiguousarray(digits)
    rows = digits.view([("", digits.dtype)] * digits.shape[1]).ravel()
    found = np.isin(rows[: len(X)], rows[len(X) :])
    return torch.from_numpy(found).to(X.device)


def without_rows(X: Tensor, known: Tensor | None) -> Tensor:
    """The rows of `X` that are not in `known`."""
    return X if known is None else X[~rows_in(X, known)]
