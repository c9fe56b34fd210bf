r"""Expected improvement of a batch on a table, one row after the other.

With :math:`f^*` the largest mean at a measured point, and values of a lone objective on
the scale on which they are modelled, the batch `B` brings

.. math:: \mathrm{EI}(B) = \mathbb{E} \max\{0, \max_{x \in B} f(x) - f^*\} .

Each row is the one that adds most to it. Given values :math:`f_B` at the rows before
it, a row adds an expected improvement in closed form, with its mean :math:`\mu_B` and
standard deviation :math:`\sigma_B` given these values:

.. math:: \sigma_B(x) \, h\Big( \frac{\mu_B(x) - \max\{f^*, f_B\}}{\sigma_B(x)} \Big),
    \qquad h(u) = \varphi(u) + u \, \Phi(u) .

Its mean over values that are drawn from the posterior is what counts; for the first row
this is the usual expected improvement. So a row beside a chosen one still counts where
the chosen one may disappoint. Points that are pending count as rows before it.

With several objectives each draw has a random scalarization :math:`s_\lambda` of its
own, see `Preference`, and `B` improves on the largest at a measured point:

.. math:: \mathbb{E}_\lambda \, \mathbb{E} \max\{0, \max_{x \in B} s_\lambda(f(x))
    - s_\lambda^*\} .

This is the expected improvement of an R2 indicator [Deutz2019]_. Values of a row are
drawn too, as a minimum of normal values has no closed form.

With constraints values count only where all limits are kept, and what a row adds is
multiplied by its chance to keep them [Schonlau1998]_. With costs it is divided by
:math:`c(x)^\alpha`, see `Costs` [Lee2020]_. All of it is computed as a logarithm
[Ament2023]_, so that rows without much hope are told apart too.

What a row adds only falls as a batch grows [Wilson2018]_: so what it had earlier is a
bound, and the best row is known once it is one of those that are up to date (the lazy
greedy choice of [Minoux1978]_). The mean over draws can be above the bound by its own
error, of about a hundredth. With several objectives the error is larger: there the
bounds are those without any row in the batch, so that a batch is the same in parts.
Of large tables with a single outcome most rows have bounds of their moments alone, and
what these add is bounded by them: it grows with the mean and with the deviation.

References:
    .. [Ament2023]
        S. Ament, S. Daulton, D. Eriksson, M. Balandat and E. Bakshy. Unexpected
        improvements to expected improvement for Bayesian optimization. NeurIPS 2023.
    .. [Deutz2019]
        A. Deutz, M. Emmerich and K. Yang. The expected R2-indicator improvement for
        multi-objective Bayesian optimization. EMO 2019.
    .. [Lee2020]
        E. H. Lee, V. Perrone, C. Archambeau and M. Seeger. Cost-aware Bayesian
        optimization. arXiv:2003.10870, 2020.
    .. [McKay1979]
        M. D. McKay, R. J. Beckman and W. J. Conover. A comparison of three methods for
        selecting values of input variables in the analysis of output from a computer
        code. Technometrics, 1979.
    .. [Minoux1978]
        M. Minoux. Accelerated greedy algorithms for maximizing submodular set
        functions. In: Optimization Techniques, LNCIS 7, 1978.
    .. [Schonlau1998]
        M. Schonlau, W. J. Welch and D. R. Jones. Global versus local search in
        constrained optimization of computer models. IMS Lecture Notes 34, 1998.
    .. [Wilson2018]
        J. T. Wilson, F. Hutter and M. P. Deisenroth. Maximizing acquisition functions
        for Bayesian optimization. NeurIPS 2018.
"""

import math
from dataclasses import replace
from functools import partial, reduce
from typing import Any, ClassVar, NamedTuple, Unpack

import torch
from botorch.exceptions import InputDataError
from botorch.utils.probability.utils import log_prob_normal_in
from botorch.utils.safe_math import log_fatplus
from gpytorch.kernels import Kernel
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import check_keywords, check_whole
from botorch_sparse.inducing import PosteriorVarianceSampler
from botorch_sparse.kernels import dense_covariance
from botorch_sparse.pools.compact_rows import (
    distinct_blocks,
    kernel_rows,
    kernel_with,
    variance_of,
)
from botorch_sparse.posteriors.features import solve_rows
from botorch_sparse.posteriors.nystrom import Moments
from botorch_sparse.private_names import log_ei_helper
from botorch_sparse.strategies.data.domain import FEWEST_INITIAL, Domain
from botorch_sparse.strategies.data.outcomes import Constraint
from botorch_sparse.strategies.data.preference import Preference
from botorch_sparse.strategies.data.run_record import RunRecord
from botorch_sparse.strategies.model_strategy import (
    ModelOptions,
    ModelStrategy,
    OneOrEach,
    surrogate_of,
)
from botorch_sparse.strategies.surrogates.inferred_kernels import few_data_kernel
from botorch_sparse.strategies.surrogates.prior import PosteriorSettings
from botorch_sparse.strategies.surrogates.surrogate import Surrogate
from botorch_sparse.strategies.surrogates.table_posterior import TablePosterior

