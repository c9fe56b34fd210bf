"""What every sampler of inducing points offers."""

from typing import Protocol, runtime_checkable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor


@runtime_checkable
class InducingPointSampler(Protocol):
    """Chooses inducing points among the training points, by index.

    A sampler sees the unique training points with the noise variance that is left after
    repeats were folded (`noise / n_i` for a point seen `n_i` times), so that
    `variance / noise` is the ridge leverage score with repeats counted.
    """

    def __call__(
        self,
        covar_module: Kernel,
        X: Tensor,
        noise: Tensor,
        *,
        generator: torch.Generator,
        variance: Tensor | None = None,
    ) -> Tensor:
        """Draw inducing points.

        Args:
            covar_module: The kernel.
            X: `n x d` unique training points.
            noise: `n` noise variances of the (folded) observations.
            generator: Source of randomness, on any device.
            variance: `n` posterior variances at `X` under the previous inducing set,
                for the samplers that use them.

        Returns:
            Sorted indices into the rows of `X`, at least one when `n > 0`.
        """
        ...


def bernoulli(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Indices of independent Bernoulli draws, `n` probabilities in [0, 1].

    The draw happens on the generator's device, so that a seed gives the same points
    wherever the data live.
    """
    uniform = torch.rand(
        probabilities.shape,
        generator=generator,
        dtype=torch.float64,
        device=generator.device,
    )
    return (uniform.to(probabilities.device) < probabilities).nonzero().squeeze(-1)
