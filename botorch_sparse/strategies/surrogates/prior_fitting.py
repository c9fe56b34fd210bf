"""How a prior is made: from a kernel that is given, or by a fit to the feedback."""

import math
import warnings
from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from botorch.exceptions import ModelFittingError
from botorch.exceptions.warnings import BotorchWarning, InputDataWarning
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import ChainedInputTransform
from botorch.models.transforms.outcome import ChainedOutcomeTransform
from botorch.models.utils.gpytorch_modules import MIN_INFERRED_NOISE_LEVEL
from botorch.utils.sampling import manual_seed
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn.functional import pad

from botorch_sparse.argument_checks import short_list
from botorch_sparse.kernels import dense_covariance, shrink_lengthscales
from botorch_sparse.kernels.related_kernel import RelatedKernel
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import (
    condition_with_constant_mean,
    constant_mean,
)
from botorch_sparse.strategies.data.domain import Domain, draw_seed
from botorch_sparse.strategies.data.run_record import (
    Evaluations,
    FoldedEvaluations,
    evaluations_at,
)
from botorch_sparse.strategies.surrogates.inferred_kernels import (
    fingerprint_kernel,
    inferred_likelihood,
    matern_kernel,
)
from botorch_sparse.strategies.surrogates.log_warp import LogWarp, LogWarpTransform
from botorch_sparse.strategies.surrogates.model_inputs import ModelInputs
from botorch_sparse.strategies.surrogates.prior import (
    Hyperparameters,
    PosteriorSettings,
    Prior,
    kernel_config,
)
from botorch_sparse.strategies.surrogates.related import RelatedData, RelatedMeans
from botorch_sparse.strategies.surrogates.robust_evaluations import (
    lie_apart,
    moved_to_others,
)

# Hyperparameters are fitted by the exact likelihood of at most so many points.
FIT_SIZE = 300
# Iterations of a fit on the other scale, from the one on the present scale.
OTHER_STEPS = 10
# By how much the log likelihood has to be larger on a logarithmic scale. Of a Bayes
# factor, [KassRaftery1995]_ call so much strong evidence.
STRONG = 3.0
# The variance of the factor of a campaign that is left out; zero has no logarithm.
UNRELATED = 1e-6
# Evaluations before the first fit.
FEWEST_FITTED = 3
# The least noise variance that a given lambda may have, where it is not fitted.
MIN_NOISE = 1e-12
# A standard deviation of feedback below this share of the largest value may be
# rounding, and below the other the squares underflow.
LEAST_SPREAD, SMALLEST_SPREAD = 1e-14, 1e-150


