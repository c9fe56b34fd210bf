"""The posterior of a box: a BoTorch model."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.exceptions.warnings import (
    BadInitialCandidatesWarning,
    OptimizationWarning,
)
from botorch.models import SingleTaskGP
from botorch.models.transforms.outcome import ChainedOutcomeTransform
from botorch.utils.sampling import manual_seed
from torch import Tensor
from torch.nn.functional import huber_loss
from typing_extensions import override

from botorch_sparse.acquisition.batch_ucb import BatchUpperConfidenceBound
from botorch_sparse.acquisition.gap_stopping import (
    LowerConfidenceBound,
    largest_value,
)
from botorch_sparse.batching.acquisition_batch import BoxBatch
from botorch_sparse.batching.rules import (
    MAX_BOX_BATCH,
    Rule,
)
from botorch_sparse.models import ModelCertificate, SparseSingleTaskGP
from botorch_sparse.pools.sample_paths import SamplePaths
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies.data.box import Box
from botorch_sparse.strategies.data.domain import TableDomain, draw_seed
from botorch_sparse.strategies.data.preference import Preference
from botorch_sparse.strategies.data.run_record import Evaluations, FoldedEvaluations
from botorch_sparse.strategies.local_maximization import (
    maximize_each,
    thorough,
)
from botorch_sparse.strategies.surrogates.prior import Prior
from botorch_sparse.strategies.surrogates.prior_fitting import of_standardized
from botorch_sparse.strategies.surrogates.robust_evaluations import RobustEvaluations
from botorch_sparse.strategies.surrogates.surrogate import (
    DomainPosterior,
    JointOutcomes,
)
from botorch_sparse.strategies.surrogates.table_posterior import no_data

# What a standard deviation of violation costs in a local search, in units of how far
# the best value is above the reference point; how far inside of its limits an outcome
# is kept meanwhile, and below which violation the cost is a square, in deviations. With
# 100, 1e-3 and 0.02 points are better by 1e-3, for twice the steps.
PENALTY, MARGIN, SQUARED = 10.0, 0.01, 0.1
# Kinks of the objectives' minimum, in units of the objectives.
SMOOTHING = 0.02
# Of a local search, where the user does not say: most steps, and the relative gain in
# machine precisions below which it ends. Line searches across kinks take many values.
SEARCH = {"maxiter": 20, "factr": 1e11}
# Random features of a path, as many as in BoTorch's: a search sees few points.
BOX_FEATURES = 1024
# Points predicted at a time: few, since the exact GP forms all of their covariances.
PREDICTED = 512


@dataclass(frozen=True, eq=False)
class BoxPosterior(DomainPosterior):
    """A `SparseSingleTaskGP` of all data, maximized by `optimize_acqf`.

    Attributes:
        box: The domain.
        model: The model; None before data.
    """

    box: Box
    model: SparseSingleTaskGP | None = None

    @override
    def blank(self, prior: Prior) -> Self:
        return replace(self, prior=prior, model=None)

    @override
    def on(self, domain: TableDomain, max_memory: int) -> Self:
        return self.blank(self.source.initial())

    @override
    def learned(
        self,
        prior: Prior,
        record: Evaluations,
        values: FoldedEvaluations,
        chosen: Tensor,
    ) -> Self:
        is_moved = isinstance(record, RobustEvaluations)
        num = len(record) if is_moved else int(values.counts.sum())
        model = self.source.build(
            record,
            torch.arange(num),
            record.points(values.point[chosen]).double(),
            prior.hyperparameters,
            prior.lengthscale_factor,
            of_points=True,
            warp=prior.warp,
        )
        if isinstance(record, RobustEvaluations):
            extra = (1 / record.weight - 1).to(model.train_targets)
            model.outlier_noise = model.likelihood.noise.detach() * extra
        return replace(self, prior=prior, model=model)

    @cached_property
    @override
    def posterior(self) -> NystromPosterior | None:
        return None if self.model is None else self.model.nystrom_posterior()

    @override
    def num_inducing(self) -> int:
        return 0 if self.model is None else len(self.model.inducing_points)

    @override
    def certificate(self, record: Evaluations) -> ModelCertificate | None:
        return None if self.model is None else self.model.certificate()

    @override
    def max_variance(self) -> float:
        return float("nan")

    @override
    @torch.no_grad()
    def predict(self, X: Tensor, record: Evaluations) -> tuple[Tensor, Tensor]:
        X = X.to(self.box.bounds).double()
        if self.model is None:
            variance = self.prior.covar_module(self.source.inputs(X), diag=True)
            return torch.zeros_like(variance), variance.sqrt()
        parts = [self._learned_model.posterior(part) for part in X.split(PREDICTED)]
        mean = torch.cat([p.mean for p in parts]).squeeze(-1)
        sd = torch.cat([p.variance for p in parts]).squeeze(-1).sqrt()
        units = self._units
        return units.restore(mean), units.restore_deviation(sd, mean)

    @override
    def confidence_gap(self, multiplier: float, offset: float) -> float:
        options = self._options(0)
        options |= thorough(options)
        bounds = options.pop("bounds")
        upper, lower = (
            largest_value(
                kind(self._learned_model, multiplier**2), None, bounds, options
            )
            for kind in (UpperConfidenceBound, LowerConfidenceBound)
        )
        return self._units.gap(upper + offset, lower - offset)

    @override
    def batch(
        self,
        multiplier: float,
        rule: Rule | None,
        pending: list[int],
        selectable: SelectableRows,
        record: Evaluations,
        generator: torch.Generator,
    ) -> BoxBatch:
        X = record.points(torch.tensor(pending).long()).double()
        acqf = BatchUpperConfidenceBound(
            self._learned_model, multiplier**2, X if len(X) else None
        )
        options = self._options(draw_seed(generator))
        bounds = options.pop("bounds")
        return BoxBatch(
            acqf,
            rule,
            bounds,
            options,
            clamp=self.box.clamp,
            number=record.add_point,
            most=None if rule is None else MAX_BOX_BATCH,
        )

    @override
    def maximizers(
        self,
        num_paths: int,
        selectable: SelectableRows,
        record: Evaluations,
        generator: torch.Generator,
        joint: JointOutcomes | None = None,
        price: Tensor | None = None,
    ) -> list[int]:
        options = self._options(draw_seed(generator))
        with manual_seed(options["options"]["seed"]):
            X = self.box.clamp(self._path_maximizers(num_paths, joint, options))
        return [record.add_point(x) for x in X]

    def _path_maximizers(
        self, num_paths: int, joint: JointOutcomes | None, options: dict[str, Any]
    ) -> Tensor:
        """Points where paths are best, `q x d`."""
        if joint is not None:
            return _joint_path_maximizers(joint, num_paths, options)
        paths, number = self.paths(num_paths), torch.arange(num_paths)
        given = {"retry_on_optimization_warning": False, **options}
        with _searches_may_end_early():
            ends = maximize_each(paths, num_paths, **given)
        with torch.no_grad():
            values = paths(ends.flatten(0, 1), number.repeat_interleave(ends.shape[1]))
        return ends[number, values.view(ends.shape[:2]).argmax(-1)]

    @torch.no_grad()
    def paths(
        self, num: int, spread: Tensor | None = None
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Sample paths, from `n x d` points and `n` numbers of paths to `n` values.

        Values are in the dtype of the points, and differentiable in them. The paths are
        drawn by torch's own generator.

        Args:
            num: How many paths.
            spread: `num` factors of how far they are from the mean; None for 1.
        """
        if self.posterior is None:
            raise no_data()
        drawn = SamplePaths.draw(self.posterior, num, BOX_FEATURES, 0.0, spread)

        def values(X: Tensor, number: Tensor) -> Tensor:
            own = drawn.subset(number.to(X.device))
            return own.at_own_points(self.source.inputs(X)).to(X.dtype)

        return values

    @override
    def in_units(self, values: Tensor) -> Tensor:
        return self._units.restore(values)

    @cached_property
    def _learned_model(self) -> SingleTaskGP:
        """The model of standardized outcomes, if there is one."""
        if self.model is None:
            raise no_data()
        return of_standardized(self.model)

    @cached_property
    def _units(self) -> Prior:
        """The prior in units of present outcomes, where the model standardizes them."""
        transform = getattr(self.model, "outcome_transform", None)
        if transform is None:
            return replace(self.prior, center=0.0, scale=1.0)
        if isinstance(transform, ChainedOutcomeTransform):
            transform = transform["standardized"]
        mean, sd = float(transform.means), float(transform.stdvs)
        return replace(self.prior, center=mean, scale=sd)

    def _options(self, seed: int) -> dict[str, Any]:
        """Arguments of `optimize_acqf`, with randomness from a seed alone."""
        given = self.source.settings.optimizer_options
        return self.box.search_arguments(given, seed)


