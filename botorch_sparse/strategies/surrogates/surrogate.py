"""What a strategy has learned: a Gaussian process, sparse or exact, on any domain."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from botorch.exceptions.warnings import InputDataWarning
from torch import Tensor

from botorch_sparse.acquisition.confidence import posterior_mean_norm
from botorch_sparse.argument_checks import short_list
from botorch_sparse.batching.rules import (
    GrowingBatch,
    Rule,
)
from botorch_sparse.inducing import (
    AccuracyCertificate,
    InducingPointSampler,
    PosteriorVarianceSampler,
    accuracy_certificate,
)
from botorch_sparse.models import ModelCertificate, SparseSingleTaskGP
from botorch_sparse.models.inducing_points import EXACT_SIZE, sample_inducing_points
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.posteriors import Moments, NystromPosterior, leave_one_out
from botorch_sparse.posteriors.outlier_noise import outlier_noise
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.data.domain import Domain, TableDomain
from botorch_sparse.strategies.data.preference import Preference
from botorch_sparse.strategies.data.run_record import (
    Evaluations,
    FoldedEvaluations,
    evaluations_at,
)
from botorch_sparse.strategies.surrogates.prior import Prior
from botorch_sparse.strategies.surrogates.prior_fitting import (
    SMALLEST_SPREAD,
    PriorSource,
    is_spread,
    least_deviation,
)
from botorch_sparse.strategies.surrogates.robust_evaluations import (
    RobustEvaluations,
    lie_apart,
)

# Feedback is announced above this, in standard deviations of the kernel, from two
# points on, and below the least from some more.
LARGEST_SCALE, SMALLEST_SCALE = 10.0, 0.01
ENOUGH_POINTS = 10
# Noise is announced above this, in units of lam, from so many repeats on: its estimate
# has a relative deviation of a quarter then.
LARGEST_NOISE, ENOUGH_REPEATS = 10.0, 30


@dataclass(frozen=True, eq=False)
class JointOutcomes:
    """Posteriors of several outcomes on one domain, and what is wanted of them.

    Attributes:
        views: `k` posteriors; those without data are left out of the order.
        preference: Which values are better.
    """

    views: "tuple[DomainPosterior, ...]"
    preference: Preference

    def stack(self, values: Sequence[Tensor | None]) -> Tensor:
        """Values of paths, in the views' units, as `b x q x k` in the feedback's.

        NaN stands for those of outcomes without data, which are None; zero for all
        objectives where none has data, so that constraints alone decide.
        """
        like = next(value for value in values if value is not None)
        objectives = self.preference.outcomes.objectives
        is_any_known = any(values[column] is not None for column in objectives)
        fill = dict.fromkeys(objectives, torch.nan if is_any_known else 0.0)
        Y = [
            torch.full_like(like, fill.get(column, torch.nan))
            if value is None
            else view.in_units(value)
            for column, (view, value) in enumerate(zip(self.views, values, strict=True))
        ]
        return torch.stack(Y).movedim(0, -1)  # each outcome is in one piece


@dataclass(frozen=True, eq=False)
class DomainPosterior(ABC):
    """A posterior on a domain, and the points that are chosen by it; a value.

    Points go by their numbers in a `RunRecord`. Tables have `NystromTablePosterior` and
    `ExactTablePosterior`, boxes have `BoxPosterior`.

    Attributes:
        source: Makes the inputs of the kernel.
        prior: What the posterior started from.
    """

    source: PriorSource
    prior: Prior

    @property
    @abstractmethod
    def posterior(self) -> NystromPosterior | None:
        """The Nystrom posterior; None before data."""

    @property
    def model(self) -> SparseSingleTaskGP | None:
        """The posterior as a BoTorch model, if that is what it is."""
        return None

    @property
    def num_rebuilt(self) -> int | None:
        """Evaluations when a factor was last built that later ones are appended to.

        None where every step builds it anew.
        """
        return None

    def takes_all(self, num: int) -> bool:
        """Whether so many unique points are inducing points all: it is exact then."""
        return False

    @abstractmethod
    def blank(self, prior: Prior) -> "DomainPosterior":
        """The same without data under another prior."""

    @abstractmethod
    def on(self, domain: TableDomain, max_memory: int) -> "DomainPosterior":
        """The same on another table, without data; see `NystromPool.max_memory`."""

    @abstractmethod
    def learned(
        self,
        prior: Prior,
        record: Evaluations,
        values: FoldedEvaluations,
        chosen: Tensor,
    ) -> "DomainPosterior":
        """The posterior of all evaluations.

        Args:
            prior: The prior; another object than before where it is another one.
            record: The evaluations that `values` are, from the first one on.
            values: They, folded.
            chosen: Places of the inducing points among them, on the host.
        """

    def in_units(self, values: Tensor) -> Tensor:
        """Values of sample paths in units of the feedback."""
        return self.prior.restore(values)

    @abstractmethod
    def num_inducing(self) -> int:
        """Inducing points in use; for the exact posterior its unique points."""

    @torch.no_grad()
    def variance(self, record: Evaluations, point: Tensor) -> Tensor:
        """Present variances at `k` point numbers, both on the host. O(k m^2)."""
        X = self.source.inputs(record.points(point))
        if self.posterior is None:
            return self.prior.covar_module(X, diag=True).cpu()
        return self.posterior.variance(X).cpu()

    @abstractmethod
    def max_variance(self) -> float:
        """The largest variance in the domain; NaN where it is not known."""

    @abstractmethod
    def predict(self, X: Tensor, record: Evaluations) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation at `q x d` points, in units of Y.

        Before any feedback they are the prior's.
        """

    @abstractmethod
    def confidence_gap(self, multiplier: float, offset: float) -> float:
        """The largest upper less the largest lower bound, in units of Y.

        Args:
            multiplier: What multiplies the standard deviation.
            offset: What is added to it, in units of the prior's scale.
        """

    @abstractmethod
    def batch(
        self,
        multiplier: float,
        rule: Rule | None,
        pending: list[int],
        selectable: SelectableRows,
        record: Evaluations,
        generator: torch.Generator,
    ) -> GrowingBatch:
        """Start a batch by the upper confidence bound.

        Args:
            multiplier: What multiplies the standard deviation.
            rule: What ends it.
            pending: Points that are in it from the start.
            selectable: Which rows may be chosen; excluded ones on the host.
            record: Gives points of a box their numbers.
            generator: Source of randomness.
        """

    @abstractmethod
    def maximizers(
        self,
        num_paths: int,
        selectable: SelectableRows,
        record: Evaluations,
        generator: torch.Generator,
        joint: "JointOutcomes | None" = None,
        price: Tensor | None = None,
    ) -> list[int]:
        """Points where sample paths are largest; pending points lower no sample.

        Args:
            num_paths: How many.
            selectable: Which rows may be chosen.
            record: Gives points of a box their numbers.
            generator: Source of randomness.
            joint: All outcomes, this one included, and what is wanted of them; None
                for one objective.
            price: `A` prices of the rows of a table; see `Costs`.
        """

    def clear(self) -> None:  # noqa: B027 (nothing, where nothing is kept)
        """Drop what is kept for later values, which may be half done."""

    @torch.no_grad()
    def information_gain(self, record: Evaluations) -> float:
        r"""A bound on `log det(I + K D^-1)` of the first history that was learned.

        This is twice the mutual information in nats. It is
        :math:`\log\det B + \mathrm{tr}((K - Q) D^{-1})`: the logarithm of the
        determinant is concave.
        """
        if (posterior := self.posterior) is None:
            return 0.0
        log_det = 2.0 * float(posterior.chol_inner.diagonal().log().sum())
        return max(log_det, 0.0) + self.residual_trace(record)

    @torch.no_grad()
    def residual_trace(self, record: Evaluations) -> float:
        """`tr (K - Q) D^-1` of a history that was learned; 0 for an exact posterior.

        An upper bound on its largest eigenvalue. Cost: O(n m^2).
        """
        if (posterior := self.posterior) is None:
            return 0.0
        data = evaluations_at(record, record.folded())
        X = self.source.inputs(data.X)
        residual = posterior.residual(X, posterior.features(X))
        return float((residual * data.counts).sum()) / self.prior.lam

    @torch.no_grad()
    def certificate(
        self, record: Evaluations
    ) -> AccuracyCertificate | ModelCertificate | None:
        """How far it is from the exact posterior; None without inducing points.

        Cost: O(n m^2), and O(n^2 m) up to 5000 different points.
        """
        if (posterior := self.posterior) is None:
            return None
        data = evaluations_at(record, record.folded())
        X, noise = self.source.inputs(data.X), self.prior.lam / data.counts
        return accuracy_certificate(posterior, X, noise)

    @torch.no_grad()
    def mean_norm(self) -> float:
        """The RKHS norm of the posterior mean.

        Cost: O(m^2); O(n^3) for the exact posterior, once.
        """
        posterior = self.posterior
        return 0.0 if posterior is None else posterior_mean_norm(posterior)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A posterior whose inducing set is drawn anew each time it learns; a value.

    Without inducing points yet, from more than one unique point, the first draw is by
    `initial_sampler`; afterwards `sampler` sees the variances of the posterior before
    ([Calandriello2020]_, Algorithm 1, lines 10-15). Where hyperparameters were fitted
    since, these are the variances of the previous inducing set under the new ones.
    All points are inducing points without a sampler, and as long as the view is exact
    for them. Where the kernel is inferred, which no theorem covers, so it is up to
    `exact_size` points, and from there on there are `max_inducing` of them at most.

    Attributes:
        view: The posterior, on its domain.
        sampler: Sampler of inducing points, or None. `PosteriorVarianceSampler` draws
            on the host, which knows the variances.
        initial_sampler: Sampler of the first ones; `BLESSSampler` for a warm start from
            much data.
        max_memory: See `NystromPool`.
        exact_size: See above.
        max_inducing: The largest number of inducing points, where the kernel is
            inferred.
        inducing: Numbers of the inducing points in use.
        is_scale_known: Whether the scale of the feedback has been looked at.
        is_noise_known: Whether its repeats have been.
        is_robust: Whether evaluations that lie apart count less.
        apart: Places of those that do, among the evaluations.
        num_learned: How many evaluations it has learned.
    """

    view: DomainPosterior
    sampler: InducingPointSampler | None
    initial_sampler: InducingPointSampler
    max_memory: int
    exact_size: int = EXACT_SIZE
    max_inducing: int = EXACT_SIZE
    inducing: tuple[int, ...] = ()
    is_scale_known: bool = False
    is_noise_known: bool = False
    is_robust: bool = False
    apart: tuple[int, ...] = ()
    num_learned: int = 0

    @property
    def parts(self) -> "tuple[Surrogate, ...]":
        """The surrogates of all outcomes: this one; see `OutcomeSurrogates`."""
        return (self,)

    def with_parts(self, parts: "Sequence[Surrogate]") -> "Surrogate":
        """With another surrogate of the outcome: that one."""
        return parts[0]

    @property
    def source(self) -> PriorSource:
        """Makes the prior."""
        return self.view.source

    @property
    def posterior(self) -> NystromPosterior | None:
        """The Nystrom posterior; None before data."""
        return self.view.posterior

    @property
    def model(self) -> SparseSingleTaskGP | None:
        """The BoTorch model of a box."""
        return self.view.model

    def num_inducing(self) -> int:
        """Inducing points in use."""
        return self.view.num_inducing()

    def max_variance(self) -> float:
        """The largest variance, where it is known."""
        return self.view.max_variance()

    def predict(self, X: Tensor, record: Evaluations) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation; see `PriorSource.deviation`."""
        mean, sd = self.view.predict(X, record)
        return mean, self.source.deviation(sd, record.values)

    def certificate(
        self, record: Evaluations
    ) -> AccuracyCertificate | ModelCertificate | None:
        """How far it is from the exact posterior."""
        return self.view.certificate(record)

    def clear(self) -> None:
        """Drop what is kept for later values."""
        self.view.clear()

    def maximizers(
        self,
        num_paths: int,
        selectable: SelectableRows,
        record: Evaluations,
        generator: torch.Generator,
        price: Tensor | None = None,
    ) -> list[int]:
        """Points where sample paths are largest; see `DomainPosterior.maximizers`."""
        return self.view.maximizers(
            num_paths, selectable, record, generator, price=price
        )

    def learn(
        self,
        record: Evaluations,
        generator: torch.Generator,
        lengthscale_factor: float = 1.0,
    ) -> Self:
        """Fit where that is due, draw the inducing set anew, and condition.

        Args:
            record: The evaluations, all of which are taken into account.
            generator: Source of randomness.
            lengthscale_factor: What multiplies the kernel's lengthscales.

        Returns:
            What is known then; `prior` is another object where it is another prior.
        """
        if self.source.is_inferred and not self.is_robust:
            announce_far_values(record, self.num_learned)
        record = self._moved(record)
        values, source = record.folded(), self.source
        others = record.others() if isinstance(record, RobustEvaluations) else record
        prior, ranks = self.view.prior, source.ranks
        if ranks.size > 1:
            record.points(values.point)  # all ranks know them from here on
        if source.is_due(prior.last_fit, record):
            before = prior
            num = len(record)
            prior = ranks.once_drawing(
                generator, lambda: source.fitted_anew(before, others, num, generator)
            )
        prior = source.in_units(prior, others.values)
        prior = source.shrunk(prior, lengthscale_factor)
        chosen = self._draw(prior, record, values, generator)
        record, values = self._weighted(prior, record, values, chosen)
        view = self.view.learned(prior, record, values, chosen)
        inducing = tuple(values.point[chosen].tolist())
        num = len(record)
        learned = replace(self, view=view, inducing=inducing, num_learned=num)
        return learned._with_announcements(record, values)

    def _moved(self, record: Evaluations, size: int | None = None) -> Evaluations:
        """The evaluations, those that lie apart moved to the others; the first ones."""
        return RobustEvaluations.of(record, size) if self.is_robust else record

    @torch.no_grad()
    def _weighted(
        self,
        prior: Prior,
        record: Evaluations,
        values: FoldedEvaluations,
        chosen: Tensor,
    ) -> tuple[Evaluations, FoldedEvaluations]:
        """Evaluations that lie apart count less where the others contradict them.

        Cost: O(n m^2), some five times, where there are some.
        """
        if not isinstance(record, RobustEvaluations):
            return record, values
        weighted = record.weighted
        data = evaluations_at(record, values, chosen)
        X, lam = self.source.inputs(data.X), prior.lam
        blank = prior.without_data(X[data.chosen])
        Z = self.source.inputs(record.points(record.point[record.is_apart]).double())
        Y = prior.standardize(record.values[record.is_apart].to(X))

        def left_out(rho: Tensor) -> Moments:
            folded = weighted((lam / (lam + rho)).cpu()).folded()
            y, d = prior.standardize(folded.Y.to(X)), lam / folded.counts.to(X)
            posterior = prior.condition(blank, X, y, d)
            return leave_one_out(posterior, Z, Y, lam + rho)

        noise, num = torch.full_like(Y, lam), len(record)
        rho = self.source.ranks.once(
            lambda: outlier_noise(left_out, Y, noise, num=num, least_scale=None).cpu()
        )
        record = weighted(lam / (lam + rho))
        return record, record.folded()

    def _with_announcements(
        self, record: Evaluations, values: FoldedEvaluations
    ) -> Self:
        """What does not fit the prior is announced, once."""
        prior, source, is_known = self.view.prior, self.source, self.is_scale_known
        apart = tuple[int, ...]()
        if isinstance(record, RobustEvaluations):
            apart = tuple(record.is_apart.nonzero().squeeze(-1).tolist())
            announce_apart(record, sorted({*apart} - {*self.apart}))
        if not is_known and source.is_inferred:
            is_known = announce_underflow(record.values, record.outcome_text)
        elif not is_known and not source.awaits_fit(prior):
            X = source.inputs(record.points(values.point))
            k_diag = float(prior.covar_module(X, diag=True).detach().mean())
            is_known = announce_scale(values.Y, prior.lam, k_diag, record.outcome_text)
        is_noise_known = self.is_noise_known or announce_noise(
            record, values, prior.lam
        )
        return replace(
            self, is_scale_known=is_known, is_noise_known=is_noise_known, apart=apart
        )

    def _draw(
        self,
        prior: Prior,
        record: Evaluations,
        values: FoldedEvaluations,
        generator: torch.Generator,
    ) -> Tensor:
        """Places of the next inducing points among the unique points; on the host."""
        is_inferred, ranks = self.source.is_inferred, self.source.ranks
        is_small = is_inferred and len(values) <= self.exact_size
        if self.sampler is None or is_small or self.view.takes_all(len(values)):
            return torch.arange(len(values))
        variance = self._variance_before(prior, record, values)
        fresh = not self.inducing and len(values) > 1
        sampler = self.initial_sampler if fresh else self.sampler
        if type(sampler) is PosteriorVarianceSampler and not is_inferred:
            leverage = variance / (prior.lam / values.counts)
            return ranks.once_drawing(
                generator, lambda: sampler.draw(leverage, generator)
            )
        data = evaluations_at(record, values)
        return ranks.once_drawing(
            generator,
            lambda: sample_inducing_points(
                sampler,
                prior.covar_module,
                self.source.inputs(data.X),
                prior.lam / data.counts,
                generator=generator,
                variance=variance.to(data.X.device),
                cap=self.max_inducing if is_inferred else None,
            ).cpu(),
        )

    @torch.no_grad()
    def _variance_before(
        self, prior: Prior, record: Evaluations, values: FoldedEvaluations
    ) -> Tensor:
        """Variances at the unique points with the inducing points there were."""
        if prior is self.view.prior:
            return self.view.variance(record, values.point)
        data = evaluations_at(record, values, values.places(self.inducing))
        X = self.source.inputs(data.X)
        if not self.inducing:
            return prior.covar_module(X, diag=True).cpu()
        blank = NystromPosterior.prior(prior.covar_module, X[data.chosen])
        posterior = blank.condition(X, data.Y, prior.lam / data.counts)
        return posterior.variance(X).cpu()

    def config(self, domain: Domain) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        return self.source.config(domain) | {
            "sampler": fingerprint(self.sampler, "sampler"),
            "initial_sampler": fingerprint(self.initial_sampler, "initial_sampler"),
            "max_memory": self.max_memory,
        }

    def state_dict(self) -> dict[str, Any]:
        """Hyperparameters, numbers of the inducing points, what was announced."""
        return {
            "prior": self.view.prior.state_dict(),
            "inducing": list(self.inducing),
            "num_rebuilt": self.view.num_rebuilt,
            "is_scale_known": self.is_scale_known,
            "is_noise_known": self.is_noise_known,
            "apart": list(self.apart),
        }

    def moved(
        self,
        domain: TableDomain,
        number: Mapping[int, int],
        record: Evaluations,
        num_learned: int,
    ) -> Self:
        """The same on another table.

        Args:
            domain: The table.
            number: Numbers of points there by those here.
            record: The evaluations by their numbers there.
            num_learned: How many of them were learned.
        """
        self.source.inputs.require_columns(domain)
        inducing = [number[point] for point in self.inducing]
        state = self.state_dict() | {"inducing": list(dict.fromkeys(inducing))}
        there = replace(self, view=self.view.on(domain, self.max_memory))
        return there.of_state(state, record, num_learned)

    def of_state(
        self, state: dict[str, Any], record: Evaluations, num_learned: int
    ) -> Self:
        """What a saved run had learned, to the bit, from `state_dict`."""
        inducing = state["inducing"]
        prior = self.source.initial()
        if num_learned > 0:
            prior = self.source.prior_of_state(state["prior"])
        view = self.view.blank(prior)
        rebuilt = state["num_rebuilt"] or num_learned
        for num in sorted({rebuilt, num_learned} - {0}):
            first = self._moved(record, num)
            values = first.folded(num)
            takes_all = self.sampler is None or view.takes_all(len(values))
            if num < num_learned and not takes_all:
                continue  # another table, for which this is too much
            every = torch.arange(len(values))
            chosen = every if takes_all else values.places(inducing)
            first, values = self._weighted(prior, first, values, chosen)
            view = view.learned(prior, first, values, chosen)
        return replace(
            self,
            view=view,
            inducing=tuple(inducing),
            is_scale_known=state["is_scale_known"],
            is_noise_known=state["is_noise_known"],
            apart=tuple(state.get("apart", ())),
            num_learned=num_learned,
        )


