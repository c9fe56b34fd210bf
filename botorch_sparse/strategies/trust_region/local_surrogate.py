"""What is learned near trust regions: a posterior of each outcome around them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import torch
from botorch.utils.sampling import manual_seed
from torch import Tensor

from botorch_sparse.pools.path_maximizers import maximize_paths, upper_bounds
from botorch_sparse.pools.sample_paths import NUM_FEATURES, SamplePaths
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies.data.domain import BoxDomain, Domain, draw_seed
from botorch_sparse.strategies.data.preference import Preference
from botorch_sparse.strategies.data.run_record import (
    FoldedEvaluations,
    OneOutcome,
    RunRecord,
    evaluations_at,
)
from botorch_sparse.strategies.surrogates.inferred_kernels import matern_kernel
from botorch_sparse.strategies.surrogates.log_warp import LogWarp
from botorch_sparse.strategies.surrogates.prior import PosteriorSettings, Prior
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource, is_spread
from botorch_sparse.strategies.trust_region.axes import (
    SKEWED,
    Frame,
    axes_of,
    local_hessian,
    sizes_of_model,
)
from botorch_sparse.strategies.trust_region.regions import Judge, Regions, shares
from botorch_sparse.strategies.trust_region.trust_region import (
    Region,
    fail_tolerance,
    maximize_in_region,
    side_weights,
    smallest_length,
)

# Points of a posterior, the nearest ones.
MOST_POINTS, LEAST_POINTS = 2000, 200
# How far from a middle points are near, in sides of its region.
REACH = 2.0
# Points of a fit, half of them the nearest ones, half of the others.
FIT_POINTS = 300
# Iterations of a fit: the first of a run, and those that go on from the last one.
FIRST_STEPS, MORE_STEPS = 100, 30
# The least noise variance, in variances of the feedback that is fitted: near an optimum
# one value is a little better than another.
LEAST_NOISE = 1e-8
# Length of a region below which the priors of its kernel shrink with it. Above, short
# lengthscales would have a fit follow ripples, of which many optima come.
SMALL_LENGTH = 1 / 16
# Of paths that keep to the mean, the least factor of how far they are from it.
LEAST_DEVIATION = 0.01
# Points of a batch that differ by less, in sides of their region, are as good as one.
NEAR = 1e-3
# Failed points are this many times as far as points that were evaluated, of so many of
# each. Where half of the domain failed, 27 and 34 of 300 evaluations did in two runs,
# and 206 and 242 before; a factor of 1 had 117 and 124.
FAR_FROM_FAILED, MOST_AROUND = 2.0, 500


@dataclass(frozen=True, eq=False)
class LocalSurrogate:
    """A sparse posterior of each outcome near the regions; a value.

    Outcomes are independent of each other. Each learns from the reports that have it.

    Attributes:
        sources: Make the priors, from the same inputs.
        domain: The box.
        priors: Kernel, noise and unit of each of the `k` outcomes.
        runs: The regions.
        max_inducing: Inducing points at most, of each posterior.
        tolerance: Evaluations without success after which a region is halved.
        num_learned: Reports that were learned.
        posteriors: Their `k` posteriors, once they were asked for; else none.
    """

    sources: tuple[PriorSource, ...]
    domain: BoxDomain
    priors: tuple[Prior, ...]
    runs: Regions
    max_inducing: int
    tolerance: int
    num_learned: int = 0
    posteriors: tuple[NystromPosterior, ...] = ()
    model: ClassVar[None] = None  # no BoTorch model
    inducing: ClassVar[tuple[()]] = ()  # they are of the posteriors near the regions

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
        """The surrogate of one outcome before any evaluation."""
        source = PriorSource(
            domain, settings, inferred_kernel=matern_kernel, least_noise=LEAST_NOISE
        )
        return cls(
            (source,),
            domain,
            (source.initial(),),
            Regions.begun(
                num_regions, settings.num_initial, smallest_length(domain.box)
            ),
            max_inducing,
            fail_tolerance(domain.dim, batch_size),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The surrogate of several outcomes with the same regions."""
        sources = tuple(part.source for part in parts)
        priors = tuple(part.priors[0] for part in parts)
        return replace(parts[0], sources=sources, priors=priors)

    @property
    def source(self) -> PriorSource:
        """Makes the inputs of all kernels."""
        return self.sources[0]

    @property
    def axes(self) -> Tensor | None:
        """The axes of a turned region, see `axes_of`; None for features."""
        return self.source.inputs.axes

    @property
    def regions(self) -> tuple[Region, ...]:
        """The present regions."""
        return self.runs.regions

    @property
    def posterior(self) -> Any:
        """The posterior, or `k` of several outcomes; None before they were built."""
        if len(self.priors) == 1:
            return self.posteriors[0] if self.posteriors else None
        return self.posteriors or None

    def learn(self, record: RunRecord, generator: torch.Generator) -> Self:
        """Turn a region and fit where that is due, and move the regions on."""
        turned, may_turn = self, self._may_turn(record)
        outcomes = [OneOutcome(record, column) for column in range(len(self.priors))]
        if any(map(self._is_due, outcomes)):
            # Not without a fit: lengthscales are of the axes.
            turned = self._turned(record) if may_turn else self._along(None)
        priors = tuple(
            turned._fitted(prior, one, generator)
            for prior, one in zip(self.priors, outcomes, strict=True)
        )
        num = len(record)
        fitted = replace(turned, priors=priors, num_learned=num, posteriors=())
        runs = turned.runs.after(
            record,
            self.num_learned,
            self.tolerance,
            fitted._judge(record),
            may_turn=may_turn,
            box=self.domain.box if self._is_simple else None,
        )
        return replace(fitted, runs=runs)._rewarped(record)

    def _rewarped(self, record: RunRecord) -> Self:
        """The same with a warp, and its unit, of what is known now.

        Those of the last fit know no better value since, and where a program
        standardizes results anew they may be of other ones.
        """
        (prior, *others), warp = self.priors, self.priors[0].warp
        if others or warp is None:
            return self
        now = LogWarp.of(self.values(record, self.num_learned).Y) or warp
        prior = replace(prior, warp=now, scale=prior.scale * now.unit / warp.unit)
        return replace(self, priors=(prior,))

    @property
    def _is_simple(self) -> bool:
        """Whether each point between the bounds is one of the domain."""
        box = self.domain.box
        cuts = [box.inequality_constraints, box.equality_constraints]
        return not (any(cuts) or box.fixed_features or len(box.discrete))

    def _may_turn(self, record: RunRecord) -> bool:
        """Whether the region may have axes that are not the features.

        One region of one outcome, with a kernel that is inferred, in a box without
        constraints, and few enough features for a quadratic model of what is known.
        Noise would be taken for curvature.
        """
        box, source = self.domain.box, self.source
        least, most = sizes_of_model(box.dim)
        return (
            self._is_simple
            and source.is_inferred
            and not source.inputs.campaigns
            and box.dim > 1
            and most <= MOST_POINTS
            and len(record) >= least
            and len(self.regions) == len(self.priors) == 1
            and not self._is_noisy(self.priors[0])
        )

    def _turned(self, record: RunRecord) -> Self:
        """The same with axes for what is known, if its region is small.

        The axes are of the middle before the present reports. A region that is turned
        here may get longer. One that was turned in place of its end has its axes from
        the next fit on.
        """
        (region,) = self.regions
        if region.center is None or self.reach == 1.0:
            return self._along(None)
        values = OneOutcome(record, 0).folded()
        X, center = record.points(values.point), self.centers(record, [region])
        U = self.source.inputs(X) - self.source.inputs(center)
        hessian = local_hessian(U.cpu(), -values.Y.double())
        if hessian is None:
            return self._along(None)
        if self.axes is not None:
            inverse = torch.linalg.inv(self.axes).cpu()
            hessian = inverse.mT @ hessian @ inverse
        axes, longer = axes_of(hessian)
        if longer > SKEWED and not region.is_turned:
            region = region.turned()
        runs = replace(self.runs, regions=(region,))
        return replace(self, runs=runs)._along(axes if region.is_turned else None)

    def _along(self, axes: Tensor | None) -> Self:
        """The same with other axes."""
        if axes is None and self.axes is None:
            return self
        there = None if axes is None else axes.to(self.domain.device)
        sources = tuple(source.turned(there) for source in self.sources)
        return replace(self, sources=sources)

    def _fitted(
        self, prior: Prior, one: OneOutcome, generator: torch.Generator
    ) -> Prior:
        """A prior after a fit, where one is due; a lone region's begins anew."""
        source = self.sources[one.column]
        prior = source.in_units(prior, one.values)
        if not self._is_due(one):
            return prior
        begins = self.runs.have_begun(one, prior.last_fit or 0)
        values = self.values(one.record, len(one.record), one.column)
        if len(values) < 3 or not is_spread(values.Y):
            return prior
        if begins and len(self.regions) == 1:
            prior = replace(prior, hyperparameters=None)
        may_warp = source.is_inferred and len(self.priors) == 1
        warp = LogWarp.of(values.Y) if may_warp else None
        prior = replace(prior, warp=None if prior.warp is None else warp)
        few = fit_points(values, generator)
        return self._fitted_to(few, prior, warp, one, generator)

    def _fitted_to(
        self,
        few: FoldedEvaluations,
        prior: Prior,
        warp: LogWarp | None,
        one: OneOutcome,
        generator: torch.Generator,
    ) -> Prior:
        """A prior after a fit to some points.

        Each time that a run has twice as many, with and without a warp: the better one.
        """
        source = self.sources[one.column]
        if source.is_inferred and self.reach < 1.0:
            # A small region is to its kernel what the box is at first.
            source = source.within(self.reach)
        steps = MORE_STEPS if prior.hyperparameters else FIRST_STEPS
        fitted = source.fitted(prior, one, draw_seed(generator), few, steps)
        if warp is None or not self.runs.have_doubled(one, prior.last_fit or 0):
            return fitted
        return source.on_better_scale(fitted, warp, one, draw_seed(generator), few)

    def _is_due(self, one: OneOutcome) -> bool:
        """Whether the prior of an outcome is to be fitted."""
        source, last = self.sources[one.column], self.priors[one.column].last_fit
        if source.settings.refit is None:
            return False
        return self.runs.have_begun(one, last or 0) or source.is_due(last, one)

    def _judge(self, record: RunRecord) -> Judge:
        """What middles and successes go by; under noise means of the posteriors."""
        noisy = [c for c, prior in enumerate(self.priors) if self._is_noisy(prior)]
        posteriors = {column: self._posterior(record, column) for column in noisy}
        known = {
            column: self.values(record, self.num_learned, column).point[:MOST_POINTS]
            for column in noisy
        }

        @torch.no_grad()
        def judge(point: Tensor, Y: Tensor) -> Tensor:
            X, Y = record.points(point), Y.clone()
            for column, posterior in posteriors.items():
                mean = posterior.moments(self.source.inputs(X)).mean
                is_known = torch.isin(point, known[column])  # it extrapolates elsewhere
                observed = Y[:, column] if shares(record) else torch.nan
                mean = self.priors[column].restore(mean.cpu())
                Y[:, column] = mean.where(is_known, observed)
            is_feasible = self.domain.box.is_feasible(X).cpu()
            return Y.where(is_feasible.unsqueeze(-1), torch.nan)

        return judge

    def _is_noisy(self, prior: Prior) -> bool:
        """Whether a mean says more of a point than its observation."""
        return prior.is_noisy(self.source.inputs(self.domain.example_rows()))

    def values(
        self, record: RunRecord, num: int, outcome: int = 0
    ) -> FoldedEvaluations:
        """What regions know of the first reports, points near the middles first."""
        values = self.runs.values(record, num, outcome)
        X = self.source.inputs(record.points(values.point))
        centers = self.source.inputs(self.centers(record, self.regions))
        lengths = [r.length for r in self.regions if r.center is not None]
        sides = self.source.inputs.span.to(X).repeat(len(lengths), 1)
        weights = self.side_weights()[self.domain.discrete.columns(self.domain.dim)]
        sides[:, self._ordered] *= X.new_tensor(lengths).unsqueeze(-1) * weights.to(X)
        return values.at(nearest(X, centers, sides).cpu())

    def centers(self, record: RunRecord, regions: Sequence[Region]) -> Tensor:
        """The middles of regions, `r x d`."""
        points = [region.center for region in regions if region.center is not None]
        return record.points(torch.tensor(points, dtype=torch.long))

    @property
    def _ordered(self) -> list[int]:
        """The inputs in which regions have sides: all but those of categories."""
        features = self.domain.discrete.columns(self.domain.dim)
        return list(range(len(features))) if self.source.is_inferred else features

    def side_weights(self) -> Tensor:
        """What multiplies the length of a region in each feature, `d`.

        One in categories.
        """
        kernels, span = [p.covar_module for p in self.priors], self.source.inputs.span
        weights = span.new_ones(self.domain.dim)
        ordered = self.domain.discrete.columns(self.domain.dim)
        weights[ordered] = side_weights(kernels, span, self._ordered)
        return weights

    def posteriors_of(self, record: RunRecord) -> tuple[NystromPosterior, ...]:
        """The posteriors of what was learned."""
        columns = range(len(self.priors))
        return self.posteriors or tuple(self._posterior(record, c) for c in columns)

    def _posterior(self, record: RunRecord, column: int) -> NystromPosterior:
        """The posterior of an outcome."""
        prior = self.priors[column]
        values = self.values(record, self.num_learned, column)
        values = values.at(torch.arange(min(len(values), MOST_POINTS)))
        if len(values):
            most = self.max_inducing
            return local_posterior(self.source, prior, record, values, most)
        return prior.without_data(self.source.inputs(self.domain.example_rows()))

    @torch.no_grad()
    def predict(self, X: Tensor, record: RunRecord) -> tuple[Tensor, Tensor]:
        """Means and standard deviations at `q x d` points, in units of Y.

        `q` of one outcome, `q x k` of several. On a warped scale means are medians.
        """
        inputs = self.source.inputs(X.to(self.domain.box.bounds))
        means, sds = list[Tensor](), list[Tensor]()
        for column, posterior in enumerate(self.posteriors_of(record)):
            mean, variance = posterior.moments(inputs)
            prior, values = self.priors[column], OneOutcome(record, column).values
            means.append(prior.restore(mean))
            sd = prior.restore_deviation(variance.sqrt(), mean)
            sds.append(self.sources[column].deviation(sd, values))
        if len(means) == 1:
            return means[0], sds[0]
        return torch.stack(means, dim=-1), torch.stack(sds, dim=-1)

    @torch.no_grad()
    def best_points(
        self,
        regions: Sequence[Region],
        candidates: Sequence[Tensor],
        num: int,
        record: RunRecord,
        generator: torch.Generator,
        failed: Tensor,
    ) -> list[tuple[Region, Tensor]]:
        """Where sample paths are best, each path at another point.

        Of several outcomes each path has its own random scalarization. Once all regions
        are small, half of the paths of one outcome keep to the mean, and are maximized
        within their region from there, but for points that are near to another one.

        Args:
            regions: Those that are ready.
            candidates: `k x d` points of each of them.
            num: Paths.
            record: All reports.
            generator: Decides on the paths.
            failed: Numbers of points that failed; maxima keep away from them too.

        Returns:
            Regions and `d` coordinates of at most `num` points.
        """
        posteriors, X = self.posteriors_of(record), torch.cat([*candidates])
        sizes = torch.tensor([len(part) for part in candidates])
        region_of = torch.arange(len(regions)).repeat_interleave(sizes)
        levels, spread, is_greedy = upper_bounds, None, torch.zeros(num).bool()
        with manual_seed(draw_seed(generator)):
            if len(posteriors) > 1:
                preference = Preference.of(record)
                weights = preference.draw_weights(num).to(X.device)
                levels = partial(self._levels, preference, weights.double())
            elif self.reach < 1.0:
                spread, is_greedy = greedy_spread(num)
            paths = [
                SamplePaths.draw(each, num, NUM_FEATURES, 0.0, spread)
                for each in posteriors
            ]
        once = SelectableRows(once=True)
        rows = maximize_paths(self.source.inputs(X), paths, once, levels=levels)
        home, points = region_of[rows], X[rows]
        for number, region in enumerate(regions):
            which = (is_greedy[: len(rows)] & (home == number)).nonzero().squeeze(-1)
            if len(which):
                points = self._maximized(
                    paths[0], points, which, region, record, failed
                )
        return [(regions[i], x) for i, x in zip(home.tolist(), points, strict=True)]

    @property
    def reach(self) -> float:
        """Length of the largest region in units of one that counts as small; at most 1.

        And 1 where a feature is discrete: functions of it are not smooth.
        """
        if len(self.domain.discrete):
            return 1.0
        return min(1.0, max(r.length for r in self.regions) / SMALL_LENGTH)

    def frame(self, region: Region, record: RunRecord) -> Frame:
        """Where a region is searched."""
        center = self.centers(record, [region])[0]
        sides = region.length * self.side_weights()
        return Frame.of(self.domain.box, self.source, center, sides)

    def _maximized(
        self,
        paths: SamplePaths,
        points: Tensor,
        which: Tensor,
        region: Region,
        record: RunRecord,
        failed: Tensor,
    ) -> Tensor:
        """Points of a batch, some of which are now where their paths are best nearby.

        Paths near to the mean have maxima that are near to each other, and in corners
        of the region the same one. A path whose maximum was measured, or is near to
        another point or a failed one, stays where it was.
        """
        frame, some = self.frame(region, record), paths.subset(which)
        box, Z, points = frame.box, frame.coordinates(points).clone(), points.clone()
        ends = maximize_in_region(
            lambda Z: some.at_own_points(self.source.inputs(frame.points(Z))),
            Z[which],
            box,
            frame.center,
            frame.sides,
        )
        near = NEAR * frame.widths
        found = self.domain.box.clamp(frame.points(ends))
        ends = frame.coordinates(found)
        remoteness = self.remoteness(region, found, record, failed)
        may_go = (remoteness > FAR_FROM_FAILED).tolist()
        columns = which.tolist(), ends, found, may_go
        for place, end, x, is_away in zip(*columns, strict=True):
            number = record.number_of(x.cpu())
            is_measured = number is not None and bool((record.point == number).any())
            is_near = ((Z - end).abs() < near).all(-1)
            is_near[place] = False
            if is_away and not is_measured and not bool(is_near.any()):
                Z[place], points[place] = end, x
        return points

    def remoteness(
        self, region: Region, X: Tensor, record: RunRecord, failed: Tensor
    ) -> Tensor:
        """How many times as far as evaluated points failed points are, of `k` points.

        Infinite unless failures have a place: of the points nearest to failed ones more
        have failed than of all, by two standard deviations. Crashes that may happen
        anywhere say nothing. Of either kind the points count that are nearest to the
        middle. Cost: O(k d) for each of at most 1,000.
        """
        if len(failed) < 2 or not len(record):
            return torch.full((len(X),), torch.inf, device=X.device)
        frame = self.frame(region, record)

        def around(numbers: Tensor) -> Tensor:
            Z = frame.coordinates(record.points(numbers)) / frame.widths
            away = (Z - frame.center / frame.widths).square().sum(-1)
            return Z[away.topk(min(len(Z), MOST_AROUND), largest=False).indices]

        wrong, right = around(failed), around(record.point.unique())
        apart = torch.cdist(wrong, wrong).fill_diagonal_(torch.inf).amin(-1)
        share = (apart < torch.cdist(wrong, right).amin(-1)).double().mean()
        rate = len(wrong) / (len(wrong) + len(right))
        if share < rate + 2 * (rate * (1 - rate) / len(wrong)) ** 0.5:
            return torch.full((len(X),), torch.inf, device=X.device)
        Z = frame.coordinates(X) / frame.widths
        return torch.cdist(Z, wrong).amin(-1) / torch.cdist(Z, right).amin(-1)

    def _levels(
        self,
        preference: Preference,
        weights: Tensor,
        lower: list[Tensor],
        upper: list[Tensor],
    ) -> list[Tensor]:
        """What is maximized of `b x q` values of each outcome's paths: bounds alike."""
        scaled = [p.scale * f for p, f in zip(self.priors, upper, strict=True)]
        return preference.levels(torch.stack(scaled).movedim(0, -1), weights)

    def certificate(self, record: RunRecord) -> None:
        """None: its posteriors are near the regions alone."""

    def clear(self) -> None:
        """Nothing is shared with another value."""

    def config(self, domain: Domain) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        configs = [source.config(domain) for source in self.sources]
        own = configs[0] if len(configs) == 1 else {"models": configs}
        return own | {
            "num_regions": len(self.regions),
            "max_inducing_points": self.max_inducing,
        }

    def state_dict(self) -> dict[str, Any]:
        """Hyperparameters, regions and their axes, and the trials' runs."""
        priors = [prior.state_dict() for prior in self.priors]
        axes = None if self.axes is None else self.axes.cpu()
        return {"priors": priors, "runs": self.runs.state_dict(), "axes": axes}

    def of_state(
        self, state: dict[str, Any], record: RunRecord, num_learned: int
    ) -> Self:
        """What a saved run had learned, to the bit, from `state_dict`."""
        loaded = replace(
            self._along(state["axes"]),
            priors=tuple(
                source.prior_of_state(prior)
                for source, prior in zip(self.sources, state["priors"], strict=True)
            ),
            runs=self.runs.of_state(state["runs"]),
            num_learned=num_learned,
            posteriors=(),
        )
        return loaded._rewarped(record)


