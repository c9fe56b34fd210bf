"""The record of GSSBO: what its model held, and what choosing that took."""

from dataclasses import dataclass

from torch import Tensor

from botorch_sparse.strategies.history import BatchRecord, History


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


class SubsetHistory(History):
    """Evaluations and asks, with the subsets of the models."""

    batch_type = SubsetRecord

    @property
    def subset_size(self) -> Tensor:
        """Samples in the model of each batch, as `num_inducing`."""
        return self.num_inducing

    @property
    def selection_seconds(self) -> float:
        """Wall time spent on choosing samples, a part of `seconds`."""
        return sum(getattr(b, "selection_seconds", 0.0) for b in self.batches)
