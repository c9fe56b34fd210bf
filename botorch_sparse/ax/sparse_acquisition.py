"""Ax's optimization of acquisition functions, for many observations and for tables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import numpy as np
import torch
from ax.core.search_space import SearchSpaceDigest
from ax.exceptions.core import SearchSpaceExhausted
from ax.exceptions.generation_strategy import GenerationStrategyRepeatedPoints
from ax.generators.torch.botorch_modular.acquisition import (
    Acquisition,
    determine_optimizer,
)
from ax.generators.torch.botorch_modular.surrogate import Surrogate
from ax.generators.utils import mk_discrete_choices
from ax.utils.common.constants import Keys
from botorch.acquisition import AcquisitionFunction
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf_discrete
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_choice,
    check_flag,
    check_kind,
    check_number,
    check_whole,
)
from botorch_sparse.ax.baseline import best_points, remember
from botorch_sparse.ax.sparse_surrogate import SparseSurrogate

# Observed points that an acquisition function compares candidates with, and samples
# the posterior at together with each candidate; for each objective.
MAX_BASELINE = 16
# From this noise variance on, relative to the outcomes', repeats pay. BoTorch's
# prior alone makes less of few data without noise.
NOISE_WORTH_REPEATS = 0.05
# The slowest of the restarts decides how long the search takes. With many observations
# it goes on for long in regions where next to nothing is to be gained. At least:
MIN_ITERATIONS = 20
ITERATIONS_PER_DIMENSION = 4
TOLERANCE = 1e-5  # of the acquisition value, relatively
# Evaluations along a line, or d of them if that is more. Beyond, the gain is in the
# digits, and each is one for all restarts.
MIN_LINE_SEARCH_STEPS = 5
# Random points evaluated together. Most of the time goes into each call.
RAW_BATCH = 128
# Digits that tell rows apart, relative to the largest value of a column.
DIGITS = 10
CONSTRAINTS = ("inequality", "equality")

EXHAUSTED = (
    "All that do may have been evaluated. Pass allow_repeats=True to the strategy to "
    "evaluate them again."
)

Candidates = tuple[Tensor, Tensor, Tensor]
InequalityConstraints = list[tuple[Tensor, Tensor, float]]


class SparseAcquisition(Acquisition):
    """Ax's `Acquisition` at a cost that does not grow with n^2.

    Acquisition functions such as `qLogNoisyExpectedImprovement` sample the posterior at
    all observed points together. They are given the best by posterior mean.

    Its options (`acquisition_options`) are `max_baseline`, the number of these points,
    16 for each objective by default, and `allow_repeats`, whether an arm may be
    evaluated again; None, the default, leaves it to the model: where it finds noise,
    yes.

    Attributes:
        choices: `A x d` points to choose from, or None for the search space.
        baseline: The observed points that the acquisition function got.
    """

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"allow_repeats", "max_baseline", Keys.SUBSET_MODEL.value}
    )

    choices: Tensor | None = None
    baseline: Tensor | None = None
    X_pending: Tensor | None

    def __init__(self, surrogate: Surrogate, **kwargs: Any) -> None:
        check_kind("surrogate", surrogate, Surrogate, "a Surrogate of Ax")
        self.check_options(kwargs.get("options") or {})
        # What an earlier acquisition function left there rounds otherwise.
        remember(surrogate.model, surrogate.Xs[0][:0])
        is_sparse = isinstance(surrogate, SparseSurrogate)
        with surrogate.inputs_as_arrays() if is_sparse else nullcontext():
            super().__init__(surrogate, **kwargs)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuse options that it has not, or that are out of their range.

        Raises:
            InputDataError: If there is one.
        """
        for name in options:
            check_choice("acquisition_options", name, sorted(cls.option_names))
        if options.get("max_baseline") is not None:
            check_whole("max_baseline", options["max_baseline"])
        if options.get("allow_repeats") is not None:
            check_flag("allow_repeats", options["allow_repeats"])
        if "ratio_threshold" in options:
            check_number("ratio_threshold", options["ratio_threshold"], "[1, inf)")

    @property
    def X_observed(self) -> Tensor | None:
        """The observed points in the search space, `n x d`."""
        return self._X_observed

    @X_observed.setter
    def X_observed(self, X: Tensor | None) -> None:
        self._X_observed = None if X is None else X.to(self.device)

    def _construct_botorch_acquisition(
        self,
        botorch_acqf_class: type[AcquisitionFunction],
        botorch_acqf_options: dict[str, Any],
        model: Model,
    ) -> AcquisitionFunction:
        if isinstance(model, ModelListGP) and len(model.models) == 1:
            model = model.models[0]
        observed = self.X_observed
        self.X_observed = self.baseline = self._best_observed(model)
        try:
            acqf = super()._construct_botorch_acquisition(
                botorch_acqf_class, botorch_acqf_options, model
            )
        finally:
            self.X_observed = observed
        if getattr(acqf, "X_baseline", None) is not None:
            remember(model, acqf.X_baseline)
        return acqf

    def _best_observed(self, model: Model) -> Tensor | None:
        """The observed points that candidates are compared with."""
        if self.X_observed is None:
            return None
        most = MAX_BASELINE * len(self._objective_weights)
        return best_points(
            model,
            self.X_observed,
            self._objective_weights,
            self._outcome_constraints,
            self.options.get("max_baseline", most),
            self.objective_thresholds,
        )

    def optimize(
        self, n: int, search_space_digest: SearchSpaceDigest, **kwargs: Any
    ) -> Candidates:
        """At most `n` candidates (`k x d`), acquisition values and weights.

        Arguments are as in `Acquisition.optimize`.

        Raises:
            SearchSpaceExhausted: If all choices were evaluated and repeats are not
                allowed.
            GenerationStrategyRepeatedPoints: If the search found such points only; Ax
                then takes a Sobol point.
        """
        if self.choices is not None and kwargs.get("candidate_set") is None:
            return self._select(n, self._eligible(self.choices, kwargs))
        return self._search(n, search_space_digest, **kwargs)

    def _search(
        self, n: int, search_space_digest: SearchSpaceDigest, **kwargs: Any
    ) -> Candidates:
        """Ax's search, with or without repeats."""
        repeats = self.allows_repeats()
        options = dict(kwargs.pop("optimizer_options", None) or {})
        fixed = kwargs.get("fixed_features")
        choices = mk_discrete_choices(ssd=search_space_digest, fixed_features=fixed)
        optimizer = determine_optimizer(search_space_digest, self.acqf, choices)
        if optimizer in ("optimize_acqf", "optimize_acqf_mixed"):
            d, given = len(search_space_digest.bounds), options.get("options", {})
            limits: dict[str, Any] = {
                "init_batch_limit": RAW_BATCH,
                "maxiter": max(MIN_ITERATIONS, ITERATIONS_PER_DIMENSION * d),
            }
            if not any(kwargs.get(f"{kind}_constraints") for kind in CONSTRAINTS):
                # Of L-BFGS-B alone.
                limits |= {"ftol": TOLERANCE, "factr": None}
                limits["maxls"] = max(MIN_LINE_SEARCH_STEPS, d)
            options["options"] = {**limits, **given}
            options.setdefault("retry_on_optimization_warning", False)
        if optimizer.startswith("optimize_acqf_discrete"):
            options["unique"] = not repeats
        try:
            with self._nothing_avoided() if repeats else nullcontext():
                candidates = super().optimize(
                    n, search_space_digest, optimizer_options=options, **kwargs
                )
        except SearchSpaceExhausted as error:
            raise SearchSpaceExhausted(f"{error} {EXHAUSTED}") from error
        if not repeats and self.options.get("allow_repeats") is None:
            self._refuse_repeats(candidates[0])
        return candidates

    def allows_repeats(self) -> bool:
        """Whether an arm may be evaluated again."""
        given = self.options.get("allow_repeats")
        return is_noisy(self.surrogate.model) if given is None else bool(given)

    def _eligible(self, choices: Tensor, kwargs: dict[str, Any]) -> Tensor:
        """The choices that fit fixed features and constraints, and repeats."""
        fitting = feasible_choices(
            choices,
            kwargs.get("fixed_features"),
            kwargs.get("inequality_constraints"),
        )
        if not len(fitting):
            raise SearchSpaceExhausted(
                "No candidate of the table satisfies the constraints. Check them and "
                "fixed_parameters, or give a table that has such rows."
            )
        known = self._known_points()
        if known is None or self.allows_repeats():
            return fitting
        if not len(left := fitting[~rows_in(fitting, known)]):
            raise SearchSpaceExhausted(self._taken(fitting))
        return left

    def _taken(self, fitting: Tensor) -> str:
        """What to say where all rows that fit are observed or pending."""
        n, observed = len(fitting), self.X_observed
        num = 0 if observed is None else int(rows_in(fitting, observed).sum())
        return (
            f"All {n} candidates of the table that satisfy the constraints are taken: "
            f"{num} were evaluated, and {n - num} are pending, have failed or were "
            "found in this call, which keeps none of its trials where it can't give "
            "all. Ask for fewer at once: max_trials=1 gives the rows that are left one "
            "by one. Pass allow_repeats=True to the strategy to evaluate rows again."
        )

    def _select(self, n: int, choices: Tensor) -> Candidates:
        """Greedily chosen rows of a table."""
        candidates, values = optimize_acqf_discrete(
            self.acqf,
            q=min(n, len(choices)),
            choices=choices,
            unique=not self.allows_repeats(),
        )
        return candidates, values, torch.ones(len(candidates), dtype=self.dtype)

    def _known_points(self) -> Tensor | None:
        """Observed and pending points."""
        known = [X for X in (self.X_observed, self.X_pending) if X is not None]
        return torch.cat(known) if known else None

    def _refuse_repeats(self, candidates: Tensor) -> None:
        """Raise where rounding led to a point that is known."""
        known = self._known_points()
        if known is not None and rows_in(candidates, known).any():
            raise GenerationStrategyRepeatedPoints(
                "The best candidate was evaluated before, and the model finds no noise "
                "that would make a repeat worthwhile."
            )

    @contextmanager
    def _nothing_avoided(self) -> Iterator[None]:
        """Ax leaves out no points that are known."""
        known = self.X_observed, self.X_pending
        self.X_observed = self.X_pending = None
        try:
            yield
        finally:
            self.X_observed, self.X_pending = known


