"""When the initial points are enough, and how many trials to ask a `Client` for."""

from copy import deepcopy
from typing import Any

from ax.adapter.torch import TorchAdapter
from ax.api.client import Client
from ax.core.experiment import Experiment
from ax.core.trial_status import TrialStatus
from ax.core.utils import extract_pending_observations
from ax.generation_strategy.transition_criterion import TransitionCriterion
from ax.utils.common.random import with_rng_seed

from botorch_sparse.argument_checks import check_kind, check_whole
from botorch_sparse.ax.adaptive_batch_acquisition import AdaptiveBatchAcquisition
from botorch_sparse.ax.sparse_generator import SparseGenerator
from botorch_sparse.ax.strategy_options import check_metrics


class MinArms(TransitionCriterion):
    """Met once the experiment has so many arms; a batch trial counts for all of its.

    Failed and abandoned trials do not count, repeats and arms that the user attached
    do. With `only_with_data` only completed trials count. Metrics that the strategy
    could not optimize later are refused here, before the first arm; see
    `check_metrics`.
    """

    def __init__(
        self,
        threshold: int,
        transition_to: str,
        continue_trial_generation: bool | None = False,
        only_with_data: bool = False,
        takes_sums: bool = True,
    ) -> None:
        super().__init__(transition_to, continue_trial_generation)
        self.threshold = threshold
        self.only_with_data = only_with_data
        self.takes_sums = takes_sums

    def is_met(self, experiment: Experiment, curr_node: Any) -> bool:
        """Whether there are enough.

        Raises:
            UnsupportedError: See `check_metrics`.
        """
        check_metrics(experiment.optimization_config, takes_sums=self.takes_sums)
        return self.num_missing(experiment) <= 0

    def num_missing(self, experiment: Experiment) -> int:
        """How many arms are still to come, negative if there are more than needed."""
        trials = [t for t in experiment.trials.values() if self._counts(t.status)]
        if self.only_with_data and trials:
            known = set(experiment.lookup_data().df["trial_index"].unique())
            trials = [trial for trial in trials if trial.index in known]
        return self.threshold - sum(len(trial.arms) for trial in trials)

    def _counts(self, status: TrialStatus) -> bool:
        if self.only_with_data:
            return status == TrialStatus.COMPLETED
        return status not in (TrialStatus.FAILED, TrialStatus.ABANDONED)


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
        A number for `client.get_next_trials`. It costs as much as the batch.
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