def announce_apart(record: RobustEvaluations, places: Sequence[int]) -> None:
    """Warn of evaluations that lie apart, by their places."""
    if places:
        others = record.others().values
        _warn_of_far_values(
            record,
            torch.tensor(places),
            others,
            "They are taken as a little beyond the others, and count less where the "
            "others contradict them. Correct those that are mistakes. With "
            "robust=False all are taken as they are.",
        )


def announce_far_values(record: Evaluations, num_known: int) -> None:
    """Warn of new values that lie apart from all others and are taken as they are.

    As values come nearer and nearer to a maximum the first ones lie apart too: those
    that were known are not looked at. Cost: O(n), and a sort where new values are
    beyond the others.

    Args:
        record: The evaluations.
        num_known: How many of them were known before.
    """
    known, new = record.values[:num_known], record.values[num_known:]
    if len(new) == 0:
        return
    if len(known) and known.min() <= new.min() and new.max() <= known.max():
        return
    is_apart = lie_apart(record.values)
    others = record.values[~is_apart]
    is_apart[:num_known] = False
    if is_apart.any():
        _warn_of_far_values(
            record,
            is_apart.nonzero().squeeze(-1),
            others,
            "They are taken as they are, and much of what is learned may rest on them. "
            "Correct those that are mistakes, and tell failures as failed. With "
            "robust=True such values count less.",
        )


