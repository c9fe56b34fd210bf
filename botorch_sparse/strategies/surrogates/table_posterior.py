"""The posterior of a table, with inducing points or exact."""

from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self, cast

import torch
from botorch.exceptions import InputDataError
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel
from torch import Tensor
from typing_extensions import override

from botorch_sparse.batching.rules import ContinueFunction, Rule, always_continue
from botorch_sparse.kernels.kernel_matrices import compares_counts
from botorch_sparse.pools.compact_rows import Rows, variance_of
from botorch_sparse.pools.exact_pool import ExactPool
from botorch_sparse.pools.nystrom_pool import NystromPool
from botorch_sparse.pools.path_maximizers import (
    Price,
    path_maximizers,
    upper_bounds,
)
from botorch_sparse.pools.shard import ALL_ROWS, SelectableRows
from botorch_sparse.pools.table_batch import TableBatch
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import posterior_of_chosen
from botorch_sparse.strategies.data.domain import TableDomain, draw_seed
from botorch_sparse.strategies.data.run_record import (
    Evaluations,
    FoldedEvaluations,
    evaluations_at,
)
from botorch_sparse.strategies.surrogates.prior import Prior
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource
from botorch_sparse.strategies.surrogates.robust_evaluations import RobustEvaluations
from botorch_sparse.strategies.surrogates.surrogate import (
    DomainPosterior,
    JointOutcomes,
)
from botorch_sparse.threads import one_thread

# Entries of the kernel between inducing points and data that are held at once.
LARGEST_MATRIX = 2**24
# Data on the host whose kernel is evaluated at a time.
CHUNK_SIZE = 2**12
# Sample paths that one pass over the table is for: it keeps so many rows for each.
MOST_PATHS = 1024
# The key of the largest variance among the rows' variances.
LARGEST = -1


@dataclass(frozen=True, eq=False)
class TablePosterior(DomainPosterior):
    """A posterior whose candidates are the rows of a table.

    Attributes:
        pool: The candidates under it.
        on_host: Variances of rows, each copied from an accelerator once.
    """

    pool: Any  # NystromPool or ExactPool, or one of many ranks
    on_host: dict[int, float] = field(default_factory=dict)

    @property
    def _is_away(self) -> bool:
        """Whether the host keeps variances that it had to wait for.

        Where ranks share a table they come together with the other ranks' ones.
        """
        return not self.pool.X.is_cpu and self.pool.shard.ranks.size == 1

    @override
    def max_variance(self) -> float:
        if not self._is_away:
            return float(self.pool.largest(self.pool.all_variances()))
        if LARGEST not in self.on_host:
            self.on_host[LARGEST] = float(self.pool.all_variances().max())
        return self.on_host[LARGEST]

    def _variances_at(self, rows: Tensor, there: Tensor | None = None) -> Tensor:
        """Present variances of some candidates, on the host.

        Args:
            rows: `k` candidates, on the host.
            there: They on the accelerator, if they are there already.
        """
        if not self._is_away:
            variance: Tensor = self.pool.moments(rows).variance
            return variance.cpu()
        source, wanted = self.pool.all_variances(), rows.tolist()
        if missing := sorted(set(wanted).difference(self.on_host)):
            if there is None:
                there = torch.tensor(missing, device=source.device)
            else:
                missing = wanted
            both = torch.cat([source.max().view(1), source.index_select(0, there)])
            keys = [LARGEST, *missing]
            self.on_host.update(zip(keys, both.tolist(), strict=True))
        known = [self.on_host[row] for row in wanted]
        return torch.tensor(known, dtype=source.dtype)

    @override
    @torch.no_grad()
    def predict(self, X: Tensor, record: Evaluations) -> tuple[Tensor, Tensor]:
        Z, prior, posterior = self.source.inputs(X), self.prior, self.posterior
        if posterior is None:
            variance = prior.covar_module(Z, diag=True)
            mean = torch.zeros_like(variance)
        else:
            mean, variance = posterior.moments(Z)
        return prior.restore(mean), prior.restore_deviation(variance.sqrt(), mean)

    @override
    def confidence_gap(self, multiplier: float, offset: float) -> float:
        mean, variance = self.pool.all_moments()
        width = multiplier * variance.clamp_min(0.0).sqrt() + offset
        upper, lower = self.pool.largest(mean + width), self.pool.largest(mean - width)
        return self.prior.gap(float(upper), float(lower))

    @override
    def batch(
        self,
        multiplier: float,
        rule: Rule | None,
        pending: list[int],
        selectable: SelectableRows,
        record: Evaluations,
        generator: torch.Generator,
    ) -> TableBatch:
        selectable = selectable.to(self.pool.X.device)
        batch: TableBatch = self.pool.batch(multiplier, rule, selectable)
        if self._is_away:
            batch.initial = self.on_host
        for row in pending:
            batch.append(row)
        return batch

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
        views = (self,) if joint is None else joint.views
        known = [
            view
            for view in cast("tuple[TablePosterior, ...]", views)
            if view.posterior is not None
        ]
        if not known:
            raise no_data()
        device, chosen = self.pool.X.device, list[int]()
        of_rows = None
        if price is not None:
            points = record.points(record.point.unique())
            measured = [view.source.inputs(points) for view in known]
            of_rows = Price(price.to(device), measured)
        with manual_seed(draw_seed(generator)):
            for start in range(0, num_paths, MOST_PATHS):
                num = min(num_paths - start, MOST_PATHS)
                left = selectable.without(chosen) if selectable.once else selectable
                chosen += self._path_maximizers(
                    num, left.to(device), known, joint, of_rows
                )
        return chosen

    def _path_maximizers(
        self,
        num_paths: int,
        selectable: SelectableRows,
        known: "list[TablePosterior]",
        joint: JointOutcomes | None,
        price: Price | None,
    ) -> list[int]:
        """Candidates for some paths, in one pass, by torch's own randomness.

        Inputs of outcomes differ by what earlier campaigns say of each.
        """
        X, levels, spread = self.pool.X, upper_bounds, None
        if joint is not None:
            weights = joint.preference.draw_weights(num_paths)
            spread = joint.preference.draw_spread(num_paths)
            levels = partial(_levels_of_known, joint, weights.to(X.device, X.dtype))
        is_alike = not any(view.source.inputs.campaigns for view in known)
        return path_maximizers(
            X if is_alike else [view.pool.X for view in known],
            [view.pool.posterior for view in known],
            num_paths,
            selectable,
            levels=levels,
            spread=spread,
            price=price,
            shard=self.pool.shard,
        )


