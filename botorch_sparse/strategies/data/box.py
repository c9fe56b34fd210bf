"""A box, cut by linear constraints and fixed features."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict

import numpy as np
import torch
from botorch.exceptions import InputDataError
from botorch.utils.sampling import draw_sobol_samples, get_polytope_samples
from torch import Tensor

from botorch_sparse.argument_checks import (
    as_bounds,
    as_numbers,
    check_kind,
    check_number,
    check_whole,
    short_list,
    short_repr,
)
from botorch_sparse.strategies.data.discrete import DiscreteFeatures, Values
from botorch_sparse.strategies.data.row_matching import ROUNDING

LinearConstraint: TypeAlias = tuple[Tensor, Tensor, float]
# The status of SciPy's solver where no point satisfies the constraints.
INFEASIBLE = 2


def constraints_of(
    name: str, given: Sequence[LinearConstraint] | None
) -> Sequence[LinearConstraint] | None:
    """Constraints with tensors of their own, also where lists came."""
    if given is None:
        return None
    need = "need triples of indices, coefficients and a right-hand side."
    triples = list(given) if isinstance(given, Sequence) else [given]
    if isinstance(given, str) or any(not _is_triple(each) for each in triples):
        raise InputDataError(f"Got {name}={short_repr(given)}; {need}")
    return [_constraint(name, *triple) for triple in triples]


def _is_triple(constraint: object) -> bool:
    return isinstance(constraint, tuple | list) and len(constraint) == 3


def _constraint(
    name: str, indices: object, coefficients: object, rhs: float
) -> LinearConstraint:
    need = "need one vector of each."
    places = as_numbers(f"indices of {name}", indices, need)
    factors = as_numbers(f"coefficients of {name}", coefficients, need)
    check_number(f"right-hand side of {name}", rhs, "(-inf, inf)")
    if not bool((places == places.long()).all()) or not factors.isfinite().all():
        raise InputDataError(
            f"Got {name} with indices {places.tolist()} and coefficients "
            f"{factors.tolist()}; need whole numbers, and finite ones."
        )
    return places.long().clone(), factors.clone(), rhs


def _refuse_features(
    name: str, constraints: Sequence[LinearConstraint] | None, fits: Collection[int]
) -> None:
    """Refuse constraints on some features."""
    used = {
        j for indices, _, _ in constraints or [] for j in indices.flatten().tolist()
    }
    if bad := sorted(used & set(fits)):
        raise InputDataError(
            f"Got {name} on the features {bad}, which are discrete; need equalities of "
            "continuous features, and inequalities of any but cat_dims."
        )


def validate_constraints(
    bounds: Tensor,
    inequality_constraints: Sequence[LinearConstraint] | None,
    equality_constraints: Sequence[LinearConstraint] | None,
    fixed_features: Mapping[int, float] | None,
) -> None:
    r"""Refuse constraints that are not linear ones of a point, or leave no point.

    Whether they leave one is a linear program with `d` variables.
    """
    if not inequality_constraints and not equality_constraints:
        return
    dim = bounds.shape[-1]
    A_least, b_least = _rows(inequality_constraints, dim)
    A_equal, b_equal = _rows(equality_constraints, dim)
    sides = bounds.double().T.tolist()
    for index, value in (fixed_features or {}).items():
        sides[index] = [value, value]
    from scipy.optimize import linprog  # a tenth of a second, for constraints alone

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


# Relative to the side of the box; the optimizers meet constraints to about this.
TOLERANCE = 1e-6
# Points of the box that are drawn for each feasible one, and how many more.
SHARES, FEW = (2, 8, 64), 64
# The same with discrete features, of which a walk finds few; and the most points.
MORE, MOST_TRIED = (512, 4096), 2**20


class DomainOptions(TypedDict, total=False):
    """A box, as `optimize_acqf` and `optimize_acqf_mixed_alternating` take it."""

    bounds: Tensor | None
    inequality_constraints: Sequence[LinearConstraint] | None
    equality_constraints: Sequence[LinearConstraint] | None
    fixed_features: Mapping[int, float] | None
    discrete_dims: Values | None
    cat_dims: Values | None


@dataclass(frozen=True, eq=False)
class Box:
    r"""A box, cut by linear constraints, fixed features and discrete ones.

    Args:
        bounds: `2 x d` lower and upper bounds. They and the rest are copied.
        inequality_constraints: Triples of indices, coefficients and a right-hand side
            with :math:`\sum_i c_i x_{j_i} \ge b`, as in `optimize_acqf`.
        equality_constraints: The same with equality.
        fixed_features: Values of features that do not move, by their index.
        discrete_dims: Values of features that take some numbers only, by their index,
            as in `optimize_acqf_mixed_alternating`: `{3: range(1, 9)}`.
        cat_dims: The same of features whose values are codes without an order.

    Attributes:
        discrete: The values of the last two.

    Raises:
        BotorchTensorDimensionError: If the bounds are not `2 x d`.
        InputDataError: If they are not finite floating point with lower below upper, a
            fixed feature or a value is outside them, the constraints leave no point, or
            are equalities of discrete features or any of categories.
    """

    bounds: Tensor
    inequality_constraints: Sequence[LinearConstraint] | None = None
    equality_constraints: Sequence[LinearConstraint] | None = None
    fixed_features: Mapping[int, float] | None = None
    discrete_dims: Values | None = None
    cat_dims: Values | None = None
    discrete: DiscreteFeatures = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", as_bounds(self.bounds).clone())
        bounds = self.bounds
        discrete = DiscreteFeatures.of(bounds, self.discrete_dims, self.cat_dims)
        object.__setattr__(self, "discrete", discrete)
        fixed = {} if self.fixed_features is None else self.fixed_features
        check_kind("fixed_features", fixed, Mapping, "values by their index: {0: 0.5}")
        for index, value in fixed.items():
            check_whole("fixed_features", index, 0, "need indices from 0 on.")
            check_number(f"fixed_features[{index}]", value, "(-inf, inf)")
            if not 0 <= index < self.dim or not self._within(index, value):
                raise InputDataError(
                    f"Got fixed_features[{index}]={value}; need an index from 0 to "
                    f"{self.dim - 1} and a value within its bounds."
                )
            self._refuse_between(index, value)
        if self.fixed_features is not None:
            object.__setattr__(self, "fixed_features", dict(fixed))
        for name in ("inequality_constraints", "equality_constraints"):
            object.__setattr__(self, name, constraints_of(name, getattr(self, name)))
            is_equality = name == "equality_constraints"
            fits = discrete.categories if not is_equality else discrete.values
            _refuse_features(name, getattr(self, name), fits)
        validate_constraints(
            bounds,
            self.inequality_constraints,
            self.equality_constraints,
            self.fixed_features,
        )

    @property
    def dim(self) -> int:
        """The number `d` of features."""
        return self.bounds.shape[-1]

    def _within(self, index: int, value: float) -> bool:
        low, high = self.bounds[:, index].tolist()
        return low <= value <= high

    def _refuse_between(self, index: int, value: float) -> None:
        """Refuse a value that a discrete feature does not take."""
        values = self.discrete.values.get(index)
        if values is not None and not bool((values == value).any()):
            raise InputDataError(
                f"Got fixed_features[{index}]={value}; need one of its values "
                f"{short_list(values.tolist())}."
            )

    def arguments(self) -> dict[str, Any]:
        """What `optimize_acqf` needs, in float64."""
        return {
            "bounds": self.bounds.double(),
            "inequality_constraints": self._double(self.inequality_constraints),
            "equality_constraints": self._double(self.equality_constraints),
            "fixed_features": dict(self.fixed_features or {}) or None,
        }

    def search_arguments(self, given: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """The user's arguments of `optimize_acqf` with the domain's and a seed.

        BoTorch's walk of 18,000 steps to the starts takes longer than the local
        searches from the 256 points that it gives, and these need not be uniform.
        """
        options: dict[str, Any] = {}
        if self.inequality_constraints or self.equality_constraints:
            options = {"n_burnin": 64 * self.dim, "n_thinning": 4}
        options |= {**(given.get("options") or {}), "seed": seed}
        return {**given, **self.arguments(), "options": options}

    def sample(self, num: int, seed: int) -> Tensor:
        """Feasible points, `num x d`: Sobol's in the box, or BoTorch's hit and run.

        The walk takes a second before its first point, and gets along thin domains
        slowly. So it is taken where equalities leave no volume, or less than one of
        Sobol's points in 64 is feasible. Discrete features are at one of their values,
        each as likely as the others; there one point in 4,096 is enough, and the walk
        is rounded. Where it finds few points they come several times.

        Args:
            num: How many; with a seed the first of Sobol's do not depend on it.
            seed: Decides on all of them.

        Raises:
            InputDataError: If hardly any values of the discrete features meet the
                constraints.
        """
        found = self.bounds[:0].double()
        for tried in self._tries(num):
            X = draw_sobol_samples(self.bounds.double(), n=tried, q=1, seed=seed)
            X = self._pinned(self.discrete.spread(X.squeeze(1), self.bounds))
            found = X[self.is_feasible(X)][:num]
            if len(found) == num:
                return self.clamp(found)
        if not len(self.discrete):
            return self.clamp(self._pinned(self._walk(num, seed)))
        walked = self._pinned(self.discrete.nearest(self._walk(FEW + num, seed)))
        X = torch.cat([found, walked[self.is_feasible(walked)]])[:num]
        if not len(X):
            raise InputDataError(
                "None of the points that were drawn keeps to the constraints with "
                "values of discrete_dims; need constraints that leave more of them."
            )
        return self.clamp(X[torch.arange(num) % len(X)])

    def _tries(self, num: int) -> list[int]:
        """How many of Sobol's points to draw, until so many are feasible."""
        if self.equality_constraints:
            return []
        cut = bool(self.inequality_constraints)
        shares = (*SHARES, *(MORE if len(self.discrete) else ()))
        tries = [FEW + share * num for share in shares] if cut else [num]
        return [tried for tried in tries if tried <= MOST_TRIED] or tries[:1]

    def _walk(self, num: int, seed: int) -> Tensor:
        """Points by hit and run."""
        arguments = self.arguments()
        bounds, fixed = arguments["bounds"], arguments.pop("fixed_features") or {}
        pinned = [
            (torch.tensor([i], device=bounds.device), bounds.new_ones(1), value)
            for i, value in fixed.items()
        ]
        equalities = [*(arguments["equality_constraints"] or []), *pinned]
        arguments["equality_constraints"] = equalities or None
        return get_polytope_samples(num, seed=seed, **arguments)

    def _pinned(self, X: Tensor) -> Tensor:
        """The points, with the fixed features at their values."""
        for index, value in (self.fixed_features or {}).items():
            X[:, index] = value
        return X

    def clamp(self, X: Tensor) -> Tensor:
        """Points in the dtype of the bounds, rounded into the box."""
        X = X.detach().to(self.bounds)
        return torch.minimum(torch.maximum(X, self.bounds[0]), self.bounds[1])

    def is_feasible(self, X: Tensor) -> Tensor:
        """Which of `n x d` points are in the domain, `n` truth values."""
        X, (low, high) = X.double(), self.bounds.double()
        slack = TOLERANCE * (high - low)
        inside = ((X >= low - slack) & (X <= high + slack)).all(-1)
        for _, holds in self._conditions(X, slack):
            inside &= holds
        return inside

    def broken(self, x: Tensor) -> list[str]:
        """What a point within the bounds breaks besides; nothing if it is feasible.

        That it is rounded to six digits, or to the type of the bounds, breaks nothing.
        """
        low, high = self.bounds.double()
        ulps = 4 * torch.finfo(self.bounds.dtype).eps * self.bounds.abs().amax(0)
        slack = torch.maximum(ROUNDING * (high - low), ulps)
        return [name for name, holds in self._conditions(x[None], slack) if not holds]

    def _conditions(self, X: Tensor, slack: Tensor) -> Iterator[tuple[str, Tensor]]:
        """What is demanded beside the bounds, with `n` truth values of `n x d` points.

        Args:
            X: The points.
            slack: By how much each of the `d` features may miss it.
        """
        X = X.double()
        for j, value in (self.fixed_features or {}).items():
            yield f"fixed_features[{j}]", (X[:, j] - value).abs() <= slack[j]
        between = (X - self.discrete.nearest(X)).abs()
        for j in self.discrete.values:
            name = "cat_dims" if j in self.discrete.categories else "discrete_dims"
            least = self.discrete.values[j].diff().min() / 1000
            yield f"{name}[{j}]", between[:, j] <= torch.minimum(slack[j], least)
        for k, (i, c, b) in enumerate(self._double(self.inequality_constraints) or []):
            yield f"inequality_constraints[{k}]", X[:, i] @ c >= b - c.abs() @ slack[i]
        for k, (i, c, b) in enumerate(self._double(self.equality_constraints) or []):
            off = (X[:, i] @ c - b).abs()
            yield f"equality_constraints[{k}]", off <= c.abs() @ slack[i]

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        return {
            "bounds": [self.bounds.tolist(), str(self.bounds.dtype)],
            "constraints": [
                [(i.tolist(), c.tolist(), float(b)) for i, c, b in constraints or []]
                for constraints in (
                    self.inequality_constraints,
                    self.equality_constraints,
                )
            ],
            "fixed_features": sorted((self.fixed_features or {}).items()),
            **self.discrete.config(),
        }

    def _double(
        self, constraints: Sequence[LinearConstraint] | None
    ) -> list[LinearConstraint] | None:
        device = self.bounds.device
        return [
            (i.to(device), c.double().to(device), b) for i, c, b in constraints or []
        ] or None
