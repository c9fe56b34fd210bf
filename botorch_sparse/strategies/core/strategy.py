"""Ask and tell: what all strategies share."""

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import Executor
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Self, Unpack

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from torch import Tensor

from botorch_sparse.argument_checks import (
    as_points,
    as_seed,
    check_callable,
    check_flag,
    check_kind,
    check_number,
    check_path,
    check_whole,
    short_list,
)
from botorch_sparse.batching.rules import (
    AskLimit,
    ContinueFunction,
    always_continue,
)
from botorch_sparse.pools.compact_rows import Rows
from botorch_sparse.strategies.core.checkpoint import (
    STATE_VERSION,
    check_fits,
    read_state,
    write_state,
)
from botorch_sparse.strategies.core.evaluation import Callback, Evaluation
from botorch_sparse.strategies.core.run_loop import check_run, run_to
from botorch_sparse.strategies.core.transaction import StepLock, deep_copy, step
from botorch_sparse.strategies.core.trials import PendingTrials, Trial, TrialState
from botorch_sparse.strategies.data.box import Box, DomainOptions
from botorch_sparse.strategies.data.candidate_table import CandidateTable
from botorch_sparse.strategies.data.columns import as_list
from botorch_sparse.strategies.data.domain import (
    LARGEST_VALUE,
    TableDomain,
    domain_of,
    require_whole,
)
from botorch_sparse.strategies.data.feedback import (
    Points,
    as_ids,
    read_feedback,
    read_points,
    read_trials,
    read_withdrawn,
)
from botorch_sparse.strategies.data.history import Batch, History, batch_of
from botorch_sparse.strategies.data.outcomes import Outcome, Outcomes
from botorch_sparse.strategies.data.point_finder import PointFinder
from botorch_sparse.strategies.data.run_record import BatchRecord, RunRecord

KEEPS_DOMAIN = (
    "keeps its domain: need a whole table, in one process, of BBKB, BKB, GPUCB, "
    "GPBUCB, ExpectedImprovement, ThompsonSampling or RandomSearch. Build another "
    "strategy, and tell it the history."
)
HAS_A_PLAN = (
    "chooses batches by a plan, which trials alone do not tell. Write its state by "
    "save(path), and go on by resume(path)."
)
NEED_FAILED = "need numbers of rows that failed, or None for all."


