"""Rows that stand for a table, before anything is known of its values.

The rows are put into as many clusters as rows are wanted, by k-means [Lloyd1982]_ from
centres by k-means++ [ArthurVassilvitskii2007]_, and of each cluster the row nearest to
its middle comes. What was measured stays a centre of its own. Rows that are far from
each other instead, as the centres of k-means++ are, lie at the ends of the ranges: on
real tables the best row after five rounds then ranks worse
(`python -m benchmarks.laboratory`).

References:
    .. [ArthurVassilvitskii2007]
        D. Arthur and S. Vassilvitskii. k-means++: the advantages of careful seeding.
        SODA 2007.
    .. [Lloyd1982]
        S. P. Lloyd. Least squares quantization in PCM. IEEE Transactions on Information
        Theory 28, 1982.
"""

from collections.abc import Collection

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.strategies.data.domain import Domain, TableDomain, require_whole

DESIGNS = ("random", "k-means")
# Clusters are those of so many rows, drawn at random, of a larger table.
MOST_ROWS = 2**14
# Of the rows that earlier campaigns find best, one in so many is promising.
PROMISING = 20
# Rounds of k-means at most; few are left over after some ten.
ROUNDS = 20
# Distances are counted in these, where columns have the range 1. So rounding, which
# another processor does otherwise, decides between no two of them.
UNIT = 1e-6


def check_design(name: str, domain: Domain) -> str:
    """The name of a design, if it is one and the domain has it.

    Raises:
        InputDataError: If it is none, or names rows of a table where there are none.
        UnsupportedError: If ranks share the table.
    """
    if name not in DESIGNS:
        raise InputDataError(
            f"Got initial_design={short_repr(name)}; need one of {short_list(DESIGNS)}."
        )
    if name != "random":
        if not domain.num_rows:
            raise InputDataError(
                f"Got initial_design={name!r} with bounds; points of a continuous "
                "domain are Sobol's, which cover it. Leave it out."
            )
        require_whole(domain, f"initial_design={name!r}")
    return name


