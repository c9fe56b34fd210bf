"""The posterior of a table with inducing points."""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from botorch.exceptions import InputDataError
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.optim.batch import BatchState
from botorch_sparse.optim.choosable import Choosable
from botorch_sparse.optim.pace import GoesOn, always
from botorch_sparse.optim.path_maximizers import path_maximizers
from botorch_sparse.optim.pool import NystromPool
from botorch_sparse.optim.rules import Rule
from botorch_sparse.optim.sharded_pool import ShardedPool
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.chosen_inducing import posterior_of_chosen
from botorch_sparse.posteriors.constant_mean import condition_with_constant_mean
from botorch_sparse.strategies.folded import FoldedEvaluations, FoldedValues
from botorch_sparse.strategies.history import History, evaluations_at
from botorch_sparse.strategies.host_variances import HostVariances
from botorch_sparse.strategies.prior import Prior, PriorSource
from botorch_sparse.strategies.seeding import draw_seed

# Entries of the kernel between inducing points and data that are held at once.
LARGEST_MATRIX = 2**24


@dataclass(frozen=True, eq=False)
class TableView(ABC):
    """A posterior of folded data, and what is chosen from it; a value.

    `BoxView` offers the same on a box.

    Attributes:
        source: Makes the inputs of the kernel.
        prior: What the posterior started from.
        pool: The candidates under it.
        variances: Theirs on the host.
    """

    source: PriorSource
    prior: Prior
    pool: Any  # NystromPool or ExactPool, or one of many ranks
    variances: HostVariances = field(default_factory=HostVariances)

    @property
    @abstractmethod
    def posterior(self) -> NystromPosterior | None:
        """The Nystrom posterior; None before data, and for the exact one."""

    @abstractmethod
    def blank(self, prior: Prior) -> Self:
        """The view without data under another prior."""

    @abstractmethod
    def learned(
        self, prior: Prior, history: History, values: FoldedValues, chosen: Tensor
    ) -> Self:
        """The view of all evaluations.

        Args:
            prior: The prior; another object than before where it is another one.
            history: The evaluations that `values` are, from the first one on.
            values: They, folded.
            chosen: Places of the inducing points among them, on the host.
        """

    @abstractmethod
    def variance(self, history: History, point: Tensor) -> Tensor:
        """Present variances at `k` point numbers, both on the host."""

    @abstractmethod
    def num_inducing(self) -> int:
        """Inducing points in use; for the exact posterior its unique points."""

    def posterior_of(self, history: History) -> NystromPosterior | None:
        """The posterior, computed anew where the view has none; None without data."""
        return self.posterior

    @property
    def _is_away(self) -> bool:
        """Whether the host keeps variances that it had to wait for.

        Of a table that ranks share they come together with those of the others.
        """
        return not (self.pool.X.is_cpu or isinstance(self.pool, ShardedPool))

    def max_variance(self) -> float:
        """The largest variance of a candidate; NaN where it is not known."""
        if not self._is_away:
            return float(self.pool.largest(self.pool.all_variances()))
        return self.variances.largest(self.pool.all_variances())

    def clear(self) -> None:  # noqa: B027 (nothing, where nothing is kept)
        """Drop what is kept for later views, which may be half done."""

    def _variances_at(self, rows: Tensor) -> Tensor:
        """Present variances of some candidates, on the host."""
        if not self._is_away:
            variance: Tensor = self.pool.moments(rows).variance
            return variance.cpu()
        return self.variances.at(self.pool.all_variances(), rows)

    @torch.no_grad()
    def predict(self, X: Tensor, history: History) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation at `q x d` points, in units of Y.

        Before any feedback those of the prior.
        """
        Z, scale = self.source.inputs(X), self.prior.scale
        posterior = self.posterior_of(history)
        if posterior is None:
            variance = self.prior.covar_module(Z, diag=True)
            return torch.zeros_like(variance), scale * variance.sqrt()
        mean, variance = posterior.moments(Z)
        return scale * mean, scale * variance.sqrt()

    def confidence_gap(self, multiplier: float, offset: float) -> float:
        """The largest upper less the largest lower bound, in units of Y."""
        mean, variance = self.pool.all_moments()
        width = multiplier * variance.clamp_min(0.0).sqrt() + offset
        upper, lower = self.pool.largest(mean + width), self.pool.largest(mean - width)
        return self.prior.scale * float(upper - lower)

    def batch(
        self,
        multiplier: float,
        rule: Rule | None,
        pending: list[int],
        choosable: Choosable,
        history: History,
        generator: torch.Generator,
    ) -> BatchState:
        """Start a batch by the upper confidence bound.

        Args:
            multiplier: What multiplies the Bayesian standard deviation.
            rule: What ends it.
            pending: Points that are in it from the start.
            choosable: Which rows may be chosen; excluded ones on the host.
            history: Gives points of a box their numbers.
            generator: Source of randomness.
        """
        choosable = choosable.to(self.pool.X.device)
        batch: BatchState = self.pool.batch(multiplier, rule, choosable)
        if self._is_away:
            batch.initial = self.variances.known(self.pool.all_variances())
        for row in pending:
            batch.append(row)
        return batch

    def maximizers(
        self,
        num_paths: int,
        choosable: Choosable,
        history: History,
        generator: torch.Generator,
        goes_on: GoesOn = always,
    ) -> list[int]:
        """Points where sample paths are largest; pending points lower no sample.

        Those of a table are found together, those of a box one by one, and `goes_on` is
        asked after each; see `Pace`.
        """
        posterior, X = self.posterior_of(history), self.pool.X
        if posterior is None:
            raise no_data()
        with manual_seed(draw_seed(generator)):
            choosable = choosable.to(X.device)
            shard = self.pool.shard
            return path_maximizers(X, posterior, num_paths, choosable, shard=shard)


@dataclass(frozen=True, eq=False)
class NystromTable(TableView):
    """The posterior of inducing points, and all candidates embedded in it.

    Attributes:
        k_diag: `A` prior variances of the candidates.
        embeds: Whether all candidates are embedded, which an upper confidence bound
            needs and sample paths do not.
    """

    pool: NystromPool
    k_diag: Tensor = field(default_factory=lambda: torch.empty(0))
    embeds: bool = True

    @torch.no_grad()
    def blank(self, prior: Prior) -> Self:
        """See `TableView`."""
        pool = copy(self.pool)
        k_diag = prior.covar_module(pool.X, diag=True)
        pool.reset(k_diag)
        return replace(self, prior=prior, pool=pool, k_diag=k_diag)

    @property
    def posterior(self) -> NystromPosterior | None:
        """See `TableView`."""
        return self.pool.posterior

    def clear(self) -> None:
        """See `TableView`."""
        self.pool.restore(self.pool.snapshot())

    def num_inducing(self) -> int:
        """See `TableView`."""
        return 0 if self.posterior is None else self.posterior.num_inducing

    def max_variance(self) -> float:
        """The largest variance of a candidate; NaN where not all are embedded."""
        is_here, ranks = self.pool.is_embedded, self.pool.shard.ranks
        is_known = self.embeds and all(ranks.gather(is_here))
        return super().max_variance() if is_known else float("nan")

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """See `TableView`."""
        if self.embeds and bool((point < self.pool.shard.num_rows).all()):
            return self._variances_at(point)
        X = self.source.inputs(history.points(point))
        if self.posterior is None:
            return self.prior.covar_module(X, diag=True).cpu()
        return self.posterior.variance(X).cpu()

    @torch.no_grad()
    def learned(
        self, prior: Prior, history: History, values: FoldedValues, chosen: Tensor
    ) -> Self:
        """See `TableView`."""
        view = self if prior is self.prior else self.blank(prior)
        view = replace(view, pool=copy(self.pool))
        data, pool = evaluations_at(history, values, chosen), view.pool
        if not self.embeds:
            pool.hold(view._posterior_of(data))
        elif self._is_away and bool((values.point < pool.shard.num_rows).all()):
            view._update_there(data)
        else:
            pool.update(view._posterior_of(data), view.k_diag, noise=prior.lam)
        return view

    def _posterior_of(self, data: FoldedEvaluations) -> NystromPosterior:
        """The posterior of data with those chosen as inducing points."""
        posterior = self.source.ranks.once(lambda: self._posterior_here(data))
        return with_kernel(posterior, self.prior.covar_module)

    def _posterior_here(self, data: FoldedEvaluations) -> NystromPosterior:
        """The same on this rank, by one evaluation of the kernel where that fits.

        Kernel columns of the pool would not do: their bits depend on the table's size.
        """
        prior, size = self.prior, self.pool.chunk_size
        X = self.source.inputs(data.X)
        S = X[data.chosen]
        if len(X) * len(S) > LARGEST_MATRIX:
            return posterior_of_data(prior, X, S, data, chunk_size=size)
        if self.source.ranks.size == 1 and bool((data.point < len(self.pool)).all()):
            k_diag = self.k_diag[data.number[data.chosen]]
        else:
            k_diag = prior.covar_module(S, diag=True)
        return posterior_of_chosen(
            prior.covar_module,
            X,
            data.Y / prior.scale,
            prior.lam / data.counts,
            data.chosen,
            k_diag,
            mean_module=prior.mean_module,
            chunk_size=size,
        )

    def _update_there(self, data: FoldedEvaluations) -> None:
        """Update an accelerator's pool by rows of the table.

        The host waits for the factor of `K_SS`, and for the variances that `variance`
        and `max_variance` will be asked for.
        """
        pool, posterior = self.pool, self._posterior_of(data)
        pool.update(posterior, self.k_diag, noise=self.prior.lam, is_awaited=False)
        known = self.variances.at(pool.all_variances(), data.point, data.number)
        if not known.isfinite().all():
            pool.update(posterior, self.k_diag, noise=self.prior.lam)


def posterior_of_data(
    prior: Prior, X: Tensor, S: Tensor, data: FoldedEvaluations, **options: Any
) -> NystromPosterior:
    """The posterior of folded data at inputs `X`, with inducing points `S`."""
    mean, noise = prior.mean_module, prior.lam / data.counts
    blank = NystromPosterior.prior(prior.covar_module, S, mean_module=mean, **options)
    if mean is None:
        return condition_with_constant_mean(blank, X, data.Y / prior.scale, noise)
    return blank.condition(X, data.Y / prior.scale, noise)


def with_kernel(posterior: NystromPosterior, covar_module: Kernel) -> NystromPosterior:
    """The posterior of another rank with this one's kernel object: they are equal."""
    feature_map = replace(posterior.feature_map, covar_module=covar_module)
    return replace(posterior, feature_map=feature_map)


def no_data() -> InputDataError:
    """What to raise where a model is asked before it has data."""
    return InputDataError("The model has no data yet: tell some feedback first.")
