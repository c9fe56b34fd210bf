r"""The candidates where sample paths of a Nystrom posterior are largest.

**Kernels with random Fourier features.** A draw `g` of the prior by them becomes one of
the posterior by an update at the inducing points ([Wilson2020]_, [VakiliMPD2021]_
Section 4.1):

.. math:: f(x) = c(x) + g(x) + k_S(x)^\top L^{-\top} \big( z - L^{-1} g(S) \big),
    \qquad z = L_B^{-\top} (a + \varepsilon), \quad \varepsilon \sim N(0, I).

Its mean is the posterior's, and its covariance too, but for the kernel of the residual,
which is the features' kernel.

**All other kernels.** The posterior is a sum of two independent parts, of which the
first is drawn exactly by `m` weights:

.. math:: f(x) = c(x) + k_S(x)^\top L^{-\top} z + e(x), \qquad
    e \sim GP(0, k - k_S^\top K_{SS}^{-1} k_S).

The residual `e` is drawn jointly, with all its covariances, at the candidates of each
path that are the best at `NUM_DEVIATIONS` residual standard deviations above the first
part: `NUM_CONTENDERS` of them, one of which is chosen. On a table of no more candidates
the maximizers are those of the dense posterior.
"""

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias

import torch
from botorch.exceptions import UnsupportedError
from botorch.sampling.pathwise.features import KernelFeatureMap, gen_kernel_features
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from gpytorch.means import Mean
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from botorch_sparse.kernels import dense_covariance, prior_variance
from botorch_sparse.kernels.kernel_matrices import (
    compares_counts,
    is_thread_safe,
    unscaled,
)
from botorch_sparse.kernels.lengthscales import innermost
from botorch_sparse.pools.compact_rows import Rows, kernel_rows
from botorch_sparse.pools.shard import ALL_ROWS, Ranks, SelectableRows, Shard
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.threads import FEATURE, KERNEL_ENTRY, for_each

# From lower and upper bounds of `b x q` values of each outcome, which are equal where
# values are known, to the best of what is maximized, `b x q` level by level.
Levels: TypeAlias = Callable[[list[Tensor], list[Tensor]], Sequence[Tensor]]

NUM_FEATURES = 512
# Candidates at a time, whose covariances and features fit the cache.
ROWS = 2048
# Rounding of a path, in prior standard deviations, below which covariances are float32:
# half of what 512 random features leave open.
TOLERANCE = 0.02
# Candidates of a path at which its residual is drawn, and what they are chosen by.
NUM_CONTENDERS, NUM_DEVIATIONS = 512, 3.0
# What is added to a residual's singular covariance, of the prior variance; ten times as
# much with each further try.
JITTER, MOST_TRIES = 1e-10, 8


def upper_bounds(lower: list[Tensor], upper: list[Tensor]) -> list[Tensor]:
    """What paths of one outcome maximize; see `Levels`."""
    return upper


class Price(NamedTuple):
    """What candidates cost, and the measured points, which paths improve on."""

    of_rows: Tensor  # `A` positive numbers
    measured: Tensor  # `n x d` of them, at least one

    def worth(self, f: Tensor, attained: Tensor, rows: Tensor) -> Tensor:
        """What is maximized, `b x q`: gains divided by the price, losses times it.

        Args:
            f: `b x q` values.
            attained: `b` largest values at measured points. Minus infinity leaves a
                path's values as they are.
            rows: `q` rows.
        """
        known = attained.unsqueeze(-1)
        gain, price = f - known, self.of_rows[rows].to(f)
        worth = torch.where(gain > 0, gain / price, gain * price)
        return worth.where(known > -torch.inf, f)


