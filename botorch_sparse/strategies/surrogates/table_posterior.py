"""The posterior of a table, with inducing points or exact."""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from botorch.exceptions import InputDataError
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.batching.rules import ContinueFunction, Rule, always_continue
from botorch_sparse.pools.exact_pool import ExactPool
from botorch_sparse.pools.nystrom_pool import NystromPool
from botorch_sparse.pools.sample_paths import path_maximizers
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows
from botorch_sparse.pools.table_batch import TableBatch
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import (
    condition_with_constant_mean,
    posterior_of_chosen,
)
from botorch_sparse.strategies.data.evaluations import FoldedEvaluations, FoldedValues
from botorch_sparse.strategies.data.history import History, evaluations_at
from botorch_sparse.strategies.seeding import draw_seed
from botorch_sparse.strategies.surrogates.prior import Prior, PriorSource


class HostVariances:
    """Variances of candidates, each copied from an accelerator once.

    They belong to one tensor: where it is another one, all are forgotten.
    """

    def __init__(self) -> None:
        self._source: Tensor | None = None
        self._known: dict[int, float] = {}
        self._largest: float | None = None

    def at(self, source: Tensor, rows: Tensor, there: Tensor | None = None) -> Tensor:
        """Some variances on the host.

        Args:
            source: `A` variances.
            rows: `k` candidates, on the host.
            there: The same where the variances are, if they are there already.
        """
        if source.is_cpu:
            return source[rows]
        known, wanted = self.known(source), rows.tolist()
        if missing := sorted(set(wanted).difference(known)):
            if there is None:
                there = torch.tensor(missing, device=source.device)
            else:
                missing = wanted
            both = torch.cat([source.max().view(1), source.index_select(0, there)])
            self._largest, *values = both.tolist()
            known.update(zip(missing, values, strict=True))
        return torch.tensor([known[row] for row in wanted], dtype=source.dtype)

    def largest(self, source: Tensor) -> float:
        """The largest variance; it comes to the host with any others."""
        self.known(source)
        if self._largest is None:
            self._largest = float(source.max())
        return self._largest

    def known(self, source: Tensor) -> dict[int, float]:
        """What is known of these variances; others may write what they read there."""
        if source is not self._source:
            self._source, self._known, self._largest = source, {}, None
        return self._known


# Entries of the kernel between inducing points and data that are held at once.
LARGEST_MATRIX = 2**24


