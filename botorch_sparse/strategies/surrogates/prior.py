"""Kernel, noise and units of a posterior: given, or fitted to the feedback."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.evaluations import FoldedValues
from botorch_sparse.strategies.data.history import History, evaluations_at
from botorch_sparse.strategies.seeding import draw_seed
from botorch_sparse.strategies.surrogates.posterior_settings import ModelSettings
from botorch_sparse.strategies.surrogates.prior_fitting import (
    Hyperparameters,
    ModelBuilder,
    fit_hyperparameters,
    hyperparameters_of,
)

# Feedback is announced above this, in standard deviations of the kernel, from two
# points on, and below the least from some more.
LARGEST_SCALE, SMALLEST_SCALE = 10.0, 0.01
ENOUGH_POINTS = 10
# Noise is announced above this, in units of lam, from so many repeats on: its estimate
# has a relative deviation of a quarter then.
LARGEST_NOISE, ENOUGH_REPEATS = 10.0, 30

Values = TypeVar("Values", float, Tensor)


@dataclass(frozen=True, eq=False)
class Prior:
    """What a posterior starts from.

    Attributes:
        covar_module: The kernel, float64, of the inputs of `PriorSource.inputs`.
        lam: Noise variance of an evaluation, of feedback divided by `scale`.
        scale: Unit of the feedback.
        mean_module: The prior mean; None for a constant that the data decide on.
        hyperparameters: From which kernel and noise were made, and the unit.
        last_fit: Evaluations at the last fit; None before any.
        lengthscale_factor: What the fitted lengthscales were multiplied by.
        center: What counts as zero, in units of the feedback; for a mean that is known.
    """

    covar_module: Kernel
    lam: float
    scale: float = 1.0
    mean_module: Mean | None = None
    hyperparameters: Hyperparameters | None = None
    last_fit: int | None = None
    lengthscale_factor: float = 1.0
    center: float = 0.0

    def standardize(self, Y: Tensor) -> Tensor:
        """From units of the feedback."""
        return (Y - self.center) / self.scale

    def restore(self, values: Values) -> Values:
        """Back to units of the feedback."""
        return self.center + self.scale * values

    def state_dict(self) -> dict[str, Any]:
        """What `PriorSource.from_state` needs."""
        return {
            "hyperparameters": self.hyperparameters,
            "scale": self.scale,
            "last_fit": self.last_fit,
            "lengthscale_factor": self.lengthscale_factor,
        }


class PriorSource:
    """Makes a prior, and makes it anew when a fit is due.

    Without a kernel the inputs are the features that vary, scaled to [0, 1] by the
    domain's own ranges, and feedback is in units of its standard deviation at the last
    fit; kernel and noise are those of `SparseSingleTaskGP`.

    Args:
        domain: Where points are.
        settings: What is given, and when to fit.
        inferred_kernel: See `ModelBuilder`.
    """

    def __init__(
        self,
        domain: Domain,
        settings: ModelSettings,
        *,
        inferred_kernel: Callable[[int], Kernel] | None = None,
    ) -> None:
        self.settings = settings
        self.ranks = domain.ranks
        low, high = domain.ranges
        columns = None
        if settings.covar_module is None:
            columns = _varying(low, high, domain.feature_names)
            low, high = low[columns], high[columns]
        self._low, self._span = low, high - low
        self.builder = ModelBuilder(
            torch.stack([low, high]),
            settings.covar_module,
            settings.lam,
            is_fitted=settings.refit is not None,
            mean_module=settings.mean_module,
            columns=columns,
            inferred_kernel=inferred_kernel,
        )

    @property
    def is_inferred(self) -> bool:
        """Whether the kernel was left out."""
        return self.builder.covar_module is None

    def inputs(self, X: Tensor) -> Tensor:
        """Points as the kernel takes them, float64."""
        X = self.builder.inputs(X)
        return (X - self._low) / self._span if self.is_inferred else X

    def require_columns(self, domain: Domain) -> None:
        """Refuse a table in which columns vary that are left out.

        Raises:
            InputDataError: If there are some.
        """
        if (columns := self.builder.columns) is None:
            return
        low, high = domain.ranges
        varies = high > low
        varies[columns] = False
        if varies.any():
            names = [domain.feature_names[i] for i in varies.nonzero().flatten()]
            raise InputDataError(
                f"Got candidates whose columns {names[:10]} vary, which were constant "
                "in the first table and are left out; need the kernel, or a strategy "
                "that is built on a table where they vary. Tell it the history."
            )

    def config(self, domain: Domain) -> dict[str, Any]:
        """By what inputs are scaled, if not by the domain's own ranges."""
        ranges = domain.ranges
        if (columns := self.builder.columns) is None:
            return {}
        own = ranges[:, columns]
        is_own = torch.equal(own, self.builder.bounds)
        return {} if is_own else {"scaled_by": self.builder.bounds.tolist()}

    def initial(self) -> Prior:
        """The prior before any fit."""
        kernel, lam = self.builder.covar_module, self.builder.lam
        if kernel is None or lam is None:
            return self._prior(None, 1.0, None, 1.0)
        return Prior(kernel, lam, mean_module=self.builder.mean_module)

    def awaits_fit(self, prior: Prior) -> bool:
        """Whether kernel and noise are still those from before the first fit."""
        return self.settings.refit is not None and prior.last_fit is None

    def is_due(self, prior: Prior, history: History) -> bool:
        """Whether the hyperparameters are to be fitted to a history."""
        return self.settings.is_refit_due(history.values, prior.last_fit)

    def fitted(
        self,
        prior: Prior,
        history: History,
        generator: torch.Generator,
        values: FoldedValues | None = None,
        max_steps: int | None = None,
    ) -> Prior:
        """The prior fitted to a history, from where it stands.

        The exact likelihood of at most 300 points; see `fit_hyperparameters`.

        Args:
            prior: Where it stands.
            history: The evaluations.
            generator: Source of randomness.
            values: The points to fit to; all by default.
            max_steps: Iterations at most; None for no end.
        """
        values = history.folded() if values is None else values
        data = evaluations_at(history, values)
        seed = draw_seed(generator)
        with manual_seed(seed), torch.enable_grad():
            model = fit_hyperparameters(
                self.builder,
                history,
                data,
                prior.hyperparameters,
                torch.Generator().manual_seed(seed),
                max_steps,
            )
        scale = 1.0
        if self.is_inferred:
            scale = float(model.outcome_transform.stdvs)
        factor = prior.lengthscale_factor
        return self._prior(hyperparameters_of(model), scale, len(history), factor)

    def shrunk(self, prior: Prior, lengthscale_factor: float) -> Prior:
        """The same prior with its fitted lengthscales multiplied by a factor."""
        if lengthscale_factor == prior.lengthscale_factor:
            return prior
        return self._prior(
            prior.hyperparameters, prior.scale, prior.last_fit, lengthscale_factor
        )

    def _prior(
        self,
        hyperparameters: Hyperparameters | None,
        scale: float,
        last_fit: int | None,
        lengthscale_factor: float,
    ) -> Prior:
        model = self.builder.prior(hyperparameters, lengthscale_factor)
        return Prior(
            model.covar_module.requires_grad_(False),
            float(model.likelihood.noise.detach()),
            scale,
            self.builder.mean_module,
            hyperparameters,
            last_fit,
            lengthscale_factor,
        )

    def from_state(self, state: dict[str, Any]) -> Prior:
        """The prior that a state came from."""
        is_fitted = state["hyperparameters"] is not None
        if not is_fitted and state["lengthscale_factor"] == 1.0:
            return self.initial()
        return self._prior(
            state["hyperparameters"],
            state["scale"],
            state["last_fit"],
            state["lengthscale_factor"],
        )


