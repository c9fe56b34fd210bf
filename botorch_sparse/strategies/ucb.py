"""Upper confidence bound strategies, on tables and on continuous domains."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.exceptions.warnings import BotorchWarning
from gpytorch.kernels import Kernel
from gpytorch.means import Mean, ZeroMean
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.confidence import (
    ConfidenceRadius,
    FixedBeta,
    RadiusStatistics,
)
from botorch_sparse.acquisition.confidence.radius import NormBoundRadius, require_radius
from botorch_sparse.argument_checks import check_choice, check_number
from botorch_sparse.batching.rules import (
    MAX_BATCH_SIZE,
    MAX_BOX_BATCH,
    FixedSize,
    Global,
    GrowingBatch,
    Local,
    Product,
    Rule,
    Single,
    UntilHalved,
    rule_of,
)
from botorch_sparse.inducing import InducingPointSampler
from botorch_sparse.kernels import shrink_lengthscales
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.pools.nystrom_pool import MAX_MEMORY
from botorch_sparse.posteriors.exact_variance import ExactVariance
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.data.domain import draw_seed, require_whole
from botorch_sparse.strategies.data.outcomes import Outcomes
from botorch_sparse.strategies.data.preference import Preference
from botorch_sparse.strategies.data.run_record import (
    BatchRecord,
    Evaluations,
    each_outcome,
    evaluations_at,
)
from botorch_sparse.strategies.guarantees import (
    num_outcomes_of,
    require_proved,
    require_thresholds,
)
from botorch_sparse.strategies.local_maximization import most_uncertain
from botorch_sparse.strategies.model_strategy import (
    ModelOptions,
    ModelStrategy,
    OneOrEach,
    surrogate_of,
)
from botorch_sparse.strategies.surrogates.prior import Prior
from botorch_sparse.strategies.surrogates.surrogate import Surrogate
from botorch_sparse.strategies.surrogates.table_posterior import (
    exact_pool,
    uncertainty_sampling,
)

# BoTorch's usual beta, for hyperparameters that are learned: no theorem covers those.
PRACTICAL_BETA = 4.0

# Batches of one point in a row that are announced.
NUM_SINGLE = 20

Repeat: TypeAlias = Literal["until-uncertainty-halves"]


class UCBOptions(ModelOptions, total=False):
    """Keyword arguments of `UCBStrategy` that strategies take as they are."""

    radius: ConfidenceRadius | None
    batch_size: int | None
    min_batch_width: int | None


class UCBStrategy(ModelStrategy[Any]):
    r"""Batches of maximizers of :math:`\mu_{fb}(x) + \beta^{1/2} \sigma_t(x)`.

    Mean and inducing set stand still within a batch, variances shrink with each of its
    points, and a rule ends it. `BBKB`, `BKB`, `GPUCB` and `GPBUCB` are made of these
    parts, and so is a strategy of one's own.

    Several outcomes have a posterior, a radius and a batch each
    (`surrogates/joint_batch.py`). The next point maximizes a random scalarization of
    the objectives' upper bounds among points whose bounds reach the limits of all
    constraints; where there are none the violation of the bounds is smallest. The
    first outcome whose rule ends its batch ends all. An outcome that was told before
    others are counts as pending for these, until the batch is learned; without any
    feedback it is left out. Cost on a table: O(A m^2) for each outcome and batch, and
    for each point O(A k), and O(m) for each outcome of the rows that may be best.

    Args:
        candidates: `A x d` points to choose from; or give `bounds`.
        covar_module: The kernel; see `ModelStrategy`.
        lam: The regularizer lambda, as the posterior's noise variance.
        rule: What ends a batch, unless `repeat` or `batch_size` does.
        sampler: Sampler of inducing points; None for the exact posterior.
        default_radius: The radius of the strategy's paper, for a kernel that is given;
            None for `FixedBeta(4.0)`, the default of an inferred kernel.
        initial_sampler: See `Surrogate`.
        max_memory: See `NystromPool`. Outcomes with kernels of their own share it.
        num_evaluations: The horizon that the constants are for; feedback beyond it is
            announced once. None where nothing depends on it.
        repeat: With `"until-uncertainty-halves"` a batch is one point with as many
            evaluations.
        radius: The confidence radius, in place of the default. Where the kernel is
            inferred outcomes are standardized, and so are its units.
            `UnknownHyperparameters` shrinks lengthscales, given or inferred.
        batch_size: So many points are in each batch, where rounds of feedback have a
            size of their own. No theorem covers it but for a size of one.
        min_batch_width: P. Begin by uncertainty sampling, until the largest exact
            variance is at most `lam / P`: later batches have at least P (C - 1) / 3
            points, with high probability ([Calandriello2020]_ Algorithm 3). With a
            kernel alone. On a table it takes O(A n) memory for `n` points; on a box
            the largest variance is one that local searches find, at O(n^2) for each
            point that they look at.
        mean_module: See `ModelStrategy`, as the next two.
        refit: See there.
        unique: See there.
        **options: Further keyword arguments of `ModelStrategy`.
    """

    waits_for_batch = True
    takes_several_outcomes: ClassVar[bool] = True

    def __init__(
        self,
        candidates: Any = None,
        covar_module: OneOrEach[Kernel] = None,
        lam: OneOrEach[float] = None,
        *,
        rule: Rule,
        sampler: InducingPointSampler | None,
        default_radius: NormBoundRadius | None = None,
        initial_sampler: InducingPointSampler | None = None,
        max_memory: int = MAX_MEMORY,
        num_evaluations: int | None = None,
        repeat: Repeat | None = None,
        radius: ConfidenceRadius | None = None,
        batch_size: int | None = None,
        min_batch_width: int | None = None,
        mean_module: Mean | None = None,
        refit: RefitSchedule | None = None,
        unique: bool | None = None,
        **options: Any,
    ) -> None:
        if default_radius is not None:
            check_number("norm_bound", default_radius.norm_bound, "(0, inf)")
            if default_radius.constants == "theory":
                require_proved(
                    covar_module,
                    rule,
                    radius=radius,
                    refit=refit,
                    repeat=repeat,
                    batch_size=None if batch_size == 1 else batch_size,
                    robust=options.get("robust") or None,
                )
                mean_module = ZeroMean() if mean_module is None else mean_module
        is_proved = default_radius is not None and default_radius.constants == "theory"
        rule = rule_of(_rule_in_place(rule, batch_size, repeat))
        if not isinstance(covar_module, Kernel):
            max_memory = max_memory // num_outcomes_of(options)
        super().__init__(
            candidates,
            covar_module,
            lam,
            partial(
                surrogate_of,
                sampler=sampler,
                initial_sampler=initial_sampler,
                max_memory=max_memory,
            ),
            mean_module=mean_module,
            refit=refit,
            unique=_unique_or_repeated(unique, rule),
            **options,
        )
        if min_batch_width is not None:
            require_whole(self.domain, "min_batch_width")
            _check_width(min_batch_width, has_kernel=covar_module is not None)
            _refuse_several(self.record.outcomes, "min_batch_width")
        if radius is None and covar_module is not None:
            radius = default_radius
        if radius is None:
            radius = FixedBeta(PRACTICAL_BETA)
        # What is wanted of several outcomes, where feedback does not decide on it.
        self._stated: Preference | None = None
        if is_proved:
            require_thresholds(self.record.outcomes)
            self._stated = Preference.stated(self.record.outcomes)
        noises = [part.view.prior.lam for part in self.surrogate.parts]
        self.radius = self._radius_here(radius, noises[0])
        self.rule = rule
        if isinstance(rule, FixedSize):
            self.batch_size = rule.size
        self.min_batch_width = min_batch_width
        self.num_evaluations = num_evaluations
        self._is_initializing = min_batch_width is not None
        self._is_single_said = False
        self._statistics = tuple(
            RadiusStatistics(lam=each, ratio_threshold=rule.ratio_threshold)
            for each in noises
        )

    @property
    def statistics(self) -> Any:
        """The `RadiusStatistics` of what was learned; `k` of them for `k` outcomes."""
        return self._statistics if len(self._statistics) > 1 else self._statistics[0]

    def _radius_here(self, radius: ConfidenceRadius, lam: float) -> ConfidenceRadius:
        """The radius in this many features, if the kernel can do what it asks for."""
        require_radius(radius)
        sources = [part.source for part in self.surrogate.parts]
        here = radius.in_dimension(sources[0].inputs.bounds.shape[-1])
        later = RadiusStatistics(lam=lam, num_evaluations=2**60)
        for kernel in (source.settings.covar_module for source in sources):
            if kernel is not None and here.lengthscale_factor(later) < 1.0:
                shrink_lengthscales(kernel, 0.5)  # refuses kernels without any
        return here

    @override
    def confidence_gap(self) -> float:
        _refuse_several(self.record.outcomes, "a confidence gap")
        if self._num_learned == 0:
            return float("inf")
        multiplier = self.radius.interval_multiplier(self.statistics)
        offset = self.radius.offset(self.statistics)
        with self._lock:
            return self.surrogate.view.confidence_gap(multiplier, offset)

    def _select(self, max_batch_size: int | None) -> list[int]:
        if self._is_initializing:
            limit = min(max_batch_size or MAX_BATCH_SIZE, self._largest_batch())
            if chosen := self._sample_uncertainty(limit):
                return chosen
            self._is_initializing = False
            if self.batch_points() and self._is_batch_over():
                return []
        return super()._select(max_batch_size)

    def _select_by_model(self, limit: int) -> list[int]:
        batch = self._batch_so_far()
        if isinstance(self.rule, UntilHalved):
            batch.append(point := batch.argmax())
            variance = batch.variances_before[-1]
            return [point] * self.rule.evaluations(variance, batch.noise, limit)
        chosen = batch.choose(limit, self._ask_limit)
        if len(chosen) == 1 < limit:
            self._announce_single_points(batch)
        return chosen

    def _announce_single_points(self, batch: GrowingBatch) -> None:
        """Say so, once, where a model of a box at its cap ends batches after one."""
        before = self.record.batches[1 - NUM_SINGLE :]
        surrogate = max(self.surrogate.parts, key=lambda part: part.num_inducing())
        is_bounded = self.box is not None and isinstance(self.rule, Global)
        is_at_cap = surrogate.num_inducing() >= surrogate.max_inducing
        are_single = len(before) == NUM_SINGLE - 1 and all(b.size == 1 for b in before)
        if self._is_single_said or not (is_bounded and is_at_cap and are_single):
            return
        self._is_single_said = True
        warnings.warn(
            f"The last {NUM_SINGLE} batches have one point each: with "
            f"{surrogate.max_inducing} inducing points, the most there are, the "
            f"variance at a new point is {batch.sum_ratio - 1.0:.3g} times the noise "
            "variance, and an evaluation there may change variances by more than "
            f"ratio_threshold={self.rule.ratio_threshold} allows. For larger batches "
            "give batch_size, which no theorem covers, or a larger ratio_threshold; or "
            "take TrustRegionBBKB or ThompsonSampling.",
            BotorchWarning,
            stacklevel=2,
        )

    def _batch_so_far(self) -> GrowingBatch:
        """The batch in progress, with the points that are in it already."""
        sized = isinstance(self.rule, FixedSize | UntilHalved)
        rule = None if sized else self.rule
        rest = self._selectable(), self.record, self.generator
        multipliers = [self.radius.multiplier(each) for each in self._statistics]
        if len(multipliers) == 1:
            points = self.batch_points()
            one: Surrogate = self.surrogate
            return one.view.batch(multipliers[0], rule, points, *rest)
        # One outcome needs neither these nor the optimizers that they import.
        from botorch_sparse.strategies.surrogates.joint_batch import Width
        from botorch_sparse.strategies.surrogates.outcome_surrogates import (
            OutcomeSurrogates,
        )

        offsets = [self.radius.offset(each) for each in self._statistics]
        several: OutcomeSurrogates = self.surrogate
        return several.batch(
            [
                Width(*both) if each.num_evaluations else None
                for each, *both in zip(
                    self._statistics, multipliers, offsets, strict=True
                )
            ],
            rule,
            self._points_of_outcomes(),
            *rest,
            self._stated or Preference.of(self.record, self._num_learned),
            self._trials.num_proposed,
        )

    def _points_of_outcomes(self) -> list[list[int]]:
        """For each outcome `batch_points` less those it was learned at already.

        An outcome that came later, and was not learned yet, is in the batch too.
        """
        record, start = self.record, self._num_learned
        later = record.told_since(start, is_later=True)
        trials = {t.id: t.point for t in later}
        is_known = {
            id: record.measured(id, start) | ~record.measured(id) for id in trials
        }
        batch = {t.id: t.point for t in [*record.told_since(start), *self._trials]}
        trials |= batch
        is_known |= {id: record.measured(id, start) for id in batch}
        return [
            [trials[id] for id in sorted(trials) if not is_known[id][outcome]]
            for outcome in range(len(record.outcomes))
        ]

    def _is_batch_over(self) -> bool:
        """Whether the rule ends a batch of the points in progress."""
        known = self.record.num_evaluations + len(self._trials)
        is_drawing = self._is_initializing or known < self.settings.num_initial
        if is_drawing or isinstance(self.rule, FixedSize):
            return False
        if isinstance(self.rule, Single) or self._num_learned == 0:
            return True
        generator = self.generator.get_state()
        is_over = self._batch_so_far().is_over()
        self.generator.set_state(generator)
        return is_over

    def _sample_uncertainty(self, limit: int) -> list[int]:
        """The next points of Algorithm 3; none once the variances are small enough."""
        largest = self._statistics[0].lam / float(self.min_batch_width or 1)
        if self.box is not None:
            return self._sample_box(self.box, min(limit, MAX_BOX_BATCH), largest)
        surrogate, lam = self.surrogate, self._statistics[0].lam
        prior = Prior(surrogate.view.prior.covar_module, lam, mean_module=ZeroMean())
        pool = exact_pool(surrogate.source.inputs(self.candidates[:]), prior)
        if len(self.record) > 0:
            data = evaluations_at(self.record, self.record.folded())
            X = surrogate.source.inputs(data.X)
            pool.rebuild(X, data.Y * 0.0, lam / data.counts)
        excluded, is_once = self.excluded_points, self.unique
        limit = self.domain.num_selectable(limit, excluded, unique=is_once)
        selectable = self._selectable().to(pool.X.device)
        pending = self.pending.tolist()
        return uncertainty_sampling(
            pool, pending, largest, limit, selectable, self._ask_limit
        )

    def _sample_box(self, box: Box, limit: int, largest: float) -> list[int]:
        """The same on a box."""
        lam, record = self.statistics.lam, self.record
        kernel = self.surrogate.view.prior.covar_module
        variance = ExactVariance.prior(kernel, box.bounds)
        if len(record) > 0:
            data = evaluations_at(record, record.folded())
            variance = variance.given(data.X, lam / data.counts)
        if pending := self.pending.tolist():
            X = record.points(torch.tensor(pending)).double()
            variance = variance.given(X, X.new_full((len(X),), lam))
        chosen: list[int] = []
        options, seed = self.settings.optimizer_options, draw_seed(self.generator)
        while len(chosen) < limit:
            x, value = most_uncertain(variance, box, options, seed + len(chosen))
            if not value > largest:
                break
            chosen.append(self.record.add_point(x.squeeze(0)))
            if not self._ask_limit(len(chosen)):
                break
            variance = variance.given(x.double(), x.new_full((1,), lam).double())
        return chosen

    def _learn_in_order(self) -> None:
        """Steps 1-4 of a batch's end, in the order of Algorithm 1, for each outcome."""
        records = each_outcome(self.record)
        parts, statistics = zip(
            *map(self._learned, self.surrogate.parts, self._statistics, records),
            strict=True,
        )
        self._announce_horizon(statistics)
        self._statistics = statistics
        self.surrogate = self.surrogate.with_parts(parts)

    def _learned(
        self, before: Surrogate, statistics: RadiusStatistics, record: Evaluations
    ) -> tuple[Surrogate, RadiusStatistics]:
        """One outcome's surrogate and statistics with all of its feedback.

        The log-determinant and the inducing set are taken with the variances from
        before the feedback; then the posterior is built.
        """
        num_learned = record.count(self._num_learned)
        new = record.point[num_learned:]
        if not len(new):
            return before, statistics
        leverage = _finite(before.view.variance(record, new)) / statistics.lam
        statistics = statistics.add_batch(leverage)
        factor = self.radius.lengthscale_factor(statistics)
        surrogate = before.learn(record, self.generator, factor)
        _finite(surrogate.view.variance(record, new))
        is_other = surrogate.view.prior is not before.view.prior
        if is_other:
            statistics = replace(statistics, lam=surrogate.view.prior.lam)
        if num_learned == 0 or is_other:
            statistics = with_chain_rule(statistics, surrogate, record, is_other)
        return surrogate, self._with_evidence(statistics, surrogate, record)

    def _announce_horizon(self, statistics: Sequence[RadiusStatistics]) -> None:
        """Say so, once, where feedback goes beyond what the constants are for."""
        before, now = (
            max(each.num_evaluations for each in those)
            for those in (self._statistics, statistics)
        )
        most = self.num_evaluations
        if most is not None and before <= most < now:
            warnings.warn(
                f"Got {now} evaluations, more than the horizon "
                f"num_evaluations={most}: what is proved with constants='theory' ends "
                "here. Build the strategy with a longer one, and tell it the history.",
                BotorchWarning,
                stacklevel=2,
            )

    def _with_evidence(
        self, statistics: RadiusStatistics, surrogate: Surrogate, record: Evaluations
    ) -> RadiusStatistics:
        """What the radius wants to know of the new posterior itself."""
        radius = self.radius
        if radius.needs_leverage_sum:
            values = record.folded()
            variance = _finite(surrogate.view.variance(record, values.point))
            leverage = (
                float(values.counts @ variance.double()) / surrogate.view.prior.lam
            )
            statistics = replace(statistics, leverage_sum=leverage)
        if radius.needs_lambda_max:
            r = surrogate.view.residual_trace(record)
            statistics = replace(statistics, lambda_max=r)
        if radius.needs_mean_norm:
            mean_norm = surrogate.view.mean_norm()
            statistics = radius.update(statistics, mean_norm)
        return statistics

    def _describe(self) -> BatchRecord:
        betas = [self.radius.botorch_beta(each) for each in self._statistics]
        return replace(super()._describe(), beta=max(betas))

    def _state(self) -> dict[str, Any]:
        own = [asdict(each) for each in self._statistics]
        return super()._state() | {
            "statistics": own[0] if len(own) == 1 else own,
            "is_initializing": self._is_initializing,
            "is_single_said": self._is_single_said,
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        own = state["statistics"]
        each = [own] if isinstance(own, dict) else own
        self._statistics = tuple(RadiusStatistics(**values) for values in each)
        self._is_initializing = state["is_initializing"]
        self._is_single_said = state["is_single_said"]

    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            "radius": fingerprint(self.radius, "radius"),
            "min_batch_width": self.min_batch_width,
            "rule": fingerprint(self.rule, "rule"),
        }


