"""Candidates of bits or counts that stay a byte, or a bit, for each entry.

A million fingerprints of 2,048 bits take 256 MB as packed bits, 2 GB as bytes, and 16
GB in float64. Rows become float64 when they are read, some at a time.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, Mean, ZeroMean
from torch import Tensor

from botorch_sparse.argument_checks import check_whole
from botorch_sparse.kernels.kernel_matrices import (
    compares_counts,
    count_covariance,
    dense_covariance,
    unscaled,
)
from botorch_sparse.kernels.tanimoto import (
    Entries,
    has_few_entries,
    similarity,
    totals,
)
from botorch_sparse.posteriors.folding import RepeatedRows

BITS = 8
# Entries that are looked at in one go.
CHUNK_ENTRIES = 2**24
# Entries of a table whose different rows are kept, in some 50 MB; and different rows
# that are few enough to be compared all at once.
MOST_DISTINCT, FEW_ROWS = 2**25, 2**8
# Whole numbers from 0 on that a byte holds.
LARGEST = 255


class DistinctRows(NamedTuple):
    """Rows of bytes on the host, each once, for similarities with many points."""

    rows: Tensor  # `u x d`, uint8
    number: Tensor  # of each of `n` rows, which of these it is
    total: Tensor  # sums of their entries, `u`
    entries: Entries | None  # None where many are not zero

    @classmethod
    def of(cls, rows: Tensor) -> "DistinctRows":
        """Those of `n x d` rows. Cost: O(n d log n)."""
        repeated = RepeatedRows.find(rows)
        distinct = rows[repeated.first]
        entries = Entries.of(distinct) if has_few_entries(distinct) else None
        return cls(distinct, repeated.inverse, totals(distinct), entries)

    @property
    def is_quick(self) -> bool:
        """Whether similarities of all at once take little time and memory."""
        return self.entries is not None or len(self.rows) <= FEW_ROWS

    def similarity(self, points: Tensor) -> Tensor:
        """Tanimoto similarities with `k x d` points, `u x k`, float64; no gradients."""
        if self.entries is None:
            return similarity(self.rows, points)
        return self.entries.similarity(self.total, points)


@dataclass(frozen=True, eq=False)
class CompactRows:
    """`A x d` whole numbers from 0 to 255, or bits eight to a byte.

    Strategies and `CandidateTable` take them as candidates, and make them of tensors
    and arrays of type bool and uint8. It has what a pool asks of a tensor: its
    shape, and `X[rows]`, which are float64.

    Attributes:
        stored: `A x s` bytes, uint8; a file that is mapped is not read into memory.
        num_columns: `d`.
        is_packed: Whether a byte holds eight bits, the first one in its highest bit, as
            `numpy.packbits` has it.

    Example:
        >>> import numpy as np
        >>> bits = np.array([[1, 0, 1], [0, 0, 1]], dtype=np.uint8)
        >>> rows = CompactRows.from_packed(np.packbits(bits, axis=1), 3)
        >>> rows[1:]
        tensor([[0., 0., 1.]], dtype=torch.float64)
    """

    stored: Tensor
    num_columns: int
    is_packed: bool = False
    _distinct: dict[tuple[int, ...], list[DistinctRows] | None] = field(
        init=False, repr=False, default_factory=dict
    )  # see `distinct`, by blocks

    @classmethod
    def from_packed(cls, packed: Any, num_columns: int) -> "CompactRows":
        """Rows of packed bits.

        Args:
            packed: `A x ceil(d / 8)` bytes, as `numpy.packbits(bits, axis=1)` returns
                them; a tensor, an array, a `numpy.memmap` or the path of a `.npy` file.
            num_columns: The number `d` of bits in a row.

        Raises:
            BotorchTensorDimensionError: If there are no such rows.
            InputDataError: If these are no bytes, or of another number of bits; if bits
                beyond the last one are set.
            OSError: If there is no such file.
        """
        check_whole("num_columns", num_columns)
        if isinstance(packed, str | os.PathLike):
            packed = np.load(packed, mmap_mode="c", allow_pickle=False)
        stored = as_bytes(packed)
        if stored is None or stored.dim() != 2:
            raise InputDataError(
                f"Got packed bits of type {getattr(packed, 'dtype', type(packed))}; "
                "need a matrix of type uint8, such as numpy.packbits(bits, axis=1)."
            )
        if stored.shape[1] != -(-num_columns // BITS):
            raise InputDataError(
                f"Got {stored.shape[1]} bytes in each row for num_columns="
                f"{num_columns}; need {-(-num_columns // BITS)}: eight bits in a byte."
            )
        rows = cls(stored, num_columns, is_packed=True)
        spare = stored[:, -1] & (2 ** (-num_columns % BITS) - 1)
        if bool(spare.any()):
            raise InputDataError(
                f"Got rows in which bits beyond the last of num_columns={num_columns} "
                "are set; need zeros there, as numpy.packbits leaves them."
            )
        return rows

    def __post_init__(self) -> None:
        if 0 in self.stored.shape:
            raise BotorchTensorDimensionError(
                f"Got candidates of shape {tuple(self.stored.shape)}; need `A x d` "
                "with A, d > 0."
            )

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def shape(self) -> torch.Size:
        """`A x d`."""
        return torch.Size([len(self), self.num_columns])

    @property
    def dtype(self) -> torch.dtype:
        """Of rows that are read."""
        return torch.float64

    @property
    def device(self) -> torch.device:
        """Where the bytes are."""
        return self.stored.device

    @property
    def is_cpu(self) -> bool:
        """Whether they are on the host."""
        return self.stored.is_cpu

    def element_size(self) -> int:
        """Bytes of a number that is read."""
        return self.dtype.itemsize

    def new_empty(self, *size: Any, **options: Any) -> Tensor:
        """A tensor of numbers where the rows are."""
        return torch.empty(*size, **self._options | options)

    def new_zeros(self, *size: Any, **options: Any) -> Tensor:
        """The same of zeros."""
        return torch.zeros(*size, **self._options | options)

    def new_full(self, size: tuple[int, ...], value: float) -> Tensor:
        """The same of one value."""
        return torch.full(size, value, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "device": self.device}

    def detach(self) -> "CompactRows":
        """Themselves: there are no gradients."""
        return self

    def to(self, device: torch.device) -> "CompactRows":
        """The same rows elsewhere."""
        return replace(self, stored=self.stored.to(device))

    def distinct(self, blocks: tuple[int, ...]) -> list[DistinctRows] | None:
        """The different rows of each block of columns, found once; O(A d log A).

        None on an accelerator, for more than `MOST_DISTINCT` entries, and where neither
        rows nor their entries are few: such rows are better compared some at a time.
        """
        if not self.is_cpu or len(self) * self.num_columns > MOST_DISTINCT:
            return None
        if blocks not in self._distinct:
            parts = self.entries(slice(None)).split(blocks, dim=-1)
            found = [DistinctRows.of(part) for part in parts]
            self._distinct[blocks] = found if all(b.is_quick for b in found) else None
        return self._distinct[blocks]

    @cached_property
    def totals(self) -> Tensor:
        """Sums of the entries of each row, `A`; found once, O(A d)."""
        size = max(1, CHUNK_ENTRIES // self.num_columns)
        parts = range(0, len(self), size)
        return torch.cat([totals(self.entries(slice(i, i + size))) for i in parts])

    def __getstate__(self) -> dict[str, Any]:
        """Without what is found again."""
        state = {k: v for k, v in self.__dict__.items() if k != "totals"}
        return state | {"_distinct": {}}

    def part(self, rows: slice) -> "CompactRows":
        """Some rows, as compact; those of a file are not read."""
        return replace(self, stored=self.stored[rows])

    def entries(self, rows: Tensor | slice | int) -> Tensor:
        """Entries of rows as whole numbers, `q x d` or `d`, uint8."""
        found = self.stored[rows]
        if not self.is_packed:
            return found
        if self.is_cpu:  # NumPy looks bytes up
            looked_up = np.unpackbits(found.numpy(), axis=-1, count=self.num_columns)
            return torch.from_numpy(looked_up)
        shifts = torch.arange(BITS - 1, -1, -1, dtype=torch.uint8, device=self.device)
        bits = (found.unsqueeze(-1) >> shifts) & 1
        return bits.flatten(-2)[..., : self.num_columns]

    def __getitem__(self, rows: Tensor | slice | int) -> Tensor:
        """Rows in float64, `q x d` or `d`."""
        return self.entries(rows).to(self.dtype)

    def aminmax(self, *, dim: int) -> tuple[Tensor, Tensor]:
        """Smallest and largest entry of each column, `d` each. Cost: O(A d)."""
        stored = self.stored.cpu().numpy()
        if self.is_packed:  # of a byte's bits those that all have, or any has
            ends = [f.reduce(stored, 0) for f in (np.bitwise_and, np.bitwise_or)]
            ends = [np.unpackbits(end, count=self.num_columns) for end in ends]
        else:
            ends = [stored.min(0), stored.max(0)]
        low, high = (torch.from_numpy(end).to(self.device, self.dtype) for end in ends)
        return low, high

    def compact(self, X: Tensor) -> Tensor:
        """`b x d` numbers as `b x s` bytes; `holds` says which of them these are."""
        X = X.detach().to(self.device)
        most = 1 if self.is_packed else LARGEST
        whole = X.clamp(0, most).to(torch.uint8)
        if not self.is_packed:
            return whole
        whole = torch.nn.functional.pad(whole, (0, -self.num_columns % BITS))
        place = 2 ** torch.arange(BITS - 1, -1, -1, device=self.device)
        bits = whole.unflatten(-1, (-1, BITS))
        return (bits * place).sum(-1).to(torch.uint8)

    def holds(self, X: Tensor) -> Tensor:
        """Which of `b x d` points such a table can have, `b` truth values."""
        most = 1 if self.is_packed else LARGEST
        return ((X >= 0) & (X <= most) & (X == X.trunc())).all(-1)


Rows: TypeAlias = Tensor | CompactRows


def as_bytes(values: Any) -> Tensor | None:
    """Values of type bool or uint8 as bytes that share their memory; None for others.

    Of scipy's sparse matrices those of whole numbers from 0 to 255.
    """
    if hasattr(values, "tocsr") and hasattr(values, "toarray"):
        return _of_sparse(values)
    if isinstance(values, np.ndarray) and values.dtype in (np.bool_, np.uint8):
        with warnings.catch_warnings():  # that a map may be of a file to read alone
            warnings.simplefilter("ignore", UserWarning)
            stored = values.view(np.uint8)
            if min(stored.strides, default=0) < 0:
                stored = stored.copy()
            return torch.from_numpy(stored)
    if isinstance(values, Tensor) and values.dtype in (torch.bool, torch.uint8):
        return values.detach().view(torch.uint8)
    return None


def _of_sparse(matrix: Any) -> Tensor:
    """A sparse matrix of counts as bytes."""
    matrix = matrix.tocsr(copy=True)
    matrix.sum_duplicates()
    counts = matrix.data
    is_held = (counts >= 0) & (counts <= LARGEST) & (counts == np.trunc(counts))
    if not np.all(is_held):
        raise InputDataError(
            f"Got a sparse matrix with an entry {counts[~is_held][0]}; need whole "
            f"numbers from 0 to {LARGEST}, such as counts, or matrix.toarray()."
        )
    return torch.from_numpy(matrix.astype(np.uint8).toarray())


def mean_of(mean_module: Mean, X: Rows) -> Tensor:
    """The prior mean at all rows, `A`."""
    if not isinstance(X, Tensor) and type(mean_module) in (ConstantMean, ZeroMean):
        return mean_module(X[:1]).expand(len(X)).clone()
    return _in_chunks(mean_module, X)


def variance_of(kernel: Kernel, X: Rows) -> Tensor:
    """`k(x, x)` at all rows, `A`."""
    if not isinstance(X, Tensor) and compares_counts(kernel):
        return kernel(X[:1], diag=True).expand(len(X)).clone()
    return _in_chunks(lambda Z: kernel(Z, diag=True), X)


def _in_chunks(fn: Callable[[Tensor], Tensor], X: Rows) -> Tensor:
    """What a function makes of all rows, `A`; of some compact ones at a time."""
    if isinstance(X, Tensor):
        return fn(X)
    size = max(1, CHUNK_ENTRIES // X.shape[1])
    parts = [fn(X[start : start + size]) for start in range(0, len(X), size)]
    return torch.cat(parts)


def kernel_with(
    kernel: Kernel, X: Rows, rows: Tensor | slice, points: Tensor
) -> Tensor:
    """`k(x, x')` of rows with `k x d` points, `q x k`. Cost: that of the kernel.

    Of all rows of a table of counts it is that of its different rows, where these are
    known; see `CompactRows.distinct`.
    """
    blocks = distinct_blocks(kernel, X)
    if blocks is None:
        return dense_covariance(kernel, kernel_rows(kernel, X, rows), points)
    similarities = list[Tensor]()
    for block, x in zip(blocks, unscaled(kernel).split(points), strict=True):
        number = block.number[rows]
        if len(block.rows) <= len(number):
            similarities.append(block.similarity(x).index_select(0, number))
        else:
            similarities.append(similarity(block.rows[number], x))
    return count_covariance(kernel, similarities)


def distinct_blocks(kernel: Kernel, X: Rows) -> list[DistinctRows] | None:
    """The different rows of each block of a kernel of counts; see `CompactRows`."""
    if not (isinstance(X, CompactRows) and compares_counts(kernel)):
        return None
    sizes = unscaled(kernel).blocks or (X.num_columns,)
    fits = sum(sizes) == X.num_columns and kernel.active_dims is None
    return X.distinct(sizes) if fits and not kernel.batch_shape else None


def kernel_rows(kernel: Kernel, X: Rows, rows: Tensor | slice) -> Tensor:
    """Rows as a kernel takes them: as bytes where it compares counts, else float64."""
    if isinstance(X, CompactRows) and compares_counts(kernel):
        return X.entries(rows)
    return X[rows]
