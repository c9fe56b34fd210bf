r"""Posterior variance sampling.

References:
    [Calandriello2019]_ Algorithm 1, [Calandriello2020]_ Algorithm 1, lines 10-15.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import check_finite, check_number
from botorch_sparse.inducing.sampler import bernoulli


@dataclass(frozen=True)
class PosteriorVarianceSampler:
    r"""Sampling in proportion to the previous posterior's variance [Calandriello2020]_.

    Each unique point is drawn independently with probability

    .. math:: p_i = \min(1, \bar q \, \mathrm{var}(x_i) / d_i)
        = \min(1, \bar q \, n_i \, \mathrm{var}(x_i) / \lambda),

    the ridge leverage score times the oversampling. An empty draw falls back to the
    point of largest `p_i` before the cut at one (ties: the lowest index). It needs a
    previous posterior; use `RecursiveRLSSampler` where there is none. Cost: O(n).

    Args:
        oversampling: The papers' q-bar, positive. Variances are proved to be within a
            factor 3 of the exact ones with `72 log(4T / delta)` ([Calandriello2019]_,
            Theorem 1 with epsilon = 1/2), and the regret of BBKB is bounded with
            `72 C log(4t / delta)` for a ratio threshold `C` ([Calandriello2020]_,
            Theorem 2; its Theorem 1 prints 8, which its proof does not give). The
            authors use 2. `BBKB(constants="theory")` sets it.
    """

    uses_variance: ClassVar[bool] = True
    returns_valid_indices: ClassVar[bool] = True

    oversampling: float = 2.0

    def __post_init__(self) -> None:
        need = "it must be positive, and at least 1 to be of use."
        check_number("oversampling", self.oversampling, "(0, inf)", need)

    def __call__(
        self,
        covar_module: Kernel,
        X: Tensor,
        noise: Tensor,
        *,
        generator: torch.Generator,
        variance: Tensor | None = None,
    ) -> Tensor:
        """Draw inducing points; see `InducingPointSampler`.

        Raises:
            InputDataError: If `variance` is missing, or something is not finite.
        """
        if variance is None:
            raise InputDataError(
                "PosteriorVarianceSampler needs the variances of a previous posterior "
                "at the training points, and got none. Start with RecursiveRLSSampler."
            )
        check_finite(X=X, noise=noise, variance=variance)
        return self.draw(variance / noise, generator)

    def draw(self, leverage: Tensor, generator: torch.Generator) -> Tensor:
        """Sorted indices, given `n` ridge leverage scores, on any device."""
        index = bernoulli((self.oversampling * leverage).clamp_max(1.0), generator)
        if len(index) == 0 and len(leverage) > 0:
            return leverage.argmax().unsqueeze(0)
        return index
