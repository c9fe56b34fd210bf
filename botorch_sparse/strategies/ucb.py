"""Upper confidence bound strategies, on tables and on continuous domains."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Unpack

import torch
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
from botorch_sparse.inducing import InducingPointSampler, PosteriorVarianceSampler
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.optim.candidate_pool import MAX_MEMORY
from botorch_sparse.optim.exact_pool import ExactCandidatePool
from botorch_sparse.posteriors.precision import in_double
from botorch_sparse.strategies.base import Strategy
from botorch_sparse.strategies.continuous import ModelSettings, ModelSurrogate
from botorch_sparse.strategies.domain import DomainOptions
from botorch_sparse.strategies.folded import FoldedEvaluations
from botorch_sparse.strategies.history import BatchRecord
from botorch_sparse.strategies.rules import BatchRequest, BatchRule
from botorch_sparse.strategies.seeding import draw_seed
from botorch_sparse.strategies.surrogates import (
    ExactSurrogate,
    NystromSurrogate,
    Surrogate,
)
from botorch_sparse.strategies.table import uncertainty_sampling, validate_width

# Where a batch ends at the latest: points without variance add nothing to any bound.
MAX_BATCH_SIZE = 10_000
DEFAULT_LAM = 1e-4
# BoTorch's usual beta, for hyperparameters that are learned: no theorem covers those.
PRACTICAL_BETA = 4.0


class UCBOptions(DomainOptions, total=False):
    """Keyword arguments of all upper confidence bound strategies.

    See `UCBStrategy` for what they mean.
    """

    radius: ConfidenceRadius | None
    min_batch_width: int | None
    num_initial: int | None
    refit: RefitSchedule | None
    optimizer_options: Mapping[str, Any] | None
    seed: int


@dataclass(frozen=True)
class NystromSettings:
    """How the inducing points of a strategy are chosen, and what they may cost.

    Args:
        oversampling: See `PosteriorVarianceSampler`.
        initial_sampler: See `NystromSurrogate`.
        max_memory: See `CandidatePool`.
    """

    oversampling: float = 2.0
    initial_sampler: InducingPointSampler | None = None
    max_memory: int = MAX_MEMORY

    @property
    def sampler(self) -> PosteriorVarianceSampler:
        """The sampler once there is a posterior."""
        return PosteriorVarianceSampler(self.oversampling)


class UCBStrategy(Strategy):
    r"""Batches of maximizers of :math:`\mu_{fb}(x) + \beta^{1/2} \sigma_t(x)`.

    Mean and inducing set stand still within a batch, variances shrink with each of its
    points, and a rule ends it.

    The first point of all is drawn uniformly from a table, unless `min_batch_width`
    asks for more. On a continuous domain the first `num_initial` ones are Sobol's, or
    random ones where there are constraints. Data told before the first `ask` are a warm
    start.

    On a continuous domain the kernel may be left out. Then kernel, noise and the scale
    of inputs and outputs are inferred, and fitted again at the ends of batches.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel. Its hyperparameters stay as they are, unless `refit`
            is given.
        lam: The regularizer lambda, as the posterior's noise variance, positive;
            1e-4 by default. Inferred with the kernel where that is left out.
        noise_variance: Variance of the feedback's noise, for the default radius.
        norm_bound: Bound on the RKHS norm of the objective, for the default radius.
        delta: Failure probability of the default radius, in (0, 1).
        rule: What ends a batch.
        nystrom: How inducing points are chosen; None for the exact posterior.
        radius: A confidence radius in place of the practical one of the strategy's
            paper; `FixedBeta(4.0)` is the default where the kernel is left out. There
            outcomes are standardized, and so are the units of a radius that is given.
        min_batch_width: P. Begin by uncertainty sampling, until the largest exact
            variance is at most `lam / P`: later batches have at least P (C - 1) / 3
            points, with high probability ([Calandriello2020]_ Algorithm 3). Tables
            alone; it takes O(A n) memory for `n` points.
        num_initial: Points before the model is used, on a continuous domain: 1 with a
            kernel (Algorithm 1), else `2 d`, at least 5.
        refit: When hyperparameters are fitted again, at the ends of batches, on a
            continuous domain. Never with a kernel; else when data grew by a fifth. A
            kernel's noise is fitted down to 1e-4 of its prior variance, or to half of
            `lam` where that is less.
        optimizer_options: On a continuous domain, for `optimize_acqf`: `num_restarts`,
            `raw_samples`, `options`, ...
        seed: Seed of the strategy's generator.
        **domain: `bounds` and constraints of a continuous domain; see `Strategy`.
    """

    default_radius: ClassVar[type[BBKBRadius] | type[BKBRadius]] = BBKBRadius

    def __init__(
        self,
        candidates: Tensor | None = None,
        covar_module: Kernel | None = None,
        lam: float | None = None,
        noise_variance: float = 1e-4,
        norm_bound: float = 1.0,
        delta: float = 1e-3,
        *,
        rule: BatchRule,
        nystrom: NystromSettings | None,
        radius: ConfidenceRadius | None = None,
        min_batch_width: int | None = None,
        num_initial: int | None = None,
        refit: RefitSchedule | None = None,
        optimizer_options: Mapping[str, Any] | None = None,
        seed: int = 0,
        **domain: Unpack[DomainOptions],
    ) -> None:
        super().__init__(candidates, seed=seed, **domain)
        validate_lam(lam, is_inferred=self.box is not None and covar_module is None)
        validate_width(min_batch_width, is_table=self.box is None)
        if covar_module is not None:
            lam = DEFAULT_LAM if lam is None else lam
            covar_module = in_double(covar_module, self.candidates.dtype)
        if radius is None:
            radius = (
                FixedBeta(PRACTICAL_BETA)
                if covar_module is None
                else self.default_radius(norm_bound, noise_variance, delta)
            )
        validate_radius(radius)
        self.radius = radius
        self.batch_rule = rule
        self.nystrom = nystrom
        self.min_batch_width = min_batch_width
        self._is_initializing = min_batch_width is not None
        self.settings = ModelSettings.of(
            covar_module, lam, refit, num_initial, optimizer_options, self.box
        )
        self.surrogate = self._make_surrogate(covar_module, lam)
        self.statistics = RadiusStatistics(
            lam=self.surrogate.lam, ratio_threshold=rule.ratio_threshold
        )

    def _make_surrogate(
        self, covar_module: Kernel | None, lam: float | None
    ) -> Surrogate:
        nystrom = self.nystrom
        if self.box is not None:
            return ModelSurrogate(
                self.box,
                self.settings,
                sampler=None if nystrom is None else nystrom.sampler,
                initial_sampler=None if nystrom is None else nystrom.initial_sampler,
            )
        if covar_module is None or lam is None:
            raise InputDataError(
                "Got candidates without covar_module; need the kernel, such as "
                "RBFKernel() with a lengthscale. It is inferred with bounds alone."
            )
        if nystrom is None:
            return ExactSurrogate(self.candidates.double(), covar_module, lam)
        return NystromSurrogate(
            self.candidates.double(),
            covar_module,
            lam,
            nystrom.sampler,
            initial_sampler=nystrom.initial_sampler,
            max_memory=nystrom.max_memory,
        )

    @property
    def posterior(self) -> Any:
        """The posterior of a table that batches are chosen with; None before any."""
        return getattr(getattr(self.surrogate, "pool", None), "posterior", None)

    @property
    def model(self) -> Any:
        """The BoTorch model of a continuous domain; None before any feedback."""
        return getattr(self.surrogate, "model", None)

    def confidence_gap(self) -> float:
        """See `Strategy.confidence_gap`; infinite before any feedback."""
        if self._num_learned == 0:
            return float("inf")
        multiplier = self.radius.interval_multiplier(self.statistics)
        offset = self.radius.offset(self.statistics)
        return self.surrogate.confidence_gap(multiplier, offset)

    def _select(self, max_batch_size: int | None) -> list[int]:
        limit = max_batch_size or MAX_BATCH_SIZE
        if self._is_initializing:
            if chosen := self._sample_uncertainty(limit):
                return chosen
            self._is_initializing = False
        missing = self._num_initial_missing()
        if missing > 0:
            return self._draw(min(missing, limit))
        pending = [point for point, _ in self._pending]
        multiplier = self.radius.multiplier(self.statistics)
        request = BatchRequest(multiplier, self.batch_rule, pending, limit)
        return self.surrogate.select(request, self.history, self.generator)

    def _num_initial_missing(self) -> int:
        """How many points to draw before the posterior is asked."""
        at_least = 1 if self._num_learned == 0 else 0
        if self.box is None:
            return at_least
        known = len(self.history) + len(self._pending)
        return max(at_least, self.settings.num_initial - known)

    def _draw(self, num: int) -> list[int]:
        """Points drawn without regard to feedback."""
        if self.box is None:
            size, g = len(self.candidates), self.generator
            return torch.randint(size, (num,), generator=g).tolist()
        seed = draw_seed(self.generator)
        return [self.history.add_point(x) for x in self.box.sample(num, seed)]

    def _sample_uncertainty(self, limit: int) -> list[int]:
        """The next points of Algorithm 3; none once the variances are small enough."""
        surrogate, lam = self.surrogate, self.statistics.lam
        if not isinstance(surrogate, NystromSurrogate | ExactSurrogate):
            return []
        pool = ExactCandidatePool(surrogate.pool.X, surrogate.covar_module, lam)
        if len(self.history) > 0:
            data = FoldedEvaluations.of(self.history, len(self.history))
            pool.rebuild(data.X, data.Y, lam / data.counts)
        pending = [point for point, _ in self._pending]
        largest = lam / float(self.min_batch_width or 1)
        return uncertainty_sampling(pool, pending, largest, limit)

    def _learn(self) -> None:
        """Steps 1-4 of a batch's end, in the order of Algorithm 1.

        The log-determinant and the inducing set are taken with the variances from
        before the feedback; then the posterior is built.
        """
        snapshot, generator = self.surrogate.snapshot(), self.generator.get_state()
        try:
            self._learn_in_order()
        except BaseException:
            self.surrogate.restore(snapshot)
            self.generator.set_state(generator)
            raise
        super()._learn()

    def _learn_in_order(self) -> None:
        history, lam = self.history, self.statistics.lam
        new = history.point[self._num_learned :]
        leverage = self._finite(self.surrogate.variance(history, new)) / lam
        statistics = self.statistics.add_batch(leverage)
        is_other_prior = self.surrogate.learn(history, self.generator)
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
        return BatchRecord(
            size=0,
            num_inducing=self.surrogate.num_inducing,
            beta=self.radius.botorch_beta(self.statistics),
            max_variance=self.surrogate.max_variance(),
        )

    def state_dict(self) -> dict[str, Any]:
        """See `Strategy.state_dict`."""
        return super().state_dict() | {
            "statistics": asdict(self.statistics),
            "is_initializing": self._is_initializing,
            "surrogate": self.surrogate.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Strategy.load_state_dict`."""
        super().load_state_dict(state)
        self.statistics = RadiusStatistics(**state["statistics"])
        self._is_initializing = state["is_initializing"]
        self.surrogate.load_state_dict(
            state["surrogate"], self.history, self._num_learned
        )

    def _config(self) -> dict[str, Any]:
        rule, nystrom = self.batch_rule, self.nystrom
        return super()._config() | {
            "kernel": self.surrogate.kernel_config(),
            "radius": repr(self.radius),
            "min_batch_width": self.min_batch_width,
            **self.settings.config(),
            **({} if nystrom is None else vars(nystrom)),
            "initial_sampler": repr(nystrom and nystrom.initial_sampler),
            "termination": rule.name,
            "ratio_threshold": rule.ratio_threshold,
            "local_bound": rule.local_bound,
            "repeat": rule.repeat,
        }


def validate_lam(lam: float | None, *, is_inferred: bool = False) -> None:
    """Refuse a regularizer that is not positive, or that will be inferred."""
    if lam is None:
        return
    if is_inferred:
        raise InputDataError(
            f"Got lam={lam} without covar_module: noise and kernel are given together "
            "or inferred together. Give both, or neither."
        )
    if not lam > 0:
        raise InputDataError(
            f"Got lam={lam}; need a positive noise variance, such as 1e-4 times the "
            "variance of the observations."
        )


def validate_radius(radius: object) -> None:
    """Refuse what is not a confidence radius, such as a number."""
    if not isinstance(radius, ConfidenceRadius):
        raise InputDataError(
            f"Got radius={radius!r}; need a ConfidenceRadius, such as FixedBeta(4.0) "
            "for a constant beta."
        )
