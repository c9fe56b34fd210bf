"""How many trials to ask a `Client` for."""

from copy import deepcopy

from ax.adapter.torch import TorchAdapter
from ax.api.client import Client
from ax.core.utils import extract_pending_observations
from ax.utils.common.random import with_rng_seed

from botorch_sparse.ax.adaptive_batch import AdaptiveBatchAcquisition
from botorch_sparse.ax.criteria import MinArms
from botorch_sparse.ax.generator import SparseGenerator
from botorch_sparse.doors import check_kind, check_whole


def recommended_batch_size(client: Client, max_trials: int = 20) -> int:
    """The number of trials that may as well be evaluated together.

    Before the model is used, that many as are missing of the initial points. Then the
    size of the batch that the rule of `bbkb_generation_strategy` ends, given the trials
    that run: at most `max_trials`. Nothing is added to the experiment, and no random
    numbers of the caller are used up. For strategies without such a rule it is one.

    Args:
        client: A client with that strategy.
        max_trials: Largest number, at least one.

    Returns:
        A number for `client.get_next_trials`. Cost: that of generating the batch.
    """
    check_whole("max_trials", max_trials)
    check_kind("client", client, Client, "an Ax client")
    strategy, experiment = client._generation_strategy, client._experiment
    adapter = strategy.fit(experiment)
    missing = [
        criterion.num_missing(experiment)
        for criterion in strategy.current_node.transition_criteria
        if isinstance(criterion, MinArms) and not criterion.only_with_data
    ]
    if missing:
        return min(max_trials, max(1, *missing))
    if not isinstance(adapter, TorchAdapter):
        return 1
    spec = strategy.current_node.generator_spec
    if spec.generator_kwargs.get("acquisition_class") is not AdaptiveBatchAcquisition:
        return 1
    generator = adapter.generator
    attempts = getattr(generator, "attempts", None)
    with with_rng_seed(client._random_seed or 0):
        run = adapter.gen(
            n=max_trials,
            pending_observations=extract_pending_observations(experiment),
            **deepcopy(spec.generator_gen_kwargs),
        )
    if isinstance(generator, SparseGenerator) and attempts is not None:
        generator.attempts = attempts  # as if nothing had been generated
    return int(sum(run.weights))
