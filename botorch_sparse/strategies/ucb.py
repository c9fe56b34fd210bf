"""Upper confidence bound strategies, on tables and on continuous domains."""

from dataclasses import asdict, replace
from typing import Any, ClassVar, Unpack

from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    BBKBRadius,
    BKBRadius,
    ConfidenceRadius,
    FixedBeta,
    RadiusStatistics,
)
from botorch_sparse.kernels import shrink_lengthscales
from botorch_sparse.optim.exact_pool import ExactPool
from botorch_sparse.strategies.exact_surrogate import ExactSurrogate
from botorch_sparse.strategies.folded import FoldedEvaluations
from botorch_sparse.strategies.history import BatchRecord
from botorch_sparse.strategies.model_strategy import (
    MAX_BATCH_SIZE,
    ModelOptions,
    ModelStrategy,
    NystromSettings,
)
from botorch_sparse.strategies.nystrom_surrogate import NystromSurrogate
from botorch_sparse.strategies.rules import BatchRequest, BatchRule
from botorch_sparse.strategies.table import uncertainty_sampling, validate_width

# BoTorch's usual beta, for hyperparameters that are learned: no theorem covers those.
PRACTICAL_BETA = 4.0


class UCBOptions(ModelOptions, total=False):
    """Keyword arguments of all upper confidence bound strategies.

    See `UCBStrategy` and `ModelStrategy` for what they mean.
    """

    radius: ConfidenceRadius | None
    batch_size: int | None
    min_batch_width: int | None


