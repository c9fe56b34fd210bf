"""How the model of a strategy is built and fitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies.domain import Box

DEFAULT_GROWTH = 1.2
FEWEST_INITIAL = 5
FEWEST_FITTED = 3
# Of a table; one-hot columns are many.
MOST_INITIAL = 20
OPTIMIZER_OPTIONS: dict[str, Any] = {"num_restarts": 4, "raw_samples": 256}


@dataclass(frozen=True)
class ModelSettings:
    """How the model of a strategy is built, fitted and, on a box, maximized over.

    Args:
        covar_module: The kernel for float64 inputs, or None to infer all.
        lam: Noise variance of an evaluation, or None with the kernel.
        refit: When hyperparameters are fitted; None for never.
        num_initial: Points before the model is used.
        optimizer_options: For `optimize_acqf`.
    """

    covar_module: Kernel | None
    lam: float | None
    refit: RefitSchedule | None
    num_initial: int
    optimizer_options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        covar_module: Kernel | None,
        lam: float | None,
        refit: RefitSchedule | None,
        num_initial: int | None,
        optimizer_options: Mapping[str, Any] | None,
        box: Box | None,
        dim: int,
    ) -> "ModelSettings":
        """Settings with defaults, which differ with and without a kernel.

        Raises:
            InputDataError: For options of an optimizer on a table, or a number of
                initial points below one.
        """
        if box is None and optimizer_options is not None:
            raise InputDataError(
                "Got optimizer_options with candidates, whose maximum is exact; they "
                "belong to a continuous domain. Leave them out."
            )
        if num_initial is not None and num_initial < 1:
            raise InputDataError(f"Got num_initial={num_initial}; need at least 1.")
        if covar_module is None and refit is None:
            refit = RefitSchedule(growth=DEFAULT_GROWTH)
        is_known = covar_module is not None and refit is None
        default = 1 if is_known else max(FEWEST_INITIAL, 2 * dim)
        if box is None:
            default = min(default, MOST_INITIAL)
        return cls(
            covar_module,
            lam,
            None if refit is None else replace(refit),
            default if num_initial is None else num_initial,
            OPTIMIZER_OPTIONS | dict(optimizer_options or {}),
        )

    def is_refit_due(self, values: Tensor, last_fit: int | None) -> bool:
        """Whether hyperparameters last fitted to so many evaluations are due again.

        Not before there are three that differ: less says nothing of a kernel, and fits
        begin where the last one ended.
        """
        num_evaluations = len(values)
        if self.refit is None or num_evaluations < FEWEST_FITTED:
            return False
        if bool(values.min() == values.max()):
            return False
        schedule = replace(self.refit)
        schedule.last_fit = last_fit
        return schedule.is_due(num_evaluations)

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        refit = self.refit
        return {
            "lam": self.lam,
            "refit": None if refit is None else [refit.every, refit.growth],
            "num_initial": self.num_initial,
            "optimizer_options": repr(sorted(self.optimizer_options.items())),
        }