def _warn_of_far_values(
    record: Evaluations, places: Tensor, others: Tensor, advice: str
) -> None:
    """Warn of values by their places; `others` are all that do not lie apart."""
    shown = short_list(record.evaluation_numbers(places), 10, show=str)
    warnings.warn(
        f"Values{record.outcome_text} lie far from all others, of which "
        f"the largest is {float(others.abs().max()):.6g} in size: evaluations {shown} "
        f"(counted from 0). {advice}",
        InputDataWarning,
        stacklevel=3,
    )


def announce_noise(record: Evaluations, values: FoldedEvaluations, lam: float) -> bool:
    """Warn of repeats that differ by more noise than a given `lam` expects.

    The pooled variance of evaluations about the mean of their point; O(n log n), once.
    """
    if (degrees := len(record) - len(values)) < ENOUGH_REPEATS:
        return False
    number, order = values.point.sort()
    mean = values.Y[order[torch.searchsorted(number, record.point)]]
    variance = float((record.values - mean).square().sum()) / degrees
    if variance > LARGEST_NOISE * lam:
        warnings.warn(
            f"Evaluations of the same point differ by a variance of {variance:.3g}"
            f"{record.outcome_text}, "
            f"{variance / lam:.3g} times lam={lam:.3g}: confidence bounds are too "
            f"narrow. Pass lam={variance:.3g} (and noise_variance={variance:.3g} to a "
            "strategy that takes it), or leave covar_module out.",
            InputDataWarning,
            stacklevel=2,
        )
    return True


