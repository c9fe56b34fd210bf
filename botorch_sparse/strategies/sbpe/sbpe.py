r"""Sparse batched pure exploration.

Where the equations of [Vakili2022]_ are:

=====================================  ==============================================
Eq. 4, the posterior                   `posteriors/nystrom.py`; inside a batch, with
                                       variances alone, `incremental_variance.py`
Theorems 3.5, E.2, Corollary 3.7       `acquisition/confidence/sbpe_radius.py`
Algorithm 1, line 3, the schedule      `schedule.py`
lines 6-8, inducing points, variance   `exploration.py`, `design.py`
lines 11-14, batches and feedback      `rounds.py`, their record `history.py`
line 16, the bounds                    `bounds.py`
line 17, Eq. 13, on a table            `table.py`
line 17, Eq. 15, on a box              `region.py`
Section 4, Theorems 4.1 and 4.2        `regression.py`
none: kernel and noise are fitted      `first_batch.py`, `prior.py`
=====================================  ==============================================

Where a run stands is one value, `progress.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import ConfidenceRadius, Constants
from botorch_sparse.acquisition.confidence.radius import NormBoundRadius
from botorch_sparse.acquisition.confidence.sbpe_radius import Bias
from botorch_sparse.argument_checks import as_points
from botorch_sparse.strategies.data.box import DomainOptions
from botorch_sparse.strategies.data.domain import domain_of, require_whole
from botorch_sparse.strategies.sbpe.batch_lengths import (
    Schedule,
    at_least_one,
    batch_lengths,
    max_num_batches,
)
from botorch_sparse.strategies.sbpe.design import (
    CertificatePolicy,
    Design,
    Exploration,
    Refresh,
)
from botorch_sparse.strategies.sbpe.first_batch import FirstBatch, announce_size
from botorch_sparse.strategies.sbpe.round_history import Round
from botorch_sparse.strategies.sbpe.round_strategy import RoundStrategy
from botorch_sparse.strategies.sbpe.search_prior import SearchPrior, validate_prior
from botorch_sparse.strategies.sbpe.search_state import SearchState
from botorch_sparse.strategies.sbpe.surviving_region import SurvivingRegion
from botorch_sparse.strategies.sbpe.surviving_rows import TableSurvivors

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

    Each candidate may be evaluated several times: there is no `unique`. The mean of
    `history.best()` is that of the last batch's feedback alone, see `predict`, and None
    before there are bounds; `recommend()` is what the theorem is about.

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
        discretization: The constant c of Assumption 3.6, continuous domains only, see
            `SBPEContinuousRadius`. By default the kernel's, for Gaussian, rational
            quadratic and Matern kernels with nu above one, scaled, added and
            multiplied; for others 1 and a warning, since no guarantee is left. Where
            the kernel is inferred at least what its lengthscales ask for.
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
        discretization: float | None = None,
        radius: ConfidenceRadius | None = None,
        raw_samples: int = 512,
        num_restarts: int = 2,
        seed: int = 0,
        minimize: bool = False,
        **domain: Unpack[DomainOptions],
    ) -> None:
        place = domain_of(candidates, domain, type(self))
        require_whole(place, "SBPE")
        num_evaluations = at_least_one("num_evaluations", num_evaluations)
        validate_prior(covar_module, lam, noise_std, discretization)
        self._first_batch = None
        if covar_module is None:
            self._first_batch = FirstBatch(
                place, num_evaluations, num_initial, lam, noise_std, discretization
            )
            first, prior = [self._first_batch.length], self._first_batch.prior(None)
        elif num_initial is None:
            lam = DEFAULT_LAM if lam is None else lam
            noise_std = DEFAULT_NOISE_STD if noise_std is None else noise_std
            first, prior = (
                [],
                SearchPrior.given(place, covar_module, lam, noise_std, discretization),
            )
        else:
            raise InputDataError(
                f"Got num_initial={num_initial} with covar_module; it is the length of "
                "the batch that a kernel is fitted to. Leave one of them out."
            )
        num_left = num_evaluations - sum(first)
        policy = CertificatePolicy(refresh, delta, max_num_batches(num_left, schedule))
        design = Design(
            policy,
            norm_bound,
            constants,
            bias,
            mgf_radius,
            exploration,
            raw_samples,
            num_restarts,
            radius,
        )
        self._at_start = partial(SearchState.at_start, place, design)
        super().__init__(
            place,
            progress=self._at_start(prior),
            lengths=[*first, *batch_lengths(num_left, schedule)],
            seed=seed,
            minimize=minimize,
        )
        self.num_evaluations = sum(self.lengths)
        self._initial_config = self.progress.config(place)
        self._initial_config["lengths"] = list(self.lengths)
        if self._first_batch is not None:
            self._initial_config["given"] = [lam, noise_std]

    @property
    def _is_fit_missing(self) -> bool:
        """Whether the first batch is in progress, and a fit follows."""
        return self._first_batch is not None and self.progress.fit is None

    def _begun(self, length: int) -> SearchState:
        """At the start of a batch; all of the first is drawn where a fit follows."""
        if not self._is_fit_missing:
            return super()._begun(length)
        add_point = self.record.add_point
        drawn = self.domain.sample(length, self.generator, add_point)
        return replace(self.progress, is_begun=True, drawn=drawn)

    def _can_conclude(self) -> bool:
        return not self._is_fit_missing or FirstBatch.can_fit(self.history)

    def _concluded(self, places: list[int]) -> tuple[SearchState, Round]:
        """Fit to a first batch; bounds of all others, by their feedback alone."""
        if self._first_batch is not None and self.progress.fit is None:
            return self._fitted(self._first_batch, len(places))
        concluded = super()._concluded(places)
        if self._first_batch is None and self.last_bounds is None and places:
            self._announce_size(places)
        return concluded

    def _fitted(self, batch: FirstBatch, num: int) -> tuple[SearchState, Round]:
        """With a prior that is fitted to all feedback.

        Raises:
            UnsupportedError: If nothing can be fitted to it.
        """
        record = Round(batch.length, num, survivors=len(self.candidates) or None)
        if not FirstBatch.can_fit(self.history):
            raise UnsupportedError(
                f"The first batch of {batch.length} points is over, and the feedback, "
                f"of {len(self.history)} evaluations, has fewer than two different "
                "values: kernel and scale can't be fitted. Tell more feedback, of any "
                "points: tell(X, Y). Or start anew with a larger num_initial, or with "
                "covar_module, lam and noise_std."
            )
        fit = batch.fit(self.history, self.generator)
        return self._at_start(batch.prior(fit), fit), record

    def _announce_size(self, places: list[int]) -> None:
        """Once, of a kernel that was given, where the radius knows of a norm."""
        if isinstance(self.radius, NormBoundRadius):
            sign = -1.0 if self.minimize else 1.0
            kernel = self.progress.prior.covar_module
            announce_size(self._data(places), kernel, self.radius, sign)

    @property
    def survivors(self) -> Tensor:
        """`A` truth values: the candidates that are not ruled out by a batch.

        Raises:
            UnsupportedError: On a continuous domain; see `region`.
        """
        return self._table.survivors.clone()

    @property
    def region(self) -> SurvivingRegion:
        """What is not ruled out of a continuous domain.

        Raises:
            UnsupportedError: On a table; see `survivors`.
        """
        if not isinstance(self.progress.left, SurvivingRegion):
            raise UnsupportedError(
                "A table of candidates has no surviving region: use the mask "
                "strategy.survivors."
            )
        return self.progress.left

    @property
    def _table(self) -> TableSurvivors:
        """What is not ruled out of a table."""
        if not isinstance(self.progress.left, TableSurvivors):
            raise UnsupportedError(
                "A continuous domain has no mask of survivors: use "
                "strategy.region.contains(X) or strategy.region.sample(n, generator)."
            )
        return self.progress.left

    @torch.no_grad()
    def predict(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        """See `Strategy.predict`; by the feedback of the last batch alone. O(k m^2).

        None before the first batch that has bounds has ended. Far from where that batch
        looked it says little: `recommend` weighs the bounds of all batches.
        """
        X, bounds = (
            as_points("X", X, self.domain.dim, self.domain.device),
            self.last_bounds,
        )
        if bounds is None:
            return None
        mean, sd = bounds.predict(X.double())
        return (-mean if self.minimize else mean), sd

    def confidence_gap(self) -> float:
        """Largest upper less largest lower bound over the surviving candidates.

        The bounds of all batches together; infinite before the first has ended.

        Raises:
            UnsupportedError: On a continuous domain.
        """
        return super().confidence_gap() if self.box else self._table.confidence_gap()

    def _state(self) -> dict[str, Any]:
        fit = {} if self._first_batch is None else {"fit": self.progress.fit}
        return super()._state() | fit

    def _load_state(self, state: dict[str, Any]) -> None:
        if self._first_batch is not None:
            fit = state["fit"]
            self.progress = self._at_start(self._first_batch.prior(fit), fit)
        super()._load_state(state)

    def _config(self) -> dict[str, Any]:
        return super()._config() | self._initial_config
