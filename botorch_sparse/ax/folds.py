"""Training data for cross-validation in which each fold is one arm."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from ax.core.data_utils import ExperimentData
from ax.core.observation import Observation, ObservationData, ObservationFeatures
from typing_extensions import override


class DataByArm(ExperimentData):
    """`ExperimentData` in which one arm, and all but one, cost next to nothing.

    Ax goes over all data twice for each fold, and leave-one-out has a fold for each
    arm: O(n^2) in slow steps. Here a fold costs Ax's sets of names, and
    one comparison of two sets.
    """

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """The rows of each arm."""
        names = self.arm_data.index.get_level_values("arm_name")
        return pd.Series(range(len(names))).groupby(np.asarray(names)).indices

    @cached_property
    def names(self) -> frozenset[str]:
        """The arms; two sets are compared faster than anything else."""
        return frozenset(self.rows)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Parameters and metadata of each row."""
        return self.arm_data.to_dict("records")

    @cached_property
    def outcomes(self) -> tuple[list[str], np.ndarray, np.ndarray] | None:
        """Metrics, their means and standard errors, `n x m` each.

        None where rows are no arms, as with learning curves.
        """
        arms, observed = self.arm_data.index, self.observation_data
        if not arms.is_unique or not arms.equals(observed.index):
            return None
        means, sems = (observed[kind].to_numpy(dtype=float) for kind in ("mean", "sem"))
        return self.metric_signatures, means, sems

    def filter_by_arm_names(self, arm_names: Iterable[str]) -> ExperimentData:
        """The data of some arms; see `ExperimentData`."""
        # Ax gives sets, and to copy one takes as long as to compare it.
        names = arm_names if isinstance(arm_names, set) else set(arm_names)
        if len(names) == 1 and names <= self.names:
            return OneArm(self, names)
        if len(names) == len(self.names) - 1 and names <= self.names:
            return AllButOne(self, names)
        return self.copy_of(names)

    def copy_of(self, names: set[str]) -> ExperimentData:
        """The data of some arms, as Ax copies them. Cost: O(n)."""
        return super().filter_by_arm_names(names)


class _Part(ExperimentData):
    """The data of some arms, which are copied when they are asked for.

    Args:
        whole: The data of all arms.
        names: The names of these.
    """

    def __init__(self, whole: DataByArm, names: set[str]) -> None:
        self.whole, self.names = whole, names

    def __getattr__(self, name: str) -> pd.DataFrame:
        if name not in ("arm_data", "observation_data"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        part = self.whole.copy_of(self.names)
        self.arm_data, self.observation_data = part.arm_data, part.observation_data
        return self.__dict__[name]


class AllButOne(_Part):
    """The data of all arms but one."""


class OneArm(_Part):
    """The data of one arm."""

    @override
    def convert_to_list_of_observations(self) -> list[Observation]:
        # O(1)
        (name,), whole = self.names, self.whole
        if whole.outcomes is None:
            return super().convert_to_list_of_observations()
        metrics, means, sems = whole.outcomes
        return [
            Observation(
                features=_features(whole, row),
                data=_outcomes(metrics, means[row], sems[row]),
                arm_name=name,
            )
            for row in whole.rows[name]
            if not np.isnan(means[row]).all()
        ]


def _features(data: DataByArm, row: int) -> ObservationFeatures:
    """Parameters that are there, and metadata, as Ax has them of a row."""
    parameters = dict(data.records[row])
    metadata = parameters.pop("metadata").copy()
    return ObservationFeatures(
        parameters={k: v for k, v in parameters.items() if not pd.isna(v)},
        trial_index=data.arm_data.index[row][0],
        metadata=metadata,
    )


def _outcomes(
    metrics: list[str], means: np.ndarray, sems: np.ndarray
) -> ObservationData:
    """The outcomes that are there."""
    there = ~np.isnan(means)
    return ObservationData(
        metric_signatures=[
            m for m, is_there in zip(metrics, there, strict=True) if is_there
        ],
        means=means[there],
        covariance=np.diag(np.square(sems[there])),
    )
