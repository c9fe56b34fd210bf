"""A batch among choices, by any acquisition function evaluated at all of them."""

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.frozen import Features, FrozenPosterior
from botorch_sparse.acquisition.pointwise_rules import LocalRatioBound
from botorch_sparse.acquisition.ratios import LocalBound
from botorch_sparse.batching.acquisition_batch import AcquisitionBatch
from botorch_sparse.batching.rules import Rule

# Choices that an acquisition function is evaluated at together.
CHUNK_SIZE = 2048
# Bytes that the features of choices may take before they are computed at each step.
MAX_MEMORY = 2 * 1024**3


class ChoiceBatch(AcquisitionBatch):
    """Maximizers among choices; the lowest index among equals.

    For `BatchUpperConfidenceBound` the features of all choices are kept where memory
    allows, and a point costs O(A m); what suits `NystromPool` goes there and is lazy.

    Args:
        acqf: As in `AcquisitionBatch`.
        rule: As in `AcquisitionBatch`.
        frozen: As in `AcquisitionBatch`.
        X: `A x d` choices.
        unique: Whether a choice is taken once, and with it all that are equal to it.
    """

    def __init__(
        self,
        acqf: AcquisitionFunction,
        rule: Rule | None,
        frozen: FrozenPosterior,
        X: Tensor,
        *,
        unique: bool = False,
    ) -> None:
        super().__init__(acqf, rule, frozen, choices=X)
        self._X = X
        self._unique = unique
        self._is_taken = torch.zeros(len(X), dtype=torch.bool, device=X.device)
        self._kept = _ChoiceFeatures.of(acqf, X)

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to choose."""
        return self._unique and bool(self._is_taken.all())

    def point(self, row: int) -> Tensor:
        """See `AcquisitionBatch`."""
        return self._X[row : row + 1]

    def append(self, row: int) -> None:
        """See `AcquisitionBatch`."""
        super().append(row)
        self._is_taken |= (self._X == self._X[row]).all(-1)
        if self._kept is not None:
            self._kept.append()

    @torch.no_grad()
    def _maximize(self) -> tuple[int, float]:
        values = self._all_values()
        if self._unique:
            values = values.masked_fill(self._is_taken, -torch.inf)
        row = int(values.argmax())
        return row, float(values[row])

    def _all_values(self) -> Tensor:
        if self._kept is not None:
            return self._kept.values()
        chunks = self._X.unsqueeze(-2).split(CHUNK_SIZE)
        return torch.cat([self.acqf(chunk) for chunk in chunks])

    @torch.no_grad()
    def _largest_local(self, covariance: LocalBound, threshold: float) -> float:
        if self._kept is None or self.acqf.model is not self.frozen.model:
            return super()._largest_local(covariance, threshold)
        bound = LocalRatioBound(self.frozen, covariance=covariance)
        return float(bound.at(self._kept.features).max())


class _ChoiceFeatures:
    """The features of all choices, and the rows by which pending points lower them.

    Args:
        acqf: The bound.
        X: `A x d` choices.

    Attributes:
        features: Their features, `aug x A x ...`.
    """

    @torch.no_grad()
    def __init__(self, acqf: BatchUpperConfidenceBound, X: Tensor) -> None:
        self.features: Features = acqf.frozen.features(X)
        self._acqf = acqf
        self._X = X
        self._parts = acqf.frozen.parts(self.features)
        self._rows = acqf.frozen.reduction(self.features)  # aug x A x j

    @classmethod
    def of(cls, acqf: AcquisitionFunction, X: Tensor) -> "_ChoiceFeatures | None":
        """Those of a batch UCB, where memory allows."""
        if type(acqf) is not BatchUpperConfidenceBound:
            return None
        f = acqf.frozen.batch
        width = acqf.frozen.aug_shape.numel() * (f.phi.shape[-1] + f.w.shape[-1])
        is_small = 2 * len(X) * width * f.phi.element_size() <= MAX_MEMORY
        return cls(acqf, X) if is_small else None

    @torch.no_grad()
    def append(self) -> None:
        """Take in the last pending point of the bound. Cost: O(A (m + j))."""
        row = self._acqf.frozen.last_reduction(self.features, self._rows)
        self._rows = torch.cat([self._rows, row], -1)

    def values(self) -> Tensor:
        """The bounds of all choices, `A`."""
        residual, embedded = self._parts
        left = (embedded - self._rows.square().sum(-1)).clamp_min(0.0)
        moments = self._acqf.moments(self._X, self.features, residual + left)
        return self._acqf.bound_from_moments(*moments)
