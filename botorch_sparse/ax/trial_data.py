"""The data of an experiment by its trials, and what trials note of their generation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from ax.core.experiment import Experiment
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

# In the metadata of arms, which Ax saves with every trial and gives to generators.
NOTE = "botorch_sparse"


@dataclass(frozen=True)
class TrialData:
    """What was measured, as a generator got it.

    Attributes:
        datasets: Of one or more outcomes each.
        notes: What each row of each of them notes of its generation; None for nothing.
    """

    datasets: Sequence[SupervisedDataset]
    notes: Sequence[Sequence[Mapping[str, Any] | None]]

    @classmethod
    def of(
        cls,
        datasets: Sequence[SupervisedDataset],
        metadata: Sequence[Sequence[Mapping[str, Any] | None]] | None,
    ) -> "TrialData":
        """The data of a fit."""
        metadata = metadata or [[None] * len(data.X) for data in datasets]
        notes = [[(each or {}).get(NOTE) for each in part] for part in metadata]
        return cls(datasets, notes)

    def reports(
        self, outputs: Sequence[int]
    ) -> tuple[Tensor, Tensor, Tensor, list[Mapping[str, Any] | None]]:
        """Each observation of some outcomes, by the order of trials. O(n log n).

        Returns:
            Rows and values as of `joined`, `n` numbers of trials, and what each notes.
        """
        X, Y, used = joined(self.datasets, outputs)
        indices = [self.datasets[place].group_indices.long() for place in used]
        notes = [note for place in used for note in self.notes[place]]
        trial = torch.cat(indices).to(X.device)
        order = trial.argsort(stable=True)
        return X[order], Y[order], trial[order], [notes[i] for i in order.tolist()]


def joined(
    datasets: Sequence[SupervisedDataset], outputs: Sequence[int]
) -> tuple[Tensor, Tensor, list[int]]:
    """All observations of some outcomes, which are numbered through the data sets.

    Returns:
        `n x e` points, `n x k` values, NaN for what another data set has, and the
        places of the data sets that these are of, in their order.
    """
    Xs, Ys, used, first = list[Tensor](), list[Tensor](), list[int](), 0
    for place, data in enumerate(datasets):
        last = first + data.Y.shape[-1]
        mine = [k for k, output in enumerate(outputs) if first <= output < last]
        if mine:
            Y = data.Y.new_full((len(data.Y), len(outputs)), torch.nan)
            Y[:, mine] = data.Y[:, [outputs[k] - first for k in mine]]
            Xs.append(data.X)
            Ys.append(Y)
            used.append(place)
        first = last
    return torch.cat(Xs), torch.cat(Ys), used


def last_note(experiment: Experiment) -> Mapping[str, Any] | None:
    """What the newest trial notes of its generation that notes anything. O(n)."""
    for trial in reversed(experiment.trials.values()):
        for run in trial.generator_runs:
            for metadata in (run.candidate_metadata_by_arm_signature or {}).values():
                if metadata and metadata.get(NOTE):
                    return dict(metadata[NOTE])
    return None
