"""Models of a strategy: built from its history, fitted, and built alike again."""

import warnings
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any, TypeAlias

import torch
from botorch.exceptions import ModelFittingError
from botorch.exceptions.warnings import InputDataWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.models.utils.gpytorch_modules import MIN_INFERRED_NOISE_LEVEL
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.kernels import shrink_lengthscales
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.fit.log_parameters import fit_gpytorch_mll_in_logarithms
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import (
    condition_with_constant_mean,
    constant_mean,
)
from botorch_sparse.strategies.data.evaluations import FoldedEvaluations
from botorch_sparse.strategies.data.history import History

Hyperparameters: TypeAlias = dict[str, Tensor]

# Hyperparameters are fitted by the exact likelihood of at most so many points.
FIT_SIZE = 300
# The least noise variance that a given lambda may have, where it is not fitted.
MIN_NOISE = 1e-12
# A standard deviation of feedback below this share of the largest value may be
# rounding, and below the other the squares underflow.
LEAST_SPREAD, SMALLEST_SPREAD = 1e-12, 1e-150


class ModelBuilder:
    """Builds the model of a history.

    With a kernel the data are taken as they are; the prior mean is the one that was
    given, or a constant by generalized least squares. Without a kernel, inputs are
    scaled to the unit cube, outcomes are standardized, and kernel, noise and constant
    mean are BoTorch's defaults.

    Models are always built from the same parts in the same way, so that a run that was
    saved and loaded rounds alike.

    Args:
        bounds: `2 x d` bounds of the domain; those of the columns in use.
        covar_module: A kernel for float64, or None.
        lam: Its noise variance, or None.
        is_fitted: Whether hyperparameters are fitted. A kernel's noise then stays above
            1e-4 of its prior variance, BoTorch's least noise for standardized outcomes,
            or above half of `lam` where that is less: without noise in the data the
            likelihood would take it to zero, and confidence intervals with it.
        mean_module: The prior mean of a given kernel; None estimates a constant.
        columns: Which features of the points to use; all by default.
        inferred_kernel: From the number of features to the kernel that is fitted where
            none is given; by default that of `SparseSingleTaskGP`.
    """

    def __init__(
        self,
        bounds: Tensor,
        covar_module: Kernel | None,
        lam: float | None,
        *,
        is_fitted: bool = False,
        mean_module: Mean | None = None,
        columns: Tensor | None = None,
        inferred_kernel: Callable[[int], Kernel] | None = None,
    ) -> None:
        self.bounds = bounds.double()
        self.covar_module = covar_module
        self.lam = lam
        self.mean_module = mean_module
        self.columns = columns
        self.inferred_kernel = inferred_kernel
        self.min_noise = self._least_noise() if is_fitted else MIN_NOISE

    @torch.no_grad()
    def _least_noise(self) -> float:
        """The least noise variance of a fit, with a kernel."""
        if self.covar_module is None or self.lam is None:
            return MIN_NOISE
        variance = self.covar_module(self.bounds, diag=True).max()
        return min(MIN_INFERRED_NOISE_LEVEL * float(variance), self.lam / 2)

    def inputs(self, X: Tensor) -> Tensor:
        """The features in use of `... x n x d` points, float64."""
        return (X if self.columns is None else X[..., self.columns]).double()

    def build(
        self,
        history: History,
        evaluations: Tensor,
        inducing_points: Tensor,
        hyperparameters: Hyperparameters | None,
        lengthscale_factor: float = 1.0,
    ) -> SparseSingleTaskGP:
        """A model in eval mode of some evaluations.

        Args:
            history: The history.
            evaluations: Which of its evaluations to take, by their place.
            inducing_points: `m x d`.
            hyperparameters: Of `hyperparameters_of`, or None for the initial ones.
            lengthscale_factor: What multiplies their lengthscales.
        """
        X = self.inputs(history.points(history.point[evaluations]))
        Y = history.values[evaluations]
        model = self._model(X, Y.to(X.device).unsqueeze(-1), inducing_points)
        set_hyperparameters(model, hyperparameters)
        if lengthscale_factor != 1.0:
            model.covar_module = shrink_lengthscales(
                model.covar_module, lengthscale_factor
            )
        if self.covar_module is not None and self.mean_module is None:
            model.mean_module = self._constant(model, X, Y.to(X), inducing_points)
        return model.eval()

    @torch.no_grad()
    def _constant(
        self, model: SparseSingleTaskGP, X: Tensor, Y: Tensor, S: Tensor
    ) -> Mean:
        """The constant mean of all data. Cost: O(n m^2)."""
        noise = model.likelihood.noise.expand(len(X))
        prior = NystromPosterior.prior(model.covar_module, S)
        return condition_with_constant_mean(prior, X, Y, noise).mean_module

    def _model(
        self, X: Tensor, Y: Tensor, inducing_points: Tensor
    ) -> SparseSingleTaskGP:
        arguments: dict[str, Any] = {
            "input_transform": Normalize(
                self.bounds.shape[-1], bounds=self.bounds, learn_bounds=False
            ),
            "outcome_transform": StandardizeAnySize(),
        }
        if self.inferred_kernel is not None:
            arguments["covar_module"] = self.inferred_kernel(X.shape[-1]).to(X)
        if self.covar_module is not None and self.lam is not None:
            likelihood = GaussianLikelihood(
                noise_constraint=GreaterThan(self.min_noise)
            ).to(X)
            likelihood.noise = X.new_tensor(self.lam)
            mean = constant_mean(Y.new_zeros(()))
            arguments = {
                "covar_module": deepcopy(self.covar_module),
                "likelihood": likelihood,
                "mean_module": deepcopy(self.mean_module or mean).requires_grad_(False),
                "outcome_transform": None,
            }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=InputDataWarning)
            return SparseSingleTaskGP(
                X, Y, inducing_points=inducing_points, **arguments
            )

    def prior(
        self,
        hyperparameters: Hyperparameters | None,
        lengthscale_factor: float = 1.0,
    ) -> SparseSingleTaskGP:
        """A model of one made-up observation, for its kernel, noise and transform."""
        X = self.bounds[:1]
        model = self._model(X, X.new_zeros(1, 1), X).eval()
        set_hyperparameters(model, hyperparameters)
        if lengthscale_factor != 1.0:
            model.covar_module = shrink_lengthscales(
                model.covar_module, lengthscale_factor
            )
        return model

    @torch.no_grad()
    def kernel_config(self, X: Tensor) -> dict[str, Any]:
        """A kernel's parameters, exactly, and a few values of it.

        The values are rounded, since their last bits may differ between machines.

        Args:
            X: A few points to evaluate it at.
        """
        if self.covar_module is None:
            return {"default": True}
        K = self.covar_module(X)
        values = [f"{value:.4g}" for value in K.to_dense().flatten().tolist()]
        state = self.covar_module.state_dict()
        return {"values": values} | {k: v.tolist() for k, v in state.items()}


