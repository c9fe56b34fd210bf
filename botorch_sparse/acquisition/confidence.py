r"""Confidence radii: how far the function may lie from the posterior mean.

The papers multiply :math:`\tilde\sigma = \sigma / \sqrt\lambda` by their beta
(`paper_value`); BoTorch multiplies the Bayesian standard deviation :math:`\sigma` and
calls the square of the factor beta, so `multiplier` is `paper_value` over
:math:`\sqrt\lambda` and `botorch_beta` its square. All are Python floats and cost O(1);
numbers outside their range raise an `InputDataError`.

Example:
    >>> radius = BBKBRadius(norm_bound=1.0, noise_variance=0.04, delta=0.1)
    >>> statistics = RadiusStatistics(lam=0.04, ratio_threshold=2.0)
    >>> statistics = statistics.add_batch(torch.tensor([25.0, 25.0]))  # var / lam
    >>> round(radius.multiplier(statistics), 4)
    4.916
    >>> FixedBeta(4.0).multiplier(statistics)
    2.0

References:
    [Calandriello2019]_ Theorem 2 and its proof (Theorem 9), [Calandriello2020]_
    Theorem 2 and its proof (appendix C.2).
"""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

Constants = Literal["practical", "theory"]
Inflation = Literal["default", "sqrt", "paper"]


@dataclass(frozen=True, kw_only=True)
class RadiusStatistics:
    r"""What a strategy knows when it asks for a radius; all plain numbers.

    A radius that needs more takes it in its constructor, or asks for a subclass.

    Args:
        lam: The regularizer :math:`\lambda` (the model's noise variance), positive.
        num_evaluations: Evaluations so far, t, repeats counted.
        ratio_threshold: The batch threshold :math:`\tilde C \ge 1`; 1 without batches.
        log_det_sum: :math:`\sum_s \log(1 + \mathrm{var}_{fb}(x_s)/\lambda)` over the
            evaluations, each with the variance at the start of its batch.
        log_det_sum_inflated: The same with :math:`3\,\mathrm{var}_{fb}(x_s)`, which
            bounds the exact variance ([Calandriello2020]_ Lemma 2).
        leverage_sum: :math:`\sum_s \mathrm{var}_t(x_s)/\lambda`, current variances.
    """

    lam: float
    num_evaluations: int = 0
    ratio_threshold: float = 1.0
    log_det_sum: float = 0.0
    log_det_sum_inflated: float = 0.0
    leverage_sum: float = 0.0

    def __post_init__(self) -> None:
        none = "0 before any evaluation"
        _require(self, "(0, inf)", lam="the model's noise variance")
        _require(self, "[1, inf)", ratio_threshold="2, or 1 without batches")
        _require(self, "[0, inf)", num_evaluations=none, leverage_sum=none)
        _require(self, "[0, inf)", log_det_sum=none, log_det_sum_inflated=none)

    def add_batch(self, leverage: Tensor) -> "RadiusStatistics":
        """These statistics after one more batch; `leverage_sum` is left as it is.

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
    """What every radius offers; inherit from it and write `paper_value`."""

    def paper_value(self, statistics: RadiusStatistics) -> float:
        r"""The paper's number, the factor of :math:`\sigma / \sqrt\lambda`."""
        ...

    def multiplier(self, statistics: RadiusStatistics) -> float:
        r"""The factor of the Bayesian standard deviation :math:`\sigma`."""
        return self.paper_value(statistics) / math.sqrt(statistics.lam)

    def botorch_beta(self, statistics: RadiusStatistics) -> float:
        """The beta of BoTorch's `mean + sqrt(beta) * sigma`."""
        return self.multiplier(statistics) ** 2

    def offset(self, statistics: RadiusStatistics) -> float:
        """What is added to the radius whatever the variance, in units of Y."""
        return 0.0


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
        _require(self, "[0, inf)", norm_bound="1", noise_variance="1e-4")
        _require(self, "(0, 1)", delta="1 / num_evaluations")
        _require_choice("constants", self.constants, get_args(Constants))

    def _width(self, gain: float) -> float:
        r""":math:`\xi \sqrt{\mathrm{gain} + \log(1/\delta)}`, the part due to noise."""
        return math.sqrt(self.noise_variance * (gain - math.log(self.delta)))

    def _bias(self, statistics: RadiusStatistics) -> float:
        r""":math:`\sqrt\lambda F`, the part due to regularization."""
        return math.sqrt(statistics.lam) * self.norm_bound


