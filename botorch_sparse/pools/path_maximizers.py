"""The candidates where sample paths are largest.

Where paths are known (`botorch_sparse.pools.sample_paths`), one pass over the table
compares their values. Of kernels without random features it compares what a path may
attain: `NUM_DEVIATIONS` residual standard deviations above what is known of it. At the
`NUM_CONTENDERS` candidates of each path that may attain most the residual is drawn
jointly, and one of them is chosen. Paths hope for much the same candidates: where all
of theirs are at most `MOST_JOINT`, residuals are drawn at all of these together. On a
table of no more candidates than contenders the maximizers are those of the dense
posterior.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.kernels.kernel_matrices import (
    compares_counts,
    is_thread_safe,
    unscaled,
)
from botorch_sparse.pools.compact_rows import (
    CompactRows,
    Rows,
    distinct_blocks,
    kernel_rows,
    kernel_with,
)
from botorch_sparse.pools.sample_paths import NUM_FEATURES, SamplePaths
from botorch_sparse.pools.shard import ALL_ROWS, Ranks, SelectableRows, Shard
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.threads import for_each

# From lower and upper bounds of `b x q` values of each outcome, which are equal where
# values are known, to the best of what is maximized, `b x q` level by level.
Levels: TypeAlias = Callable[[list[Tensor], list[Tensor]], Sequence[Tensor]]

RowsT = TypeVar("RowsT", Rows, Tensor)

# Candidates at a time, whose covariances and features fit the cache.
ROWS = 2048
# Candidates of a path at which its residual is drawn, and of all paths together.
NUM_CONTENDERS, MOST_JOINT = 512, 2048


def upper_bounds(lower: list[Tensor], upper: list[Tensor]) -> list[Tensor]:
    """What paths of one outcome maximize; see `Levels`."""
    return upper


class Price(NamedTuple):
    """What candidates cost, and the measured points, which paths improve on."""

    of_rows: Tensor  # `A` positive numbers
    measured: Tensor | Sequence[Tensor]  # `n x d`, n > 0; those of each outcome

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
    X: Rows | Sequence[Rows],
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
    """One candidate for each of some sample paths, which are drawn here.

    Randomness is torch's own: call it within `manual_seed`. Ranks that share a table
    draw the same paths. Cost and result are those of `maximize_paths`, which has the
    other arguments.

    Args:
        X: `A x d` candidates, or those of each outcome where its kernel has other
            inputs.
        posteriors: One for each outcome; unbatched, of any kernel.
        num_paths: `b`, of each posterior.
        selectable: Which candidates may be chosen.
        levels: What is maximized; see there, as `price`, `chunk_size` and `shard`.
        spread: `b` factors of how far paths are from the means; 1 by default.
        price: What candidates cost.
        num_features: Random features of each prior.
        chunk_size: Candidates at a time.
        shard: The part of a table that ranks share.
    """
    paths = [
        SamplePaths.draw(each, num_paths, num_features, spread=spread)
        for each in posteriors
    ]
    return maximize_paths(
        X,
        paths,
        selectable,
        levels=levels,
        price=price,
        chunk_size=chunk_size,
        shard=shard,
    )


@torch.no_grad()
def maximize_paths(
    X: Rows | Sequence[Rows],
    paths: Sequence[SamplePaths],
    selectable: SelectableRows = ALL_ROWS,
    *,
    levels: Levels = upper_bounds,
    price: Price | None = None,
    chunk_size: int = ROWS,
    shard: Shard | None = None,
) -> list[int]:
    """One candidate for each of some sample paths, in one pass over `A x d` candidates.

    Where each candidate is chosen only once, a path whose maximizer is taken gives the
    best of what is left. Of fewer candidates than paths the first paths have one. Cost,
    times the number of outcomes: O(A (m + F)) for each path, O(A d (m + F)) for all,
    with `F` random features; O(A) memory. A kernel without random features has F = 0,
    O(A m^2) for the residual's variances, and O(c^3 + c^2 m) for each path with `c`
    candidates that have it drawn.

    Args:
        X: The candidates, or those of each outcome.
        paths: `b` paths of each outcome.
        selectable: Which candidates may be chosen.
        levels: From bounds of the `b x q` values of each outcome to what is maximized,
            `b x q`: the first level, and among candidates where it is minus infinity
            the next one. By default the values of one outcome.
        price: What candidates cost, which the first level is compared by.
        chunk_size: Candidates at a time.
        shard: The part of a table that ranks share.
    """
    tables = _of_each(X, paths)
    X, num_paths = tables[0], len(paths[0].beta)
    shard = Shard(len(X)) if shard is None else shard
    compared = _compared(levels, price, paths)
    depth = num_paths if selectable.once else 1
    is_known = all(path.residual is None for path in paths)
    kept = depth if is_known else max(depth, NUM_CONTENDERS)
    zero = [X.new_zeros(num_paths, 1) for _ in paths]
    shape = (len(levels(zero, zero)), num_paths, kept)
    best, ranked = _contenders(
        tables, paths, compared, selectable, shape, chunk_size, shard
    )
    if not is_known:
        measured = None if price is None else _best_measured(levels, price, paths)
        best, ranked = _drawn(
            tables, paths, compared, best, ranked, shard, depth, measured
        )
    by_path = (
        part.reshape(shape[0], num_paths, -1).movedim(0, 1).flatten(1).tolist()
        for part in (best, ranked)  # level by level for each path
    )
    return _choose(*by_path, is_once=selectable.once)


def _of_each(X: RowsT | Sequence[RowsT], paths: Sequence[SamplePaths]) -> list[RowsT]:
    """The rows of each outcome."""
    return [X] * len(paths) if isinstance(X, Tensor | CompactRows) else list(X)


def _of_one(tables: Sequence[RowsT], take: Callable[[RowsT], Tensor]) -> list[Tensor]:
    """What is taken of each outcome's table, once of one that they share."""
    first = take(tables[0])
    return [first if X is tables[0] else take(X) for X in tables]