@dataclass(frozen=True, eq=False)
class NystromTablePosterior(TablePosterior):
    """The posterior of inducing points, and all candidates embedded in it.

    Attributes:
        k_diag: `A` prior variances of the candidates.
        embeds: Whether all candidates are embedded, which an upper confidence bound
            needs and sample paths do not.
        exact: The exact posterior that few data have; None where this one is for all.
    """

    pool: NystromPool
    k_diag: Tensor = field(default_factory=lambda: torch.empty(0))
    embeds: bool = True
    exact: "ExactTablePosterior | None" = None

    @override
    def blank(self, prior: Prior) -> TablePosterior:
        return self._under(prior) if self.exact is None else self.exact.blank(prior)

    @torch.no_grad()
    def _under(self, prior: Prior) -> Self:
        """This one, without data under another prior."""
        pool = copy(self.pool)
        if prior.covar_module is not self.prior.covar_module:
            pool.renew_columns()
        k_diag = variance_of(prior.covar_module, pool.X)
        pool.reset(k_diag)
        return replace(self, prior=prior, pool=pool, k_diag=k_diag, on_host={})

    @override
    def on(self, domain: TableDomain, max_memory: int) -> TablePosterior:
        if self.exact is not None:
            return self.exact.on(domain, max_memory)
        pool = domain.pool(self.source.inputs, max_memory)
        return replace(self, pool=pool)._under(self.source.initial())

    @property
    @override
    def posterior(self) -> NystromPosterior | None:
        return self.pool.posterior

    @override
    def clear(self) -> None:
        self.pool.forget_columns()

    @override
    def num_inducing(self) -> int:
        return 0 if self.posterior is None else self.posterior.num_inducing

    @override
    def max_variance(self) -> float:
        is_screened, ranks = self.pool.is_screened, self.pool.shard.ranks
        is_known = self.embeds and not any(ranks.gather(is_screened))
        return super().max_variance() if is_known else float("nan")

    @override
    @torch.no_grad()
    def variance(self, record: Evaluations, point: Tensor) -> Tensor:
        if self.embeds and bool((point < self.pool.shard.num_rows).all()):
            return self._variances_at(point)
        return super().variance(record, point)

    @override
    @torch.no_grad()
    def learned(
        self,
        prior: Prior,
        record: Evaluations,
        values: FoldedEvaluations,
        chosen: Tensor,
    ) -> Self:
        view = self if prior is self.prior else self._under(prior)
        view = replace(view, pool=copy(view.pool), on_host={})
        data, pool = evaluations_at(record, values, chosen), view.pool
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
        """The same on this rank, by one evaluation of the kernel where that fits."""
        prior = self.prior
        size = None if self.pool.on_device else CHUNK_SIZE
        X = self.source.inputs(data.X)
        S = X[data.chosen]
        if len(X) * len(S) > LARGEST_MATRIX:
            return posterior_of_data(prior, X, S, data, chunk_size=size)
        K = None
        if self.source.ranks.size == 1 and bool((data.point < len(self.pool)).all()):
            k_diag = self.k_diag[data.number[data.chosen]]
            if self.embeds:  # where the pool needs these columns next
                K = self.pool.kept_covariance(prior.covar_module, S, data.point)
        else:
            k_diag = prior.covar_module(S, diag=True)
        return posterior_of_chosen(
            prior.covar_module,
            X,
            prior.standardize(data.Y),
            prior.lam / data.counts,
            data.chosen,
            k_diag,
            mean_module=prior.mean_module,
            chunk_size=size,
            covariance=K,
        )

    def _update_there(self, data: FoldedEvaluations) -> None:
        """Update an accelerator's pool by rows of the table.

        The host waits for the factor of `K_SS`, and for the variances that `variance`
        and `max_variance` will be asked for.
        """
        pool, posterior = self.pool, self._posterior_of(data)
        pool.update(posterior, self.k_diag, noise=self.prior.lam, is_awaited=False)
        known = self._variances_at(data.point, data.number)
        if not known.isfinite().all():
            self.on_host.clear()
            pool.update(posterior, self.k_diag, noise=self.prior.lam)


