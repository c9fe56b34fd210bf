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
none: kernel and noise are fitted      `first_batch.py`, `units.py`
=====================================  ==============================================

`search.py` has what a table and a box share, `domains.py` picks one.
"""

import math
from collections.abc import Sequence
from typing import Any, Unpack

from botorch.exceptions import InputDataError, UnsupportedError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import (
    ConfidenceRadius,
    Constants,
)
from botorch_sparse.acquisition.confidence.base import NormBoundRadius
from botorch_sparse.acquisition.confidence.sbpe import Bias
from botorch_sparse.strategies.box import DomainOptions
from botorch_sparse.strategies.candidates import CandidateTable
from botorch_sparse.strategies.domain import Domain, domain_of, require_whole
from botorch_sparse.strategies.sbpe.box import BoxSearch
from botorch_sparse.strategies.sbpe.domains import SearchPrior, SearchSetup
from botorch_sparse.strategies.sbpe.exploration import CertificatePolicy, Refresh
from botorch_sparse.strategies.sbpe.first_batch import FirstBatch, announce_size
from botorch_sparse.strategies.sbpe.history import Round
from botorch_sparse.strategies.sbpe.region import SurvivingRegion
from botorch_sparse.strategies.sbpe.rounds import RoundStrategy
from botorch_sparse.strategies.sbpe.schedule import (
    Schedule,
    batch_lengths,
    max_num_batches,
)
from botorch_sparse.strategies.sbpe.search import Exploration
from botorch_sparse.strategies.sbpe.table import TableSearch

# Of a kernel that is given.
DEFAULT_LAM, DEFAULT_NOISE_STD = 1e-4, 1e-2


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
    ruled out does not come back. Rows that failed leave the table; see `RoundStrategy`.

    Only the feedback of points that it proposed, while their batch is in progress, is
    learned; all other feedback is recorded in the history and left alone, since the
    theorems need points that do not depend on the noise.

    The kernel may be left out. Then a first batch of `num_initial` points is drawn
    uniformly and without replacement (Sobol's on a continuous domain), and rules
    nothing out. Kernel, noise, constant mean and scale are fitted to its feedback, and
    to what else was told by then, with inputs scaled by the ranges of the table or box
    and columns that do not vary left out. From then on they are fixed, and the schedule
    covers the evaluations that are left, whose batches see feedback less that constant
    in units of that scale: a number added to all feedback changes no choice. Theorem
    3.5 is for a kernel that is known: what is proved holds given that the function less
    the constant, in these units, has a norm of at most `norm_bound` under the fitted
    kernel, and noise as fitted. Intervals, gaps and the history are in units of Y.

    Cost, with `A` survivors and `m` inducing points: O(A m) for each point and
    O(A m^2) for each batch; on a continuous domain a local search with `optimize_acqf`
    for each point. `exploration="random"` costs O(1) for each point.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel; its hyperparameters stay as they are, and its prior
            mean is zero: subtract a constant from the feedback where it has one. None
            to infer it.
        num_evaluations: The horizon N, the first batch included.
        lam: The regularizer :math:`\tau^2`, as the posterior's noise variance, in
            squared units of Y; 1e-4 by default, where the kernel is inferred the fitted
            noise variance.
        noise_std: R, the noise is R-sub-Gaussian, in units of Y; 1e-2 by default, where
            the kernel is inferred the fitted noise's standard deviation.
        norm_bound: Bound :math:`C_k` on the RKHS norm of the objective; where the
            kernel is inferred, of the standardized one.
        delta: Failure probability of the whole run, in (0, 1).
        schedule: `"sqrt"` (the paper's), `"doubling"` or lengths; see `batch_lengths`.
        exploration: `"variance"` (the paper's) or `"random"`, uniform over what
            survives (REDS, Salgia et al. 2024), which needs no optimization.
        refresh: `"certificate"`, `"every"` (drawn after every point, as in the paper,
            though with fewer points than its theorem asks) or `"exact"` (BPE); see
            `CertificatePolicy`.
        constants: `"theory"` (Theorem 3.5, Corollary 3.7) or `"practical"`, no theorem.
        num_initial: Length of the first batch where the kernel is inferred: 2 to a
            third of the horizon; `2 d` by default, at least 5, on a table at most 20.
        mgf_radius: :math:`h_0` of light-tailed noise (Theorem E.2).
        bias: `"sharp"` for a smaller radius than printed, proved as well; see
            `SBPERadius`.
        radius: A confidence radius instead of the one that these arguments give; where
            the kernel is inferred, of standardized feedback.
        discretization: The constant c of Assumption 3.6, continuous domains only: see
            `SBPEContinuousRadius` and `discretization_constant`. Where the kernel is
            inferred at least what its lengthscales ask for.
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
        lam: float | None = None,
        noise_std: float | None = None,
        norm_bound: float = 1.0,
        delta: float = 1e-3,
        schedule: Schedule | Sequence[int] = "sqrt",
        exploration: Exploration = "variance",
        refresh: Refresh = "certificate",
        constants: Constants = "theory",
        *,
        num_initial: int | None = None,
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
        place = domain_of(candidates, domain)
        require_whole(place, "SBPE")
        box, table = place.box, place.table
        where = box or CandidateTable.of(table).X
        self._first_batch = _first_batch(
            place, covar_module, num_evaluations, num_initial, lam, noise_std
        )
        first = [] if self._first_batch is None else [self._first_batch.length]
        num_left = num_evaluations - sum(first)
        self._setup = SearchSetup(
            where,
            CertificatePolicy(refresh, delta, max_num_batches(num_left, schedule)),
            exploration,
            raw_samples,
            num_restarts,
            norm_bound,
            constants,
            bias,
            mgf_radius,
            discretization,
            radius,
        )
        prior = _initial_prior(self._first_batch, covar_module, lam, noise_std)
        search = self._setup.search(prior)
        super().__init__(
            table,
            box,
            search=search,
            radius=self._setup.radius(search, prior),
            lengths=[*first, *batch_lengths(num_left, schedule)],
            seed=seed,
            minimize=minimize,
        )
        self.num_evaluations = sum(self.lengths)
        self._fit: dict[str, Any] | None = None
        if self._first_batch is not None:
            given = {"given": [lam, noise_std]}
            self._initial_config = self._search_config() | given
            self._adopt(None)

    def _adopt(self, fit: dict[str, Any] | None) -> None:
        """Search with the prior of a fit; before any, draw the first batch."""
        if self._first_batch is None:
            return
        prior = self._first_batch.prior(fit)
        search = self._setup.search(prior)
        self.radius = self._setup.radius(search, prior)
        self.search = self._setup.initial_draw(prior) if fit is None else search
        self._fit = fit

    @property
    def _is_fit_missing(self) -> bool:
        """Whether the first batch is in progress, and a fit follows."""
        return self._first_batch is not None and self._fit is None

    def _can_conclude(self) -> bool:
        return not self._is_fit_missing or FirstBatch.can_fit(self.history)

    def _conclude(self, record: Round, places: list[int]) -> None:
        """Fit to a first batch; bounds of all others, by their feedback alone."""
        if self._first_batch is None or self._fit is not None:
            is_first = self._first_batch is None and self.last_bounds is None
            super()._conclude(record, places)
            if is_first and places:
                self._announce_size(places)
            return
        if not self._can_conclude():
            raise UnsupportedError(
                f"The first batch of {record.length} points is over, and the feedback, "
                f"of {len(self.history)} evaluations, has fewer than two different "
                "values: kernel and scale can't be fitted. Tell more feedback, of any "
                "points: tell(X, Y). Or start anew with a larger num_initial, or with "
                "covar_module, lam and noise_std."
            )
        self._adopt(self._first_batch.fit(self.history, self.generator))
        record.survivors = len(self.candidates) or None

    def _announce_size(self, places: list[int]) -> None:
        """Once, of a kernel that was given, where the radius knows of a norm."""
        if isinstance(self.radius, NormBoundRadius):
            sign = -1.0 if self.minimize else 1.0
            kernel = self.search.covar_module
            announce_size(self._data(places), kernel, self.radius, sign)

    @property
    def survivors(self) -> Tensor:
        """`A` truth values: the candidates that are not ruled out by a batch.

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
        return self.search.confidence_gap()

    def _round_state(self) -> dict[str, Any]:
        return super()._round_state() | {"fit": self._fit}

    def _load_round_state(self, state: dict[str, Any]) -> None:
        super()._load_round_state(state)
        self._fit = state["fit"]

    def state_dict(self) -> dict[str, Any]:
        """See `Strategy.state_dict`."""
        fit = {} if self._first_batch is None else {"fit": self._fit}
        return super().state_dict() | fit

    def _load_state(self, state: dict[str, Any]) -> None:
        if self._first_batch is not None:
            self._adopt(state["fit"])
        super()._load_state(state)

    def _config(self) -> dict[str, Any]:
        lengths = {"lengths": list(self.lengths)}
        if self._first_batch is None:
            return super()._config() | self._search_config() | lengths
        return super()._config() | self._initial_config | lengths


def _first_batch(
    domain: Domain,
    covar_module: Kernel | None,
    num_evaluations: int,
    num_initial: int | None,
    lam: float | None,
    noise_std: float | None,
) -> FirstBatch | None:
    """What the kernel is fitted to; None where it is given."""
    if covar_module is None:
        return FirstBatch(domain, num_evaluations, num_initial, lam, noise_std)
    if num_initial is not None:
        raise InputDataError(
            f"Got num_initial={num_initial} with covar_module; it is the length of the "
            "batch that a kernel is fitted to. Leave one of them out."
        )
    return None


def _initial_prior(
    first_batch: FirstBatch | None,
    covar_module: Kernel | None,
    lam: float | None,
    noise_std: float | None,
) -> SearchPrior:
    """The prior that was given, or that before a fit."""
    if first_batch is not None:
        return first_batch.prior(None)
    lam = DEFAULT_LAM if lam is None else lam
    noise_std = DEFAULT_NOISE_STD if noise_std is None else noise_std
    return SearchPrior(covar_module, lam, noise_std**2)
