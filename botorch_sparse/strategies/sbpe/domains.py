"""The search that fits a domain, and its radius."""

import math
from dataclasses import dataclass

from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import ConfidenceRadius, Constants
from botorch_sparse.acquisition.confidence.sbpe import Bias
from botorch_sparse.kernels import in_double
from botorch_sparse.optim.points import validate_candidates
from botorch_sparse.strategies.box import Box
from botorch_sparse.strategies.sbpe.box import BoxSearch
from botorch_sparse.strategies.sbpe.exploration import CertificatePolicy
from botorch_sparse.strategies.sbpe.search import Exploration, Search
from botorch_sparse.strategies.sbpe.table import InitialDraw, TableSearch
from botorch_sparse.strategies.sbpe.units import UNITS_OF_Y, Units


@dataclass(frozen=True, eq=False)
class SearchPrior:
    """What a search and its radius start from.

    Attributes:
        covar_module: The kernel of points as they come.
        lam: The regularizer, as a noise variance, in `units`.
        noise_variance: The square of R, in `units`.
        units: Of the feedback.
        discretization: See `SBPEContinuousRadius`.
    """

    covar_module: Kernel
    lam: float
    noise_variance: float
    units: Units = UNITS_OF_Y
    discretization: float = 1.0


@dataclass(frozen=True, eq=False)
class SearchSetup:
    """All of a search but its prior; see `SBPE` for what the attributes are."""

    domain: Tensor | Box
    policy: CertificatePolicy
    design: Exploration
    raw_samples: int
    num_restarts: int
    norm_bound: float
    constants: Constants
    bias: Bias
    mgf_radius: float
    discretization: float
    given_radius: ConfidenceRadius | None

    def search(self, prior: SearchPrior) -> Search:
        """The search with a prior."""
        return make_search(
            self.domain,
            prior.covar_module,
            prior.lam,
            self.policy,
            self.design,
            raw_samples=self.raw_samples,
            num_restarts=self.num_restarts,
            units=prior.units,
        )

    def radius(self, search: Search, prior: SearchPrior) -> ConfidenceRadius:
        """Its radius: the one that was given, or the paper's."""
        if self.given_radius is not None:
            return self.given_radius
        return search.radius(
            num_intervals=4.0 * self.policy.num_batches,
            discretization=max(self.discretization, prior.discretization),
            norm_bound=self.norm_bound,
            noise_variance=prior.noise_variance,
            delta=self.policy.delta,
            constants=self.constants,
            bias=self.bias,
            mgf_radius=self.mgf_radius * prior.units.scale,
        )

    def initial_draw(self, prior: SearchPrior) -> Search:
        """Points all over the domain, which look at no kernel."""
        kernel, lam = prior.covar_module, prior.lam
        if isinstance(self.domain, Box):
            return make_search(
                self.domain,
                kernel,
                lam,
                self.policy,
                "random",
                raw_samples=self.raw_samples,
                num_restarts=self.num_restarts,
            )
        return InitialDraw(self.domain, kernel, lam, self.policy)


def make_search(
    domain: Tensor | Box | None,
    covar_module: Kernel,
    lam: float,
    policy: CertificatePolicy,
    design: Exploration,
    *,
    raw_samples: int = 512,
    num_restarts: int = 2,
    units: Units = UNITS_OF_Y,
) -> Search:
    """A search over a table or a box.

    Args:
        domain: `A x d` candidates, or a box.
        covar_module: The kernel.
        lam: Noise variance of one observation.
        policy: When inducing points are chosen again.
        design: `"variance"` or `"random"`.
        raw_samples: See `BoxSearch`.
        num_restarts: See `BoxSearch`.
        units: See `Search`.

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
            units=units,
        )
    validate_candidates(points)
    return TableSearch(points, kernel, lam, policy, design, units)
