"""Which candidates can have the largest bound: branch and bound over all.

All candidates go through the first block of the substitution (`optim/embedding.py`);
those whose bound is below the best exact value are dropped, the others are gathered
into new tiles and go through the next. What was dropped is known by its bound, and can
be embedded later, from the start, to the same bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from botorch_sparse.optim.cross_covariance import CrossCovariance, full_tiles
from botorch_sparse.optim.embedding import TILE, Embedding
from botorch_sparse.optim.points import Moments
from botorch_sparse.optim.workers import spread

# Candidates that are embedded together, where tiles in a row pay for the calls.
PIECE = 2048


@dataclass(eq=False)
class Known:
    """What is known of all candidates under a posterior.

    Attributes:
        embedding: The posterior's.
        cross: `k_S(x)` of them.
        prior: Prior moments of all `A` candidates.
        screens: Whether only promising candidates are embedded.
        mean: `A` means, with the blocks so far.
        variance: `A` variances, with the blocks so far.
        level: `A` numbers of blocks so far.
    """

    embedding: Embedding
    cross: CrossCovariance
    prior: Moments
    screens: bool
    mean: Tensor = field(init=False)
    variance: Tensor = field(init=False)
    level: Tensor = field(init=False)
    _is_whole: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.mean, self.variance = self.prior.mean.clone(), self.prior.variance.clone()
        self.level = torch.zeros(len(self.mean), dtype=torch.int16)

    @property
    def is_whole(self) -> bool:
        """Whether all are exact, as `resolve_all` leaves them."""
        return self._is_whole or self.num_levels == 0

    def resolve_all(self) -> None:
        """Embed all candidates to the end."""
        self.resolve(torch.arange(len(self.mean)))
        self._is_whole = True

    @property
    def num_levels(self) -> int:
        """The number of blocks."""
        return len(self.embedding.blocks)

    @property
    def is_exact(self) -> Tensor:
        """Of which candidates mean and variance are exact, `A`."""
        return self.level == self.num_levels

    def bounds(self, multiplier: float, rows: Tensor | slice = slice(None)) -> Tensor:
        """Upper bounds on mean + multiplier x standard deviation, exact where known.

        Where they are not exact they are larger by some roundings.
        """
        level = self.level[rows].long()
        mean, variance = self.mean[rows], self.variance[rows]
        tail, is_exact = self.embedding.tails[level], level == self.num_levels
        eps = torch.finfo(mean.dtype).eps
        slack = (eps**0.5 * self.prior.variance[rows]).masked_fill_(is_exact, 0.0)
        width = (
            (multiplier**2 + tail.square_()).sqrt_().masked_fill_(is_exact, multiplier)
        )
        return mean + width * (variance + slack).sqrt()

    def resolve(self, rows: Tensor) -> None:
        """Embed candidates to the end. Cost: O(m^2) for each that is not known yet."""
        self._spread(rows[self.level[rows] < self.num_levels], None)

    def screen(
        self, multiplier: float, rows: Tensor, best: float, *, grows: bool
    ) -> None:
        """Embed those of some candidates that may reach a value.

        Args:
            multiplier: What multiplies the standard deviation.
            rows: The candidates.
            best: The value; bounds below it do not matter.
            grows: Whether exact values that are found take its place.
        """
        goal = _Goal(multiplier, best, grows)
        self._spread(rows[self.level[rows] < self.num_levels], goal)

    def _spread(self, rows: Tensor, goal: "_Goal | None") -> None:
        """Candidates in pieces over the threads there are."""
        if not len(rows):
            return
        parts = rows.split(PIECE)
        self.cross.prepare()
        ahead = iter(parts)  # shared: each thread takes the next
        number = min(torch.get_num_threads(), len(parts))
        spread([partial(_Screening(self, goal).run, ahead) for _ in range(number)])


@dataclass(eq=False)
class _Goal:
    """A value to reach; it may grow as exact ones are found.

    Attributes:
        multiplier: What multiplies the standard deviation.
        best: The value.
        grows: Whether it does.
    """

    multiplier: float
    best: float
    grows: bool


@dataclass(eq=False)
class _Piece:
    """Candidates on the same level.

    Attributes:
        known: Where what is known is written.
        rows: `k` candidates.
        padded: The same, padded to full tiles.
        f: `num_rows x padded`, the blocks so far.
        K: `num_rows x padded`, the same of `k_S(x)`.
        mean: `padded` means.
        variance: `padded` variances.
    """

    known: Known
    rows: Tensor
    padded: Tensor
    f: Tensor
    K: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def start(cls, known: Known, rows: Tensor) -> "_Piece":
        """Candidates before the first block."""
        full = full_tiles(rows)
        f, K = known.mean.new_empty(2, known.embedding.num_rows, len(full))
        mean, variance = (moment[full] for moment in known.prior)
        return cls(known, rows, full, f, K, mean, variance)

    def advance(self, level: int) -> None:
        """One block more."""
        rows = self.known.embedding.blocks[level].rows
        K = self.known.cross.block(level, self.padded)
        self.K[rows] = K
        for start in range(0, len(self.padded), TILE):
            tile = slice(start, start + TILE)
            self.known.embedding.advance(
                level, K[:, tile], self.f[:, tile], self.mean[tile], self.variance[tile]
            )

    def write(self, level: int, keep: Tensor | None = None) -> None:
        """Note what is known of those that are not kept, or of all."""
        known, k = self.known, len(self.rows)
        gone = slice(None) if keep is None else ~keep
        rows = self.rows[gone]
        variance = self.variance[:k][gone]
        rounding = torch.finfo(variance.dtype).eps * known.prior.variance[rows]
        known.mean[rows] = self.mean[:k][gone]
        known.variance[rows] = torch.maximum(variance, rounding)
        known.level[rows] = level

    def finish(self) -> None:
        """Note what is known of all, after the last block."""
        self.write(self.known.num_levels)
        self.known.cross.keep(self.rows, self.K[:, : len(self.rows)])

    def bounds(self, level: int, multiplier: float) -> Tensor:
        """See `Known.bounds`."""
        k = len(self.rows)
        tail = float(self.known.embedding.tails[level])
        eps = torch.finfo(self.mean.dtype).eps
        slack = eps**0.5 * self.known.prior.variance[self.rows]
        variance = self.variance[:k].clamp_min(0.0) + slack
        return self.mean[:k] + (multiplier**2 + tail**2) ** 0.5 * variance.sqrt_()

    def select(self, keep: Tensor, height: int) -> "_Piece":
        """Some of the candidates in new tiles; `height` rows of `f` are filled."""
        place = keep.nonzero().squeeze(-1)
        return self._take(self.rows[place], full_tiles(place), height)

    def _take(self, rows: Tensor, place: Tensor, height: int) -> "_Piece":
        f, K = self.f.new_empty(2, len(self.f), len(place))
        torch.index_select(self.f[:height], 1, place, out=f[:height])
        torch.index_select(self.K[:height], 1, place, out=K[:height])
        full, mean = self.padded[place], self.mean[place]
        return _Piece(self.known, rows, full, f, K, mean, self.variance[place])

    def merge(self, other: "_Piece", height: int) -> "_Piece":
        """Both."""
        k, num = len(self.rows), len(other.rows)
        both = _Piece(
            self.known,
            torch.cat([self.rows, other.rows]),
            torch.cat([self.padded[:k], other.padded[:num]]),
            torch.cat([self.f[:, :k], other.f[:, :num]], dim=1),
            torch.cat([self.K[:, :k], other.K[:, :num]], dim=1),
            torch.cat([self.mean[:k], other.mean[:num]]),
            torch.cat([self.variance[:k], other.variance[:num]]),
        )
        return both._take(both.rows, full_tiles(torch.arange(k + num)), height)


class _Screening:
    """Pieces on their way through the blocks; small ones wait for company.

    Args:
        known: Where what is known is written.
        goal: What bounds are compared with; None to drop nothing.
    """

    def __init__(self, known: Known, goal: _Goal | None) -> None:
        self.known, self.goal = known, goal
        self.waiting: dict[int, list[_Piece]] = {}

    def run(self, parts: Iterator[Tensor]) -> None:
        """Take candidates as long as there are any."""
        for part in parts:
            self.follow(_Piece.start(self.known, part), 0)
        for level in range(1, self.known.num_levels):
            while self.waiting.get(level):
                self.follow(self.gather(level), level)

    def follow(self, piece: _Piece, level: int) -> None:
        """Take a piece as far as it goes."""
        for done in range(level, self.known.num_levels):
            piece.advance(done)
            if self.goal is not None and done + 1 < self.known.num_levels:
                left = self.branch(piece, done + 1, self.goal)
                if left is None:
                    return
                piece = left
        piece.finish()
        if self.goal is not None and self.goal.grows:
            values = self.known.bounds(self.goal.multiplier, piece.rows)
            self.goal.best = max(self.goal.best, float(values.max()))

    def branch(self, piece: _Piece, level: int, goal: _Goal) -> _Piece | None:
        """Drop what cannot reach the goal; None where the others have to wait."""
        keep = piece.bounds(level, goal.multiplier) >= goal.best
        left = int(keep.sum())
        if left == len(keep):
            return piece
        piece.write(level, keep)
        if left == 0:
            return None
        piece = piece.select(keep, self.height(level))
        if left >= PIECE // 2:
            return piece
        pieces = self.waiting.setdefault(level, [])
        pieces.append(piece)
        if sum(len(p.rows) for p in pieces) < PIECE:
            return None
        return self.gather(level)

    def gather(self, level: int) -> _Piece:
        """All that wait on a level, as one."""
        first, *others = self.waiting.pop(level)
        for other in others:
            first = first.merge(other, self.height(level))
        return first

    def height(self, level: int) -> int:
        """The rows of the blocks below a level."""
        return self.known.embedding.blocks[level - 1].rows.stop