def greedy_spread(num: int) -> tuple[Tensor, Tensor]:
    """How far paths of a batch are from the mean, and which of them keep to it.

    Half of them, by chance. Their factors are from a hundredth to one, equally spaced
    in logarithms but for a random part. So a batch goes to where the mean is best and
    to where it may be better. In twenty dimensions whole paths are best in some corner
    of a region, of which little is known.
    """
    u = (torch.arange(num) + torch.rand(num, dtype=torch.float64)) / num
    is_greedy = u < 0.5
    return torch.where(is_greedy, LEAST_DEVIATION ** (1 - 2 * u), 1.0), is_greedy


def fit_points(
    values: FoldedEvaluations, generator: torch.Generator
) -> FoldedEvaluations:
    """Points for a fit: half of them the first ones, and some of the others."""
    num, half = len(values), FIT_POINTS // 2
    if num <= FIT_POINTS:
        return values
    others = half + torch.randperm(num - half, generator=generator)[:half]
    return values.at(torch.cat([torch.arange(half), others]))


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
        The posterior of what `Prior.standardize` makes. Cost: O(n m^2).
    """
    data = evaluations_at(record, values)
    X, Y = source.inputs(data.X), prior.standardize(data.Y)
    blank = prior.without_data(X[:most])
    noise = prior.lam / data.counts
    noise[most:] += blank.residual(X[most:], blank.features(X[most:]))
    return prior.condition(blank, X, Y, noise)
