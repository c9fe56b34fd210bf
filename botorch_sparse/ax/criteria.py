"""When the initial points are enough."""

from typing import Any

from ax.core.experiment import Experiment
from ax.core.trial_status import TrialStatus
from ax.generation_strategy.transition_criterion import TransitionCriterion


class MinArms(TransitionCriterion):
    """Met once the experiment has so many arms; a batch trial counts for all of its.

    Failed and abandoned trials do not count, arms that the user attached do.

    Args:
        threshold: Number of arms, repeats counted.
        transition_to: Name of the next node.
        continue_trial_generation: As in `TransitionCriterion`.
        only_with_data: Whether only completed trials count.
    """

    def __init__(
        self,
        threshold: int,
        transition_to: str,
        continue_trial_generation: bool | None = False,
        only_with_data: bool = False,
    ) -> None:
        super().__init__(transition_to, continue_trial_generation)
        self.threshold = threshold
        self.only_with_data = only_with_data

    def is_met(self, experiment: Experiment, curr_node: Any) -> bool:
        """Whether there are enough."""
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