def _contenders(
    tables: Sequence[Rows],
    paths: Sequence[SamplePaths],
    compared: "Compared",
    selectable: SelectableRows,
    shape: tuple[int, int, int],
    chunk_size: int,
    shard: Shard,
) -> tuple[Tensor, Tensor]:
    """The largest upper bounds of each path, and their rows, in one pass.

    A `shape` of `l x b x kept` says how many, level by level; `l b x kept` each.
    """
    is_known = all(path.residual is None for path in paths)
    X, taken_by = tables[0], _least_exact(paths)
    share_parts = [_share_parts(path, Z) for path, Z in zip(paths, tables, strict=True)]
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
            inputs = _of_one(tables, lambda X: kernel_rows(taken_by, X, whole))
            index = (rows + shard.start).expand(shape[1], -1)
            each = zip(paths, tables, inputs, share_parts, strict=True)
            bounds = [
                path.bounds(Z, _by_parts(path, X, whole) if by_parts else None)
                for path, X, Z, by_parts in each
            ]
            upper = [high[:, : len(rows)] for _, high in bounds]
            lower = upper if is_known else [low[:, : len(rows)] for low, _ in bounds]
            levels = compared(lower, upper, rows)
            for f, top, at in zip(levels, best, ranked, strict=True):
                found, order = largest(torch.cat([top, f + closed[rows]], -1), shape[2])
                at.copy_(torch.cat([at, index], dim=-1).gather(-1, order))
                top.copy_(found)
                if X.is_cpu and bool(top[:, -1].isfinite().all()):
                    break  # no candidate of a later level will be chosen

        return take

    is_shared = X.is_cpu and all(is_thread_safe(p.kernel, p.mean) for p in paths)
    work = len(X) * sum(path.work for path in paths) if is_shared else 0
    for_each(range(0, len(X), chunk_size), work, make_worker)
    return _of_all(tops, shard.ranks, shape[2])


def _by_parts(path: SamplePaths, X: Rows, rows: Tensor) -> Tensor:
    """Covariances with rows of a table that share parts, `m x q`."""
    return kernel_with(path.kernel, X, rows, path.points).mT


def _share_parts(path: SamplePaths, X: Rows) -> bool:
    """Whether rows of a table, as of reactions, share parts that are compared once."""
    if path.residual is None or not compares_counts(path.kernel):
        return False
    has_parts = unscaled(path.kernel).blocks is not None
    return has_parts and distinct_blocks(path.kernel, X) is not None


def _drawn(
    tables: Sequence[Rows],
    paths: Sequence[SamplePaths],
    compared: "Compared",
    best: Tensor,
    ranked: Tensor,
    shard: Shard,
    depth: int,
    measured: Sequence[Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """The same with residuals drawn at each path's candidates that are left.

    `l b x kept` levels at their bounds, and rows. Returns `l b x depth`. With prices,
    paths are drawn at the `n x d` measured points as well.
    """
    rows = _rows_of_each(best, ranked, shard.num_rows, len(paths[0].beta))
    together = rows.unique()
    together = together[together < shard.num_rows]
    if 0 < len(together) <= MOST_JOINT:
        rows = together.expand(len(rows), -1)
    values = best.new_zeros(len(paths), *rows.shape)
    known = None
    if measured is not None:
        known = best.new_zeros(len(paths), len(rows), len(measured[0]))
    each, which = rows.unique(dim=0, return_inverse=True)
    for i, here in enumerate(each):
        here, numbers = here[here < shard.num_rows], (which == i).nonzero().squeeze(-1)
        if not len(here):
            continue  # nothing may be chosen
        inputs = _of_one(tables, partial(shard.at, rows=here))
        if measured is not None:
            both = zip(inputs, measured, strict=True)
            inputs = [torch.cat([Z, X.to(Z)]) for Z, X in both]
        elif kernel_rows(_least_exact(paths), tables[0], here[:0]).dtype == torch.uint8:
            inputs = [Z.to(torch.uint8) for Z in inputs]
        for outcome, (path, Z) in enumerate(zip(paths, inputs, strict=True)):
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


def _least_exact(paths: Sequence[SamplePaths]) -> Kernel:
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
    levels: Levels, price: Price | None, paths: Sequence[SamplePaths]
) -> Compared:
    """`levels` of rows, with their price."""
    if price is None:
        return lambda lower, upper, rows, known=None: levels(lower, upper)
    measured = _of_each(price.measured, paths)
    explained = [path(X) for path, X in zip(paths, measured, strict=True)]

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
    levels: Levels, price: Price, paths: Sequence[SamplePaths]
) -> list[Tensor]:
    """The measured points of each outcome that may attain most, `NUM_CONTENDERS`."""
    points = _of_each(price.measured, paths)
    if len(points[0]) <= NUM_CONTENDERS:
        return points
    bounds = (path.bounds(X) for path, X in zip(paths, points, strict=True))
    lower, upper = zip(*bounds, strict=True)
    most = levels([*lower], [*upper])[0].amax(0)
    best = most.topk(NUM_CONTENDERS).indices
    return [X[best] for X in points]


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
