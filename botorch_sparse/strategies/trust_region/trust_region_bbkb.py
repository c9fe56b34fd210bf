r"""Trust region Bayesian optimization with a sparse posterior.

Where the parts of [Eriksson2019]_ are:

=================================  ==================================================
lengths                            `region.py`
successes, failures, restarts      `runs.py`
candidates                         `candidates.py`
the posterior                      `local_posterior.py`
batches of several regions         `TrustRegionBBKB._best_points`
=================================  ==================================================
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, Unpack, get_args

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import (
    as_points,
    check_choice,
    check_keywords,
    check_whole,
    part_of,
)
from botorch_sparse.batching.rules import Rule, rule_of
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.pools.nystrom_pool import NystromPool
from botorch_sparse.pools.sample_paths import path_maximizers, require_random_features
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.core.model_strategy import RunOptions
from botorch_sparse.strategies.core.strategy import HAS_A_PLAN, Strategy
from botorch_sparse.strategies.data.box import DomainOptions
from botorch_sparse.strategies.data.domain import BoxDomain, box_of
from botorch_sparse.strategies.data.evaluations import BatchRecord, FoldedValues
from botorch_sparse.strategies.data.feedback import Points
from botorch_sparse.strategies.data.history import Batch
from botorch_sparse.strategies.seeding import draw_seed
from botorch_sparse.strategies.surrogates.posterior_settings import (
    ModelSettings,
    PosteriorOptions,
)
from botorch_sparse.strategies.surrogates.prior import Prior, PriorSource
from botorch_sparse.strategies.trust_region.local_posterior import (
    MOST_POINTS,
    at,
    few_of,
    local_posterior,
    nearest,
)
from botorch_sparse.strategies.trust_region.region_candidates import candidates_around
from botorch_sparse.strategies.trust_region.regions import Regions, Score
from botorch_sparse.strategies.trust_region.trust_region import (
    Region,
    fail_tolerance,
    side_weights,
)
from botorch_sparse.strategies.ucb import PRACTICAL_BETA

Acquisition: TypeAlias = Literal["thompson", "ucb"]

DEFAULT_BATCH_SIZE = 20
MAX_INDUCING = 500
# Candidates of a region, by the number of features [Eriksson2019]_.
FEWEST_CANDIDATES, MOST_CANDIDATES, CANDIDATES_PER_FEATURE = 2000, 5000, 200
# Iterations of a fit: the first of a run, and those that go on from the last one.
FIRST_STEPS, MORE_STEPS = 100, 30
# Noise variance, in prior variances, above which means and not values are compared.
NOISY = 0.01


class TrustRegionOptions(DomainOptions, total=False):
    """Keyword arguments of `TrustRegionBBKB` beside its own."""

    mean_module: Mean | None
    num_initial: int | None
    refit: RefitSchedule | None
    minimize: bool
    seed: int


class TrustRegionBBKB(Strategy):
    r"""Trust regions around a sparse posterior, for 10^4 evaluations [Eriksson2019]_.

    A region is a box around the best point of its run, with sides in proportion to the
    kernel's lengthscales. It doubles after three rounds of feedback in a row that bring
    a better value, is halved after :math:`q \lceil \max(4/q, d/q) \rceil` evaluations
    without, and begins anew, with points from all of the domain, once its length is
    below 2^-12. Candidates of all regions, Sobol points that differ from a middle in 20
    coordinates or so, or in one to four, are scored in one pass, and a batch takes no
    other search: by sample paths, one for each point, or by an upper confidence bound
    whose variances shrink with each point.

    The posterior knows the evaluations of the present runs that are within two sides of
    the middles, 200 to 2,000; the nearest 500 of them are its inducing points, and what
    these leave open of the others counts as noise. Kernel and noise are fitted to 300
    of those within reach, in 30 iterations at most from where they stand (100 where a
    run begins). So the time of a batch does not grow with the number of evaluations.

    Use it on boxes of ten or more features, for thousands of evaluations in batches,
    and where the best value counts. `BBKB` has a regret bound and looks everywhere.

    Where the noise's standard deviation is above a tenth of the prior's, middles and
    successes go by the posterior mean in place of the observations.

    The strategy learns at each `ask` from what there is. Points that are told and that
    nobody asked for belong to the runs that go on when they are learned; those of a run
    that is over are not looked at any more.

    Cost of a batch of `q` points, with `A` candidates, `n` points in the posterior and
    `m` inducing points: O(n m^2), O(A d (m + F)) and O(q A (m + F)) for F = 512 random
    features (or O(A m^2 + q A m) for the bound); O(300^3) for an iteration of the fit.

    Args:
        candidates: For an error that says so: there is no table.
        covar_module: The kernel, or None to infer it; see `ModelStrategy`, as `lam`,
            `mean_module` and `num_initial`, which is of each run, and 2 d (at least
            5) with a kernel too.
        lam: The noise variance of an evaluation.
        batch_size: `q`, points in each batch.
        num_regions: Regions at a time; each point of a batch is the best of all their
            candidates.
        acquisition: `"thompson"` or `"ucb"`.
        rule: Ends batches by the bound before they have `batch_size` points; see
            `BBKB`. None for none.
        num_candidates: Candidates of each region; 200 d by default, at least 2,000 and
            at most 5,000.
        max_inducing_points: Inducing points at most.
        **options: `bounds` (`2 x d`) and constraints, `seed` and `minimize`, see
            `Strategy`; `num_initial`, `mean_module`, and `refit`, when hyperparameters
            are fitted: by default after `batch_size` evaluations, never with a kernel.

    Raises:
        InputDataError: If an argument is out of its range, or `rule` comes with
            `acquisition="thompson"`.
        UnsupportedError: If there are no random features of the kernel, for
            `acquisition="thompson"`.

    Example:
        >>> import torch
        >>> bounds = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
        >>> strategy = TrustRegionBBKB(bounds=bounds, batch_size=5, minimize=True)
        >>> history = strategy.run(
        ...     lambda X: (X - 0.3).square().sum(-1), 30, progress=False
        ... )
        >>> len(history), len(strategy.regions)
        (30, 1)
    """

    batch_size: int

    def __init__(
        self,
        candidates: Any = None,
        covar_module: Kernel | None = None,
        lam: float | None = None,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
        num_regions: int = 1,
        acquisition: Acquisition = "thompson",
        rule: Rule | str | None = None,
        num_candidates: int | None = None,
        max_inducing_points: int = MAX_INDUCING,
        **options: Unpack[TrustRegionOptions],
    ) -> None:
        check_keywords(options, TrustRegionOptions.__annotations__, type(self))
        domain = box_of(candidates, part_of(options, DomainOptions), type(self))
        super().__init__(domain, **part_of(options, RunOptions))
        check_whole("batch_size", batch_size)
        check_whole("num_regions", num_regions)
        check_whole("max_inducing_points", max_inducing_points)
        check_choice("acquisition", acquisition, get_args(Acquisition))
        if num_candidates is None:
            most = max(FEWEST_CANDIDATES, CANDIDATES_PER_FEATURE * domain.dim)
            num_candidates = min(most, MOST_CANDIDATES)
        check_whole("num_candidates", num_candidates)
        self.settings = _settings_of(domain, covar_module, lam, batch_size, options)
        self.rule = None if rule is None else rule_of(rule)
        if self.rule is not None and acquisition == "thompson":
            raise InputDataError(
                f"Got rule={rule!r} with acquisition='thompson', where batches have a "
                "size; leave it out, or take acquisition='ucb'."
            )
        if covar_module is not None and acquisition == "thompson":
            require_random_features(covar_module, domain.dim)
        self.batch_size = batch_size
        self.acquisition = acquisition
        self.num_candidates = num_candidates
        self.max_inducing_points = max_inducing_points
        self.source = PriorSource(domain, self.settings, inferred_kernel=_rough_kernel)
        self.runs = Regions.begun(num_regions, self.settings.num_initial)
        self._domain_box = domain.box
        self._prior = self.source.initial()
        self._known: NystromPosterior | None = None  # follows from all else

    @property
    def regions(self) -> tuple[Region, ...]:
        """The present trust regions."""
        return self.runs.regions

    @property
    def posterior(self) -> NystromPosterior | None:
        """What the last batch was chosen with, of inputs of `source`; None before."""
        return self._known

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        """See `Strategy.predict`; None before anything was learned.

        The posterior is that near the regions, and the prior's far from them. Cost:
        O(k m^2), and once for each batch O(n m^2).
        """
        X = as_points("X", X, self.domain.dim, self.domain.device)
        if self._num_learned == 0:
            return None
        with self._lock, torch.no_grad():
            posterior = self._known or self._posterior(self._num_learned)
            scale, bounds = self._prior.scale, self._domain_box.bounds
            inputs = self.source.inputs(X.to(bounds))
            mean, variance = posterior.moments(inputs)
        sign = -1 if self.minimize else 1
        return sign * scale * mean, scale * variance.sqrt()

    def _select(self, max_batch_size: int | None) -> list[int]:
        limit = min(self.batch_size, max_batch_size or self.batch_size)
        chosen = self._first_points(limit)
        ready = self._ready()
        if len(chosen) < limit and ready:
            chosen += self._best_points(ready, limit - len(chosen))
        if not chosen:  # all first points are out, or none of them may be a middle
            chosen = self._drawn(self.regions[0], limit)
        self.runs = self.runs.with_trials([run for _, run in chosen])
        return [point for point, _ in chosen]

    def _first_points(self, limit: int) -> list[tuple[int, int]]:
        """Numbers and runs of points for regions that have not begun."""
        chosen = list[tuple[int, int]]()
        for region in self.regions:
            num = min(self._num_missing(region), limit - len(chosen))
            chosen += self._drawn(region, num)
        return chosen

    def _drawn(self, region: Region, num: int) -> list[tuple[int, int]]:
        """Points from all of the domain."""
        if num == 0:
            return []
        points = self.domain.sample(num, self.generator, self.record.add_point)
        return [(point, region.run) for point in points]

    def _num_missing(self, region: Region) -> int:
        """Points to draw before a region goes by the posterior."""
        return self.runs.num_missing(region, self.history.trial, self.pending_ids)

    def _ready(self) -> list[Region]:
        """Regions that have a middle and all of their first points."""
        regions = [r for r in self.regions if r.center is not None]
        return [r for r in regions if not self._num_missing(r)]

    @torch.no_grad()
    def _best_points(
        self, regions: Sequence[Region], limit: int
    ) -> list[tuple[int, int]]:
        """Numbers and runs of the best candidates of all regions."""
        parts = [self._candidates(region) for region in regions]
        X, posterior = torch.cat(parts), self._remembered()
        if self.acquisition == "thompson":
            rows = self._by_paths(posterior, X, limit)
        else:
            rows = self._by_bound(posterior, X, limit)
        runs = torch.tensor([region.run for region in regions])
        run = runs.repeat_interleave(torch.tensor([len(part) for part in parts]))
        return [(self.record.add_point(X[row]), int(run[row])) for row in rows]

    def _candidates(self, region: Region) -> Tensor:
        """Candidates of a region, `k x d`."""
        return candidates_around(
            self._domain_box,
            self._centers([region])[0],
            region.length * self._weights(),
            self.num_candidates,
            draw_seed(self.generator),
        )

    def _by_paths(self, posterior: NystromPosterior, X: Tensor, num: int) -> list[int]:
        """Rows where sample paths are largest."""
        with manual_seed(draw_seed(self.generator)):
            once = SelectableRows(once=True)
            return path_maximizers(self.source.inputs(X), posterior, num, once)

    def _by_bound(self, posterior: NystromPosterior, X: Tensor, num: int) -> list[int]:
        """Rows of the largest bounds, whose variances shrink; pending ones first."""
        pending = self.source.inputs(self.X_pending)
        pool = NystromPool(torch.cat([self.source.inputs(X), pending]))
        pool.update(posterior, noise=self._prior.lam)
        out = torch.arange(len(X), len(pool), device=pending.device)
        choosable = SelectableRows(out if len(out) else None, once=True)
        batch = pool.batch(PRACTICAL_BETA**0.5, self.rule, choosable)
        for row in out.tolist():
            batch.append(row)
        return batch.choose(min(num, len(X)), self._ask_limit)

    def _learn(self) -> None:
        self._prior, self._known = self._fitted(), None
        tolerance = fail_tolerance(self.domain.dim, self.batch_size)
        score = self._score()
        self.runs = self.runs.after(self.history, self._num_learned, tolerance, score)
        super()._learn()

    def _fitted(self) -> Prior:
        """The prior after a fit, where one is due; a lone region's begins anew."""
        prior, history = self._prior, self.history
        begins = self.runs.have_begun(history.trial, prior.last_fit or 0)
        is_due = begins or self.source.is_due(prior, history)
        values = self._values(len(history))
        is_enough = len(values) > 2 and bool(values.Y.min() < values.Y.max())
        if self.settings.refit is None or not is_due or not is_enough:
            return prior
        if begins and len(self.regions) == 1:
            prior = replace(prior, hyperparameters=None)
        steps = MORE_STEPS if prior.hyperparameters else FIRST_STEPS
        few = few_of(values, self.generator)
        return self.source.fitted(prior, history, self.generator, few, steps)

    def _score(self) -> Score:
        """What middles and successes go by."""
        num, posterior, known = len(self.history), None, torch.tensor([])
        if self._is_noisy():
            known = self._values(num).point[:MOST_POINTS]
            posterior = self._posterior(num)

        @torch.no_grad()
        def score(values: FoldedValues) -> Tensor:
            X = self.history.points(values.point)
            Y = values.Y
            if posterior is not None:
                mean = posterior.moments(self.source.inputs(X)).mean
                is_known = torch.isin(values.point, known)  # elsewhere it extrapolates
                Y = (self._prior.scale * mean.cpu()).where(is_known, -torch.inf)
            return Y.where(self._domain_box.is_feasible(X).cpu(), -torch.inf)

        return score

    def _is_noisy(self) -> bool:
        """Whether a mean says more of a point than its observation."""
        prior, X = self._prior, self.source.inputs(self.domain.few())
        variance = prior.covar_module(X, diag=True).detach().mean()
        return prior.lam > NOISY * float(variance)

    def _values(self, num: int) -> FoldedValues:
        """What runs know of the first evaluations, points near the middles first."""
        values = self.runs.values(self.history.trial[:num], self.history)
        X = self.source.inputs(self.history.points(values.point))
        centers = self.source.inputs(self._centers(self.regions))
        lengths = [r.length for r in self.regions if r.center is not None]
        sides = X.new_tensor(lengths).unsqueeze(-1) * self._weights()
        return at(values, nearest(X, centers, sides * self._units()).cpu())

    def _centers(self, regions: Sequence[Region]) -> Tensor:
        """Their middles, `r x d`."""
        points = [region.center for region in regions if region.center is not None]
        return self.history.points(torch.tensor(points, dtype=torch.long))

    def _units(self) -> Tensor:
        """Sides of the box in units of the inputs, `d`."""
        low, high = self.source.inputs(self._domain_box.bounds)
        return high - low

    def _weights(self) -> Tensor:
        """What multiplies the length of a region in each feature, `d`."""
        return side_weights(self._prior.covar_module, self._units())

    def _posterior(self, num: int) -> NystromPosterior:
        """The posterior of the first evaluations."""
        values = self._values(num)
        values = at(values, torch.arange(min(len(values), MOST_POINTS)))
        most = self.max_inducing_points
        return local_posterior(self.source, self._prior, self.history, values, most)

    def _remembered(self) -> NystromPosterior:
        """The posterior of what was learned, which is built once."""
        self._known = self._known or self._posterior(self._num_learned)
        return self._known

    @override
    def restore_trials(self, pending: Points, failed: Iterable[int] = ()) -> Batch:
        raise UnsupportedError(f"{type(self).__name__} {HAS_A_PLAN}")

    def _describe(self) -> BatchRecord:
        num = self._remembered().num_inducing if self._ready() else 0
        return BatchRecord(size=0, num_inducing=num)

    def _state(self) -> dict[str, Any]:
        return super()._state() | {
            "surrogate": {"prior": self._prior.state_dict()},
            "runs": self.runs.state_dict(),
        }

    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        self._prior = self.source.from_state(state["surrogate"]["prior"])
        self.runs = self.runs.restored(state["runs"])
        self._known = None

    def _config(self) -> dict[str, Any]:
        return super()._config() | {
            "kernel": self.source.builder.kernel_config(
                self.source.inputs(self.domain.few())
            ),
            **self.settings.config(),
            "batch_size": self.batch_size,
            "num_regions": len(self.regions),
            "acquisition": self.acquisition,
            "rule": fingerprint(self.rule, "rule"),
            "num_candidates": self.num_candidates,
            "max_inducing_points": self.max_inducing_points,
        }


def _settings_of(
    domain: BoxDomain,
    covar_module: Kernel | None,
    lam: float | None,
    batch_size: int,
    options: TrustRegionOptions,
) -> ModelSettings:
    """How the posterior is built and fitted."""
    given = part_of(options, PosteriorOptions)
    if given.get("refit") is None and covar_module is None:
        given["refit"] = RefitSchedule(every=batch_size)
    if given.get("num_initial") is None:
        given["num_initial"] = domain.num_initial(is_known=False)
    return ModelSettings.of(domain, covar_module, lam, **given)


def _rough_kernel(dim: int) -> Kernel:
    """The Matern-5/2 kernel of [Eriksson2019]_, with BoTorch's priors."""
    return get_covar_module_with_dim_scaled_prior(dim, use_rbf_kernel=False)
