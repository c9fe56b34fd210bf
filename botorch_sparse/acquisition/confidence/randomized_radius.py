r"""Radii with a random factor, drawn anew for each batch.

References:
    .. [Hu2025]
        B. Hu, Z. He and D. J. Sutherland. Efficient kernelized bandit algorithms via
        exploration distributions. arXiv 2506.10091.
    .. [Takeno2023]
        S. Takeno, Y. Inatsu and M. Karasuyama. Randomized Gaussian process upper
        confidence bound with tighter Bayesian regret bounds. ICML 2023.
"""

import hashlib
import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal, get_args

import torch
from botorch.exceptions import UnsupportedError
from typing_extensions import override

from botorch_sparse.acquisition.confidence.radius import (
    ConfidenceRadius,
    RadiusStatistics,
    VarianceRadius,
    require,
    require_integers,
    require_radius,
)
from botorch_sparse.argument_checks import as_seed, check_choice

Exploration = Literal["exponential", "half-normal"]


@dataclass(frozen=True)
class RandomizedRadius(ConfidenceRadius):
    r"""A radius times a draw from an exploration distribution [Hu2025]_.

    The width is :math:`Z \beta^{1/2} \sigma` with one draw Z for each state of
    knowledge, so for each batch. Z = 1 is the radius itself; a Z of smaller mean
    explores less on most rounds and at times more, which is often better in practice.
    Regret bounds need Z to exceed 1 with a probability that does not vanish, and light
    tails: both distributions here have them. They are ours: of the paper only the
    scheme is taken.

    .. math::
        \text{exponential:}\quad Z = s + m E,\ E \sim \mathrm{Exp}(1); \qquad
        \text{half-normal:}\quad Z = s + m \sqrt{\pi/2}\, |N|,\ N \sim N(0, 1),

    of mean s + m. A smaller Z than 1 gives up the interval: the draw is for choosing
    points. Stopping rules take `interval_multiplier`, which as `paper_value` and
    `offset` is the radius's own.

    The draw is a function of the seed and the number of evaluations alone: asking again
    gives the same, and so does a run that is resumed.

    *Posterior*: as for the radius.

    Args:
        radius: The radius.
        seed: A seed, or a generator from which one is drawn.
        distribution: `"exponential"` or `"half-normal"`.
        shift: The s, non-negative.
        mean_excess: The m, positive.
    """

    radius: ConfidenceRadius
    seed: int | torch.Generator = 0
    _: KW_ONLY
    distribution: Exploration = "exponential"
    shift: float = 0.0
    mean_excess: float = 0.5

    def __post_init__(self) -> None:
        require_radius(self.radius)
        require(self, "[0, inf)", shift="0")
        require(self, "(0, inf)", mean_excess="0.5")
        check_choice("distribution", self.distribution, get_args(Exploration))
        object.__setattr__(self, "seed", _as_seed(self.seed))

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """The radius's own number, without the draw."""
        return self.radius.paper_value(statistics)

    def multiplier(self, statistics: RadiusStatistics) -> float:
        """The radius's factor times the draw."""
        return self.draw(statistics) * self.radius.multiplier(statistics)

    def interval_multiplier(self, statistics: RadiusStatistics) -> float:
        """The radius's own, without the draw."""
        return self.radius.interval_multiplier(statistics)

    @override
    def lengthscale_factor(self, statistics: RadiusStatistics) -> float:
        return self.radius.lengthscale_factor(statistics)

    def in_dimension(self, dim: int) -> "RandomizedRadius":
        """The same of a radius for points of so many features."""
        return replace(self, radius=self.radius.in_dimension(dim))

    @override
    def offset(self, statistics: RadiusStatistics) -> float:
        return self.radius.offset(statistics)

    @property
    @override
    def needs_leverage_sum(self) -> bool:
        return self.radius.needs_leverage_sum

    @property
    @override
    def needs_lambda_max(self) -> bool:  # type: ignore[override]
        return self.radius.needs_lambda_max

    @property
    @override
    def needs_mean_norm(self) -> bool:  # type: ignore[override]
        return self.radius.needs_mean_norm

    @override
    def update(
        self, statistics: RadiusStatistics, mean_norm: float
    ) -> RadiusStatistics:
        return self.radius.update(statistics, mean_norm)

    def draw(self, statistics: RadiusStatistics) -> float:
        """The Z of these statistics."""
        generator = _generator(self.seed, statistics)
        value = torch.empty((), dtype=torch.float64)
        if self.distribution == "exponential":
            excess = float(value.exponential_(generator=generator))
        else:
            normal = float(value.normal_(generator=generator))
            excess = math.sqrt(math.pi / 2) * abs(normal)
        return self.shift + self.mean_excess * excess


@dataclass(frozen=True)
class ShiftedExponentialRadius(VarianceRadius):
    r"""The random beta of IRGP-UCB [Takeno2023]_ on a finite domain.

    .. math:: \beta = 2 \log(|X| / 2) + 2 E, \qquad E \sim \mathrm{Exp}(1)

    drawn once for each batch; the width is :math:`\beta^{1/2} \sigma`. It does not grow
    with the number of evaluations.

    *Posterior*: the exact one of a function drawn from the prior. The guarantee is for
    the expected regret, point by point; no interval holds at all points at once.

    Args:
        num_candidates: Size :math:`|X|` of the domain, at least 1; below 2 the shift
            is 0.
        seed: A seed, or a generator from which one is drawn.
    """

    num_candidates: int
    seed: int | torch.Generator = 0

    def __post_init__(self) -> None:
        require_integers(self, num_candidates="len(candidates)")
        object.__setattr__(self, "seed", _as_seed(self.seed))

    def paper_value(self, statistics: RadiusStatistics) -> float:
        """The draw of these statistics."""
        value = torch.empty((), dtype=torch.float64)
        value.exponential_(generator=_generator(self.seed, statistics))
        return 2 * math.log(max(self.num_candidates / 2, 1.0)) + 2 * float(value)

    def interval_multiplier(self, statistics: RadiusStatistics) -> float:
        """There is none.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "ShiftedExponentialRadius has no interval to stop by; use "
            "SrinivasFiniteRadius, or a number of evaluations."
        )


def _as_seed(seed: int | torch.Generator) -> int:
    """A seed; one number is drawn from a generator."""
    if isinstance(seed, torch.Generator):
        device = seed.device
        return int(torch.randint(2**62, (), generator=seed, device=device))
    return as_seed(seed)


def _generator(
    seed: int | torch.Generator, statistics: RadiusStatistics
) -> torch.Generator:
    """A generator for one number of evaluations; hashed, as near seeds draw alike."""
    key = f"{seed},{statistics.num_evaluations}".encode()
    digest = hashlib.blake2b(key, digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))
