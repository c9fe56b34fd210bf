"""What batches and strategies ask of a table of candidates under a posterior."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import DTYPES, check_tensors
from botorch_sparse.batching.growing_batch import GrowingBatch
from botorch_sparse.batching.rules import Rule


def read_scalars(*scalars: Tensor) -> list[float]:
    """The values of tensors of one element, in one copy from the device.

    Integers up to 2^53 come through as they are.
    """
    return torch.cat([scalar.double().view(1) for scalar in scalars]).tolist()


def upload_vectors(*vectors: Tensor, device: torch.device) -> list[Tensor]:
    """Vectors of the host on a device, in one copy, or as they are if it is the host.

    Integers up to 2^53 come through as they are.
    """
    if device.type == "cpu":
        return list(vectors)
    packed = torch.cat([vector.double() for vector in vectors]).to(device)
    parts = packed.split([len(vector) for vector in vectors])
    return [part.to(v.dtype) for part, v in zip(parts, vectors, strict=True)]


@dataclass(frozen=True, eq=False)
class SelectableRows:
    """All candidates but some, each any number of times or once.

    Attributes:
        excluded: `k` candidates that may not be chosen, where the pool is; None for
            none.
        once: Whether a candidate may be chosen only once within a batch.
    """

    excluded: Tensor | None = None
    once: bool = False

    def to(self, device: torch.device) -> "SelectableRows":
        """The same where the pool is."""
        if self.excluded is None:
            return self
        return replace(self, excluded=self.excluded.to(device))

    def mean(self, mean: Tensor) -> Tensor:
        """The means of all candidates (`A`), minus infinity where excluded.

        A copy where it is going to change.
        """
        if self.excluded is None:
            return mean.clone() if self.once else mean
        return mean.index_fill(0, self.excluded, -torch.inf)


ALL_ROWS = SelectableRows()


class Moments(NamedTuple):
    """Posterior means and variances of `k` rows, `k` each."""

    mean: Tensor
    variance: Tensor


# New points of a batch whose squares are computed in one pass over the rows.
POINTS_AT_A_TIME = 8


class Covariances(Protocol):
    """Rows of a table under a posterior, and their covariances with a batch's points.

    Attributes:
        noise: Noise variance lambda of one evaluation.
    """

    @property
    def noise(self) -> float:
        """See the attributes."""
        ...

    def __len__(self) -> int:
        """The number of rows `A`."""
        ...

    @property
    def square_memory(self) -> int:
        """Bytes that a batch may keep of `squared_covariances`."""
        ...

    @property
    def squares_at_a_time(self) -> int:
        """Points whose squared covariances are computed in one pass over the rows."""
        ...

    def all_variances(self) -> Tensor:
        """The variances of all rows, `A`; embeds what is not embedded yet."""
        ...

    def squared_covariances(self, rows: Tensor) -> Tensor:
        """Squared covariances of `k` rows with all, full and embedded: `k x 2 x A`."""
        ...

    def largest(self, values: Tensor) -> Tensor:
        """The largest of the values of all rows, `A`."""
        ...


class Points(Covariances, Protocol):
    """Rows 0 to A - 1 of a table under a posterior that stands still."""

    def moments(self, rows: Tensor) -> Moments:
        """Exact means and variances of `k` rows."""
        ...

    def all_moments(self) -> Moments:
        """Those of all rows, `A` each; embeds what is not embedded yet."""
        ...

    def batch(
        self,
        multiplier: float,
        rule: Rule | None = None,
        choosable: SelectableRows = ALL_ROWS,
    ) -> GrowingBatch:
        r"""Start a batch by the bound :math:`\mu(x) + \beta^{1/2} \sigma_t(x)`.

        Args:
            multiplier: What multiplies the Bayesian standard deviation.
            rule: What ends the batch; None for no rule.
            choosable: What may be chosen; all rows by default.
        """
        ...


def validate_candidates(X: Tensor) -> None:
    """Check a table of candidates at the door; see `NystromPool`."""
    check_tensors(X=X)
    if X.dim() != 2 or X.shape[0] == 0 or X.shape[1] == 0:
        raise BotorchTensorDimensionError(
            f"Got candidates of shape {tuple(X.shape)}; need `A x d` with A, d > 0."
        )
    if X.dtype not in DTYPES or not X.isfinite().all():
        raise InputDataError(
            f"Got candidates of dtype {X.dtype} with {int((~X.isfinite()).sum())} "
            "entries that are not finite; need float32 or float64 without NaN or "
            "infinity."
        )


def on_device(X: Tensor) -> bool:
    """Whether a copy to the host has to wait for an accelerator."""
    return X.device.type != "cpu"
