"""Transforms of outcomes: Ax's, with constants that follow the schedule."""

from typing import Any

import numpy as np
from ax.adapter.transforms.base import Transform
from ax.adapter.transforms.standardize_y import StandardizeY
from ax.adapter.transforms.winsorize import Winsorize
from ax.core.data_utils import ExperimentData

from botorch_sparse.ax.schedule import DEFAULT_GROWTH, scheduled_size


def scheduled_data(data: ExperimentData, growth: float) -> ExperimentData:
    """The data with all but the first `scheduled_size` observations left out.

    For each metric by itself, since some may not be observed in all trials.
    """
    observations = data.observation_data.copy()
    for metric in observations["mean"].columns:
        observed = observations["mean", metric].notna().to_numpy().nonzero()[0]
        beyond = observed[scheduled_size(len(observed), growth) :]
        if len(beyond):
            column = observations.columns.get_loc(("mean", metric))
            observations.iloc[beyond, column] = float("nan")
    return ExperimentData(arm_data=data.arm_data, observation_data=observations)


class _Scheduled:
    """Gives a transform the scheduled data to find its constants with.

    The transform's config may hold `refit_growth`; see `scheduled_size`.
    """

    def __init__(
        self,
        search_space: Any = None,
        experiment_data: ExperimentData | None = None,
        adapter: Any = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        config = dict(config or {})
        growth = config.pop("refit_growth", DEFAULT_GROWTH)
        if experiment_data is not None and not experiment_data.observation_data.empty:
            experiment_data = scheduled_data(experiment_data, growth)
        super().__init__(  # type: ignore[call-arg]
            search_space=search_space,
            experiment_data=experiment_data,
            adapter=adapter,
            config=config,
        )


class ScheduledWinsorize(_Scheduled, Winsorize):
    """`Winsorize` with the cutoffs of the first `scheduled_size(n)` observations."""


class ScheduledStandardizeY(_Scheduled, StandardizeY):
    """`StandardizeY` with mean and scale of the first `scheduled_size(n)`.

    Outcomes in the model's space then stay as they are between two sizes.
    """


class AsStored(Transform):
    """Rounds outcomes and standard errors to ten decimals, as Ax's storage does.

    A strategy then sees the same data before and after saving, and goes on alike.
    """

    def transform_experiment_data(
        self, experiment_data: ExperimentData
    ) -> ExperimentData:
        """Round all means and standard errors."""
        observations = experiment_data.observation_data.copy()
        for kind, metric in observations.columns:
            if kind in ("mean", "sem"):
                column = observations[kind, metric].to_numpy(dtype=float)
                observations[kind, metric] = _rounded(column)
        return ExperimentData(
            arm_data=experiment_data.arm_data, observation_data=observations
        )


def _rounded(values: np.ndarray) -> np.ndarray:
    """The nearest numbers with ten decimals; by way of text, as JSON is."""
    return np.array([float(f"{value:.10f}") for value in values])
