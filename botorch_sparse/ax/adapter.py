"""The adapter of Ax that knows a table of candidates."""

from typing import Any

import pandas as pd
import torch
from ax.adapter.base import GenResults
from ax.adapter.torch import TorchAdapter
from ax.core.data_utils import ExperimentData
from ax.core.search_space import SearchSpace
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.ax.candidates import CandidateTable
from botorch_sparse.ax.generator import SparseGenerator


class SparseAdapter(TorchAdapter):
    """`TorchAdapter` that gives the generator its candidates in the model's space."""

    _known_choices: tuple[SearchSpace, Tensor] | None = None

    def _gen(self, *args: Any, **kwargs: Any) -> GenResults:
        generator = self.generator
        if isinstance(generator, SparseGenerator):
            generator.num_trials = len(self._experiment.trials)
            if generator.candidates is not None:
                generator.choices = self._choices(generator.candidates)
        return super()._gen(*args, **kwargs)

    def _choices(self, table: CandidateTable) -> Tensor:
        """The table in the model's space, `A x d`; transformed once. Cost: O(A d)."""
        known = self._known_choices
        if known is None or known[0] != self._search_space:
            frame = checked_candidates(table, self._search_space)
            arms, known_data = _as_arms(frame), self._training_data.observation_data
            unobserved = pd.DataFrame(
                float("nan"), index=arms.index, columns=known_data.columns
            )
            data = ExperimentData(arm_data=arms, observation_data=unobserved)
            for transform in self.transforms.values():
                data = transform.transform_experiment_data(data)
            X = data.arm_data[self.parameters].to_numpy(dtype=float)
            choices = torch.as_tensor(X, dtype=torch.double, device=self.device)
            self._known_choices = known = (self._search_space.clone(), choices)
        return known[1]


def checked_candidates(
    table: CandidateTable, search_space: SearchSpace
) -> pd.DataFrame:
    """The candidates with the parameters of the search space as columns.

    Raises:
        InputDataError: If a parameter has no column, or candidates are not in the
            search space.
    """
    names = list(search_space.parameters)
    missing = [name for name in names if name not in table.frame]
    if missing:
        raise InputDataError(
            f"Got a table of candidates with columns {list(table.frame.columns)}; it "
            f"lacks the parameters {missing}."
        )
    frame = table.frame[names]
    inside = search_space.check_membership_df(arm_data=frame)
    outside = len(frame) - int(sum(inside))
    if outside:
        first = frame.iloc[list(inside).index(False)].to_dict()
        raise InputDataError(
            f"Got a table with {outside} of {len(frame)} candidates outside of the "
            f"search space, the first of them {first}. Leave them out, or widen the "
            "bounds."
        )
    return frame


def _as_arms(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows as Ax keeps arms, one in each trial."""
    index = pd.MultiIndex.from_arrays(
        [range(len(frame)), [f"{i}_0" for i in range(len(frame))]],
        names=["trial_index", "arm_name"],
    )
    arms = frame.set_axis(index).copy()
    arms["metadata"] = None
    return arms
