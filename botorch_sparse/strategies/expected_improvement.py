r"""Expected improvement on a table, one row after the other.

With mean :math:`\mu`, standard deviation :math:`\sigma_t` given the data and the points
of the batch, and :math:`f^*` the largest mean at a measured or pending point, a row
maximizes

.. math:: \mathrm{EI}(x) = \sigma_t(x) \, h\Big( \frac{\mu(x) - f^*}{\sigma_t(x)} \Big),
    \qquad h(u) = \varphi(u) + u \, \Phi(u).

A pending point counts as if its mean had been measured: the mean stays, the variance
shrinks. With constraints the best mean is the best feasible one, and the improvement is
multiplied by the probability that all limits are kept [Schonlau1998]_. With costs it is
divided by :math:`c(x)^\alpha`, see `Costs` [Lee2020]_. All of it is computed as a
logarithm [Ament2023]_, so that rows without much hope are told apart too.

As a batch grows the improvement of a row only falls: the variance shrinks, and the best
mean rises. So what a row had earlier is a bound, and the best row is known once it is
one of those that are up to date (the lazy greedy choice of [Minoux1978]_). With
constraints all rows are brought up to date: a limit may become more likely to be kept.

References:
    .. [Ament2023]
        S. Ament, S. Daulton, D. Eriksson, M. Balandat and E. Bakshy. Unexpected
        improvements to expected improvement for Bayesian optimization. NeurIPS 2023.
    .. [Lee2020]
        E. H. Lee, V. Perrone, C. Archambeau and M. Seeger. Cost-aware Bayesian
        optimization. arXiv:2003.10870, 2020.
    .. [Minoux1978]
        M. Minoux. Accelerated greedy algorithms for maximizing submodular set
        functions. In: Optimization Techniques, LNCIS 7, 1978.
    .. [Schonlau1998]
        M. Schonlau, W. J. Welch and D. R. Jones. Global versus local search in
        constrained optimization of computer models. IMS Lecture Notes 34, 1998.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Unpack

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.utils.probability.utils import log_prob_normal_in
from gpytorch.kernels import Kernel
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import check_keywords, check_whole
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.kernels import dense_covariance
from botorch_sparse.pools import NystromPool
from botorch_sparse.pools.compact_rows import kernel_rows
from botorch_sparse.posteriors.features import solve_rows
from botorch_sparse.posteriors.joint_covariance import Embedded
from botorch_sparse.posteriors.threads import row_chunks
from botorch_sparse.private_names import log_ei_helper
from botorch_sparse.strategies.data.domain import FEWEST_INITIAL, Domain
from botorch_sparse.strategies.data.outcomes import Constraint
from botorch_sparse.strategies.model_strategy import (
    ModelOptions,
    ModelStrategy,
    OneOrEach,
    surrogate_of,
)
from botorch_sparse.strategies.surrogates.prior import PosteriorSettings
from botorch_sparse.strategies.surrogates.surrogate import Surrogate
from botorch_sparse.strategies.surrogates.table_posterior import NystromTablePosterior

DEFAULT_BATCH_SIZE = 8
# Points that are all inducing points, and the most inducing points of more.
MOST_EXACT = 1_000
# Of points that are known, in units of the feedback's variance.
LEAST_VARIANCE = 1e-20
# Rows that are brought up to date first; later blocks double.
FIRST_BLOCK = 64


class ExpectedImprovement(ModelStrategy[Surrogate]):
    """Rows of largest expected improvement, for few evaluations of a table.

    Use it where there is time for some ten batches, as in a laboratory. For long runs
    `ThompsonSampling` and `BBKB` are quicker, and `BBKB` has a guarantee. On a
    continuous domain use BoTorch's `qLogNoisyExpectedImprovement` with
    `SparseSingleTaskGP`. The formula is in `strategies/expected_improvement.py`.

    There is one objective, and any constraints. Where the kernel is inferred, the
    posterior of up to 1,000 different rows is exact.

    Cost, with `A` candidates, `n` evaluations and `m` inducing points, for each
    outcome: O(n m^2 + A m^2) for each batch, and for its j-th point O(A), and O(j m)
    for each row that is brought up to date, often some hundreds; with constraints
    O(A m). Memory O(A m) up to 2 GiB; beyond it the kernel is evaluated at these rows
    and the inducing points each time.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel, or None to infer it; see `ModelStrategy`.
        lam: The noise variance of an evaluation; see `ModelStrategy`.
        oversampling: See `PosteriorVarianceSampler`.
        batch_size: Points in each batch.
        cost: `A` positive costs of the candidates, in any unit.
        budget: What all evaluations may cost together, in that unit; None for no limit.
        **options: Keyword arguments of `ModelStrategy`, such as `seed` and `unique`.
            Without a kernel `num_initial` is 5, rounded up to whole batches.

    Example:
        >>> import torch
        >>> X = torch.linspace(0, 1, 100, dtype=torch.float64).unsqueeze(-1)
        >>> strategy = ExpectedImprovement(X, batch_size=2, minimize=True)
        >>> history = strategy.run(
        ...     lambda X: (X - 0.3).square(), 12, progress=False
        ... )
        >>> round(float(history.best().X), 1)
        0.3
    """

    shares_tables: ClassVar[bool] = False
    takes_several_outcomes: ClassVar[bool] = True

    def __init__(
        self,
        candidates: Any,
        covar_module: OneOrEach[Kernel] = None,
        lam: OneOrEach[float] = None,
        oversampling: float = 2.0,
        batch_size: int = DEFAULT_BATCH_SIZE,
        *,
        cost: Any = None,
        budget: float | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        check_keywords(options, ModelOptions.__annotations__, type(self))
        if candidates is None or options.get("bounds") is not None:
            raise InputDataError(
                "ExpectedImprovement chooses from a table: need candidates. On a "
                "continuous domain use BoTorch's qLogNoisyExpectedImprovement with "
                "SparseSingleTaskGP, or ThompsonSampling."
            )
        if covar_module is None and options.get("num_initial") is None:
            options["num_initial"] = FEWEST_INITIAL
        sampler = PosteriorVarianceSampler(oversampling)
        super().__init__(
            candidates,
            covar_module,
            lam,
            partial(_surrogate_of, sampler=sampler),
            cost=cost,
            budget=budget,
            **options,
        )
        if (num := len(self.record.outcomes.objectives)) > 1:
            raise UnsupportedError(
                f"Got {num} objectives; ExpectedImprovement takes one, and "
                "constraints. Take ThompsonSampling, BBKB or TrustRegionBBKB."
            )
        check_whole("batch_size", batch_size)
        self.batch_size = batch_size

    @torch.no_grad()
    def _select_by_model(self, limit: int) -> list[int]:
        moments, start = self._moments(), self._start()
        means = self._known_means()
        score, chosen = torch.full_like(start, torch.inf), list[int]()
        while len(chosen) < limit:
            row = self._best_row(score, start, moments, means)
            chosen.append(row)
            if self.unique:
                score[row] = start[row] = -torch.inf
            means = torch.cat([means, self._means_of(moments, row)])
            for each in filter(None, moments):
                each.append_row(row)
            if not self._ask_limit(len(chosen)):
                break
        return chosen

    def _best_row(
        self,
        score: Tensor,
        start: Tensor,
        moments: list["_PendingMoments | None"],
        means: Tensor,
    ) -> int:
        """The row of the largest score, the lowest of equals.

        Args:
            score: What rows do not exceed, `A`; some get their present value, in place.
            start: See `_start`.
            moments: Of each outcome.
            means: See `_log_improvement`.
        """
        only_falls = len(moments) == 1 and bool(score.max() < torch.inf)
        if not only_falls:
            every = slice(None)
            score[:] = start + self._log_improvement(moments, means, every)
            return int(score.argmax())
        is_fresh = torch.zeros(len(score), dtype=torch.bool)
        size = FIRST_BLOCK
        while not is_fresh[best := int(score.argmax())]:
            stale = score.masked_fill(is_fresh, -torch.inf)
            rows = stale.topk(min(size, len(score))).indices.sort().values
            score[rows] = start[rows] + self._log_improvement(moments, means, rows)
            is_fresh[rows] = True
            size *= 2
        return best

    def _start(self) -> Tensor:
        """What stays in a batch: minus the logarithm of prices, or infinity; `A`."""
        start = torch.zeros(self.domain.num_rows, dtype=torch.double)
        if self.costs is not None:
            start = -self.costs.price(self._paid()).log()
        start[torch.tensor(sorted(self.excluded_points), dtype=torch.long)] = -torch.inf
        return start

    def _moments(self) -> list["_PendingMoments | None"]:
        """For each outcome moments given what is pending; None without data."""
        points = self.record.points(self.pending)
        moments = list[_PendingMoments | None]()
        for part in self.surrogate.parts:
            view = part.view
            if view.posterior is None:
                moments.append(None)
                continue
            assert isinstance(view, NystromTablePosterior)
            moments.append(known := _PendingMoments(view.pool))
            for x in view.source.inputs(points.to(view.pool.X.device)).unsqueeze(-2):
                known.append(x, view.posterior.covariance_with_inducing(x))
        return moments

    def _log_improvement(
        self,
        moments: list["_PendingMoments | None"],
        means: Tensor,
        rows: Tensor | slice,
    ) -> Tensor:
        """Logarithms of expected improvement, with the chance to keep limits, `q`.

        Args:
            moments: Of each outcome.
            means: `n x k` means at measured and pending points; NaN for unknown.
            rows: `q` rows, or a slice of all.
        """
        outcomes, score = self.record.outcomes, torch.zeros((), dtype=torch.double)
        is_feasible = outcomes.violations(means) <= 0
        for j, known in enumerate(moments):
            if known is None:
                continue
            scale = self.surrogate.parts[j].view.prior.scale
            mean, sd = known.mean[rows].cpu(), known.deviation(rows).cpu()
            if isinstance(part := outcomes.parts[j], Constraint):
                low, high = (end / scale for end in part.range)
                score = score + log_prob_normal_in(
                    (low - mean) / sd, (high - mean) / sd
                )
            elif bool(is_feasible.any()):
                best = means[is_feasible, j].max() / scale
                score = score + sd.log() + log_ei_helper((mean - best) / sd)
        return score

    def _known_means(self) -> Tensor:
        """Means of outcomes at measured and pending points, `n x k`, as maximized.

        NaN for outcomes without data.
        """
        record, parts = self.record, self.surrogate.parts
        points = torch.cat([record.different, self.pending])
        mean, _ = self.surrogate.predict(record.points(points), record)
        mean = mean.double().reshape(len(points), -1).cpu()
        is_known = torch.tensor([part.view.posterior is not None for part in parts])
        return mean.where(is_known, torch.nan)

    def _means_of(self, moments: list["_PendingMoments | None"], row: int) -> Tensor:
        """The same at a row, `1 x k`."""
        pairs = zip(self.surrogate.parts, moments, strict=True)
        means = [
            torch.nan
            if known is None
            else part.view.prior.scale * float(known.mean[row])
            for part, known in pairs
        ]
        return torch.tensor([means], dtype=torch.double)

    @override
    def _config(self) -> dict[str, Any]:
        return super()._config() | {"batch_size": self.batch_size}


def _surrogate_of(
    domain: Domain, settings: PosteriorSettings, sampler: PosteriorVarianceSampler
) -> Surrogate:
    """The surrogate before any data, which is exact for as many as are few."""
    surrogate = surrogate_of(domain, settings, sampler=sampler)
    view, most = surrogate.view, MOST_EXACT
    assert isinstance(view, NystromTablePosterior)
    pool = NystromPool(view.pool.X, max_memory=view.pool.max_memory, screens=False)
    view = replace(view, pool=pool).blank(view.prior)
    return replace(surrogate, view=view, exact_size=most, max_inducing=most)


class _PendingMoments:
    r"""Means and standard deviations of rows, given points without a value yet.

    With the posterior covariance `c`, pending points `x_1, x_2, ...` and their noise
    :math:`\lambda`, the variance is :math:`c(x, x) - u(x)^\top u(x)`, where

    .. math:: u(x) = R^{-1} \big(c(x_j, x)\big)_j, \qquad
        R R^\top = \big(c(x_i, x_j) + \lambda \, 1_{i = j}\big)_{i, j} .

    This is the whole covariance. `TableBatch` takes what the inducing points explain of
    it, as the theorems of `BBKB` have it: with few data that is little.

    Args:
        pool: The candidates, with the posterior of the data.

    Attributes:
        mean: Of all rows, `A`.
    """

    def __init__(self, pool: NystromPool) -> None:
        assert pool.posterior is not None
        self._pool, self._posterior = pool, pool.posterior
        self.mean, self._variance = (each.double() for each in pool.all_moments())
        self._pending = list[Tensor]()  # 1 x d each
        self._weights = list[Tensor]()  # m x 1 each, see `append`
        self._factor = self._variance.new_empty(0, 0)  # R
        self._u = list[Tensor]()  # of all rows; none before `deviation` of all rows

    def deviation(self, rows: Tensor | slice) -> Tensor:
        """Standard deviations at `q` rows, or in a slice of all rows.

        Cost: O(q j m) with `j` pending points; of all rows O(A m) for each pending
        point that is new.
        """
        if isinstance(rows, Tensor):
            C = self._in_parts(rows.split(self._chunk), 0)
            u = [*solve_rows(self._factor, C).unbind(-1)]
        else:
            self._extend()
            u = self._u
        variance = self._variance[rows].clone()
        for each in u:
            variance -= each.square()
        return variance.clamp_min(LEAST_VARIANCE).sqrt()

    def _extend(self) -> None:
        """Compute `u(x)` of all rows for the pending points that are new."""
        first = len(self._u)
        if first == len(self._pending):
            return
        C = self._in_parts(row_chunks(len(self._variance), self._chunk), first)
        for j, c in enumerate(C.unbind(-1), first):
            for share, before in zip(self._factor[j].tolist(), self._u, strict=False):
                c = c - share * before
            self._u.append(c / self._factor[j, j])

    @property
    def _chunk(self) -> int:
        """Rows at a time."""
        return self._posterior.chunk_size

    def _in_parts(self, parts: Sequence[Tensor | slice], first: int) -> Tensor:
        """Covariances of rows with the pending points from the first on, `q x p`."""
        look_up = self._pool.cross_covariance
        return torch.cat(
            [
                self._covariances(self._points(rows), look_up(rows), first)
                for rows in parts
            ]
        )

    def _points(self, rows: Tensor | slice) -> Tensor:
        """Some rows, `q x d`, as the kernel takes them."""
        return kernel_rows(self._posterior.covar_module, self._pool.X, rows)

    def append_row(self, row: int) -> None:
        """Make a row pending; see `append`."""
        rows = torch.tensor([row])
        self.append(self._points(rows), self._pool.cross_covariance(rows))

    def append(self, x: Tensor, K_S: Tensor) -> None:
        r"""Make a point pending. Cost: O(m^2 + j m) with `j` pending points.

        The weights of `k_S(x)` in the covariance with a point are
        :math:`L^{-\top} (L_B^{-\top} w_j - \phi_j)`. `NystromPosterior.covariance`
        solves for all rows instead, at O(A m^2).

        Args:
            x: The point, `1 x d`.
            K_S: Its covariances with the inducing points, `m x 1`.
        """
        known, noise = self._posterior, self._pool.noise
        phi = known.features_from_covariance(K_S)
        embedded = Embedded(x, phi, known.whiten(phi))
        variance = known.moments_of(embedded).variance.double()
        z = solve_rows(self._factor, self._covariances(x, K_S, 0))
        # At least the noise, also of a point that rounding makes the others explain.
        pivot = (variance - z.square().sum(-1)).clamp_min(0.0) + noise
        above = torch.cat([self._factor, self._factor.new_zeros(z.shape[-1], 1)], -1)
        below = torch.cat([z, pivot.sqrt().unsqueeze(-1)], -1)
        self._factor = torch.cat([above, below])
        inner = torch.linalg.solve_triangular(
            known.chol_inner.mT, embedded.w.mT, upper=True
        )
        weights = torch.linalg.solve_triangular(
            known.chol_inducing.mT, inner - phi.mT, upper=True
        )
        self._weights.append(weights)
        self._pending.append(x)

    def _covariances(self, X: Tensor, K_S: Tensor, first: int) -> Tensor:
        """Posterior covariances of points with pending ones, `q x p`.

        Args:
            X: `q x d` points.
            K_S: Their covariances with the inducing points, `m x q`.
            first: The first of the pending points.
        """
        if first == len(self._pending):
            return self._variance.new_empty(len(X), 0)
        pending = torch.cat(self._pending[first:])
        weights = torch.cat(self._weights[first:], dim=-1)
        prior = dense_covariance(self._posterior.covar_module, X, pending)
        return (prior + K_S.mT @ weights).double()
