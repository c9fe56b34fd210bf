r"""Similarity of bits and counts, such as the fingerprints of molecules.

.. math:: T(x, x') = \frac{\sum_i \min(x_i, x'_i)}{\sum_i \max(x_i, x'_i)}

For bits it is the share of what either has that both have. It is positive definite for
all vectors without negative entries [Ralaivola2005]_; two without any entry are equal.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.exceptions import InputDataError
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import Parameter

from botorch_sparse.argument_checks import check_whole

# Counts up to this are compared level by level, by products of matrices of bits.
MOST_LEVELS = 32
# Products of float32 matrices of bits are exact up to this sum.
LARGEST_SUM = 2**24
# The share of entries above which rows are multiplied as matrices.
DENSE = 1 / 8
BYTE_VALUES = 256
# Numbers that a fit keeps: similarities, and the points that they are of.
MOST_KEPT = 2**24
# Of so few points it pays to look for the columns in which they have an entry.
FEW_POINTS = 8


class TanimotoKernel(Kernel):
    r"""The Tanimoto kernel of bits, counts, or any numbers from 0 on; MinMax kernel.

    Of several blocks of columns, such as the fingerprints of the molecules that take
    part in a reaction, it is a product with a weight for each,

    .. math:: k(x, x') = \prod_j \big(1 - w_j + w_j T(x_j, x'_j)\big),
        \qquad 0 \le w_j \le 1

    A block of weight zero does not matter. A single block has no weight, and the kernel
    no parameter. Put it into a `ScaleKernel` for a variance. Give models of it their
    inputs as they are (`input_transform=None`): scaled ones are no counts.

    Whole numbers up to 255 are compared exactly, in float32 and in float64: entries of
    the matrix have one rounding. Cost: O(n n' d) for an `n x n'` matrix, times the
    levels of the counts for those columns that have them.

    Args:
        blocks: Numbers of columns of each block, which add up to those of the inputs;
            None for one block of all.
        **kwargs: Of `gpytorch.kernels.Kernel`, such as `active_dims`, `batch_shape`.

    Attributes:
        blocks: See above.

    Raises:
        InputDataError: If blocks are no positive numbers or do not fit the inputs; if
            an entry is negative, or a weight is set that is not in [0, 1].

    Example:
        >>> import torch
        >>> X = torch.tensor([[1.0, 1.0, 0.0, 2.0], [0.0, 1.0, 0.0, 3.0]])
        >>> TanimotoKernel()(X).to_dense()
        tensor([[1.0000, 0.6000],
                [0.6000, 1.0000]])
    """

    has_lengthscale = False

    def __init__(self, blocks: Sequence[int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if blocks is not None and len(blocks) == 0:
            raise InputDataError("Got blocks=(); need at least one, or None.")
        for size in blocks or ():
            check_whole("blocks", size)
        self.blocks = None if blocks is None or len(blocks) == 1 else tuple(blocks)
        if self.blocks is not None:
            raw = torch.full((*self.batch_shape, len(self.blocks)), 0.9)
            self.register_parameter("raw_weight", Parameter(raw))
            # As it is: of a logit both ends are flat, and fits that come there stay.
            limits = Interval(0.0, 1.0, transform=None)
            self.register_constraint("raw_weight", limits)

    @property
    def weight(self) -> Tensor:
        """Weights of the blocks, `batch_shape x k`, in [0, 1]."""
        weight: Tensor = self.raw_weight_constraint.transform(self.raw_weight)
        return weight

    @weight.setter
    def weight(self, value: Any) -> None:
        value = torch.as_tensor(value).to(self.raw_weight)
        if not bool(((value >= 0) & (value <= 1)).all()):
            raise InputDataError(
                f"Got weight={value.tolist()}; need numbers in [0, 1]."
            )
        self.initialize(raw_weight=value.expand_as(self.raw_weight))

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor:
        """The kernel matrix, or its diagonal."""
        parts = zip(self.split(x1), self.split(x2), strict=True)
        return self.product([similarity(a, b, diag=diag) for a, b in parts], diag=diag)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """The blocks of `... x n x d` points."""
        if self.blocks is None:
            return (x,)
        if sum(self.blocks) != x.shape[-1]:
            raise InputDataError(
                f"Got inputs of {x.shape[-1]} columns for blocks={self.blocks}, which "
                f"have {sum(self.blocks)}; need as many."
            )
        return x.split(self.blocks, -1)

    def product(self, similarities: Sequence[Tensor], *, diag: bool = False) -> Tensor:
        """The kernel from the similarities of each block."""
        if self.blocks is None:
            return similarities[0]
        factors = list[Tensor]()
        for w, T in zip(self.weight.unbind(-1), similarities, strict=True):
            w = w.reshape(*self.batch_shape, *(1,) * (2 - diag))
            factors.append(1 - w + w * T)
        return reduce(torch.mul, factors)


class KeptSimilarities(NamedTuple):
    """Similarities of points with points."""

    x1: Tensor
    x2: Tensor
    value: Tensor

    @property
    def size(self) -> int:
        """Numbers that are held."""
        return self.x1.numel() + self.x2.numel() + self.value.numel()

    def is_of(self, x1: Tensor, x2: Tensor) -> bool:
        """Whether they are of these points, in their dtype and place."""
        pairs = ((self.x1, x1), (self.x2, x2))
        if any((a.dtype, a.device) != (b.dtype, b.device) for a, b in pairs):
            return False
        return all(torch.equal(a, b) for a, b in pairs)


_KEPT: ContextVar[list[KeptSimilarities] | None] = ContextVar(
    "kept similarities", default=None
)


@contextmanager
def similarities_kept() -> Iterator[None]:
    """Inside, similarities of points that come again are not computed again.

    A fit evaluates a kernel at the same points for other hyperparameters, of which
    similarities do not know. The last ones are kept, `MOST_KEPT` numbers in all.
    """
    token = _KEPT.set([])
    try:
        yield
    finally:
        _KEPT.reset(token)


def similarity(x1: Tensor, x2: Tensor, *, diag: bool = False) -> Tensor:
    """Tanimoto similarities, `... x n x n'`, or of one point with one, `... x n`.

    Points may be bytes (uint8), as rows of a large table are; of these it is float64.
    """
    kept, has_gradient = _KEPT.get(), x1.requires_grad or x2.requires_grad
    if kept is None or diag or has_gradient:
        return _similarity(x1, x2, diag)
    found = next((each for each in kept if each.is_of(x1, x2)), None)
    if found is None:
        found = KeptSimilarities(x1.clone(), x2.clone(), _similarity(x1, x2, diag))
    kept[:] = [each for each in kept if each is not found]
    kept.append(found)
    while sum(each.size for each in kept) > MOST_KEPT:
        del kept[0]
    return found.value.clone()


def _similarity(x1: Tensor, x2: Tensor, diag: bool) -> Tensor:
    dtype = torch.promote_types(x1.dtype, x2.dtype)
    dtype = dtype if dtype.is_floating_point else torch.float64
    counts = [found for x in (x1, x2) if (found := _as_bytes(x)) is not None]
    x1, x2 = counts if len(counts) == 2 else (x1, x2)
    total1, total2 = (totals(x).to(dtype) for x in (x1, x2))
    if diag:
        both = torch.minimum(x1, x2).sum(-1)
        return similarity_of_sums(both, total1, total2)
    both = sums_of_minima(x1, x2, dtype)
    return similarity_of_sums(both, total1.unsqueeze(-1), total2.unsqueeze(-2))


def similarity_of_sums(both: Tensor, total1: Tensor, total2: Tensor) -> Tensor:
    """Similarities from what points have in common, and what each has, added up."""
    either = (total1 + total2).sub_(both)
    if (total1 == 0).any() and (total2 == 0).any():
        # Two points without any entry are the same.
        is_empty = either == 0
        return torch.where(
            is_empty, 1.0, both.to(either) / either.where(~is_empty, 1.0)
        )
    if either.requires_grad:
        return both / either
    return torch.div(both, either, out=either)


def totals(x: Tensor) -> Tensor:
    """The sums of entries, `... x n`; those of bytes by NumPy, in a twentieth."""
    if x.dtype == torch.uint8 and x.is_cpu:
        return torch.from_numpy(x.numpy().sum(-1, dtype=np.int32))
    return x.sum(-1)


def sums_of_minima(x1: Tensor, x2: Tensor, dtype: torch.dtype) -> Tensor:
    """The sums of the smaller entries, `... x n x n'`, of bytes or other numbers."""
    are_bytes = x1.dtype == x2.dtype == torch.uint8
    if not are_bytes:
        _refuse_negative(x1, x2)
    if x1.requires_grad or x2.requires_grad:
        return _by_distance(x1.to(dtype), x2.to(dtype))
    if are_bytes and min(x1.shape[-2], x2.shape[-2]) <= FEW_POINTS:
        return _sums_in_common(x1, x2)
    most = min(_largest(x1), _largest(x2)) if are_bytes else LARGEST_SUM
    is_exact = most * x1.shape[-1] < LARGEST_SUM
    exact = torch.float32 if is_exact else torch.float64
    # Entries of the larger side look up those of the other, which a cache may hold.
    sides = [(x1, x2), (x2, x1)] if len(x1) > len(x2) else [(x2, x1), (x1, x2)]
    for rows, points in sides if x1.dim() == x2.dim() == 2 else ():
        if has_few_entries(rows):
            both = Entries.of(rows).sums_of_minima(points, exact)
            return both if rows is x1 else both.mT
    if most > MOST_LEVELS or not is_exact:
        dtype = torch.float64 if are_bytes else dtype
        return _by_distance(x1.to(dtype), x2.to(dtype))
    both = torch.zeros((), dtype=torch.float32, device=x1.device)
    for level in range(1, most + 1):
        a, b = x1, x2
        if level > 1:  # few columns have higher counts
            columns = (a.flatten(0, -2).amax(0) >= level).nonzero().squeeze(-1)
            a, b = a.index_select(-1, columns), b.index_select(-1, columns)
        both = both + _at_least(a, level) @ _at_least(b, level).mT
    return both


def _refuse_negative(*points: Tensor) -> None:
    ends = (float(x.detach().amin()) for x in points if x.numel())
    if (least := min(ends, default=0.0)) < 0:
        raise InputDataError(
            f"Got an entry {least} in the Tanimoto kernel; need bits, counts, or other "
            "numbers from 0 on, not standardized ones."
        )


def _by_distance(x1: Tensor, x2: Tensor) -> Tensor:
    """The same of any numbers."""
    total = x1.sum(-1).unsqueeze(-1) + x2.sum(-1).unsqueeze(-2)
    return (total - torch.cdist(x1, x2, p=1.0)) / 2


def _sums_in_common(x1: Tensor, x2: Tensor) -> Tensor:
    """The same where one side has few points: in the columns where these have any."""
    fewer = x1 if x1.shape[-2] < x2.shape[-2] else x2
    columns = (fewer.flatten(0, -2) != 0).any(0).nonzero().squeeze(-1)
    a, b = x1.index_select(-1, columns), x2.index_select(-1, columns)
    return totals(torch.minimum(a.unsqueeze(-2), b.unsqueeze(-3)))


class Entries(NamedTuple):
    """The entries of `n x d` rows of bytes, of which few are not zero.

    Each pair of a column and a count that occurs has a line. For fingerprints, of whose
    columns a few in a hundred have an entry, sums over these take about as long as one
    product of matrices (`benchmarks/bits.py`), where counts would need one for each
    level.
    """

    line: Tensor  # of each entry, row after row
    start: Tensor  # of each row, its first entry
    columns: Tensor  # of each line
    counts: Tensor  # of each line

    @classmethod
    def of(cls, rows: Tensor) -> "Entries":
        """Those of rows. Cost: O(n d)."""
        entries, d = rows.numpy(), rows.shape[1]
        is_there = entries != 0
        place = np.flatnonzero(is_there)
        code = place % d * BYTE_VALUES + entries.ravel()[place]
        occurs = np.zeros(d * BYTE_VALUES, dtype=bool)
        occurs[code] = True
        known = np.flatnonzero(occurs)
        line = np.empty(d * BYTE_VALUES, dtype=np.int32)
        line[known] = np.arange(len(known), dtype=np.int32)
        size = np.count_nonzero(is_there, axis=1)
        start = (np.cumsum(size) - size).astype(np.int32)
        found = line[code], start, known // BYTE_VALUES, known % BYTE_VALUES
        return cls(*(torch.from_numpy(each) for each in found))

    def sums_of_minima(self, points: Tensor, dtype: torch.dtype) -> Tensor:
        """Sums of the smaller entries of each row and `n' x d` points, `n x n'`."""
        chosen = points.index_select(1, self.columns)
        least = torch.minimum(chosen, self.counts.to(points))
        return torch.nn.functional.embedding_bag(
            self.line, least.to(dtype).mT.contiguous(), self.start, mode="sum"
        )

    def similarity(self, total: Tensor, points: Tensor) -> Tensor:
        """Tanimoto similarities of the rows with points, `n x n'`, float64.

        Cost: O(n') for each entry. `total` are the sums of the rows, see `totals`.
        """
        counts, dtype = _as_bytes(points), torch.float64
        if counts is None:
            _refuse_negative(points)
        else:
            points = counts
            is_small = BYTE_VALUES * points.shape[-1] <= LARGEST_SUM
            dtype = torch.float32 if is_small else dtype
        both = self.sums_of_minima(points, dtype)
        total1, total2 = total.double(), totals(points).double()
        return similarity_of_sums(both, total1.unsqueeze(-1), total2)


def _as_bytes(x: Tensor) -> Tensor | None:
    """Whole numbers from 0 to 255 as bytes; None for others, and with gradients."""
    if x.dtype == torch.uint8:
        return x
    if x.requires_grad:
        return None
    found = x.to(torch.uint8)
    return found if bool((found == x).all()) else None


def _largest(x: Tensor) -> int:
    """The largest of bytes, 0 of none; by NumPy on the host, which is quicker."""
    if x.numel() == 0:
        return 0
    return int(x.numpy().max() if x.is_cpu else x.amax())


def has_few_entries(x: Tensor) -> bool:
    """Whether these are rows of bytes on the host of which few are not zero."""
    if x.dtype != torch.uint8 or not x.is_cpu or x.dim() != 2:
        return False
    return int(np.count_nonzero(x.numpy())) <= DENSE * x.numel()


def _at_least(x: Tensor, level: int) -> Tensor:
    """Where counts are so high, as zeros and ones for exact products."""
    return (x >= level).float()
