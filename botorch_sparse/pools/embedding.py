r"""What turns `k_S(x)` into a mean and a variance, the same bits for each candidate.

The posterior is an exact GP's with pseudo-observations at the inducing points
(`posteriors/pseudo_data.py`). With the factor `F` of their covariance,

.. math:: f(x) = F^{-1} k_S(x), \qquad \mu(x) = c(x) + z^\top f(x), \qquad
    \mathrm{var}(x) = k(x, x) - |f(x)|^2

of which the mean is one more row of the same substitution. Every product has one shape:
`TILE` columns, the last tile padded, and rows in blocks that are padded to multiples of
`ROWS`. So the bits of a column depend on its candidate and the posterior, not on which
candidates share the tile nor on how many there are.

A product that threads share may be cut in another way for each number of them. So a
product has one thread, as kernels have. Products of several tiles are one batch, whose
threads take a tile each. On some processors MKL gives whole products of a batch to its
threads, on others it does not; the machine at hand is asked once. Threads of our own
would wait longer for Python's lock than for these products, which take some
microseconds.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.pseudo_data import pseudo_data, whitening_matrix

# Rows, inner sizes and tiles of the products that the machine is asked about.
SHAPES = ((64, 64), (40, 64), (16, 120), (8, 200))
NUM_TILES = (2, 3, 8, 11)
WIDTH = 512


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for each operation of torch that is called from this thread.

    A thread that is started meanwhile has one thread too, and keeps it.
    """
    number = torch.get_num_threads()
    if number == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


def threads_for(num_tiles: int) -> AbstractContextManager[None]:
    """All threads for a batch of products that keep their bits, else one."""
    keeps = num_tiles > 1 and keeps_bits(torch.get_num_threads())
    return nullcontext() if keeps else one_thread()


@cache
def keeps_bits(threads: int) -> bool:
    """Whether so many threads give the bits of one, as seen on some products.

    Cost: some tens of milliseconds, once.
    """
    if threads == 1 or not torch.backends.mkl.is_available():
        return threads == 1
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    numbers = (*NUM_TILES, 2 * threads)
    for dtype in (torch.float64, torch.float32):
        A = draw(1, 64, 200, dtype=dtype)
        B = draw(max(numbers), 200, WIDTH, dtype=dtype)
        for rows, inner in SHAPES:
            for tiles in numbers:
                product = A[:, :rows, :inner], B[:tiles, :inner]
                if not torch.equal(_one_by_one(*product), _together(*product)):
                    return False
    return True


def _one_by_one(A: Tensor, B: Tensor) -> Tensor:
    with one_thread():
        return torch.cat([torch.bmm(A, tile) for tile in B.split(1)])


def _together(A: Tensor, B: Tensor) -> Tensor:
    """The products with tiles of one matrix, written into a part of another."""
    tiles = B.transpose(0, 1).contiguous().transpose(0, 1)
    out = B.new_empty(len(B), 2 * A.shape[1], WIDTH)[:, : A.shape[1]]
    return torch.bmm(A.expand(len(B), -1, -1), tiles, out=out)


# Columns of a tile, and what numbers of rows are padded to: below eight rows and at a
# single column libraries take other paths, whose bits depend on the number of threads.
TILE = 512
ROWS = 8
# The most tiles of a batch: threads meet rarely. Bytes of `k_S(x)` and `f(x)` that each
# thread has of a batch, so that they stay in its cache.
TILES = 8
CACHE = 2**21
# Rows of a block: few long products, and blocks whose inverses are accurate.
BLOCK_SIZE = 64


class Block(NamedTuple):
    """One block of rows of the substitution."""

    rows: slice
    before: slice
    inverse: Tensor  # F_ii^-1
    coupling: Tensor  # F_ii^-1 F_i,<i