def _varying(low: Tensor, high: Tensor, names: Sequence[str]) -> Tensor:
    """The columns that vary; says which are left out.

    Raises:
        InputDataError: If there is none.
    """
    varies = high > low
    if not varies.any():
        raise InputDataError(
            f"Got candidates that are all equal in all {len(varies)} columns; need "
            "at least one that varies."
        )
    if not varies.all():
        constant = (~varies).nonzero().squeeze(-1).tolist()
        shown = ", ".join(names[i] for i in constant[:10])
        warnings.warn(
            f"Columns {shown}{', ...' * (len(constant) > 10)} of the candidates are "
            "constant and left out.",
            InputDataWarning,
            stacklevel=2,
        )
    return varies.nonzero().squeeze(-1)


def announce_noise(history: History, values: FoldedValues, lam: float) -> bool:
    """Warn of repeats that differ by more noise than a given `lam` expects.

    The pooled variance of evaluations about the mean of their point; O(n log n), once.

    Args:
        history: The evaluations.
        values: The same with repeats folded.
        lam: Noise variance of an evaluation, in the units of the feedback.

    Returns:
        Whether there were enough repeats to judge.
    """
    if (degrees := len(history) - len(values)) < ENOUGH_REPEATS:
        return False
    number, order = values.point.sort()
    mean = values.Y[order[torch.searchsorted(number, history.point)]]
    variance = float((history.values - mean).square().sum()) / degrees
    if variance > LARGEST_NOISE * lam:
        warnings.warn(
            f"Evaluations of the same point differ by a variance of {variance:.3g}, "
            f"{variance / lam:.3g} times lam={lam:.3g}: confidence bounds are too "
            f"narrow. Pass lam={variance:.3g} (and noise_variance={variance:.3g} to a "
            "strategy that takes it), or leave covar_module out.",
            InputDataWarning,
            stacklevel=2,
        )
    return True


def announce_scale(Y: Tensor, lam: float, k_diag: float) -> bool:
    """Warn of feedback whose scale does not fit a given kernel.

    Args:
        Y: Means of the feedback at different points.
        lam: Noise variance of an evaluation.
        k_diag: The kernel's variance, its mean over the points.

    Returns:
        Whether there was enough feedback to judge.
    """
    if len(Y) < 2:
        return False
    spread, ours = float(Y.std()), (k_diag + lam) ** 0.5
    is_large = spread > LARGEST_SCALE * ours
    if not is_large and (len(Y) < ENOUGH_POINTS or spread == 0):
        return False
    if is_large or spread < SMALLEST_SCALE * ours:
        ratio = spread / ours
        warnings.warn(
            f"The feedback varies by {spread:.3g} and what the kernel expects, with "
            f"lam, by {ours:.3g}: confidence bounds mean nothing. Divide the feedback "
            f"by {ratio:.3g}; or pass ScaleKernel with an outputscale of "
            f"{spread**2:.3g} and lam of {lam * ratio**2:.3g}; or leave covar_module "
            "out.",
            InputDataWarning,
            stacklevel=2,
        )
    return True
