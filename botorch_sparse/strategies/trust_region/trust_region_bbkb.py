r"""Trust region Bayesian optimization with a sparse posterior.

Where the parts of [Eriksson2019]_ are:

=================================  ==================================================
lengths, successes, failures       `Region`
middles, restarts                  `Regions`
axes of small regions              `axes_of`, not in the paper
candidates                         `candidates_around`
the best points near them          `maximize_in_region`
the posterior                      `LocalSurrogate`
batches of several regions         `TrustRegionBBKB._best_points`
=================================  ==================================================
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias, Unpack, get_args

import numpy as np
import torch
from botorch.exceptions import InputDataError, UnsupportedError
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import (
    as_numbers,
    as_points,
    check_choice,
    check_finite,
    check_flag,
    check_kind,
    check_whole,
)
from botorch_sparse.batching.rules import Rule, rule_of
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.pools.nystrom_pool import NystromPool
from botorch_sparse.pools.sample_paths import require_random_features
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.core.transaction import step
from botorch_sparse.strategies.data.box import DomainOptions
from botorch_sparse.strategies.data.domain import box_of, draw_seed
from botorch_sparse.strategies.data.feedback import refuse_large_values
from botorch_sparse.strategies.data.history import Batch
from botorch_sparse.strategies.data.outcomes import Outcome, Outcomes
from botorch_sparse.strategies.data.run_record import BatchRecord
from botorch_sparse.strategies.model_strategy import (
    ModelStrategy,
    OneOrEach,
    settings_of,
)
from botorch_sparse.strategies.trust_region.local_surrogate import (
    FAR_FROM_FAILED,
    LocalSurrogate,
)
from botorch_sparse.strategies.trust_region.regions import shares
from botorch_sparse.strategies.trust_region.restoring import (
    RegionNote,
    Reports,
    check_note,
    note_of,
    restored_state,
    whole_numbers,
)
from botorch_sparse.strategies.trust_region.trust_region import (
    Region,
    candidates_around,
    moved_into,
)
from botorch_sparse.strategies.ucb import PRACTICAL_BETA

Acquisition: TypeAlias = Literal["thompson", "ucb"]

DEFAULT_BATCH_SIZE = 20
MAX_INDUCING = 500
FRONT_REGIONS = 5  # around a front, as in [Daulton2022]_
# Features whose lengthscales are known well enough from a fit after every second batch.
# On Hartmann6 and a noisy Levy10 such runs were as good, in two thirds of the time; on
# Levy20, Rastrigin20 and rover60 they were worse.
FEW_FEATURES = 12
# Points of a box with discrete features that are drawn to find new ones, at least, and
# for each.
MANY_DRAWN, DRAWN_FOR_ONE = 64, 4
# With `repeats`, one of so many evaluations is of a middle again.
REPEATED = 20
# Candidates of a region, by the number of features [Eriksson2019]_.
FEWEST_CANDIDATES, MOST_CANDIDATES, CANDIDATES_PER_FEATURE = 2000, 5000, 200


class TrustRegionBBKB(ModelStrategy[LocalSurrogate]):
    r"""Trust regions around a sparse posterior, for 10^4 evaluations [Eriksson2019]_.

    A region is a box around the best point of its run, with sides in proportion to the
    kernel's lengthscales. It doubles after three rounds of feedback in a row that bring
    a better value, is halved after :math:`q \lceil \max(4/q, d/q) \rceil` evaluations
    without, and begins anew, with points from all of the domain, once its length is
    below 2^-12 (for the second time, if it may be turned). Every second time the next
    one begins around where the better half of the earlier ones ended, as small as that
    part of the domain; see `botorch_sparse.strategies.trust_region.regions`. Candidates
    of all regions, Sobol points that differ from a middle in 20 coordinates or so, or
    in one to four, are scored in one pass: by sample paths, one for each point, or by
    an upper confidence bound whose variances shrink with each point. Once all regions
    are below a length of 1/16 and features are continuous, half of the paths of one
    outcome keep to the posterior mean, by factors from a hundredth to one, and are
    maximized from their best candidate on by L-BFGS-B.

    The posterior knows the evaluations of the present runs that are within two sides of
    the middles, 200 to 2,000; the nearest 500 of them are its inducing points, and what
    these leave open of the others counts as noise. So predictions, and the mean of the
    best point, are good near the regions alone: under noise, evaluate the best ones of
    the history again, or fit a model to all of it. Kernel and noise are fitted to 300
    of those within reach, in 30 iterations at most from where they stand (100 where a
    run begins). Where no feature is discrete, the prior of an inferred kernel's
    lengthscales shrinks with a small region, and its noise has no prior. The time of a
    batch does not grow with the number of evaluations.

    **Scale.** Values of one outcome may be modelled by the logarithms of how much worse
    they are than the best one, where the kernel is inferred. So differences of ones
    count where values fall from millions to ones. That is decided when a run has its
    first points, and each time that it has twice as many: logarithms are taken where
    their likelihood is e^3 times as large, and noise is small. Predictions are medians
    then, in units of the values, and their standard deviations are those to first
    order. See `botorch_sparse.strategies.surrogates.log_warp`.

    **Valleys.** A small region of one outcome may have axes that are not the features:
    the eigenvectors of a quadratic model of the nearest points, with lengths that fall
    with the root of the curvature. It is turned where that makes its sides 1.4 times as
    long, and before it ends. Its kernel, candidates and maxima are then in these
    coordinates, and smaller gains are a success. Features stay the axes of several
    regions and outcomes, with constraints, discrete or fixed features, above 43
    features, with a kernel that is given, and where noise is large. See
    `botorch_sparse.strategies.trust_region.axes`.

    **Integers, categories and binary features** are named by `discrete_dims` and
    `cat_dims`. Candidates have values that there are, and are points that were not
    proposed before; the kernel sees categories one-hot. A region without a continuous
    feature ends where candidates differ from its middle in one feature.

    **Failures.** Points that failed say nothing of the values. But where failed points
    lie together, and no feature is a category, the nearest one has to be twice as far
    from a candidate as the nearest one that was evaluated, in units of the region's
    sides. So regions leave alone where evaluations fail.

    Use it on boxes of ten or more features, for thousands of evaluations in batches,
    and where the best value counts. `BBKB` has a regret bound and looks everywhere.

    Where the noise's standard deviation is above a tenth of the prior's, middles and
    successes go by the posterior mean in place of the observations.

    **Several outcomes** (`outcomes`) have a posterior each, and are chosen by sample
    paths alone, each with a random hypervolume scalarization of the objectives
    [ZhangGolovin2020]_. With constraints the middle is the best feasible point of the
    run, or the one that violates them least, and a success improves on it in that order
    [Eriksson2021]_. With several objectives all regions share all points, and each is
    around the point of the front that adds most to the hypervolume and is no other
    region's middle [Daulton2022]_. A success adds a thousandth to the hypervolume of
    the feasible points. See `botorch_sparse.strategies.trust_region.regions`.

    The strategy learns at each `ask` from what there is. Points that are told and that
    nobody asked for belong to the runs that go on when they are learned; a run that
    is over has no use for its points.

    Cost of a batch of `q` points, with `A` candidates, `n` points in the posterior and
    `m` inducing points: O(n m^2), O(A d (m + F)) and O(q A (m + F)) for F = 512 random
    features (or O(A m^2 + q A m) for the bound); O(300^3) for an iteration of the fit;
    O(q d (m + F)) for each of some 20 steps of a local maximization; O(d^6) for axes.

    Args:
        candidates: For an error that says so: there is no table.
        covar_module: The kernel, or None to infer it; see `ModelStrategy`, as `lam`,
            `mean_module` and `num_initial`, which is of each run (with several
            objectives of all), and 2 d (at least 5) with a kernel too.
        lam: The noise variance of an evaluation.
        batch_size: `q`, points in each batch.
        num_regions: Regions at a time, 1 by default and 5 with several objectives; each
            point of a batch is the best of all their candidates.
        acquisition: `"thompson"`, or of one outcome `"ucb"`.
        rule: Ends batches by the bound before they have `batch_size` points; see
            `BBKB`. None for none.
        num_candidates: Candidates of each region; 200 d by default, at least 2,000 and
            at most 5,000.
        max_inducing_points: Inducing points at most.
        mean_module: See `ModelStrategy`.
        num_initial: Points of each run before its region is used; with several
            objectives of all regions together.
        repeats: Whether one of twenty evaluations, or of a larger batch, is of a
            region's middle again. It pays where noise is as large as the differences
            of values, of which the first fits know nothing.
        refit: When hyperparameters are fitted: by default where a run begins and after
            `batch_size` evaluations, twice as many with up to 12 features; never with
            a kernel.
        minimize: See `Strategy`.
        outcomes: See `Strategy`.
        seed: Seed of the strategy's generator.
        **domain: `bounds` (`2 x d`), constraints, `discrete_dims` and `cat_dims`; see
            `Strategy`.

    Raises:
        InputDataError: If an argument is out of its range, or `rule` comes with
            `acquisition="thompson"`.
        UnsupportedError: If there are no random features of the kernel, for
            `acquisition="thompson"`; for `"ucb"` if there are several outcomes.

    Example:
        >>> import torch
        >>> bounds = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
        >>> strategy = TrustRegionBBKB(bounds=bounds, batch_size=5, minimize=True)
        >>> history = strategy.run(
        ...     lambda X: (X - 0.3).square().sum(-1), 30, progress=False
        ... )
        >>> len(history), len(strategy.regions)
        (30, 1)
    """

    batch_size: int
    repeats: bool
    takes_several_outcomes: ClassVar[bool] = True
    takes_discrete_features: ClassVar[bool] = True
    has_plan: ClassVar[bool] = True

    def __init__(
        self,
        candidates: Any = None,
        covar_module: OneOrEach[Kernel] = None,
        lam: OneOrEach[float] = None,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        num_regions: int | None = None,
        acquisition: Acquisition = "thompson",
        rule: Rule | str | None = None,
        num_candidates: int | None = None,
        max_inducing_points: int = MAX_INDUCING,
        mean_module: Mean | None = None,
        num_initial: int | None = None,
        repeats: bool = False,
        refit: RefitSchedule | None = None,
        minimize: bool = False,
        outcomes: Iterable[Outcome] | None = None,
        seed: int = 0,
        **domain: Unpack[DomainOptions],
    ) -> None:
        place = box_of(candidates, domain, type(self))
        check_whole("batch_size", batch_size)
        wanted = Outcomes.of(outcomes, minimize=minimize)
        if num_regions is None:
            num_regions = FRONT_REGIONS if len(wanted.objectives) > 1 else 1
        check_whole("num_regions", num_regions)
        check_whole("max_inducing_points", max_inducing_points)
        check_choice("acquisition", acquisition, get_args(Acquisition))
        if num_candidates is None:
            most = max(FEWEST_CANDIDATES, CANDIDATES_PER_FEATURE * place.dim)
            num_candidates = min(most, MOST_CANDIDATES)
        check_whole("num_candidates", num_candidates)
        check_flag("repeats", repeats)
        if num_initial is None:
            num_initial = place.num_initial(is_known=False)
        if refit is None and covar_module is None:
            has_few = place.dim <= FEW_FEATURES
            refit = RefitSchedule(every=2 * batch_size if has_few else batch_size)
        super().__init__(
            place,
            covar_module,
            lam,
            partial(
                LocalSurrogate.begun,
                num_regions=num_regions,
                max_inducing=max_inducing_points,
                batch_size=batch_size,
            ),
            mean_module=mean_module,
            num_initial=num_initial,
            refit=refit,
            minimize=minimize,
            outcomes=None if outcomes is None else wanted.parts,
            seed=seed,
        )
        num = len(self.record.outcomes)
        if num > 1 and acquisition != "thompson":
            raise UnsupportedError(
                f"Got {num} outcomes with acquisition={acquisition!r}, which takes one "
                "objective; need acquisition='thompson'."
            )
        self.rule = None if rule is None else rule_of(rule)
        if self.rule is not None and acquisition == "thompson":
            raise InputDataError(
                f"Got rule={rule!r} with acquisition='thompson', where batches have a "
                "size; leave it out, or take acquisition='ucb'."
            )
        for kernel, _ in settings_of(covar_module, lam, num):
            if kernel is not None and acquisition == "thompson":
                require_random_features(kernel)
        self.batch_size = batch_size
        self.acquisition = acquisition
        self.num_candidates = num_candidates
        self.repeats = repeats

    @override
    def _joined(self, parts: Sequence[LocalSurrogate]) -> LocalSurrogate:
        return LocalSurrogate.joined(parts)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The present trust regions."""
        return self.surrogate.regions

    def _select(self, max_batch_size: int | None) -> list[int]:
        limit = min(self.batch_size, max_batch_size or self.batch_size)
        chosen = self._first_points(limit)
        ready = self._ready()
        if len(chosen) < limit and ready:
            chosen += self._best_points(ready, limit - len(chosen))
        if not chosen:  # first points are out, or no middles, or all near them known
            chosen = self._drawn(self.regions[0], limit)
        runs = self.surrogate.runs.with_trials([run for _, run in chosen])
        self.surrogate = replace(self.surrogate, runs=runs)
        return [point for point, _ in chosen]

    def _first_points(self, limit: int) -> list[tuple[int, int]]:
        """Numbers and runs of points for regions that have not begun."""
        chosen = list[tuple[int, int]]()
        for region in self.regions:
            missing = self._num_missing(region)
            if shares(self.record):
                missing -= len(chosen)
            chosen += self._drawn(region, max(0, min(missing, limit - len(chosen))))
        return chosen

    def _drawn(self, region: Region, num: int) -> list[tuple[int, int]]:
        """Points from all of its domain; with discrete features new ones first."""
        if num == 0:
            return []
        if region.part is not None:
            box, seed = self.surrogate.domain.box, draw_seed(self.generator)
            X = moved_into(box, region.part, box.sample(num, seed))
            points = self.record.add_points(X)
            return [(point, region.run) for point in points]
        if not len(self.domain.discrete):
            points = self.domain.sample(num, self.generator, self.record.add_point)
            return [(point, region.run) for point in points]
        seed, points = draw_seed(self.generator), list[int]()
        most = max(MANY_DRAWN, DRAWN_FOR_ONE * num)
        X = self.surrogate.domain.box.sample(most, seed)
        for x in X:
            if len(points) < num and self.record.number_of(x) is None:
                points.append(self.record.add_point(x))
        points += self.record.add_points(X[: num - len(points)])
        return [(point, region.run) for point in points]

    def _num_missing(self, region: Region) -> int:
        """Points to draw before a region goes by the posterior."""
        return self.surrogate.runs.num_missing(region, self.record, self.pending_ids)

    def _ready(self) -> list[Region]:
        """Regions that have a middle and all of their first points."""
        regions = [r for r in self.regions if r.center is not None]
        return [r for r in regions if not self._num_missing(r)]

    @torch.no_grad()
    def _best_points(
        self, regions: Sequence[Region], limit: int
    ) -> list[tuple[int, int]]:
        """Numbers and runs of the best candidates of all regions."""
        failed = self._without_result()
        parts = [self._candidates(region, failed, limit) for region in regions]
        if not sum(map(len, parts)):
            return []
        again = self._middle_again(regions, limit) if self.repeats else []
        limit -= len(again)
        if limit == 0:
            return again
        posteriors, best = self._remember(), list[tuple[Region, Tensor]]()
        if self.acquisition == "thompson":
            best = self.surrogate.best_points(
                regions, parts, limit, self.record, self.generator, failed
            )
        else:
            X, pairs = torch.cat(parts), zip(regions, parts, strict=True)
            region_of = [region for region, part in pairs for _ in range(len(part))]
            rows = self._by_bound(posteriors[0], X, limit)
            best = [(region_of[row], X[row]) for row in rows]
        return again + [(self.record.add_point(x), region.run) for region, x in best]

    def _middle_again(
        self, regions: Sequence[Region], limit: int
    ) -> list[tuple[int, int]]:
        """The middle whose last evaluation is longest ago, and its run, if it is due.

        It is where `limit` points complete `REPEATED` evaluations since one was of a
        point that was known.
        """
        point = self.record.point[~self.record.is_later].numpy()
        again = np.ones(len(point), dtype=bool)
        again[np.unique(point, return_index=True)[1]] = False
        since = int(again[::-1].argmax()) if again.any() else len(point)
        pending = self.pending.numpy()
        if since + limit < REPEATED or np.isin(pending, point).any():
            return []
        last = {
            int((point == region.center).nonzero()[0][-1]): (region.center, region.run)
            for region in regions
            if region.center is not None and region.center not in self._failed
        }
        return [last[min(last)]] if last else []

    def _without_result(self) -> Tensor:
        """Numbers of points that failed, where distances say how alike points are.

        None where a feature is a category or all are discrete.
        """
        discrete, failed = self.domain.discrete, self._failed
        if not failed or discrete.categories or len(discrete) == self.domain.dim:
            return torch.empty(0, dtype=torch.long)
        return torch.tensor(sorted(failed.difference(self.record.point.tolist())))

    def _candidates(self, region: Region, failed: Tensor, least: int) -> Tensor:
        """Candidates of a region, `k x d`, away from failures as far as there are."""
        X = self._around(region)
        remoteness = self.surrogate.remoteness(region, X, self.record, failed)
        is_away = remoteness > FAR_FROM_FAILED
        if int(is_away.sum()) >= least:
            return X[is_away]
        return X[remoteness.topk(min(least, len(X))).indices]

    def _around(self, region: Region) -> Tensor:
        """Points around a middle, `k x d`; discrete or turned new points alone."""
        frame = self.surrogate.frame(region, self.record)
        seed = draw_seed(self.generator)
        Z = candidates_around(
            frame.box, frame.center, frame.sides, self.num_candidates, seed
        )
        X = self.surrogate.domain.box.clamp(frame.points(Z))
        if frame.is_turned:  # some may be the same corner of the domain
            X = X.unique(dim=0)
        elif not len(self.domain.discrete):
            return X
        is_new = [self.record.number_of(x) is None for x in X.cpu()]
        return X[torch.tensor(is_new, dtype=torch.bool, device=X.device)]

    def _by_bound(self, posterior: NystromPosterior, X: Tensor, num: int) -> list[int]:
        """Rows of the largest bounds, whose variances shrink; pending ones first."""
        pending = self.surrogate.source.inputs(self.X_pending)
        pool = NystromPool(torch.cat([self.surrogate.source.inputs(X), pending]))
        pool.update(posterior, noise=self.surrogate.priors[0].lam)
        out = torch.arange(len(X), len(pool), device=pending.device)
        selectable = SelectableRows(out if len(out) else None, once=True)
        batch = pool.batch(PRACTICAL_BETA**0.5, self.rule, selectable)
        for row in out.tolist():
            batch.append(row)
        return batch.choose(min(num, len(X)), self._ask_limit)

    def _remember(self) -> tuple[NystromPosterior, ...]:
        """The posteriors of what was learned, which are built once."""
        posteriors = self.surrogate.posteriors_of(self.record)
        self.surrogate = replace(self.surrogate, posteriors=posteriors)
        return posteriors

    @override
    def _describe(self) -> BatchRecord:
        posteriors = self._remember() if self._ready() else ()
        num = max((each.num_inducing for each in posteriors), default=0)
        return BatchRecord(size=0, num_inducing=num)

    def note(self) -> RegionNote:
        """Where the regions stand, in plain values; see `restore`."""
        with self._lock:
            return note_of(self.surrogate, self.record)

    def runs_of(self, batch: Batch) -> list[int]:
        """The run that each point of a batch was proposed for."""
        check_kind("batch", batch, Batch, "a batch that ask returned")
        return [int(run) for run in self.surrogate.runs.of_trial[batch.ids]]

    @step
    def restore(
        self,
        X: Tensor,
        Y: Tensor,
        *,
        trials: Sequence[int] | None = None,
        runs: Sequence[int] | None = None,
        num_learned: int = 0,
        pending: Tensor | None = None,
        failed: Tensor | None = None,
        note: RegionNote | None = None,
    ) -> None:
        """Take over results that a program keeps itself, and go on from a note.

        For programs that build a strategy anew for each batch, such as Ax. They keep
        the results, the `runs_of` each batch, and `note` after each `ask`. A state that
        `save` wrote has all of that, and goes on to the same bits.

        Args:
            X: `n x d` points that were evaluated, wherever they came from, in the order
                in which they were learned; those that came after the note last. They
                may be outside of the domain, and then are no middles.
            Y: `n` or `n x k` values, as in `tell`.
            trials: `n` numbers: equal ones, at one point, are of one evaluation.
            runs: `n` runs that the points were proposed for, -1 for none.
            num_learned: How many were learned when the note was written.
            pending: `p x d` points that are being evaluated. Each new one that the
                strategy has to draw for the newest run is one less.
            failed: `f x d` points that gave no result; with discrete features they are
                not proposed again as long as new ones are found.
            note: Where the regions stood; None if they begin.

        Raises:
            BotorchTensorDimensionError: If points have other than `d` features.
            InputDataError: If the strategy has results or trials, columns differ in
                length, points or values are not what `tell` takes, or the note is of
                other features or outcomes.
        """
        if len(self.record) or len(self._trials):
            raise InputDataError(
                f"Got {len(self.record)} results and {len(self._trials)} pending "
                "trials in the strategy; need a new one."
            )
        dim, num = self.domain.dim, len(self.record.outcomes)
        X = as_points("X", X, dim, self.domain.device).to(self.domain.dtype)
        Y = as_numbers("Y", Y, "need a value for each point.")
        Y = Y.unsqueeze(-1) if Y.dim() == 1 else Y
        pending = X[:0] if pending is None else pending
        reports = Reports(
            X,
            Y,
            whole_numbers("trials", range(len(X)) if trials is None else trials),
            whole_numbers("runs", [-1] * len(X) if runs is None else runs),
            check_whole("num_learned", num_learned, 0),
        )
        sizes = [len(X), len(reports.trials), len(reports.runs)]
        fits = len({*sizes}) == 1 and Y.shape == (len(X), num)
        if not fits or num_learned > len(X):
            raise InputDataError(
                f"Got {len(X)} points, Y of shape {tuple(Y.shape)}, trials={trials}, "
                f"runs={runs} and num_learned={num_learned}; need {num} values, a "
                "trial and a run for each point, and at most as many that were learned."
            )
        if note is not None:
            check_note(note, dim, num)
        out = as_points("pending", pending, dim, self.domain.device).to(X)
        failed = X[:0] if failed is None else failed
        gone = as_points("failed", failed, dim, self.domain.device).to(X)
        check_finite(X=X, pending=out, failed=gone)
        if num_bad := self.record.outcomes.num_unusable(Y):
            raise InputDataError(
                f"Got {num_bad} values of Y that are NaN or infinite; need the others "
                "alone, and points without a result in pending or failed."
            )
        refuse_large_values(Y, self.largest_value)
        state = self._state()
        self._load_state(restored_state(state, self.record, reports, out, gone, note))

    @override
    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            "batch_size": self.batch_size,
            "acquisition": self.acquisition,
            "rule": fingerprint(self.rule, "rule"),
            "num_candidates": self.num_candidates,
            "repeats": self.repeats,
        }
