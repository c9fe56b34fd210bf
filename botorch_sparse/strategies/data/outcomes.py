"""Which outcomes are measured, and what is wanted of them."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_flag,
    check_kind,
    check_number,
    short_list,
)
from botorch_sparse.strategies.core.fingerprint import fingerprint

Number = TypeVar("Number", float, Tensor)


@dataclass(frozen=True)
class Objective:
    """An outcome that is maximized, or minimized.

    Args:
        name: Its name, such as a column of the results.
        minimize: Whether small values are good.
        threshold: What is worse than this counts for nothing; for several objectives
            the reference point of the hypervolume. None infers one, see
            `reference_point`.
    """

    name: Hashable = None
    minimize: bool = False
    threshold: float | None = None

    def __post_init__(self) -> None:
        check_flag("minimize", self.minimize)
        if self.threshold is not None:
            check_number("threshold", self.threshold, "(-inf, inf)")

    @property
    def goal(self) -> float | None:
        """The threshold in the sign that is maximized."""
        if self.threshold is None:
            return None
        return -self.threshold if self.minimize else self.threshold


@dataclass(frozen=True)
class Constraint:
    """An outcome that has to stay within limits.

    Args:
        name: Its name, such as a column of the results.
        lower: The least value that is allowed; None for no limit.
        upper: The largest one; None for no limit.
    """

    name: Hashable
    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        limits = {"lower": self.lower, "upper": self.upper}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        for name, limit in given.items():
            check_number(name, limit, "(-inf, inf)")
        low, high = self.range
        if not given or low > high:
            raise InputDataError(
                f"Got the constraint {self.name!r} with lower={self.lower} and "
                f"upper={self.upper}; need at least one limit, and lower <= upper."
            )

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value that are allowed."""
        low = -math.inf if self.lower is None else float(self.lower)
        return low, math.inf if self.upper is None else float(self.upper)


Outcome: TypeAlias = Objective | Constraint


