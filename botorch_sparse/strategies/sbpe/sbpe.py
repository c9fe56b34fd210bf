r"""Sparse batched pure exploration.

Where the equations of [Vakili2022]_ are:

====================================  ==================================================
Eq. 4, the posterior                  `posteriors/nystrom.py`; inside a batch, with
                                      variances alone, `incremental_variance.py`
Theorems 3.5, E.2, Corollary 3.7      `acquisition/confidence/sbpe_radius.py`; their
                                      arguments `confidence_radius` in `bounds.py`
Algorithm 1, line 3, the schedule     `batch_lengths` in `design.py`
lines 4 and 5-14, a batch             `SearchState` in `search_state.py`: `begun`, and
                                      `next_point` for each point
line 6, inducing points; delta_j      `BatchExploration.add`; `Design.draw_delta`
line 7, the variance                  `BatchExploration` in `exploration.py`
line 8, its maximizer, on a table     `TableSurvivors.explore` in `surviving_rows.py`
... on a box                          `SurvivingRegion.explore`, `surviving_region.py`
line 16, mean, variance and bounds    `SearchState.bounds`, `BatchBounds` in `bounds.py`
line 17, Eq. 13, on a table           `TableSurvivors.cut`
line 17, Eq. 15, on a box             `SurvivingRegion.cut`
Section 4, Theorems 4.1 and 4.2       `uncertainty_reduction.py`
none: kernel and noise are fitted     `fitted_prior`, here
====================================  ==================================================

Where a run stands is one value, `SearchState`.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import torch
from botorch.exceptions import BotorchWarning, InputDataError, UnsupportedError
from botorch.exceptions.warnings import InputDataWarning
from gpytorch.kernels import Kernel
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.confidence import ConfidenceRadius, Constants
from botorch_sparse.acquisition.confidence.radius import NormBoundRadius
from botorch_sparse.acquisition.confidence.sbpe_radius import Bias
from botorch_sparse.argument_checks import check_whole
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import condition_with_constant_mean
from botorch_sparse.strategies.data.box import DomainOptions
from botorch_sparse.strategies.data.domain import Domain, domain_of, draw_seed
from botorch_sparse.strategies.data.feedback import read_points
from botorch_sparse.strategies.data.run_record import (
    FoldedEvaluations,
    RunRecord,
    evaluations_at,
)
from botorch_sparse.strategies.sbpe.design import (
    Design,
    Exploration,
    Refresh,
    Schedule,
    batch_lengths,
    max_num_batches,
)
from botorch_sparse.strategies.sbpe.round_strategy import Round, RoundStrategy
from botorch_sparse.strategies.sbpe.search_state import SearchState
from botorch_sparse.strategies.sbpe.surviving_region import SurvivingRegion
from botorch_sparse.strategies.sbpe.surviving_rows import TableSurvivors
from botorch_sparse.strategies.surrogates.prior import (
    DEFAULT_LAM,
    PosteriorSettings,
    Prior,
)
from botorch_sparse.strategies.surrogates.prior_fitting import FIT_SIZE, PriorSource

# Of a kernel that is given.
DEFAULT_NOISE_STD = 1e-2
# What the noise may add to feedback before it is announced, in its deviations.
MUCH_NOISE = 5.0


class SBPE(RoundStrategy):
    r"""Order-optimal regret with O(log log N) rounds of feedback [Vakili2022]_.

    Algorithm 1: the horizon is split into few batches. Inside a batch the points are
    the survivors with the largest posterior variance, given the points of this batch
    alone, and feedback is not looked at. At its end every candidate whose upper
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

    A single value has no scale, such as 0 where successes are rare. While all feedback
    is that value, the next batch of the schedule is drawn like the first, from rows
    that were not evaluated while there are some, and a warning says so. If it never
    changes, the run goes on to the horizon and has no bounds. With `covar_module`
    constant feedback is like any other.

    Each candidate may be evaluated several times: there is no `unique`. The mean of
    `history.best()` is by the last batch's feedback alone, see `predict`, and None
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
            `Design`.
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
        num_evaluations = check_whole("num_evaluations", num_evaluations)
        first: list[int] = []
        if covar_module is None:
            first = [_first_length(place, num_evaluations, num_initial)]
        elif num_initial is None:
            lam = DEFAULT_LAM if lam is None else lam
            noise_std = DEFAULT_NOISE_STD if noise_std is None else noise_std
        else:
            raise InputDataError(
                f"Got num_initial={num_initial} with covar_module; it is the length of "
                "the batch that a kernel is fitted to. Leave one of them out."
            )
        num_left = num_evaluations - sum(first)
        design = Design(
            refresh=refresh,
            delta=delta,
            num_batches=max_num_batches(num_left, schedule),
            norm_bound=norm_bound,
            constants=constants,
            bias=bias,
            mgf_radius=mgf_radius,
            exploration=exploration,
            raw_samples=raw_samples,
            num_restarts=num_restarts,
            lam=lam,
            noise_std=noise_std,
            discretization=discretization,
            radius=radius,
        )
        known_lam = None if covar_module is None else lam
        super().__init__(
            place,
            PosteriorSettings.of(place, covar_module, known_lam),
            design,
            lengths=[*first, *batch_lengths(num_left, schedule)],
            seed=seed,
            minimize=minimize,
        )
        self.num_evaluations = sum(self.lengths)

    @property
    def _is_fit_missing(self) -> bool:
        """Whether the first batch is in progress, and a fit follows."""
        return self.progress.source.awaits_fit(self.progress.prior)

    @override
    def _begun(self, length: int) -> SearchState:
        if not self._is_fit_missing:
            return super()._begun(length)
        return replace(self.progress, is_begun=True, drawn=self._drawn(length))

    def _drawn(self, num: int) -> tuple[int, ...]:
        """Points that no kernel chooses; rows that a batch has had come last."""
        taken = set(self._failed)
        if self.round_number > 0:
            taken |= set(self.record.different.tolist())
        context = self.generator, self.record.add_point
        drawn = self.domain.sample(num, *context, taken)
        if (left := num - len(drawn)) > 0:
            drawn += self.domain.uniform(left, *context, self._failed)
        return tuple(drawn)

    @property
    def _can_fit(self) -> bool:
        """Without two different values there is no scale to be fitted."""
        values = self.record.values
        return bool((values != values[:1]).any())

    @override
    def _can_conclude(self) -> bool:
        """A batch to be fitted to waits for the next `ask`, if there will be one."""
        is_last = self.round_number == len(self.lengths) - 1
        return not self._is_fit_missing or self._can_fit or is_last

    @override
    def _concluded(self, places: Tensor) -> tuple[SearchState, Round]:
        """Fit to a first batch; bounds of all others, by their feedback alone."""
        if self._is_fit_missing:
            return self._fitted(len(places))
        concluded, source = super()._concluded(places), self.progress.source
        if not source.is_inferred and self.last_bounds is None and len(places):
            self._announce_size(self._data(places))
        return concluded

    def _fitted(self, num: int) -> tuple[SearchState, Round]:
        """With a prior that is fitted to all feedback, if that has two values."""
        length, at = self.lengths[self.round_number], self.progress
        ended = Round(length, num, survivors=len(self.candidates) or None)
        if not self._can_fit:
            self._announce_single_value()
            return at, ended
        prior = fitted_prior(at.source, self.record, self.generator)
        return SearchState.at_start(self.domain, at.source, at.design, prior), ended

    def _announce_single_value(self) -> None:
        """Warn that a batch has ended to which no kernel can be fitted."""
        rest = self.lengths[self.round_number + 1 :]
        then = "The horizon ends without bounds. Start anew with more num_evaluations, "
        if rest:
            then = (
                f"The next batch, of {rest[0]} points, is drawn uniformly too and "
                "rules nothing out. Tell other feedback as well, "
            )
        warnings.warn(
            f"A batch is over, and the feedback, of {len(self.record)} evaluations, "
            "has fewer than two different values: kernel and scale can't be fitted. "
            f"{then}or give covar_module, lam and noise_std.",
            BotorchWarning,
            stacklevel=2,
        )

    @torch.no_grad()
    def _announce_size(self, data: FoldedEvaluations) -> None:
        r"""Warn of feedback that is larger than a given kernel and norm bound allow.

        By the reproducing property :math:`|f(x)| \le F k(x, x)^{1/2}`. What is compared
        are root mean squares, which an offset enlarges as much as a wrong scale.
        """
        if not isinstance(radius := self.radius, NormBoundRadius):
            return
        k_diag = self.progress.prior.covar_module(data.X, diag=True)
        n = data.counts.sum()
        allowed = radius.norm_bound * float((k_diag @ data.counts / n).sqrt())
        size = float((data.Y.square() @ data.counts / n).sqrt())
        if not size > allowed + MUCH_NOISE * radius.noise_variance**0.5:
            return  # also where the kernel returned NaN
        mean = self.record.outcomes.signed(float(data.Y @ data.counts / n))
        needed = float((data.Y.abs() / k_diag.sqrt()).max())
        warnings.warn(
            f"The feedback of the first batch is of size {size:.3g}, with mean "
            f"{mean:.3g}, but norm_bound={radius.norm_bound:.3g} allows for "
            f"{allowed:.3g}: the theorem needs |f(x)| <= norm_bound * k(x, x) ** 0.5, "
            "and the maximizer may be ruled out. Subtract a constant such as "
            f"{mean:.3g} from all feedback, pass norm_bound of at least {needed:.3g}, "
            "or leave covar_module out.",
            InputDataWarning,
            stacklevel=2,
        )

    @property
    def survivors(self) -> Tensor:
        """`A` truth values: the candidates that are not ruled out by a batch.

        Raises:
            UnsupportedError: On a continuous domain; see `region`.
        """
        if not isinstance(left := self.progress.left, TableSurvivors):
            raise UnsupportedError(
                "A continuous domain has no mask of survivors: use "
                "strategy.region.contains(X) or strategy.region.sample(n, generator)."
            )
        return left.survivors.clone()

    @property
    def region(self) -> SurvivingRegion:
        """What is not ruled out of a continuous domain.

        Raises:
            UnsupportedError: On a table; see `survivors`.
        """
        if not isinstance(left := self.progress.left, SurvivingRegion):
            raise UnsupportedError(
                "A table of candidates has no surviving region: use the mask "
                "strategy.survivors."
            )
        return left

    @torch.no_grad()
    def predict(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        """Means and standard deviations by the last batch's feedback alone. O(k m^2).

        None before the first batch that has bounds has ended. Far from where that batch
        looked it says little: `recommend` weighs the bounds of all batches.
        """
        X = read_points(X, self.domain)
        bounds = self.last_bounds
        if bounds is None:
            return None
        mean, sd = bounds.predict(X.double())
        return self.record.outcomes.signed(mean), sd

    def confidence_gap(self) -> float:
        """Largest upper less largest lower bound over the surviving candidates.

        The bounds of all batches together; infinite before the first has ended.

        Raises:
            UnsupportedError: On a continuous domain.
        """
        left = self.progress.left
        if isinstance(left, SurvivingRegion):
            return super().confidence_gap()
        return left.confidence_gap()

    @override
    def _config(self) -> dict[str, Any]:
        return super()._config() | {"lengths": list(self.lengths)}


def _first_length(domain: Domain, num_evaluations: int, num_initial: int | None) -> int:
    """The length of the first batch, which a kernel is fitted to."""
    most = domain.num_selectable(num_evaluations // 3, (), unique=True)
    if most < 2:
        raise InputDataError(
            f"Got num_evaluations={num_evaluations} without covar_module; need 6 or "
            "more, and 2 candidates or more: the kernel is fitted to a first batch of "
            "at least 2 and at most a third of the evaluations. Give covar_module, lam "
            "and noise_std otherwise."
        )
    if num_initial is None:
        return min(domain.num_initial(is_known=False), most)
    if not 2 <= check_whole("num_initial", num_initial) <= most:
        raise InputDataError(
            f"Got num_initial={num_initial}; need 2 to {most}: different candidates, "
            f"and at most a third of num_evaluations={num_evaluations}."
        )
    return int(num_initial)


@torch.no_grad()
def fitted_prior(
    source: PriorSource, record: RunRecord, generator: torch.Generator
) -> Prior:
    """Kernel, noise, constant mean and scale by all feedback that there is.

    The mean is the one of generalized least squares under the fitted kernel. The
    average is taken off first: a constant in the data would cost digits. Cost: see
    `PriorSource.fitted`, and O(n m^2) with at most 300 inducing points.
    """
    prior = source.fitted(source.initial(), record, draw_seed(generator))
    data = evaluations_at(record, record.folded())
    X, average = source.inputs(data.X), data.Y @ data.counts / data.counts.sum()
    posterior = condition_with_constant_mean(
        NystromPosterior.prior(prior.covar_module, X[:FIT_SIZE]),
        X,
        (data.Y - average) / prior.scale,
        prior.lam / data.counts,
    )
    rest = posterior.mean_module(X[:1])
    return replace(prior, center=float(average + prior.scale * rest))
