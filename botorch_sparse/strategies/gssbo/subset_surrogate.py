"""The model of GSSBO: how many samples it holds, which, and where it is largest."""

import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from botorch.optim import optimize_acqf
from botorch.utils.sampling import manual_seed
from torch import Tensor

from botorch_sparse.argument_checks import check_number, check_whole
from botorch_sparse.models import SubsetSingleTaskGP
from botorch_sparse.models.subset.row_selection import SelectionOptions
from botorch_sparse.strategies.core.fingerprint import fingerprint
from botorch_sparse.strategies.data.domain import BoxDomain, Domain, draw_seed
from botorch_sparse.strategies.data.run_record import RunRecord
from botorch_sparse.strategies.surrogates.inferred_kernels import matern_kernel
from botorch_sparse.strategies.surrogates.prior import PosteriorSettings
from botorch_sparse.strategies.surrogates.prior_fitting import PriorSource, fit_or_keep
from botorch_sparse.strategies.surrogates.table_posterior import no_data

MakeAcquisition: TypeAlias = Callable[
    [SubsetSingleTaskGP, Tensor | None], AcquisitionFunction
]
SubsetSize: TypeAlias = int | Literal["dynamic"] | None

# Iterations whose mean time is the yardstick, and slow ones in a row that end growth.
WINDOW = 10
PATIENCE = 3


@dataclass(frozen=True, eq=False)
class SubsetSurrogate:
    """`SubsetSingleTaskGP` that takes in feedback and chooses its samples anew.

    With a kernel the data are taken as they are and the prior mean is zero. Without
    one, inputs are scaled to the unit cube, outcomes are standardized, the kernel is a
    Matern-5/2 with BoTorch's priors, and hyperparameters and the scale of the outcomes
    are fitted anew when the schedule says so.

    Attributes:
        source: Makes the model's kernel, likelihood, mean and transforms.
        domain: The box.
        options: How its samples are chosen.
        model: The model; None before any feedback.
        num_learned: Evaluations that it has seen.
        last_fit: Evaluations at the last fit; None before any.
        selection_seconds: Wall time of choosing its samples.
    """

    source: PriorSource
    domain: BoxDomain
    options: SelectionOptions
    model: SubsetSingleTaskGP | None = None
    num_learned: int = 0
    last_fit: int | None = None
    selection_seconds: float = 0.0
    posterior: ClassVar[None] = None  # no Nystrom posterior

    @classmethod
    def begun(
        cls, domain: BoxDomain, settings: PosteriorSettings, options: SelectionOptions
    ) -> Self:
        """The surrogate before any evaluation."""
        source = PriorSource(domain, settings, inferred_kernel=matern_kernel)
        return cls(source, domain, options)

    def num_inducing(self) -> int:
        """Samples in the model."""
        return 0 if self.model is None else len(self.model.subset_indices)

    def learn(
        self,
        record: RunRecord,
        generator: torch.Generator,
        subset_size: int | None = None,
    ) -> Self:
        """Take in new evaluations, choose samples, and fit where that is due.

        The model is replaced, not changed, so that a failure leaves no trace.
        """
        start, num_newest, num = time.perf_counter(), 0, len(record)
        if self.model is None:
            model = self._build(record, num, subset_size, draw_seed(generator))
        else:
            num_newest = num - self.num_learned
            model = deepcopy(self.model)
            model.subset_size = subset_size
            new = _evaluations(record, self.num_learned, num)
            model.add_observations(*new, generator=generator)
        seconds, last_fit = time.perf_counter() - start, self.last_fit
        if self.source.is_due(last_fit, record):
            _fit(model, draw_seed(generator))
            start, last_fit = time.perf_counter(), num
            model.reselect(generator=generator, num_newest=num_newest)
            seconds += time.perf_counter() - start
        return replace(
            self,
            model=model.eval(),
            num_learned=num,
            last_fit=last_fit,
            selection_seconds=seconds,
        )

    def _build(
        self, record: RunRecord, num: int, subset_size: int | None, seed: int
    ) -> SubsetSingleTaskGP:
        """A model of the first evaluations under the initial hyperparameters."""
        X, Y = _evaluations(record, 0, num)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=InputDataWarning)
            return SubsetSingleTaskGP(
                X,
                Y,
                **self.source.modules(X, Y, of_points=True),
                **vars(self.options),
                subset_size=subset_size,
                num_initial=self.source.settings.num_initial,
                seed=seed,
            )

    def maximizer(
        self,
        make: MakeAcquisition,
        record: RunRecord,
        pending: Tensor,
        generator: torch.Generator,
    ) -> int:
        """The number of the maximizer of a function of model and pending points."""
        if self.model is None:
            raise no_data()
        box, seed = self.domain.box, draw_seed(generator)
        options = box.search_arguments(self.source.settings.optimizer_options, seed)
        with manual_seed(seed):
            acqf = make(self.model, pending.double() if len(pending) else None)
            X, _ = optimize_acqf(acqf, q=1, **options)
        return record.add_point(box.clamp(X)[0])

    def predict(self, X: Tensor, record: RunRecord) -> None:
        """None: what the subset says of other samples is no estimate of them."""

    def certificate(self, record: RunRecord) -> None:
        """None: it has samples of its own, and no inducing points."""

    def clear(self) -> None:
        """Nothing is shared with another value."""

    def config(self, domain: Domain) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        selection = fingerprint(self.options.selection, "selection")
        options = vars(self.options) | {"selection": selection}
        return self.source.config(domain) | options

    def state_dict(self) -> dict[str, Any]:
        """Hyperparameters, transforms, and the samples in the model in their order."""
        subset, model = None, self.model
        if model is not None:
            parameters = model.state_dict().items()
            subset = {
                "parameters": {k: v.detach().clone() for k, v in parameters},
                "indices": model.subset_indices.clone(),
                "num_selections": model.num_selections,
                "size": model.subset_size,
            }
        return {
            "last_fit": self.last_fit,
            "subset": subset,
        }

    def of_state(
        self, state: dict[str, Any], record: RunRecord, num_learned: int
    ) -> Self:
        """What a saved run had learned, on the same samples."""
        model, subset = None, state["subset"]
        if subset is not None:
            model = self._build(record, num_learned, subset["size"], 0)
            model.load_state_dict(subset["parameters"])
            model.set_subset(subset["indices"])
            model.num_selections = subset["num_selections"]
            model = model.eval()
        return replace(
            self,
            model=model,
            num_learned=num_learned,
            last_fit=state["last_fit"],
        )