def _rule_in_place(rule: Rule, batch_size: int | None, repeat: Repeat | None) -> Rule:
    """What ends a batch: the rule, a size, or the uncertainty of one point."""
    check_choice("repeat", repeat, (None, *get_args(Repeat)))
    if batch_size is not None and repeat is not None:
        raise InputDataError(
            f"Got batch_size={batch_size} and repeat={repeat!r}; need one of them."
        )
    if batch_size is None and repeat is None:
        return rule
    if type(rule) not in (Single, Global, Local, Product):
        raise InputDataError(
            f"Got rule={rule!r} with batch_size={batch_size} and repeat={repeat!r}, "
            "which would take its place; leave them out, or the rule."
        )
    if batch_size is None:
        return UntilHalved(rule.ratio_threshold)
    return FixedSize(batch_size, rule.ratio_threshold)


def _check_width(min_batch_width: int, *, has_kernel: bool) -> None:
    """Refuse a width below one, or without a kernel to be uncertain by."""
    need = "need at least 1, or None."
    check_number("min_batch_width", min_batch_width, "[1, inf)", need)
    if not has_kernel:
        raise InputDataError(
            f"Got min_batch_width={min_batch_width} without covar_module; uncertainty "
            "sampling needs the kernel. Use num_initial points instead."
        )