class PriorSource:
    """Makes a prior, and makes it anew when a fit is due.

    With a kernel the data are taken as they are. The prior mean is the one that was
    given, or a constant by generalized least squares. Without a kernel feedback, or
    what a logarithmic scale makes of it, is in units of its standard deviation at the
    last fit. Kernel, noise and constant mean are the ones of `SparseSingleTaskGP`.

    Models are always built from the same parts in the same way, so that a run that was
    saved and loaded rounds alike.

    Args:
        domain: Where points are.
        settings: What is given, and when to fit. Where a given kernel is fitted, its
            noise stays above 1e-4 of its prior variance, BoTorch's least noise for
            standardized outcomes, or above half of `lam` where that is less. Without
            noise in the data the likelihood would take it to zero, and confidence
            intervals with it.
        inferred_kernel: From the number of features to the kernel that is fitted where
            none is given; by default as in `SparseSingleTaskGP`.
        least_noise: The least noise variance where none is given, in variances of the
            feedback.

    Attributes:
        inputs: What a model takes of points.
        min_noise: The least noise variance of a fit.
        has_noise_prior: Whether an inferred noise has BoTorch's prior.
    """

    def __init__(
        self,
        domain: Domain,
        settings: PosteriorSettings,
        *,
        inferred_kernel: Callable[[int], Kernel] | None = None,
        least_noise: float = MIN_INFERRED_NOISE_LEVEL,
    ) -> None:
        self.settings = settings
        self.ranks = domain.ranks
        self.inferred_kernel = inferred_kernel
        self.has_noise_prior = True
        if self.is_inferred:
            self.inputs = ModelInputs.of_inferred_kernel(domain)
        else:
            self.inputs = ModelInputs(domain.ranges.clone())
        if columns := self.inputs.block_columns:
            self.inferred_kernel = partial(fingerprint_kernel, columns)
        self.min_noise = self._least_noise(least_noise)
        if settings.related:
            campaigns = tuple([self._campaign(data) for data in settings.related])
            self.inputs = replace(self.inputs, campaigns=campaigns)
            self.inferred_kernel = partial(RelatedKernel, len(campaigns))

    @torch.no_grad()
    def _least_noise(self, inferred: float) -> float:
        """With a kernel and `refit` it may be less than where all is inferred."""
        kernel, lam = self.settings.covar_module, self.settings.lam
        if kernel is None or lam is None:
            return inferred
        if self.settings.refit is None:
            return MIN_NOISE
        variance = kernel(self.inputs.bounds, diag=True).max()
        return min(MIN_INFERRED_NOISE_LEVEL * float(variance), lam / 2)

    def within(self, reach: float) -> "PriorSource":
        """The same for fits to a small part of a box, whose sides are `reach`.

        The kernel is Matern's for inputs in such a part. The noise has no prior: the
        density of BoTorch's at a variance of 1e-8 is e^-90 of the largest one.
        """
        other = copy(self)
        other.inferred_kernel = partial(matern_kernel, reach=reach)
        other.has_noise_prior = False
        return other

    def turned(self, axes: Tensor | None) -> "PriorSource":
        """The same for inputs that are coordinates along axes, `d x d`, or features.

        The columns of `axes` are in sides of the box. The kernel is inferred.
        """
        other = copy(self)
        other.inputs = replace(self.inputs, axes=axes)
        return other

    @property
    def is_inferred(self) -> bool:
        """Whether the kernel was left out."""
        return self.settings.covar_module is None

    def _campaign(self, data: RelatedData) -> SparseSingleTaskGP:
        """A model of the standardized values of an earlier campaign, fitted to it.

        Where values that lie apart count less, so do those of the campaign; and so do
        those that its others contradict.
        """
        X, Y = self.inputs(data.X), data.Y
        is_apart = torch.zeros_like(Y, dtype=torch.bool)
        if is_robust := self.settings.robust:
            is_apart = lie_apart(Y.cpu()).to(Y.device)
            Y = moved_to_others(Y, is_apart)
        Y = Y / Y.abs().max()  # squares of very large or small ones are lost
        Y = ((Y - Y.mean()) / Y.std()).unsqueeze(-1)
        with warnings.catch_warnings():
            # It may have been outside of the new ranges.
            warnings.simplefilter("ignore", category=InputDataWarning)
            model = SparseSingleTaskGP(
                X, Y, outcome_transform=None, input_transform=None, robust=is_robust
            )
        with warnings.catch_warnings(), manual_seed(0), torch.enable_grad():
            warnings.filterwarnings("ignore", ".*taken to be outliers", BotorchWarning)
            fit_or_keep(model, f"{len(X)} related values")
        announce_related(is_apart | (model.outlier_noise > 0))
        return model.eval().requires_grad_(False)

    def config(self, domain: Domain) -> dict[str, Any]:
        """Plain values for a state to agree on.

        The kernel, the settings, and the ranges where they are not the domain's own.
        """
        kernel = kernel_config(
            self.settings.covar_module, self.inputs(domain.example_rows())
        )
        config = {"kernel": kernel, **self.settings.config()}
        if not self.inputs.is_scaled_by(domain):
            config["scaled_by"] = self.inputs.bounds.tolist()
        return config

    def initial(self) -> Prior:
        """The prior before any fit."""
        kernel, lam = self.settings.covar_module, self.settings.lam
        if kernel is None or lam is None:
            return self._prior(None, 1.0, None, 1.0)
        return Prior(kernel, lam, mean_module=self.settings.mean_module)

    def awaits_fit(self, prior: Prior) -> bool:
        """Whether kernel and noise are still those from before the first fit."""
        return self.settings.refit is not None and prior.last_fit is None

    def in_units(self, prior: Prior, values: Tensor) -> Prior:
        """A prior that was not fitted yet, in standard deviations of what is known."""
        is_known = not self.is_inferred or prior.last_fit is not None
        if is_known or not is_spread(values):
            return prior
        return replace(prior, scale=float(values.std()))

    def deviation(self, sd: Tensor, values: Tensor) -> Tensor:
        """Standard deviations; NaN while nothing says their unit.

        That is where the kernel is inferred, and no two values differ yet but for
        rounding.
        """
        is_known = not self.is_inferred or is_spread(values)
        return sd if is_known else torch.full_like(sd, torch.nan)

    def is_due(self, last_fit: int | None, record: Evaluations) -> bool:
        """Whether hyperparameters last fitted to so many evaluations are due again.

        Not before there are three that differ: less says nothing of a kernel, and fits
        begin where the last one ended.
        """
        values, refit = record.values, self.settings.refit
        if refit is None or len(values) < FEWEST_FITTED or not is_spread(values):
            return False
        schedule = copy(refit)
        schedule.last_fit = last_fit
        return schedule.is_due(len(values))

    def fitted(
        self,
        prior: Prior,
        record: Evaluations,
        seed: int,
        values: FoldedEvaluations | None = None,
        max_steps: int | None = None,
    ) -> Prior:
        """The prior fitted to a history, from where it stands.

        It keeps its warp, whose scale values are on, and is fitted to `fitted_points`.
        See `_fit_to` for how. A campaign without which these are likelier counts for
        nothing until the next fit: the variance of its factor has a prior far from
        zero. Cost: O(min(n, 300)^3) for each step, and for each campaign.
        """
        few = fitted_points(record.folded() if values is None else values, seed)
        with manual_seed(seed), torch.enable_grad():
            model = self._fit_to(record, few, prior, max_steps)
        scale = float(model.outcome_transform.stdvs) if self.is_inferred else 1.0
        fitted = replace(prior, center=0.0, scale=scale, last_fit=len(record))
        fitted = self._with_hyperparameters(fitted, hyperparameters_of(model))
        if not self.inputs.campaigns:
            return fitted
        return self._without_unrelated(fitted, model, evaluations_at(record, few))

    def _without_unrelated(
        self, fitted: Prior, model: SparseSingleTaskGP, data: FoldedEvaluations
    ) -> Prior:
        """The same but for campaigns without which the data are likelier.

        One after the other is left out; other hyperparameters stay. Cost: O(n^3) for
        each.
        """
        largest = log_density(self, fitted, data)
        for part in model.covar_module.known:
            raw = part.raw_outputscale.detach().clone()
            part.outputscale = UNRELATED
            other = self._with_hyperparameters(fitted, hyperparameters_of(model))
            if (density := log_density(self, other, data)) > largest:
                fitted, largest = other, density
            else:
                part.initialize(raw_outputscale=raw)
        return fitted

    def fitted_anew(
        self, prior: Prior, record: Evaluations, num: int, generator: torch.Generator
    ) -> Prior:
        """`fitted`, and each time that evaluations have doubled on the better scale.

        Args:
            prior: What is known of it.
            record: What is fitted to.
            num: How many evaluations there are, with those that count for nothing here.
            generator: Source of randomness.

        Returns:
            The prior after `num` evaluations, with lengthscales as they were fitted.
        """
        seed, last = draw_seed(generator), prior.last_fit or 0
        may_warp = self.is_inferred and record.is_objective
        warp = LogWarp.of(record.values) if may_warp else None
        prior = self.shrunk(prior, 1.0)
        prior = replace(prior, warp=None if prior.warp is None else warp)
        fitted = self.fitted(prior, record, seed)
        if warp is not None and last.bit_length() < num.bit_length():
            fitted = self.on_better_scale(fitted, warp, record, seed)
        return replace(fitted, last_fit=num)

    def on_better_scale(
        self,
        fitted: Prior,
        warp: LogWarp,
        record: Evaluations,
        seed: int,
        values: FoldedEvaluations | None = None,
    ) -> Prior:
        """A prior after `fitted`, or the one on the other scale where that is better.

        On a logarithmic scale noise is largest near the best values: where there is
        much of it values stay as they are.

        Args:
            fitted: What a fit has made, with a warp or without.
            warp: The logarithmic scale to try, where it has none.
            record: What it was fitted to.
            seed: Chooses the points of a fit.
            values: See `fitted`.
        """
        few = fitted_points(record.folded() if values is None else values, seed)
        other = replace(fitted, warp=warp if fitted.warp is None else None)
        other = self.fitted(other, record, seed, few, OTHER_STEPS)
        plain, warped = (fitted, other) if fitted.warp is None else (other, fitted)
        data = evaluations_at(record, few)
        gain = log_density(self, warped, data) - log_density(self, plain, data)
        is_better = gain > STRONG and not warped.is_noisy(self.inputs(data.X))
        return warped if is_better else plain

    def _fit_to(
        self,
        record: Evaluations,
        few: FoldedEvaluations,
        prior: Prior,
        max_steps: int | None,
    ) -> SparseSingleTaskGP:
        """A model of some points, fitted by their exact likelihood.

        The collapsed bound of all points, at the same cost, puts down to noise what the
        inducing points leave open; that widens intervals and batches, which rest on the
        noise, many times. A fit ends where steps gain little: the next one begins
        there. The first one of at most `max_steps` goes on to them.
        """
        from botorch_sparse.models.fit.candidate_fits import (
            in_few_steps,
            with_optimizer,
        )
        from botorch_sparse.models.fit.log_parameters import (
            fit_gpytorch_mll_in_logarithms,
        )

        is_chosen = torch.isin(record.point, few.point)
        evaluations = is_chosen.nonzero().squeeze(-1)
        S = self.inputs(evaluations_at(record, few).X)
        start = prior.hyperparameters
        model = self.build(record, evaluations, S, start, warp=prior.warp)
        options: dict[str, Any] = {}
        if max_steps is not None:
            options = {"optimizer_kwargs": {"options": {"maxiter": max_steps}}}
        if max_steps is not None and start is None:
            options = with_optimizer(options, fit_gpytorch_mll_in_logarithms)
        else:
            options = in_few_steps(options)
        fit_or_keep(model, f"{len(evaluations)} evaluations", **options)
        return model

    def shrunk(self, prior: Prior, lengthscale_factor: float) -> Prior:
        """The same prior with its fitted lengthscales multiplied by a factor."""
        if lengthscale_factor == prior.lengthscale_factor:
            return prior
        other = replace(prior, lengthscale_factor=lengthscale_factor)
        return self._with_hyperparameters(other, prior.hyperparameters)

    def _with_hyperparameters(
        self, prior: Prior, hyperparameters: Hyperparameters | None
    ) -> Prior:
        """The same prior with other hyperparameters."""
        made = self._prior(
            hyperparameters, prior.scale, prior.last_fit, prior.lengthscale_factor
        )
        return replace(made, center=prior.center, warp=prior.warp)

    def _prior(
        self,
        hyperparameters: Hyperparameters | None,
        scale: float,
        last_fit: int | None,
        lengthscale_factor: float,
    ) -> Prior:
        """The prior of a model of one made-up observation."""
        low, num_campaigns = self.inputs.bounds[:1], len(self.inputs.campaigns)
        X = pad(torch.zeros_like(low), (0, num_campaigns))
        model = self._model(X, X.new_zeros(1, 1), X).eval()
        _adapt(model, hyperparameters, lengthscale_factor)
        return Prior(
            model.covar_module.requires_grad_(False),
            float(model.likelihood.noise.detach()),
            scale,
            self.settings.mean_module,
            hyperparameters,
            last_fit,
            lengthscale_factor,
        )

    def prior_of_state(self, state: dict[str, Any]) -> Prior:
        """The prior that a state came from."""
        if state["hyperparameters"] is None and state["lengthscale_factor"] == 1.0:
            return replace(self.initial(), scale=state["scale"])
        prior = self._prior(
            state["hyperparameters"],
            state["scale"],
            state["last_fit"],
            state["lengthscale_factor"],
        )
        warp = state.get("warp")
        warp = warp and LogWarp(*warp)
        return replace(prior, center=state["center"], warp=warp)

    def build(
        self,
        record: Evaluations,
        evaluations: Tensor,
        inducing_points: Tensor,
        hyperparameters: Hyperparameters | None,
        lengthscale_factor: float = 1.0,
        *,
        of_points: bool = False,
        warp: LogWarp | None = None,
    ) -> SparseSingleTaskGP:
        """A model, in eval mode, of evaluations at some places in the record.

        It takes features where it is `of_points`, and scales them and `warp`s values
        itself; else inputs, and it is a model of values on the scale of `warp`.
        """
        points = record.points(record.point[evaluations])
        X = self.inputs.features(points) if of_points else self.inputs(points)
        Y = record.values[evaluations].to(X.device)
        Y = Y if warp is None else warp(Y)
        model = self._model(X, Y.unsqueeze(-1), inducing_points, of_points=of_points)
        _adapt(model, hyperparameters, lengthscale_factor)
        if not self.is_inferred and self.settings.mean_module is None:
            model.mean_module = _constant(model, X, Y.to(X), inducing_points)
        if of_points and warp is not None:
            model.outcome_transform = ChainedOutcomeTransform(
                warped=LogWarpTransform(warp), standardized=model.outcome_transform
            )
        return model.eval()

    def _model(
        self, X: Tensor, Y: Tensor, S: Tensor, *, of_points: bool = False
    ) -> SparseSingleTaskGP:
        """A model with the initial hyperparameters."""
        modules = self.modules(X, Y, of_points=of_points)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=InputDataWarning)
            return SparseSingleTaskGP(X, Y, inducing_points=S, **modules)

    def modules(
        self, X: Tensor, Y: Tensor, *, of_points: bool = False
    ) -> dict[str, Any]:
        """Parts of a model of `n x d` inputs and `n x 1` outcomes, but for these."""
        kernel, lam, dim = self.settings.covar_module, self.settings.lam, X.shape[-1]
        dim += len(self.inputs.campaigns) * of_points
        if kernel is None or lam is None:
            has_prior = self.has_noise_prior
            likelihood = inferred_likelihood(self.min_noise, has_prior=has_prior).to(X)
            inferred: dict[str, Any] = {"likelihood": likelihood}
            if self.inferred_kernel is not None:
                inferred["covar_module"] = self.inferred_kernel(dim).to(X)
            if of_points:
                bounds = self.inputs.bounds
                d = bounds.shape[-1]
                scaled = Normalize(d, bounds=bounds, learn_bounds=False)
                inferred["input_transform"] = scaled
                if campaigns := self.inputs.campaigns:
                    means = RelatedMeans(campaigns)
                    both = ChainedInputTransform(scaled=scaled, means=means)
                    inferred["input_transform"] = both
            return inferred | {"outcome_transform": standardize(Y)}
        constraint = GreaterThan(self.min_noise)
        likelihood = GaussianLikelihood(noise_constraint=constraint).to(X)
        likelihood.noise = X.new_tensor(lam)  # a number would be float32
        mean = self.settings.mean_module or constant_mean(Y.new_zeros(()))
        return {
            "covar_module": deepcopy(kernel),
            "likelihood": likelihood,
            "mean_module": deepcopy(mean).requires_grad_(False),
            "outcome_transform": None,
        }