def posterior_of_data(
    prior: Prior,
    X: Tensor,
    S: Tensor,
    data: FoldedEvaluations,
    chunk_size: int | None = None,
) -> NystromPosterior:
    """The posterior of folded data at inputs `X`, with inducing points `S`."""
    blank = prior.without_data(S, chunk_size)
    Y = prior.standardize(data.Y)
    return prior.condition(blank, X, Y, prior.lam / data.counts)


def with_kernel(posterior: NystromPosterior, covar_module: Kernel) -> NystromPosterior:
    """The posterior of another rank with this one's kernel object: they are equal."""
    feature_map = replace(posterior.feature_map, covar_module=covar_module)
    return replace(posterior, feature_map=feature_map)


def _levels_of_known(
    joint: JointOutcomes,
    weights: Tensor,
    lower: list[Tensor],
    upper: list[Tensor],
) -> list[Tensor]:
    """What paths maximize, from bounds of those outcomes that have a posterior."""

    def of_all(values: list[Tensor]) -> Tensor:
        rest = iter(values)
        known = [view.posterior is not None for view in joint.views]
        return joint.stack([next(rest) if is_known else None for is_known in known])

    Y = of_all(upper)
    if lower is not upper:
        Y = joint.preference.outcomes.best_between(of_all(lower), Y)
    return joint.preference.levels(Y, weights)


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
        record: The evaluations in it; None before any.
        values: They, folded. Those that lie apart are moved there.
        num_rebuilt: Evaluations when the data were last factorized anew.
        sparse: The sparse posterior that takes over beyond `most` unique points, or
            where their rows do not fit into half of its `max_memory`; it has no data.
            None where nothing takes over.
        most: See `sparse`.
    """

    pool: ExactPool
    record: Evaluations | None = None
    values: FoldedEvaluations | None = None
    num_rebuilt: int = 0
    sparse: NystromTablePosterior | None = None
    most: int = 0

    @override
    def blank(self, prior: Prior) -> Self:
        return type(self)(
            self.source,
            prior,
            exact_pool(self.pool.X, prior),
            sparse=self.sparse,
            most=self.most,
        )

    @override
    def on(self, domain: TableDomain, max_memory: int) -> Self:
        if self.sparse is None:
            return type(self).of(self.source, domain)
        return type(self).of_few(self.source, domain, max_memory, self.most)

    @classmethod
    def of(cls, source: PriorSource, domain: TableDomain) -> Self:
        """The posterior without data, of any number of points.

        Only counts stay bytes: other kernels would read them anew for each evaluation.
        """
        prior, rows = source.initial(), domain.own_rows
        X = source.inputs(rows if compares_counts(prior.covar_module) else rows[:])
        return cls(source, prior, exact_pool(X, prior))

    @classmethod
    def of_few(
        cls, source: PriorSource, domain: TableDomain, max_memory: int, most: int
    ) -> Self:
        """The same, until a sparse one takes over.

        Args:
            source: Makes the prior.
            domain: The table.
            max_memory: Bytes; see `NystromPool`.
            most: The most unique points before that.
        """
        prior, X = source.initial(), source.inputs(domain.own_rows)
        pool = NystromPool(X, max_memory=max_memory)
        sparse = NystromTablePosterior(source, prior, pool)
        return cls(source, prior, exact_pool(X, prior), sparse=sparse, most=most)

    @cached_property
    def posterior(self) -> NystromPosterior | None:
        """The same with all unique points as inducing points. Cost: O(n^3), once.

        Whoever asks first, and with how many threads, changes nothing.
        """
        if self.record is None or self.values is None:
            return None
        with torch.inference_mode(False), torch.no_grad(), one_thread():
            data = evaluations_at(self.record, self.values)
            X = self.source.inputs(data.X)
            return posterior_of_data(self.prior, X, X, data)

    @override
    def clear(self) -> None:
        if self.sparse is not None:
            self.sparse.clear()

    @override
    def takes_all(self, num: int) -> bool:
        if self.sparse is None:
            return True
        return num <= self.most and self.sparse.pool.fits_in_memory(num)

    @property
    def num_learned(self) -> int:
        """Evaluations in it."""
        if self.record is None or self.values is None:
            return 0
        return len(self.record) if self._is_moved else int(self.values.counts.sum())

    @property
    def _is_moved(self) -> bool:
        """Whether evaluations that lie apart were moved."""
        return isinstance(self.record, RobustEvaluations)

    @override
    def information_gain(self, record: Evaluations) -> float:
        return float(self.pool.information_gain)

    @override
    def residual_trace(self, record: Evaluations) -> float:
        return 0.0

    @override
    def certificate(self, record: Evaluations) -> None:
        return None

    @override
    def num_inducing(self) -> int:
        return 0 if self.values is None else len(self.values)

    @override
    @torch.no_grad()
    def variance(self, record: Evaluations, point: Tensor) -> Tensor:
        if bool((point < len(self.pool)).all()):
            return self._variances_at(point)
        X = self.source.inputs(record.points(point))
        return self.pool.variance_at(X, point).cpu()

    @override
    def learned(
        self,
        prior: Prior,
        record: Evaluations,
        values: FoldedEvaluations,
        chosen: Tensor,
    ) -> TablePosterior:
        if self.sparse is not None and not self.takes_all(len(values)):
            sparse = replace(self.sparse._under(prior), exact=self.blank(self.prior))
            return sparse.learned(prior, record, values, chosen)
        if prior is not self.prior:
            return replace(self, prior=prior)._rebuilt(record, values)
        if self._is_moved or isinstance(record, RobustEvaluations):
            return self._rebuilt(record, values)
        new = slice(self.num_learned, int(values.counts.sum()))
        point, Y = record.point[new], prior.standardize(record.values[new])
        beside = bool((point >= len(self.pool)).any())
        if beside or new.start == 0:
            return self._rebuilt(record, values)
        pool = self.pool.fork()
        pool.extend(point.tolist(), Y.tolist())
        if pool.num_rows > 2 * len(values) + 32:
            return self._rebuilt(record, values)
        return replace(self, pool=pool, on_host={}, record=record, values=values)

    def _rebuilt(self, record: Evaluations, values: FoldedEvaluations) -> Self:
        """With the folded data factorized anew."""
        data = evaluations_at(record, values)
        pool, prior = exact_pool(self.pool.X, self.prior), self.prior
        X, noise = self.source.inputs(data.X), prior.lam / data.counts
        are_rows = bool((data.point < len(pool)).all())
        rows = data.number if are_rows else None
        pool.rebuild(X, prior.standardize(data.Y), noise, rows)
        view = replace(self, pool=pool, on_host={}, record=record, values=values)
        return replace(view, num_rebuilt=view.num_learned)


def exact_pool(X: Rows, prior: Prior) -> ExactPool:
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
    selectable: SelectableRows = ALL_ROWS,
    continues: ContinueFunction = always_continue,
) -> list[int]:
    r"""Points of largest exact variance, one after the other ([Calandriello2020]_).

    Algorithm 3, with variances where it prints standard deviations: its argument needs
    :math:`\max_x \mathrm{var}(x) / \lambda \le 1/P`.

    Args:
        pool: The exact posterior of data that are all zero.
        pending: Candidates that are pending already.
        max_variance: Where to stop, :math:`\lambda / P`.
        limit: Largest number of points.
        selectable: Which candidates may be chosen.
        continues: Asked after each; see `AskLimit`.

    Returns:
        Candidates; none where the variance is small enough already. Cost: O(A n) for
        each, with `n` points in the posterior.
    """
    batch = pool.batch(1.0, None, selectable)
    for row in pending:
        batch.append(row)
    chosen: list[int] = []
    while len(chosen) < limit:
        row = batch.argmax()
        batch.append(row)
        if not batch.variances_before[-1] > max_variance:
            break
        chosen.append(row)
        if not continues(len(chosen)):
            break
    return chosen