@dataclass(frozen=True, eq=False)
class TablePosterior(ABC):
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
        return not (self.pool.X.is_cpu or self.pool.shard.ranks.size > 1)

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
        choosable: SelectableRows,
        history: History,
        generator: torch.Generator,
    ) -> TableBatch:
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
        batch: TableBatch = self.pool.batch(multiplier, rule, choosable)
        if self._is_away:
            batch.initial = self.variances.known(self.pool.all_variances())
        for row in pending:
            batch.append(row)
        return batch

    def maximizers(
        self,
        num_paths: int,
        choosable: SelectableRows,
        history: History,
        generator: torch.Generator,
        goes_on: ContinueFunction = always_continue,
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
class NystromTablePosterior(TablePosterior):
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
        """See `TablePosterior`."""
        pool = copy(self.pool)
        k_diag = prior.covar_module(pool.X, diag=True)
        pool.reset(k_diag)
        return replace(self, prior=prior, pool=pool, k_diag=k_diag)

    @property
    def posterior(self) -> NystromPosterior | None:
        """See `TablePosterior`."""
        return self.pool.posterior

    def clear(self) -> None:
        """See `TablePosterior`."""
        self.pool.forget_columns()

    def num_inducing(self) -> int:
        """See `TablePosterior`."""
        return 0 if self.posterior is None else self.posterior.num_inducing

    def max_variance(self) -> float:
        """The largest variance of a candidate; NaN where not all are embedded."""
        is_here, ranks = self.pool.is_embedded, self.pool.shard.ranks
        is_known = self.embeds and all(ranks.gather(is_here))
        return super().max_variance() if is_known else float("nan")

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """See `TablePosterior`."""
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
        """See `TablePosterior`."""
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


@dataclass(frozen=True, eq=False)
class ExactTablePosterior(TablePosterior):
    """The exact posterior, updated one evaluation at a time.

    Runs of one candidate share a row of the factor; once there are twice as many rows
    as unique points, the folded data are factorized anew, so that rows stay within a
    constant of the unique points.

    Attributes:
        num_learned: Evaluations in it.
        num_rebuilt: Evaluations when the data were last factorized anew.
        num_unique: Unique points in it.
    """

    pool: ExactPool
    num_learned: int = 0
    num_rebuilt: int = 0
    num_unique: int = 0

    def blank(self, prior: Prior) -> Self:
        """See `TablePosterior`."""
        pool = exact_pool(self.pool.X, prior)
        return replace(
            self, prior=prior, pool=pool, num_learned=0, num_rebuilt=0, num_unique=0
        )

    @property
    def posterior(self) -> None:
        """None: there are no inducing points."""
        return None

    @torch.no_grad()
    def posterior_of(self, history: History) -> NystromPosterior | None:
        """See `TablePosterior`. Cost: O(n^3)."""
        if self.num_learned == 0:
            return None
        data = evaluations_at(history, history.folded(self.num_learned))
        X = self.source.inputs(data.X)
        return posterior_of_data(self.prior, X, X, data)

    def num_inducing(self) -> int:
        """Unique points in the exact posterior."""
        return self.num_unique

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """See `TablePosterior`."""
        if bool((point < len(self.pool)).all()):
            return self._variances_at(point)
        X = self.source.inputs(history.points(point))
        return self.pool.variance_at(X, point).cpu()

    def learned(
        self, prior: Prior, history: History, values: FoldedValues, chosen: Tensor
    ) -> Self:
        """See `TablePosterior`. Cost: O(A n) for each new evaluation."""
        if prior is not self.prior:
            return self.blank(prior)._rebuilt(history, values)
        new = slice(self.num_learned, int(values.counts.sum()))
        point, Y = history.point[new], history.values[new] / prior.scale
        beside = bool((point >= len(self.pool)).any())
        if beside or self.num_learned == 0:
            return self._rebuilt(history, values)
        pool = self.pool.fork()
        for row, y in zip(point.tolist(), Y.tolist(), strict=True):
            pool.append(row, y)
        if pool.num_rows > 2 * len(values) + 32:
            return self._rebuilt(history, values)
        num_unique = len(values)
        return replace(self, pool=pool, num_learned=new.stop, num_unique=num_unique)

    def _rebuilt(self, history: History, values: FoldedValues) -> Self:
        """With the folded data factorized anew."""
        data = evaluations_at(history, values)
        pool, prior = exact_pool(self.pool.X, self.prior), self.prior
        X, noise = self.source.inputs(data.X), prior.lam / data.counts
        pool.rebuild(X, data.Y / prior.scale, noise)
        num = int(values.counts.sum())
        return replace(
            self,
            pool=pool,
            num_learned=num,
            num_rebuilt=num,
            num_unique=len(values),
        )


def exact_pool(X: Tensor, prior: Prior) -> ExactPool:
    """The candidates under a prior, without data."""
    mean = prior.mean_module
    return ExactPool(
        X,
        prior.covar_module,
        prior.lam,
        mean_module=mean,
        has_constant=mean is None,
    )


@torch.no_grad()
def uncertainty_sampling(
    pool: ExactPool,
    pending: list[int],
    max_variance: float,
    limit: int,
    choosable: SelectableRows = ALL_ROWS,
    goes_on: ContinueFunction = always_continue,
) -> list[int]:
    r"""Points of largest exact variance, one after the other ([Calandriello2020]_).

    Algorithm 3, with variances where it prints standard deviations: its argument needs
    :math:`\max_x \mathrm{var}(x) / \lambda \le 1/P`.

    Args:
        pool: The exact posterior of data that are all zero.
        pending: Candidates that are pending already.
        max_variance: Where to stop, :math:`\lambda / P`.
        limit: Largest number of points.
        choosable: Which candidates may be chosen.
        goes_on: Asked after each; see `Pace`.

    Returns:
        Candidates; none where the variance is small enough already. Cost: O(A n) for
        each, with `n` points in the posterior.
    """
    batch = pool.batch(1.0, None, choosable)
    for row in pending:
        batch.append(row)
    chosen: list[int] = []
    while len(chosen) < limit:
        row = batch.argmax()
        batch.append(row)
        if not batch.variances_before[-1] > max_variance:
            break
        chosen.append(row)
        if not goes_on(len(chosen)):
            break
    return chosen
