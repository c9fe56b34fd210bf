"""The adapter of Ax that knows a table of candidates, and leaves out single arms."""

from copy import deepcopy
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from ax.adapter.adapter_utils import array_to_observation_data
from ax.adapter.base import GenResults
from ax.adapter.torch import TorchAdapter
from ax.core.data import MAP_KEY
from ax.core.data_utils import ExperimentData
from ax.core.observation import ObservationData, ObservationFeatures
from ax.core.search_space import SearchSpace
from ax.core.trial_status import TrialStatus
from torch import Tensor

from botorch_sparse.ax.arm_table import ArmTable
from botorch_sparse.ax.cross_validation import LeftOutPredictions, predictions
from botorch_sparse.ax.folds import AllButOne, DataByArm
from botorch_sparse.ax.sparse_generator import SparseGenerator
from botorch_sparse.ax.strategy_options import check_metrics
from botorch_sparse.ax.trial_data import last_note
from botorch_sparse.ax.trust_region_generator import TrustRegionGenerator

GONE = (TrialStatus.FAILED, TrialStatus.ABANDONED)


class SparseAdapter(TorchAdapter):
    """`TorchAdapter` that gives the generator its candidates in the model's space.

    In leave-one-out cross-validation, where a fold is one arm, it asks the generator
    for predictions without that arm's observations, and nothing is built anew.
    """

    _known_choices: tuple[tuple[SearchSpace, SearchSpace], Tensor] | None = None

    @cached_property
    def metrics_warned_of(self) -> set[str]:
        """Those too small for Ax's storage, of which `AsStored` has warned."""
        return set()

    def _gen(self, n: int, search_space: SearchSpace, **kwargs: Any) -> GenResults:
        """Generate candidates; see `TorchAdapter`.

        Failed trials count as pending ones, as abandoned ones do in Ax, unless their
        arms were completed elsewhere: the same data would lead to the same arm again.

        Raises:
            UnsupportedError: See `check_metrics`.
        """
        check_metrics(kwargs.get("optimization_config"))
        generator = self.generator
        if isinstance(generator, SparseGenerator):
            generator.num_trials = len(self._experiment.trials)
            if generator.candidates is not None:
                generator.choices = self._choices(generator.candidates, search_space)
        if isinstance(generator, TrustRegionGenerator):
            generator.last_note = last_note(self._experiment)
            generator.failed = self._rows(self._points_that_are(*GONE))
        elif failed := self._points_that_are(TrialStatus.FAILED):
            pending = kwargs.get("pending_observations") or {}
            kwargs["pending_observations"] = {
                name: [*pending.get(name, []), *failed] for name in self.outcomes
            }
        return super()._gen(n, search_space, **kwargs)

    def get_training_data(self, filter_in_design: bool = False) -> ExperimentData:
        """A copy of the data; see `TorchAdapter`. It folds by arms in the design.

        Not where arms have several observations each, as learning curves have: their
        folds have models of their own.
        """
        data = super().get_training_data(filter_in_design)
        observed = data.observation_data.index
        has_curves = MAP_KEY in observed.names and (
            observed.droplevel(MAP_KEY).has_duplicates
        )
        if has_curves or not filter_in_design:
            return data
        return DataByArm(data.arm_data, data.observation_data)

    def _transform_inputs_for_cv(
        self,
        cv_training_data: ExperimentData,
        cv_test_points: list[ObservationFeatures],
    ) -> tuple[ExperimentData, list[ObservationFeatures], SearchSpace]:
        """A fold in the model's space; where one arm is left out, its points alone."""
        is_one_arm = isinstance(cv_training_data, AllButOne)
        if not is_one_arm or self._leave_outs() is None:
            return super()._transform_inputs_for_cv(cv_training_data, cv_test_points)
        points = deepcopy(cv_test_points)
        for transform in self.transforms.values():
            points = transform.transform_observation_features(points)
        return cv_training_data, points, self.model_space

    def _cross_validate(
        self,
        search_space: SearchSpace,
        cv_training_data: ExperimentData,
        cv_test_points: list[ObservationFeatures],
        use_posterior_predictive: bool = False,
    ) -> list[ObservationData]:
        """Predictions at the points of a fold; see `Adapter.cross_validate`."""
        models = self._leave_outs()
        if models is None or not isinstance(cv_training_data, AllButOne):
            return super()._cross_validate(
                search_space, cv_training_data, cv_test_points, use_posterior_predictive
            )
        X = [[p.parameters[name] for name in self.parameters] for p in cv_test_points]
        mean, covariance = predictions(
            models,
            torch.tensor(X, dtype=torch.double, device=self.device),
            use_posterior_predictive,
        )
        return array_to_observation_data(
            mean.cpu().numpy(), covariance.cpu().numpy(), self.outcomes
        )

    def _leave_outs(self) -> list[LeftOutPredictions] | None:
        if not isinstance(self.generator, SparseGenerator):
            return None
        return self.generator.left_out_models()

    def _points_that_are(self, *statuses: TrialStatus) -> list[ObservationFeatures]:
        """Arms of such trials in the model's space, if not completed elsewhere."""
        trials = self._experiment.trials_by_status
        completed = trials[TrialStatus.COMPLETED]
        done = {arm.signature for trial in completed for arm in trial.arms}
        arms = {
            arm.signature: arm
            for status in statuses
            for trial in trials[status]
            for arm in trial.arms
        }
        points = [
            ObservationFeatures.from_arm(arm)
            for signature, arm in arms.items()
            if signature not in done
        ]
        known = set(self._search_space.parameters)
        points = [p for p in points if known <= p.parameters.keys()]
        for transform in self.transforms.values() if points else ():
            points = transform.transform_observation_features(points)
        return points

    def _rows(self, points: list[ObservationFeatures]) -> Tensor:
        """Points of the model's space, `f x d`."""
        X = [[float(p.parameters[name]) for name in self.parameters] for p in points]
        rows = torch.tensor(X, dtype=torch.double, device=self.device)
        return rows.reshape(len(points), len(self.parameters))

    def _choices(self, table: ArmTable, model_space: SearchSpace) -> Tensor:
        """The table in the model's space, `A x d`; transformed once. Cost: O(A d).

        Of learning curves, which have one more parameter, the last progression.
        """
        known, spaces = self._known_choices, (self._search_space, model_space)
        if known is None or known[0] != spaces:
            arms = _as_arms(table.in_space(self._search_space))
            known_data = self._training_data.observation_data
            unobserved = pd.DataFrame(
                float("nan"), index=arms.index, columns=known_data.columns
            )
            data = ExperimentData(arm_data=arms, observation_data=unobserved)
            for transform in self.transforms.values():
                data = transform.transform_experiment_data(data)
            columns = data.arm_data.reindex(columns=self.parameters)
            if MAP_KEY not in arms and MAP_KEY in columns:
                columns[MAP_KEY] = model_space.range_parameters[MAP_KEY].upper
            # A copy: a view of a data frame may be read-only, of which torch warns.
            X = columns.to_numpy(dtype=float, copy=True)
            choices = torch.as_tensor(X, dtype=torch.double, device=self.device)
            own = self._search_space.clone(), model_space.clone()
            self._known_choices = known = own, choices
        return known[1]


def _as_arms(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows as Ax keeps arms, one in each trial."""
    index = pd.MultiIndex.from_arrays(
        [range(len(frame)), [f"{i}_0" for i in range(len(frame))]],
        names=["trial_index", "arm_name"],
    )
    arms = frame.set_axis(index).copy()
    arms["metadata"] = None
    return arms
