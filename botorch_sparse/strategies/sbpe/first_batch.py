r"""The first batch of S-BPE where the kernel is left out: what is fitted to it.

Its points are drawn without a model, and nothing is ruled out by it. Kernel, noise,
constant mean and scale are fitted to its feedback and fixed from then on.
"""

import warnings
from typing import Any

import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import Kernel

from botorch_sparse.acquisition.confidence import discretization_constant
from botorch_sparse.acquisition.confidence.radius import NormBoundRadius
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import condition_with_constant_mean
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.data.history import History, evaluations_at
from botorch_sparse.strategies.sbpe.batch_lengths import at_least_one
from botorch_sparse.strategies.sbpe.bounds import BatchData
from botorch_sparse.strategies.sbpe.search_prior import (
    InputsKernel,
    OutcomeScale,
    SearchPrior,
)
from botorch_sparse.strategies.surrogates.posterior_settings import ModelSettings
from botorch_sparse.strategies.surrogates.prior import Prior, PriorSource
from botorch_sparse.strategies.surrogates.prior_fitting import FIT_SIZE

# What the noise may add to feedback before it is announced, in its deviations.
MUCH_NOISE = 5.0


class FirstBatch:
    """Draws no conclusions but the prior of the batches that follow.

    Args:
        domain: The table, or the box.
        num_evaluations: The horizon.
        num_initial: Length of the batch; None for `2 d`, at least 5, on a table at
            most 20, and a third of the horizon at most.
        lam: The regularizer in squared units of Y; None for the fitted noise variance.
        noise_std: R in units of Y; None for the root of the fitted noise variance.
        discretization: The least constant c of Assumption 3.6.

    Raises:
        InputDataError: If the horizon leaves no room for it, or all candidates are
            equal.
    """

    def __init__(
        self,
        domain: Domain,
        num_evaluations: int,
        num_initial: int | None = None,
        lam: float | None = None,
        noise_std: float | None = None,
        discretization: float | None = None,
    ) -> None:
        settings = ModelSettings.of(domain, num_initial=num_initial)
        most = at_least_one("num_evaluations", num_evaluations) // 3
        most = domain.num_choosable(most, (), unique=True)
        self.length = _length(num_initial, settings.num_initial, most, num_evaluations)
        self.lam = lam
        self.noise_std = noise_std
        self.discretization = 1.0 if discretization is None else discretization
        self.source = PriorSource(domain, settings)

    @staticmethod
    def can_fit(history: History) -> bool:
        """Whether there are two different values, without which there is no scale."""
        return bool((history.values != history.values[:1]).any())

    def fit(self, history: History, generator: torch.Generator) -> dict[str, Any]:
        """Fit to all feedback that there is.

        Returns:
            Tensors and plain values for `prior`. Cost: see `fit_hyperparameters`, and
            O(n m^2) with at most 300 inducing points for the constant mean.
        """
        prior = self.source.fitted(self.source.initial(), history, generator)
        center = self._center(prior, history)
        return {"prior": prior.state_dict(), "center": center}

    @torch.no_grad()
    def _center(self, prior: Prior, history: History) -> float:
        """The constant mean by generalized least squares, in units of Y.

        The average is taken off first: a constant in the data would cost digits.
        """
        data = evaluations_at(history, history.folded())
        X, average = (
            self.source.inputs(data.X),
            data.Y @ data.counts / data.counts.sum(),
        )
        posterior = condition_with_constant_mean(
            NystromPosterior.prior(prior.covar_module, X[:FIT_SIZE]),
            X,
            (data.Y - average) / prior.scale,
            prior.lam / data.counts,
        )
        rest = posterior.mean_module(X[:1])
        return float(average + prior.scale * rest)

    def prior(self, fit: dict[str, Any] | None) -> SearchPrior:
        """The prior of a fit; before any that of the model."""
        prior, center = self.source.initial(), 0.0
        if fit is not None:
            prior, center = self.source.from_state(fit["prior"]), fit["center"]
        lam = noise_variance = prior.lam
        if self.lam is not None:
            lam = self.lam / prior.scale**2
        if self.noise_std is not None:
            noise_variance = (self.noise_std / prior.scale) ** 2
        kernel, dim = prior.covar_module, self.source.builder.bounds.shape[-1]
        steepest = 1.0 / float(kernel.lengthscale.min())
        return SearchPrior(
            InputsKernel(kernel, self.source.inputs),
            lam,
            noise_variance,
            OutcomeScale(center, prior.scale),
            max(self.discretization, discretization_constant(dim, steepest)),
        )


def _length(given: int | None, default: int, most: int, num_evaluations: int) -> int:
    """The length of the first batch."""
    if most < 2:
        raise InputDataError(
            f"Got num_evaluations={num_evaluations} without covar_module; need 6 or "
            "more, and 2 candidates or more: the kernel is fitted to a first batch of "
            "at least 2 and at most a third of the evaluations. Give covar_module, lam "
            "and noise_std otherwise."
        )
    if given is not None and not 2 <= at_least_one("num_initial", given) <= most:
        raise InputDataError(
            f"Got num_initial={given}; need 2 to {most}: different candidates, and at "
            f"most a third of num_evaluations={num_evaluations}."
        )
    return min(default, most)


@torch.no_grad()
def announce_size(
    data: BatchData, covar_module: Kernel, radius: NormBoundRadius, sign: float
) -> None:
    r"""Warn of feedback that is larger than a given kernel and norm bound allow.

    By the reproducing property :math:`|f(x)| \le F k(x, x)^{1/2}`. What is compared are
    root mean squares, which an offset enlarges as much as a wrong scale does.

    Args:
        data: The feedback of a batch.
        covar_module: The kernel.
        radius: Whose norm bound and noise are meant.
        sign: -1 where the data are minus the feedback.
    """
    k_diag, n = covar_module(data.X, diag=True), data.counts.sum()
    allowed = radius.norm_bound * float((k_diag @ data.counts / n).sqrt())
    size = float((data.Y.square() @ data.counts / n).sqrt())
    if not size > allowed + MUCH_NOISE * radius.noise_variance**0.5:
        return  # also where the kernel returned NaN
    mean = sign * float(data.Y @ data.counts / n)
    needed = float((data.Y.abs() / k_diag.sqrt()).max())
    warnings.warn(
        f"The feedback of the first batch is of size {size:.3g}, with mean {mean:.3g}, "
        f"but norm_bound={radius.norm_bound:.3g} allows for {allowed:.3g}: the theorem "
        "needs |f(x)| <= norm_bound * k(x, x) ** 0.5, and the maximizer may be ruled "
        f"out. Subtract a constant such as {mean:.3g} from all feedback, pass "
        f"norm_bound of at least {needed:.3g}, or leave covar_module out.",
        InputDataWarning,
        stacklevel=2,
    )
