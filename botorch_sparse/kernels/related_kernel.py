"""The kernel of a function that is in part a sum of known ones."""

from typing import Any

import torch
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor
from typing_extensions import override


class InnerProductKernel(Kernel):
    """The inner product, without parameters; `LinearKernel` can't be pickled."""

    @override
    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any
    ) -> Tensor:
        return (x1 * x2).sum(-1) if diag else x1 @ x2.mT


class RelatedKernel(AdditiveKernel):
    r"""The kernel of features `u` and, after them, values `m` of known functions.

    That of the autoregressive model of [KennedyOHagan2000]_,

    .. math:: k(x, x') = s \, k_\delta(u, u') + \sum_j v_j \, m_j \, m_j',

    with BoTorch's RBF kernel and its priors for :math:`k_\delta`. All scales `s` and
    `v` have a log-normal prior, and start at 1. A draw is one of the first part and a
    sum of the known functions, whose factors have the variances `v`.

    Args:
        num: The number `t` of known functions.
        dim: The number of all inputs.
    """

    def __init__(self, num: int, dim: int) -> None:
        own, known = [*range(dim - num)], range(dim - num, dim)
        parts = [get_covar_module_with_dim_scaled_prior(len(own), active_dims=own)]
        parts += [InnerProductKernel(active_dims=[i]) for i in known]
        scaled = [
            ScaleKernel(part, outputscale_prior=LogNormalPrior(0.0, 1.0))
            for part in parts
        ]
        for kernel in scaled:
            kernel.outputscale = 1.0
        super().__init__(*scaled)

    @property
    def stationary(self) -> Kernel:
        """The first part."""
        return self.kernels[0]

    @property
    def known(self) -> list[ScaleKernel]:
        """The parts of the `t` known functions, scaled by the variances `v`."""
        return [*self.kernels[1:]]

    def slope_deviations(self) -> Tensor:
        """Standard deviations of the `t` factors, float64, without gradients."""
        scales = [part.outputscale.detach().double() for part in self.known]
        return torch.stack(scales).sqrt()
