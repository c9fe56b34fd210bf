"""Generation strategies for Ax: Sobol points, then a sparse Gaussian process."""

from typing import Any, Unpack

from ax.adapter.registry import Generators
from ax.core.experiment_status import ExperimentStatus
from ax.generation_strategy.dispatch_utils import get_derelativize_config
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError

from botorch_sparse.acquisition import (
    BatchUpperConfidenceBound,
    validate_ratio_threshold,
)
from botorch_sparse.argument_checks import as_python, check_number, check_whole
from botorch_sparse.ax.adaptive_batch_acquisition import AdaptiveBatchAcquisition
from botorch_sparse.ax.arm_table import ArmTable
from botorch_sparse.ax.initialization import MinArms
from botorch_sparse.ax.registry import SparseGenerators
from botorch_sparse.ax.size_schedule import DEFAULT_GROWTH, validate_growth
from botorch_sparse.ax.sparse_acquisition import SparseAcquisition
from botorch_sparse.ax.sparse_generator import sparse_surrogate_spec
from botorch_sparse.ax.strategy_options import (
    StrategyOptions,
    check_acquisition,
    check_optimizer_options,
    check_strategy_options,
)
from botorch_sparse.ax.thompson_acquisition import ThompsonAcquisition
from botorch_sparse.models import SubsetSingleTaskGP

# Inducing points of a model, unless asked for otherwise, and bytes that it may take;
# the model's own default depends on what is free at the moment.
MODEL_OPTIONS = {"max_inducing_points": 200, "max_memory": 4 * 1024**3}
# Half of Ax's restarts; with the cheap bound of batches as many as Ax's.
OPTIMIZER_OPTIONS = {"num_restarts": 10, "raw_samples": 1024}
BOUND_OPTIONS = {"num_restarts": 20, "raw_samples": 1024}


def sparse_generation_strategy(
    num_initial: int = 5,
    *,
    acqf_class: type[AcquisitionFunction] | None = None,
    acqf_options: dict[str, Any] | None = None,
    **options: Unpack[StrategyOptions],
) -> GenerationStrategy:
    """Sobol points, then `SparseSingleTaskGP` with Ax's choice of acquisition function.

    Use it in place of Ax's own strategy from a few hundred trials on. Objectives,
    constraints, search spaces and standard errors are handled as there, and standard
    errors that are known for some trials only as well. Up to 200 different arms it is
    the exact GP; from there on `max_inducing_points` trades time for accuracy.

    Cost for a trial: O(n m^2) once, whatever Ax itself takes for `n` trials besides.

    Args:
        num_initial: Arms before the model is used, attached ones counted.
        acqf_class: An acquisition function; by default Ax chooses, such as
            `qLogNoisyExpectedImprovement`.
        acqf_options: Its arguments.
        **options: See `StrategyOptions`.

    Returns:
        A strategy for `Client.set_generation_strategy`.

    Example:
        >>> strategy = sparse_generation_strategy(num_initial=10, seed=0)
        >>> [node.name for node in strategy._nodes]
        ['Sobol', 'SparseGP']
    """
    check_strategy_options(options)
    check_acquisition(acqf_class, acqf_options)
    generator = {
        "botorch_acqf_class": acqf_class,
        "botorch_acqf_options": acqf_options,
        "surrogate_spec": _surrogate_spec(options),
    }
    spec = _sparse_spec(SparseAcquisition, generator, {}, options)
    return _strategy("SparseGP", num_initial, spec, options)


