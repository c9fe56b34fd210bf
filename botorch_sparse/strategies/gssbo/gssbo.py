"""Bayesian optimization on a subset of the samples.

Where the parts of [Wei2025]_ are:

=====================================  ==============================================
Eq. 3, gradients                       `inducing/gp_gradients.py`
Eq. 1, Section 4.2, greedy selection   `inducing/gradient_diversity.py`
Section 4.3 (1), dynamic buffer        `SubsetBuffer`
Section 4.3 (2), forced samples        `models/subset/row_indices.py`
Section 4.3 (3), perturbation          `inducing/gradient_diversity.py`
Algorithm 1, line 3, the next point    `SubsetSurrogate.maximizer`
Algorithm 1, lines 5-18                `SubsetSurrogate.learn`
Theorem 5.2, the radius                `acquisition/confidence/gssbo_radius.py`
=====================================  ==============================================
"""

import math
import time
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any, Unpack

import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from gpytorch.means import ZeroMean
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.confidence import (
    ConfidenceRadius,
    FixedBeta,
    GSSBORadius,
    RadiusStatistics,
    SrinivasCompactRadius,
    SubsetStatistics,
)
from botorch_sparse.argument_checks import check_callable
from botorch_sparse.models import SubsetSingleTaskGP
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.models.subset.fixed_subset import all_observations
from botorch_sparse.models.subset.row_selection import Selection, SelectionOptions
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.data.box import DomainOptions
from botorch_sparse.strategies.data.domain import box_of
from botorch_sparse.strategies.data.run_record import BatchRecord
from botorch_sparse.strategies.gssbo.subset_surrogate import (
    PATIENCE,
    WINDOW,
    MakeAcquisition,
    SubsetBuffer,
    SubsetSize,
    SubsetSurrogate,
)
from botorch_sparse.strategies.model_strategy import ModelStrategy
from botorch_sparse.strategies.surrogates.prior_fitting import of_standardized
from botorch_sparse.strategies.ucb import PRACTICAL_BETA

RADII = (FixedBeta, GSSBORadius, SrinivasCompactRadius)