DEFAULT_BATCH_SIZE = 8
# Improvements of less than this are smoothed, in units of scalarizations.
SMOOTHING = 1e-6
# Different rows whose posterior is exact. Beyond them a batch of some tens costs less
# with inducing points, since each row that is added costs O(A n).
MOST_ROWS = 4_000
# Points that are all inducing points, and the most inducing points of more. The same
# number of rows is exact where values may lie apart, which need a posterior anew.
MOST_INDUCING = 1_000
# Values that are drawn of a point.
DRAWS = 128
# Of points that are known, in units of the feedback's variance.
LEAST_VARIANCE = 1e-20
# What is left of a point's variance at least, of the prior's largest.
LEAST_SHARE = 1e-9
# Rows at least whose moments are computed at a time, where bounds were known.
RESOLVED = 4_096
# Rows that are brought up to date first; later blocks double.
FIRST_BLOCK = 64
# And of such a block at a time: what is computed of their draws takes some 100 MB.
MOST_AT_A_TIME = 2**15
# Covariances of points of a batch with all rows that are kept.
MOST_KEPT = 2**24


class ExpectedImprovement(ModelStrategy[Surrogate]):
    """Rows of largest expected improvement, for few evaluations of a table.

    Use it where there is time for some ten batches, as in a laboratory. For long runs
    `ThompsonSampling` and `BBKB` are quicker, and `BBKB` has a guarantee. On a
    continuous domain use BoTorch's `qLogNoisyExpectedImprovement` with
    `SparseSingleTaskGP`. The formula is in `strategies/expected_improvement.py`.

    It takes any number of objectives and constraints. Where the kernel is inferred, it
    is `few_data_kernel`. The posterior of up to 4,000 different rows is exact,
    with `robust` of up to 1,000.

    Cost, with `A` candidates and `n` evaluations, for each outcome: O(A n) for each
    evaluation, and O(A n^2) where hyperparameters were fitted since; with several
    objectives O(128 A) more for a batch; for its j-th point O(A), and O(j (n + 128))
    for each row that is brought up to date, some hundreds or thousands. Memory O(A n).

    Beyond these rows, or 1 GiB of `8 A n` bytes, there are `m` inducing points in place
    of `n`, at most 1,000 where the kernel is inferred, and a batch costs
    O((A + n) m^2). With a single outcome bounds, a sixteenth of that, suffice for most
    rows. Where `8 A m` bytes are more than 1 GiB (of bits `A m`, of counts as much or
    twice that), the kernel is evaluated at these rows and the inducing points each
    time. With points beside the table, or `robust` and values that lie apart, a batch
    costs O(A n^2 + n^3).

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel, or None to infer it; see `ModelStrategy`.
        lam: The noise variance of an evaluation; see `ModelStrategy`.
        oversampling: See `PosteriorVarianceSampler`, which draws inducing points.
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
        check_whole("batch_size", batch_size)
        self.batch_size = batch_size

    @torch.no_grad()
    def _select_by_model(self, limit: int) -> list[int]:
        batch, start = self._no_batch(), self._start()
        blocks = range(0, len(start), MOST_AT_A_TIME)
        bounds = [batch.log_bound(slice(i, i + MOST_AT_A_TIME)) for i in blocks]
        score, chosen = start + torch.cat(bounds), list[int]()
        for number in self.pending.unsqueeze(-1):
            if (row := int(number)) < len(start):
                batch.append_row(row)
            else:
                batch.append(self.record.points(number))
        while len(chosen) < limit:
            row = _best_row(score if batch.is_single else score.clone(), start, batch)
            chosen.append(row)
            if self.unique:
                score[row] = start[row] = -torch.inf
            batch.append_row(row)
            if not self._ask_limit(len(chosen)):
                break
        return chosen

    def _start(self) -> Tensor:
        """What stays in a batch: minus the logarithm of prices, or infinity; `A`."""
        start = torch.zeros(self.domain.num_rows, dtype=torch.double)
        if self.costs is not None:
            start = -self.costs.price(self._paid()).log()
        start[torch.tensor(sorted(self.excluded_points), dtype=torch.long)] = -torch.inf
        return start

    def _no_batch(self) -> "_GrowingBatch":
        """The improvement of no points, given the data."""
        record, views = self.record, [part.view for part in self.surrogate.parts]
        is_alone = len(views) == 1
        parts = [
            _DrawnOutcome(view, screens=is_alone) if view.num_inducing() else None
            for view in views
        ]
        unknown = torch.full((len(record.different),), torch.nan, dtype=torch.double)
        means = [unknown if part is None else part.means(record) for part in parts]
        measured = torch.stack(means, dim=-1)
        return _GrowingBatch(Preference.of(record), parts, measured, len(record))

    @override
    def _config(self) -> dict[str, Any]:
        return super()._config() | {"batch_size": self.batch_size}


def _surrogate_of(
    domain: Domain, settings: PosteriorSettings, sampler: PosteriorVarianceSampler
) -> Surrogate:
    """The surrogate before any data, which is exact for as many as are few."""
    surrogate = surrogate_of(
        domain,
        settings,
        sampler=sampler,
        most_exact=MOST_INDUCING if settings.robust else MOST_ROWS,
        inferred_kernel=few_data_kernel,
    )
    return replace(surrogate, exact_size=MOST_INDUCING, max_inducing=MOST_INDUCING)


class _GrowingBatch:
    """What rows add to the expected improvement of the points before them.

    Args:
        preference: What is wanted.
        parts: The outcomes' posteriors; None leaves an outcome out that has no data.
        measured: `n x k` means at measured points, as modelled; NaN for outcomes
            without data.
        num_reports: How many reports there are: others have other scalarizations.
    """

    def __init__(
        self,
        preference: Preference,
        parts: "list[_DrawnOutcome | None]",
        measured: Tensor,
        num_reports: int,
    ) -> None:
        self._preference, self._parts = preference, parts
        self._outcomes = preference.outcomes
        self.is_single = len(self._outcomes.objectives) == 1
        # The only outcome, which bounds may be known of in place of moments.
        self._screened = parts[0] if len(parts) == 1 else None
        self._generator = torch.Generator().manual_seed(0)
        own = torch.Generator().manual_seed(num_reports)
        self._weights = preference.draw_weights(DRAWS, own).unsqueeze(1)
        self._z = [normal_draws(own).unsqueeze(1) for _ in parts]  # of rows themselves
        known = measured[self._outcomes.violations(measured) <= 0]
        if len(known) == 0:
            least = [torch.nan if part is None else part.least() for part in parts]
            known = measured.new_tensor([least])
        # In each draw, or in all; with the points of the batch, and without.
        self._best = self._value(known.unsqueeze(0)).amax(-1, keepdim=True)
        self._best_known = self._best

    def _value(self, Y: Tensor) -> Tensor:
        """The objective as it is modelled, or each draw's scalarization in its units.

        `S x q` of `S x q x k`.
        """
        if self.is_single:
            return Y[..., self._outcomes.objectives[0]]
        columns = zip(self._parts, Y.unbind(-1), strict=True)
        Y = torch.stack([y if p is None else p.in_units(y) for p, y in columns], -1)
        return self._preference.value(Y, self._weights)

    def log_gain(self, rows: Tensor | slice) -> Tensor:
        """Logarithms of what `q` rows add, or those of a slice."""
        score, moments = self._chance_and_moments(rows)
        if self.is_single and moments:
            ((mean, sd),) = moments.values()
            score = _log_improvement(mean - self._best, sd) + score
        elif moments:
            score = log_fatplus(self._above(moments), tau=SMOOTHING) + score
        return score.logsumexp(0) - math.log(len(score))

    def log_bound(self, rows: Tensor | slice) -> Tensor:
        """Logarithms of what `q` rows add at most, with no point in the batch.

        That is what they add, where their moments are known; with several objectives at
        most `SMOOTHING` more, in less time.
        """
        if self._screened is not None:
            mean, sd = self._screened.moments(rows)
            return _log_improvement(mean - self._best_known.squeeze(), sd)
        if self.is_single:
            return self.log_gain(rows)
        score, moments = self._chance_and_moments(rows)
        if not moments:
            return score.squeeze(0)
        gain = self._above(moments).clamp_min_(0.0).mean(0)
        return (gain + SMOOTHING).log() + score.squeeze(0)

    def _chance_and_moments(
        self, rows: Tensor | slice
    ) -> tuple[Tensor, dict[int, tuple[Tensor, Tensor]]]:
        """What the gain of `q` rows is computed from.

        Returns:
            Logarithms of the chances to keep all limits, `S x q` or `1 x q`; and by
            columns the means and standard deviations of the objectives that have data.
        """
        score = torch.zeros(1, 1, dtype=torch.double)
        moments = dict[int, tuple[Tensor, Tensor]]()
        for column, part in enumerate(self._parts):
            if part is None:
                continue
            mean, sd = part.given_draws(rows)
            if isinstance(outcome := self._outcomes.parts[column], Constraint):
                low, high = ((end - mean) / sd for end in outcome.range)
                score = score + log_prob_normal_in(low, high)
            else:
                moments[column] = mean, sd
        return score, moments

    def _above(self, moments: dict[int, tuple[Tensor, Tensor]]) -> Tensor:
        """How far each draw's scalarization of `q` rows is above its best, `S x q`.

        As `Preference.value` of values that are drawn, in less memory.
        """
        low, scale = self._preference.low, self._preference.scale

        def term(i: int, column: int) -> Tensor:
            (mean, sd), part = moments[column], self._parts[column]
            slope, z = 1 / (scale[i] * self._weights[..., i]), self._z[column]
            if part is not None and part.is_warped:
                return (part.in_units(mean + z * sd) - low[i]) * slope
            return ((mean - low[i]) * slope).addcmul_(slope * z, sd)

        columns = self._outcomes.objectives
        terms = (term(i, each) for i, each in enumerate(columns) if each in moments)
        return reduce(torch.minimum, terms).sub_(self._best)

    def has_bounds(self, rows: Tensor) -> bool:
        """Whether of some of these rows upper bounds are known in place of moments."""
        part = self._screened
        return part is not None and not bool(part.is_exact[rows].all())

    def resolve(self, rows: Tensor) -> Tensor:
        """Have moments of rows; returns those that had bounds."""
        return rows[:0] if self._screened is None else self._screened.resolve(rows)

    def append_row(self, row: int) -> None:
        """Have a row in the batch."""
        self._append(
            [None if part is None else part.of_row(row) for part in self._parts]
        )

    def append(self, x: Tensor) -> None:
        """Have a point in the batch, `1 x d`."""
        self._append(
            [None if part is None else part.of_point(x) for part in self._parts]
        )

    def _append(self, points: "list[_Point | None]") -> None:
        """Draw values of a point, and improve on them where limits are kept."""
        values = list[Tensor]()
        for part, point in zip(self._parts, points, strict=True):
            z = normal_draws(self._generator)
            if part is None or point is None:
                values.append(torch.full_like(z, torch.nan))
            else:
                values.append(part.draw(point, z))
        Y = torch.stack(values, dim=-1).unsqueeze(1)
        value, is_feasible = self._value(Y), self._outcomes.violations(Y) <= 0
        is_better = is_feasible & (value > self._best)
        self._best = value.where(is_better, self._best)


def normal_draws(generator: torch.Generator) -> Tensor:
    """One draw from each of `DRAWS` equally likely parts of N(0, 1), in any order.

    Independent ones make a Latin hypercube [McKay1979]_.
    """
    order = torch.randperm(DRAWS, generator=generator)
    return torch.special.ndtri((order.double() + 0.5) / DRAWS)


def _best_row(score: Tensor, start: Tensor, batch: _GrowingBatch) -> int:
    """The row of the largest score, the lowest of equals.

    Args:
        score: What rows do not exceed, `A`; some get their present value, in place.
        start: What is added to the logarithm of what they add, `A`.
        batch: The points before.
    """
    is_fresh = torch.zeros(len(score), dtype=torch.bool)
    size = FIRST_BLOCK
    while not is_fresh[best := int(score.argmax())]:
        stale = score.masked_fill(is_fresh, -torch.inf)
        rows = _largest(stale, size)
        if batch.has_bounds(rows):
            new = batch.resolve(_largest(stale, max(size, RESOLVED)))
            score[new] = start[new] + batch.log_bound(new)
            continue
        for part in rows.split(MOST_AT_A_TIME):
            score[part] = start[part] + batch.log_gain(part)
        is_fresh[rows] = True
        size *= 2
    return best


def _largest(score: Tensor, size: int) -> Tensor:
    """The rows of the largest scores, in their order; the first of equal ones."""
    if size >= len(score):
        return torch.arange(len(score))
    least = score.topk(size).values[-1]
    above, equal = (score > least).nonzero(), (score == least).nonzero()
    return torch.cat([above, equal[: size - len(above)]]).squeeze(-1).sort().values


def _log_improvement(above: Tensor, sd: Tensor) -> Tensor:
    """Logarithms of expected improvements: of means `above` the best, and `sd`."""
    return sd.log() + log_ei_helper(above / sd)


class _Point(NamedTuple):
    """A point, and what is known of it without any draws."""

    row: int | None  # of the table
    x: Tensor  # `1 x d`, as the kernel takes it
    cross_covariance: Tensor  # of the pool, `m x 1`
    mean: Tensor  # 1
    variance: Tensor  # 1


class _DrawnOutcome:
    r"""An outcome of rows, given draws of its values at other points.

    With the posterior mean :math:`\mu` and covariance `c`, and points
    :math:`x_1, x_2, \ldots` whose values are :math:`\mu(x_j) + (R z)_j`,

    .. math:: \mu(x) + u(x)^\top z, \quad c(x, x) - u(x)^\top u(x), \qquad
        u(x) = R^{-1} \big(c(x_j, x)\big)_j, \quad R R^\top = \big(c(x_i, x_j)\big)_{ij}

    are the mean and the variance of a row, with independent normal `z`.

    Values are on the scale on which they are modelled, which may be logarithmic. Above
    the best known value it is the feedback's own.

    This is the whole covariance. `TableBatch` takes what the inducing points explain of
    it, as the theorems of `BBKB` have it: with few data that is little.

    Args:
        view: The table, with a posterior of the data.
        screens: Whether rows may have upper bounds in place of moments at first. With
            several outcomes they may not: `least` asks for all.
    """

    def __init__(self, view: TablePosterior, *, screens: bool) -> None:
        self._view, self._kernel = view, view.prior.covar_module
        pool = view.pool
        found = pool.upper_moments() if screens else pool.all_moments()
        mean, variance = (each.double().cpu() for each in found)
        self._mean, self._variance = mean, variance
        self.is_exact = torch.full((len(mean),), pool.is_embedded)
        largest = variance_of(self._kernel, pool.X).max()
        self._jitter = LEAST_SHARE * float(largest)
        self._points = list[Tensor]()  # 1 x d each
        self._columns = list[Tensor]()  # of the first points; see `_prior`
        self._explained = list[Tensor]()  # m x 1 each, see `explained_weights`
        self._factor = variance.new_empty(0, 0)  # R
        self._z = variance.new_empty(1, 0)  # draws x points

    @property
    def is_warped(self) -> bool:
        """Whether the scale is another one than that of the feedback."""
        return self._view.prior.warp is not None

    def in_units(self, values: Tensor) -> Tensor:
        """From the scale of this to units of `Y`."""
        warp = self._view.prior.warp
        return values if warp is None else warp.inverse(values)

    def least(self) -> float:
        """Less than any row has: the least mean less six standard deviations.

        As BoTorch's `get_infeasible_cost`.
        """
        low = self._mean - 6.0 * self._variance.clamp_min(0.0).sqrt()
        return self._view.prior.scale * float(low.min())

    def means(self, record: RunRecord) -> Tensor:
        """Posterior means at the points of a record. Those of rows are looked up."""
        points, num = record.different, len(self._mean)
        beside, rows = points >= num, points.clamp_max(num - 1)
        self.resolve(rows)
        means = self._mean[rows]
        if beside.any():
            x = self._view.source.inputs(record.points(points[beside]))
            means[beside] = self._moments_at(x).mean
        return self._view.prior.scale * means

    def moments(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of rows, or bounds on them; `q` each."""
        sd = self._variance[rows].clamp_min(LEAST_VARIANCE).sqrt()
        return self._view.prior.scale * self._mean[rows], self._view.prior.scale * sd

    def resolve(self, rows: Tensor) -> Tensor:
        """Know exact moments of rows; returns those that had bounds."""
        new = rows[~self.is_exact[rows]].unique()
        if len(new):
            mean, variance = self._view.pool.moments(new)
            self._mean[new], self._variance[new] = mean.double(), variance.double()
            self.is_exact[new] = True
        return new

    def given_draws(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Means in each draw and standard deviations.

        Args:
            rows: `q` rows, or a slice.

        Returns:
            `S x q`, or `1 x q` without points, and `q`. Cost: O(q j (m + S)) with `j`
            points and `S` draws.
        """
        mean, variance = self._mean[rows], self._variance[rows]
        if self._points:
            c = self._covariances(rows)
            u = solve_rows(self._factor, c)
            mean = mean + self._z @ u.mT
            variance = variance - u.square().sum(-1)
        scale, sd = self._view.prior.scale, variance.clamp_min(LEAST_VARIANCE).sqrt()
        return scale * torch.atleast_2d(mean), scale * sd

    def of_row(self, row: int) -> _Point:
        """A row as a point."""
        rows, pool = torch.tensor([row]), self._view.pool
        self.resolve(rows)
        x = kernel_rows(self._kernel, pool.X, rows)
        cross_covariance = pool.cross_covariance(rows)
        return _Point(row, x, cross_covariance, self._mean[rows], self._variance[rows])

    def of_point(self, x: Tensor) -> _Point:
        """A point as the kernel takes it."""
        view = self._view
        x = view.source.inputs(x.to(view.pool.X.device))
        return _Point(None, x, view.pool.cross_covariance_at(x), *self._moments_at(x))

    def _moments_at(self, x: Tensor) -> Moments:
        """Those of points as the kernel takes them, on the host."""
        posterior = self._view.posterior
        assert posterior is not None  # there is data
        return Moments(*(each.double().cpu() for each in posterior.moments(x)))

    def draw(self, point: _Point, z: Tensor) -> Tensor:
        """Values at one more point.

        Cost: O(m^2 + j m) with `j` points, O(j n) where the posterior is exact; and
        what `_prior` looks up.

        Args:
            point: The point.
            z: Normal draws, `S`.

        Returns:
            `S` values.
        """
        share = self._variance.new_empty(1, 0)
        if self._points:
            if point.row is None:
                prior = dense_covariance(self._kernel, point.x, torch.cat(self._points))
                c = self._given_data(prior, point.cross_covariance)
            else:
                c = self._covariances(slice(point.row, point.row + 1))
            share = solve_rows(self._factor, c)
        # Also of a point that rounding makes the others explain.
        pivot = (point.variance - share.square().sum(-1)).clamp_min(0.0) + self._jitter
        above = torch.cat(
            [self._factor, self._factor.new_zeros(share.shape[-1], 1)], -1
        )
        below = torch.cat([share, pivot.sqrt().unsqueeze(-1)], -1)
        self._factor = torch.cat([above, below])
        self._z = torch.cat([self._z.expand(len(z), -1), z.unsqueeze(-1)], -1)
        explained = self._view.pool.explained_weights(point.cross_covariance)
        self._explained.append(explained)
        self._points.append(point.x)
        room = MOST_KEPT - len(self._points) * len(self._mean)
        X = self._view.pool.X
        if room >= 0 and distinct_blocks(self._kernel, X) is not None:
            column = kernel_with(self._kernel, X, slice(None), point.x)
            self._columns.append(column.squeeze(-1))
        return self._view.prior.scale * (point.mean + self._z @ below.squeeze(0))

    def _covariances(self, rows: Tensor | slice) -> Tensor:
        """Posterior covariances of `q` rows with the points so far, `q x j`."""
        cross_covariance = self._view.pool.cross_covariance(rows)
        return self._given_data(self._prior(rows), cross_covariance)

    def _prior(self, rows: Tensor | slice) -> Tensor:
        """Those of the prior.

        They are looked up for tables whose different rows are known: there similarities
        with all rows take no longer than with some.
        """
        parts = [column[rows].unsqueeze(-1) for column in self._columns]
        if rest := self._points[len(parts) :]:
            X = self._view.pool.X
            parts.append(kernel_with(self._kernel, X, rows, torch.cat(rest)))
        return torch.cat(parts, dim=-1)

    def _given_data(self, prior: Tensor, cross_covariance: Tensor) -> Tensor:
        """Posterior covariances with the points so far, `q x j`, from the prior's.

        Args:
            prior: `q x j`.
            cross_covariance: The pool's of the `q` others, `m x q`.
        """
        explained = cross_covariance.mT @ torch.cat(self._explained, dim=-1)
        return (prior - explained).double().cpu()
