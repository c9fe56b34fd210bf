"""Which outcomes are measured: their number, their names and their signs."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import short_list

Number = TypeVar("Number", float, Tensor)


@dataclass(frozen=True)
class Outcomes:
    """The `k` outcomes of an evaluation, in the order of the columns of `Y`.

    A record holds what is maximized; `signed` changes the signs.

    Attributes:
        minimize: For each outcome, whether small values are good.
        names: Their `k` names; None for one outcome without a name.
    """

    minimize: tuple[bool, ...] = (False,)
    names: tuple[Hashable, ...] | None = None

    def __len__(self) -> int:
        return len(self.minimize)

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

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        if self.names is None:
            return {"minimize": self.minimize[0]}
        return {"minimize": list(self.minimize), "outcomes": list(self.names)}


ONE_OUTCOME = Outcomes()