def bbkb_generation_strategy(
    num_initial: int = 5,
    *,
    beta: float = 4.0,
    ratio_threshold: float = 2.0,
    **options: Unpack[StrategyOptions],
) -> GenerationStrategy:
    """Sobol points, then batches of an upper confidence bound [Calandriello2020]_.

    A batch ends when the posterior says so (see `AdaptiveBatchAcquisition`): ask for
    the largest size that you can evaluate at once, and take what comes,

    - with an `Experiment`, by `strategy.gen(experiment, n=20, num_trials=1)`, which
      gives the arms of one batch trial;
    - with a `Client`, by `client.get_next_trials(recommended_batch_size(client))`.

    Hyperparameters are fitted, which no theorem covers, and `beta` is constant; for the
    algorithm with its guarantees see `botorch_sparse.strategies.BBKB`. With outcome
    constraints, and with several objectives, Ax chooses the acquisition function, and
    the rule decides on the size of the batch alone.

    Args:
        num_initial: Arms before the model is used, attached ones counted.
        beta: What the variance is multiplied by in the bound, non-negative.
        ratio_threshold: Largest ratio of variances in a batch, at least one.
        **options: See `StrategyOptions`.

    Returns:
        A strategy for `Client.set_generation_strategy`.
    """
    check_strategy_options(options)
    need = "need a number of at least 0, such as 4."
    check_number("beta", beta, "[0, inf)", need)
    validate_ratio_threshold(ratio_threshold)
    generator = {
        "botorch_acqf_class": BatchUpperConfidenceBound,
        "botorch_acqf_options": {"beta": beta},
        "surrogate_spec": _surrogate_spec(options),
    }
    rule = {"ratio_threshold": ratio_threshold}
    given = options.get("optimizer_options") or {}
    options["optimizer_options"] = {**BOUND_OPTIONS, **given}
    spec = _sparse_spec(AdaptiveBatchAcquisition, generator, rule, options)
    return _strategy("BBKB", num_initial, spec, options)


def gssbo_generation_strategy(
    num_initial: int = 20,
    *,
    subset_size: int = 100,
    acqf_class: type[AcquisitionFunction] | None = None,
    acqf_options: dict[str, Any] | None = None,
    **options: Unpack[StrategyOptions],
) -> GenerationStrategy:
    """Sobol points, then an exact GP on a subset of the trials [Wei2025]_.

    The initial arms, the newest one, and arms that a `selection` chooses anew for each
    trial; see `SubsetSingleTaskGP`. It forgets what is not chosen:
    `sparse_generation_strategy` keeps the information of all trials. The dynamic
    buffer, which goes by the clock, is only in `botorch_sparse.strategies.GSSBO`.

    Cost for a trial, with M rows in use: O(n M^2), besides what Ax itself takes.

    Args:
        num_initial: Arms before the model is used, always among the rows.
        subset_size: The largest number M of rows, above `num_initial`.
        acqf_class: An acquisition function; by default Ax chooses.
        acqf_options: Its arguments.
        **options: See `StrategyOptions`; `model_options` are for
            `SubsetSingleTaskGP`, such as `selection`.

    Returns:
        A strategy for `Client.set_generation_strategy`.
    """
    check_strategy_options(options)
    check_acquisition(acqf_class, acqf_options)
    check_whole("subset_size", subset_size)
    check_whole("num_initial", num_initial)
    if subset_size <= num_initial:
        raise InputDataError(
            f"Got subset_size={subset_size} and num_initial={num_initial}; the subset "
            "holds the initial arms, so that it must be larger."
        )
    model_options = {
        "subset_size": subset_size,
        "num_initial": num_initial,
        **(options.get("model_options") or {}),
    }
    generator = {
        "botorch_acqf_class": acqf_class,
        "botorch_acqf_options": acqf_options,
        "surrogate_spec": sparse_surrogate_spec(model_options, SubsetSingleTaskGP),
    }
    spec = _sparse_spec(SparseAcquisition, generator, {}, options)
    return _strategy("GSSBO", num_initial, spec, options)


