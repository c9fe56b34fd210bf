"""Turns points of the search space into rows of a table of candidates."""

from typing import Any

import numpy as np
import pandas as pd
from ax.adapter.transforms.base import Transform
from ax.core.observation import ObservationFeatures
from ax.generators.random.sobol import SobolGenerator

from botorch_sparse.ax.arm_table import ArmTable


class TableSobolGenerator(SobolGenerator):
    """`SobolGenerator` whose points `NearestCandidate` turns into rows of a table.

    Args:
        candidates: The table; the other arguments are as in `SobolGenerator`.
    """

    def __init__(
        self,
        deduplicate: bool = True,
        seed: int | None = None,
        init_position: int = 0,
        scramble: bool = True,
        candidates: ArmTable | None = None,
    ) -> None:
        super().__init__(
            deduplicate=deduplicate,
            seed=seed,
            init_position=init_position,
            scramble=scramble,
        )
        self.candidates = candidates


class NearestCandidate(Transform):
    """On the way back from the model's space, the nearest row of the table.

    Of the generator's table, if it has one. Arms are then exactly the user's,
    without the rounding of logarithms. Distances are relative to the range of a column;
    a choice that differs counts as the whole range.

    Its config may hold `tolerance`, beyond which points stay as they are (by default
    none do), and `is_initial`, whether rows that the experiment knows are left out.
    """

    no_op_for_experiment_data = True

    def untransform_observation_features(
        self, observation_features: list[ObservationFeatures]
    ) -> list[ObservationFeatures]:
        """The nearest row for each point. Cost: O(A d)."""
        generator = getattr(self.adapter, "generator", None)
        table = getattr(generator, "candidates", None)
        if table is None:
            return observation_features
        frame = table.in_space(self.adapter._experiment.search_space)
        is_free = np.ones(len(frame), dtype=bool)
        if self.config.get("is_initial"):
            is_free = ~self._is_known(frame)
        for features in observation_features:
            if not set(features.parameters) <= set(frame.columns):
                continue
            distance = distances(frame, features.parameters)
            if is_free.any():
                distance[~is_free] = np.inf
            row = int(distance.argmin())
            if distance[row] > self.config.get("tolerance", np.inf):
                continue
            is_free[row] = False if self.config.get("is_initial") else is_free[row]
            for name in features.parameters:
                value = frame[name].iat[row]
                value = value.item() if isinstance(value, np.generic) else value
                features.parameters[name] = value
        return observation_features

    def _is_known(self, frame: pd.DataFrame) -> np.ndarray:
        """Which rows are arms of the experiment."""
        arms = self.adapter._experiment.arms_by_signature.values()  # type: ignore
        names = list(frame.columns)
        known = {tuple(arm.parameters.get(name) for name in names) for arm in arms}
        return np.array([row in known for row in frame.itertuples(index=False)])


def distances(frame: pd.DataFrame, parameters: dict[str, Any]) -> np.ndarray:
    """The largest relative difference over the columns, for each row of the table."""
    largest = np.zeros(len(frame))
    for name, value in parameters.items():
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column) and column.dtype != bool:
            width = float(column.max() - column.min()) or max(1.0, abs(float(value)))
            difference = np.abs(column.to_numpy(dtype=float) - float(value)) / width
        else:
            difference = (column != value).to_numpy(dtype=float)
        largest = np.maximum(largest, difference)
    return largest