def promising_rows(
    score: Tensor, num: int, generator: torch.Generator, excluded: Collection[int]
) -> list[int]:
    """Different rows, drawn uniformly from those of the largest scores.

    Args:
        score: Of all rows, `A`.
        num: How many; fewer come if there are no more.
        generator: Source of randomness.
        excluded: Rows that are not drawn.
    """
    left = torch.ones(len(score), dtype=torch.bool)
    left[list(excluded)] = False
    most = min(max(num, len(score) // PROMISING), int(left.sum()))
    best = score.cpu().masked_fill(~left, -torch.inf).topk(most).indices
    return best[torch.randperm(most, generator=generator)[:num]].tolist()


def spread_rows(
    domain: TableDomain,
    num: int,
    generator: torch.Generator,
    excluded: Collection[int],
    known: Tensor,
) -> list[int]:
    """Different rows, each the nearest to the middle of a cluster of the table.

    Columns of numbers are scaled to [0, 1], and two categories are a distance of one
    apart; so are molecules that have nothing in common, and a molecule and none.

    Args:
        domain: A whole table.
        num: How many; fewer come if there are no more.
        generator: Source of randomness.
        excluded: Rows that are not drawn, and belong to no cluster.
        known: `k x d` points that are centres and stay where they are.

    Returns:
        The rows. Cost: O(A) and O(a d (k + num)) for each of `ROUNDS`, with `a` rows of
        a table, at most `MOST_ROWS`.
    """
    out = torch.tensor(sorted(excluded), dtype=torch.long)
    rows = torch.arange(domain.num_rows)
    rows = rows[~torch.isin(rows, out)]
    if len(rows) > MOST_ROWS:
        drawn = torch.randperm(len(rows), generator=generator)[:MOST_ROWS]
        rows = rows[drawn.sort().values]
    if not (num := min(num, len(rows))):
        return []
    X, fixed = _scaled(domain, domain.rows(rows)), _scaled(domain, known)
    starts = _far_rows(X, num, generator, fixed)
    centres = _middles(X, torch.cat([fixed, X[starts]]), len(fixed))
    return rows[_nearest_rows(X, centres[len(fixed) :], generator)].tolist()


def _far_rows(
    X: Tensor, num: int, generator: torch.Generator, fixed: Tensor
) -> list[int]:
    """Different rows of `X`, drawn by k-means++.

    Each with a probability in proportion to the squared distance from the nearest
    centre: from the `k x d` ones that are fixed, and those that were drawn before.
    """
    squares = X.new_full(X.shape[:1], torch.inf)
    if len(fixed):
        exact = "donot_use_mm_for_euclid_dist"  # zero between equal rows
        squares = torch.cdist(X, fixed, compute_mode=exact).amin(-1).square()
    left = torch.ones_like(squares)
    rows = list[int]()
    while len(rows) < num:
        weights = left * squares if bool(squares.isfinite().all()) else left
        weights = weights if bool(weights.any()) else left  # all are known points
        total = weights.cumsum(0)
        place = torch.rand((), generator=generator, dtype=torch.double) * total[-1]
        row = int(
            torch.searchsorted(total, place, right=True).clamp_max(_last(weights))
        )
        rows.append(row)
        left[row] = 0.0
        squares = squares.minimum((X - X[row]).square().sum(-1))
    return rows


def _middles(X: Tensor, centres: Tensor, num_fixed: int) -> Tensor:
    """Centres of clusters by k-means, of which the first ones stay where they are."""
    nearest = None
    for _ in range(ROUNDS):
        before, nearest = nearest, _distances(X, centres).argmin(-1)
        if before is not None and nearest.equal(before):
            break
        sums = torch.zeros_like(centres).index_add_(0, nearest, X)
        counts = nearest.bincount(minlength=len(centres)).unsqueeze(-1)
        moved = (sums / counts).where(counts > 0, centres)
        centres = torch.cat([centres[:num_fixed], moved[num_fixed:]])
    return centres


def _nearest_rows(X: Tensor, centres: Tensor, generator: torch.Generator) -> Tensor:
    """A row for each centre, drawn among the nearest ones that are left.

    Where all combinations of categories are there, many rows are as near.
    """
    distances, rows = _distances(X, centres), list[int]()
    for column in distances.T:
        column[rows] = torch.inf
        nearest = (column == column.min()).nonzero().squeeze(-1)
        drawn = torch.randint(len(nearest), (), generator=generator)
        rows.append(int(nearest[drawn]))
    return torch.tensor(rows, dtype=torch.long)


def _distances(X: Tensor, centres: Tensor) -> Tensor:
    """Of `a` rows from `c` centres, `a x c`, as whole numbers of `UNIT`."""
    return (torch.cdist(X, centres) / UNIT).round()


def _last(weights: Tensor) -> int:
    """The last row with a weight: rounding may draw the total itself."""
    return int(weights.nonzero()[-1])


def _scaled(domain: TableDomain, X: Tensor) -> Tensor:
    """`k x d` rows in units of distance, float64 on the host.

    Counts of a fingerprint are taken as a direction: a large molecule is as far from
    the middle of others as a small one. No molecule is a direction of its own.
    """
    X = X.cpu().double() / _units(domain)
    none = []
    for block in domain.fingerprints:
        size = torch.linalg.vector_norm(X[:, block], dim=-1, keepdim=True)
        none.append((size == 0) * 0.5**0.5)
        X[:, block] *= 0.5**0.5 / size.where(size > 0, 1.0)
    return torch.cat([X, *none], dim=-1)


def _units(domain: TableDomain) -> Tensor:
    """What a distance of one is in each of `d` columns; infinite for one value.

    Counts of fingerprints are left as they are.
    """
    low, high = domain.ranges.cpu()
    unit = (high - low).where(high > low, torch.inf)
    for column in [] if domain.table is None else domain.table.columns:
        if column.categories is not None:
            unit[column.start : column.start + column.width] = 2.0**0.5
    for block in domain.fingerprints:
        unit[block] = 1.0
    return unit
