"""All data of a model that is conditioned on some rows of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from botorch.models.transforms.outcome import OutcomeTransform
from torch import Tensor


class RowsInUse(NamedTuple):
    """Rows of the full data, different ones.

    Choices are made on the host: to compare indices there waits for nothing.

    Attributes:
        on_host: `M` indices on the CPU.
        on_device: The same beside the data.
    """

    on_host: Tensor
    on_device: Tensor

    @classmethod
    def of(cls, index: Tensor, device: torch.device) -> "RowsInUse":
        """Rows by indices on the CPU."""
        return cls(index, index.to(device))


@dataclass(frozen=True, eq=False)
class FullData:
    """What was observed, as it was given and as the model sees it.

    Attributes:
        X: `batch_shape x n x d` inputs before the input transform.
        Y: `batch_shape x n x m` observations before the outcome transform.
        Yvar: `batch_shape x n x m` noise variances, or None where they are inferred.
        targets: `batch_shape x (m) x n` transformed observations, outputs first if
            there are several.
        noise: Noise variances of the `targets`, of their shape, or None.
    """

    X: Tensor
    Y: Tensor
    Yvar: Tensor | None
    targets: Tensor
    noise: Tensor | None

    def __len__(self) -> int:
        return self.X.shape[-2]

    @property
    def num_outputs(self) -> int:
        """The number `m` of outputs."""
        return self.Y.shape[-1]

    def inputs(self, index: Tensor | None = None) -> Tensor:
        """Inputs of some rows, or all, of the batch shape of the targets."""
        X = self.X if index is None else self.X.index_select(-2, index)
        X = X.unsqueeze(-3) if self.num_outputs > 1 else X
        return X.expand(*self.targets.shape[:-1], *X.shape[-2:])

    def append(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> "FullData":
        """With more raw rows; `retransform` has to follow."""
        old, new = self.Yvar, Yvar
        joined = None if old is None or new is None else torch.cat([old, new], -2)
        X, Y = torch.cat([self.X, X], -2), torch.cat([self.Y, Y], -2)
        return replace(self, X=X, Y=Y, Yvar=joined)

    def retransform(self, transform: OutcomeTransform | None) -> "FullData":
        """With targets and noise by a transform, in whatever mode it is."""
        Y, Yvar = self.Y, self.Yvar
        if transform is not None:
            Y, Yvar = transform(Y=Y, Yvar=Yvar, X=self.X)
        noise = self.noise if Yvar is None else self.outputs_first(Yvar)
        return replace(self, targets=self.outputs_first(Y), noise=noise)

    def outputs_first(self, Y: Tensor) -> Tensor:
        """`... x n x m` values as `... x m x n`, or `... x n` for one output."""
        return Y.transpose(-1, -2) if self.num_outputs > 1 else Y.squeeze(-1)

    def outputs_last(self, targets: Tensor) -> Tensor:
        """The reverse of `outputs_first`."""
        if self.num_outputs > 1:
            return targets.transpose(-1, -2)
        return targets.unsqueeze(-1)

    def subset_outputs(self, idcs: Sequence[int]) -> "FullData":
        """With some of several outputs."""
        index = idcs[0] if len(idcs) == 1 else list(idcs)
        return replace(
            self,
            Y=self.Y[..., list(idcs)],
            Yvar=None if self.Yvar is None else self.Yvar[..., list(idcs)],
            targets=self.targets[..., index, :],
            noise=None if self.noise is None else self.noise[..., index, :],
        )

    def apply(self, fn: Callable[[Tensor], Tensor]) -> "FullData":
        """With `fn`, such as a move to a device, applied to each tensor."""
        tensors: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {
            name: None if value is None else fn(value)
            for name, value in tensors.items()
        }
        return FullData(**moved)
