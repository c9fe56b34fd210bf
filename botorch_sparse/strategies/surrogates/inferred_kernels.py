"""The kernels and the likelihood that are inferred where no kernel is given."""

import math
from collections.abc import Sequence

import torch
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.priors import LogNormalPrior, NormalPrior
from torch import Tensor

from botorch_sparse.kernels import TanimotoKernel

# Prior spread of log-lengthscales where data are few; the least lengthscale, BoTorch's.
FEW_DATA_SIGMA, LEAST_LENGTHSCALE = 1.2, 0.025


def inferred_likelihood(
    least_noise: float, *, has_prior: bool = True
) -> GaussianLikelihood:
    """BoTorch's likelihood, with a bound of the noise variance of its own.

    Or one without a prior of the noise, from the same start.
    """
    likelihood = get_gaussian_likelihood_with_lognormal_prior()
    start = float(likelihood.noise.detach())
    bound = GreaterThan(least_noise, transform=None, initial_value=start)
    if not has_prior:
        return GaussianLikelihood(noise_constraint=bound)
    likelihood.noise_covar.register_constraint("raw_noise", bound)
    return likelihood


def matern_kernel(dim: int, reach: float = 1.0) -> Kernel:
    """The Matern-5/2 kernel with BoTorch's priors, for inputs in [0, 1]^d.

    Or for inputs in a part of that, whose sides are `reach`: the same function of it.
    """
    if reach == 1.0:
        return get_covar_module_with_dim_scaled_prior(dim, use_rbf_kernel=False)
    return _matern(dim, math.sqrt(3.0), reach)


def few_data_kernel(dim: int) -> Kernel:
    r"""The Matern-5/2 kernel for few data, for inputs in [0, 1]^d.

    The prior of a lengthscale is log-normal with BoTorch's mode,
    :math:`e^{\sqrt 2 - 3} \sqrt d` [Hvarfner2024]_, and :math:`\sigma = 1.2` in place
    of :math:`\sqrt 3`: by that long tail most features say nothing to some ten points.
    It was chosen on other seeds than those that `benchmarks.laboratory` prints.
    """
    return _matern(dim, FEW_DATA_SIGMA)


def _matern(dim: int, sigma: float, reach: float = 1.0) -> Kernel:
    """By the mode of BoTorch's prior and its bound, both times `reach`."""
    mode = reach * math.exp(math.sqrt(2.0) - 3.0) * math.sqrt(dim)
    prior = LogNormalPrior(math.log(mode) + sigma**2, sigma)
    least = GreaterThan(reach * LEAST_LENGTHSCALE, transform=None, initial_value=mode)
    return MaternKernel(
        2.5, ard_num_dims=dim, lengthscale_prior=prior, lengthscale_constraint=least
    )


def fingerprint_kernel(blocks: Sequence[Tensor], dim: int) -> Kernel:
    """The kernel of molecules: their fingerprints' product, and one of other features.

    Args:
        blocks: Columns of each fingerprint.
        dim: Number of all columns; the others are in [0, 1].
    """
    columns = torch.cat([*blocks])
    is_other = torch.ones(dim, dtype=torch.bool).index_fill_(0, columns, False)
    others = is_other.nonzero().squeeze(-1).tolist()
    tanimoto = TanimotoKernel(
        [len(block) for block in blocks],
        active_dims=columns.tolist() if others else None,
    )
    if tanimoto.blocks is not None:
        # Some ten results say little of which fingerprints matter.
        prior = NormalPrior(1.0, 0.5)
        tanimoto.register_prior("weight_prior", prior, _weight_of, _set_weight)
    kernel: Kernel = tanimoto
    if others:
        kernel = tanimoto * get_covar_module_with_dim_scaled_prior(
            len(others), use_rbf_kernel=False, active_dims=others
        )
    scaled = ScaleKernel(kernel, outputscale_prior=LogNormalPrior(0.0, 1.0))
    scaled.outputscale = 1.0
    return scaled


def _weight_of(kernel: TanimotoKernel) -> Tensor:
    return kernel.weight


def _set_weight(kernel: TanimotoKernel, drawn: Tensor) -> None:
    kernel.weight = drawn.clamp(0.0, 1.0)
