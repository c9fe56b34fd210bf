"""The model of GSSBO, and the maximizer of an acquisition function on it."""

import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeAlias

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError, ModelFittingError
from botorch.exceptions.warnings import InputDataWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_sparse.models import SubsetSingleTaskGP
from botorch_sparse.models.subset.row_selection import SelectionOptions
from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.data.history import History
from botorch_sparse.strategies.seeding import draw_seed
from botorch_sparse.strategies.surrogates.posterior_settings import ModelSettings
from botorch_sparse.strategies.surrogates.prior_fitting import (
    MIN_NOISE,
    ModelBuilder,
    StandardizeAnySize,
)

MakeAcquisition: TypeAlias = Callable[
    [SubsetSingleTaskGP, Tensor | None], AcquisitionFunction
]


class SubsetSurrogate:
    """`SubsetSingleTaskGP` that takes in feedback and chooses its samples anew.

    With a kernel the data are taken as they are and the prior mean is zero. Without
    one, inputs are scaled to the unit cube, outcomes are standardized, the kernel is a
    Matern-5/2 with BoTorch's priors, and hyperparameters and the scale of the outcomes
    are fitted anew when the schedule says so.

    Args:
        box: The domain.
        settings: How the model is built, fitted and maximized over.
        options: How its samples are chosen.
    """

    def __init__(
        self, box: Box, settings: ModelSettings, options: SelectionOptions
    ) -> None:
        self.box = box
        self.settings = settings
        self.options = options
        self.model: SubsetSingleTaskGP | None = None
        self.selection_seconds = 0.0
        self._last_fit: int | None = None

    @property
    def num_samples(self) -> int:
        """Samples in the model."""
        return 0 if self.model is None else len(self.model.subset_indices)

    def learn(
        self,
        history: History,
        num_learned: int,
        subset_size: int | None,
        generator: torch.Generator,
    ) -> None:
        """Take in new evaluations, choose samples, and fit where that is due.

        The model is replaced, not changed, so that a failure leaves no trace.

        Args:
            history: All evaluations.
            num_learned: How many of them the model has seen.
            subset_size: Largest number of samples, or None for all.
            generator: Of the perturbation and of random choices.
        """
        start, num_newest = time.perf_counter(), 0
        if self.model is None:
            model = self._build(
                history, len(history), subset_size, draw_seed(generator)
            )
        else:
            num_newest = len(history) - num_learned
            model = deepcopy(self.model)
            model.subset_size = subset_size
            model.add_observations(
                *_evaluations(history, num_learned, len(history)), generator=generator
            )
        seconds = time.perf_counter() - start
        if is_due := self.settings.is_refit_due(history.values, self._last_fit):
            _fit(model, draw_seed(generator))
            start = time.perf_counter()
            model.reselect(generator=generator, num_newest=num_newest)
            seconds += time.perf_counter() - start
        model, last_fit = model.eval(), len(history) if is_due else self._last_fit
        self.model, self._last_fit, self.selection_seconds = model, last_fit, seconds

    def _build(
        self, history: History, num: int, subset_size: int | None, seed: int
    ) -> SubsetSingleTaskGP:
        """A model of the first evaluations under the initial hyperparameters."""
        X, Y = _evaluations(history, 0, num)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=InputDataWarning)
            return SubsetSingleTaskGP(
                X,
                Y,
                **self._prior(X),
                **vars(self.options),
                subset_size=subset_size,
                num_initial=self.settings.num_initial,
                seed=seed,
            )

    def _prior(self, X: Tensor) -> dict[str, Any]:
        """Kernel, likelihood, mean and transforms."""
        if self.settings.covar_module is None:
            return {
                "covar_module": get_covar_module_with_dim_scaled_prior(
                    self.box.dim, use_rbf_kernel=False
                ),
                "input_transform": Normalize(
                    self.box.dim, bounds=self.box.bounds.double(), learn_bounds=False
                ),
                "outcome_transform": StandardizeAnySize(),
            }
        likelihood = GaussianLikelihood(noise_constraint=GreaterThan(MIN_NOISE)).to(X)
        likelihood.noise = X.new_tensor(self.settings.lam)  # a number would be float32
        return {
            "covar_module": deepcopy(self.settings.covar_module),
            "likelihood": likelihood,
            "mean_module": ZeroMean(),
            "outcome_transform": None,
        }

    def select(
        self,
        make: MakeAcquisition,
        history: History,
        pending: Tensor,
        generator: torch.Generator,
    ) -> list[int]:
        """The number of the maximizer of an acquisition function.

        Args:
            make: From the model and `j x d` pending points, or None, to the function.
            history: Where the point gets its number.
            pending: `j x d` points.
            generator: Of the optimizer.
        """
        if self.model is None:
            raise InputDataError("The model has no data yet: tell some feedback first.")
        options = self.settings.optimizer_options | self.box.arguments()
        seed = draw_seed(generator)
        given = options.get("options") or {}
        options["options"] = {**self.box.start_options(), **given, "seed": seed}
        with manual_seed(seed):
            acqf = make(self.model, pending.double() if len(pending) else None)
            X, _ = optimize_acqf(acqf, q=1, **options)
        return [history.add_point(x) for x in self.box.clamp(X)]

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        given = self.settings
        builder = ModelBuilder(self.box.bounds, given.covar_module, given.lam)
        bounds = builder.bounds
        few = torch.cat([bounds, bounds.mean(0, keepdim=True)])
        selection = self.options.selection
        name = getattr(selection, "__qualname__", repr(selection))
        settings = given.config() | vars(self.options) | {"selection": name}
        return {"kernel": builder.kernel_config(few)} | settings

    def state_dict(self) -> dict[str, Any]:
        """Hyperparameters, transforms, and the samples in the model in their order."""
        subset = None if self.model is None else _state_of(self.model)
        return {"last_fit": self._last_fit, "subset": subset}

    def load_state_dict(
        self,
        state: dict[str, Any],
        history: History,
        num_learned: int,
        subset_size: int | None,
    ) -> None:
        """Condition again on what had been learned, on the same samples."""
        self.model, self._last_fit = None, state["last_fit"]
        if num_learned > 0:
            model = self._build(history, num_learned, subset_size, 0)
            _restore(model, state["subset"])
            self.model = model.eval()


def _evaluations(history: History, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Points and values of some evaluations, `n x d` and `n x 1`, in float64."""
    X = history.points(history.point[start:stop]).double()
    Y = history.values[start:stop].clone()
    return X, Y.to(X.device).unsqueeze(-1)


def _state_of(model: SubsetSingleTaskGP) -> dict[str, Any]:
    """What a model of the same data needs to go on to the same bits."""
    return {
        "parameters": {k: v.detach().clone() for k, v in model.state_dict().items()},
        "indices": model.subset_indices.clone(),
        "num_selections": model.num_selections,
    }


def _restore(model: SubsetSingleTaskGP, state: dict[str, Any]) -> None:
    """Give a model, built from the same data, the state of another one."""
    model.load_state_dict(state["parameters"])
    model.set_subset(state["indices"])
    model.num_selections = state["num_selections"]


def _fit(model: SubsetSingleTaskGP, seed: int) -> None:
    """Scale the outcomes anew and fit on the samples in the model.

    Where the fit fails, the hyperparameters stay, with a warning.
    """
    model.refit_transforms()
    before = {k: p.detach().clone() for k, p in model.named_parameters()}
    try:
        with manual_seed(seed):
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except ModelFittingError as error:
        warnings.warn(
            f"Hyperparameters stay as they were, since a fit to "
            f"{len(model.subset_indices)} samples failed: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(before[name])
    model.eval()