@torch.no_grad()
def path_maximizers(
    X: Rows,
    posteriors: Sequence[NystromPosterior],
    num_paths: int,
    selectable: SelectableRows = ALL_ROWS,
    *,
    levels: Levels = upper_bounds,
    spread: Tensor | None = None,
    price: Price | None = None,
    num_features: int = NUM_FEATURES,
    chunk_size: int = ROWS,
    shard: Shard | None = None,
) -> list[int]:
    """One candidate for each of some sample paths, in one pass over `A x d` candidates.

    Randomness is torch's own: call it within `manual_seed`. Ranks that share a table
    draw the same paths. Posteriors are unbatched, of any kernel. Where each candidate
    is chosen only once, a path whose maximizer is taken gives the best of what is left,
    and there may be fewer candidates than paths. Cost, times the number of posteriors:
    O(A (m + F)) for each path, O(A d (m + F)) for all, with `F` random features; O(A)
    memory. A kernel without random features has F = 0, O(A m^2) for the residual's
    variances, and O(c^3 + c^2 m) for each path with `c` candidates that have it drawn.

    Args:
        X: The candidates.
        posteriors: One for each outcome.
        num_paths: `b`, of each posterior.
        selectable: Which candidates may be chosen.
        levels: From bounds of the `b x q` values of each outcome to what is maximized,
            `b x q`: the first level, and among candidates where it is minus infinity
            the next one. By default the values of one outcome.
        spread: `b` factors of how far paths are from the means; 1 by default.
        price: What candidates cost, which the first level is compared by.
        num_features: Random features of each prior.
        chunk_size: Candidates at a time.
        shard: The part of a table that ranks share.
    """
    shard = Shard(len(X)) if shard is None else shard
    paths = [
        SamplePaths.draw(each, num_paths, num_features, spread=spread)
        for each in posteriors
    ]
    zero = [X.new_zeros(num_paths, 1) for _ in paths]
    num_levels = len(levels(zero, zero))
    compared = _compared(levels, price, paths)
    depth = num_paths if selectable.once else 1
    is_drawn = all(path.residual is None for path in paths)
    taken_by = _least_exact(paths)
    kept = depth if is_drawn else max(depth, NUM_CONTENDERS)
    shape = (num_levels, num_paths, kept)
    # Minus infinity where excluded.
    closed = shard.selectable(selectable).mean(X.new_zeros(len(X)))
    tops: list[tuple[Tensor, Tensor]] = []  # one for each thread

    def make_worker() -> Callable[[int], None]:
        best = X.new_full(shape, -torch.inf)
        ranked = torch.zeros(shape, dtype=torch.long, device=X.device)
        tops.append((best, ranked))

        def take(start: int) -> None:
            rows = torch.arange(start, min(start + chunk_size, len(X)), device=X.device)
            # Always as many rows: products of one shape round alike.
            num = min(chunk_size, shard.num_rows)
            whole = torch.cat([rows, rows[-1:].expand(num - len(rows))])
            Z = kernel_rows(taken_by, X, whole)
            index = (rows + shard.start).expand(num_paths, -1)
            bounds = [path.bounds(Z) for path in paths]
            upper = [high[:, : len(rows)] for _, high in bounds]
            lower = upper
            if not is_drawn:
                lower = [low[:, : len(rows)] for low, _ in bounds]
            levels_here = compared(lower, upper, rows)
            for f, top, at in zip(levels_here, best, ranked, strict=True):
                found, order = largest(torch.cat([top, f + closed[rows]], -1), kept)
                at.copy_(torch.cat([at, index], dim=-1).gather(-1, order))
                top.copy_(found)
                if X.is_cpu and bool(top[:, -1].isfinite().all()):
                    break  # no candidate of a later level will be chosen

        return take

    num_inducing = sum(len(each.inducing_points) for each in posteriors)
    entry = KERNEL_ENTRY * num_inducing + FEATURE * num_features * len(paths)
    is_shared = X.is_cpu and all(is_thread_safe(p.kernel, p.mean) for p in paths)
    work = len(X) * entry if is_shared else 0
    for_each(range(0, len(X), chunk_size), work, make_worker)
    best, ranked = _of_all(tops, shard.ranks, kept)
    if not is_drawn:
        measured = None if price is None else _best_measured(levels, price, paths)
        best, ranked = _drawn(X, paths, compared, best, ranked, shard, depth, measured)
    by_path = (
        part.reshape(num_levels, num_paths, -1).movedim(0, 1).flatten(1).tolist()
        for part in (best, ranked)  # level by level for each path
    )
    return _choose(*by_path, is_once=selectable.once)


