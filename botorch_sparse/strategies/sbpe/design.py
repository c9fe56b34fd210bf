"""How S-BPE chooses points, and the inducing points that certify them."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from botorch_sparse.acquisition.confidence import ConfidenceRadius, Constants
from botorch_sparse.acquisition.confidence.radius import require, require_radius
from botorch_sparse.acquisition.confidence.sbpe_radius import Bias
from botorch_sparse.argument_checks import check_choice, check_whole
from botorch_sparse.inducing import RecursiveRLSSampler

Exploration = Literal["variance", "random"]
Refresh = Literal["certificate", "every", "exact"]


@dataclass(frozen=True)
class CertificatePolicy:
    r"""When inducing points are chosen again inside a batch, and what a draw may cost.

    Args:
        refresh: `"certificate"`: append when the bound on `r` exceeds one; `"every"`:
            a new draw after every point, as the paper writes, and the worst points
            appended where a draw fails; `"exact"`: every point of the batch is
            inducing (BPE, the exact posterior).
        delta: Failure probability of a whole run.
        num_batches: Batches B that share it.
        sampler: For the draws of `"every"`.
    """

    refresh: Refresh
    delta: float
    num_batches: int
    sampler: RecursiveRLSSampler = field(default_factory=RecursiveRLSSampler)

    def __post_init__(self) -> None:
        check_choice("refresh", self.refresh, get_args(Refresh))

    def draw_delta(self, draw: int) -> float:
        r"""Failure probability of the j-th draw of a batch.

        :math:`\delta_j = 3 \delta / (\pi^2 B j^2)` ([Vakili2022]_ Theorem 5.2): the
        draws of all batches together fail with probability at most
        :math:`\delta / 2`, and the other half is left to the confidence bounds.
        """
        return 3.0 * self.delta / (math.pi**2 * self.num_batches * draw**2)


@dataclass(frozen=True)
class Design:
    """How the points of all batches are chosen, and how wide bounds are.

    See `SBPE` for the attributes; `given_radius` takes the place of the paper's.

    Raises:
        InputDataError: For an unknown exploration or a number out of its range.
    """

    policy: CertificatePolicy
    norm_bound: float
    constants: Constants
    bias: Bias
    mgf_radius: float
    exploration: Exploration = "variance"
    raw_samples: int = 512
    num_restarts: int = 2
    given_radius: ConfidenceRadius | None = None

    def __post_init__(self) -> None:
        check_choice("exploration", self.exploration, get_args(Exploration))
        check_whole("raw_samples", self.raw_samples)
        check_whole("num_restarts", self.num_restarts)
        require(self, "(0, inf)", norm_bound="1")
        inf = "inf for sub-Gaussian noise"
        require(self, "(0, inf]", mgf_radius=inf)
        if self.given_radius is not None:
            require_radius(self.given_radius)

    @property
    def is_random(self) -> bool:
        """Whether points are drawn, and no variance is looked at."""
        return self.exploration == "random"
