"""The spherical linear kernel of Doumont et al. (arXiv:2512.00170), a peer on boxes.

Inputs are mapped to the unit sphere, and the kernel is linear there, of rank `d + 2`.
A fit by the authors' code is O(n d^2). Here matrices are dense, O(n^3), and the seconds
of a run are not the paper's. GPyTorch has it in its main branch, and in no release.
"""

import math

import torch
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor

# Of lengthscales: BoTorch's dimension-scaled prior, at dimension one.
PRIOR_LOC, PRIOR_SCALE, LEAST_LENGTHSCALE = math.sqrt(2.0), math.sqrt(3.0), 0.025


class SphericalLinearKernel(Kernel):
    r"""Linear in the inverse stereographic projection of scaled inputs.

    With :math:`z_j = (x_j - 1/2) / (a \ell_j)`, where :math:`a^2` is a part, which is
    learned, of :math:`\sum_j (2 \ell_j)^{-2}`, the square of a corner's norm,

    .. math:: k(x, x') = b_0 + b_1 \phi(z)^\top \phi(z'), \quad
        \phi(z) = \frac{(2 z, \|z\|^2 - 1)}{1 + \|z\|^2}, \quad b_0 + b_1 = 1.

    Args:
        dim: `d`, of inputs in the unit cube.
    """

    has_lengthscale = True

    def __init__(self, dim: int) -> None:
        prior = LogNormalPrior(PRIOR_LOC, PRIOR_SCALE)
        super().__init__(
            ard_num_dims=dim,
            lengthscale_prior=prior,
            lengthscale_constraint=GreaterThan(
                LEAST_LENGTHSCALE, transform=None, initial_value=prior.mode
            ),
        )
        for name in ("raw_linear", "raw_radius"):
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(1)))
            self.register_constraint(name, Interval(0.0, 1.0))

    def features(self, X: Tensor) -> Tensor:
        """`... x (d + 2)` features, whose products are the kernel."""
        part = self.raw_radius_constraint.transform(self.raw_radius)
        linear = self.raw_linear_constraint.transform(self.raw_linear)
        corner = (0.5 / self.lengthscale).square().sum(-1, keepdim=True)
        z = (X - 0.5) / (self.lengthscale * (part * corner).sqrt())
        square = z.square().sum(-1, keepdim=True)
        phi = torch.cat([2 * z, square - 1], dim=-1) / (1 + square)
        constant = (1 - linear).sqrt().expand_as(square)
        return torch.cat([linear.sqrt() * phi, constant], dim=-1)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **options: object
    ) -> Tensor:
        """See `Kernel.forward`."""
        first, second = self.features(x1), self.features(x2)
        return (first * second).sum(-1) if diag else first @ second.mT


def spherical_linear_gp(X: Tensor, Y: Tensor) -> SingleTaskGP:
    """The model of the paper, not fitted: `n x d` points of the unit cube."""
    prior = LogNormalPrior(-4.0, 1.0)
    constraint = GreaterThan(1e-4, transform=None, initial_value=prior.mode)
    likelihood = GaussianLikelihood(noise_prior=prior, noise_constraint=constraint)
    kernel = SphericalLinearKernel(X.shape[-1])
    return SingleTaskGP(X, Y, likelihood=likelihood, covar_module=kernel)
