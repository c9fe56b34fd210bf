"""The kernel of a function that is in part a sum of known ones."""

from typing import Any

from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor
from typing_extensions import override


class ProductKernel(Kernel):
    """The inner product, without parameters; `LinearKernel` can't be pickled."""

    @override
    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor:
        return (x1 * x2).sum(-1) if diag else x1 @ x2.mT


class RelatedKernel(AdditiveKernel):
    """A scaled stationary kernel, and a scaled `ProductKernel` of each last input."""


def related_kernel(num: int, dim: int) -> Kernel:
    """The kernel of `dim` inputs, of which the last `num` are means of campaigns."""
    own = [*range(dim - num)]
    parts = [get_covar_module_with_dim_scaled_prior(len(own), active_dims=own)]
    parts += [ProductKernel(active_dims=[i]) for i in range(dim - num, dim)]
    scaled = [ScaleKernel(k, outputscale_prior=LogNormalPrior(0.0, 1.0)) for k in parts]
    for kernel in scaled:
        kernel.outputscale = 1.0
    return RelatedKernel(*scaled)