@dataclass(frozen=True, eq=False)
class Embedding:
    """The factor `F` in blocks, bordered by the row of the mean."""

    posterior: NystromPosterior
    whitening: Tensor  # the matrix that turns `k_S(x)` into `w(x)`, `m x m`
    factor: Tensor  # `F`, `m x m`
    observations: Tensor  # `z`, the whitened pseudo-observations, `m`
    blocks: list[Block]  # of `F` and the mean's row, padded by the identity

    @classmethod
    @torch.no_grad()
    def of(cls, posterior: NystromPosterior) -> "Embedding":
        """The embedding of a posterior on the host. Cost: O(m^3)."""
        F, z = pseudo_data(posterior)
        return cls(posterior, whitening_matrix(posterior), F, z, _blocks(F, z))

    @property
    def num_rows(self) -> int:
        """The number `m` of inducing points and the mean's row, padded; 0 without."""
        return self.blocks[-1].rows.stop if self.blocks else 0

    @property
    def num_tiles(self) -> int:
        """Tiles of a batch of products, about."""
        threads = torch.get_num_threads()
        tile = 2 * max(self.num_rows, 1) * TILE * self.factor.element_size()
        return min(max(TILES, threads), threads * max(CACHE // tile, 1))

    def moments(self, K: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """What tiles add to the mean, and take from the variance: `t x TILE` each.

        `K` is their `k_S(x)`, `t x num_rows x TILE`; `f` has its shape and is
        overwritten.
        """
        t, m = len(K), len(self.factor)
        for rows, before, inverse, coupling in self.blocks:
            torch.bmm(inverse.expand(t, -1, -1), K[:, rows], out=f[:, rows])
            if before.stop:
                coupling = coupling.expand(t, -1, -1)
                f[:, rows].baddbmm_(coupling, f[:, before], alpha=-1)
        mean = f[:, m].clone()
        f[:, m] = 0.0
        return mean, f.square_().sum(1)

    def features(self, K: Tensor) -> tuple[Tensor, Tensor]:
        r"""`w(x)` and :math:`(I - L_B^\top L_B) w(x)`, `m x k` each, from `k_S(x)`."""
        L_B = self.posterior.chol_inner
        w = self.whitening @ K
        return w, w - L_B.mT @ (L_B @ w)

    def condition(self) -> Tensor:
        r"""How much more than its rounding a solution can be wrong by, a scalar.

        With `D` the diagonal blocks, whose inverses are rounded as well, errors of `f`
        are at most :math:`c \epsilon |F^{-1}| |D| |D^{-1}| |F| |f|`, whatever the scale
        of the rows.
        """
        F, product = self.factor, self.factor.abs()
        eye = torch.eye(len(F), dtype=F.dtype)
        for block in self.blocks:
            rows = slice(block.rows.start, min(block.rows.stop, len(F)))
            own = block.inverse[: rows.stop - rows.start, : rows.stop - rows.start]
            product[rows] = F[rows, rows].abs() @ (own.abs() @ product[rows])
        inverse = torch.linalg.solve_triangular(F, eye, upper=False)
        return (inverse.abs() @ product).norm()


def padded(size: int, multiple: int = ROWS) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def size_of(rows: Tensor | slice) -> int:
    """How many candidates these are."""
    return len(rows) if isinstance(rows, Tensor) else rows.stop - rows.start


def parts_of(num: int, num_tiles: int) -> list[slice]:
    """Candidates in parts of about `num_tiles` tiles, for a batch of products each.

    Threads get equal numbers of them, but for the last part, which may be shorter.
    """
    threads, tiles = torch.get_num_threads(), max(1, -(-num // TILE))
    number = max(1, round(tiles / num_tiles))
    size = TILE * threads * -(-tiles // (number * threads))
    return [slice(i, min(i + size, num)) for i in range(0, num, size)]


def in_tiles(columns: Tensor) -> Tensor:
    """Columns tile by tile, `t x k x TILE`."""
    return columns.unflatten(1, (-1, TILE)).transpose(0, 1)


def _blocks(F: Tensor, z: Tensor) -> list[Block]:
    """Those of `F` and a row that adds up `z'f`."""
    m = len(F)
    size = padded(m + 1) if m else 0
    whole = torch.eye(size, dtype=F.dtype)
    if m:
        whole[:m, :m] = F
        whole[m, :m] = -z
    eye, blocks = torch.eye(BLOCK_SIZE, dtype=F.dtype), []
    for start in range(0, size, BLOCK_SIZE):
        rows, before = slice(start, min(start + BLOCK_SIZE, size)), slice(0, start)
        corner = whole[rows, rows]
        own = eye[: len(corner), : len(corner)]
        inverse = torch.linalg.solve_triangular(corner, own, upper=False)
        blocks.append(Block(rows, before, inverse, inverse @ whole[rows, before]))
    return blocks
