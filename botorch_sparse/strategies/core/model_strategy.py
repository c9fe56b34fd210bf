"""Strategies that learn a posterior, and choose by it."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypedDict

import torch
from botorch.exceptions import UnsupportedError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import as_points, check_flag, check_number, part_of
from botorch_sparse.batching.acquisition_batch import MAX_BOX_BATCH
from botorch_sparse.inducing import InducingPointSampler, RecursiveRLSSampler
from botorch_sparse.inducing.sampler import validate_sampler
from botorch_sparse.models.inducing_points import EXACT_SIZE
from botorch_sparse.pools.nystrom_pool import MAX_MEMORY
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.core.strategy import Strategy
from botorch_sparse.strategies.data.box import DomainOptions
from botorch_sparse.strategies.data.domain import BoxDomain, Domain, domain_of
from botorch_sparse.strategies.data.evaluations import BatchRecord
from botorch_sparse.strategies.surrogates.box_posterior import BoxPosterior
from botorch_sparse.strategies.surrogates.posterior_settings import (
    ModelSettings,
    PosteriorOptions,
)
from botorch_sparse.strategies.surrogates.prior import PriorSource
from botorch_sparse.strategies.surrogates.surrogate import DomainPosterior, Surrogate
from botorch_sparse.strategies.surrogates.table_posterior import (
    ExactTablePosterior,
    NystromTablePosterior,
    exact_pool,
)

# Where a batch ends at the latest: points without variance add nothing to any bound.
MAX_BATCH_SIZE = 10_000
# Points of a table that are all inducing points, where the kernel is inferred.
FEW = 100


class RunOptions(TypedDict, total=False):
    """Keyword arguments of all strategies that learn a posterior, but for its parts."""

    unique: bool | None
    minimize: bool
    seed: int


class ModelOptions(DomainOptions, PosteriorOptions, RunOptions, total=False):
    """Those with what domain and posterior are made of.

    See `ModelStrategy` for what they mean.
    """


class ModelStrategy(Strategy):
    r"""Learns a Gaussian process, sparse or exact, at the ends of batches.

    The kernel may be left out. Then kernel, noise, mean and the scales of inputs and
    outputs are inferred, and fitted again at the ends of batches; on a table columns
    that do not vary are left out. With a kernel, it and the data are taken as they are,
    and the prior mean is a constant that the data decide on, by generalized least
    squares: a number added to all feedback changes no choice. The theorems are about
    functions of bounded norm under the kernel, with prior mean zero: they hold for the
    function less that constant, once it stands, and say nothing of the error of the
    constant. `mean_module=ZeroMean()` is the papers' setting.

    Hyperparameters are fitted by the exact likelihood of at most 300 of the points
    (`FIT_SIZE` in `model_building`), drawn uniformly anew for each fit, with all of
    their evaluations, from where the last fit ended: O(min(n, 300)^3) for each
    evaluation of the likelihood, whatever `n` and `m`. All data are learned with them.

    Strategies make the domain and the posterior of arguments that they share:

    - `covar_module`: The kernel. Its hyperparameters stay as they are, unless `refit`
      is given.
    - `lam`: The regularizer lambda, as the posterior's noise variance, positive; 1e-4
      by default. Inferred with the kernel where that is left out. Repeats of points
      that differ by ten times as much are announced once, with what to pass.
    - `mean_module`: The prior mean of a kernel that is given, taken as it is; None for
      the constant above.
    - `num_initial`: Points before the posterior is used: 1 with a kernel (Algorithm 1
      of the papers), else `2 d`, at least 5, on a table at most 20; whole batches where
      these have a size. They are drawn uniformly from a table; on a continuous domain
      they are Sobol's, or random ones where there are constraints. Data told before the
      first `ask` count.
    - `refit`: When hyperparameters are fitted again, at the ends of batches. Never with
      a kernel; else when data grew by a fifth. A kernel's noise is fitted down to 1e-4
      of its prior variance, or to half of `lam` where that is less.
    - `optimizer_options`: On a continuous domain, for `optimize_acqf`: `num_restarts`,
      `raw_samples`, `options`, ...

    Args:
        domain: The table, or the box.
        posterior: What the posterior is built from.
        sampler: Sampler of inducing points once there is a posterior; None for the
            exact posterior.
        initial_sampler: Sampler of the first ones; see `Surrogate`.
        max_memory: See `NystromPool`.
        embeds: Whether candidates are embedded; see `NystromTablePosterior`.
        unique: Propose each candidate of a table at most once, and none that was
            evaluated: what finds the best one, unless noise is large. By default so
            where the kernel is inferred; with a kernel candidates may come again, as
            the theorems have it.
        minimize: See `Strategy`.
        seed: Seed of the strategy's generator.
    """

    shares_tables: ClassVar[bool] = True

    def __init__(
        self,
        domain: Domain,
        posterior: ModelSettings,
        sampler: InducingPointSampler | None,
        *,
        initial_sampler: InducingPointSampler | None = None,
        max_memory: int = MAX_MEMORY,
        embeds: bool = True,
        unique: bool | None = None,
        minimize: bool = False,
        seed: int = 0,
    ) -> None:
        validate_sampler("sampler", sampler)
        validate_sampler("initial_sampler", initial_sampler)
        check_number("max_memory", max_memory, "[0, inf)", "need bytes, at least 0.")
        if unique is not None:
            check_flag("unique", unique)
        super().__init__(domain, seed=seed, minimize=minimize)
        is_known = posterior.covar_module is not None
        self.unique = domain.is_unique(unique, is_known=is_known)
        self.settings = posterior
        self.max_memory = max_memory
        source = PriorSource(domain, posterior)
        self.surrogate = Surrogate(
            source,
            _view(domain, source, sampler is None, max_memory, embeds),
            sampler,
            initial_sampler or RecursiveRLSSampler(),
            FEW if domain.num_rows else EXACT_SIZE,
            is_scale_known=not is_known,
            is_noise_known=posterior.refit is not None,
        )

    @property
    def posterior(self) -> Any:
        """The posterior of a table that batches are chosen with; None before any.

        Its points are those of the table where the kernel was given, else the columns
        that vary, scaled to [0, 1]; its values are in the prior's `scale`.
        """
        return getattr(self.surrogate.pool, "posterior", None)

    @property
    def model(self) -> Any:
        """The BoTorch model of a continuous domain; None before any feedback."""
        return getattr(self.surrogate.view, "model", None)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        """See `Strategy.predict`; None before anything was learned.

        Cost: O(k m^2); for an exact posterior O(n^3).
        """
        X = as_points("X", X, self.domain.dim, self.domain.device)
        if self._num_learned == 0:
            return None
        with self._lock:
            mean, sd = self.surrogate.view.predict(X, self.history)
        return (-mean if self.minimize else mean), sd

    def _select(self, max_batch_size: int | None) -> list[int]:
        given = [size for size in (max_batch_size, self.batch_size) if size]
        default = MAX_BATCH_SIZE if self.domain.num_rows else MAX_BOX_BATCH
        most = min(given, default=default)
        excluded = self.excluded_points
        limit = self.domain.num_choosable(most, excluded, unique=self.unique)
        if limit == 0:
            raise UnsupportedError(
                f"None of {self.domain.num_rows} candidates is left: all have "
                "failed" + ", are evaluated or pending." * self.unique
            )
        if (missing := self._num_initial_missing()) > 0:
            g, num = self.generator, min(missing, limit)
            return self.domain.sample(num, g, self.record.add_point, excluded)
        return self._select_by_model(limit)

    def _largest_batch(self) -> int:
        """Points of a batch at most, those drawn at the start included."""
        return self.batch_size or MAX_BATCH_SIZE

    @abstractmethod
    def _select_by_model(self, limit: int) -> list[int]:
        """Choose at most so many points by the posterior."""

    def _choosable(self) -> SelectableRows:
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
        known = len(self.history) + len(self._trials)
        if self.settings.num_initial == 1:
            return at_least
        missing = max(at_least, self.settings.num_initial - known)
        size = self.batch_size or 1
        return -(-missing // size) * size

    def _learn(self) -> None:
        """Learn from the whole history."""
        self._learn_in_order()
        super()._learn()

    def _forget(self) -> None:
        self.surrogate.view.clear()

    def _learn_in_order(self) -> None:
        """What is learned at the end of a batch; assigns at its end."""
        self.surrogate = self.surrogate.learn(self.history, self.generator)

    def _describe(self) -> BatchRecord:
        return BatchRecord(
            size=0,
            num_inducing=self.surrogate.view.num_inducing(),
            max_variance=self.surrogate.view.max_variance(),
        )

    def _move(self, number: Mapping[int, int]) -> None:
        surrogate, known = self.surrogate, self._num_learned
        source, is_exact = surrogate.source, surrogate.sampler is None
        source.require_columns(self.domain)
        embeds = getattr(surrogate.view, "embeds", True)
        view = _view(self.domain, source, is_exact, self.max_memory, embeds)
        self.surrogate = surrogate.moved(view, number, self.history, known)

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"surrogate": self.surrogate.state_dict()}

    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        self.surrogate = self.surrogate.restored(
            state["surrogate"], self.history, self._num_learned
        )

    def _config(self) -> dict[str, Any]:
        surrogate = self.surrogate
        few = surrogate.source.inputs(self.domain.few())
        return (
            super()._config()
            | surrogate.source.config(self.domain)
            | {
                "kernel": surrogate.source.builder.kernel_config(few),
                "unique": self.unique,
                **self.settings.config(),
                "sampler": fingerprint(surrogate.sampler, "sampler"),
                "initial_sampler": fingerprint(
                    surrogate.initial_sampler, "initial_sampler"
                ),
                "max_memory": self.max_memory,
            }
        )


def _view(
    domain: Domain, source: PriorSource, is_exact: bool, max_memory: int, embeds: bool
) -> DomainPosterior:
    """The posterior of a domain, without data."""
    prior = source.initial()
    if isinstance(domain, BoxDomain):
        return BoxPosterior(domain.box, source, prior)
    pool = domain.pool(source.inputs, max_memory)
    if is_exact and domain.ranks.size > 1:
        raise UnsupportedError(
            "Exact posteriors are not shared by ranks: GPUCB, GPBUCB and "
            "UncertaintyReduction take one process. Use BBKB, BKB or ThompsonSampling."
        )
    if is_exact:
        return ExactTablePosterior(source, prior, exact_pool(pool.X, prior))
    return NystromTablePosterior(source, prior, pool, embeds=embeds).blank(prior)


def split_options(
    candidates: Any,
    covar_module: Kernel | None,
    lam: float | None,
    options: ModelOptions,
) -> tuple[Domain, ModelSettings, RunOptions]:
    """The domain, what the posterior is built from, and the other options."""
    domain = domain_of(candidates, part_of(options, DomainOptions))
    given = part_of(options, PosteriorOptions)
    posterior = ModelSettings.of(domain, covar_module, lam, **given)
    return domain, posterior, part_of(options, RunOptions)