class StandardizeAnySize(Standardize):
    """`Standardize` for `n x 1` values of any size; below 1e-8 BoTorch's does nothing.

    A spread that may be rounding of the values is left as it is.
    """

    def __init__(self) -> None:
        super().__init__(m=1)

    def forward(self, Y: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        """See `Standardize`."""
        if self.training:
            largest = float(Y.abs().max())
            self._min_stdv = max(LEAST_SPREAD * largest, SMALLEST_SPREAD)
        transformed: tuple[Tensor, Any] = super().forward(Y, *args, **kwargs)
        return transformed


def of_standardized(model: SingleTaskGP) -> SingleTaskGP:
    """The same model for outcomes as it standardizes them; it shares all parts.

    Tolerances of optimizers (gradients of 1e-5) and GPyTorch's least variance (1e-10)
    are absolute: in units of the user small feedback would be flat to them.
    """
    other, parts = copy(model), dict(model._modules)
    parts.pop("outcome_transform", None)
    other._modules = parts
    return other


def hyperparameters_of(model: SparseSingleTaskGP) -> Hyperparameters:
    """Copies of a model's parameters, by name."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@torch.no_grad()
def set_hyperparameters(
    model: SparseSingleTaskGP, hyperparameters: Hyperparameters | None
) -> None:
    """Give a model the parameters of another one that was built alike."""
    if hyperparameters is not None:
        for name, parameter in model.named_parameters():
            parameter.copy_(hyperparameters[name])


def fit_hyperparameters(
    builder: ModelBuilder,
    history: History,
    data: FoldedEvaluations,
    start: Hyperparameters | None,
    generator: torch.Generator,
    max_steps: int | None = None,
) -> SparseSingleTaskGP:
    """Fit by the exact likelihood of at most `FIT_SIZE` points, drawn uniformly.

    Each comes with all of its evaluations. The collapsed bound of all points, at the
    same cost, puts down to noise what the inducing points leave open; that widens
    intervals and batches, which rest on the noise, many times.

    Cost: O(FIT_SIZE^3) for each step.

    Args:
        builder: Of the model.
        history: The evaluations.
        data: The same with repeats folded.
        start: Where to start, such as the last ones, or None for the initial ones.
        generator: Draws the points.
        max_steps: Iterations at most; None for no end.

    Returns:
        The model of those points, with the fitted hyperparameters; where the fit
        failed, with those it started from, and a warning.
    """
    chosen = torch.randperm(len(data), generator=generator)[:FIT_SIZE].sort().values
    evaluations = torch.isin(history.point, data.point[chosen]).nonzero().squeeze(-1)
    S = builder.inputs(data.X[chosen.to(data.X.device)])
    model = builder.build(history, evaluations, S, start)
    before = hyperparameters_of(model)
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    options = {} if max_steps is None else {"options": {"maxiter": max_steps}}
    try:
        fit_gpytorch_mll(
            mll, optimizer=fit_gpytorch_mll_in_logarithms, optimizer_kwargs=options
        )
    except ModelFittingError as error:
        warnings.warn(
            f"Hyperparameters stay as they were, since a fit to {len(evaluations)} "
            f"evaluations failed: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        set_hyperparameters(model, before)
    return model
