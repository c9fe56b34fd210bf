"""The search that fits a domain."""

import math

from botorch.exceptions import InputDataError
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
)
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.optim.candidate_pool import validate_candidates
from botorch_sparse.posteriors.precision import in_double
from botorch_sparse.strategies.domain import Box
from botorch_sparse.strategies.sbpe.box import BoxSearch
from botorch_sparse.strategies.sbpe.exploration import CertificatePolicy
from botorch_sparse.strategies.sbpe.search import Exploration, Search
from botorch_sparse.strategies.sbpe.table import TableSearch


def make_search(
    domain: Tensor | Box | None,
    covar_module: Kernel | None,
    lam: float,
    policy: CertificatePolicy,
    design: Exploration,
    *,
    raw_samples: int = 512,
    num_restarts: int = 2,
) -> Search:
    """A search over a table or a box.

    Args:
        domain: `A x d` candidates, or a box.
        covar_module: The kernel; None for BoTorch's default, made for the unit cube.
        lam: Noise variance of one observation.
        policy: When inducing points are chosen again.
        design: `"variance"` or `"random"`.
        raw_samples: See `BoxSearch`.
        num_restarts: See `BoxSearch`.

    Raises:
        InputDataError: For an unknown design or a number out of its range.
    """
    if not 0 < lam < math.inf:
        raise InputDataError(
            f"Got lam={lam}; need a positive noise variance, such as noise_std ** 2."
        )
    if design not in ("variance", "random"):
        raise InputDataError(
            f"Got exploration={design!r}; need 'variance' or 'random'."
        )
    if raw_samples < 1 or num_restarts < 1:
        raise InputDataError(
            f"Got raw_samples={raw_samples} and num_restarts={num_restarts}; need at "
            "least 1 of each."
        )
    points = domain.bounds if isinstance(domain, Box) else domain
    if points is None:
        raise InputDataError("Got no domain; need candidates or bounds.")
    if covar_module is None:
        covar_module = get_covar_module_with_dim_scaled_prior(points.shape[-1])
        covar_module = covar_module.to(points).requires_grad_(False)
    kernel = in_double(covar_module, points.dtype)
    if isinstance(domain, Box):
        return BoxSearch(
            domain,
            kernel,
            lam,
            policy,
            design,
            raw_samples=raw_samples,
            num_restarts=num_restarts,
        )
    validate_candidates(points)
    return TableSearch(points, kernel, lam, policy, design)
