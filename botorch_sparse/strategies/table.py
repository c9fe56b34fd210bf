"""Choosing from a table of candidates."""

from typing import Any

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.acquisition.gap_stopping import confidence_gap
from botorch_sparse.optim.candidate_pool import CandidatePool
from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.optim.device_ucb import OneReadUCB, read
from botorch_sparse.optim.exact_pool import ExactCandidatePool
from botorch_sparse.optim.termination import TerminationRule
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
    pool: CandidatePool | ExactCandidatePool,
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
    ucb = pool.ucb(request.multiplier, lam, request.choosable(pool.X.device))
    rule = request.rule.on_table(pool, lam)
    variance, pending = pool.variance, torch.tensor(request.pending).long()
    initial = variances.at(variance, pending).tolist() if len(pending) else []
    for index, first in zip(request.pending, initial, strict=True):
        now = ucb.append(index)
        if rule is not None:
            rule.add(index, now, first)
    if rule is not None:
        chosen = _batch(ucb, rule, request.limit)
    elif request.rule.is_single:
        chosen = _repeated(ucb, request, lam)
    else:
        chosen = _fixed(ucb, request.size)
    if isinstance(ucb, OneReadUCB):
        variances.note(variance, ucb.firsts)
    return chosen


def is_over(
    pool: CandidatePool | ExactCandidatePool,
    lam: float,
    variances: HostVariances,
    request: BatchRequest,
) -> bool:
    """Whether the pending points of a request have used up its rule."""
    rule = request.rule.on_table(pool, lam)
    pending = torch.tensor(request.pending)
    ucb, first = pool.ucb(0.0, lam), variances.at(pool.variance, pending).tolist()
    goes_on = [
        rule is None or rule.add(index, ucb.append(index), before)
        for index, before in zip(request.pending, first, strict=True)
    ]
    return not all(goes_on)


def pool_confidence_gap(
    pool: CandidatePool | ExactCandidatePool, multiplier: float, offset: float
) -> float:
    """The largest upper less the largest lower bound of the candidates."""
    width = multiplier * pool.variance.clamp_min(0.0).sqrt() + offset
    return float(confidence_gap(pool.mean, width))


def _repeated(ucb: Any, request: BatchRequest, lam: float) -> list[int]:
    """The maximizer, as often as the rule says."""
    index = ucb.argmax()
    if request.rule.repeat is None:
        return [index]
    variance = float(ucb.append(index))
    return [index] * request.rule.evaluations(variance, lam, request.limit)


def _fixed(ucb: Any, size: int) -> list[int]:
    """So many maximizers, one after the other."""
    chosen = [ucb.argmax()]
    while len(chosen) < size:
        ucb.append(chosen[-1])
        chosen.append(ucb.argmax())
    return chosen


def _batch(ucb: Any, rule: TerminationRule, limit: int) -> list[int]:
    """Maximizers, one after the other, until the rule ends it."""
    chosen = [ucb.argmax()]
    while len(chosen) < limit:
        following = _next(ucb, rule, chosen[-1])
        if following is None:
            break
        chosen.append(following)
    return chosen


def _next(ucb: Any, rule: TerminationRule, index: int) -> int | None:
    """The maximizer after `index` became pending; None where the batch is over.

    On an accelerator a bound that a pass over the pool has left there is read together
    with the next maximizer, which is looked for before it is known to be needed.
    """
    goes_on = rule.add_unread(index, ucb.append(index), ucb.initial(index))
    if isinstance(goes_on, Tensor):
        if isinstance(ucb, OneReadUCB):
            following, (bound,) = ucb.argmax_and(goes_on)
            return following if rule.decide(bound) else None
        goes_on = rule.decide(float(goes_on))
    return ucb.argmax() if goes_on else None


def uncertainty_sampling(
    pool: ExactCandidatePool,
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
    ucb = pool.ucb(1.0, pool.noise)
    closed = choosable.mean(torch.zeros_like(pool.variance))  # minus infinity there
    for index in pending:
        ucb.append(index)
    chosen: list[int] = []
    while len(chosen) < limit:
        variance = ucb.variance + closed
        first = variance.argmax().view(1)
        number, largest = read(first, variance.index_select(0, first))
        if not largest > max_variance:
            break
        chosen.append(int(number))
        ucb.append(chosen[-1])
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
