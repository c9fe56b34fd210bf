"""Strategies that learn a posterior, and choose by it."""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from botorch_sparse.inducing import InducingPointSampler, PosteriorVarianceSampler
from botorch_sparse.kernels import in_double
from botorch_sparse.models.refit_schedule import RefitSchedule
from botorch_sparse.optim.pool import MAX_MEMORY
from botorch_sparse.strategies.base import Strategy
from botorch_sparse.strategies.continuous import ModelSurrogate
from botorch_sparse.strategies.domain import DomainOptions, validate_unique
from botorch_sparse.strategies.exact_surrogate import ExactSurrogate
from botorch_sparse.strategies.history import BatchRecord
from botorch_sparse.strategies.model_settings import ModelSettings
from botorch_sparse.strategies.nystrom_surrogate import NystromSurrogate
from botorch_sparse.strategies.seeding import draw_seed
from botorch_sparse.strategies.surrogates import Surrogate
from botorch_sparse.strategies.table_prior import PriorSource, mean_config

# Where a batch ends at the latest: points without variance add nothing to any bound.
MAX_BATCH_SIZE = 10_000
DEFAULT_LAM = 1e-4


class ModelOptions(DomainOptions, total=False):
    """Keyword arguments of all strategies that learn a posterior.

    See `ModelStrategy` for what they mean.
    """

    mean_module: Mean | None
    num_initial: int | None
    refit: RefitSchedule | None
    unique: bool | None
    minimize: bool
    optimizer_options: Mapping[str, Any] | None
    seed: int