def thompson_generation_strategy(
    num_initial: int = 5, **options: Unpack[StrategyOptions]
) -> GenerationStrategy:
    """Sobol points, then Thompson sampling on a table of arms [VakiliMPD2021]_.

    With one or several objectives and with outcome constraints; see
    `botorch_sparse.strategies.ThompsonSampling`. Each arm maximizes functions drawn
    from the posterior: a batch of any size costs one pass over the table, where
    `sparse_generation_strategy` searches the table for each of its arms.

    Objectives and constraints are of one metric each. Constraints relative to the
    status quo become absolute by its data, as with Ax's strategies.

    Args:
        num_initial: Arms before the model is used, attached ones counted.
        **options: See `StrategyOptions`. `candidates` are needed, and
            `optimizer_options` have nothing to optimize.

    Returns:
        A strategy for `Client.set_generation_strategy`.

    Raises:
        InputDataError: If there are no `candidates`.

    Example:
        >>> table = [{"x": 0.1 * i} for i in range(11)]
        >>> strategy = thompson_generation_strategy(candidates=table, seed=0)
        >>> [node.name for node in strategy._nodes]
        ['Sobol', 'Thompson']
    """
    check_strategy_options(options)
    if options.get("candidates") is None:
        raise InputDataError(
            "Got candidates=None; Thompson sampling needs a table of arms: a data "
            "frame, parameterizations, or the path of a CSV file. For a search space "
            "without a table use sparse_generation_strategy."
        )
    generator = {"surrogate_spec": _surrogate_spec(options)}
    spec = _sparse_spec(ThompsonAcquisition, generator, {}, options)
    return _strategy("Thompson", num_initial, spec, options, takes_sums=False)


def trust_region_generation_strategy(
    num_initial: int = 20,
    *,
    batch_size: int = 1,
    num_regions: int | None = None,
    num_candidates: int | None = None,
    **options: Unpack[StrategyOptions],
) -> GenerationStrategy:
    """Sobol points, then trust regions around a sparse posterior [Eriksson2019]_.

    See `botorch_sparse.strategies.TrustRegionBBKB`. Take it for ten or more parameters
    and hundreds to thousands of trials, where the best value counts. Range, integer and
    choice parameters, log scales, parameter constraints, several objectives and outcome
    constraints are as with Ax's strategies. An objective that combines metrics has to
    be a metric of its own.

    Regions are kept in the metadata of the arms: they survive saving and loading in
    JSON and SQL. Workers may ask while others evaluate: pending trials count as first
    points of a run, and else for nothing until their results come. Where trials
    that failed or were abandoned lie together, later arms keep away. Attached ones
    belong to the regions that are in use. Standard errors of results are not used:
    noise is inferred, the same for all, and no arm is repeated. With constraints,
    choices, whole numbers or several regions a region keeps to the parameters as its
    axes: on curved valleys that takes more trials.

    Args:
        num_initial: Arms of a run before its region is used; of the first one Sobol's
            and attached ones.
        batch_size: Arms that are evaluated at a time: a region shrinks after whole
            batches without success.
        num_regions: Regions at a time; see `TrustRegionBBKB`.
        num_candidates: Candidates of each region; see there.
        **options: See `StrategyOptions`; without `candidates`, `allow_repeats` and
            `optimizer_options`. The model of `model_options` only predicts.

    Returns:
        A strategy for `Client.set_generation_strategy`.

    Example:
        >>> strategy = trust_region_generation_strategy(10, batch_size=4, seed=0)
        >>> [node.name for node in strategy._nodes]
        ['Sobol', 'TrustRegion']
    """
    check_strategy_options(options)
    for name in ("candidates", "allow_repeats", "optimizer_options"):
        if options.get(name) is not None:
            raise InputDataError(
                f"Got {name}, and trust regions have none: they draw points of the "
                "search space. For a table of arms use thompson_generation_strategy."
            )
    given = {
        "batch_size": batch_size,
        "num_regions": num_regions,
        "num_candidates": num_candidates,
        "num_initial": num_initial,
    }
    for name, value in given.items():
        if value is not None:
            check_whole(name, value)
    growth = options.get("refit_growth", DEFAULT_GROWTH)
    validate_growth(growth)
    transforms = _transform_configs(growth)
    del transforms["NearestCandidate"]
    kwargs = {
        **given,
        "surrogate_spec": _surrogate_spec(options),
        "refit_growth": growth,
        "seed": options.get("seed"),
        "transform_configs": transforms,
    }
    spec = GeneratorSpec(
        SparseGenerators.TRUST_REGION,
        generator_kwargs=as_python({k: v for k, v in kwargs.items() if v is not None}),
    )
    return _strategy("TrustRegion", num_initial, spec, options, takes_sums=False)


