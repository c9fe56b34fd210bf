"""All data of a model, and the rows of them that it is conditioned on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.assorted import fantasize as fantasize_flag
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from torch import Tensor


@dataclass(frozen=True, eq=False)
class FullData:
    """What was observed, as it was given and as the model sees it."""

    X: Tensor  # `batch_shape x n x d` inputs before the input transform
    Y: Tensor  # `batch_shape x n x m` observations before the outcome transform
    Yvar: Tensor | None  # noise variances, or None where they are inferred
    targets: Tensor  # `batch_shape x (m) x n`, transformed; outputs first
    noise: Tensor | None  # noise variances of the `targets`, of their shape, or None

    def __len__(self) -> int:
        return self.X.shape[-2]

    def inputs(self, index: Tensor | None = None) -> Tensor:
        """Inputs of some rows, or all, of the batch shape of the targets."""
        X = self.X if index is None else self.X.index_select(-2, index)
        X = X.unsqueeze(-3) if self._has_many_outputs else X
        return X.expand(*self.targets.shape[:-1], *X.shape[-2:])

    def is_like(self, X: Tensor, Y: Tensor) -> bool:
        """Whether raw rows are observations like these, and no fantasies."""
        return (
            fantasize_flag.off()
            and not (X.requires_grad or Y.requires_grad)
            and X.shape[:-2] == Y.shape[:-2] == self.X.shape[:-2]
        )

    @torch.no_grad()
    def append(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Self:
        """With more raw rows; `retransform` has to follow."""
        old, new = self.Yvar, Yvar
        joined = None if old is None or new is None else torch.cat([old, new], -2)
        X, Y = torch.cat([self.X, X], -2), torch.cat([self.Y, Y], -2)
        return replace(self, X=X, Y=Y, Yvar=joined)

    def retransform(self, transform: OutcomeTransform | None) -> Self:
        """With targets and noise by a transform, in whatever mode it is."""
        Y, Yvar = self.Y, self.Yvar
        if transform is not None:
            Y, Yvar = transform(Y=Y, Yvar=Yvar, X=self.X)
        noise = self.noise if Yvar is None else self._outputs_first(Yvar)
        return replace(self, targets=self._outputs_first(Y), noise=noise)

    def with_targets(
        self, X: Tensor, targets: Tensor, transform: OutcomeTransform | None
    ) -> Self:
        """Other inputs, and as many observations in the transformed space."""
        if X.shape[-2] != targets.shape[-1]:
            raise BotorchTensorDimensionError(
                f"Got inputs of shape {tuple(X.shape)} and targets of shape "
                f"{tuple(targets.shape)}; they need the same n. Pass both."
            )
        if self.noise is not None and X.shape[-2] != len(self):
            raise InputDataError(
                f"Got {X.shape[-2]} rows for {len(self)} known noise variances. Use "
                "add_observations(X, Y, Yvar), or build a new model."
            )
        several = self._has_many_outputs
        Y = targets.transpose(-1, -2) if several else targets.unsqueeze(-1)
        if transform is not None:
            Y, _ = transform.untransform(Y, X=X)
        return replace(self, X=X, Y=Y, targets=targets)

    def subset_outputs(self, idcs: Sequence[int]) -> Self:
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
        Yvar = None if self.Yvar is None else fn(self.Yvar)
        noise = None if self.noise is None else fn(self.noise)
        return FullData(fn(self.X), fn(self.Y), Yvar, fn(self.targets), noise)

    @property
    def _has_many_outputs(self) -> bool:
        return self.Y.shape[-1] > 1

    def _outputs_first(self, Y: Tensor) -> Tensor:
        """`... x n x m` values as `... x m x n`, or `... x n` for one output."""
        return Y.transpose(-1, -2) if self._has_many_outputs else Y.squeeze(-1)


@dataclass(frozen=True, eq=False)
class Subset:
    """Data, and the rows of them that are in use.

    Choices are made on the host: to compare indices there waits for nothing. Copies
    share the tensors, which are never written to.
    """

    full: FullData
    rows: Tensor  # `M` different indices on the host
    index: Tensor  # the same beside the data

    @classmethod
    def of(cls, full: FullData, rows: Tensor) -> "Subset":
        """Rows by indices on the host, in this order."""
        return cls(full, rows, rows.to(full.X.device))

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    @property
    def X(self) -> Tensor:
        """Inputs of the rows before the transform, of the targets' batch shape."""
        return self.full.inputs(self.index)

    @property
    def targets(self) -> Tensor:
        """Transformed observations of the rows."""
        return self.full.targets.index_select(-1, self.index)

    @property
    def noise(self) -> Tensor | None:
        """Known noise variances of the targets."""
        noise = self.full.noise
        return None if noise is None else noise.index_select(-1, self.index)

    def switch(self, rows: Tensor) -> "Subset":
        """Other rows, of which those that are in use come first, in their order."""
        stays = self.rows[torch.isin(self.rows, rows)]
        return Subset.of(self.full, torch.cat([stays, rows[~torch.isin(rows, stays)]]))

    def apply(self, fn: Callable[[Tensor], Tensor]) -> "Subset":
        """With `fn` applied to each tensor of the data."""
        return Subset.of(self.full.apply(fn), self.rows)


def fixed_noise(likelihood: Likelihood, targets: Tensor) -> Tensor | None:
    """Known noise variances, one for each target."""
    if not isinstance(likelihood, FixedNoiseGaussianLikelihood):
        return None
    return likelihood.noise_covar.noise.expand_as(targets)
