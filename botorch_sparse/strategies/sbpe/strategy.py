r"""Sparse batched pure exploration.

Where the equations of [Vakili2022]_ are:

=====================================  ==============================================
Eq. 4, the posterior                   `posteriors/nystrom.py`; inside a batch, with
                                       variances alone, `posteriors/growing.py`
Theorems 3.5, E.2, Corollary 3.7       `acquisition/confidence/sbpe.py`
Algorithm 1, line 3, the schedule      `schedule.py`
lines 6-8, inducing points, variance   `exploration.py`
lines 11-14, batches and feedback      `rounds.py`, their record `history.py`
line 16, the bounds                    `bounds.py`
line 17, Eq. 13, on a table            `table.py`
line 17, Eq. 15, on a box              `box.py`, what is left `region.py`
Section 4, Theorems 4.1 and 4.2        `regression.py`
=====================================  ==============================================

`search.py` has what a table and a box share, `domains.py` picks one.
"""

import math
from collections.abc import Sequence
from typing import Any, Unpack

from botorch.exceptions import UnsupportedError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    ConfidenceRadius,
    Constants,
)
from botorch_sparse.acquisition.confidence.sbpe import Bias
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.domain import DomainOptions, one_domain
from botorch_sparse.strategies.sbpe.box import BoxSearch
from botorch_sparse.strategies.sbpe.domains import make_search
from botorch_sparse.strategies.sbpe.exploration import CertificatePolicy, Refresh
from botorch_sparse.strategies.sbpe.region import SurvivingRegion
from botorch_sparse.strategies.sbpe.rounds import RoundStrategy
from botorch_sparse.strategies.sbpe.schedule import (
    Schedule,
    batch_lengths,
    max_num_batches,
)
from botorch_sparse.strategies.sbpe.search import Exploration
from botorch_sparse.strategies.sbpe.table import TableSearch


