"""The generator of Ax that builds `SparseSurrogate`."""

import inspect
import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.core.types import TCandidateMetadata
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from ax.generators.torch.botorch_modular.generator import BoTorchGenerator
from ax.generators.torch.botorch_modular.surrogate import Surrogate, SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax.generators.torch_base import TorchGenResults, TorchOptConfig
from ax.utils.common.random import with_rng_seed
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.model import Model
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from botorch_sparse.argument_checks import (
    DTYPES,
    as_python,
    as_seed,
    check_flag,
    check_kind,
)
from botorch_sparse.ax.arm_table import ArmTable
from botorch_sparse.ax.baseline import best_points
from botorch_sparse.ax.cross_validation import LeftOutPredictions, left_out_models
from botorch_sparse.ax.size_schedule import DEFAULT_GROWTH, validate_growth
from botorch_sparse.ax.sparse_acquisition import SparseAcquisition
from botorch_sparse.ax.sparse_surrogate import SparseSurrogate
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.threads import data_unchecked

# Of the rows of each data set, what their generation left there.
Metadata: TypeAlias = list[list[TCandidateMetadata]] | None


class SparseGenerator(BoTorchGenerator):
    """`BoTorchGenerator` for thousands of trials; see `SparseSurrogate`.

    The other arguments are as in `BoTorchGenerator`.

    Args:
        surrogate_spec: By default of `SparseSingleTaskGP`.
        acquisition_class: By default `SparseAcquisition`.
        refit_growth: See `scheduled_size`.
        candidates: The only arms to propose.
        seed: Makes candidates a function of the data; None for the global generators.

    Attributes:
        refits_folds: Whether `refit_on_cv` was asked for; that is always True, for Ax.
        choices: `A x d` candidates in the space of the model, which the adapter sets.
        attempts: Numbers of observations and pending points, and how often candidates
            were generated for them so far.
    """

    _surrogate: Surrogate | None

    def __init__(
        self,
        surrogate_spec: SurrogateSpec | None = None,
        surrogate: Surrogate | None = None,
        acquisition_class: type[Acquisition] | None = None,
        acquisition_options: dict[str, Any] | None = None,
        botorch_acqf_class: type[AcquisitionFunction] | None = None,
        botorch_acqf_options: dict[str, Any] | None = None,
        botorch_acqf_classes_with_options: (
            list[tuple[type[AcquisitionFunction], dict[str, Any]]] | None
        ) = None,
        refit_on_cv: bool = False,
        warm_start_refit: bool = True,
        use_p_feasible: bool = True,
        refit_growth: float = DEFAULT_GROWTH,
        candidates: ArmTable | None = None,
        seed: int | None = None,
    ) -> None:
        acquisition_class = acquisition_class or SparseAcquisition
        check_flag("refit_on_cv", refit_on_cv)
        if candidates is not None:
            check_kind("candidates", candidates, ArmTable, "an ArmTable, or None")
        if seed is not None:
            seed = as_seed(seed)
        if issubclass(acquisition_class, SparseAcquisition):
            acquisition_class.check_options(acquisition_options or {})
        super().__init__(
            surrogate_spec=surrogate_spec,
            surrogate=surrogate,
            acquisition_class=acquisition_class,
            acquisition_options=acquisition_options,
            botorch_acqf_class=botorch_acqf_class,
            botorch_acqf_options=botorch_acqf_options,
            botorch_acqf_classes_with_options=botorch_acqf_classes_with_options,
            # Ax's `cross_validate` asks the adapter for each fold only where models are
            # refitted, and else computes the exact GP's: dense, in O(n^3).
            refit_on_cv=True,
            warm_start_refit=warm_start_refit,
            use_p_feasible=use_p_feasible,
        )
        self.refits_folds = refit_on_cv
        validate_growth(refit_growth)
        self.refit_growth = refit_growth
        self.candidates = candidates
        self.seed = seed
        self.choices: Tensor | None = None
        self.num_trials = 0  # of the experiment, failed ones too
        self.attempts: tuple[tuple[int, ...], int] = ((), 0)
        self._left_out: tuple[Model, list[LeftOutPredictions] | None] | None = None

    def fit(
        self,
        datasets: Sequence[SupervisedDataset],
        search_space_digest: SearchSpaceDigest,
        candidate_metadata: Metadata = None,
        **kwargs: Any,
    ) -> None:
        """Fit the surrogate; see `BoTorchGenerator.fit`."""
        if self._surrogate is None:
            self._surrogate = SparseSurrogate(
                surrogate_spec=self.surrogate_spec or sparse_surrogate_spec(),
                refit_on_cv=self.refits_folds,
                warm_start_refit=self.warm_start_refit,
                refit_growth=self.refit_growth,
            )
        super().fit(datasets, search_space_digest, candidate_metadata, **kwargs)

    def gen(
        self,
        n: int,
        search_space_digest: SearchSpaceDigest,
        torch_opt_config: TorchOptConfig,
    ) -> TorchGenResults:
        """Generate candidates; see `BoTorchGenerator.gen`.

        With a seed they are the same for the same data and pending points, and others
        when Ax asks again because it does not want these.
        """
        with with_rng_seed(self._next_seed(torch_opt_config)):
            return super().gen(n, search_space_digest, torch_opt_config)

    def best_point(
        self, search_space_digest: SearchSpaceDigest, torch_opt_config: TorchOptConfig
    ) -> Tensor | None:
        """The observed point of the best posterior mean, which Ax notes with a trial.

        Ax's own search among the points goes over them one by one.
        """
        observed = getattr(self._acquisition, "baseline", None)
        if observed is None:
            return None
        best = best_points(
            self.surrogate.model,
            observed,
            torch_opt_config.objective_weights.sum(0, keepdim=True),
            torch_opt_config.outcome_constraints,
            size=1,
        )
        return best[0].detach().cpu()

    def cross_validate(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Predictions for a fold by a new model; see `BoTorchGenerator`."""
        self.refit_on_cv = self.refits_folds
        try:
            return super().cross_validate(*args, **kwargs)
        finally:
            self.refit_on_cv = True

    def left_out_models(self) -> list[LeftOutPredictions] | None:
        """For each model, its predictions without some observations.

        None where the models are of another kind, or folds are to be refitted.
        """
        if self.refits_folds or self._surrogate is None:
            return None
        model = self.surrogate.model
        if self._left_out is None or self._left_out[0] is not model:
            self._left_out = model, left_out_models(model)
        return self._left_out[1]

    def _next_seed(self, torch_opt_config: TorchOptConfig) -> int | None:
        """A seed of its own for each state of the experiment.

        A trial that failed leaves data and pending points as they were before it: so
        trials count too.
        """
        pending = torch_opt_config.pending_observations or []
        num_pending = max(map(len, pending), default=0)
        state = (max(map(len, self.Xs)), num_pending, self.num_trials)
        attempt = self.attempts[1] if self.attempts[0] == state else 0
        self.attempts = (state, attempt + 1)
        if self.seed is None:
            return None
        return hash((self.seed, *state, attempt)) % 2**31

    def _instantiate_acquisition(self, *args: Any, **kwargs: Any) -> Acquisition:
        acquisition = super()._instantiate_acquisition(*args, **kwargs)
        if isinstance(acquisition, SparseAcquisition):
            acquisition.choices = self.choices
        return acquisition


def sparse_surrogate_spec(
    model_options: dict[str, Any] | None = None,
    model_class: type[Model] = SparseSingleTaskGP,
) -> SurrogateSpec:
    """A `SurrogateSpec` of one model.

    Args:
        model_options: Arguments of the model, such as `max_inducing_points`.
        model_class: The model.

    Raises:
        InputDataError: For options that it has not, which Ax would drop, and for
            values that it refuses.
    """
    known = list(inspect.signature(model_class.construct_inputs).parameters.values())
    names = [p.name for p in known[1:] if p.kind is not p.VAR_KEYWORD]
    if unknown := sorted((model_options or {}).keys() - set(names)):
        raise InputDataError(
            f"Got the model_options {unknown}, which {model_class.__name__} has not; "
            f"there are {', '.join(names)}."
        )
    if model_options:
        _check_values(model_class, model_options)
    config = ModelConfig(
        botorch_model_class=model_class,
        model_options=as_python(dict(model_options or {})),
        name=model_class.__name__,
    )
    return SurrogateSpec(model_configs=[config])


def _check_values(model_class: type[Model], model_options: dict[str, Any]) -> None:
    """Let a model of two points refuse the values of its options."""
    # Which columns there are is known with the search space.
    options = {k: v for k, v in model_options.items() if k != "cat_dims"}
    like, points = torch.zeros(1, dtype=torch.float64), options.get("inducing_points")
    if isinstance(points, Tensor) and points.dim():
        like = points if points.dtype in DTYPES else points.double()
    X = torch.zeros(2, like.shape[-1], dtype=like.dtype, device=like.device)
    X[1], Y = 1.0, X.new_tensor([[-(0.5**0.5)], [0.5**0.5]])
    names = [f"x{j}" for j in range(X.shape[-1])]
    data = SupervisedDataset(X, Y, feature_names=names, outcome_names=["y"])
    with data_unchecked(), warnings.catch_warnings():
        warnings.simplefilter("ignore", category=InputDataWarning)  # of float32
        model_class(**model_class.construct_inputs(data, **options))