def fitted_points(values: FoldedEvaluations, seed: int) -> FoldedEvaluations:
    """At most `FIT_SIZE` points, drawn uniformly, each with all of its evaluations."""
    g = torch.Generator().manual_seed(seed)
    return values.at(torch.randperm(len(values), generator=g)[:FIT_SIZE].sort().values)


@torch.no_grad()
def log_density(source: PriorSource, prior: Prior, data: FoldedEvaluations) -> float:
    r"""The logarithm of the density of `n` values under a prior. Cost: O(n^3).

    .. math:: \log N(z; \hat c 1, K + D) + \sum_i \log \frac{d z_i}{d y_i}

    for standardized values `z` and their best constant mean.
    """
    X, Y = source.inputs(data.X), prior.standardize(data.Y)
    K = dense_covariance(prior.covar_module, X, X)
    K.diagonal().add_(prior.lam / data.counts)
    L = psd_safe_cholesky(K)
    ones = torch.stack([Y, torch.ones_like(Y)], dim=-1)
    y, one = torch.linalg.solve_triangular(L, ones, upper=False).unbind(-1)
    rest = y - one * (y @ one) / (one @ one)
    value = -0.5 * rest.square().sum() - (L.diagonal() * prior.scale).log().sum()
    if prior.warp is not None:
        value = value + prior.warp.log_slope(data.Y).sum()
    return float(value - len(Y) * math.log(2 * math.pi) / 2)


