r"""A radius for a kernel whose lengthscales and norm bound are not known.

References:
    .. [Berkenkamp2019]
        F. Berkenkamp, A. P. Schoellig and A. Krause. No-regret Bayesian optimization
        with unknown hyperparameters. JMLR 20, 2019 (A-GP-UCB).
    .. [Bull2011]
        A. D. Bull. Convergence rates of efficient global optimization algorithms. JMLR
        12, 2011. Lemma 4.
"""

import math
from dataclasses import KW_ONLY, dataclass, replace

from botorch.exceptions import InputDataError

from botorch_sparse.acquisition.confidence.bbkb_radius import BBKBRadius
from botorch_sparse.acquisition.confidence.radius import (
    ConfidenceRadius,
    Constants,
    RadiusStatistics,
    require,
    require_integers,
)
from botorch_sparse.argument_checks import check_choice

STEPS_PER_DOUBLING = 4  # of g, a step function
NO_REGRET = 0.5


@dataclass(frozen=True)
class UnknownHyperparameters(ConfidenceRadius):
    r"""Shorter lengthscales and a larger norm bound with time [Berkenkamp2019]_.

    A lengthscale that is too long, fitted to data from a smooth corner, leaves the
    function outside of what the kernel believes in: the interval misses the best peak
    for ever. Here the kernel's lengthscales :math:`\theta_0` and the norm bound
    :math:`B_0` are guesses. After t evaluations, in d dimensions,

    .. math::
        \theta_t = \frac{\theta_0}{g(t)}, \qquad
        B_t = b(t)\, g(t)^{d/2} B_0, \qquad
        g(t)^d = \max(1, t/t_0)^{\text{growth}}, \qquad
        b(t) = \max(1, t/t_0)^{\text{norm\_growth}},

    with g rounded down to a power of :math:`2^{1/4}`, and the radius is
    `BBKBRadius` for :math:`B_t` and the posterior of the shorter kernel. The power d/2
    pays for the change of the kernel: where its spectral density falls along rays
    (Gaussian, Matern, rational quadratic; sums and ARD too),
    :math:`\|f\|_{\theta/g}^2 \le g^d \|f\|_\theta^2` ([Bull2011]_ Lemma 4), of squared
    norms.

    *Theorem* (after [Berkenkamp2019]_). The proof for steps is in
    docs/explanation/unknown_hyperparameters.md. Let
    :math:`\|f\|_{\theta^*} \le B^*` for some :math:`\theta^* \le \theta_0`, neither
    known. From the first t on with :math:`g(t) \ge \theta_0/\theta^*` and
    :math:`b(t) (\theta_0/\theta^*)^{d/2} B_0 \ge B^*`, the interval with theory
    constants holds with probability :math:`1 - \delta`. With :math:`\gamma_T` the
    information gain under :math:`\theta_0` and logarithms left out, the regret beyond
    the first such t is at most of the order of

    .. math:: \sqrt T\, g(T)^d \bigl( b(T) \sqrt{\gamma_T} + \gamma_T \bigr).

    That is no regret for Gaussian kernels, in any dimension, for `growth + norm_growth`
    below 1/2; and for Matern kernels, where :math:`\gamma_T = T^c` with
    :math:`c = d/(2\nu + d)`, for `growth` below :math:`1/2 - c` and
    `growth + norm_growth` below :math:`(1 - c)/2`. The defaults do for Matern-5/2 up to
    two dimensions; from five on even a known kernel has no such rate.

    *What it costs*: the factor :math:`g(T)^d b(T)` of regret where the guesses were
    good. In many dimensions g grows slowly (:math:`t^{\text{growth}/d}`): more volume
    cannot be searched without regret. Take `FixedBeta` or `BBKBRadius` for a kernel
    that is known.

    *What it does not cover*: lengthscales that are fitted again to the data. The
    theorem is about one :math:`\theta_0`, given, or fitted once to data that are then
    set aside. With refits the schedule is the paper's practical advice and no theorem.

    *Posterior*: as for `BBKBRadius`, with the kernel shrunk by `lengthscale_factor`
    and statistics under that kernel. A step k of g has the share
    :math:`\delta/((k + 1)(k + 2))` of the failure probability. Strategies do all this;
    when g takes a step they embed the candidates anew, O(A m^2), which happens
    :math:`O(\log g(T))` times: at most
    :math:`1 + 4\,(\text{growth}/d) \log_2(T/t_0)`.

    Args:
        norm_bound: :math:`B_0`, the first guess of the norm, positive, in units of
            Y (of standardized outcomes, where the kernel is inferred).
        noise_variance: Of the feedback, in squared units of Y, non-negative; None for
            `lam`, the model's own.
        delta: Probability of failure, in (0, 1).
        growth: How fast the volume of a lengthscale shrinks, in [0, 1/2); 0 for known
            lengthscales.
        norm_growth: How fast the norm bound grows beyond that, non-negative, with
            `growth` below 1/2 in sum; 0 for a bound known at :math:`\theta_0`.
        start: :math:`t_0`, evaluations before anything grows, at least 1.
        dim: d, the number of features; None to be told by the strategy
            (`in_dimension`).
        constants: `"practical"` or `"theory"`, see `BBKBRadius`.

    Example:
        >>> radius = UnknownHyperparameters(growth=0.25, dim=1)
        >>> statistics = RadiusStatistics(lam=0.01, num_evaluations=160)
        >>> radius.lengthscale_factor(statistics)  # (160 / 10) ** -0.25
        0.5
    """

    norm_bound: float = 1.0
    noise_variance: float | None = None
    delta: float = 1e-3
    _: KW_ONLY
    growth: float = 0.2
    norm_growth: float = 0.1
    start: int = 10
    dim: int | None = None
    constants: Constants = "practical"

    def __post_init__(self) -> None:
        require(self, "(0, inf)", norm_bound="1")
        require(self, "(0, 1)", delta="1 / num_evaluations")
        require(self, "[0, inf)", growth="0.2", norm_growth="0.1")
        require_integers(self, start="10")
        if self.noise_variance is not None:
            require(self, "[0, inf)", noise_variance="None for the model's own")
        if self.dim is not None:
            require_integers(self, dim="X.shape[-1]")
        check_choice("constants", self.constants, ("practical", "theory"))
        if not self.growth + self.norm_growth < NO_REGRET:
            raise InputDataError(
                f"Got growth={self.growth} and norm_growth={self.norm_growth}; their "
                f"sum must be below {NO_REGRET}, from where on regret may be linear. "
                "Try growth=0.2 and norm_growth=0.1."
            )

    def in_dimension(self, dim: int) -> "UnknownHyperparameters":
        """This radius for `dim` features, unless it knows its dimension already."""
        return self if self.dim is not None else replace(self, dim=dim)

    def lengthscale_factor(self, statistics: RadiusStatistics) -> float:
        """What multiplies the kernel's lengthscales now, 1 / g(t), in (0, 1].

        Raises:
            InputDataError: If the dimension was never set.
        """
        return float(2 ** (-self._step(statistics) / STEPS_PER_DOUBLING))

    def current_norm_bound(self, statistics: RadiusStatistics) -> float:
        """The bound in use under the shorter lengthscales, :math:`B_t`."""
        volume = self.lengthscale_factor(statistics) ** self._known_dim()
        b = self._elapsed(statistics) ** self.norm_growth
        return b * self.norm_bound / math.sqrt(volume)

    def paper_value(self, statistics: RadiusStatistics) -> float:
        r"""By `BBKBRadius` with :math:`B_t`; statistics of the shorter kernel."""
        return self._current(statistics).paper_value(statistics)

    def _current(self, statistics: RadiusStatistics) -> BBKBRadius:
        """The radius of these statistics."""
        step, noise = self._step(statistics), self.noise_variance
        return BBKBRadius(
            norm_bound=self.current_norm_bound(statistics),
            noise_variance=statistics.lam if noise is None else noise,
            delta=self.delta / ((step + 1) * (step + 2)),  # sums to delta
            constants=self.constants,
        )

    def _step(self, statistics: RadiusStatistics) -> int:
        """The step k of g, whose value is `2 ** (k / STEPS_PER_DOUBLING)`."""
        rate = STEPS_PER_DOUBLING * self.growth / self._known_dim()
        steps = rate * math.log2(self._elapsed(statistics))
        return math.floor(steps * (1 + 1e-12))  # a whole number, but for its rounding

    def _elapsed(self, statistics: RadiusStatistics) -> float:
        """Time in units of the first one, at least 1."""
        return max(1.0, statistics.num_evaluations / self.start)

    def _known_dim(self) -> int:
        """The dimension, if it was set."""
        if self.dim is None:
            raise InputDataError(
                "Got UnknownHyperparameters without dim; need the number of features. "
                "Pass dim=X.shape[-1], or use radius.in_dimension(X.shape[-1])."
            )
        return self.dim
