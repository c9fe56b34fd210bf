"""The record of GSSBO: what its model held, and what choosing that took."""

from dataclasses import dataclass

from torch import Tensor

from botorch_sparse.strategies.batch import BatchRecord
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.record import Record


@dataclass
class SubsetRecord(BatchRecord):
    """One point, as it was chosen.

    Attributes:
        selection_seconds: Wall time of choosing the samples of the model that it was
            chosen with.
    """

    selection_seconds: float = 0.0

    @property
    def subset_size(self) -> int:
        """Samples in the model, as `num_inducing`; 0 for the initial design."""
        return self.num_inducing


class SubsetRun(Record):
    """A record with the subsets of the models."""

    batch_type = SubsetRecord


class SubsetHistory(History):
    """Evaluations and asks, with the subsets of the models."""

    record_type = SubsetRun

    @property
    def subset_size(self) -> Tensor:
        """Samples in the model of each batch, as `num_inducing`."""
        return self.num_inducing

    @property
    def selection_seconds(self) -> float:
        """Wall time spent on choosing samples, a part of `seconds`."""
        return float(self.batches.column("selection_seconds").sum())
