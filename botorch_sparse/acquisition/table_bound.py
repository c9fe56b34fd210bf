"""The upper confidence bound of a table's choices, transforms undone once."""

import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from gpytorch.settings import min_variance
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import (
    MIN_VARIANCE,
    BatchUpperConfidenceBound,
)
from botorch_sparse.acquisition.frozen import FrozenTable

# A power of two, so that multiplying by it rounds nothing: far above the least variance
# that a GPyTorch distribution reports.
UNIT = 2.0**40


class TableBound:
    r"""`BatchUpperConfidenceBound` of a table whose rows become pending one by one.

    Where outcome and posterior transforms are linear, the mean stays as it is, and the
    variance is :math:`\sum_i c_i(x) \mathrm{var}_{t,i}(x)` over the model's outputs.
    The coefficients are found once; then a step costs O(A) and the device is asked for
    nothing, while building a posterior asks twice. Other transforms are undone each
    time.

    Args:
        acqf: The acquisition function.
        table: The table.
    """

    def __init__(self, acqf: BatchUpperConfidenceBound, table: FrozenTable) -> None:
        self.acqf = acqf
        self.table = table
        self._linear = self._undo() if self._is_linear() else None

    @torch.no_grad()
    def values(self) -> Tensor:
        """The bounds of all choices, `A`. Cost: O(A)."""
        if self._linear is None:
            return self.acqf.values(self.table)
        mean, coefficients = self._linear
        variance = (coefficients * self.table.reduced_variance).view(-1, len(mean))
        least = max(MIN_VARIANCE, min_variance.value(mean.dtype))
        sigma = variance.sum(0).to(mean).clamp_min(least).sqrt()
        return self.acqf.bound_from_moments(mean, sigma)

    def _is_linear(self) -> bool:
        transform = getattr(self.acqf.model, "outcome_transform", None)
        to_scalar = self.acqf.posterior_transform
        return (transform is None or transform._is_linear) and (
            to_scalar is None or type(to_scalar) is ScalarizedPosteriorTransform
        )

    @torch.no_grad()
    def _undo(self) -> tuple[Tensor, Tensor]:
        """The untransformed mean, `A`, and the coefficients, `aug x A`."""
        table, size = self.table, len(self.table.X)
        zero = torch.zeros_like(table.mean)
        columns = []
        for output in range(zero.numel() // size):
            variance = zero.clone()
            variance.view(-1, size)[output] = UNIT
            posterior = table.frozen.posterior_from_moments(
                table.X, table.mean, variance, self.acqf.posterior_transform
            )
            columns.append(posterior.variance.view(size) / UNIT)
        return posterior.mean.view(size), torch.stack(columns).view_as(zero)