class UCBStrategy(ModelStrategy):
    r"""Batches of maximizers of :math:`\mu_{fb}(x) + \beta^{1/2} \sigma_t(x)`.

    Mean and inducing set stand still within a batch, variances shrink with each of its
    points, and a rule ends it.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel, or None to infer it; see `ModelStrategy`.
        lam: See `ModelStrategy`.
        noise_variance: Variance of the feedback's noise, for the default radius of a
            kernel that is given, as the next two.
        norm_bound: Bound on the RKHS norm of the objective.
        delta: Failure probability, in (0, 1).
        rule: What ends a batch.
        nystrom: How inducing points are chosen; None for the exact posterior.
        radius: A confidence radius in place of the practical one of the strategy's
            paper; `FixedBeta(4.0)` is the default where the kernel is left out. There
            outcomes are standardized, and so are the units of a radius that is given.
            `UnknownHyperparameters` shrinks lengthscales, given or inferred.
        batch_size: Points in each batch, in place of the rule: where rounds of feedback
            have a size of their own. No theorem covers it but that of a size of one.
        min_batch_width: P. Begin by uncertainty sampling, until the largest exact
            variance is at most `lam / P`: later batches have at least P (C - 1) / 3
            points, with high probability ([Calandriello2020]_ Algorithm 3). Tables
            with a kernel alone; it takes O(A n) memory for `n` points.
        **options: Keyword arguments of `ModelStrategy`.
    """

    default_radius: ClassVar[type[BBKBRadius] | type[BKBRadius]] = BBKBRadius

    def __init__(
        self,
        candidates: Any = None,
        covar_module: Kernel | None = None,
        lam: float | None = None,
        noise_variance: float = 1e-4,
        norm_bound: float = 1.0,
        delta: float = 1e-3,
        *,
        rule: BatchRule,
        nystrom: NystromSettings | None,
        radius: ConfidenceRadius | None = None,
        batch_size: int | None = None,
        min_batch_width: int | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        options["unique"] = unique_or_repeated(options.get("unique"), rule)
        super().__init__(candidates, covar_module, lam, nystrom=nystrom, **options)
        is_table = self.box is None and covar_module is not None
        validate_width(min_batch_width, is_table=is_table)
        if radius is None:
            radius = (
                FixedBeta(PRACTICAL_BETA)
                if covar_module is None
                else self.default_radius(norm_bound, noise_variance, delta)
            )
        validate_radius(radius)
        self.radius = radius.in_dimension(self.surrogate.dim)
        later = RadiusStatistics(lam=self.surrogate.lam, num_evaluations=2**60)
        if covar_module is not None and self.radius.lengthscale_factor(later) < 1.0:
            shrink_lengthscales(covar_module, 0.5)  # refuses kernels without any
        self.batch_rule = rule = replace(rule, size=batch_size)
        self.min_batch_width = min_batch_width
        self._is_initializing = min_batch_width is not None
        self.statistics = RadiusStatistics(
            lam=self.surrogate.lam, ratio_threshold=rule.ratio_threshold
        )

    def confidence_gap(self) -> float:
        """See `Strategy.confidence_gap`; infinite before any feedback."""
        if self._num_learned == 0:
            return float("inf")
        multiplier = self.radius.interval_multiplier(self.statistics)
        offset = self.radius.offset(self.statistics)
        return self.surrogate.confidence_gap(multiplier, offset)

    def _select(self, max_batch_size: int | None) -> list[int]:
        if self._is_initializing:
            limit = min(max_batch_size or MAX_BATCH_SIZE, self._largest_batch())
            if chosen := self._sample_uncertainty(limit):
                return chosen
            self._is_initializing = False
        return super()._select(max_batch_size)

    def _batch_size(self) -> int | None:
        return self.batch_rule.size

    def _select_by_model(self, limit: int) -> list[int]:
        request = self._request(limit)
        return self.surrogate.select(request, self.history, self.generator)

    def _request(self, limit: int) -> BatchRequest:
        """What is asked for."""
        return BatchRequest(
            self.radius.multiplier(self.statistics),
            self.batch_rule,
            self.pending_points(),
            limit,
            sorted(self.excluded_points),
            self.unique,
        )

    def _sample_uncertainty(self, limit: int) -> list[int]:
        """The next points of Algorithm 3; none once the variances are small enough."""
        surrogate, lam = self.surrogate, self.statistics.lam
        if not isinstance(surrogate, NystromSurrogate | ExactSurrogate):
            return []
        pool = ExactPool(surrogate.pool.X, surrogate.covar_module, lam)
        if len(self.history) > 0:
            data = FoldedEvaluations.of(self.history, len(self.history))
            X = surrogate.source.inputs(data.X)
            pool.rebuild(X, data.Y, lam / data.counts)
        pending = self.pending_points()
        largest = lam / float(self.min_batch_width or 1)
        choosable = self._request(limit).choosable(pool.X.device)
        return uncertainty_sampling(pool, pending, largest, limit, choosable)

    def _learn_in_order(self) -> None:
        """Steps 1-4 of a batch's end, in the order of Algorithm 1.

        The log-determinant and the inducing set are taken with the variances from
        before the feedback; then the posterior is built.
        """
        history, lam = self.history, self.statistics.lam
        new = history.point[self._num_learned :]
        leverage = self._finite(self.surrogate.variance(history, new)) / lam
        statistics = self.statistics.add_batch(leverage)
        factor = self.radius.lengthscale_factor(statistics)
        is_other_prior = self.surrogate.learn(history, self.generator, factor)
        if self._num_learned == 0 or is_other_prior:
            statistics = self._with_chain_rule(statistics, is_other_prior)
        variance = self._finite(self.surrogate.variance(history, history.point))
        lam = self.surrogate.lam
        leverage_sum = float(variance.sum()) / lam
        self.statistics = self._with_evidence(
            replace(statistics, lam=lam, leverage_sum=leverage_sum)
        )

    def _with_evidence(self, statistics: RadiusStatistics) -> RadiusStatistics:
        """What the radius wants to know of the new posterior itself."""
        radius, surrogate = self.radius, self.surrogate
        if getattr(radius, "needs_lambda_max", False):
            r = surrogate.residual_trace(self.history)
            statistics = replace(statistics, lambda_max=r)
        if getattr(radius, "needs_mean_norm", False):
            mean_norm = surrogate.mean_norm(self.history)
            statistics = radius.update(statistics, mean_norm)
        return statistics

    @staticmethod
    def _finite(variance: Tensor) -> Tensor:
        """The variances, if they are finite."""
        if not variance.isfinite().all():
            raise InputDataError(
                "The kernel returned NaN or infinity, and nothing was learned. Check "
                "the points told and the kernel's hyperparameters."
            )
        return variance

    def _with_chain_rule(
        self, statistics: RadiusStatistics, is_other_prior: bool
    ) -> RadiusStatistics:
        r"""The sums over all feedback, by the chain rule where that is smaller.

        Data that a strategy starts from were not chosen as one batch under the prior:
        their :math:`\sum_s \log(1 + v_s)` with sequential variances is the information
        gain, and :math:`\log(1 + 3 v) \le 3 \log(1 + v)`. Under other hyperparameters
        than before, the old sums and norms mean nothing.
        """
        gain = self.surrogate.information_gain(self.history)
        most = float("inf")
        log_det = most if is_other_prior else statistics.log_det_sum
        inflated = most if is_other_prior else statistics.log_det_sum_inflated
        return replace(
            statistics,
            log_det_sum=min(log_det, gain),
            log_det_sum_inflated=min(inflated, 3 * gain),
            norm_lower_bound=0.0 if is_other_prior else statistics.norm_lower_bound,
        )

    def _describe(self) -> BatchRecord:
        return replace(
            super()._describe(), beta=self.radius.botorch_beta(self.statistics)
        )

    def state_dict(self) -> dict[str, Any]:
        """See `Strategy.state_dict`."""
        return super().state_dict() | {
            "statistics": asdict(self.statistics),
            "is_initializing": self._is_initializing,
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        statistics = RadiusStatistics(**state["statistics"])
        super()._load_state(state)
        self.statistics = statistics
        self._is_initializing = state["is_initializing"]

    def _config(self) -> dict[str, Any]:
        rule = self.batch_rule
        return super()._config() | {
            "radius": repr(self.radius),
            "min_batch_width": self.min_batch_width,
            "termination": rule.name,
            "ratio_threshold": rule.ratio_threshold,
            "local_bound": rule.local_bound,
            "repeat": rule.repeat,
            "batch_size": rule.size,
        }


def unique_or_repeated(unique: bool | None, rule: BatchRule) -> bool | None:
    """Whether each candidate comes once; never by default where a rule repeats one."""
    if rule.repeat is None:
        return unique
    if unique:
        raise InputDataError(
            f"Got unique=True with repeat={rule.repeat!r}: a candidate comes once or "
            "several times. Leave one of them out."
        )
    return False


def validate_radius(radius: object) -> None:
    """Refuse what is not a confidence radius, such as a number."""
    if not isinstance(radius, ConfidenceRadius):
        raise InputDataError(
            f"Got radius={radius!r}; need a ConfidenceRadius, such as FixedBeta(4.0) "
            "for a constant beta."
        )
