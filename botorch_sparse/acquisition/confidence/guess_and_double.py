r"""A guess of the norm bound that doubles when the feedback refutes it.

References:
    [Vakili2022]_ Lemma F.1 (the norm of the mean), [Chowdhury2017]_ Theorem 1 (the
    noise in it).
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from typing_extensions import override

from botorch_sparse.acquisition.confidence.radius import (
    ConfidenceRadius,
    NormBoundRadius,
    RadiusStatistics,
    require,
)
from botorch_sparse.argument_checks import check_kind
from botorch_sparse.posteriors import NystromPosterior


@dataclass(frozen=True)
class GuessAndDouble(ConfidenceRadius):
    r"""A radius for an unknown norm: its bound doubles on evidence, never before.

    The evidence is the RKHS norm of the posterior mean. The mean of noise-free feedback
    has at most :math:`\sqrt{1 + r/4}` times the norm of f, with `r` the certified
    :math:`\lambda_{\max} / \lambda` (Lemma F.1's terms 1 and 2, which are orthogonal),
    and the noise adds at most the :math:`W` of the self-normalized bound, so that

    .. math::
        \|f\| \ge \ell_t = \frac{\|\mu_t\| - W_t}{\sqrt{1 + r_t/4}}, \qquad
        W_t = \frac{\xi}{\sqrt\lambda}
            \sqrt{\textstyle\sum_s \log(1 + 3 v_s) + 2 \log(1/\delta)}

    with probability :math:`1 - \delta` for all t (the event of the radius's own proof).
    The bound in use is the first of :math:`F, 2F, 4F, \dots` that is at least
    :math:`\max_{s \le t} \ell_s`. It never exceeds the larger of F and
    :math:`2\|f\|`.

    What cannot be had: feedback can refute a bound that is too small, not confirm one
    that is large enough. Until the bound has reached the norm the interval may miss f
    where no data are, so F should be a fair guess.

    The maximum lives in the statistics (`norm_lower_bound`). Strategies call `update`
    after each posterior and save the statistics with their state; in a loop of your own
    call it yourself, or the bound stays. Other hyperparameters are another norm: there
    the evidence starts again.

    Args:
        radius: The radius with the first guess as its `norm_bound`, positive.
    """

    needs_lambda_max: ClassVar[bool] = True
    needs_mean_norm: ClassVar[bool] = True

    radius: NormBoundRadius

    def __post_init__(self) -> None:
        check_kind("radius", self.radius, NormBoundRadius, "a radius with a norm bound")
        require(self.radius, "(0, inf)", norm_bound="1")

    @property
    @override
    def needs_leverage_sum(self) -> bool:
        return self.radius.needs_leverage_sum

    @property
    def constants(self) -> str:
        """The constants of the radius."""
        return self.radius.constants

    def norm_bound(self, statistics: RadiusStatistics) -> float:
        """The bound in use: the guess, doubled until it is no longer refuted."""
        ratio = statistics.norm_lower_bound / self.radius.norm_bound
        doublings = max(0, math.ceil(math.log2(max(ratio, 1.0))))
        return float(self.radius.norm_bound * 2**doublings)

    def update(
        self, statistics: RadiusStatistics, mean_norm: float
    ) -> RadiusStatistics:
        r"""Take the norm of a posterior mean into account.

        Args:
            statistics: Of the same posterior, `lambda_max` measured.
            mean_norm: :math:`\|\mu_t\|`, see `posterior_mean_norm`.

        Returns:
            The statistics with the larger `norm_lower_bound`.
        """
        radius = self.radius
        gain = statistics.log_det_sum_inflated - 2 * math.log(radius.delta)
        W = math.sqrt(radius.noise_variance * gain / statistics.lam)
        lower = (mean_norm - W) / math.sqrt(1 + statistics.lambda_max / 4)
        bound = max(statistics.norm_lower_bound, lower)
        return replace(statistics, norm_lower_bound=bound)

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """The radius's number with the bound in use."""
        return self._current(statistics).paper_value(statistics)

    @override
    def multiplier(self, statistics: RadiusStatistics) -> float:
        return self._current(statistics).multiplier(statistics)

    @override
    def offset(self, statistics: RadiusStatistics) -> float:
        return self._current(statistics).offset(statistics)

    def _current(self, statistics: RadiusStatistics) -> NormBoundRadius:
        """The radius with the bound in use."""
        return replace(self.radius, norm_bound=self.norm_bound(statistics))


@torch.no_grad()
def posterior_mean_norm(posterior: NystromPosterior) -> float:
    r"""RKHS norm of a posterior mean (less the prior mean).

    The mean is :math:`\phi(x)^\top L_B^{-\top} a` in features that are isometric to the
    span of the inducing points, so its norm is :math:`\|L_B^{-\top} a\|`.

    Args:
        posterior: Without batch dimensions.

    Returns:
        The norm. Cost: O(m^2).
    """
    need = "a NystromPosterior; strategies have one as strategy.posterior"
    check_kind("posterior", posterior, NystromPosterior, need)
    a = posterior.weights.unsqueeze(-1)
    theta = torch.linalg.solve_triangular(posterior.chol_inner.mT, a, upper=True)
    return float(theta.norm())
