"""Units of feedback, and kernels that take points as they come."""

from dataclasses import dataclass
from typing import Any, TypeVar

from gpytorch.kernels import Kernel
from torch import Tensor

Values = TypeVar("Values", float, Tensor)


@dataclass(frozen=True)
class Units:
    """Feedback in units of its own: `(Y - center) / scale`.

    Attributes:
        center: What counts as zero, in units of Y.
        scale: What counts as one, positive.
    """

    center: float = 0.0
    scale: float = 1.0

    def standardize(self, Y: Values) -> Values:
        """From units of Y."""
        return (Y - self.center) / self.scale

    def restore(self, values: Values) -> Values:
        """Back to units of Y."""
        return self.center + self.scale * values


UNITS_OF_Y = Units()


class ScaledInputsKernel(Kernel):
    r"""A kernel of some columns, scaled to [0, 1]: `k((x - low) / (high - low))`.

    Args:
        base_kernel: The kernel of the scaled columns.
        bounds: `2 x c` least and largest values of these columns, float64.
        columns: Which they are, `c` numbers; None for all.
    """

    _low: Tensor
    _span: Tensor
    _columns: Tensor | None

    def __init__(
        self, base_kernel: Kernel, bounds: Tensor, columns: Tensor | None
    ) -> None:
        super().__init__()
        self.base_kernel = base_kernel
        self.register_buffer("_low", bounds[0])
        self.register_buffer("_span", bounds[1] - bounds[0])
        self.register_buffer("_columns", columns)

    @property
    def is_stationary(self) -> bool:
        """Whether it depends on differences alone."""
        return self.base_kernel.is_stationary

    def inputs(self, X: Tensor) -> Tensor:
        """Points as the base kernel takes them."""
        X = X if self._columns is None else X[..., self._columns]
        return (X - self._low) / self._span

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor:
        """The base kernel of scaled points."""
        x1, x2 = self.inputs(x1), self.inputs(x2)
        return self.base_kernel.forward(x1, x2, diag=diag, **params)
