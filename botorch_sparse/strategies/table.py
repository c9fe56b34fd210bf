"""The posteriors of tables: of inducing points, and exact."""

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
from botorch_sparse.optim.choosable import ALL, Choosable
from botorch_sparse.optim.exact_pool import ExactPool
from botorch_sparse.optim.path_maximizers import path_maximizers
from botorch_sparse.optim.pool import NystromPool
from botorch_sparse.optim.rules import Rule
from botorch_sparse.optim.sharded_pool import ShardedPool
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.chosen_inducing import posterior_of_chosen
from botorch_sparse.posteriors.constant_mean import condition_with_constant_mean
from botorch_sparse.strategies.folded import FoldedEvaluations, FoldedValues
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.prior import Prior, PriorSource
from botorch_sparse.strategies.seeding import draw_seed


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


@dataclass(frozen=True, eq=False)
class _TableView(ABC):
    """What the posteriors of tables share; see `PosteriorView`.

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
        """See `PosteriorView`."""

    def posterior_of(self, history: History) -> NystromPosterior | None:
        """See `PosteriorView`."""
        return self.posterior

    def max_variance(self) -> float:
        """The largest variance of a candidate."""
        if self.pool.X.is_cpu:
            return float(self.pool.largest(self.pool.all_variances()))
        return self.variances.largest(self.pool.all_variances())

    def cleared(self) -> Self:
        """See `PosteriorView`."""
        return self

    def _variances_at(self, rows: Tensor) -> Tensor:
        """Present variances of some candidates, on the host."""
        if self.pool.X.is_cpu:
            return self.pool.moments(rows).variance
        return self.variances.at(self.pool.all_variances(), rows)

    @torch.no_grad()
    def predict(self, X: Tensor, history: History) -> tuple[Tensor, Tensor]:
        """See `PosteriorView`; before any feedback those of the prior."""
        Z, scale = self.source.inputs(X), self.prior.scale
        posterior = self.posterior_of(history)
        if posterior is None:
            variance = self.prior.covar_module(Z, diag=True)
            return torch.zeros_like(variance), scale * variance.sqrt()
        mean, variance = posterior.moments(Z)
        return scale * mean, scale * variance.sqrt()

    def confidence_gap(self, multiplier: float, offset: float) -> float:
        """See `PosteriorView`."""
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
        """See `PosteriorView`."""
        choosable = choosable.to(self.pool.X.device)
        batch: BatchState = self.pool.batch(multiplier, rule, choosable)
        if not self.pool.X.is_cpu:
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
    ) -> list[int]:
        """See `PosteriorView`; pending points lower no sample."""
        posterior, X = self.posterior_of(history), self.pool.X
        if posterior is None:
            raise no_data()
        with manual_seed(draw_seed(generator)):
            choosable = choosable.to(X.device)
            shard = self.pool.shard
            return path_maximizers(X, posterior, num_paths, choosable, shard=shard)


@dataclass(frozen=True, eq=False)
class NystromTable(_TableView):
    """The posterior of inducing points, and all candidates embedded in it.

    Attributes:
        k_diag: `A` prior variances of the candidates.
        embeds: Whether all candidates are embedded, which an upper confidence bound
            needs and sample paths do not.
    """

    pool: NystromPool | ShardedPool
    k_diag: Tensor = field(default_factory=lambda: torch.empty(0))
    embeds: bool = True

    @torch.no_grad()
    def blank(self, prior: Prior) -> Self:
        """See `PosteriorView`."""
        pool = copy(self.pool)
        k_diag = prior.covar_module(pool.X, diag=True)
        pool.reset(k_diag)
        return replace(self, prior=prior, pool=pool, k_diag=k_diag)

    @property
    def posterior(self) -> NystromPosterior | None:
        """See `PosteriorView`."""
        return self.pool.posterior

    def cleared(self) -> Self:
        """See `PosteriorView`."""
        pool = copy(self.pool)
        pool.restore(self.pool.snapshot())
        return replace(self, pool=pool)

    def num_inducing(self) -> int:
        """See `PosteriorView`."""
        return 0 if self.posterior is None else self.posterior.num_inducing

    def log_det(self) -> float:
        """See `PosteriorView`."""
        if self.posterior is None:
            return 0.0
        return 2.0 * float(self.posterior.chol_inner.diagonal().log().sum())

    def max_variance(self) -> float:
        """The largest variance of a candidate; NaN where not all are embedded."""
        is_known = self.embeds and self.pool.is_embedded
        return super().max_variance() if is_known else float("nan")

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """See `PosteriorView`."""
        if self.embeds and bool((point < len(self.pool)).all()):
            return self._variances_at(point)
        X = self.source.inputs(history.points(point))
        if self.posterior is None:
            return self.prior.covar_module(X, diag=True).cpu()
        return self.posterior.variance(X).cpu()

    @torch.no_grad()
    def learned(
        self, prior: Prior, history: History, values: FoldedValues, chosen: Tensor
    ) -> Self:
        """See `PosteriorView`."""
        view = self if prior is self.prior else self.blank(prior)
        view = replace(view, pool=copy(self.pool))
        data, pool = values.at(history, chosen), view.pool
        in_table = bool((values.point < len(pool)).all())
        if not self.embeds:
            pool.hold(view._conditioned(data))
        elif pool.on_device and pool.fits_in_memory(len(chosen)) and in_table:
            view._update_there(data)
        else:
            pool.update(view._conditioned(data), view.k_diag, noise=prior.lam)
        return view

    def _conditioned(self, data: FoldedEvaluations) -> NystromPosterior:
        """The posterior of data with those chosen as inducing points."""
        X = self.source.inputs(data.X)
        S = self.source.inputs(data.X[data.chosen])
        prior, size = self.prior, self.pool.chunk_size
        posterior = self.source.ranks.once(
            lambda: _posterior_of_data(prior, X, S, data, chunk_size=size)
        )
        return with_kernel(posterior, prior.covar_module)

    def _update_there(self, data: FoldedEvaluations) -> None:
        """The same on an accelerator, for points of the table.

        The host waits for the factor of `K_SS`, and for the variances that `variance`
        and `max_variance` will be asked for.
        """
        prior, pool = self.prior, self.pool
        posterior = posterior_of_chosen(
            prior.covar_module,
            self.source.inputs(data.X),
            data.Y / prior.scale,
            prior.lam / data.counts,
            data.chosen,
            self.k_diag[data.number[data.chosen]],
            mean_module=prior.mean_module,
            chunk_size=pool.chunk_size,
        )
        pool.update(posterior, self.k_diag, noise=prior.lam, is_awaited=False)
        known = self.variances.at(pool.all_variances(), data.point, data.number)
        if not known.isfinite().all():
            pool.update(posterior, self.k_diag, noise=prior.lam)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the inducing points say all."""
        return {}

    def restored(
        self,
        prior: Prior,
        history: History,
        num_learned: int,
        inducing: list[int],
        state: dict[str, Any],
    ) -> Self:
        """See `PosteriorView`."""
        values = history.folded(num_learned)
        return self.learned(prior, history, values, values.places(inducing))