def is_noisy(model: Model) -> bool:
    """Whether the noise of any outcome is worth repeated evaluations."""
    if isinstance(model, ModelListGP):
        return any(is_noisy(submodel) for submodel in model.models)
    noise = getattr(getattr(model, "likelihood", None), "noise", None)
    return noise is not None and bool((noise.mean(-1) > NOISE_WORTH_REPEATS).any())


def feasible_choices(
    choices: Tensor,
    fixed_features: dict[int, float] | None,
    inequality_constraints: InequalityConstraints | None,
) -> Tensor:
    """The choices that satisfy linear constraints and fixed features by column."""
    keep = torch.ones(len(choices), dtype=torch.bool, device=choices.device)
    for column, value in (fixed_features or {}).items():
        keep &= (choices[:, column] - value).abs() <= 1e-9 * max(1.0, abs(value))
    for indices, coefficients, rhs in inequality_constraints or []:
        keep &= choices[:, indices] @ coefficients.to(choices) >= rhs - 1e-8
    return choices[keep]


def rows_in(X: Tensor, known: Tensor) -> Tensor:
    """Which of `k` rows of `X` are rows of `known` too, up to rounding.

    Cost: O((k + n) d log(k + n)).
    """
    both = torch.cat([X, known.to(X)]).detach().cpu()
    scale = both.abs().amax(0).clamp_min(torch.finfo(both.dtype).tiny)
    digits = np.round((both / scale).numpy() * 10.0**DIGITS).astype(np.int64)
    digits = np.ascontiguousarray(digits)
    rows = digits.view([("", digits.dtype)] * digits.shape[1]).ravel()
    found = np.isin(rows[: len(X)], rows[len(X) :])
    return torch.from_numpy(found).to(X.device)
