"""Rows that cover a table, before anything is known of its values.

k-means++ [ArthurVassilvitskii2007]_ draws centres: each with a probability in
proportion to the squared distance from the nearest one before. So rows are far from
each other and from what was measured, but outliers, of which there are few, are drawn
seldom, unlike where the farthest row comes next.

References:
    .. [ArthurVassilvitskii2007]
        D. Arthur and S. Vassilvitskii. k-means++: the advantages of careful seeding.
        SODA 2007.
"""

from collections.abc import Collection

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import short_list, short_repr
from botorch_sparse.strategies.data.domain import Domain, TableDomain, require_whole

DESIGNS = ("random", "k-means++")
# Rows at a time whose distances are computed.
CHUNK = 2**16


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


def spread_rows(
    domain: TableDomain,
    num: int,
    generator: torch.Generator,
    excluded: Collection[int],
    known: Tensor,
) -> list[int]:
    """Different rows, drawn by k-means++.

    Columns of numbers are scaled to [0, 1], and two categories are a distance of one
    apart.

    Args:
        domain: A whole table.
        num: How many; fewer come if there are no more.
        generator: Source of randomness.
        excluded: Rows that are not drawn.
        known: `k x d` points that count as centres already.

    Returns:
        The rows in the order of their draws. Cost: O(A d) for each, and for each known
        point.
    """
    unit = _units(domain)
    squares = torch.full((domain.num_rows,), torch.inf, dtype=torch.double)
    left = torch.ones(domain.num_rows, dtype=torch.double)
    left[torch.tensor(sorted(excluded), dtype=torch.long)] = 0.0
    for x in known:
        squares = squares.minimum(_squared_distances(domain.own_rows, x, unit))
    rows = list[int]()
    while len(rows) < num and bool(left.any()):
        weights = left * squares if bool(squares.isfinite().all()) else left
        weights = weights if bool(weights.any()) else left  # all are known points
        total = weights.cumsum(0)
        place = torch.rand((), generator=generator, dtype=torch.double) * total[-1]
        row = int(
            torch.searchsorted(total, place, right=True).clamp_max(_last(weights))
        )
        rows.append(row)
        left[row] = 0.0
        x = domain.rows(torch.tensor([row]))[0]
        squares = squares.minimum(_squared_distances(domain.own_rows, x, unit))
    return rows


def _last(weights: Tensor) -> int:
    """The last row with a weight: rounding may draw the total itself."""
    return int(weights.nonzero()[-1])


def _units(domain: TableDomain) -> Tensor:
    """What a distance of one is in each of `d` columns; infinite for one value."""
    low, high = domain.ranges.cpu()
    unit = (high - low).where(high > low, torch.inf)
    for column in [] if domain.table is None else domain.table.columns:
        if column.categories is not None:
            unit[column.start : column.start + column.width] = 2.0**0.5
    return unit


def _squared_distances(X: Tensor, x: Tensor, unit: Tensor) -> Tensor:
    """`A` squared distances of rows from a point, float64, on the host."""
    scale = unit.to(X.device)
    parts = [((part - x) / scale).square().sum(-1) for part in X.split(CHUNK)]
    return torch.cat(parts).double().cpu()