def announce_related(is_odd: Tensor) -> None:
    """Warn of the values of an earlier campaign, of `n`, that count less."""
    if rows := is_odd.nonzero().flatten().tolist():
        warnings.warn(
            f"Of {len(is_odd)} related values those in rows {short_list(rows, 10)} "
            "(from 0, of what was measured) lie far from all others, or these "
            "contradict them. They count less. Correct those that are mistakes. With "
            "robust=False all are taken as they are.",
            InputDataWarning,
            stacklevel=2,
        )


def is_spread(values: Tensor) -> bool:
    """Whether values differ by more than rounding."""
    return len(values) > 1 and bool(values.double().std() >= least_deviation(values))


def least_deviation(values: Tensor) -> float:
    """The least standard deviation that is more than rounding."""
    return max(LEAST_SPREAD * float(values.abs().max()), SMALLEST_SPREAD)


def standardize(Y: Tensor) -> Standardize:
    """`Standardize` for `n x 1` values of any size; below 1e-8 BoTorch's does nothing.

    A spread that may be rounding of the values is left as it is.
    """
    return Standardize(m=1, min_stdv=least_deviation(Y))


def of_standardized(model: SingleTaskGP) -> SingleTaskGP:
    """The same model for outcomes as it standardizes them; it shares all parts.

    Tolerances of optimizers (gradients of 1e-5) and GPyTorch's least variance (1e-10)
    are absolute: in units of the user small feedback would be flat to them.
    """
    other, parts = copy(model), dict(model._modules)
    parts.pop("outcome_transform", None)
    other._modules = parts
    return other


