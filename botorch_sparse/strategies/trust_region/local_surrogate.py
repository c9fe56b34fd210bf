"""What is learned near trust regions: their runs, and a posterior around them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import condition_with_constant_mean
from botorch_sparse.strategies.data.domain import BoxDomain, Domain
from botorch_sparse.strategies.data.run_record import (
    FoldedEvaluations,
    RunRecord,
    evaluations_at,
)
from botorch_sparse.strategies.surrogates.prior import PosteriorSettings, Prior
from botorch_sparse.strategies.surrogates.prior_fitting import (
    PriorSource,
    matern_kernel,
)
from botorch_sparse.strategies.trust_region.trust_region import (
    Region,
    fail_tolerance,
    is_better,
    side_weights,
)

# From numbers of points and their mean observations to what is compared, minus infinity
# where a point may not be a middle; all of `k`, on the host.
Score = Callable[[FoldedEvaluations], Tensor]

# Points of a posterior, the nearest ones.
MOST_POINTS, LEAST_POINTS = 2000, 200
# How far from a middle points are near, in sides of its region.
REACH = 2.0
# Points of a fit, half of them the nearest ones, half of the others.
FIT_POINTS = 300
# Iterations of a fit: the first of a run, and those that go on from the last one.
FIRST_STEPS, MORE_STEPS = 100, 30
# Noise variance, in prior variances, above which means and not values are compared.
NOISY = 0.01


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions, and the run of each trial; a value.

    Evaluations of points that nobody asked for belong to all runs that went on when
    they came.

    Attributes:
        regions: The regions.
        of_trial: Runs of all trials by their ids, on the host.
        num_initial: Points of a run before its region is used.
    """

    regions: tuple[Region, ...]
    of_trial: Tensor
    num_initial: int

    @classmethod
    def begun(cls, num_regions: int, num_initial: int) -> "Regions":
        """Those before any trial."""
        regions = tuple(Region(run) for run in range(num_regions))
        return cls(regions, torch.empty(0, dtype=torch.long), num_initial)

    def with_trials(self, runs: Sequence[int]) -> "Regions":
        """The same after new trials, O(n)."""
        new = torch.tensor(runs, dtype=torch.long)
        return replace(self, of_trial=torch.cat([self.of_trial, new]))

    def owns(self, region: Region, trial: Tensor) -> Tensor:
        """Which evaluations belong to a run, by the trials of the first `n` ones."""
        is_trial = trial >= 0
        run = torch.full_like(trial, -1)
        run[is_trial] = self.of_trial[trial[is_trial]]
        since = torch.arange(len(trial)) >= region.start
        return torch.where(is_trial, run == region.run, since)

    def values(self, trial: Tensor, record: RunRecord) -> FoldedEvaluations:
        """What the runs that go on know of the first evaluations."""
        is_live = torch.stack([self.owns(r, trial) for r in self.regions]).any(0)
        places = is_live.nonzero().squeeze(-1)
        return FoldedEvaluations.of(record.point[places], record.values[places])

    def num_missing(self, region: Region, trial: Tensor, pending: Tensor) -> int:
        """Points to draw before a region is used."""
        out = int((self.of_trial[pending] == region.run).sum())
        told = int(self.owns(region, trial).sum())
        return max(0, self.num_initial - told - out)

    def have_begun(self, trial: Tensor, num_before: int) -> bool:
        """Whether a region has its first points, and had not at `num_before`."""
        for region in self.regions:
            is_own = self.owns(region, trial)
            if int(is_own[:num_before].sum()) < self.num_initial <= int(is_own.sum()):
                return True
        return False

    def after(
        self, record: RunRecord, num_before: int, tolerance: int, score: Score
    ) -> "Regions":
        """The same after feedback; regions that are too small begin anew."""
        regions, last = list[Region](), max(region.run for region in self.regions)
        for region in self.regions:
            after = self._after(region, record, num_before, tolerance, score)
            if after.is_over:
                last += 1
                after = Region(last, start=len(record))
            regions.append(after)
        return replace(self, regions=tuple(regions))

    def _after(
        self,
        region: Region,
        record: RunRecord,
        num_before: int,
        tolerance: int,
        score: Score,
    ) -> Region:
        """A region after feedback."""
        own = self.owns(region, record.trial).nonzero().squeeze(-1)
        num_known = int((own < num_before).sum())
        if len(own) == num_known:
            return region
        values = FoldedEvaluations.of(record.point[own], record.values[own])
        scores = score(values)
        if scores.max() == -torch.inf:
            return region
        center = int(values.point[scores.argmax()])
        if num_known < self.num_initial:
            return replace(region, center=center)
        is_old = torch.isin(values.point, record.point[own[:num_known]])
        is_success = is_better(scores[~is_old], scores[is_old])
        num = len(own) - num_known
        after = region.after(num, is_success=is_success, tolerance=tolerance)
        return replace(after, center=center)

    def state_dict(self) -> dict[str, Any]:
        """Plain values, and the trials' as a tensor."""
        regions = [asdict(region) for region in self.regions]
        return {"regions": regions, "of_trial": self.of_trial.clone()}

    def of_state(self, state: dict[str, Any]) -> "Regions":
        """Those that a state came from."""
        regions = tuple(Region(**region) for region in state["regions"])
        return replace(self, regions=regions, of_trial=state["of_trial"].cpu())