def _unique_or_repeated(unique: bool | None, rule: Rule) -> bool | None:
    """Whether each candidate comes once; never by default where a rule repeats one."""
    if not isinstance(rule, UntilHalved):
        return unique
    if unique:
        raise InputDataError(
            "Got unique=True with repeat='until-uncertainty-halves': a candidate comes "
            "once or several times. Leave one of them out."
        )
    return False


def _refuse_several(outcomes: Outcomes, what: str) -> None:
    """Refuse what there is for one outcome alone."""
    if len(outcomes) > 1:
        raise UnsupportedError(
            f"Got {len(outcomes)} outcomes and asked for {what}, which there is for "
            "one outcome alone. Leave it out."
        )


def with_chain_rule(
    statistics: RadiusStatistics,
    surrogate: Surrogate,
    record: Evaluations,
    is_other_prior: bool,
) -> RadiusStatistics:
    r"""The sums over all feedback, by the chain rule where that is smaller.

    Data that a strategy starts from were not chosen as one batch under the prior: their
    :math:`\sum_s \log(1 + v_s)` with sequential variances is the information gain, and
    :math:`\log(1 + 3 v) \le 3 \log(1 + v)`. Under other hyperparameters than before,
    the old sums and norms mean nothing.
    """
    gain = surrogate.view.information_gain(record)
    most = float("inf")
    log_det = most if is_other_prior else statistics.log_det_sum
    inflated = most if is_other_prior else statistics.log_det_sum_inflated
    return replace(
        statistics,
        log_det_sum=min(log_det, gain),
        log_det_sum_inflated=min(inflated, 3 * gain),
        norm_lower_bound=0.0 if is_other_prior else statistics.norm_lower_bound,
    )


def _finite(variance: Tensor) -> Tensor:
    """The variances, if they are finite."""
    if not variance.isfinite().all():
        raise InputDataError(
            "The kernel returned NaN or infinity, and nothing was learned. Check the "
            "points told and the kernel's hyperparameters."
        )
    return variance