def announce_underflow(Y: Tensor, outcome: str = "") -> bool:
    """Warn of feedback that differs by so little that it counts as all equal."""
    if is_spread(Y):
        return True
    spread = float(Y.max() - Y.min()) if len(Y) else 0.0
    if spread == 0 or least_deviation(Y) > SMALLEST_SPREAD:  # equal but for rounding
        return False
    warnings.warn(
        f"The feedback varies by {spread:.3g}{outcome}, whose square underflows: it "
        f"counts as all equal, without standard deviations; need {SMALLEST_SPREAD:.3g} "
        "or more. Rescale all feedback.",
        InputDataWarning,
        stacklevel=2,
    )
    return True


def announce_scale(Y: Tensor, lam: float, k_diag: float, outcome: str = "") -> bool:
    """Warn of feedback whose scale does not fit a given kernel."""
    if len(Y) < 2:
        return False
    spread, ours = float(Y.std()), (k_diag + lam) ** 0.5
    is_large = spread > LARGEST_SCALE * ours
    if not is_large and (len(Y) < ENOUGH_POINTS or spread == 0):
        return False
    if is_large or spread < SMALLEST_SCALE * ours:
        ratio = spread / ours
        warnings.warn(
            f"The feedback varies by {spread:.3g}{outcome} and what the kernel "
            "expects, with "
            f"lam, by {ours:.3g}: confidence bounds mean nothing. Divide the feedback "
            f"by {ratio:.3g}; or pass ScaleKernel with an outputscale of "
            f"{spread**2:.3g} and lam of {lam * ratio**2:.3g}; or leave covar_module "
            "out.",
            InputDataWarning,
            stacklevel=2,
        )
    return True