class SBPE(RoundStrategy):
    r"""Order-optimal regret with O(log log N) rounds of feedback [Vakili2022]_.

    Algorithm 1: the horizon is split into few batches. Inside a batch the points are
    those of largest posterior variance among the survivors, given the points of this
    batch alone, and feedback is not looked at. At its end every candidate whose upper
    confidence bound is below the largest lower one is ruled out:

    .. math:: \mathcal X_{i+1} = \{x \in \mathcal X_i :
        u_i(x) \ge \max_{x' \in \mathcal X_i} l_i(x')\}.

    Use it where feedback comes in few rounds, or where the rate
    :math:`\tilde O(\sqrt{N \gamma(N)})` counts; `BBKB` exploits sooner and needs more
    rounds. It needs a norm bound and noise that are not too small: a maximizer that is
    ruled out does not come back.

    Only the feedback of points that it proposed, while their batch is in progress, is
    learned; all other feedback is recorded in the history and left alone, since the
    theorems need points that do not depend on the noise.

    Cost, with `A` survivors and `m` inducing points: O(A m) for each point and
    O(A m^2) for each batch; on a continuous domain a local search with `optimize_acqf`
    for each point. `exploration="random"` costs O(1) for each point.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel; its hyperparameters stay as they are. By default
            BoTorch's for inputs in the unit cube.
        num_evaluations: The horizon N.
        lam: The regularizer :math:`\tau^2`, as the posterior's noise variance.
        noise_std: R, the noise is R-sub-Gaussian.
        norm_bound: Bound :math:`C_k` on the RKHS norm of the objective.
        delta: Failure probability of the whole run, in (0, 1).
        schedule: `"sqrt"` (the paper's), `"doubling"` or lengths; see `batch_lengths`.
        exploration: `"variance"` (the paper's) or `"random"`, uniform over what
            survives (REDS, Salgia et al. 2024), which needs no optimization.
        refresh: `"certificate"`, `"every"` (drawn after every point, as in the paper,
            though with fewer points than its theorem asks) or `"exact"` (BPE); see
            `CertificatePolicy`.
        constants: `"theory"` (Theorem 3.5, Corollary 3.7) or `"practical"`, no theorem.
        mgf_radius: :math:`h_0` of light-tailed noise (Theorem E.2).
        bias: `"sharp"` for a smaller radius than printed, proved as well; see
            `SBPERadius`.
        radius: A confidence radius instead of the one that these arguments give.
        discretization: The constant c of Assumption 3.6, continuous domains only: see
            `SBPEContinuousRadius` and `discretization_constant`.
        raw_samples: Points drawn for each batch on a continuous domain.
        num_restarts: Local searches for each point on a continuous domain.
        seed: Seed of the strategy's generator.
        minimize: See `Strategy`.
        **domain: `bounds` (`2 x d`) of a continuous domain instead of candidates, and
            its constraints.

    Example:
        >>> import torch, gpytorch
        >>> X = torch.linspace(0, 1, 100, dtype=torch.float64).unsqueeze(-1)
        >>> kernel = gpytorch.kernels.RBFKernel().double().requires_grad_(False)
        >>> strategy = SBPE(X, kernel, num_evaluations=60, lam=1e-2)
        >>> history = strategy.run(lambda X: -(X - 0.3).square(), 60, progress=False)
        >>> [batch.length for batch in history.rounds]
        [8, 22, 30]
    """

    def __init__(
        self,
        candidates: Any = None,
        covar_module: Kernel | None = None,
        num_evaluations: int = 1000,
        lam: float = 1e-4,
        noise_std: float = 1e-2,
        norm_bound: float = 1.0,
        delta: float = 1e-3,
        schedule: Schedule | Sequence[int] = "sqrt",
        exploration: Exploration = "variance",
        refresh: Refresh = "certificate",
        constants: Constants = "theory",
        *,
        mgf_radius: float = math.inf,
        bias: Bias = "paper",
        discretization: float = 1.0,
        radius: ConfidenceRadius | None = None,
        raw_samples: int = 512,
        num_restarts: int = 2,
        seed: int = 0,
        minimize: bool = False,
        **domain: Unpack[DomainOptions],
    ) -> None:
        box = one_domain(candidates, domain)
        table = None if box else CandidateTable.of(candidates)
        num_batches = max_num_batches(num_evaluations, schedule)
        policy = CertificatePolicy(refresh, delta, num_batches)
        search = make_search(
            table.X if table else box,
            covar_module,
            lam,
            policy,
            exploration,
            raw_samples=raw_samples,
            num_restarts=num_restarts,
        )
        if radius is None:
            radius = search.radius(
                num_intervals=4.0 * num_batches,
                discretization=discretization,
                norm_bound=norm_bound,
                noise_variance=noise_std**2,
                delta=delta,
                constants=constants,
                bias=bias,
                mgf_radius=mgf_radius,
            )
        super().__init__(
            table,
            box,
            search=search,
            radius=radius,
            lengths=batch_lengths(num_evaluations, schedule),
            seed=seed,
            minimize=minimize,
        )
        self.num_evaluations = sum(self.lengths)

    @property
    def survivors(self) -> Tensor:
        """`A` truth values: the candidates that are not ruled out.

        Raises:
            UnsupportedError: On a continuous domain; see `region`.
        """
        if not isinstance(self.search, TableSearch):
            raise UnsupportedError(
                "A continuous domain has no mask of survivors: use "
                "strategy.region.contains(X) or strategy.region.sample(n, generator)."
            )
        return self.search.survivors.clone()

    @property
    def region(self) -> SurvivingRegion:
        """What is not ruled out of a continuous domain.

        Raises:
            UnsupportedError: On a table; see `survivors`.
        """
        if not isinstance(self.search, BoxSearch):
            raise UnsupportedError(
                "A table of candidates has no surviving region: use the mask "
                "strategy.survivors."
            )
        return self.search.region

    def confidence_gap(self) -> float:
        """Largest upper less largest lower bound over the surviving candidates.

        The bounds of all batches together; infinite before the first has ended.

        Raises:
            UnsupportedError: On a continuous domain.
        """
        if not isinstance(self.search, TableSearch):
            return super().confidence_gap()
        survivors = self.search.survivors
        upper, lower = self.search.upper[survivors], self.search.lower[survivors]
        return max(0.0, float(upper.max() - lower.max()))

    def _config(self) -> dict[str, Any]:
        lengths = {"lengths": list(self.lengths)}
        return super()._config() | self._search_config() | lengths
