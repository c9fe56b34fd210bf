"""Which candidates can have the largest bound: branch and bound over all.

All candidates get an upper bound from a quarter of the pseudo-observations. The exact
values of the most promising drop most of them; what is left gets a bound from half of
the pseudo-observations, and what is left then is embedded (`pools/embedding.py`).
What was dropped is known by its bound, and can be embedded later.

Bounds are upper bounds on the numbers that the embedding computes, rounding included.
So neither they nor the order of the pseudo-observations change what is chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from botorch_sparse.pools.cross_covariance import CrossCovariance
from botorch_sparse.pools.embedding import (
    TILE,
    Embedding,
    in_tiles,
    padded,
    size_of,
)
from botorch_sparse.pools.kernel_columns import POINTS
from botorch_sparse.posteriors.nystrom import Moments
from botorch_sparse.threads import for_each, one_thread, row_chunks

# Candidates that get bounds at a time: what they need stays in the cache.
PIECE = 4096
# The largest rounding, in units of the prior variance, with which bounds pay.
LARGEST_SLACK = 1e-4


@dataclass(frozen=True)
class InducingOrder:
    """Inducing points that explain much of the candidates, kept between boundaries."""

    points: tuple[bytes, ...] = ()  # the points as bytes, those first that explain most
    share: float = 0.0  # left by the first bound when the order was new

    def of(self, keys: Sequence[bytes]) -> list[int]:
        """The places among `keys` of the points that are still inducing points."""
        place = {key: i for i, key in enumerate(keys)}
        return list(dict.fromkeys(place[key] for key in self.points if key in place))

    def after(self, share: float) -> "InducingOrder":
        """The order for the next boundary; none where the share has doubled."""
        if self.share == 0.0:
            return InducingOrder(self.points, max(share, 1e-2))
        return self if share <= 2 * self.share else InducingOrder()


def greedy_order(F: Tensor, sample: Tensor) -> list[int]:
    """The third of the pseudo-observations that explain most of a sample.

    `F` (`m x m`) is their factor, and `sample` their `m x k` covariances with the
    sample. Cost: O(m^2 (m + k)).
    """
    rest, explained = (F @ F.mT).numpy(), sample.numpy().copy()
    variance = rest.diagonal().copy()
    least = 1e-14 * variance
    order: list[int] = []
    for _ in range(-(-len(F) // 3)):
        score = np.einsum("ij,ij->i", explained, explained)
        score /= np.maximum(rest.diagonal(), least)
        score[order] = -1.0
        j = int(score.argmax())
        order.append(j)
        column = rest[:, j] / max(rest[j, j], least[j])
        explained -= np.outer(column, explained[j])
        rest -= np.outer(column, rest[j])
    return order


@dataclass(frozen=True, eq=False)
class Bounds:
    r"""Upper bounds from the first `r` pseudo-observations of an order.

    .. math:: \mathrm{var}(x) \le k(x, x) - |R^{-\top} k_{S_r}(x)|^2
    """

    points: Tensor  # the first pseudo-observations, `r_2` for the second bound
    number: int  # how many of them the first bound has
    inverse: Tensor  # the inverse of their factor, `r_2 x r_2`
    weights: Tensor  # `F^-T z`, which multiply `k_S(x)` in the mean, `m`
    slack: float  # rounding of the variance in units of the prior variance
    mean_slack: float  # rounding of the mean in units of the prior standard deviation

    @classmethod
    def of(cls, embedding: Embedding, order: Tensor, largest: float) -> "Bounds":
        """The bounds of an embedding, from an order whose first points matter.

        Errors of a triangular solution by products with rounded inverses are at most
        its condition times `m` roundings, twice that for its square. Two means are
        compared. The mean of the substitution has a row more; the mean of the weights
        has its own rounding, which is of the same kind, and `m` of the sum of
        magnitudes.
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
        """The bound of `k` variances from the first `r` points, by `K` (`r x k`)."""
        r = len(K)
        explained = (self.inverse[:r, :r] @ K).square_().sum(0)
        return (prior - explained).clamp_min_(0.0).add_(prior, alpha=self.slack)