class Strategy(ABC):
    """Proposes batches of points and learns from their feedback.

    It maximizes over the rows of a table, or over a continuous domain. `ask` proposes a
    batch and keeps it pending. `tell` takes feedback, whole or in parts, in any order,
    also for points that were never proposed.

    Each proposal of a point is a trial with an id: 0, 1, 2, ... over the run, however
    often the same point comes. `tell` and `fail` take ids.

    A strategy learns once for each batch. The batch has all points that were asked for
    since the strategy learned, by however many calls of `ask`. The strategy learns from
    all feedback at once, when all points of the batch are told, have failed or are
    withdrawn. Where batches have a size, it learns when as many are told. Until then a
    point that is told counts as one that is pending: it shrinks the variance alone. A
    point that failed or was withdrawn counts no more. Feedback on a point that nobody
    waited for belongs to no batch; while nothing is pending, each `tell` is learned.

    A rule ends batches of `BBKB`, `BKB`, `GPUCB` and `GPBUCB`. Its threshold is one for
    the whole batch: once that is used up, `ask` returns an empty batch, whose `note`
    says so. Then wait for the results that are missing, or call `learn`, which takes in
    what there is and leaves the others pending. Strategies without such a rule learn at
    each `ask` from what there is.

    `state_dict` holds all there is to know. A strategy that is built with the same
    arguments and loads it goes on to the same bits, also in the middle of a batch (on
    the same machine, with the same versions).

    Points are known by number: rows of the table, then all others in the order in which
    they were first seen. A continuous domain is a table without rows.

    **A strategy of one's own** implements `_select`, and `_learn` where it learns. It
    assigns its attributes, and does not change what they refer to: a step is done to a
    copy (see `core/transaction.py`). Further methods that change it are marked `@step`.

    Args:
        candidates: `A x d` points to choose from: a tensor, a NumPy array, a pandas
            DataFrame, a `CandidateTable`, a `numpy.memmap` or the path of a `.npy`
            file. A tensor and a `numpy.memmap` are not copied, since they may be large:
            what is written to them later changes the candidates, and points that are
            pending are then not known any more. Give `X.clone()` to go on writing.
        seed: Seed of the strategy's generator.
        minimize: Look for small values instead. Feedback, and what is shown of it, have
            the user's sign; what learns from it sees minus the values.
        outcomes: What is measured, where that is more than one number: `Objective` and
            `Constraint`, in the order of the columns of `Y`.
        **domain: Instead of candidates, `bounds` (`2 x d`) of a continuous domain, with
            `inequality_constraints`, `equality_constraints` and `fixed_features` as in
            `optimize_acqf`, and of `TrustRegionBBKB` and `RandomSearch` `discrete_dims`
            and `cat_dims` as in `optimize_acqf_mixed_alternating`: the values, by
            index, of features that take some numbers only, and of categories.
    """

    # Whether it chooses from a table that ranks share.
    shares_tables: ClassVar[bool] = False
    # Whether it takes several objectives, and constraints.
    takes_several_outcomes: ClassVar[bool] = False
    # Whether features of its box may take some values only.
    takes_discrete_features: ClassVar[bool] = False
    # Whether `ask` leaves feedback for a part of a batch alone.
    waits_for_batch: ClassVar[bool] = False
    # Whether batches follow a plan, which trials alone do not tell.
    has_plan: ClassVar[bool] = False
    # How large feedback may be, either way, for it to be learned from.
    largest_value: ClassVar[float] = LARGEST_VALUE
    # What it learns; None without a model of its own. See `ModelStrategy`.
    surrogate: Any = None

    def __init__(
        self,
        candidates: Any = None,
        *,
        seed: int = 0,
        minimize: bool = False,
        outcomes: Iterable[Outcome] | None = None,
        **domain: Unpack[DomainOptions],
    ) -> None:
        self._lock = StepLock()
        self.domain = domain_of(candidates, domain, type(self))
        if len(self.domain.discrete) and not self.takes_discrete_features:
            raise UnsupportedError(
                f"Got discrete_dims or cat_dims; {type(self).__name__} moves along "
                "gradients. Take TrustRegionBBKB, or give the points as candidates."
            )
        if not self.shares_tables:
            require_whole(self.domain, type(self).__name__)
        check_flag("minimize", minimize)
        self.minimize = minimize
        self.record = RunRecord(self.domain, Outcomes.of(outcomes, minimize=minimize))
        if not self.record.outcomes.is_single and not self.takes_several_outcomes:
            raise UnsupportedError(
                f"Got {len(self.record.outcomes)} outcomes; {type(self).__name__} "
                "takes one objective. Take ThompsonSampling, ExpectedImprovement, BBKB "
                "or TrustRegionBBKB."
            )
        self.generator = torch.Generator().manual_seed(as_seed(seed))
        self._trials = PendingTrials()
        self._failed: set[int] = set()
        self._earlier: tuple[Any, ...] = ()  # what the tables before were known by
        self._num_learned = 0
        self._finder = PointFinder(self.domain)
        self._ask_limit: ContinueFunction = always_continue  # of the `ask` in progress
        self.batch_size: int | None = None  # that the user asked for
        self.unique = False  # whether a row is proposed once at most

    @property
    def history(self) -> History:
        """All evaluations and batches; a view, which keeps the strategy alive.

        It is made anew: one that the strategy kept would be a cycle, and memory of a
        strategy that is gone would wait for the garbage collector.
        """
        return History(self)

    @property
    def box(self) -> Box | None:
        """The continuous domain, or None."""
        return self.domain.box

    @property
    def table(self) -> CandidateTable | None:
        """The table of candidates, or None."""
        return self.domain.table

    @property
    def candidates(self) -> Rows:
        """`A x d` candidates, `CompactRows` of bits or counts; none on a box."""
        if (table := self.table) is not None:
            return table.X
        return self.domain.rows(torch.empty(0, dtype=torch.long))

    @property
    def pending(self) -> Tensor:
        """Numbers of the points asked for and not told yet, repeats included."""
        return torch.tensor([trial.point for trial in self._trials], dtype=torch.long)

    @property
    def pending_ids(self) -> Tensor:
        """Ids of the trials asked for and not told yet."""
        return torch.tensor([trial.id for trial in self._trials], dtype=torch.long)

    @property
    def X_pending(self) -> Tensor:
        """The points asked for and not told yet, `p x d`, repeats included."""
        return self.record.points(self.pending)

    @property
    def excluded_points(self) -> Collection[int]:
        """Numbers of the rows that are not proposed again.

        Those that failed; where each row is proposed once (`unique`), also those that
        were evaluated or are pending.
        """
        taken, num_rows = self._failed, self.domain.num_rows
        if self.unique:
            told = self.record.different.tolist()
            taken = {*taken, *told, *self.pending.tolist()}
        elif not self._earlier:
            return taken
        return {point for point in taken if point < num_rows}

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to propose."""
        return 0 < self.domain.num_rows <= len(self.excluded_points)

    def batch_points(self) -> list[int]:
        """Points of the batch in progress: pending, or told and not learned yet.

        Returns:
            Their numbers in the order of proposal, repeats included.
        """
        told = self.record.told_since(self._num_learned)
        points = {trial.id: trial.point for trial in [*told, *self._trials]}
        return [points[id] for id in sorted(points)]

    def confidence_gap(self) -> float:
        """Largest upper less largest lower bound; infinite before any feedback.

        Raises:
            UnsupportedError: If the strategy has no confidence bounds.
        """
        raise UnsupportedError(
            f"{type(self).__name__} has no confidence bounds to stop by; use "
            "StopAfter(seconds) or a number of evaluations."
        )

    def predict(self, X: Tensor) -> tuple[Tensor, ...] | None:
        """What the model says of `k x d` points, in the user's sign and units.

        Args:
            X: The points: a tensor, an array or a nested list; or a DataFrame with the
                columns of the table, in any order.

        Returns:
            `k` means and `k` standard deviations (`UncertaintyReduction`: bounds), for
            several outcomes a column for each, or None where there is no model. They
            describe the function: a measurement varies more, by its noise. Where the
            kernel is inferred, deviations are NaN until two values differ.

        Raises:
            BotorchTensorDimensionError: If they are not `k x d`.
            InputDataError: If they are no numbers, or columns are missing.
        """
        read_points(X, self.domain)
        return None

    @step
    def ask(
        self,
        max_batch_size: int | None = None,
        *,
        max_seconds: float | None = None,
        progress: Callable[[int], Any] | None = None,
    ) -> Batch:
        """Propose a batch, which stays pending until it is told or withdrawn.

        Trials that failed and are to be tried once more come first; those that the
        strategy chooses follow. Together they are at most `batch_size` where the
        strategy was given one. Where a rule or a theorem says how many points it
        chooses, it chooses them as if those that failed were still being evaluated,
        and they come on top.

        Args:
            max_batch_size: Cut the batch here, those that failed included; None leaves
                its size to the strategy.
            max_seconds: Begin no further point after so long: the batch has those that
                were found, and a `note` that says so, and the next `ask` goes on. On a
                box each point is an optimization, and a batch may take minutes. What is
                not done point by point is not cut: a fit, the points drawn at the
                start, and the points of `ThompsonSampling`.
            progress: Called after each point with the number of points so far; once
                where they are found at once.

        Returns:
            At least one point; none where the batch in progress is over, and must be
            told first (see `Strategy`).

        Raises:
            InputDataError: If `max_batch_size` is below one, `max_seconds` not a number
                above zero, or `progress` can't be called.
            UnsupportedError: If there is nothing left to propose.
        """
        start = time.perf_counter()
        limit = _limit_of(max_batch_size, max_seconds, progress)
        sizes = [s for s in (max_batch_size, self.batch_size) if s is not None]
        most = min(sizes, default=None)
        self._ask_limit = limit
        batch = _next_batch(self, most, start)
        self._ask_limit = always_continue
        limit.show(len(batch))
        is_cut = limit.is_over and 0 < len(batch) < (most or math.inf)
        if not is_cut or self.is_finished or self._is_batch_over():
            return batch
        note = f"The time was over after {len(batch)} points; ask again for the rest."
        return replace(batch, note=note)

    @step
    def learn(self) -> None:
        """Take in all feedback that was told, whether its batch is complete or not.

        Points that are pending stay so, and count as pending in the next batch.
        """
        _learn_new(self)

    def __copy__(self) -> Self:
        """A strategy of its own, as `copy.deepcopy` makes it.

        Forks share the room behind what they hold, so only one of two may go on.
        """
        return deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A strategy of its own, also inside of `torch.inference_mode`."""
        other: Self = deep_copy(self, memo)
        return other

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become what was pickled; see `__deepcopy__`."""
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):
                state = deepcopy(state, {id(self): self})
        vars(self).update(state)

    def _forget(self) -> None:  # noqa: B027 (nothing, for those that share nothing)
        """Drop what is computed ahead, which a copy shares and has left half done."""

    @step
    def tell(self, X: Points, Y: Any) -> None:
        """Report feedback; a call that fails leaves the strategy as it was.

        Points are found in the table and among the pending ones exactly or else within
        rounding, such as in a file with six digits: 1e-5 of the value and of its
        column's range, or next to zero some decimals. All others are new points; but
        while trials are pending, one that is nearer to a row of the table, or on a box
        to a pending point, than 1e-2 of the range of each column is refused.

        Args:
            X: A batch that `ask` returned; `b` ids of trials; `b` keys that are texts;
                `b x d` points, as a tensor, array or nested list; or a pandas
                DataFrame, such as a file that came from `batch.to_frame()`: its column
                `trial` says the trials, where there is one; else its keys, in columns
                or an index of their names; else its features.
            Y: `b` or `b x 1` observations; `b x k` of `k` outcomes, or a DataFrame with
                a column for each, NaN where one was not measured. What was missing may
                be told later, by the ids of the trials. A pandas Series or DataFrame
                with an index of its own is paired by it with a DataFrame, a batch, keys
                or ids: with the index of the one or of `batch.to_frame()`, with keys,
                or with ids. All else is paired by position.

        Raises:
            BotorchTensorDimensionError: If the shapes do not fit.
            InputDataError: If there are NaN or infinite values, or some beyond 1e150,
                whose squares overflow (`RandomSearch`, which learns nothing, takes
                them); if a trial is not pending, or not of the batch's point; if a
                point may be several, or is outside of a continuous domain; if features
                are not those of the keys; or if `X` and `Y` have other indices.
        """
        start = time.perf_counter()
        known = self.record, self._trials, self._finder
        trials, values = read_feedback(X, Y, *known, self.largest_value)
        self.record.append(trials, values)
        self._trials.settle(trials)
        if _is_complete(self):
            _learn_new(self)
        if trials and trials[-1].batch >= 0:
            batches, number = self.record.batches, trials[-1].batch
            seconds = batches[number].tell_seconds + (time.perf_counter() - start)
            batches.change(number, tell_seconds=seconds)

    @step
    def fail(self, trials: Batch | Iterable[int], *, retry: bool = False) -> None:
        """Report trials whose evaluation failed.

        Args:
            trials: Their ids, or a batch.
            retry: Ask for them once more, at the next `ask`. Otherwise they are given
                up, and a row of a table is not proposed again: see `readmit`.

        Raises:
            InputDataError: If one is not pending, or not of the batch's point, or they
                are no ids; if `retry` is neither True nor False.
        """
        check_flag("retry", retry)
        failed = read_trials(trials, self.record, self._trials, self._finder)
        if retry:
            self._trials.fail(failed)
            return
        self._failed = self._failed | {trial.point for trial in failed}
        self._trials.settle(failed)

    @step
    def readmit(self, rows: Iterable[int] | None = None) -> None:
        """Let rows of a table that failed be proposed again, such as after an outage.

        Their trials stay given up. What a batch of `SBPE` has ruled out stays so.

        Args:
            rows: Their numbers, such as `table.rows(keys)`; None for all.

        Raises:
            InputDataError: If one has not failed, or they are no rows.
        """
        given = self._failed if rows is None else _rows_of(rows)
        if others := sorted(given - self._failed):
            raise InputDataError(
                f"Got rows={short_list(others)}, which have not failed; {NEED_FAILED}"
            )
        self._failed = self._failed - given

    @step
    def restore_trials(self, pending: Points, failed: Iterable[int] = ()) -> Batch:
        """Know trials that an earlier process proposed and that are still out.

        This is for programs that keep proposals and results in files of their own, and
        build a strategy anew each time. A state that `save` wrote has its trials.

        Tell results afterwards, and call `learn` if some points are still pending.

        Args:
            pending: Numbers of rows of the table, repeats allowed, or `b x d` points.
            failed: Numbers of rows that failed, and are not proposed again.

        Returns:
            The pending points as one batch, with the ids of their trials.

        Raises:
            InputDataError: If rows are not in the table, or points not in the domain.
            UnsupportedError: If batches follow a plan, as in `SBPE` and
                `TrustRegionBBKB`: resume a saved state instead.
        """
        if self.has_plan:
            raise UnsupportedError(f"{type(self).__name__} {HAS_A_PLAN}")
        points = as_ids(pending)
        if points is None or (points and self.box is not None):
            X = as_points("pending", pending, self.domain.dim, self.domain.device)
            points = self._finder.find(X, self.record, self._trials)
        given, rows = _rows_of(failed), range(self.domain.num_rows)
        bad = [row for row in (*points, *given) if row not in rows]
        if self.box is None and bad:
            raise InputDataError(
                f"Got the rows {short_list(bad)}; need those of the table, from 0 to "
                f"{len(rows) - 1}."
            )
        self._failed = self._failed | given
        number, batches = len(self.record.batches), self.record.batches
        if points:
            batches.append(BatchRecord(size=len(points)))
        return batch_of(self.record, self._trials.propose(points, number))

    @step
    def withdraw(self, trials: Batch | Iterable[int]) -> None:
        """Give up trials; their points may be proposed again.

        Args:
            trials: A batch, or ids. Those that are told already stay so.

        Raises:
            InputDataError: If one was never proposed, or is not of the batch's point.
        """
        left = read_withdrawn(trials, self.record, self._trials, self._finder)
        self._trials.settle(left)

    @step
    def set_candidates(self, candidates: Any) -> None:
        """Choose from another table from here on, as where the arms change.

        Everything that was evaluated stays: the posterior is of all feedback, and
        [Calandriello2019]_ (appendix A) has its guarantees for sets of arms that are
        given anew in each round. Rows are the same where their coordinates are, bit by
        bit; rows that were evaluated, or failed, and are not in the table are
        remembered, and known again where a later table has them. `history.indices`
        are rows of the present table, -1 for others.

        Where the kernel is inferred inputs stay scaled by the first table's ranges, and
        the columns that were constant there left out.

        States are of the strategy with its present table: to resume one, build the
        strategy as it was built, set its last table, and load.

        Cost: O(A log A), and O((A + n) m^2) to learn the posterior anew.

        Args:
            candidates: See `Strategy`: of the same columns, with categories that the
                first table had.

        Raises:
            InputDataError: If columns are others, or have negative numbers where they
                were counts; if a point that is pending, or told and not learned yet, is
                not among the candidates.
            UnsupportedError: On a box, for a table that ranks share, and for strategies
                whose guarantees are about one table, such as `SBPE`.
        """
        before = self.table
        if before is None:
            raise UnsupportedError(f"This {type(self).__name__} {KEEPS_DOMAIN}")
        table = CandidateTable.of(candidates).in_columns_of(before)
        domain = TableDomain(table)
        finder = PointFinder(domain)
        others = sorted({*self.pending.tolist(), *self._failed})
        record, number = self.record.moved(domain, finder.rows_of, others)
        _refuse_vanished(
            self, [p for p in self.batch_points() if number[p] >= len(table)]
        )
        self._earlier = (*self._earlier, self.domain.config()["candidates"])
        self._trials = self._trials.moved(number)
        self._failed = {number[point] for point in self._failed}
        self.domain, self.record, self._finder = domain, record, finder
        self._move(number)

    def _move(self, number: Mapping[int, int]) -> None:
        """Take over another table; from old numbers of points to new ones.

        The domain, the record, and trials are the new ones' already.
        """
        raise UnsupportedError(f"This {type(self).__name__} {KEEPS_DOMAIN}")

    def run(
        self,
        objective: Callable[[Tensor], Any],
        num_evaluations: int,
        *,
        progress: bool = True,
        by_index: bool = False,
        executor: Executor | None = None,
        timeout: float | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        catch: type[Exception] | tuple[type[Exception], ...] = (),
        batch_size: int | None = None,
    ) -> History:
        """Ask, evaluate and tell until the history holds `num_evaluations`.

        A run that was interrupted, by Ctrl-C or an error, goes on when called again:
        what was pending is evaluated first. Ctrl-C waits for the strategy to finish
        what it is at (a second one does not), never for the objective.

        A run is no step: two of one strategy at the same time, in threads, evaluate the
        same trials. Several workers share a strategy by `ask` and `tell`, or one run
        shares its batches among them with `executor`.

        Args:
            objective: From `b x d` points to `b` or `b x 1` observations; `b x k` of
                `k` outcomes, or a DataFrame with a column for each, NaN where one was
                not measured. Of a table with categories the points are the encoded
                features (one-hot, see `CandidateTable`); to look rows up, use
                `by_index=True` and `strategy.table.frame(indices)`. Points with values
                that are not finite (of several outcomes: infinite, or all NaN) raise
                an InputDataError after the others of the batch are told. Other errors
                get a note with the trial and its point.
            num_evaluations: Evaluations in the history at the end.
            progress: Whether to show a progress bar.
            by_index: Call the objective with the `b` candidate indices instead.
            executor: Evaluates the points of a batch at once, each by a call of its own
                (`b = 1`), and results are told as they come. With processes the
                objective is pickled, and nothing of the strategy. After an error what
                has begun is awaited and told; after Ctrl-C, what is there.
            timeout: Seconds that one evaluation may take, from the call of the
                objective: neither waiting in an executor nor the start of a process
                counts. One that takes longer is ended, with all that it has started.
                Its trial fails with a warning and is left out, without a second try
                (see `fail` and `readmit`), and the run goes on. A hundred in a row are
                an error, as for `catch`. Each evaluation is then a process of its own,
                whatever the executor, or with none: the worker, also a thread, waits
                for it, so that executors stay whole, and what others evaluate goes on.
                So the objective has to be picklable (`cloudpickle` is used if it is
                installed), keeps nothing in memory for the next one, and scripts need
                `if __name__ == "__main__":`. A process that crashes raises a
                ChildProcessError, which may be caught.
            callbacks: Called with (strategy, batch, history) after each batch is told;
                the run stops after the batch for which one returns True. A run that
                goes on calls them once before it begins, with what was told of its
                last batch, and ends there if one returns True. See
                `StopAtTarget`, `StopAtHypervolume`, `StopAfter`,
                `StopOnNoImprovement` and `StopOnConfidenceGap`.
            checkpoint: A file for the state, written after each batch and at the end,
                even if the run fails. A file that is there is only
                replaced by a strategy that knows all of it: see `resume`.
            catch: Exceptions of the objective that concern one point: it is warned of,
                tried once more with the next batch, then left out (see `fail` and
                `readmit`). A hundred in a row, with no result between them, concern no
                point: the last one is raised, and the strategy is what it was before
                the first, with the same points pending (ids of trials that were asked
                for since are given again). Points are then evaluated one by one
                without an executor too. Values that are not finite raise an
                InputDataError that may be caught like that. An executor that breaks
                down is raised always, and counts for no point.
            batch_size: Cut batches here; None leaves their size to the strategy.

        Returns:
            The history.

        Raises:
            InputDataError: If an argument is none of these, such as a negative
                `num_evaluations`; if the objective can't be pickled for `timeout`; if
                `by_index` is set on a continuous domain; if the checkpoint holds
                another run, or more of this one, or its folder can't be written to.

        Warns:
            BotorchWarning: For each evaluation that raised something in `catch`, or
                took longer than `timeout`. If a horizon ends before `num_evaluations`,
                as in `SBPE` where points were withdrawn.
        """
        check_callable("objective", objective, "a function of `b x d` points")
        check_whole("num_evaluations", num_evaluations, least=0)
        check_flag("progress", progress)
        one_or_more = callbacks if isinstance(callbacks, Iterable) else (callbacks,)
        evaluation = Evaluation(
            self,
            objective,
            by_index=by_index,
            executor=executor,
            timeout=timeout,
            callbacks=tuple(one_or_more),
            checkpoint=checkpoint,
            catch=catch if isinstance(catch, tuple) else (catch,),
            batch_size=batch_size,
        )
        check_run(evaluation)
        return run_to(evaluation, num_evaluations, progress=progress)

    def pending_batch(self, max_batch_size: int | None = None) -> Batch:
        """What is out for evaluation, the oldest trials first.

        Trials that failed and wait for the next `ask` are left out.

        Raises:
            InputDataError: If `max_batch_size` is below one.
        """
        if max_batch_size is not None:
            check_whole("max_batch_size", max_batch_size)
        out = [trial for trial in self._trials if trial.state is not TrialState.FAILED]
        return batch_of(self.record, out[:max_batch_size])

    def trial(self, id: int) -> Trial:
        """A pending trial.

        Raises:
            InputDataError: If it is not pending, or `id` is no whole number.
        """
        check_whole("id", id, 0, "need a whole number, such as int(batch.ids[0]).")
        return self._trials.expect([id], self.record.was_told)[0]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, whole or not at all; see `resume`.

        The file is a `state_dict` as `torch.save` writes it, with a checksum. Threads
        wait for each other, so that the file has the latest state.

        Raises:
            InputDataError: If `path` is none.
            OSError: If the folder is not there, or can't be written to, or if the path
                leads to a folder or a device.
        """
        check_path("path", path)
        with self._lock:
            state = self.state_dict()
            self.domain.ranks.once(lambda: write_state(state, path))

    def resume(self, path: str | os.PathLike[str]) -> Self:
        """Go on from a file that `save` or `run(checkpoint=...)` wrote, to the bit.

        Returns:
            The strategy itself.

        Raises:
            OSError: If there is no such file, or it can't be read.
            InputDataError: If the file is torn, damaged or holds something else, or the
                state came from a strategy built otherwise; if `path` is none.
        """
        check_path("path", path)
        self.load_state_dict(self.domain.ranks.once(lambda: read_state(path)))
        return self

    def state_dict(self) -> dict[str, Any]:
        """All state, as tensors and plain Python values (`torch.save` takes it)."""
        with self._lock:
            return self._state()

    def _state(self) -> dict[str, Any]:
        """The same, to which strategies add what they have."""
        return {
            "version": STATE_VERSION,
            "config": self._config(),
            "history": self.record.state_dict(),
            **self._trials.state_dict(),
            "failed": sorted(self._failed),
            "earlier": list(self._earlier),
            "num_learned": self._num_learned,
            "generator": self.generator.get_state(),
        }

    @step
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state; the strategy goes on from there to the same bits.

        A state that can't be taken over leaves the strategy as it was. The generator is
        the state's, whatever seed this strategy was built with.

        Raises:
            InputDataError: If the state came from a strategy built otherwise, or is
                damaged.
        """
        check_fits(state, self._config())
        try:
            self._load_state(state)
        except Exception as error:
            raise InputDataError(
                f"The state is damaged ({type(error).__name__}: {error}), and nothing "
                "of it was taken over. Take an earlier one."
            ) from error

    def _load_state(self, state: dict[str, Any]) -> None:
        """Become what `state_dict` came from; the state is one of ours.

        The strategy is a copy, as in all steps: attributes are assigned, and what they
        refer to is not changed but replaced.
        """
        self.record = self.record.of_state(state["history"])
        self._trials = PendingTrials.of_state(state)
        number = torch.tensor([trial.point for trial in self._trials], dtype=torch.long)
        if self.domain.ranks.size > 1:  # all ranks know the points from here on
            self.record.points(torch.cat([self.record.point, number]))
        self._failed = set(state["failed"])
        self._earlier = tuple(state["earlier"])
        self._num_learned = state["num_learned"]
        self.generator.set_state(state["generator"].cpu())
        self._finder = self._finder.without_pending()

    @abstractmethod
    def _select(self, max_batch_size: int | None) -> list[int]:
        """Choose a batch: numbers of points; `add_point` numbers new ones."""

    def _is_batch_over(self) -> bool:
        """Whether the points of the batch in progress leave room for no other."""
        return False

    def _learn(self) -> None:
        """Take the whole history into account."""
        self._num_learned = len(self.record)
        self._trials.begin()

    def _describe(self) -> BatchRecord:
        """The record of a batch that is about to be chosen."""
        return BatchRecord(size=0)

    def _config(self) -> dict[str, Any]:
        """What a state must agree on with the strategy that loads it."""
        own = {"strategy": type(self).__name__, **self.record.outcomes.config()}
        return own | self.domain.config()


def _limit_of(
    max_batch_size: int | None,
    max_seconds: float | None,
    progress: Callable[[int], Any] | None,
) -> AskLimit:
    """The end of the time of an `ask`, whose arguments are sound."""
    if max_batch_size is not None:
        check_whole("max_batch_size", max_batch_size)
    if max_seconds is not None:
        check_number("max_seconds", max_seconds, "(0, inf]")
    if progress is not None:
        need = "a function of the number of points, such as print"
        check_callable("progress", progress, need)
    return AskLimit(max_seconds, progress)


def _next_batch(draft: Strategy, most: int | None, start: float) -> Batch:
    """Trials that failed and are tried once more, then new ones; `most` in all."""
    again = draft._trials.failed(most)
    room = None if most is None else most - len(again)
    if again and (room == 0 or draft.is_finished):
        draft._trials.resend(again)
        return batch_of(draft.record, again)
    if not draft.waits_for_batch or _is_complete(draft):
        _learn_new(draft)
    is_begun = len(draft.batch_points()) > 0 and not draft.is_finished
    is_over = is_begun and draft._is_batch_over()
    trials = [*again, *([] if is_over else _propose(draft, room, start))]
    note = "" if trials else _note(draft)
    draft._trials.resend(again)
    return batch_of(draft.record, trials, note=note)


def _propose(draft: Strategy, max_batch_size: int | None, start: float) -> list[Trial]:
    """New trials; none if nothing is selected."""
    number = len(draft.record.batches)
    record = draft._describe()
    chosen = draft._select(max_batch_size)
    if not chosen:
        return []
    record.size = len(chosen)
    record.ask_seconds = time.perf_counter() - start
    draft.record.batches.append(record)
    return draft._trials.propose(chosen, number)


def _note(draft: Strategy) -> str:
    """Why there is nothing more to ask for."""
    pending, told = len(draft._trials), len(draft.record) - draft._num_learned
    can_learn = told > 0 and draft.waits_for_batch
    learn = f", or learn() from the {told} that are told" if can_learn else ""
    return (
        f"The batch is over, with points that are pending: {pending}. Tell their "
        "feedback, fail(ids) or withdraw(ids) first, before asking for more"
        f"{learn}."
    )


def _is_complete(draft: Strategy) -> bool:
    """Whether nothing is missing that was asked for since the strategy learned."""
    size, are_settled = draft.batch_size, draft._trials.are_settled
    if size is None or are_settled:
        return are_settled
    return int(draft.record.is_told_first(draft._num_learned).sum()) >= size


def _learn_new(draft: Strategy) -> None:
    """Learn, if there is feedback that was not learned."""
    if draft._num_learned < len(draft.record):
        draft._learn()


def _refuse_vanished(draft: Strategy, points: Sequence[int]) -> None:
    """Refuse a table without points of the batch in progress."""
    if points:
        X = draft.record.points(torch.tensor(points[:3]))
        raise InputDataError(
            f"Got candidates without {len(points)} points of the batch in "
            f"progress, such as {X.tolist()}; need all that are pending, or told "
            "and not learned. Tell their feedback or withdraw them first, and call "
            "learn()."
        )


def _rows_of(rows: Iterable[int]) -> set[int]:
    """Numbers of rows."""
    check_kind("rows", rows, Iterable, NEED_FAILED)
    given = as_list(rows.reshape(-1) if isinstance(rows, Tensor) else rows)
    for row in given:
        check_whole("rows", row, 0, NEED_FAILED)
    return set(map(int, given))