@dataclass(frozen=True)
class NystromSettings:
    """How the inducing points of a strategy are chosen, and what they may cost.

    Args:
        oversampling: See `PosteriorVarianceSampler`.
        initial_sampler: See `NystromSurrogate`.
        max_memory: See `NystromPool`.
        embeds: See `NystromSurrogate`.
    """

    oversampling: float = 2.0
    initial_sampler: InducingPointSampler | None = None
    max_memory: int = MAX_MEMORY
    embeds: bool = True

    @property
    def sampler(self) -> PosteriorVarianceSampler:
        """The sampler once there is a posterior."""
        return PosteriorVarianceSampler(self.oversampling)


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

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel. Its hyperparameters stay as they are, unless `refit`
            is given.
        lam: The regularizer lambda, as the posterior's noise variance, positive;
            1e-4 by default. Inferred with the kernel where that is left out.
        nystrom: How inducing points are chosen; None for the exact posterior.
        mean_module: The prior mean of a kernel that is given, taken as it is; None for
            the constant above.
        num_initial: Points before the model is used: 1 with a kernel (Algorithm 1 of
            the papers), else `2 d`, at least 5, on a table at most 20. They are drawn
            uniformly from a table; on a continuous domain they are Sobol's, or random
            ones where there are constraints. Data told before the first `ask` count.
        refit: When hyperparameters are fitted again, at the ends of batches. Never with
            a kernel; else when data grew by a fifth. A kernel's noise is fitted down to
            1e-4 of its prior variance, or to half of `lam` where that is less.
        unique: Propose each candidate of a table at most once, and none that was
            evaluated: what finds the best one, unless noise is large. By default so
            where the kernel is inferred; with a kernel candidates may come again, as
            the theorems have it.
        minimize: See `Strategy`.
        optimizer_options: On a continuous domain, for `optimize_acqf`: `num_restarts`,
            `raw_samples`, `options`, ...
        seed: Seed of the strategy's generator.
        **domain: `bounds` and constraints of a continuous domain; see `Strategy`.
    """

    def __init__(
        self,
        candidates: Any = None,
        covar_module: Kernel | None = None,
        lam: float | None = None,
        *,
        nystrom: NystromSettings | None,
        mean_module: Mean | None = None,
        num_initial: int | None = None,
        refit: RefitSchedule | None = None,
        unique: bool | None = None,
        minimize: bool = False,
        optimizer_options: Mapping[str, Any] | None = None,
        seed: int = 0,
        **domain: Unpack[DomainOptions],
    ) -> None:
        super().__init__(candidates, seed=seed, minimize=minimize, **domain)
        validate_lam(lam, is_inferred=covar_module is None)
        validate_mean(mean_module, is_inferred=covar_module is None)
        validate_unique(unique, self.box)
        if covar_module is not None:
            lam = DEFAULT_LAM if lam is None else lam
            covar_module = in_double(covar_module, self.candidates.dtype)
        by_default = self.box is None and covar_module is None
        self.unique = by_default if unique is None else unique
        self.mean_module = mean_module
        self.nystrom = nystrom
        self.settings = ModelSettings.of(
            covar_module,
            lam,
            refit,
            num_initial,
            optimizer_options,
            self.box,
            self.candidates.shape[-1],
        )
        self.surrogate = self._make_surrogate()

    def _make_surrogate(self) -> Surrogate:
        nystrom = self.nystrom
        if self.box is not None:
            return ModelSurrogate(
                self.box,
                self.settings,
                sampler=None if nystrom is None else nystrom.sampler,
                initial_sampler=None if nystrom is None else nystrom.initial_sampler,
                mean_module=self.mean_module,
            )
        names = () if self.table is None else self.table.feature_names
        source = PriorSource(self.candidates, self.settings, self.mean_module, names)
        if nystrom is None:
            return ExactSurrogate(self.candidates, source)
        return NystromSurrogate(
            self.candidates,
            source,
            nystrom.sampler,
            initial_sampler=nystrom.initial_sampler,
            max_memory=nystrom.max_memory,
            embeds=nystrom.embeds,
        )

    @property
    def posterior(self) -> Any:
        """The posterior of a table that batches are chosen with; None before any.

        Its points are those of the table where the kernel was given, else the columns
        that vary, scaled to [0, 1]; its values are in the surrogate's `scale`.
        """
        return getattr(getattr(self.surrogate, "pool", None), "posterior", None)

    @property
    def model(self) -> Any:
        """The BoTorch model of a continuous domain; None before any feedback."""
        return getattr(self.surrogate, "model", None)

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        """See `Strategy.predict`; None before anything was learned.

        Cost: O(k m^2); for an exact posterior O(n^3).
        """
        if self._num_learned == 0:
            return None
        mean, sd = self.surrogate.predict(X, self.history)
        return (-mean if self.minimize else mean), sd

    @property
    def excluded_points(self) -> Collection[int]:
        """See `Strategy.excluded_points`; where each is proposed once, those too."""
        return self._taken() if self.unique else super().excluded_points

    def _select(self, max_batch_size: int | None) -> list[int]:
        limit = min(max_batch_size or MAX_BATCH_SIZE, self._largest_batch())
        if self.box is None:
            limit = min(limit, self._num_choosable(limit))
            if limit == 0:
                raise UnsupportedError(
                    f"None of {len(self.candidates)} candidates is left: all have "
                    "failed" + ", are evaluated or pending." * self.unique
                )
        missing = self._num_initial_missing()
        if missing > 0:
            return self._draw(min(missing, limit))
        return self._select_by_model(limit)

    def _largest_batch(self) -> int:
        """Points of a batch at most, those drawn at the start included."""
        return self._batch_size() or MAX_BATCH_SIZE

    @abstractmethod
    def _select_by_model(self, limit: int) -> list[int]:
        """Choose at most so many points by the posterior."""

    def _num_choosable(self, limit: int) -> int:
        """The largest batch that can be proposed from a table."""
        left = len(self.candidates) - len(self.excluded_points)
        return left if self.unique else min(left * limit, limit)

    def _num_initial_missing(self) -> int:
        """How many points to draw before the posterior is asked.

        Where batches have a size of their own, whole ones until something is learned.
        """
        at_least = 1 if self._num_learned == 0 else 0
        if at_least and self._largest_batch() < MAX_BATCH_SIZE:
            return self._largest_batch()
        known = len(self.history) + len(self._trials)
        if self.settings.num_initial == 1:
            return at_least
        return max(at_least, self.settings.num_initial - known)

    def _draw(self, num: int) -> list[int]:
        """Points drawn without regard to feedback; of a table, different ones."""
        if self.box is None:
            size, g = len(self.candidates), self.generator
            excluded = torch.tensor(sorted(self.excluded_points), dtype=torch.long)
            if num == 1 and not len(excluded):
                return torch.randint(size, (1,), generator=g).tolist()
            order = torch.randperm(size, generator=g)
            return order[~torch.isin(order, excluded)][:num].tolist()
        seed = draw_seed(self.generator)
        return [self.history.add_point(x) for x in self.box.sample(num, seed)]

    def _learn(self) -> None:
        """Learn from the whole history; if that fails, nothing is changed."""
        snapshot, generator = self.surrogate.snapshot(), self.generator.get_state()
        try:
            self._learn_in_order()
        except BaseException:
            self.surrogate.restore(snapshot)
            self.generator.set_state(generator)
            raise
        super()._learn()

    def _learn_in_order(self) -> None:
        """What is learned at the end of a batch."""
        self.surrogate.learn(self.history, self.generator)

    def _describe(self) -> BatchRecord:
        return BatchRecord(
            size=0,
            num_inducing=self.surrogate.num_inducing,
            max_variance=self.surrogate.max_variance(),
        )

    def state_dict(self) -> dict[str, Any]:
        """See `Strategy.state_dict`."""
        return super().state_dict() | {"surrogate": self.surrogate.state_dict()}

    def _load_state(self, state: dict[str, Any]) -> None:
        super()._load_state(state)
        self.surrogate.load_state_dict(
            state["surrogate"], self.history, self._num_learned
        )

    def _config(self) -> dict[str, Any]:
        nystrom = self.nystrom
        return super()._config() | {
            "kernel": self.surrogate.kernel_config(),
            "mean": mean_config(self.mean_module),
            "unique": self.unique,
            **self.settings.config(),
            **({} if nystrom is None else vars(nystrom)),
            "initial_sampler": repr(nystrom and nystrom.initial_sampler),
        }


def validate_lam(lam: float | None, *, is_inferred: bool = False) -> None:
    """Refuse a regularizer that is not positive, or that will be inferred."""
    if lam is None:
        return
    if is_inferred:
        raise InputDataError(
            f"Got lam={lam} without covar_module: noise and kernel are given together "
            "or inferred together. Give both, or neither."
        )
    if not lam > 0:
        raise InputDataError(
            f"Got lam={lam}; need a positive noise variance, such as 1e-4 times the "
            "variance of the observations."
        )


def validate_mean(mean_module: object, *, is_inferred: bool) -> None:
    """Refuse what is not a prior mean, or one without a kernel."""
    if mean_module is None:
        return
    if not isinstance(mean_module, Mean):
        raise InputDataError(
            f"Got mean_module={mean_module!r}; need a GPyTorch mean, such as "
            "ZeroMean(), or None for a constant that the data decide on."
        )
    if is_inferred:
        raise InputDataError(
            "Got mean_module without covar_module: the mean is inferred with the "
            "kernel. Give both, or neither."
        )
