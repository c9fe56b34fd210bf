"""What a kernel takes of the points of a domain."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

import torch
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from torch import Tensor

from botorch_sparse.argument_checks import short_list
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.pools.compact_rows import CompactRows, Rows
from botorch_sparse.strategies.data.discrete import DiscreteFeatures
from botorch_sparse.strategies.data.domain import Domain
from botorch_sparse.strategies.surrogates.related import with_means

# Points, or rows of bits and counts.
RowsT = TypeVar("RowsT", Tensor, CompactRows, Rows)


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """The inputs of a model, from the points of a domain: `inputs(X)`.

    With a kernel that is given they are the points. Without one they are the features
    that vary, scaled to [0, 1] by the domain's ranges, and categories of a box one-hot
    after them.

    Attributes:
        bounds: `2 x d`, ranges of the features in use, float64.
        is_scaled: Whether features are scaled to [0, 1] by `bounds`.
        columns: Which features are used; None for all.
        discrete: Features of a box that take some values only.
        blocks: Columns of bits or counts, for each Tanimoto kernel that is inferred.
        axes: `d x d`, inputs are coordinates along its columns; None for features.
        campaigns: Models of earlier campaigns, whose means are inputs after the
            features.
    """

    bounds: Tensor
    is_scaled: bool = False
    columns: Tensor | None = None
    discrete: DiscreteFeatures = field(default_factory=DiscreteFeatures)
    blocks: tuple[slice, ...] = ()
    axes: Tensor | None = None
    campaigns: tuple[SparseSingleTaskGP, ...] = ()

    @classmethod
    def of_inferred_kernel(cls, domain: Domain) -> Self:
        """Those of a kernel that is inferred; warns of columns that are left out."""
        discrete, blocks = domain.discrete, domain.fingerprints
        low, high = discrete.encoded_ranges(domain.ranges).clone()
        for block in blocks:  # counts are not scaled
            low[block], high[block] = 0.0, 1.0
        columns: Tensor | None = _varying(low, high, domain.feature_names)
        bounds = torch.stack([low[columns], high[columns]])
        if sum(block.stop - block.start for block in blocks) == domain.dim:
            columns = None  # all of them, as they are
        is_unit = bool((bounds[0] == 0).all() & (bounds[1] == 1).all())
        return cls(
            bounds,
            is_scaled=not is_unit,
            columns=columns,
            discrete=discrete,
            blocks=blocks,
        )

    def features(self, X: RowsT) -> RowsT:
        """The features in use of `... x n x d` points, float64; compact ones stay."""
        if isinstance(X, CompactRows):
            return X
        X = self.discrete.encoded(X)
        return (X if self.columns is None else X[..., self.columns]).double()

    def __call__(self, X: RowsT) -> RowsT:
        """Points as the kernel takes them, float64; compact ones stay."""
        Z = self.features(X)
        if isinstance(Z, CompactRows):
            return Z
        if self.is_scaled:
            Z = (Z - self.bounds[0]) / (self.bounds[1] - self.bounds[0])
        if self.axes is not None:
            Z = Z @ torch.linalg.inv(self.axes).mT
        return with_means(self.campaigns, Z) if self.campaigns else Z

    @property
    def span(self) -> Tensor:
        """Sides of the domain in units of the inputs."""
        span = self.bounds[1] - self.bounds[0]
        return torch.ones_like(span) if self.is_scaled else span

    def related_means(self, inputs: Tensor) -> Tensor:
        """What each earlier campaign says of `n` inputs, `n x t`."""
        return inputs[..., inputs.shape[-1] - len(self.campaigns) :]

    @property
    def block_columns(self) -> list[Tensor]:
        """Where the columns of each block are among those in use."""
        every = [torch.arange(block.start, block.stop) for block in self.blocks]
        if self.columns is None:
            return every
        return [torch.searchsorted(self.columns, columns) for columns in every]

    def is_scaled_by(self, domain: Domain) -> bool:
        """Whether features are scaled by the ranges of this domain, or not at all."""
        if self.columns is None:
            return True
        own = self.discrete.encoded_ranges(domain.ranges)[:, self.columns]
        return torch.equal(own, self.bounds)

    def require_columns(self, domain: Domain) -> None:
        """Refuse a table where left-out columns vary, or counts are negative."""
        lowest = (float(domain.ranges[0, block].min()) for block in self.blocks)
        least = min(lowest, default=0.0)
        if least < 0:
            raise InputDataError(
                f"Got candidates as low as {least:.3g} in columns of bits or counts, "
                "for which the Tanimoto kernel was inferred; need numbers from 0 on. "
                "Or build a strategy on these candidates, and tell it the history."
            )
        if self.columns is None:
            return
        low, high = domain.ranges
        varies = high > low
        varies[self.columns] = False
        if varies.any():
            names = [domain.feature_names[i] for i in varies.nonzero().flatten()]
            raise InputDataError(
                f"Got candidates whose columns {short_list(names)} vary, which were "
                "constant in the first table and are left out; need the kernel, or a "
                "strategy that is built on a table where they vary. Tell it the "
                "history."
            )


def _varying(low: Tensor, high: Tensor, names: Sequence[str]) -> Tensor:
    """The columns that vary; warns of those that are left out."""
    if (is_wide := (high - low).isinf()).any():
        wide = [names[i] for i in is_wide.nonzero().flatten()]
        raise InputDataError(
            f"Got candidates whose columns {short_list(wide)} differ by more than "
            "1.8e308, which float64 does not hold; need smaller ranges. Rescale them."
        )
    varies = high > low
    if not varies.any():
        raise InputDataError(
            "Got candidates that are all the same, or a single one, and no kernel; "
            "need at least two that differ in some column."
        )
    if not varies.all():
        constant = (~varies).nonzero().squeeze(-1).tolist()
        shown = short_list([names[i] for i in constant], show=str)
        warnings.warn(
            f"Columns {shown} of the candidates are constant and left out.",
            InputDataWarning,
            stacklevel=2,
        )
    return varies.nonzero().squeeze(-1)
