r"""Bottom-up leverage score sampling.

References:
    .. [Rudi2018]
        A. Rudi, D. Calandriello, L. Carratino and L. Rosasco. On fast leverage score
        sampling and optimal learning. NeurIPS 2018. Algorithm 2 (BLESS-R).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import check_finite, check_number
from botorch_sparse.inducing.sampler import (
    bernoulli,
    draw,
    validate_cap,
    variance_given,
)
from botorch_sparse.kernels import prior_variance


@dataclass(frozen=True)
class BLESSSampler:
    r"""Leverage scores on a decreasing path of regularizers [Rudi2018]_.

    With noise :math:`\mu D` for :math:`\mu = n \max_i k_{ii} / d_i` one point is
    enough; each level divides :math:`\mu` by `step`, down to one. Level `h` looks at
    candidates `U` drawn uniformly with probability :math:`\beta`, estimates their
    leverage scores from the points `(J, p)` of the level before, and keeps candidates
    by rejection, so that each point is drawn independently with probability `p`:

    .. math::
        \beta = \min(1, \bar q \max_i k_{ii} / (\mu d_i)), \quad
        \tilde \ell_i = \big(k_{ii} - k_{iJ} (K_{JJ} + \mu D_J P)^{-1} k_{Ji} \big)
            / (\mu d_i), \quad
        p_i = \min(1, \bar q \, \tilde \ell_i).

    This is the variant without replacement (BLESS-R): its points are distinct. Early
    levels see a few points only; use it for warm starts from large data with little
    noise to spare, and `RecursiveRLSSampler` elsewhere. Cost: O(n m^2) for each of the
    last levels, those with `beta = 1`, and less before.

    Args:
        oversampling: The factor `q-bar`, positive. The theory asks for a multiple of
            `log(n / delta)`.
        max_inducing_points: Cap on the number of points, on each level; above it as
            many are drawn without replacement in proportion to `p_i`, which is not
            the probability of inclusion then. None for no cap.
        step: Ratio of successive regularizers, above one.
    """

    uses_variance: ClassVar[bool] = False
    returns_valid_indices: ClassVar[bool] = True

    oversampling: float = 4.0
    max_inducing_points: int | None = 1000
    step: float = 2.0

    def __post_init__(self) -> None:
        check_number(
            "oversampling", self.oversampling, "(0, inf)", "need oversampling > 0."
        )
        check_number("step", self.step, "(1, inf)", "need step > 1.")
        validate_cap(self.max_inducing_points)

    def __call__(
        self,
        covar_module: Kernel,
        X: Tensor,
        noise: Tensor,
        *,
        generator: torch.Generator,
        variance: Tensor | None = None,
    ) -> Tensor:
        """Draw inducing points; see `InducingPointSampler`. `variance` is not used."""
        check_finite(X=X, noise=noise)
        return self.sample(covar_module, X, noise, generator=generator)[0]

    @torch.no_grad()
    def sample(
        self,
        covar_module: Kernel,
        X: Tensor,
        noise: Tensor,
        *,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Sorted indices, and the probabilities that the draw gave them.

        Given the levels before, points are drawn independently. Weighting point `i` by
        `1 / p_i` makes sums over the sample unbiased, but for rare draws of no point,
        and as long as the cap is not reached. Above it points are left out, `p` is what
        it was before that, and the sums come out too small.
        """
        if len(noise) == 0:
            return torch.arange(0, device=X.device), noise
        scale = prior_variance(covar_module, X) / noise
        index, p = scale.argmax().unsqueeze(0), torch.ones_like(noise[:1])
        for mu in self._path(len(noise) * scale.max().item()):
            beta = (self.oversampling * scale.max() / mu).clamp_max(1.0)
            U = bernoulli(beta.expand_as(noise), generator)
            if len(U) == 0:
                continue
            given = mu * noise[index] * p
            variance = variance_given(covar_module, X[U], X[index], given)
            p_U = torch.minimum(self.oversampling * variance / (mu * noise[U]), beta)
            kept = draw(p_U / beta, self.max_inducing_points, generator)
            index, p = U[kept], p_U[kept]
        return index, p

    def _path(self, start: float) -> Iterator[float]:
        """Regularizers after `start`, down to one."""
        while start > 1:
            start = max(1.0, start / self.step)
            yield start