@dataclass(frozen=True, eq=False)
class LocalSurrogate:
    """A sparse posterior near the regions of a run; a value.

    Attributes:
        source: Makes the prior.
        domain: The box.
        prior: Kernel, noise and unit.
        runs: The regions.
        max_inducing: Inducing points at most.
        tolerance: Evaluations without success after which a region is halved.
        num_learned: Evaluations that were learned.
        posterior: Their posterior, once it was asked for.
    """

    source: PriorSource
    domain: BoxDomain
    prior: Prior
    runs: Regions
    max_inducing: int
    tolerance: int
    num_learned: int = 0
    posterior: NystromPosterior | None = None
    model: ClassVar[None] = None  # no BoTorch model
    inducing: ClassVar[tuple[()]] = ()  # they are of the posterior near the regions

    @classmethod
    def begun(
        cls,
        domain: BoxDomain,
        settings: PosteriorSettings,
        *,
        num_regions: int,
        max_inducing: int,
        batch_size: int,
    ) -> Self:
        """The surrogate before any evaluation."""
        source = PriorSource(domain, settings, inferred_kernel=matern_kernel)
        return cls(
            source,
            domain,
            source.initial(),
            Regions.begun(num_regions, settings.num_initial),
            max_inducing,
            fail_tolerance(domain.dim, batch_size),
        )

    @property
    def regions(self) -> tuple[Region, ...]:
        """The present regions."""
        return self.runs.regions

    def learn(self, record: RunRecord, generator: torch.Generator) -> Self:
        """Fit where that is due, and move the regions on."""
        prior = self._fitted(record, generator)
        fitted = replace(self, prior=prior, num_learned=len(record), posterior=None)
        score = fitted._score(record)
        runs = self.runs.after(record, self.num_learned, self.tolerance, score)
        return replace(fitted, runs=runs)

    def _fitted(self, record: RunRecord, generator: torch.Generator) -> Prior:
        """The prior after a fit, where one is due; a lone region's begins anew."""
        prior = self.prior
        begins = self.runs.have_begun(record.trial, prior.last_fit or 0)
        is_due = begins or self.source.is_due(prior.last_fit, record)
        if self.source.settings.refit is None or not is_due:
            return prior
        values = self.values(record, len(record))
        if len(values) < 3 or not bool(values.Y.min() < values.Y.max()):
            return prior
        if begins and len(self.regions) == 1:
            prior = replace(prior, hyperparameters=None)
        steps = MORE_STEPS if prior.hyperparameters else FIRST_STEPS
        few = fit_points(values, generator)
        return self.source.fitted(prior, record, generator, few, steps)

    def _score(self, record: RunRecord) -> Score:
        """What middles and successes go by."""
        posterior, known = None, torch.tensor([])
        if self._is_noisy():
            known = self.values(record, self.num_learned).point[:MOST_POINTS]
            posterior = self.posterior_of(record)

        @torch.no_grad()
        def score(values: FoldedEvaluations) -> Tensor:
            X = record.points(values.point)
            Y = values.Y
            if posterior is not None:
                mean = posterior.moments(self.source.inputs(X)).mean
                is_known = torch.isin(values.point, known)  # elsewhere it extrapolates
                Y = (self.prior.scale * mean.cpu()).where(is_known, -torch.inf)
            return Y.where(self.domain.box.is_feasible(X).cpu(), -torch.inf)

        return score

    def _is_noisy(self) -> bool:
        """Whether a mean says more of a point than its observation."""
        X = self.source.inputs(self.domain.example_rows())
        variance = self.prior.covar_module(X, diag=True).detach().mean()
        return self.prior.lam > NOISY * float(variance)

    def values(self, record: RunRecord, num: int) -> FoldedEvaluations:
        """What runs know of the first evaluations, points near the middles first."""
        values = self.runs.values(record.trial[:num], record)
        X = self.source.inputs(record.points(values.point))
        centers = self.source.inputs(self.centers(record, self.regions))
        lengths = [r.length for r in self.regions if r.center is not None]
        sides = X.new_tensor(lengths).unsqueeze(-1) * self.side_weights()
        return at(values, nearest(X, centers, sides * self._span()).cpu())

    def centers(self, record: RunRecord, regions: Sequence[Region]) -> Tensor:
        """The middles of regions, `r x d`."""
        points = [region.center for region in regions if region.center is not None]
        return record.points(torch.tensor(points, dtype=torch.long))

    def _span(self) -> Tensor:
        """Sides of the box in units of the inputs, `d`."""
        low, high = self.source.inputs(self.domain.box.bounds)
        return high - low

    def side_weights(self) -> Tensor:
        """What multiplies the length of a region in each feature, `d`."""
        return side_weights(self.prior.covar_module, self._span())

    def posterior_of(self, record: RunRecord) -> NystromPosterior:
        """The posterior of what was learned."""
        if self.posterior is not None:
            return self.posterior
        values = self.values(record, self.num_learned)
        values = at(values, torch.arange(min(len(values), MOST_POINTS)))
        most = self.max_inducing
        return local_posterior(self.source, self.prior, record, values, most)

    @torch.no_grad()
    def predict(self, X: Tensor, record: RunRecord) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation at `k x d` points, in units of Y."""
        inputs = self.source.inputs(X.to(self.domain.box.bounds))
        mean, variance = self.posterior_of(record).moments(inputs)
        return self.prior.scale * mean, self.prior.scale * variance.sqrt()

    def certificate(self, record: RunRecord) -> None:
        """None: its posterior is near the regions alone."""

    def clear(self) -> None:
        """Nothing is shared with another value."""

    def config(self, domain: Domain) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        return self.source.config(domain) | {
            "num_regions": len(self.regions),
            "max_inducing_points": self.max_inducing,
        }

    def state_dict(self) -> dict[str, Any]:
        """Hyperparameters, regions, and the trials' runs."""
        return {"prior": self.prior.state_dict(), "runs": self.runs.state_dict()}

    def of_state(
        self, state: dict[str, Any], record: RunRecord, num_learned: int
    ) -> Self:
        """What a saved run had learned, to the bit, from `state_dict`."""
        return replace(
            self,
            prior=self.source.prior_of_state(state["prior"]),
            runs=self.runs.of_state(state["runs"]),
            num_learned=num_learned,
            posterior=None,
        )


