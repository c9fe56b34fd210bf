"""Choosing from a table of candidates."""

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.acquisition.gap_stopping import confidence_gap
from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.optim.exact_pool import ExactPool
from botorch_sparse.optim.points import Batch
from botorch_sparse.optim.pool import NystromPool
from botorch_sparse.optim.transfers import read
from botorch_sparse.strategies.rules import BatchRequest


class HostVariances:
    """Variances of candidates, each copied from an accelerator once.

    They belong to one tensor: where it is another one, all are forgotten.
    """

    def __init__(self) -> None:
        self._source: Tensor | None = None
        self._known: dict[int, float] = {}
        self._largest: float | None = None

    def at(self, source: Tensor, rows: Tensor, there: Tensor | None = None) -> Tensor:
        """Some variances on the host.

        Args:
            source: `A` variances.
            rows: `k` candidates, on the host.
            there: The same where the variances are, if they are there already.
        """
        if source.is_cpu:
            return source[rows]
        known, wanted = self._of(source), rows.tolist()
        if missing := sorted(set(wanted).difference(known)):
            if there is None:
                there = torch.tensor(missing, device=source.device)
            else:
                missing = wanted
            both = torch.cat([source.max().view(1), source.index_select(0, there)])
            self._largest, *values = both.tolist()
            known.update(zip(missing, values, strict=True))
        return torch.tensor([known[row] for row in wanted], dtype=source.dtype)

    def largest(self, source: Tensor) -> float:
        """The largest variance; it comes to the host with any others."""
        self._of(source)
        if self._largest is None:
            self._largest = float(source.max())
        return self._largest

    def note(self, source: Tensor, known: dict[int, float]) -> None:
        """Take in what came to the host otherwise."""
        self._of(source).update(known)

    def _of(self, source: Tensor) -> dict[int, float]:
        """What is known of these variances."""
        if source is not self._source:
            self._source, self._known, self._largest = source, {}, None
        return self._known


def select_from_pool(
    pool: NystromPool | ExactPool,
    lam: float,
    variances: HostVariances,
    request: BatchRequest,
) -> list[int]:
    """Maximizers of the bound, one after the other, until the rule ends it.

    Args:
        pool: The candidates.
        lam: Noise variance of an evaluation.
        variances: Those of the pool on the host.
        request: What is asked for.
    """
    rule = request.rule.on_table()
    batch = pool.batch(request.multiplier, rule, request.choosable(pool.X.device))
    for row in request.pending:
        batch.append(row)
    if rule is not None:
        chosen = batch.choose(request.limit) or [batch.argmax()]
    elif request.rule.is_single:
        chosen = _repeated(batch, request, lam)
    else:
        chosen = batch.choose(request.size)
    if pool.X.device.type != "cpu":
        variances.note(pool.all_variances(), batch.initial)
    return chosen


def pool_confidence_gap(
    pool: NystromPool | ExactPool, multiplier: float, offset: float
) -> float:
    """The largest upper less the largest lower bound of the candidates."""
    mean, variance = pool.all_moments()
    width = multiplier * variance.clamp_min(0.0).sqrt() + offset
    return float(confidence_gap(mean, width))


def _repeated(batch: Batch, request: BatchRequest, lam: float) -> list[int]:
    """The maximizer, as often as the rule says."""
    row = batch.argmax()
    if request.rule.repeat is None:
        return [row]
    batch.append(row)
    variance = batch.variances_before[-1]
    return [row] * request.rule.evaluations(variance, lam, request.limit)


def uncertainty_sampling(
    pool: ExactPool,
    pending: list[int],
    max_variance: float,
    limit: int,
    choosable: Choosable = ALL,
) -> list[int]:
    r"""Points of largest exact variance, one after the other ([Calandriello2020]_).

    Algorithm 3, with variances where it prints standard deviations: its argument needs
    :math:`\max_x \mathrm{var}(x) / \lambda \le 1/P`.

    Args:
        pool: The exact posterior; its mean has no part in it.
        pending: Candidates that are pending already.
        max_variance: Where to stop, :math:`\lambda / P`.
        limit: Largest number of points.
        choosable: Which candidates may be chosen.

    Returns:
        Candidates; none where the variance is small enough already. Cost: O(A n) for
        each, with `n` points in the posterior.
    """
    batch = pool.batch(1.0)
    closed = choosable.mean(torch.zeros_like(pool.variance))  # minus infinity there
    for index in pending:
        batch.append(index)
    chosen: list[int] = []
    while len(chosen) < limit:
        variance = batch.present_variances() + closed
        first = variance.argmax().view(1)
        number, largest = read(first, variance.index_select(0, first))
        if not largest > max_variance:
            break
        chosen.append(int(number))
        batch.append(chosen[-1])
        if choosable.once:
            closed[chosen[-1]] = -torch.inf
    return chosen


def validate_width(min_batch_width: int | None, *, is_table: bool) -> None:
    """Refuse a width below one, or on a continuous domain."""
    if min_batch_width is None:
        return
    if not min_batch_width >= 1:
        raise InputDataError(
            f"Got min_batch_width={min_batch_width}; need at least 1, or None."
        )
    if not is_table:
        raise InputDataError(
            f"Got min_batch_width={min_batch_width} with bounds, or without "
            "covar_module; uncertainty sampling needs a table of candidates and a "
            "kernel. Use num_initial points instead."
        )