def _joint_path_maximizers(
    joint: JointOutcomes, num_paths: int, options: dict[str, Any]
) -> Tensor:
    """Where so many paths of each outcome are best together, `q x d`."""
    preference = joint.preference
    if all(view.posterior is None for view in joint.views):
        raise no_data()
    weights = preference.draw_weights(num_paths)
    spread = preference.draw_spread(num_paths)
    paths = [
        None if view.posterior is None else view.paths(num_paths, spread)
        for view in cast(tuple[BoxPosterior, ...], joint.views)
    ]

    def outcomes(X: Tensor, number: Tensor) -> Tensor:
        return joint.stack([path and path(X, number) for path in paths])

    def search(function: Callable[[Tensor, Tensor], Tensor], **more: Any) -> Tensor:
        more["options"] = more["options"] | options["options"]
        return maximize_each(function, num_paths, **options | more)

    return joint_maximizers(outcomes, preference, weights, search)


@contextmanager
def _searches_may_end_early() -> Iterator[None]:
    """Without the warnings of local searches that end early.

    Line searches end at the edge of a term or of a penalty, and where rounding is as
    large as the slope of a path, as with hardly any noise. Where all values are equal
    there is nothing to search for.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=OptimizationWarning)
        warnings.simplefilter("ignore", category=BadInitialCandidatesWarning)
        yield


def joint_maximizers(
    outcomes: Callable[[Tensor, Tensor], Tensor],
    preference: Preference,
    weights: Tensor,
    search: Callable[..., Tensor],
) -> Tensor:
    """Where functions of a box are best together, for each of `q` scalarizations.

    During the local searches violations of constraints are a penalty, and kinks of both
    are smoothed, which halves the steps. Of where they end the best one is chosen by
    the preference itself.

    Args:
        outcomes: From `n x d` points and `n` numbers of scalarizations to `n x k`
            values.
        preference: Which of them are better.
        weights: `q x o`.
        search: From a function of points and numbers, and arguments of `optimize_acqf`
            that the user's come before, to `q x r x d` ends of local searches.

    Returns:
        `q x d` points.
    """

    def smooth(X: Tensor, number: Tensor) -> Tensor:
        Y = outcomes(X, number)
        violation = preference.violation(Y, MARGIN)
        penalty = huber_loss(violation, 0 * violation, "none", SQUARED) / SQUARED
        return preference.value(Y, weights[number], SMOOTHING) - PENALTY * penalty

    with _searches_may_end_early():
        ends = search(smooth, retry_on_optimization_warning=False, options=SEARCH)
    num, each = ends.shape[:2]
    with torch.no_grad():
        number = torch.arange(num).repeat_interleave(each)
        Y = outcomes(ends.flatten(0, 1), number).view(num, each, -1)
        levels = torch.stack(preference.levels(Y, weights))
    is_there = (levels > -torch.inf).any(-1)
    level = levels[is_there.int().argmax(0), torch.arange(num)]
    return ends[torch.arange(num), level.argmax(-1)]