def _sparse_spec(
    acquisition_class: type[SparseAcquisition],
    generator_kwargs: dict[str, Any],
    acquisition_options: dict[str, Any],
    options: StrategyOptions,
) -> GeneratorSpec:
    """The specification of the generator with a model."""
    growth = options.get("refit_growth", DEFAULT_GROWTH)
    validate_growth(growth)
    rules = {"allow_repeats": options.get("allow_repeats"), **acquisition_options}
    acquisition_class.check_options(rules)
    optimizer = {**OPTIMIZER_OPTIONS, **(options.get("optimizer_options") or {})}
    check_optimizer_options(optimizer)
    kwargs = {
        "acquisition_class": acquisition_class,
        "acquisition_options": rules,
        "refit_growth": growth,
        "candidates": _table(options),
        "seed": options.get("seed"),
        "transform_configs": _transform_configs(growth),
        **generator_kwargs,
    }
    return GeneratorSpec(
        SparseGenerators.BOTORCH_SPARSE,
        generator_kwargs=as_python({k: v for k, v in kwargs.items() if v is not None}),
        generator_gen_kwargs={
            "model_gen_options": {"optimizer_kwargs": as_python(optimizer)}
        },
    )


def _surrogate_spec(options: StrategyOptions) -> SurrogateSpec:
    given = options.get("model_options") or {}
    return sparse_surrogate_spec({**MODEL_OPTIONS, **given})


def _transform_configs(growth: float) -> dict[str, dict[str, Any]]:
    """Ax's settings for relative constraints, and the schedule."""
    relative = get_derelativize_config(derelativize_with_raw_status_quo=True) or {}
    winsorize = relative.pop("Winsorize", {})
    return {
        **relative,
        "NearestCandidate": {"tolerance": 1e-6},
        "ScheduledWinsorize": {**winsorize, "refit_growth": growth},
        "ScheduledStandardizeY": {"refit_growth": growth},
    }


def _strategy(
    node_name: str,
    num_initial: int,
    spec: GeneratorSpec,
    options: StrategyOptions,
    *,
    takes_sums: bool = True,
) -> GenerationStrategy:
    """The initial node and the one with the model."""
    check_whole("num_initial", num_initial)
    num_initial = int(num_initial)
    initial = _initial_spec(options)
    nodes = [
        GenerationNode(
            name="Sobol",
            generator_specs=[initial],
            transition_criteria=[
                MinArms(num_initial, node_name, takes_sums=takes_sums),
                MinArms(max(1, num_initial // 2), node_name, only_with_data=True),
            ],
            should_deduplicate=initial.generator_enum is Generators.SOBOL,
            suggested_experiment_status=ExperimentStatus.INITIALIZATION,
        ),
        GenerationNode(
            name=node_name,
            generator_specs=[spec],
            should_deduplicate=options.get("allow_repeats") is False,
            suggested_experiment_status=ExperimentStatus.OPTIMIZATION,
        ),
    ]
    return GenerationStrategy(name=options.get("name", node_name), nodes=nodes)


def _initial_spec(options: StrategyOptions) -> GeneratorSpec:
    """Sobol points of the search space, or the rows of a table next to them."""
    table, seed = _table(options), as_python(options.get("seed"))
    if table is None:
        return GeneratorSpec(Generators.SOBOL, generator_kwargs={"seed": seed})
    return GeneratorSpec(
        SparseGenerators.TABLE_SOBOL,
        generator_kwargs={
            "seed": seed,
            "candidates": table,
            "transform_configs": {"NearestCandidate": {"is_initial": True}},
        },
    )


def _table(options: StrategyOptions) -> ArmTable | None:
    candidates = options.get("candidates")
    return None if candidates is None else ArmTable.of(candidates)