def _drawn(
    X: Rows,
    paths: "Sequence[SamplePaths]",
    compared: "Compared",
    best: Tensor,
    ranked: Tensor,
    shard: Shard,
    depth: int,
    measured: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The same with residuals drawn at each path's candidates that are left.

    `l b x kept` levels at their bounds, and rows. Returns `l b x depth`. With prices,
    paths are drawn at the `n x d` measured points as well.
    """
    rows = _rows_of_each(best, ranked, shard.num_rows, len(paths[0].beta))
    values = best.new_zeros(len(paths), *rows.shape)
    known = None
    if measured is not None:
        known = best.new_zeros(len(paths), len(rows), len(measured))
    # Of a small table all paths have the same.
    each, which = rows.unique(dim=0, return_inverse=True)
    for i, here in enumerate(each):
        here, numbers = here[here < shard.num_rows], (which == i).nonzero().squeeze(-1)
        if not len(here):
            continue  # nothing may be chosen
        Z = shard.at(X, here)
        if measured is not None:
            Z = torch.cat([Z, measured.to(Z)])
        elif kernel_rows(_least_exact(paths), X, here[:0]).dtype == torch.uint8:
            Z = Z.to(torch.uint8)
        for outcome, path in enumerate(paths):
            f = path.joint(Z, numbers)
            values[outcome, numbers, : len(here)] = f[:, : len(here)]
            if known is not None:
                known[outcome, numbers] = f[:, len(here) :]
    is_there, drawn = rows < shard.num_rows, [*values]
    attained = None if known is None else [*known]
    levels = compared(drawn, drawn, rows.where(is_there, 0), attained)
    at_levels = [level.where(is_there, -torch.inf) for level in levels]
    every = rows.repeat(len(at_levels), 1)
    return _first_of_equals(torch.cat(at_levels), every, depth)


def _least_exact(paths: "Sequence[SamplePaths]") -> Kernel:
    """A kernel that takes bytes only if all do."""
    kernels = [path.kernel for path in paths]
    return next((k for k in kernels if not compares_counts(k)), kernels[0])


def _rows_of_each(best: Tensor, ranked: Tensor, none: int, num_paths: int) -> Tensor:
    """The rows of each path in all levels, `b x l kept`, ascending; `none` at the end.

    A row that is in two levels comes once, and what is not selectable does not.
    """
    rows = ranked.where(best > -torch.inf, none)
    rows = rows.unflatten(0, (-1, num_paths)).movedim(0, 1).flatten(1).sort(-1).values
    is_again = rows[:, 1:] == rows[:, :-1]
    rows[:, 1:] = rows[:, 1:].where(~is_again, none)
    return rows.sort(-1).values


class Compared(Protocol):
    """From bounds of each outcome at rows to what is maximized level by level.

    `known` are the values of each outcome at measured points, where these are drawn.
    """

    def __call__(
        self,
        lower: list[Tensor],
        upper: list[Tensor],
        rows: Tensor,
        known: list[Tensor] | None = None,
    ) -> Sequence[Tensor]:
        """The levels, `b x q` each."""
        ...


def _compared(
    levels: Levels, price: Price | None, paths: "Sequence[SamplePaths]"
) -> Compared:
    """`levels` of rows, with their price."""
    if price is None:
        return lambda lower, upper, rows, known=None: levels(lower, upper)
    explained = [path(price.measured) for path in paths]

    def priced(
        lower: list[Tensor],
        upper: list[Tensor],
        rows: Tensor,
        known: list[Tensor] | None = None,
    ) -> Sequence[Tensor]:
        first, *rest = levels(lower, upper)
        at_measured = explained if known is None else known
        attained = levels(at_measured, at_measured)[0].amax(-1)
        return [price.worth(first, attained, rows), *rest]

    return priced


def _best_measured(
    levels: Levels, price: Price, paths: "Sequence[SamplePaths]"
) -> Tensor:
    """The measured points that may attain most, at most `NUM_CONTENDERS`."""
    points = price.measured
    if len(points) <= NUM_CONTENDERS:
        return points
    lower, upper = zip(*(path.bounds(points) for path in paths), strict=True)
    most = levels([*lower], [*upper])[0].amax(0)
    return points[most.topk(NUM_CONTENDERS).indices]


def _of_all(
    tops: list[tuple[Tensor, Tensor]], ranks: Ranks, depth: int
) -> tuple[Tensor, Tensor]:
    """The largest values that all threads and ranks found, and their rows.

    `l b x depth` each, from `l x b x depth` of each thread.
    """
    best, ranked = (
        torch.cat(part, dim=-1).flatten(0, 1) for part in zip(*tops, strict=True)
    )
    best, ranked = _first_of_equals(best, ranked, depth)
    best = torch.cat([*ranks.stack(best)], dim=-1)
    ranked = torch.cat([*ranks.stack(ranked)], dim=-1)
    return _first_of_equals(best, ranked, depth)


def _first_of_equals(values: Tensor, rows: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """The largest values and their rows, `k x depth`; of equal ones the first rows."""
    rows, order = rows.sort(dim=-1)
    values = values.gather(-1, order)
    values, order = values.sort(dim=-1, descending=True, stable=True)
    return values[:, :depth], rows.gather(-1, order[:, :depth])


def largest(values: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """The largest of each row with their places; the first of equal ones."""
    best, order = values.topk(min(depth + 1, values.shape[-1]))
    is_tied = (best[:, 1:] == best[:, :-1]) & best[:, 1:].isfinite()
    # `topk` takes any of them; the host would wait for a device to say so.
    if not values.is_cpu or bool(is_tied.any()):
        best, order = values.sort(dim=-1, descending=True, stable=True)
    return best[:, :depth], order[:, :depth]


def _choose(
    values: list[list[float]], ranked: list[list[int]], *, is_once: bool
) -> list[int]:
    """The first of each path, of those not taken where each is chosen once."""
    chosen: list[int] = []
    taken: set[int] = set()
    for path, candidates in zip(values, ranked, strict=True):
        for value, index in zip(path, candidates, strict=True):
            if value > -torch.inf and not (is_once and index in taken):
                chosen.append(index)
                taken.add(index)
                break
    return chosen


class Residual(NamedTuple):
    """What inducing points leave of a kernel without random features."""

    chol: Tensor  # the factor `L` of `K_SS`
    spread: Tensor | None  # `k` factors of how far paths are from the mean
    seed: int  # of what is drawn of it


@dataclass(frozen=True, eq=False)
class SamplePaths:
    """Some functions drawn from a posterior, but for a `residual`; see `joint`.

    With random features, what is evaluated at all candidates is float32, since they
    leave more open than it rounds: the features, and where `rounding` is small the
    covariances, which take half the time then. The weights of the update are computed
    in float64, and so are the features that they come from: a nearly singular `L`
    magnifies what is rounded there. Without random features all is in the dtype of the
    posterior.
    """

    mean: Mean  # the prior mean, in the dtype of the candidates
    kernel: Kernel  # the kernel of the update, in the dtype of `points`
    # Draws of the prior, float32, at points less `center`; None if it has no features.
    prior: "_FourierFeatures | None"
    center: Tensor  # `d`, the mean of the inducing points; zero without features
    points: Tensor  # `m x d` inducing points less `center`
    beta: Tensor  # `k x m` weights of the covariances, in the dtype of `points`
    residual: Residual | None = None  # of a kernel without features

    @classmethod
    def draw(
        cls,
        posterior: NystromPosterior,
        num_paths: int,
        num_features: int,
        tolerance: float = TOLERANCE,
        spread: Tensor | None = None,
    ) -> "SamplePaths":
        """Draw `k` of them, on the host. Cost: O(k m^2 + k m F).

        With a `spread` of `k` factors, paths are so many times as far from the mean.
        """
        S, L = posterior.inducing_points, posterior.chol_inducing
        kernel = posterior.covar_module
        features = None
        if has_random_features(kernel):
            features = _feature_map(kernel, S.shape[-1], num_features)
            omega = torch.randn(num_paths, num_features, dtype=torch.float64)
            omega = omega.to(S.device)
        noise = torch.randn(num_paths, len(S), dtype=S.dtype).to(S.device)
        if spread is not None:
            noise = noise * spread.unsqueeze(-1).to(noise)
        z = torch.linalg.solve_triangular(
            posterior.chol_inner, posterior.weights + noise, upper=False, left=False
        )
        if features is None:
            beta = torch.linalg.solve_triangular(L, z, upper=False, left=False)
            zero = torch.zeros_like(S[:1]).squeeze(0)
            left = Residual(L, spread, int(torch.randint(2**31, ())))
            return cls(posterior.mean_module, kernel, None, zero, S, beta, left)
        if spread is not None:
            omega = omega * spread.unsqueeze(-1).to(omega)
        center = S.mean(0)
        prior = _FourierFeatures.of(features, omega, S.shape[-1])
        g_S = prior((S - center).double()).mT.to(S)
        white = torch.linalg.solve_triangular(L, g_S, upper=False).mT
        beta = torch.linalg.solve_triangular(L, z - white, upper=False, left=False)
        points = S - center
        if rounding(kernel, points, beta) <= tolerance:
            kernel = copy.deepcopy(kernel).float()
            points, beta = points.float(), beta.float()
        coarse = _FourierFeatures(*(part.float() for part in prior))
        return cls(posterior.mean_module, kernel, coarse, center, points, beta)

    def __call__(self, X: Tensor) -> Tensor:
        """Values at `q x d` points, `k x q`."""
        if self.prior is None:
            return self._explained(X, self._covariance(X))
        Z = X - self.center
        K = dense_covariance(self.kernel, self.points, Z.to(self.points))
        f = self.prior(Z.float()).to(K.dtype).addmm_(self.beta, K)
        return self.mean(X) + f.to(X.dtype)

    def _covariance(self, X: Tensor) -> Tensor:
        """`k_S(x)` without features, `m x q`."""
        Z = X.to(self.points) if X.is_floating_point() else X
        return dense_covariance(self.kernel, self.points, Z)

    def _explained(self, X: Tensor, K: Tensor) -> Tensor:
        """What `k_S(x)` makes of the values, `k x q`."""
        f = self.beta @ K
        X = X if X.is_floating_point() else X.to(f)
        return self.mean(X) + f.to(X.dtype)

    def bounds(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """What values at `q x d` points are between, `k x q` each.

        Themselves, or `NUM_DEVIATIONS` of the residual around them. Cost: O(q m^2).
        """
        if self.residual is None:
            values = self(X)
            return values, values
        K = self._covariance(X)
        values = self._explained(X, K)
        phi = torch.linalg.solve_triangular(self.residual.chol, K, upper=False)
        variance = prior_variance(self.kernel, X)
        sd = (variance - phi.square_().sum(0)).clamp_min_(0.0).sqrt_().to(values)
        width = NUM_DEVIATIONS * sd.expand_as(values)
        if self.residual.spread is not None:
            width = width * self.residual.spread.unsqueeze(-1).to(width)
        return values - width, values + width

    def joint(self, X: Tensor, numbers: Tensor) -> Tensor:
        """Values of `p` paths at `q x d` points, `p x q`, residuals drawn jointly.

        The same each time for the same paths and points. Cost: O(q^3 + q^2 m), and
        O(q^2) for each path.
        """
        if self.residual is None:
            return self(X)[numbers]
        some = replace(self, beta=self.beta[numbers])
        chol, spread, seed = self.residual
        K = self._covariance(X)
        values = some._explained(X, K)
        phi = torch.linalg.solve_triangular(chol, K, upper=False)
        Z = X.to(self.points) if X.is_floating_point() else X
        covariance = dense_covariance(self.kernel, Z).to(phi) - phi.mT @ phi
        largest = float(prior_variance(self.kernel, Z).max())
        if largest == 0.0:
            return values  # as at the origin of a linear kernel
        jitter = JITTER * largest
        with warnings.catch_warnings():  # of equal rows it is singular
            warnings.simplefilter("ignore", category=NumericalWarning)
            root = psd_safe_cholesky(covariance, jitter=jitter, max_tries=MOST_TRIES)
        g = torch.Generator().manual_seed(seed + int(numbers[0]))
        noise = torch.randn(values.shape, generator=g, dtype=root.dtype)
        drawn = noise.to(root) @ root.mT
        if spread is not None:
            drawn = drawn * spread[numbers.to(spread.device)].unsqueeze(-1).to(drawn)
        return values + drawn.to(values)


class _FourierFeatures(NamedTuple):
    r"""Functions :math:`\sum_i a_i \sin(w_i^\top x) + b_i \cos(w_i^\top x)`."""

    frequencies: Tensor  # `F x d` of them
    sines: Tensor  # `k x F` amplitudes
    cosines: Tensor  # `k x F` amplitudes

    @classmethod
    def of(
        cls, features: KernelFeatureMap, omega: Tensor, dim: int
    ) -> "_FourierFeatures":
        """Sums of random features, sines first, by weights (`k x 2F`)."""
        eye = torch.eye(dim, dtype=omega.dtype, device=omega.device)
        inputs = features.input_transform
        frequencies = features.weight @ (eye if inputs is None else inputs(eye)).mT
        amplitude = features(torch.zeros_like(eye[:1]))[..., -1]
        return cls(frequencies, *(amplitude * omega).chunk(2, dim=-1))

    def __call__(self, X: Tensor) -> Tensor:
        """Values at `q x d` points, `k x q`."""
        phase = self.frequencies @ X.mT
        sine = phase.sin()
        return torch.addmm(self.sines @ sine, self.cosines, phase.cos_())


def rounding(kernel: Kernel, points: Tensor, beta: Tensor) -> float:
    r"""What float32 covariances make of a path at most, in prior standard deviations.

    With :math:`\rho^2` the largest squared norm of a centered inducing point in units
    of the lengthscale, and of the points near it, squared distances round by :math:`4
    \rho^2 \epsilon`. A kernel changes by at most 1.5 k(0) for each unit of them, but
    for the exponential one, whose slope at zero has no bound:

    .. math:: |\Delta f| \le \epsilon \, (6 \rho^2 + 2) \, k(0) \, |\beta|_1.
    """
    base = innermost(kernel)
    if getattr(base, "nu", 2.5) < 1.5:
        return torch.inf
    seen = points if kernel.active_dims is None else points[:, kernel.active_dims]
    squares = (seen / base.lengthscale).square().sum(-1)
    scale = kernel(points[:1], diag=True).sqrt()
    bound = (6 * squares.max() + 2) * scale * beta.abs().sum(-1).max()
    return float(torch.finfo(torch.float32).eps / 2 * bound)


def has_random_features(covar_module: Kernel) -> bool:
    """Whether a kernel is one of those whose random Fourier features are known."""
    return isinstance(unscaled(covar_module), RBFKernel | MaternKernel)


def _feature_map(covar_module: Kernel, dim: int, num_features: int) -> KernelFeatureMap:
    """Random features of a stationary kernel, float64, drawn on the host."""
    kernel = copy.deepcopy(covar_module).double().cpu().requires_grad_(False)
    device = next(covar_module.parameters()).device
    features = gen_kernel_features(kernel, num_inputs=dim, num_outputs=num_features)
    return features.to(device)


def require_random_features(covar_module: Kernel) -> None:
    """Refuse a kernel whose sample paths can't be drawn outside of a table."""
    if not has_random_features(covar_module):
        raise UnsupportedError(
            f"Got {type(covar_module).__name__}, for which there are no random "
            "features; on a continuous domain sample paths need RBFKernel or "
            "MaternKernel, in a ScaleKernel or not. On a table, and by strategies with "
            "an upper confidence bound, any kernel is taken."
        )
