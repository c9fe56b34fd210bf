"""The prior of a posterior, and the settings that a strategy makes it by."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_flag,
    check_kind,
    check_number,
    check_whole,
)
from botorch_sparse.kernels import in_double
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import condition_with_constant_mean
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.data.domain import Domain, refuse_large_inputs
from botorch_sparse.strategies.surrogates.log_warp import LogWarp
from botorch_sparse.strategies.surrogates.related import RelatedData

Hyperparameters: TypeAlias = dict[str, Tensor]

DEFAULT_GROWTH = 1.2
DEFAULT_LAM = 1e-4
# Noise variance, in prior variances, above which a mean says more than an observation.
NOISY = 0.01


@dataclass(frozen=True, eq=False)
class Prior:
    """The Gaussian process that a posterior starts from; `PriorSource` makes it.

    Attributes:
        covar_module: The kernel, float64, of the inputs of `PriorSource.inputs`.
        lam: Noise variance of an evaluation, of standardized feedback.
        scale: Unit of the feedback.
        mean_module: The prior mean; None for a constant that the data decide on.
        hyperparameters: From which kernel and noise were made, and the unit.
        last_fit: Evaluations at the last fit; None before any.
        lengthscale_factor: What the fitted lengthscales were multiplied by.
        center: What counts as zero, in units of the feedback; for a mean that is known.
        warp: The scale on which feedback is before it is standardized; None for its
            own.
    """

    covar_module: Kernel
    lam: float
    scale: float = 1.0
    mean_module: Mean | None = None
    hyperparameters: Hyperparameters | None = None
    last_fit: int | None = None
    lengthscale_factor: float = 1.0
    center: float = 0.0
    warp: LogWarp | None = None

    def standardize(self, Y: Tensor) -> Tensor:
        """From units of the feedback; of repeats the mean is taken before."""
        Y = Y if self.warp is None else self.warp(Y)
        return (Y - self.center) / self.scale

    def restore(self, values: Tensor) -> Tensor:
        """Back to units of the feedback."""
        values = self.center + self.scale * values
        return values if self.warp is None else self.warp.inverse(values)

    def restore_deviation(self, sd: Tensor, mean: Tensor) -> Tensor:
        """Deviations in units of the feedback, on a warped scale to first order."""
        values, sd = self.center + self.scale * mean, self.scale * sd
        return sd if self.warp is None else sd * self.warp.inverse_slope(values)

    def gap(self, upper: float, lower: float) -> float:
        """How far two standardized values are apart in units of the feedback."""
        if self.warp is None:
            return self.scale * (upper - lower)
        high, low = self.restore(torch.tensor([upper, lower], dtype=torch.double))
        return float(high - low)

    def deviations(self, mean: Tensor, sd: Tensor, values: Tensor) -> Tensor:
        """How many deviations values are above what `restore` gave; of the feedback."""
        if self.warp is None:
            return (values - mean) / sd
        steps = self.warp(values) - self.warp(mean)
        return steps / (sd * self.warp.log_slope(mean).exp())

    def at_deviations(self, mean: Tensor, sd: Tensor, number: Tensor) -> Tensor:
        """Values that are so many deviations above what `restore` gave."""
        if self.warp is None:
            return mean + sd * number
        step = number * sd * self.warp.log_slope(mean).exp()
        return self.warp.inverse(self.warp(mean) + step)

    def is_noisy(self, X: Tensor) -> bool:
        """Whether a mean says more of one of `n x d` inputs than its observation."""
        variance = self.covar_module(X, diag=True).detach().mean()
        return self.lam > NOISY * float(variance)

    def without_data(
        self, S: Tensor, chunk_size: int | None = None
    ) -> NystromPosterior:
        """The posterior without data, with inducing points `S`. Cost: O(m^3)."""
        return NystromPosterior.prior(
            self.covar_module, S, mean_module=self.mean_module, chunk_size=chunk_size
        )

    def condition(
        self, blank: NystromPosterior, X: Tensor, Y: Tensor, noise: Tensor
    ) -> NystromPosterior:
        """What `without_data` made, given data in the prior's unit. Cost: O(n m^2)."""
        if self.mean_module is None:
            return condition_with_constant_mean(blank, X, Y, noise)
        return blank.condition(X, Y, noise)

    def state_dict(self) -> dict[str, Any]:
        """What `PriorSource.prior_of_state` needs."""
        return {
            "hyperparameters": self.hyperparameters,
            "scale": self.scale,
            "last_fit": self.last_fit,
            "lengthscale_factor": self.lengthscale_factor,
            "center": self.center,
            "warp": None if self.warp is None else [self.warp.best, self.warp.unit],
        }


@dataclass(frozen=True)
class PosteriorSettings:
    """What the user said of a posterior: its prior, its fits, its maximization.

    Args:
        covar_module: The kernel for float64 inputs, or None to infer all.
        lam: Noise variance of an evaluation, or None with the kernel.
        refit: When hyperparameters are fitted; None for never.
        num_initial: Points before the posterior is used.
        optimizer_options: For `optimize_acqf`, on a box.
        mean_module: The prior mean of a kernel that is given; None for a constant that
            the data decide on.
        robust: Whether values that lie far from all others count less.
        related: The outcome in earlier campaigns, where the kernel is inferred.
    """

    covar_module: Kernel | None
    lam: float | None
    refit: RefitSchedule | None
    num_initial: int
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    mean_module: Mean | None = None
    robust: bool = False
    related: tuple[RelatedData, ...] = ()

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
        robust: bool = False,
        related: tuple[RelatedData, ...] = (),
    ) -> "PosteriorSettings":
        """Settings with defaults, which differ with and without a kernel.

        See `ModelStrategy` for the arguments.
        """
        options = domain.optimizer_options(optimizer_options)
        if num_initial is not None:
            check_whole("num_initial", num_initial)
        check_flag("robust", robust)
        is_inferred = covar_module is None
        validate_lam(lam, is_inferred=is_inferred)
        validate_mean(mean_module, is_inferred=is_inferred)
        validate_related(related, is_inferred=is_inferred)
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
        return cls(
            covar_module,
            lam,
            refit,
            num_initial,
            options,
            mean_module,
            robust,
            related,
        )

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on; the kernel is not among them."""
        given: dict[str, Any] = {"robust": True} if self.robust else {}
        if self.related:
            given["related"] = [data.checksum() for data in self.related]
            given["related"] += ["robust"] * self.robust  # their models are, too
        return given | {
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


def validate_related(related: tuple[RelatedData, ...], *, is_inferred: bool) -> None:
    """Refuse earlier campaigns with a kernel."""
    if related and not is_inferred:
        raise InputDataError(
            "Got related with covar_module: how much is shared is inferred with the "
            "kernel. Leave out one of them."
        )


def _mean_config(mean_module: Mean | None) -> Any:
    """A prior mean in plain values; None for a constant that data decide on."""
    if mean_module is None:
        return None
    state = mean_module.state_dict().items()
    parameters = {name: value.tolist() for name, value in state}
    return [type(mean_module).__name__, parameters]


@torch.no_grad()
def kernel_config(covar_module: Kernel | None, X: Tensor) -> dict[str, Any]:
    """A kernel's parameters, exactly, and a few values of it.

    The values are rounded, since their last bits may differ between machines.
    """
    if covar_module is None:
        return {"default": True}
    K = covar_module(X).to_dense()
    values = [f"{value:.4g}" for value in K.flatten().tolist()]
    state = covar_module.state_dict()
    return {"values": values} | {k: v.tolist() for k, v in state.items()}
