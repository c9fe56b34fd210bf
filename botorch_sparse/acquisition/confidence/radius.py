"""What every confidence radius shares, and the radius of a constant beta."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_callable,
    check_choice,
    check_kind,
    check_number,
    check_whole,
)

Constants = Literal["practical", "theory"]


@dataclass(frozen=True, kw_only=True)
class RadiusStatistics:
    r"""What a strategy knows when it asks for a radius; all plain numbers.

    A radius that needs more takes it in its constructor, or asks for a subclass.

    Args:
        lam: The regularizer :math:`\lambda` (the model's noise variance), positive.
        num_evaluations: Evaluations that the posterior has seen, t, repeats counted.
        ratio_threshold: The batch threshold :math:`\tilde C \ge 1`; 1 without batches.
        log_det_sum: :math:`\sum_s \log(1 + \mathrm{var}_{fb}(x_s)/\lambda)` over the
            evaluations, each with the variance at the start of its batch.
        log_det_sum_inflated: The same with :math:`3\,\mathrm{var}_{fb}(x_s)`, which
            bounds the exact variance ([Calandriello2020]_ Lemma 2).
        leverage_sum: :math:`\sum_s \mathrm{var}_t(x_s)/\lambda`, current variances.
            Strategies measure it for radii that set `needs_leverage_sum`.
        lambda_max: An upper bound r on :math:`\lambda_{\max}(K - Q)/\lambda`, the
            largest error of the Nystrom approximation at the data in units of the
            noise; 0 for an exact posterior. Strategies measure it for radii that set
            `needs_lambda_max`.
        norm_lower_bound: A number that the RKHS norm of the function exceeds, as the
            feedback shows; see `GuessAndDouble`.
    """

    lam: float
    num_evaluations: int = 0
    ratio_threshold: float = 1.0
    log_det_sum: float = 0.0
    log_det_sum_inflated: float = 0.0
    leverage_sum: float = 0.0
    lambda_max: float = 0.0
    norm_lower_bound: float = 0.0

    def __post_init__(self) -> None:
        none = "0 before any evaluation"
        require(self, "(0, inf)", lam="the model's noise variance")
        require(self, "[1, inf)", ratio_threshold="2, or 1 without batches")
        require(self, "[0, inf)", num_evaluations=none, leverage_sum=none)
        require(self, "[0, inf)", log_det_sum=none, log_det_sum_inflated=none)
        require(self, "[0, inf)", lambda_max="0 for an exact posterior")
        require(self, "[0, inf)", norm_lower_bound=none)

    @property
    def information_gain(self) -> float:
        r"""Half of `log_det_sum`, in nats.

        For an exact posterior it is at least the information gain
        :math:`\frac12 \log\det(I + K/\lambda)` of the evaluated points, and equal to it
        without batches.
        """
        return 0.5 * self.log_det_sum

    def add_batch(self, leverage: Tensor) -> "RadiusStatistics":
        """These statistics after one more batch; the others are left as they are.

        Args:
            leverage: `b` variances of the batch's points, as they were at its start,
                over `lam`. One copy to the host.
        """
        v = leverage.detach().double()
        log_det, inflated = torch.stack([v, 3 * v]).log1p().sum(-1).tolist()
        return replace(
            self,
            num_evaluations=self.num_evaluations + len(v),
            log_det_sum=self.log_det_sum + log_det,
            log_det_sum_inflated=self.log_det_sum_inflated + inflated,
        )


@runtime_checkable
class ConfidenceRadius(Protocol):
    """What every radius offers; inherit from it and write `paper_value`.

    Attributes:
        needs_lambda_max: Whether it looks at `lambda_max`, which costs O(n m^2).
        needs_mean_norm: Whether `update` looks at the mean.
    """

    needs_lambda_max: ClassVar[bool] = False
    needs_mean_norm: ClassVar[bool] = False

    @property
    def needs_leverage_sum(self) -> bool:
        """Whether it looks at `leverage_sum`, of the different points: O(n m^2)."""
        return False

    def paper_value(self, statistics: RadiusStatistics) -> float:
        r"""The number that the paper prints; each class says what it multiplies.

        Unless `multiplier` is overridden it multiplies :math:`\sigma / \sqrt\lambda`.
        """
        ...

    def multiplier(self, statistics: RadiusStatistics) -> float:
        r"""The factor of the Bayesian standard deviation :math:`\sigma`."""
        return self.paper_value(statistics) / math.sqrt(statistics.lam)

    def botorch_beta(self, statistics: RadiusStatistics) -> float:
        """The beta of BoTorch's `mean + sqrt(beta) * sigma`."""
        return self.multiplier(statistics) ** 2

    def interval_multiplier(self, statistics: RadiusStatistics) -> float:
        """The factor of an interval that holds, for rules that stop or eliminate.

        The `multiplier`, unless that is made for choosing points alone.
        """
        return self.multiplier(statistics)

    def offset(self, statistics: RadiusStatistics) -> float:
        """What is added to the radius whatever the variance, in units of Y."""
        return 0.0

    def update(
        self, statistics: RadiusStatistics, mean_norm: float
    ) -> RadiusStatistics:
        """What a new posterior tells; most radii learn nothing from its mean.

        Args:
            statistics: Of the posterior.
            mean_norm: The RKHS norm of its mean, see `posterior_mean_norm`.
        """
        return statistics

    def lengthscale_factor(self, statistics: RadiusStatistics) -> float:
        """What multiplies the kernel's lengthscales, in (0, 1]; 1 for most radii."""
        return 1.0

    def in_dimension(self, dim: int) -> "ConfidenceRadius":
        """The radius for points of so many features; most do not look at it."""
        return self


class StandardDeviationRadius(ConfidenceRadius, Protocol):
    r"""A radius whose printed number multiplies the standard deviation itself.

    Inside a batch the deviation shrinks while the mean stands still. With theory
    constants the factor is therefore larger by :math:`\sqrt{\tilde C}`, which is 1
    without batches.
    """

    def multiplier(self, statistics: RadiusStatistics) -> float:
        """The printed number, times the factor of batches."""
        inflation = math.sqrt(_batch_inflation(self, statistics))
        return inflation * self.paper_value(statistics)


class VarianceRadius(ConfidenceRadius, Protocol):
    r"""A radius that prints BoTorch's beta: the width is :math:`\beta^{1/2} \sigma`.

    With theory constants and batches it is larger by :math:`\tilde C`, as in
    `StandardDeviationRadius`.
    """

    def multiplier(self, statistics: RadiusStatistics) -> float:
        """The root of BoTorch's beta."""
        return math.sqrt(self.botorch_beta(statistics))

    def botorch_beta(self, statistics: RadiusStatistics) -> float:
        """The printed number, times the factor of batches."""
        return _batch_inflation(self, statistics) * self.paper_value(statistics)


def _batch_inflation(radius: ConfidenceRadius, statistics: RadiusStatistics) -> float:
    r""":math:`\tilde C` with theory constants, otherwise 1."""
    theory = getattr(radius, "constants", None) == "theory"
    return statistics.ratio_threshold if theory else 1.0


@dataclass(frozen=True)
class NormBoundRadius(ConfidenceRadius):
    r"""Base of the radii for functions of bounded RKHS norm.

    Args:
        norm_bound: F, a bound on the RKHS norm of the function, non-negative.
        noise_variance: :math:`\xi^2`, in squared units of Y, non-negative.
        delta: Probability of failure, in (0, 1).
        constants: `"practical"` (the authors' experiments) or `"theory"`.
    """

    norm_bound: float
    noise_variance: float
    delta: float
    _: KW_ONLY
    constants: Constants = "practical"

    def __post_init__(self) -> None:
        require(self, "[0, inf)", norm_bound="1", noise_variance="1e-4")
        require(self, "(0, 1)", delta="1 / num_evaluations")
        check_choice("constants", self.constants, ("practical", "theory"))

    def _width(self, gain: float) -> float:
        r""":math:`\xi \sqrt{\mathrm{gain} + \log(1/\delta)}`, the part due to noise."""
        return math.sqrt(self.noise_variance * (gain - math.log(self.delta)))

    def _bias(self, statistics: RadiusStatistics) -> float:
        r""":math:`\sqrt\lambda F`, the part due to regularization."""
        return math.sqrt(statistics.lam) * self.norm_bound


def require(owner: object, interval: str, **suggestions: str) -> None:
    """Raise unless the named attributes lie in `interval`, such as `"[0, inf)"`."""
    for name, suggestion in suggestions.items():
        need = f"it must be in {interval}. Try {suggestion}."
        check_number(name, getattr(owner, name), interval, need)


def require_radius(radius: object) -> None:
    """Raise unless it is a confidence radius, and not a class of these."""
    need = "a ConfidenceRadius, such as FixedBeta(4.0) for a constant beta"
    check_kind("radius", radius, ConfidenceRadius, need)


def check_gain(max_information_gain: object) -> None:
    """Raise unless it is None or a function."""
    if max_information_gain is not None:
        need = "a function of the number of evaluations, or None"
        check_callable("max_information_gain", max_information_gain, need)


def require_integers(owner: object, **suggestions: str) -> None:
    """Raise unless the named attributes are whole numbers of at least one."""
    for name, suggestion in suggestions.items():
        need = f"it must be in [1, inf), a whole number. Try {suggestion}."
        check_whole(name, getattr(owner, name), 1, need)


@dataclass(frozen=True)
class FixedBeta(ConfidenceRadius):
    """BoTorch's constant beta, `mean + sqrt(beta) * sigma`; proved for no posterior.

    Args:
        beta: The squared factor of the Bayesian standard deviation, non-negative.
    """

    beta: float

    def __post_init__(self) -> None:
        require(self, "[0, inf)", beta="4")

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """The same on the papers' scale."""
        return math.sqrt(self.beta * statistics.lam)

    def botorch_beta(self, statistics: RadiusStatistics) -> float:
        """Exactly `beta`."""
        return self.beta
