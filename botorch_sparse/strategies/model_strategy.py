"""Strategies that learn a posterior, and choose by it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, Unpack

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor
from typing_extensions import override

from botorch_sparse.argument_checks import check_flag, check_number
from botorch_sparse.batching.rules import MAX_BATCH_SIZE, MAX_BOX_BATCH
from botorch_sparse.inducing import InducingPointSampler, RecursiveRLSSampler
from botorch_sparse.inducing.sampler import validate_sampler
from botorch_sparse.models.inducing_points import EXACT_SIZE
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.pools.nystrom_pool import MAX_MEMORY
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.strategies.core.strategy import Strategy
from botorch_sparse.strategies.data.box import DomainOptions
from botorch_sparse.strategies.data.costs import Costs
from botorch_sparse.strategies.data.domain import (
    BoxDomain,
    Domain,
    TableDomain,
    domain_of,
    draw_seed,
    require_whole,
)
from botorch_sparse.strategies.data.feedback import read_points
from botorch_sparse.strategies.data.initial_design import (
    check_design,
    promising_rows,
    spread_rows,
)
from botorch_sparse.strategies.data.outcomes import Outcome
from botorch_sparse.strategies.data.run_record import BatchRecord
from botorch_sparse.strategies.surrogates.prior import PosteriorSettings
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource
from botorch_sparse.strategies.surrogates.related import read_related
from botorch_sparse.strategies.surrogates.surrogate import DomainPosterior, Surrogate
from botorch_sparse.strategies.surrogates.table_posterior import (
    ExactTablePosterior,
    NystromTablePosterior,
)

# Points of a table that are all inducing points, where the kernel is inferred.
EXACT_ON_TABLES = 100
# Points of a box that earlier campaigns choose the first ones from.
NUM_DRAWN = 256

S = TypeVar("S", bound=Any)
V = TypeVar("V")
# One for all outcomes, or a list with one for each.
OneOrEach: TypeAlias = V | Sequence[V] | None


class ModelOptions(DomainOptions, total=False):
    """Keyword arguments of `ModelStrategy` that strategies take as they are."""

    mean_module: Mean | None
    num_initial: int | None
    initial_design: str
    refit: RefitSchedule | None
    optimizer_options: Mapping[str, Any] | None
    robust: bool
    related: Iterable[Any] | None
    unique: bool | None
    minimize: bool
    outcomes: Iterable[Outcome] | None
    seed: int


class ModelStrategy(Strategy, Generic[S]):
    r"""Learns a Gaussian process, sparse or exact, at the ends of batches.

    The kernel may be left out. Then kernel, noise, mean and the scales of inputs and
    outputs are inferred, and fitted again at the ends of batches; on a table columns
    that do not vary are left out. With a kernel, it and the data are taken as they are,
    and the prior mean is a constant that the data decide on, by generalized least
    squares: a number added to all feedback changes no choice. The theorems are about
    functions of bounded norm under the kernel, with prior mean zero: they hold for the
    function less that constant, once it stands, and say nothing of the error of the
    constant. `mean_module=ZeroMean()` is the papers' setting.

    Where the kernel is inferred, values of an objective may also be modelled on a
    logarithmic scale, as times that differ by powers of ten. The likelihood decides at
    the first fit, and each time that evaluations have doubled; see
    `surrogates/log_warp.py`. Predictions are in units of the feedback, medians in place
    of means. (`SBPE`, `GSSBO` and `RSSBO` take values as they are.)

    Hyperparameters are fitted by the exact likelihood of at most 300 of the points
    (`FIT_SIZE` in `prior_fitting`), drawn uniformly anew for each fit, with all of
    their evaluations, from where the last fit ended: O(min(n, 300)^3) for each
    evaluation of the likelihood, whatever `n` and `m`. All data are learned with them.

    Strategies make the domain and the posterior of arguments that they share:

    - `covar_module`: The kernel; of several outcomes one for all, or a list with one
      for each, as of `lam`. Its hyperparameters stay as they are, unless `refit`
      is given.
    - `lam`: The regularizer lambda, as the posterior's noise variance, positive; 1e-4
      by default. Inferred with the kernel where that is left out. Repeats of points
      that differ by ten times as much are announced once, with what to pass.
    - `mean_module`: The prior mean of a kernel that is given, taken as it is; None for
      the constant above.
    - `num_initial`: Points before the posterior is used: 1 with a kernel (Algorithm 1
      of the papers), else `2 d`, at least 5, on a table at most 20; whole batches where
      these have a size. Data told before the first `ask` count.
    - `initial_design`: How these points are drawn from a table: `"random"`, uniformly,
      or `"k-means"`, in the middles of as many clusters, away from what was told. On a
      continuous domain they are Sobol's, or random ones where there are constraints.
    - `refit`: When hyperparameters are fitted again, at the ends of batches. Never with
      a kernel; else when data grew by a fifth. A kernel's noise is fitted down to 1e-4
      of its prior variance, or to half of `lam` where that is less.
    - `robust`: Whether values that lie far from all others count less: beyond a gap of
      ten times the range of the others, at most a fifth of ten values or more at either
      end. They are moved to the others, have extra noise where these contradict them,
      and are announced. It is for feedback some of which may be wrong; without it such
      values are announced when they are new, where the kernel is inferred. In a run
      that stays at the top of a hill the first values lie apart as well. No theorem
      covers it. Values of `related` count less too, also where others contradict them.
    - `related`: Earlier campaigns with the same columns, where the kernel is inferred:
      pairs of points and values, such as `[(X, Y)]`. What they share with this one is
      inferred; see `surrogates/related.py`. Each is fitted once, at O(n m^2).
    - `optimizer_options`: On a continuous domain, for `optimize_acqf`: `num_restarts`,
      `raw_samples`, `options`, ...

    Args:
        candidates: `A x d` points to choose from; or give `bounds`. See `Strategy`.
        covar_module: See above, as `lam`.
        lam: See there.
        surrogate: From the domain and the settings to what learns: a value with
            `learn`, `predict`, `posterior`, `model`, `clear`, `config`, `state_dict`
            and `of_state`, and `certificate` for plots, such as `Surrogate`.
            `_describe` reads `num_inducing` and `max_variance`, `set_candidates` calls
            `moved`, and with `related` there are `parts`.
        mean_module: See above, as the next five.
        num_initial: See there.
        initial_design: See there.
        refit: See there.
        optimizer_options: See there.
        robust: See there.
        related: See there.
        cost: `A` positive costs of the candidates of a table, for strategies that weigh
            them; see `Costs`. An evaluation costs when it is asked for, and nothing any
            more if it fails or is withdrawn.
        budget: What all evaluations may cost together; None for no limit. Nothing is
            proposed that can't be paid.
        unique: Propose each candidate of a table at most once, and none that was
            evaluated: what finds the best one, unless noise is large. By default so
            where the kernel is inferred; with a kernel candidates may come again, as
            the theorems have it.
        minimize: See `Strategy`.
        outcomes: See `Strategy`. Each has a posterior of its own.
        seed: Seed of the strategy's generator.
        **domain: `bounds` and constraints; see `Strategy`.

    Attributes:
        is_related: Whether earlier campaigns say something of an objective.
        promising: Numbers of the first points that earlier campaigns have chosen, since
            the strategy was made or loaded.
    """

    shares_tables: ClassVar[bool] = True

    def __init__(
        self,
        candidates: Any,
        covar_module: OneOrEach[Kernel],
        lam: OneOrEach[float],
        surrogate: Callable[[Domain, PosteriorSettings], S],
        *,
        mean_module: Mean | None = None,
        num_initial: int | None = None,
        initial_design: str = "random",
        cost: Any = None,
        budget: float | None = None,
        refit: RefitSchedule | None = None,
        optimizer_options: Mapping[str, Any] | None = None,
        robust: bool = False,
        related: Iterable[Any] | None = None,
        unique: bool | None = None,
        minimize: bool = False,
        outcomes: Iterable[Outcome] | None = None,
        seed: int = 0,
        **domain: Unpack[DomainOptions],
    ) -> None:
        place = domain_of(candidates, domain, type(self))
        if unique is not None:
            check_flag("unique", unique)
        super().__init__(place, seed=seed, minimize=minimize, outcomes=outcomes)
        num = len(self.record.outcomes)
        pairs = settings_of(covar_module, lam, num)
        campaigns = read_related(related, place, self.record.outcomes)
        if any(campaigns):  # each outcome has its own
            pairs *= num // len(pairs)
        campaigns = campaigns[: len(pairs)]
        settings = [
            PosteriorSettings.of(
                place,
                kernel,
                noise,
                mean_module=mean_module,
                refit=refit,
                num_initial=num_initial,
                optimizer_options=optimizer_options,
                robust=robust,
                related=each,
            )
            for (kernel, noise), each in zip(pairs, campaigns, strict=True)
        ]
        objectives = self.record.outcomes.objectives
        self.is_related = any(campaigns) and any(campaigns[i] for i in objectives)
        self.promising = frozenset[int]()
        self.unique = place.is_unique(unique, is_known=covar_module is not None)
        self.settings = settings[0]
        self.initial_design = check_design(initial_design, self.domain)
        if cost is not None:
            require_whole(self.domain, f"{type(self).__name__} with cost")
        self.costs = Costs.of(cost, budget, self.domain.num_rows)
        made = [surrogate(place, each) for each in settings]
        # Those that are equal share all they have.
        self.surrogate = (
            made[0] if num == 1 else self._joined(made * (num // len(made)))
        )

    def _joined(self, parts: Sequence[Any]) -> Any:
        """What learns several outcomes, from what would learn each."""
        # Joint batches bring what is of boxes alone: see `_posterior_on`.
        from botorch_sparse.strategies.surrogates.outcome_surrogates import (
            OutcomeSurrogates,
        )

        return OutcomeSurrogates(tuple(parts))

    @override
    def predict(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        """Mean and standard deviation; None before anything was learned.

        On a logarithmic scale the first is a median.

        Cost: O(k m^2); for an exact posterior O(n^3).
        """
        X = read_points(X, self.domain)
        if self._num_learned == 0:
            return None
        with self._lock:
            predicted = self.surrogate.predict(X, self.record)
        if predicted is None:
            return None
        mean, sd = predicted
        outcomes = self.record.outcomes
        if len(outcomes) == 1:
            return outcomes.signed(mean), sd
        return outcomes.signed_rows(mean), sd

    @property
    def spent(self) -> float:
        """What evaluations cost so far, those that are pending included."""
        return 0.0 if self.costs is None else self.costs.spent(self._paid())

    @property
    @override
    def excluded_points(self) -> Collection[int]:
        excluded = super().excluded_points
        if self.costs is None:
            return excluded
        return {*excluded, *self.costs.beyond(self._paid())}

    def _paid(self) -> Tensor:
        """Numbers of the points of all evaluations, and of those that are pending."""
        record = self.record
        return torch.cat([record.point[~record.is_later], self.pending])

    @property
    def posterior(self) -> Any:
        """The Nystrom posterior that batches are chosen with; None before any.

        Its points are the kernel's inputs: the given ones, or where the kernel is
        inferred the columns that vary, scaled to [0, 1], and what `related` campaigns
        say. Its values are in the prior's `scale`, and may be logarithms where the
        kernel is inferred. Of an exact posterior all points are inducing points, and it
        is computed when it is asked for, in O(n^3).
        """
        return self.surrogate.posterior

    @property
    def model(self) -> Any:
        """The BoTorch model of a continuous domain; None before any feedback."""
        return self.surrogate.model

    def _select(self, max_batch_size: int | None) -> list[int]:
        given = [size for size in (max_batch_size, self.batch_size) if size]
        default = MAX_BATCH_SIZE if self.domain.num_rows else MAX_BOX_BATCH
        most = min(given, default=default)
        excluded = self.excluded_points
        limit = self.domain.num_selectable(most, excluded, unique=self.unique)
        if limit == 0:
            why = "have failed" + ", are evaluated or pending" * self.unique
            if self.costs is not None and self.costs.beyond(self._paid()):
                why += f", or cost more than what is left of {self.costs.budget}"
            raise UnsupportedError(
                f"None of {self.domain.num_rows} candidates is left: all {why}."
            )
        if (missing := self._num_initial_missing()) > 0:
            chosen = self._initial_points(min(missing, limit))
        else:
            chosen = self._select_by_model(limit)
        if self.costs is None:
            return chosen
        return self.costs.affordable(chosen, self._paid())

    def _initial_points(self, num: int) -> list[int]:
        """Points before the posterior is asked.

        With earlier campaigns every other one is among the rows that these find best,
        or on a box among `NUM_DRAWN` points.
        """
        record, domain, g = self.record, self.domain, self.generator
        excluded = self.excluded_points
        start = record.num_evaluations + len(self._trials)
        share = (start + num + 1) // 2 - (start + 1) // 2
        promising = self._promising_points(share) if self.is_related and share else []
        self.promising |= {*promising}
        excluded = {*excluded, *promising}
        num -= len(promising)
        if self.initial_design == "random" or not isinstance(domain, TableDomain):
            return promising + domain.sample(num, g, record.add_point, excluded)
        known = record.points(torch.cat([record.different, self.pending]))
        drawn = torch.tensor(promising, dtype=torch.long, device=domain.device)
        known = torch.cat([known, domain.rows(drawn)])
        return promising + spread_rows(domain, num, g, excluded, known)

    def _promising_points(self, num: int) -> list[int]:
        """Points among those that earlier campaigns find best."""
        domain, g = self.domain, self.generator
        if not isinstance(domain, BoxDomain):
            return promising_rows(self._related_score(), num, g, self.excluded_points)
        X = domain.box.sample(NUM_DRAWN, draw_seed(g))
        rows = promising_rows(self._related_score(X), num, g, ())
        return self.record.add_points(X[rows])

    def _related_score(self, X: Tensor | None = None) -> Tensor:
        """What `related` campaigns say of `k x d` points, or of the rows of a table.

        Returns:
            `k` sums of their means in standard deviations, over all objectives and in
            the sign that is maximized; zeros where nothing is related.
        """
        sources = [
            (part.source, part.view.pool.X if X is None else part.source.inputs(X))
            for i, part in enumerate(self.surrogate.parts)
            if i in self.record.outcomes.objectives
        ]
        means = [
            source.inputs.related_means(inputs).sum(-1) for source, inputs in sources
        ]
        return torch.stack(means).sum(0)

    def _largest_batch(self) -> int:
        """Points of a batch at most, those drawn at the start included."""
        return self.batch_size or MAX_BATCH_SIZE

    def _select_by_model(self, limit: int) -> list[int]:
        """Choose at most so many points by the posterior."""
        raise NotImplementedError

    def _selectable(self) -> SelectableRows:
        """The rows that may be chosen."""
        excluded = torch.tensor(sorted(self.excluded_points), dtype=torch.long)
        return SelectableRows(excluded if len(excluded) else None, self.unique)

    def _num_initial_missing(self) -> int:
        """How many points to draw before the posterior is asked.

        Where batches have a size of their own, whole ones.
        """
        at_least = 1 if self._num_learned == 0 else 0
        if at_least and self._largest_batch() < MAX_BATCH_SIZE:
            return self._largest_batch()
        known = self.record.num_evaluations + len(self._trials)
        if self.settings.num_initial == 1:
            return at_least
        missing = max(at_least, self.settings.num_initial - known)
        size = self.batch_size or 1
        return -(-missing // size) * size

    def _learn(self) -> None:
        """Learn from the whole history."""
        self._learn_in_order()
        super()._learn()

    @override
    def _forget(self) -> None:
        self.surrogate.clear()

    def _learn_in_order(self) -> None:
        """Learn at the end of a batch; assigns at its end."""
        self.surrogate = self.surrogate.learn(self.record, self.generator)

    @override
    def _describe(self) -> BatchRecord:
        return BatchRecord(
            size=0,
            num_inducing=self.surrogate.num_inducing(),
            max_variance=self.surrogate.max_variance(),
        )

    @override
    def _move(self, number: Mapping[int, int]) -> None:
        if self.costs is not None:
            raise UnsupportedError(
                "Costs are of the rows of one table: build another strategy with the "
                "costs of the new one, and tell it the history."
            )
        self.surrogate = self.surrogate.moved(
            self.domain, number, self.record, self._num_learned
        )
        moved = [number[point] for point in self.promising if point in number]
        self.promising = frozenset(moved)

    @override
    def _state(self) -> dict[str, Any]:
        return super()._state() | {"surrogate": self.surrogate.state_dict()}

    @override
    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        self.surrogate = self.surrogate.of_state(
            state["surrogate"], self.record, self._num_learned
        )

    @override
    def _config(self) -> dict[str, Any]:
        config = super()._config() | {"unique": self.unique}
        if self.initial_design != "random":
            config["initial_design"] = self.initial_design
        if self.costs is not None:
            config |= self.costs.config()
        return config | self.surrogate.config(self.domain)


def settings_of(
    covar_module: OneOrEach[Kernel], lam: OneOrEach[float], num: int
) -> list[tuple[Kernel | None, float | None]]:
    """Kernel and noise of `num` outcomes; one pair where all have the same.

    Raises:
        InputDataError: If there are several, but not one for each outcome.
    """
    given: dict[str, Any] = {"covar_module": covar_module, "lam": lam}
    each = {k: v for k, v in given.items() if isinstance(v, list | tuple)}
    if not each:
        return [(given["covar_module"], given["lam"])]
    for name, values in each.items():
        if len(values) != num or None in values:
            raise InputDataError(
                f"Got {len(values)} values of {name} for {num} outcomes; need one for "
                "all, or one for each."
            )
    columns = [each.get(name) or [value] * num for name, value in given.items()]
    return list(zip(*columns, strict=True))


def surrogate_of(
    domain: Domain,
    settings: PosteriorSettings,
    *,
    sampler: InducingPointSampler | None,
    initial_sampler: InducingPointSampler | None = None,
    max_memory: int = MAX_MEMORY,
    embeds: bool = True,
    most_exact: int = 0,
    inferred_kernel: Callable[[int], Kernel] | None = None,
) -> Surrogate:
    """The surrogate of a domain before any data.

    Args:
        domain: The table, or the box.
        settings: What its posterior is built from.
        sampler: Sampler of inducing points once there is a posterior; None for the
            exact posterior.
        initial_sampler: Sampler of the first ones; see `Surrogate`.
        max_memory: See `NystromPool`.
        embeds: Whether candidates are embedded; see `NystromTablePosterior`.
        most_exact: The most unique points for which a table has the exact posterior
            although there is a sampler; 0 for none.
        inferred_kernel: See `PriorSource`.

    Raises:
        InputDataError: If a sampler is none, or `max_memory` is no number of bytes.
        UnsupportedError: If ranks share the table of an exact posterior.
    """
    validate_sampler("sampler", sampler)
    validate_sampler("initial_sampler", initial_sampler)
    check_number("max_memory", max_memory, "[0, inf)", "need bytes, at least 0.")
    source = PriorSource(domain, settings, inferred_kernel=inferred_kernel)
    is_exact = sampler is None
    return Surrogate(
        _posterior_on(domain, source, is_exact, max_memory, embeds, most_exact),
        sampler,
        initial_sampler or RecursiveRLSSampler(),
        max_memory,
        EXACT_ON_TABLES if domain.num_rows else EXACT_SIZE,
        is_robust=settings.robust,
        is_noise_known=settings.refit is not None,
    )


def _posterior_on(
    domain: Domain,
    source: PriorSource,
    is_exact: bool,
    max_memory: int,
    embeds: bool,
    most_exact: int,
) -> DomainPosterior:
    """The posterior on a domain, without data."""
    prior = source.initial()
    if domain.box is not None:
        # A table needs none of the acquisition functions and optimizers of a box.
        from botorch_sparse.strategies.surrogates.box_posterior import BoxPosterior

        return BoxPosterior(source, prior, domain.box)
    if most_exact:
        return ExactTablePosterior.of_few(source, domain, max_memory, most_exact)
    if not is_exact:
        pool = domain.pool(source.inputs, max_memory)
        return NystromTablePosterior(source, prior, pool, embeds=embeds).blank(prior)
    if domain.ranks.size > 1:
        raise UnsupportedError(
            "Exact posteriors are not shared by ranks: GPUCB, GPBUCB and "
            "UncertaintyReduction take one process. Use BBKB, BKB or ThompsonSampling."
        )
    return ExactTablePosterior.of(source, domain)