def fit_or_keep(model: SingleTaskGP, data: str, **options: Any) -> None:
    """Fit a model; where that fails its hyperparameters stay, with a warning."""
    # BoTorch's optimizers take time to import, and a fit alone needs them.
    from botorch.fit import fit_gpytorch_mll

    before = hyperparameters_of(model)
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    try:
        fit_gpytorch_mll(mll, **options)
    except ModelFittingError as error:
        warnings.warn(
            f"Hyperparameters stay as they were, since a fit to {data} failed: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        set_hyperparameters(model, before)


def hyperparameters_of(model: SingleTaskGP) -> Hyperparameters:
    """Copies of a model's parameters, by name."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@torch.no_grad()
def set_hyperparameters(model: SingleTaskGP, hyperparameters: Hyperparameters) -> None:
    """Give a model the parameters of another one that was built alike."""
    for name, parameter in model.named_parameters():
        parameter.copy_(hyperparameters[name])


def _adapt(
    model: SparseSingleTaskGP, hyperparameters: Hyperparameters | None, factor: float
) -> None:
    """Set hyperparameters, if there are some, and multiply the lengthscales."""
    if hyperparameters is not None:
        set_hyperparameters(model, hyperparameters)
    if factor != 1.0 and any(part.has_lengthscale for part in _kernels_in(model)):
        model.covar_module = shrink_lengthscales(model.covar_module, factor)


def _kernels_in(model: SparseSingleTaskGP) -> list[Kernel]:
    modules = model.covar_module.modules()
    return [module for module in modules if isinstance(module, Kernel)]


@torch.no_grad()
def _constant(model: SparseSingleTaskGP, X: Tensor, Y: Tensor, S: Tensor) -> Mean:
    """The constant mean of all data. Cost: O(n m^2)."""
    noise = model.likelihood.noise.expand(len(X))
    prior = NystromPosterior.prior(model.covar_module, S)
    return condition_with_constant_mean(prior, X, Y, noise).mean_module