@dataclass(frozen=True, eq=False)
class ExactTable(_TableView):
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
        """See `PosteriorView`."""
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
        """See `PosteriorView`. Cost: O(n^3)."""
        if self.num_learned == 0:
            return None
        data = FoldedEvaluations.of(history, self.num_learned)
        X = self.source.inputs(data.X)
        return _posterior_of_data(self.prior, X, X, data)

    def num_inducing(self) -> int:
        """Unique points in the exact posterior."""
        return self.num_unique

    def log_det(self) -> float:
        """See `PosteriorView`."""
        return self.pool.information_gain

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """See `PosteriorView`."""
        if bool((point < len(self.pool)).all()):
            return self._variances_at(point)
        X = self.source.inputs(history.points(point))
        return self.pool.variance_at(X, point).cpu()

    def learned(
        self, prior: Prior, history: History, values: FoldedValues, chosen: Tensor
    ) -> Self:
        """See `PosteriorView`. Cost: O(A n) for each new evaluation."""
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
        data = values.at(history, values.point[:0])
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

    def state_dict(self) -> dict[str, Any]:
        """When the data were factorized anew."""
        return {"num_rebuilt": self.num_rebuilt}

    def restored(
        self,
        prior: Prior,
        history: History,
        num_learned: int,
        inducing: list[int],
        state: dict[str, Any],
    ) -> Self:
        """See `PosteriorView`: factorized and appended as the saved run did."""
        view = self.blank(prior)
        for num in sorted({state["num_rebuilt"], num_learned}):
            values = history.folded(num)
            view = view.learned(prior, history, values, values.point)
        return view


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


def _posterior_of_data(
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


@torch.no_grad()
def uncertainty_sampling(
    pool: ExactPool,
    pending: list[int],
    max_variance: float,
    limit: int,
    choosable: Choosable = ALL,
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
    return chosen


def validate_width(min_batch_width: int | None, *, is_table: bool) -> None:
    """Refuse a width below one, or on a continuous domain."""
    if min_batch_width is None:
        return
    if not min_batch_width >= 1:
        raise InputDataError(
            f"Got min_batch_width={min_batch_width}; need at least 1, or None."
        )
    if not is_table:
        raise InputDataError(
            f"Got min_batch_width={min_batch_width} with bounds, or without "
            "covar_module; uncertainty sampling needs a table of candidates and a "
            "kernel. Use num_initial points instead."
        )
