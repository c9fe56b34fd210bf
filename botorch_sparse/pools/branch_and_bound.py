"""Which candidates can have the largest bound: branch and bound over all.

All candidates get an upper bound from a quarter of the pseudo-observations. The exact
values of the most promising drop most of them; what is left gets a bound from half of
the pseudo-observations, and what is left then is embedded (`pools/embedding.py`).
What was dropped is known by its bound, and can be embedded later.

Bounds are upper bounds on the numbers that the embedding computes, rounding included.
So neither they nor the order of the pseudo-observations change what is chosen.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from botorch_sparse.pools.cross_covariance import CrossCovariance
from botorch_sparse.pools.embedding import TILE, Embedding, threads_for
from botorch_sparse.pools.pool_protocol import Moments

# Candidates that get bounds at a time: what they need stays in the cache.
PIECE = 4096
# The largest rounding, in units of the prior variance, with which bounds pay.
LARGEST_SLACK = 1e-4


@dataclass(frozen=True, eq=False)
class Bounds:
    r"""Upper bounds from the first `r` pseudo-observations of an order.

    .. math:: \mathrm{var}(x) \le k(x, x) - |R^{-\top} k_{S_r}(x)|^2

    Attributes:
        points: The first pseudo-observations, `r_2` for the second bound.
        number: How many of them the first bound has.
        inverse: The inverse of their factor, `r_2 x r_2`.
        weights: `F^-T z`, which multiply `k_S(x)` in the mean, `m`.
        slack: Rounding of the variance in units of the prior variance.
        mean_slack: Rounding of the mean in units of the prior standard deviation.
    """

    points: Tensor
    number: int
    inverse: Tensor
    weights: Tensor
    slack: float
    mean_slack: float

    @classmethod
    def of(cls, embedding: Embedding, order: Tensor, largest: float) -> "Bounds":
        """The bounds of an embedding.

        Errors of a triangular solution by products with rounded inverses are at most
        its condition times `m` roundings, twice that for its square. Two means are
        compared: that of the substitution has a row more, that of the weights their own
        rounding, which is of the same kind, and `m` of the sum of magnitudes.

        Args:
            embedding: The embedding.
            order: The pseudo-observations, the first of them matter.
            largest: The largest prior variance.
        """
        F, m = embedding.factor, len(order)
        points = order[: max(1, m // 2)]
        R = torch.linalg.qr(F[points].mT, mode="r").R.mT
        eye = torch.eye(len(R), dtype=R.dtype)
        inverse = torch.linalg.solve_triangular(R, eye, upper=False)
        own = embedding.condition()
        condition = (inverse.abs() @ R.abs()).norm().square() + own
        rounding = (2 * m + 16) * torch.finfo(F.dtype).eps
        z = embedding.observations
        weights = torch.linalg.solve_triangular(F.mT, z.unsqueeze(-1), upper=True)
        magnitude = weights.abs().sum() * largest**0.5 + z.norm() * (1 + own)
        slack, mean_slack = 2 * rounding * condition, 3 * rounding * magnitude
        number = max(1, m // 4)
        return cls(
            points,
            number,
            inverse,
            weights.squeeze(-1),
            float(slack),
            float(mean_slack),
        )

    @property
    def is_sharp(self) -> bool:
        """Whether rounding leaves something to see."""
        return self.slack <= LARGEST_SLACK

    def variance(self, K: Tensor, prior: Tensor) -> Tensor:
        """The bound of variances from the first `len(K)` points.

        Args:
            K: `r x k` covariances of candidates with the points.
            prior: `k` prior variances.
        """
        r = len(K)
        explained = (self.inverse[:r, :r] @ K).square_().sum(0)
        return (prior - explained).clamp_min_(0.0).add_(prior, alpha=self.slack)


@dataclass(eq=False)
class CandidateMoments:
    """What is known of all candidates under a posterior.

    Attributes:
        embedding: The posterior's.
        cross: `k_S(x)` of them.
        prior: Prior moments of all `A` candidates.
        limits: Upper bounds; None to embed all.
        mean: `A` means, or upper bounds.
        variance: `A` variances, or upper bounds.
        level: `A` numbers of steps: nothing, two bounds, the exact value.
        share: The part of the candidates that the first bound has left, the last time.
    """

    embedding: Embedding
    cross: CrossCovariance
    prior: Moments
    limits: Bounds | None
    mean: Tensor = field(init=False)
    variance: Tensor = field(init=False)
    level: Tensor = field(init=False)
    share: float = field(init=False, default=0.0)
    num_levels: int = field(init=False, default=3)
    _is_whole: bool = field(init=False, default=False)
    _is_bounded: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        mean, variance = self.prior
        self.mean, self.variance = mean.clone(), variance.clone()
        self.level = torch.zeros(len(mean), dtype=torch.int16)
        if self.embedding.num_rows == 0:
            self._is_whole, self.num_levels = True, 0
        elif self.limits is not None:
            self.mean.fill_(torch.inf)

    @property
    def screens(self) -> bool:
        """Whether only promising candidates are embedded."""
        return self.limits is not None

    @property
    def is_whole(self) -> bool:
        """Whether all are exact, as `resolve_all` leaves them."""
        return self._is_whole

    def resolve_all(self) -> None:
        """Embed all candidates."""
        if not self._is_whole:
            self._embed(slice(0, len(self.mean)))
            self.level.fill_(self.num_levels)
            self._is_whole = True

    @property
    def is_exact(self) -> Tensor:
        """Of which candidates mean and variance are exact, `A`."""
        return self.level == self.num_levels

    def bounds(self, multiplier: float, rows: Tensor | slice = slice(None)) -> Tensor:
        """Upper bounds on mean + multiplier x standard deviation, exact where known."""
        return self.mean[rows] + multiplier * self.variance[rows].sqrt()

    def resolve(self, rows: Tensor) -> None:
        """Embed candidates. Cost: O(m^2) for each that is not known yet."""
        rows = rows[self.level[rows] < self.num_levels]
        if len(rows):
            self._embed(rows)
            self.level[rows] = self.num_levels

    def screen(
        self, multiplier: float, rows: Tensor, best: float, *, grows: bool
    ) -> None:
        """Embed those of some candidates that may reach a value.

        Args:
            multiplier: What multiplies the standard deviation.
            rows: The candidates.
            best: The value; bounds below it do not matter.
            grows: Whether the value of the most promising of them takes its place.
        """
        if self.limits is None:
            self.resolve(rows)
            return
        self._bound_all(self.limits)
        bounds = self.bounds(multiplier, rows)
        if grows and len(rows):
            top = rows[bounds.topk(min(TILE // 2, len(rows))).indices]
            self.resolve(top)
            best = max(best, float(self.bounds(multiplier, top).max()))
        rows = rows[bounds >= best]
        rows = rows[self.level[rows] < self.num_levels]
        self.share = len(rows) / len(self.mean)
        if len(rows) > TILE:
            self._bound_again(self.limits, rows[self.level[rows] < 2])
            rows = rows[self.bounds(multiplier, rows) >= best]
        self.resolve(rows)

    def _embed(self, rows: Tensor | slice) -> None:
        """Exact values of candidates."""
        num = len(rows) if isinstance(rows, Tensor) else rows.stop
        mean, explained = self.mean.new_empty(2, num)
        parts = parts_of(num, self.embedding.num_tiles)
        K, f = self.mean.new_empty(2, self.embedding.num_rows * padded(parts[0]))
        for part in parts:
            index = rows[part] if isinstance(rows, Tensor) else part
            size = self.embedding.num_rows * padded(part)
            tiles = self._embed_tiles(index, K[:size], f[:size])
            mean[part], explained[part] = (x.flatten()[: size_of(part)] for x in tiles)
        prior, variance = self.prior.mean[rows], self.prior.variance[rows]
        least = torch.finfo(variance.dtype).eps * variance
        self.mean[rows] = prior + mean
        self.variance[rows] = torch.maximum(variance - explained, least)

    def _embed_tiles(
        self, rows: Tensor | slice, K: Tensor, f: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same for one batch of tiles; see `Embedding.moments`."""
        height, k = self.embedding.num_rows, size_of(rows)
        K, f = K.view(height, -1), f.view(-1, height, TILE)
        K[len(self.embedding.factor) :] = 0.0
        K[:, k:] = 0.0
        with threads_for(len(f)):
            self.cross.tiles(rows, K)
            moments = self.embedding.moments(in_tiles(K), f)
        if isinstance(rows, Tensor) and not self.cross.in_memory:
            self.cross.keep(rows.numpy(), K[:, :k].mT.numpy())
        return moments

    def _bound_all(self, limits: Bounds) -> None:
        """The first bound of all candidates, once."""
        if self._is_bounded:
            return
        mean, variance = torch.empty_like(self.mean), torch.empty_like(self.mean)
        points = limits.points[: limits.number]
        for start in range(0, len(mean), PIECE):
            rows = slice(start, min(start + PIECE, len(mean)))
            mean[rows], K = self.cross.parts(limits.weights, points, rows)
            variance[rows] = limits.variance(K, self.prior.variance[rows])
        mean += self.prior.mean
        mean += self.prior.variance.sqrt() * limits.mean_slack
        mean += 4 * torch.finfo(mean.dtype).eps * self.prior.mean.abs()
        is_new = self.level == 0
        torch.where(is_new, mean, self.mean, out=self.mean)
        torch.where(is_new, variance, self.variance, out=self.variance)
        self.level += is_new
        self._is_bounded = True

    def _bound_again(self, limits: Bounds, rows: Tensor) -> None:
        """The second bounds of candidates."""
        for part in rows.split(PIECE):
            K = self.cross.at(limits.points, part)
            variance = limits.variance(K, self.prior.variance[part])
            self.variance[part] = torch.minimum(self.variance[part], variance)
            self.level[part] = 2


def size_of(rows: Tensor | slice) -> int:
    """How many candidates these are."""
    return len(rows) if isinstance(rows, Tensor) else rows.stop - rows.start


def padded(rows: slice) -> int:
    """Columns of the tiles of candidates."""
    return TILE * -(-size_of(rows) // TILE)


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
