"""How the posterior of a strategy is built and fitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from botorch_sparse.argument_checks import check_kind, check_number, check_whole
from botorch_sparse.kernels import in_double
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.data.domain import Domain, refuse_large_inputs

DEFAULT_GROWTH = 1.2
DEFAULT_LAM = 1e-4
FEWEST_FITTED = 3


class PosteriorOptions(TypedDict, total=False):
    """Keyword arguments of `ModelSettings.of`."""

    mean_module: Mean | None
    num_initial: int | None
    refit: RefitSchedule | None
    optimizer_options: Mapping[str, Any] | None


@dataclass(frozen=True)
class ModelSettings:
    """How the posterior of a strategy is built, fitted and, on a box, maximized over.

    Args:
        covar_module: The kernel for float64 inputs, or None to infer all.
        lam: Noise variance of an evaluation, or None with the kernel.
        refit: When hyperparameters are fitted; None for never.
        num_initial: Points before the posterior is used.
        optimizer_options: For `optimize_acqf`.
        mean_module: The prior mean of a kernel that is given; None for a constant that
            the data decide on.
    """

    covar_module: Kernel | None
    lam: float | None
    refit: RefitSchedule | None
    num_initial: int
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    mean_module: Mean | None = None

    @classmethod
    def of(
        cls,
        domain: Domain,
        covar_module: Kernel | None = None,
        lam: float | None = None,
        *,
        mean_module: Mean | None = None,
        refit: RefitSchedule | None = None,
        num_initial: int | None = None,
        optimizer_options: Mapping[str, Any] | None = None,
    ) -> "ModelSettings":
        """Settings with defaults, which differ with and without a kernel.

        See `ModelStrategy` for what the arguments are.

        Raises:
            InputDataError: For options of an optimizer on a table, a number of initial
                points below one, a noise variance or mean that do not fit, or inputs
                whose squares overflow in a kernel that is given.
        """
        options = domain.optimizer_options(optimizer_options)
        if num_initial is not None:
            check_whole("num_initial", num_initial)
        is_inferred = covar_module is None
        validate_lam(lam, is_inferred=is_inferred)
        validate_mean(mean_module, is_inferred=is_inferred)
        if refit is not None:
            need = "a RefitSchedule, such as RefitSchedule(growth=2.0), or None"
            check_kind("refit", refit, RefitSchedule, need)
        if covar_module is None:
            refit = RefitSchedule(growth=DEFAULT_GROWTH) if refit is None else refit
        else:
            need = "a GPyTorch kernel, such as RBFKernel(), or None to infer one"
            check_kind("covar_module", covar_module, Kernel, need)
            lam = DEFAULT_LAM if lam is None else lam
            covar_module = in_double(covar_module, domain.dtype)
            refuse_large_inputs(domain)
        if num_initial is None:
            num_initial = domain.num_initial(is_known=refit is None)
        refit = None if refit is None else replace(refit)
        return cls(covar_module, lam, refit, num_initial, options, mean_module)

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
        """Plain values for a state to agree on; the kernel is not among them."""
        return {
            "lam": self.lam,
            "mean": _mean_config(self.mean_module),
            "refit": fingerprint(self.refit, "refit"),
            "num_initial": self.num_initial,
            "optimizer_options": fingerprint(
                self.optimizer_options, "optimizer_options"
            ),
        }


def validate_lam(lam: float | None, *, is_inferred: bool = False) -> None:
    """Refuse a regularizer that is not positive, or that will be inferred."""
    if lam is None:
        return
    if is_inferred:
        raise InputDataError(
            f"Got lam={lam} without covar_module: noise and kernel are given together "
            "or inferred together. Give both, or neither."
        )
    need = "need a positive noise variance, such as 1e-4 times the variance of the "
    check_number("lam", lam, "(0, inf)", f"{need}observations.")


def validate_mean(mean_module: object, *, is_inferred: bool) -> None:
    """Refuse what is not a prior mean, or one without a kernel."""
    if mean_module is None:
        return
    need = "a GPyTorch mean, such as ZeroMean(), or None for a constant that the data "
    check_kind("mean_module", mean_module, Mean, f"{need}decide on")
    if is_inferred:
        raise InputDataError(
            "Got mean_module without covar_module: the mean is inferred with the "
            "kernel. Give both, or neither."
        )


def _mean_config(mean_module: Mean | None) -> Any:
    """A prior mean in plain values; None for a constant that data decide on."""
    if mean_module is None:
        return None
    state = mean_module.state_dict().items()
    parameters = {name: value.tolist() for name, value in state}
    return [type(mean_module).__name__, parameters]
