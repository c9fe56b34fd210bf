"""Ask, evaluate and tell until a number of evaluations."""

import math
import os
import time
import zlib
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor
from tqdm.auto import tqdm

from botorch_sparse.strategies.core.checkpoint import read_state
from botorch_sparse.strategies.core.evaluation import Evaluation
from botorch_sparse.strategies.core.transaction import undivided
from botorch_sparse.strategies.data.history import Batch, History
from botorch_sparse.strategies.data.preference import Preference, feasible_front
from botorch_sparse.strategies.data.run_record import RunRecord

AnyStrategy: TypeAlias = Any  # a `Strategy`, whose module imports this one


def run_to(evaluation: Evaluation, num_evaluations: int, *, progress: bool) -> History:
    """The loop of `Strategy.run`, after `check_run`."""
    strategy = evaluation.strategy
    history: History = strategy.history
    last = history.last_batch()
    if last is not None and _call(evaluation, last):
        return history  # a run that goes on, and has nothing to wait for
    is_shown = progress and strategy.domain.ranks.rank == 0
    with tqdm(
        total=num_evaluations,
        initial=min(len(history), num_evaluations),
        desc=type(strategy).__name__,
        unit="eval",
        disable=not is_shown,
    ) as bar:
        shown = _Shown(bar, strategy)
        try:
            while len(history) < num_evaluations:
                batch = _next_batch(strategy, num_evaluations, evaluation.batch_size)
                if batch is None:
                    break
                evaluation.evaluate(batch)
                shown.update()
                if _call(evaluation, batch):
                    break
                _save(evaluation)
        finally:
            _save(evaluation)
    return history


def check_run(evaluation: Evaluation) -> None:
    """Refuse a run that can't be done, before anything has changed."""
    if evaluation.by_index and evaluation.strategy.box is not None:
        raise InputDataError(
            "Got by_index=True, but a continuous domain has no indices; use an "
            "objective of `b x d` points."
        )
    _check_ranks(evaluation)
    _refuse_to_overwrite(evaluation.strategy, evaluation.checkpoint)


def _check_ranks(evaluation: Evaluation) -> None:
    """Refuse to run with ranks whose strategy is another one."""
    strategy = evaluation.strategy
    ranks, generator = strategy.domain.ranks, strategy.generator
    by_points = (evaluation.executor, evaluation.timeout, evaluation.catch or None)
    if ranks.size > 1 and any(given is not None for given in by_points):
        raise UnsupportedError(
            "Ranks evaluate whole batches, on rank 0; leave executor, timeout and "
            "catch out."
        )
    ranks.require_equal("strategy", strategy._config)
    ranks.require_equal("seed", lambda: zlib.crc32(generator.get_state().numpy().data))
    ranks.require_equal("number of evaluations", lambda: len(strategy.history))


def _call(evaluation: Evaluation, batch: Batch) -> bool:
    """Whether a callback stops the run; all are called, and rank 0 decides."""
    strategy = evaluation.strategy
    stops = any([c(strategy, batch, strategy.history) for c in evaluation.callbacks])
    decided: list[bool] = strategy.domain.ranks.gather(stops)
    return decided[0]


def _refuse_to_overwrite(
    strategy: AnyStrategy, checkpoint: str | os.PathLike[str] | None
) -> None:
    """A strategy that does not know all that is in a file does not replace it."""
    ranks = strategy.domain.ranks
    if checkpoint is None or not ranks.once(lambda: os.path.exists(checkpoint)):
        return
    theirs = ranks.once(lambda: read_state(checkpoint))
    is_new = len(strategy.history) == 0 and len(strategy.pending_ids) == 0
    if is_new or not _knows(strategy.state_dict(), theirs):
        raise InputDataError(
            f"There is a run at checkpoint={os.fspath(checkpoint)!r} already, and this "
            "strategy does not know all of it. Go on with "
            "strategy.resume(path).run(...), or remove the file."
        )


def _knows(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether a state is a later one of the same run: its history begins so.

    After other tables points may have other numbers, and are not compared.
    """
    known, before = ours["history"], theirs.get("history")
    config = theirs.get("config")
    if not isinstance(before, dict) or not isinstance(config, dict):
        return False
    names = ["Y", "batch", "trial"]
    if ours["config"] == config and ours["earlier"] == theirs.get("earlier", []):
        names.append("point")
    elif (
        ours["config"].get("strategy") != config.get("strategy")
        or config.get("candidates") not in ours["earlier"]  # with other numbers
    ):
        return False
    begins = [_begins(known[name], before.get(name)) for name in names]
    proposed = theirs.get("num_proposed", math.inf)
    return all(begins) and bool(proposed <= ours["num_proposed"])


def _begins(column: Tensor, first: object) -> bool:
    """Whether a column of a state begins with another."""
    if not isinstance(first, Tensor) or first.dim() == 0 or first.dtype != column.dtype:
        return False
    own = column[: len(first)]  # compared by bits: values may be NaN
    return torch.equal(own.view(torch.int64), first.cpu().view(torch.int64))


def _next_batch(
    strategy: AnyStrategy, num_evaluations: int, batch_size: int | None
) -> Batch | None:
    """What is pending, or else what is asked for; None where that is nothing."""
    left = num_evaluations - len(strategy.history)
    limit = left if batch_size is None else min(left, batch_size)
    if len(strategy.pending_ids) > 0:
        pending = strategy.pending_batch(limit)
        if len(pending) > 0:
            return pending
    elif strategy.is_finished:
        return None
    with undivided():
        batch = strategy.ask(limit)
    return batch if len(batch) else None


def _save(evaluation: Evaluation) -> None:
    if evaluation.checkpoint is not None:
        with undivided():
            evaluation.strategy.save(evaluation.checkpoint)


@dataclass
class _Shown:
    """What the progress bar shows: how many evaluations, and the best of them.

    Attributes:
        bar: The bar.
        strategy: What runs.
        due: When a hypervolume is computed again: it takes a twentieth of the time.
        volume: The last one, and the size of its front.
    """

    bar: Any
    strategy: AnyStrategy
    due: float = 0.0
    volume: dict[str, str] = field(default_factory=dict)

    def update(self) -> None:
        """Show what has come since the last batch."""
        if self.bar.disable:
            return
        history: History = self.strategy.history
        batches = history.batches
        num_inducing = batches[-1].num_inducing if batches else 0
        self.bar.set_postfix(
            batch=len(batches), m=num_inducing, **self._best(history), refresh=False
        )
        self.bar.update(len(history) - self.bar.n)

    def _best(self, history: History) -> dict[str, str]:
        """The best value; of several objectives the hypervolume."""
        record: RunRecord = self.strategy.record
        if record.outcomes.is_single:
            values = history.values
            largest = float(values.max()) if len(values) else -math.inf
            return {"best": _signed_text(largest, history)}
        if (start := time.perf_counter()) < self.due:
            return self.volume
        Y = record.means()[1]
        violation, value = Preference.of(record).attained(Y)
        if violation > 0:
            return {"best": f"infeasible by {violation:.3g} sd"}
        if len(record.outcomes.objectives) == 1:
            return {"best": _signed_text(value, history)}
        front = len(feasible_front(record.outcomes, Y))
        self.volume = {"hypervolume": f"{value:.4g}", "front": str(front)}
        now = time.perf_counter()
        self.due = now + 20 * (now - start)
        return self.volume


def _signed_text(value: float, history: History) -> str:
    """A value of what is maximized, in the user's sign."""
    return f"{-value if history.minimize else value:.4g}"
