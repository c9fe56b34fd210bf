"""Linear constraints of a box, checked at the door."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from botorch.exceptions import InputDataError
from scipy.optimize import linprog
from torch import Tensor

from botorch_sparse.doors import check_number, numbers_of, said

LinearConstraint: TypeAlias = tuple[Tensor, Tensor, float]
# The status of SciPy's solver where no point satisfies the constraints.
INFEASIBLE = 2


def constraints_of(
    name: str, given: Sequence[LinearConstraint] | None
) -> Sequence[LinearConstraint] | None:
    """Constraints with tensors of their own, also where lists came.

    Raises:
        InputDataError: If one is no triple of indices, coefficients and a number.
    """
    if given is None:
        return None
    need = "need triples of indices, coefficients and a right-hand side."
    triples = list(given) if isinstance(given, Sequence) else [given]
    if isinstance(given, str) or any(not _is_triple(each) for each in triples):
        raise InputDataError(f"Got {name}={said(given)}; {need}")
    return [_constraint(name, *triple) for triple in triples]


def _is_triple(constraint: object) -> bool:
    return isinstance(constraint, tuple | list) and len(constraint) == 3


def _constraint(
    name: str, indices: object, coefficients: object, rhs: float
) -> LinearConstraint:
    need = "need one vector of each."
    places = numbers_of(f"indices of {name}", indices, need)
    factors = numbers_of(f"coefficients of {name}", coefficients, need)
    check_number(f"right-hand side of {name}", rhs, "(-inf, inf)")
    if not bool((places == places.long()).all()) or not factors.isfinite().all():
        raise InputDataError(
            f"Got {name} with indices {places.tolist()} and coefficients "
            f"{factors.tolist()}; need whole numbers, and finite ones."
        )
    return places.long().clone(), factors.clone(), rhs


def validate_constraints(
    bounds: Tensor,
    inequality_constraints: Sequence[LinearConstraint] | None,
    equality_constraints: Sequence[LinearConstraint] | None,
    fixed_features: Mapping[int, float] | None,
) -> None:
    r"""Refuse constraints that are not linear ones of a point, or leave no point.

    Whether they leave one is a linear program. Cost: that of one with `d` variables.

    Args:
        bounds: `2 x d` lower and upper bounds.
        inequality_constraints: Triples of indices, coefficients and a right-hand side
            with :math:`\sum_i c_i x_{j_i} \ge b`.
        equality_constraints: The same with equality.
        fixed_features: Values of features that do not move, by their index.

    Raises:
        InputDataError: If an index is out of range, the numbers of indices and
            coefficients differ, or no point of the box satisfies all of them.
    """
    if not inequality_constraints and not equality_constraints:
        return
    dim = bounds.shape[-1]
    A_least, b_least = _rows(inequality_constraints, dim)
    A_equal, b_equal = _rows(equality_constraints, dim)
    sides = bounds.double().T.tolist()
    for index, value in (fixed_features or {}).items():
        sides[index] = [value, value]
    found = linprog(np.zeros(dim), -A_least, -b_least, A_equal, b_equal, sides)
    if found.status == INFEASIBLE:
        raise InputDataError(
            f"Got {len(b_least)} inequality and {len(b_equal)} equality constraints "
            f"that no point of the box {bounds.tolist()} satisfies, with "
            f"fixed_features={dict(fixed_features or {})}. Inequalities mean "
            "`sum_i coefficients[i] * x[indices[i]] >= rhs`: for an upper limit change "
            "the signs of coefficients and rhs."
        )


def _rows(
    constraints: Sequence[LinearConstraint] | None, dim: int
) -> tuple[np.ndarray, np.ndarray]:
    """Constraints as a `k x d` matrix and `k` right-hand sides."""
    constraints = constraints or []
    A, b = np.zeros((len(constraints), dim)), np.zeros(len(constraints))
    for row, (indices, coefficients, rhs) in enumerate(constraints):
        if indices.dim() != 1 or indices.shape != coefficients.shape:
            raise InputDataError(
                f"Got a constraint with indices of shape {tuple(indices.shape)} and "
                f"coefficients of shape {tuple(coefficients.shape)}; need one vector "
                "of each, equally long. Constraints between points are not supported."
            )
        places = indices.tolist()
        if not all(0 <= place < dim for place in places):
            raise InputDataError(
                f"Got a constraint with indices {places}; need 0 to {dim - 1}."
            )
        np.add.at(A[row], places, coefficients.tolist())
        b[row] = rhs
    return A, b