def at(values: FoldedEvaluations, places: Tensor) -> FoldedEvaluations:
    """Some points, in another order."""
    return FoldedEvaluations(
        values.point[places], values.Y[places], values.counts[places]
    )


def fit_points(
    values: FoldedEvaluations, generator: torch.Generator
) -> FoldedEvaluations:
    """Points for a fit: half of them the first ones, and some of the others."""
    num, half = len(values), FIT_POINTS // 2
    if num <= FIT_POINTS:
        return values
    others = half + torch.randperm(num - half, generator=generator)[:half]
    return at(values, torch.cat([torch.arange(half), others]))


def nearest(
    X: Tensor, centers: Tensor, sides: Tensor, least: int = LEAST_POINTS
) -> Tensor:
    """Places of the points that a posterior of some regions is of, the nearest first.

    Those within twice its sides of a middle, and others until there are `least`: values
    from far away have a range in which the ones in a small region would be equal.
    Each region has its nearest point first, then each its second, and so on.

    Args:
        X: `n x d` points.
        centers: `r x d` middles; without any all points stay, in their order.
        sides: `r x d` sides of the regions.
        least: Points that stay at least.

    Returns:
        Places in the rows of `X`. Cost: O(r n d) time and memory, O(r n log n).
    """
    if not len(centers):
        return torch.arange(len(X), device=X.device)
    away = (X - centers.unsqueeze(-2)) / sides.unsqueeze(-2)
    turn = away.norm(dim=-1).argsort(dim=-1, stable=True).argsort(dim=-1).amin(0)
    is_far = (away.abs().amax(-1) > REACH).all(0)
    order = (turn + len(X) * is_far).argsort(stable=True)
    return order[: max(least, len(X) - int(is_far.sum()))]


@torch.no_grad()
def local_posterior(
    source: PriorSource,
    prior: Prior,
    record: RunRecord,
    values: FoldedEvaluations,
    most: int,
) -> NystromPosterior:
    r"""The posterior of values whose first points are inducing points.

    What inducing points leave open of another point counts as noise of it, so that
    points beside them tell what they can and no more (the FITC approximation of
    [Snelson2006]_): :math:`d_i = \lambda / n_i + k(x_i, x_i) - \phi(x_i)^\top
    \phi(x_i)`.

    Args:
        source: Makes the inputs.
        prior: Kernel, noise and unit.
        record: Where the points are.
        values: `n` values at points, the most important ones first.
        most: Inducing points at most, `m`.

    Returns:
        The posterior in units of the prior's scale. Cost: O(n m^2).
    """
    data = evaluations_at(record, values)
    X, Y = source.inputs(data.X), data.Y / prior.scale
    mean = prior.mean_module
    blank = NystromPosterior.prior(prior.covar_module, X[:most], mean_module=mean)
    noise = prior.lam / data.counts
    noise[most:] += blank.residual(X[most:], blank.features(X[most:]))
    if mean is None:
        return condition_with_constant_mean(blank, X, Y, noise)
    return blank.condition(X, Y, noise)