@dataclass(frozen=True)
class BBKBRadius(NormBoundRadius):
    r"""The radius of [Calandriello2020]_ Theorem 2, and its authors' smaller one.

    With :math:`v_s = \mathrm{var}_{fb}(x_s)/\lambda` taken at the start of each batch,

    .. math::
        \text{theory:}\quad & c \Bigl( 2 \xi \sqrt{\textstyle\sum_s \log(1 + 3 v_s)
            + \log(1/\delta)} + (1 + \sqrt 2) \sqrt\lambda F \Bigr) \\
        \text{practical:}\quad & c \Bigl( \xi \sqrt{\tilde C \textstyle\sum_s
            \log(1 + v_s) + \log(1/\delta)} + \sqrt\lambda F \Bigr).

    Inside a batch the deviation shrinks and the mean stands still, hence c. The paper
    takes :math:`\tilde C`; that bounds a ratio of variances, so :math:`\sqrt{\tilde C}`
    is enough. The practical radius, no theorem, has it inside the root already.

    *Posterior*: BBKB's DTC posterior, inducing points drawn at oversampling
    :math:`72 \tilde C \log(4t/\delta)` or more, noise :math:`\xi`-sub-Gaussian. The
    exact posterior (GP-UCB, GP-BUCB) too, with the 3 and the :math:`\sqrt 2` to spare:
    when each :math:`v_s` is conditioned on all points before `x_s`,
    :math:`\sum_s \log(1 + v_s) = \log\det(I + K/\lambda)` by the chain rule, and
    variances frozen over a batch only give more.

    The theorem states :math:`\lambda \ge 1`, which its proof needs for regret, batches
    and inducing points but not for this radius: with a smaller :math:`\lambda` the
    interval holds, while those bounds grow with :math:`\max k(x,x)/\lambda` and early
    batches have one point.

    Args (after those of `NormBoundRadius`):
        inflation: The factor c: `"sqrt"`, `"paper"`, None (1), or `"default"`: `"sqrt"`
            with theory constants and None with practical ones.
    """

    _: KW_ONLY
    inflation: Inflation | None = "default"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_choice("inflation", self.inflation, (*get_args(Inflation), None))

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """Theorem 2's alpha, or the practical one."""
        threshold, bias = statistics.ratio_threshold, self._bias(statistics)
        if self.constants == "theory":
            width = 2 * self._width(statistics.log_det_sum_inflated)
            return self._factor(threshold) * (width + (1 + math.sqrt(2)) * bias)
        width = self._width(threshold * statistics.log_det_sum)
        return self._factor(threshold) * (width + bias)

    def _factor(self, threshold: float) -> float:
        """The factor c."""
        default = "sqrt" if self.constants == "theory" else None
        inflation = default if self.inflation == "default" else self.inflation
        return {"sqrt": math.sqrt(threshold), "paper": threshold, None: 1.0}[inflation]


@dataclass(frozen=True)
class BKBRadius(NormBoundRadius):
    r"""The radius of [Calandriello2019]_ Theorem 2, and its authors' smaller one.

    With the current :math:`u_s = \mathrm{var}_t(x_s)/\lambda`, repeats counted, and
    :math:`\alpha = (1 + \varepsilon)/(1 - \varepsilon)`,

    .. math::
        \text{theory:}\quad & 2 \xi \sqrt{\alpha\, \ell_t \textstyle\sum_s u_s
            + \log(1/\delta)} + (1 + 1/\sqrt{1 - \varepsilon}) \sqrt\lambda F \\
        \text{practical:}\quad & \xi \sqrt{\log(t) \textstyle\sum_s u_s
            + \log(1/\delta)} + \sqrt\lambda F.

    The paper prints :math:`\ell_t = \log(\kappa^2 t)` for any :math:`\lambda > 0`. Its
    proof drops :math:`\lambda` from Eq. 6, so that this is proved, and used here, for
    :math:`\lambda \ge 1` and :math:`\kappa^2 t \ge 4`. Elsewhere it may be too small,
    and where :math:`(1 + \log(1 + \kappa^2 t/\lambda))/2`, which Eq. 6 gives, is larger
    we take that.

    *Posterior*: BKB's DTC posterior (no batches), inducing points drawn at oversampling
    :math:`6 \alpha \log(4T/\delta)/\varepsilon^2` or more, noise
    :math:`\xi`-sub-Gaussian; the exact posterior too. `BBKBRadius` has no logarithm
    before its sum.

    Args (after those of `NormBoundRadius`):
        kernel_bound: :math:`\kappa^2 = \max_x k(x, x)`, positive; theory only.
        accuracy: :math:`\varepsilon` in (0, 1); theory only.
    """

    _: KW_ONLY
    kernel_bound: float = 1.0
    accuracy: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self, "(0, inf)", kernel_bound="the outputscale")
        _require(self, "(0, 1)", accuracy="0.5")

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """Theorem 2's beta, or the practical one."""
        num_evaluations = max(1, statistics.num_evaluations)
        gain, bias = statistics.leverage_sum, self._bias(statistics)
        if self.constants == "practical":
            return self._width(math.log(num_evaluations) * gain) + bias
        trace = self.kernel_bound * num_evaluations  # bounds tr K
        log = max(math.log(trace), 0.5 * (1 + math.log1p(trace / statistics.lam)))
        alpha = (1 + self.accuracy) / (1 - self.accuracy)
        width = 2 * self._width(alpha * log * gain)
        return width + (1 + 1 / math.sqrt(1 - self.accuracy)) * bias


@dataclass(frozen=True)
class FixedBeta(ConfidenceRadius):
    """BoTorch's constant beta, `mean + sqrt(beta) * sigma`; proved for no posterior.

    Args:
        beta: The squared factor of the Bayesian standard deviation, non-negative.
    """

    beta: float

    def __post_init__(self) -> None:
        _require(self, "[0, inf)", beta="4")

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """The same on the papers' scale."""
        return math.sqrt(self.beta * statistics.lam)

    def botorch_beta(self, statistics: RadiusStatistics) -> float:
        """Exactly `beta`."""
        return self.beta


def _require(owner: object, interval: str, **suggestions: str) -> None:
    """Raise unless the named attributes lie in `interval`, such as `"[0, inf)"`."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    for name, suggestion in suggestions.items():
        value = getattr(owner, name)
        if not (low < value < high or (interval[0] == "[" and value == low)):
            message = f"Got {name}={value}; it must be in {interval}. Try {suggestion}."
            raise InputDataError(message)


def _require_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise InputDataError(f"Got {name}={value!r}; use one of {choices}.")
