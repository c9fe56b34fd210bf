"""The covariance of values and noisy observations of one process, as a kernel."""

import torch
from gpytorch.kernels import Kernel
from torch import Tensor


class ObservedKernel(Kernel):
    r"""A kernel, and the noise of those points that are observations.

    .. math::
        \tilde k(z, z') = k(x, x') + d_i \, [z \text{ and } z' \text{ are observation }
        i]

    With noisy observations of `U` as inducing points, the residual of Nystrom features
    is the posterior covariance of values given these observations,
    :math:`k(x, x') - k_U(x)^\top (K_{UU} + D)^{-1} k_U(x')`.

    Args:
        prior: The kernel `k`, unbatched. It has all hyperparameters.
    """

    def __init__(self, prior: Kernel) -> None:
        super().__init__()
        self.prior = prior

    @staticmethod
    def values(X: Tensor) -> Tensor:
        """The process itself at `n x d` points, as inputs `n x (d + 2)`."""
        return torch.nn.functional.pad(X, (0, 2))

    @staticmethod
    def observations(X: Tensor, noise: Tensor) -> Tensor:
        """Observations with `n` noise variances, as inputs `n x (d + 2)`."""
        number = torch.arange(1, len(X) + 1, dtype=X.dtype, device=X.device)
        return torch.cat([X, noise.unsqueeze(-1), number.unsqueeze(-1)], -1)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object
    ) -> Tensor:
        """The matrix, or its diagonal."""
        noise, first, second = x1[..., -2], x1[..., -1], x2[..., -1]
        K = self.prior(x1[..., :-2], x2[..., :-2], diag=diag)
        if diag:
            return K + noise * (first == second)
        if not bool(first.any()):  # values alone, of which there may be many
            return K.to_dense()
        is_same = first.unsqueeze(-1) == second.unsqueeze(-2)
        return K.to_dense() + noise.unsqueeze(-1) * is_same
