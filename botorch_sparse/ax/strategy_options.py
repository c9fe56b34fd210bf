"""What generation strategies take, checked when they are built."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import pandas as pd
from ax.core.optimization_config import OptimizationConfig
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.logei import (
    qLogNoisyExpectedImprovement,
    qLogProbabilityOfFeasibility,
)
from botorch.acquisition.multi_objective.logei import (
    qLogNoisyExpectedHypervolumeImprovement,
)
from botorch.acquisition.multi_objective.parego import qLogNParEGO
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.optim import (
    gen_batch_initial_conditions,
    optimize_acqf,
    optimize_acqf_discrete,
    optimize_acqf_discrete_local_search,
    optimize_acqf_mixed,
    optimize_acqf_mixed_alternating,
)

from botorch_sparse.argument_checks import (
    as_seed,
    check_kind,
    short_repr,
)
from botorch_sparse.ax.arm_table import ArmTable

Candidates: TypeAlias = (
    ArmTable | pd.DataFrame | Sequence[Mapping[str, Any]] | str | Path
)

# Ax has these for search spaces; the last one finds where the first begins.
OPTIMIZERS: tuple[Callable[..., Any], ...] = (
    optimize_acqf,
    optimize_acqf_mixed,
    optimize_acqf_mixed_alternating,
    optimize_acqf_discrete,
    optimize_acqf_discrete_local_search,
    gen_batch_initial_conditions,
)
# What Ax gives them itself, or needs to be as it is.
GIVEN_BY_AX = {
    *("acq_function", "acq_function_sequence", "bounds", "q", "fixed_features"),
    *("choices", "discrete_choices", "discrete_dims", "cat_dims", "X_avoid"),
    *("inequality_constraints", "equality_constraints", "fixed_features_list"),
    *("batch_initial_conditions", "return_best_only", "return_full_tree"),
    *("post_processing_func", "return_acq_values"),
}
# Ax chooses from these if none is given.
CHOSEN_BY_AX = (
    qLogNoisyExpectedImprovement,
    qLogNoisyExpectedHypervolumeImprovement,
    qLogNParEGO,
    qLogProbabilityOfFeasibility,
)
# What Ax gives to each of them.
DATA_ARGUMENTS = {"model", "training_data", "bounds"}


class StrategyOptions(TypedDict, total=False):
    """What all strategies take.

    Attributes:
        candidates: The only arms to propose: a data frame, parameterizations, or the
            path of a CSV file (see `ArmTable`). The search space must hold them.
        allow_repeats: Whether an arm may be evaluated again. None, the default, leaves
            it to the model: where it finds noise, yes.
        refit_growth: Hyperparameters are fitted and inducing points drawn when the data
            grew by this factor (1.2), and for each trial up to 50 observations.
        model_options: Arguments of the model, such as `max_inducing_points` (200).
        optimizer_options: For the optimizers of acquisition functions: `num_restarts`
            (10, of batches 20), `raw_samples` (1024), ...
        seed: Seed of the Sobol points and of the optimizers. With it the next candidate
            is a function of the data, also after saving and loading. Without it, it
            depends on the global random generators, which `Client(random_seed=...)`
            sets; that seed is not saved.
        name: Name of the strategy.
    """

    candidates: Candidates | None
    allow_repeats: bool | None
    refit_growth: float
    model_options: dict[str, Any] | None
    optimizer_options: dict[str, Any] | None
    seed: int | None
    name: str


def check_strategy_options(options: Mapping[str, Any]) -> None:
    """Refuse options that there are not, or of which one can't be.

    Options of the model, of acquisition functions and of candidates are checked where
    they are used.
    """
    known = StrategyOptions.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        raise InputDataError(
            f"Got the options {unknown}, which there are not; there are "
            f"{', '.join(known)}. Arguments of the model go into model_options, those "
            "of the optimizer into optimizer_options."
        )
    for name in ("model_options", "optimizer_options"):
        _check_mapping(name, options.get(name))
    check_kind("name", options.get("name", ""), str, "a string")
    if (seed := options.get("seed")) is not None:
        as_seed(seed)


def check_optimizer_options(options: Mapping[str, Any]) -> None:
    """Refuse options that none of the optimizers takes that Ax may choose.

    Their values are left to the optimizers, but there must be a sample for each start.
    """
    known = {name for optimizer in OPTIMIZERS for name in _names(optimizer)}
    _check_names("optimizer_options", options, known - GIVEN_BY_AX)
    starts, samples = options.get("num_restarts", 1), options.get("raw_samples")
    if samples is not None and samples < starts:
        raise InputDataError(
            f"Got optimizer_options with raw_samples={samples} and num_restarts="
            f"{starts}; the starts are among the samples: need at least as many."
        )


def check_acquisition(
    acqf_class: type[AcquisitionFunction] | None, acqf_options: Mapping[str, Any] | None
) -> None:
    """Refuse what is no acquisition function that Ax can build, and unknown options."""
    _check_mapping("acqf_options", acqf_options)
    classes = CHOSEN_BY_AX if acqf_class is None else (acqf_class,)
    made_by = [_constructor(each) for each in classes]
    known = {name for each in made_by if each is not None for name in _names(each)}
    if None not in made_by:
        _check_names("acqf_options", acqf_options or {}, known - DATA_ARGUMENTS)


def _constructor(acqf_class: type[AcquisitionFunction]) -> Callable[..., Any] | None:
    """What makes the arguments of an acquisition function for Ax, if it says which."""
    try:
        registered = get_acqf_input_constructor(acqf_class)
    except (RuntimeError, AttributeError, TypeError) as error:  # of no class
        raise InputDataError(
            f"Got acqf_class={short_repr(acqf_class)}, which Ax cannot build: {error}. "
            "Need an AcquisitionFunction such as qUpperConfidenceBound, or None."
        ) from error
    # BoTorch has it in a closure that takes any name, and refuses others later.
    return inspect.getclosurevars(registered).nonlocals.get("f")


def _names(function: Callable[..., Any]) -> set[str]:
    """The names of the arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}