def _evaluations(record: RunRecord, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Points and values of some evaluations, `n x d` and `n x 1`, in float64."""
    X = record.points(record.point[start:stop]).double()
    Y = record.values[start:stop].clone()
    return X, Y.to(X.device).unsqueeze(-1)


def _fit(model: SubsetSingleTaskGP, seed: int) -> None:
    """Scale the outcomes anew and fit on the samples in the model."""
    model.refit_transforms()
    with manual_seed(seed):
        fit_or_keep(model, f"{len(model.subset_indices)} samples")
    model.eval()


class SubsetBuffer:
    r"""The number of samples M in the model: given, or found by the clock.

    The dynamic buffer of [Wei2025]_ Section 4.3 (1): all samples are in the model until
    an iteration takes longer than Z times the mean initial one,

    .. math:: T_{current} > Z \bar T \quad\Rightarrow\quad M = |D|,

    and M stays as it is from there on. Here :math:`\bar T` is the mean of the first
    `window` iterations, and `patience` iterations in a row have to be slow, so that
    neither a single fit of the hyperparameters nor another process decides on M;
    `patience=1` is the paper's letter. What counts is learning and choosing a point,
    not the evaluation.

    Args:
        size: A number of samples, `"dynamic"`, or None for all samples always.
        Z: How many times slower an iteration may become, above 1.
        window: Initial iterations, at least 1.
        patience: Slow iterations in a row, at least 1.
        smallest: Samples that are forced into the model beside the newest one; M is
            larger.

    Attributes:
        size: M, or None as long as all samples are in the model.

    Raises:
        InputDataError: If an argument is out of its range.

    Example:
        >>> buffer = SubsetBuffer("dynamic", Z=4.0, window=2, patience=1)
        >>> for n, seconds in enumerate([1.0, 3.0, 7.9, 8.1]):
        ...     buffer.record(seconds, num_samples=n)
        >>> buffer.size
        3
    """

    def __init__(
        self,
        size: SubsetSize,
        Z: float = 4.0,
        window: int = WINDOW,
        patience: int = PATIENCE,
        *,
        smallest: int = 0,
    ) -> None:
        _validate_size(size, smallest)
        need = "need a number above 1, such as 4: how many times slower than in the "
        check_number("Z", Z, "(1, inf)", f"{need}beginning an iteration may become.")
        check_whole("window", window)
        check_whole("patience", patience)
        size = size if size is None or isinstance(size, str) else int(size)
        self.size = None if isinstance(size, str) else size
        self.Z, self.window, self.patience = Z, window, patience
        self._given, self._smallest = size, int(smallest)
        self._initial: list[float] = []
        self._num_slow = 0

    @property
    def is_open(self) -> bool:
        """Whether M is still to be found."""
        return self._given == "dynamic" and self.size is None

    def record(self, seconds: float, num_samples: int) -> None:
        """Note what an iteration took.

        Args:
            seconds: Its time.
            num_samples: Samples in the model, the M from now on if it was slow.
        """
        if not self.is_open:
            return
        if len(self._initial) < self.window:
            self._initial = [*self._initial, seconds]  # copies share the list
            return
        is_slow = seconds > self.Z * sum(self._initial) / self.window
        self._num_slow = self._num_slow + 1 if is_slow else 0
        if self._num_slow == self.patience:
            self.size = max(num_samples, self._smallest + 1)

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        return {"subset_size": self._given} | {
            name: getattr(self, name) for name in ("Z", "window", "patience")
        }

    def state_dict(self) -> dict[str, Any]:
        """M, and the times on the way to it."""
        return {
            "size": self.size,
            "initial": list(self._initial),
            "num_slow": self._num_slow,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the buffer that `state_dict` came from."""
        self.size = state["size"]
        self._initial = list(state["initial"])
        self._num_slow = state["num_slow"]


def _validate_size(size: SubsetSize, smallest: int) -> None:
    """Refuse what is no size, or leaves no room beside the forced samples."""
    if size is None or size == "dynamic":
        return
    need = "need a number of samples, 'dynamic', or None for all samples."
    if check_whole("subset_size", size, 0, need) <= smallest:
        raise InputDataError(
            f"Got subset_size={size} with num_initial={smallest}; need a larger "
            "subset: the initial samples and the newest one are always in it."
        )