@dataclass(frozen=True)
class Outcomes:
    """The `k` outcomes of an evaluation, in the order of the columns of `Y`.

    A record holds objectives in the sign that is maximized, and constraints as they
    are; `signed` changes the signs.

    Attributes:
        parts: The `k` outcomes, objectives and constraints.
    """

    parts: tuple[Outcome, ...] = (Objective(),)

    @classmethod
    def of(cls, outcomes: Iterable[Outcome] | None, *, minimize: bool) -> "Outcomes":
        """The outcomes that a user names; None is one objective without a name.

        Raises:
            InputDataError: If there is no objective, if names are missing or come
                twice, or if `minimize` is given with them.
        """
        if outcomes is None:
            return cls((Objective(minimize=minimize),))
        if minimize:
            raise InputDataError(
                "Got minimize=True with outcomes; say it of an outcome: "
                "Objective(name, minimize=True)."
            )
        need = 'a list such as [Objective("yield"), Constraint("cost", upper=3.0)]'
        check_kind("outcomes", outcomes, Iterable, need)
        parts = tuple(outcomes)
        for part in parts:
            check_kind("outcomes", part, (Objective, Constraint), need)
            check_kind("name", part.name, Hashable, "a column's name, such as 'yield'")
        names = [part.name for part in parts]
        if None in names or len(set(names)) < len(names):
            raise InputDataError(
                f"Got outcomes with the names {short_list(names)}; need one name for "
                "each, and each once."
            )
        if not any(isinstance(part, Objective) for part in parts):
            raise InputDataError(
                f"Got {len(parts)} outcomes without an objective; need one at least: "
                "Objective(name), or Objective(name, minimize=True)."
            )
        return cls(parts)

    @cached_property
    def minimize(self) -> tuple[bool, ...]:
        """For each outcome, whether it is minimized."""
        return tuple(isinstance(o, Objective) and o.minimize for o in self.parts)

    @cached_property
    def names(self) -> tuple[Hashable, ...] | None:
        """Their `k` names; None for one outcome without a name."""
        names = tuple(part.name for part in self.parts)
        return None if names == (None,) else names

    @cached_property
    def objectives(self) -> tuple[int, ...]:
        """The columns of the objectives."""
        return tuple(i for i, o in enumerate(self.parts) if isinstance(o, Objective))

    @cached_property
    def constraints(self) -> tuple[int, ...]:
        """The columns of the constraints."""
        return tuple(i for i, o in enumerate(self.parts) if isinstance(o, Constraint))

    @cached_property
    def limits(self) -> Tensor:
        """`2 x c` least and largest values that the constraints allow, float64."""
        ranges = [o.range for o in self.parts if isinstance(o, Constraint)]
        return torch.tensor(ranges, dtype=torch.double).reshape(-1, 2).mT

    @property
    def is_single(self) -> bool:
        """Whether there is one objective, and nothing else."""
        return len(self.parts) == 1

    def __len__(self) -> int:
        return len(self.parts)

    def signed(self, values: Number, outcome: int = 0) -> Number:
        """Values of one outcome from the user's sign to the maximized one, or back."""
        return -values if self.minimize[outcome] else values

    def signed_rows(self, Y: Tensor) -> Tensor:
        """`n x k` values from the user's signs to the maximized ones, or back."""
        if not any(self.minimize):
            return Y
        return Y * torch.tensor([-1.0 if m else 1.0 for m in self.minimize]).to(Y)

    def columns(self, Y: Tensor) -> dict[Hashable, Tensor]:
        """The columns of `n x k` values of what is maximized, in the user's signs."""
        names = ("value",) if self.names is None else self.names
        return dict(zip(names, self.signed_rows(Y).unbind(-1), strict=True))

    def ordered(self, Y: Any) -> Any:
        """The columns of a DataFrame in the order of the names; all else as it is.

        Raises:
            InputDataError: If a column is missing, or is no outcome.
        """
        if self.names is None or not hasattr(Y, "columns"):
            return Y
        if set(Y.columns) != set(self.names) or len(Y.columns) != len(self):
            raise InputDataError(
                f"Got outcomes in the columns {short_list(Y.columns)}; need one column "
                f"for each of {short_list(self.names)}, with NaN where it was not "
                "measured."
            )
        return Y[list(self.names)]

    @property
    def shape_text(self) -> str:
        """The shapes that feedback on `b` points may have, for messages."""
        return "`b` or `b x 1`" if len(self) == 1 else f"`b x {len(self)}`"

    def is_shape(self, shape: Sequence[int], num: int) -> bool:
        """Whether feedback on so many points has a shape that it may have."""
        is_vector = len(self) == 1 and tuple(shape) == (num,)
        return is_vector or tuple(shape) == (num, len(self))

    def num_unusable(self, values: Tensor) -> int:
        """How many of `b x k` values are infinite, or NaN in a row without others."""
        is_bad = values.isinf() | values.isnan().all(-1, keepdim=True)
        return int(is_bad.sum())

    def are_usable(self, values: Tensor, largest: float) -> Tensor:
        """Which of `b x k` rows have a value, and none that is infinite or larger."""
        is_measured = ~values.isnan()
        is_small = values.isfinite() & (values.abs() <= largest)
        return is_measured.any(-1) & (is_small | ~is_measured).all(-1)

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        if self.names is None:
            return {"minimize": self.minimize[0]}
        return {"outcomes": fingerprint(self.parts, "outcomes")}

    def best_between(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The best of all values between bounds, each `... x k`.

        An objective's is its upper bound; a constraint's is as far inside of its
        limits as it can be, so that it is within them if any value between is.
        """
        columns = list(self.constraints)
        best, middle = upper.clone(), self.limits.to(upper).mean(0)
        nearest = torch.maximum(middle, lower[..., columns])
        best[..., columns] = torch.minimum(nearest, upper[..., columns])
        return best

    def violations(
        self, Y: Tensor, spread: Tensor | None = None, margin: float = 0.0
    ) -> Tensor:
        """How far `... x k` values are outside of their limits in all, `...`.

        Args:
            Y: Values, objectives in the sign that is maximized; NaN violates nothing.
            spread: `c` units of the constraints; 1 by default.
            margin: What is added to each distance, in these units: values that are
                inside of a limit by less than this count as outside.
        """
        total = torch.zeros_like(Y[..., 0])
        for i, (low, high) in enumerate(self.limits.mT.tolist()):
            C, unit = Y[..., self.constraints[i]], 1.0
            if spread is not None:
                unit = 1 / float(spread[i])
            for limit, sign in ((low, -1.0), (high, 1.0)):
                if math.isfinite(limit):
                    over = (C - limit).mul_(sign * unit).add_(margin)
                    total += over.nan_to_num_(0.0, posinf=torch.inf).clamp_min_(0.0)
        return total


ONE_OUTCOME = Outcomes()