@dataclass(eq=False)
class CandidateMoments:
    """What is known of all candidates under a posterior."""

    embedding: Embedding  # the posterior's
    cross: CrossCovariance  # `k_S(x)` of them
    prior: Moments  # prior moments of all `A` candidates
    limits: Bounds | None  # upper bounds; None to embed all
    mean: Tensor = field(init=False)  # `A` means, or upper bounds
    variance: Tensor = field(init=False)  # `A` variances, or upper bounds
    level: Tensor = field(init=False)  # bounds passed, or `num_levels`
    share: float = field(init=False, default=0.0)  # of `A`, left by the first bound
    num_levels: int = field(init=False, default=3)
    is_whole: bool = field(init=False, default=False)  # after `resolve_all`
    _is_bounded: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        mean, variance = self.prior
        self.mean, self.variance = mean.clone(), variance.clone()
        self.level = torch.zeros(len(mean), dtype=torch.int16)
        if self.embedding.num_rows == 0:
            self.is_whole, self.num_levels = True, 0
        elif self.limits is not None:
            self.mean.fill_(torch.inf)

    @property
    def in_memory(self) -> bool:
        """Whether `k_S(x)` of all candidates is at hand."""
        return self.cross.in_memory

    @property
    def moments(self) -> Moments:
        """What is known of all, `A` each."""
        return Moments(self.mean, self.variance)

    @property
    def num_exact(self) -> int:
        """Candidates whose moments are known."""
        return len(self.mean) if self.is_whole else int(self.is_exact.sum())

    def cross_covariance(self, rows: Tensor | slice) -> Tensor:
        """`k_S(x)` of some candidates, `m x k`."""
        return self.cross.of(rows)

    def resolve_all(self) -> None:
        """Embed all candidates."""
        if not self.is_whole:
            self._embed(slice(0, len(self.mean)))
            self.level.fill_(self.num_levels)
            self.is_whole = True

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
        """Embed the candidates among `rows` whose bound reaches `best`.

        Where that `grows`, it is at least the value of the most promising of them.
        """
        if self.limits is None:
            self.resolve(rows)
            return
        self.bound_all()
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
        parts = row_chunks(num, TILE * self.embedding.num_tiles)
        self.cross.find_columns()
        height, width = self.embedding.num_rows, padded(size_of(parts[0]), TILE)

        def make_worker() -> Callable[[slice], None]:
            K, f = self.mean.new_empty(2, height * width)

            def embed(part: slice) -> None:
                index = rows[part] if isinstance(rows, Tensor) else part
                size = height * padded(size_of(part), TILE)
                tiles = self._embed_tiles(index, K[:size], f[:size])
                mean[part], explained[part] = (
                    x.flatten()[: size_of(part)] for x in tiles
                )

            return embed

        for_each(parts, num * self.cross.work(height**2), make_worker)
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
        self.cross.tiles(rows, K)
        moments = self.embedding.moments(in_tiles(K), f)
        if isinstance(rows, Tensor) and not self.cross.in_memory:
            self.cross.keep(rows.numpy(), K[:, :k].mT.numpy())
        return moments

    def bound_all(self) -> None:
        """The first bound of all candidates, once."""
        limits = self.limits
        if limits is None or self._is_bounded or self.is_whole:
            return
        mean, variance = torch.empty_like(self.mean), torch.empty_like(self.mean)
        points, num = limits.points[: limits.number], len(mean)
        self.cross.find_columns()

        def bound(rows: slice) -> None:
            mean[rows], K = self.cross.parts(limits.weights, points, rows)
            variance[rows] = limits.variance(K, self.prior.variance[rows])

        work = num * self.cross.work(2 * len(limits.weights) + len(points) ** 2)
        for_each(row_chunks(num, PIECE), work, lambda: bound)
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

    @torch.no_grad()
    def squares_with(self, X: Tensor, K: Tensor) -> Tensor:
        r"""Squared covariances of all `A` rows with `k x d` points, `k x 2 x A`.

        With :math:`\phi = L_B w` and `K` (`m x k`) the points' `k_S(x)`,
        :math:`\mathrm{cov}(x, x_s) = k(x, x_s) + w(x)^\top (I - L_B^\top L_B) w(x_s)`.
        A pass goes by batches of tiles that stay in the cache while all products with
        them are made. Every product has one shape, so that a row's bits do not depend
        on the others.
        """
        k, num = len(X), len(self.mean)
        missing = -k % POINTS
        X = torch.cat([X, X[-1:].expand(missing, -1)])
        K = torch.cat([K, K.new_zeros(len(K), missing)], dim=1)
        with one_thread():
            factors = self._factors(K)
        parts = row_chunks(num, TILE * self.embedding.num_tiles)
        squares = X.new_empty(k, 2, num)
        with_points = self.cross.tiles_with(X)

        def make_worker() -> Callable[[slice], None]:
            tiles = with_points(padded(size_of(parts[0]), TILE))

            def square(columns: slice) -> None:
                width = size_of(columns)
                t = padded(width, TILE) // TILE
                cross, kernel = tiles(columns)
                for first, factor in zip(range(0, k, POINTS), factors, strict=True):
                    part = slice(first, min(first + POINTS, k))
                    products = torch.bmm(factor.expand(t, -1, -1), in_tiles(cross))
                    products = products.view(t, 2, POINTS, TILE)
                    products[:, 0] += in_tiles(kernel[first : first + POINTS])
                    products = products[:, :, : part.stop - first].permute(2, 1, 0, 3)
                    out = squares[part, :, columns]
                    if width == t * TILE:
                        torch.square(products, out=out.unflatten(2, (t, TILE)))
                    else:
                        out.copy_(products.square().flatten(2)[..., :width])

            return square

        for_each(parts, num * self.cross.work(4 * k * len(K)), make_worker)
        return squares

    def _factors(self, K: Tensor) -> list[Tensor]:
        """What `k_S(x)` of a tile is multiplied by: `2 POINTS x m` for each group."""
        w, residual = self.embedding.features(K)
        both = torch.stack([residual.mT, w.mT]) @ self.embedding.whitening
        return [part.reshape(2 * POINTS, -1) for part in both.split(POINTS, dim=1)]