class GSSBO(ModelStrategy[SubsetSurrogate]):
    r"""Bayesian optimization with gradient-based sample selection [Wei2025]_.

    Algorithm 1: an exact GP on at most M of the samples. The initial ones and the
    newest one are always among them. With the dynamic buffer all samples are in the
    model until an iteration takes longer than Z times an initial one.

    The paper chooses the others greedily so that the gradients of the log likelihood
    with respect to the observations point in diverse directions: `selection="gradient"`
    or any `reading`. The default is the residual leverage of `SubsetSingleTaskGP`:
    over random rows its cumulative regret was 0.91 on Hartmann6, 0.99 on Levy20 and
    0.63 on Eggholder, of contributions 0.98, 1.05 and 1.06, and of GP-UCB
    0.93, 0.49 and 0.66 (means of 10 seeds, 150 evaluations, M = 50, `python -m
    benchmarks.gssbo --report benchmarks/results/gssbo_regret.json.gz`); beyond the
    seeds, leverage differs from random rows on Eggholder alone. The best value found
    was no better than theirs.

    Use it on boxes where evaluations are many and cheap to the point that an exact GP
    is what takes the time. `BBKB` proposes batches, keeps the information of all
    samples and has a regret guarantee; the one of this paper rests on a radius for
    another posterior than the subset's (see `GSSBORadius`).

    Points are proposed one at a time, after the initial design, which the first `ask`
    returns whole. Data told before the first `ask` are its beginning.

    `history.num_inducing` has the samples in the model of each point.

    Cost of an iteration with n samples: O(n M^2) to choose, O(M^3) to factorize the
    covariance of those chosen, O(M^2) for each point that the optimizer of the
    acquisition function looks at; O(M^3) for each step of a fit.

    Args:
        candidates: For an error that says so: there is no table.
        covar_module: The kernel. With it, data are taken as they are, and its
            hyperparameters stay unless `refit` is given. By default a Matern-5/2 whose
            hyperparameters are inferred, for scaled inputs and standardized outcomes.
        lam: Noise variance with a kernel, positive; 1e-4 by default.
        subset_size: M, `"dynamic"`, or None for all samples.
        num_initial: Points of the initial design, always in the model.
        Z: See `SubsetBuffer`, as `window` and `patience`.
        window: See there.
        patience: See there.
        selection: `"leverage"`, `"mixed"`, `"random"`, `"recent"`, `"gradient"` or a
            callable; see `SubsetSingleTaskGP`, as the next three.
        reading: What the gradient of a sample is.
        gradients: `"pilot"`, from the present subset, or `"exact"`, O(n^3).
        noise_scale: Standard deviation of the gradients' perturbation.
        acquisition: From a model and pending points (`j x d`, or None) to an
            acquisition function for one point; by default the upper confidence bound.
        radius: Of the default acquisition function; `FixedBeta(4.0)` by default,
            `GSSBORadius` for Theorem 5.2. In units of standardized outcomes.
        refit: When hyperparameters are fitted; by default when data grew by a fifth.
        optimizer_options: For `optimize_acqf`: `num_restarts`, `raw_samples`, ...
        clock: Seconds, for the dynamic buffer alone.
        seed: Seed of the strategy's generator.
        minimize: See `Strategy`.
        **domain: `bounds` (`2 x d`), and constraints; see `Strategy`.

    Example:
        >>> import torch
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> strategy = GSSBO(bounds=bounds, subset_size=6, num_initial=4)
        >>> history = strategy.run(
        ...     lambda X: -(X - 0.3).square(), 10, progress=False
        ... )
        >>> history.num_inducing.tolist()
        [0, 4, 5, 6, 6, 6, 6]
    """

    def __init__(
        self,
        candidates: Tensor | None = None,
        covar_module: Kernel | None = None,
        lam: float | None = None,
        *,
        subset_size: SubsetSize = "dynamic",
        num_initial: int = 20,
        Z: float = 4.0,
        window: int = WINDOW,
        patience: int = PATIENCE,
        selection: Selection | None = None,
        reading: str | None = None,
        gradients: str | None = None,
        noise_scale: float | None = None,
        acquisition: MakeAcquisition | None = None,
        radius: ConfidenceRadius | None = None,
        refit: RefitSchedule | None = None,
        optimizer_options: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        seed: int = 0,
        minimize: bool = False,
        **domain: Unpack[DomainOptions],
    ) -> None:
        place = box_of(candidates, domain, type(self))
        self.radius = validate_radius(
            FixedBeta(PRACTICAL_BETA) if radius is None else radius
        )
        if acquisition is not None:
            need = "a function of a model and pending points, or None"
            check_callable("acquisition", acquisition, need)
        check_callable("clock", clock, "a function that returns seconds")
        self.acquisition = acquisition
        self.clock = clock
        super().__init__(
            place,
            covar_module,
            lam,
            partial(
                SubsetSurrogate.begun,
                options=SelectionOptions.of(selection, reading, gradients, noise_scale),
            ),
            mean_module=None if covar_module is None else ZeroMean(),
            refit=refit,
            num_initial=num_initial,
            optimizer_options=optimizer_options,
            seed=seed,
            minimize=minimize,
        )
        self.buffer = SubsetBuffer(
            subset_size, Z, window, patience, smallest=num_initial
        )
        self._learning_time = 0.0  # by the clock, since the last point was chosen

    @override
    def _select(self, max_batch_size: int | None) -> list[int]:
        # The initial design comes whole.
        return super()._select(max_batch_size or self._num_initial_missing() or None)

    @override
    def _select_by_model(self, limit: int) -> list[int]:
        start = self._time()
        acquire = self.acquisition or self._upper_confidence_bound
        point = self.surrogate.maximizer(
            acquire, self.record, self.X_pending, self.generator
        )
        seconds = self._learning_time + self._time() - start
        self.buffer = copy(self.buffer)
        self.buffer.record(seconds, self.surrogate.num_inducing())
        self._learning_time = 0.0
        return [point]

    def _time(self) -> float:
        """The clock, which is looked at while M is open alone."""
        return self.clock() if self.buffer.is_open else 0.0

    def _upper_confidence_bound(
        self, model: SubsetSingleTaskGP, X_pending: Tensor | None
    ) -> AcquisitionFunction:
        beta, standard = self._beta(), of_standardized(model)
        if X_pending is None:
            return UpperConfidenceBound(standard, beta)
        return BatchUpperConfidenceBound(standard, beta, X_pending)

    def _beta(self) -> float:
        statistics = subset_statistics(self.radius, self.model, self._num_learned)
        return self.radius.botorch_beta(statistics)

    @override
    def _learn_in_order(self) -> None:
        start, size = self._time(), self.buffer.size
        self.surrogate = self.surrogate.learn(self.record, self.generator, size)
        self._learning_time += self._time() - start

    @override
    def _describe(self) -> BatchRecord:
        is_bound = self.acquisition is None and self.model is not None
        beta = self._beta() if is_bound else float("nan")
        return BatchRecord(
            size=0,
            num_inducing=self.surrogate.num_inducing(),
            beta=beta,
            selection_seconds=self.surrogate.selection_seconds,
        )

    @override
    def _state(self) -> dict[str, Any]:
        return super()._state() | {
            "buffer": self.buffer.state_dict(),
            "learning_time": self._learning_time,
        }

    @override
    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        self.buffer = copy(self.buffer)
        self.buffer.load_state_dict(state["buffer"])
        self._learning_time = state["learning_time"]

    @override
    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            **self.buffer.config(),
            "radius": fingerprint(self.radius, "radius"),
            "acquisition": fingerprint(self.acquisition, "acquisition"),
        }