def _check_names(name: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse options that are not known."""
    if unknown := sorted(map(str, set(options) - set(known))):
        raise InputDataError(
            f"Got the {name} {unknown}, which are not known; there are "
            f"{', '.join(sorted(known))}."
        )


def _check_mapping(name: str, value: object) -> None:
    """Refuse what holds no options by name."""
    if value is not None:
        check_kind(name, value, Mapping, "a dictionary of options, or None")


def check_metrics(
    config: OptimizationConfig | None, *, takes_sums: bool = True
) -> None:
    """Refuse combinations of metrics that Ax 1.3 misreads, or that are not taken.

    Ax takes a constraint on several metrics for one on the first of them, and several
    objectives, of which one combines metrics, for one of each metric.

    Args:
        config: What is optimized; None for nothing yet.
        takes_sums: Whether a single objective may combine metrics.

    Raises:
        UnsupportedError: For what is refused.
    """
    if config is None:
        return
    own = "Add the combination as a metric of its own"
    for constraint in config.all_constraints:
        if len(names := constraint.metric_names) > 1:
            raise UnsupportedError(
                f"Got an outcome constraint that combines the metrics {names}; need a "
                f"constraint on one metric. {own}."
            )
    objective = config.objective
    if objective.is_multi_objective:
        for part in objective._parsed[1]:
            if len(names := [name for name, _ in part]) > 1:
                raise UnsupportedError(
                    "Got several objectives, of which one combines the metrics "
                    f"{names}; need one metric for each. {own}."
                )
    elif objective.is_scalarized_objective and not takes_sums:
        raise UnsupportedError(
            f"Got the objective {objective.expression!r}, which combines metrics; "
            f"need one metric. {own}, or use sparse_generation_strategy."
        )
