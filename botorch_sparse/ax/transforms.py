"""Transforms of outcomes: Ax's, with constants that follow the schedule."""

import warnings
from collections import Counter
from typing import Any

import numpy as np
from ax.adapter.transforms.base import Transform
from ax.adapter.transforms.bilog_y import BilogY
from ax.adapter.transforms.standardize_y import StandardizeY
from ax.adapter.transforms.winsorize import Winsorize
from ax.core.data_utils import ExperimentData
from botorch.exceptions import BotorchWarning

from botorch_sparse.ax.size_schedule import DEFAULT_GROWTH, scheduled_size

# What Ax writes of a number, in JSON as in SQL.
DECIMALS = 10
# Errors below this part of the standard deviation of a metric are lost on a model: its
# noise is at least a hundredth of it.
TOLERANCE = 1e-4
# Relative differences below this are rounding.
ROUNDING = 1e-13
TOO_SMALL = (
    "The values of the metric {!r} differ by so little that the ten decimals which Ax "
    "saves are not enough. They are used as they are, but after saving and loading the "
    "experiment will go on with rounded ones. Report the metric in another unit, "
    "multiplied by a large number."
)


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
        *,
        experiment_data: ExperimentData | None = None,
        config: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        config = dict(config or {})
        growth = config.pop("refit_growth", DEFAULT_GROWTH)
        if experiment_data is not None and not experiment_data.observation_data.empty:
            experiment_data = scheduled_data(experiment_data, growth)
        kwargs |= {"experiment_data": experiment_data, "config": config}
        super().__init__(**kwargs)


class ScheduledWinsorize(_Scheduled, Winsorize):
    """`Winsorize` with the cutoffs of the first `scheduled_size(n)` observations."""


class _StandardizeSmallY(StandardizeY):
    """`StandardizeY` for outcomes of any scale: Ax's leaves those below 1e-8 alone."""

    def __init__(
        self, *, experiment_data: ExperimentData | None = None, **kwargs: Any
    ) -> None:
        super().__init__(experiment_data=experiment_data, **kwargs)
        if experiment_data is None:
            return
        for metric, column in experiment_data.observation_data["mean"].items():
            values = column.dropna().to_numpy(dtype=float)
            if len(values) > 1 and values.std() > ROUNDING * np.abs(values).max():
                self.Ystd[metric] = float(values.std(ddof=1))


class ScheduledStandardizeY(_Scheduled, _StandardizeSmallY):
    """`StandardizeY` with mean and scale of the first `scheduled_size(n)`.

    Outcomes in the model's space then stay as they are between two sizes.
    """


class OneSidedBilogY(BilogY):
    """`BilogY` for metrics with one limit; Ax's moves the other one of two.

    It bends a metric around a limit, which stays where it is; of two, Ax takes the
    last. A metric with two limits is left as it is.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        config = self.adapter and self.adapter._optimization_config
        constraints = config.outcome_constraints if config else []
        limits = Counter(sig for oc in constraints for sig in oc.metric_signatures)
        for signature, num in limits.items():
            if num > 1:
                self.metric_to_bound.pop(signature, None)


class AsStored(Transform):
    """Rounds outcomes and standard errors to ten decimals, as Ax's storage does.

    A strategy then sees the same data before and after saving, and goes on alike. A
    metric whose values differ by so little that rounding would show is left as it is,
    with a warning: Ax loses these digits, or all, when it saves the experiment.
    """

    def transform_experiment_data(
        self, experiment_data: ExperimentData
    ) -> ExperimentData:
        """Round means and standard errors."""
        observations = experiment_data.observation_data.copy()
        for metric in observations["mean"].columns:
            columns = [("mean", metric), ("sem", metric)]
            exact = observations[columns].to_numpy(dtype=float)
            rounded = _rounded(exact)
            if not _shows(exact, rounded):
                observations[columns] = rounded
                continue
            said: set[str] = getattr(self.adapter, "metrics_warned_of", set())
            if metric not in said:
                warnings.warn(TOO_SMALL.format(metric), BotorchWarning, stacklevel=2)
                said.add(metric)
        return ExperimentData(
            arm_data=experiment_data.arm_data, observation_data=observations
        )


def _rounded(values: np.ndarray) -> np.ndarray:
    """The nearest numbers with ten decimals; by way of text, as JSON is."""
    text = [float(f"{value:.{DECIMALS}f}") for value in values.ravel()]
    return np.array(text).reshape(values.shape)


def _shows(exact: np.ndarray, rounded: np.ndarray) -> bool:
    """Whether a change is more than `TOLERANCE` of the spread of the first column."""
    means = exact[np.isfinite(exact[:, 0]), 0]
    if not len(means) or means.min() == means.max():
        return False
    return bool(np.nanmax(np.abs(rounded - exact)) > TOLERANCE * means.std())