class RSSBO(GSSBO):
    """GSSBO whose other samples are drawn uniformly [Wei2025]_.

    The initial samples and the newest one are in the model, as in `GSSBO`, and all that
    costs time is the same but for the selection, which is O(n).

    Args:
        *args: As in `GSSBO`.
        **options: Keyword arguments of `GSSBO`; there are no gradients.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        about_gradients = {"selection", "reading", "gradients", "noise_scale"}
        if given := sorted(about_gradients & options.keys()):
            raise InputDataError(
                f"Got {given} for a random selection; use GSSBO for a choice by "
                "gradients or another one."
            )
        super().__init__(*args, **options, selection="random")


def validate_radius(radius: object) -> ConfidenceRadius:
    """Refuse radii that need what a model of a subset does not have."""
    if not isinstance(radius, RADII):
        names = ", ".join(cls.__name__ for cls in RADII)
        raise InputDataError(
            f"Got radius={radius!r}; need one of {names}, such as FixedBeta(4.0) for "
            "a constant beta. Radii that rest on an information gain need the "
            "posterior of all data: take BBKB."
        )
    return radius


def subset_statistics(
    radius: ConfidenceRadius, model: SubsetSingleTaskGP | None, num_evaluations: int
) -> RadiusStatistics:
    """The statistics that a radius needs, in units of the model's outcomes.

    The spectral error is bounded by the trace of the residual, O(n M^2), for the radii
    that look at it.
    """
    lam = 1.0 if model is None else float(model.likelihood.noise.detach().mean())
    if not isinstance(radius, GSSBORadius) or model is None:
        return RadiusStatistics(lam=lam, num_evaluations=num_evaluations)
    return _with_errors(model, lam, num_evaluations)


@torch.no_grad()
def _with_errors(
    model: SubsetSingleTaskGP, lam: float, num_evaluations: int
) -> SubsetStatistics:
    r"""With the measured errors of Theorem 5.1; O(n M^2).

    Each of M samples tells of :math:`f(x)` at most what one at x itself would, so that
    :math:`\sigma^2(x) \ge 1 / (1 / k(x, x) + M / \lambda)` for a stationary kernel.
    """
    X, error, _ = all_observations(model)
    S = X[model.subset_indices]
    noise = torch.full_like(error, lam)
    posterior = NystromPosterior.from_data(model.covar_module, X, error, noise, S)
    residual = posterior.residual(X, posterior.features(X))
    k_max = float(model.covar_module(S, diag=True).max())
    return SubsetStatistics(
        lam=lam,
        num_evaluations=num_evaluations,
        lambda_max=float(residual.sum()) / lam,
        feedback_norm=float(error.norm()),
        cross_covariance_norm=k_max * math.sqrt(len(X)),
        min_std=(1 / (1 / k_max + len(S) / lam)) ** 0.5,
    )
