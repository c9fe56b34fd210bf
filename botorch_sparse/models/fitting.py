"""Fits of a sparse model: hyperparameters and inducing points in turn."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from botorch.exceptions import InputDataError, ModelFittingError
from botorch.exceptions.errors import OptimizationGradientError
from botorch.fit import _fit_fallback
from botorch.optim.closures import get_loss_closure
from botorch.utils.context_managers import module_rollback_ctx
from gpytorch.mlls import MarginalLogLikelihood
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from botorch_sparse.finite import not_finite
from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.models.inducing_set import same_tensor
from botorch_sparse.models.learning import fit_points_and_hyperparameters
from botorch_sparse.models.log_parameters import fit_gpytorch_mll_in_logarithms
from botorch_sparse.models.validation import is_positive_int
from botorch_sparse.posteriors import RepeatedRows

# Change of the objective (per observation) under newly drawn inducing points that makes
# another round worth its cost, by default. On california_housing (n = 16512, 256
# points, then 1000) one, two and three rounds gave NLPD 0.681, 0.682 and 0.680 in 26,
# 53 and 62 seconds.
ROUND_GAIN = 1e-2

# What a fit changes besides hyperparameters.
OF_A_FIT = (
    "_inducing",
    "_given_points",
    "_unlearned_points",
    "_has_learned",
    "_has_warned",
)

# What a fit can fail with for numerical reasons.
NUMERICAL_ERRORS = (
    ModelFittingError,
    NotPSDError,
    NanError,
    OptimizationGradientError,
    InputDataError,
    torch.linalg.LinAlgError,
)

Closure = Callable[[], tuple[Tensor, Sequence[Tensor | None]]]


class FittingMixin:
    """`custom_fit` for a model with `AdaptiveInducingMixin`.

    Attributes:
        rounds: Fits that `custom_fit` makes by default, with inducing points drawn in
            between.
        max_fit_inducing_points: Inducing points that it fits with by default, where the
            model draws them itself. The final ones are as many as the model allows.
    """

    rounds: ClassVar[int] = 2
    max_fit_inducing_points: ClassVar[int | None] = 256

    _fit_on_few: Callable[..., Any]
    _keep_the_better: Callable[..., None]
    _learn_on_part: Callable[..., None]
    _learns: Callable[[], bool]
    _points_as_parameters: Callable[..., Any]
    inducing_sampler: Any
    resparsify: Callable[..., Any]
    _inducing: Any
    _keeps_all_of_few: bool
    _has_warned: bool
    _is_fitting: bool
    _given_points: Tensor | None
    _inducing_set: Callable[..., Any]
    _takes_all: Callable[..., bool]
    _raw_train_X: Callable[[], Tensor]
    _aug_batch_shape: Any
    inducing_points: Tensor
    num_inducing: int

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Closure | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        rounds: int | None = None,
        max_fit_inducing_points: int | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """Fit with the inducing points fixed, draw them again, and refit.

        `fit_gpytorch_mll` calls this. Within a round the objective does not change, and
        the fit is BoTorch's own, retries and checkpoints included. It stops early when
        the same inducing points are drawn, and by default when those that were drawn
        change the objective by less than 0.01 per observation. It starts from the
        present hyperparameters, so that a second fit after a little more data is short.

        An evaluation of the objective costs O(n m^2), and an optimizer wants fifty:
        hyperparameters are fitted with at most `max_fit_inducing_points`, and the
        final, larger set is drawn once, under the fitted hyperparameters. Inducing
        points that were given, and those of a sampler that was given, are used as they
        are. L-BFGS runs over the logarithms of positive hyperparameters; for several
        outputs, and where the model is exact, over the hyperparameters themselves. It
        stops where BoTorch's does: the objective has plateaus, and a tolerance of 1e-6
        ended fits on sgemm_gpu that had not begun.

        The collapsed bound takes for noise what its inducing points cannot resolve.
        Where a function needs more of them than a fit can afford and its noise is
        small, the exact likelihood of 500 random observations says more: by default
        both fits are made, and the hyperparameters whose model predicts observations
        better that are left out are kept. On Hartmann in 6 dimensions, 3000
        observations with noise of 0.01 standard deviations, that lowers the error by a
        third. Asking for `rounds` or a cap asks for the bound alone, and so does a
        limit of time, which each fit would have for itself.

        With `learn_inducing_points` a single fit, whatever `rounds` says, moves the
        points together with the hyperparameters. It starts from the points that are
        there, or from those drawn under the present hyperparameters, and takes the
        first steps on a random part of the data where these are many, unless `bounds`,
        `parameters`, a `callback` or a limit of time is given. It ends where 200
        evaluations lower the loss per observation by less than 5e-4, or by SciPy's own
        criteria where `ftol` or `gtol` is among the options. A `closure` of one's own
        knows nothing of the points, and moves none.

        Args:
            mll: The marginal log likelihood of this model.
            closure: As in `fit_gpytorch_mll`.
            closure_kwargs: As in `fit_gpytorch_mll`.
            optimizer_kwargs: As in `fit_gpytorch_mll`.
            rounds: Number of fits, at least one; by default at most `self.rounds`.
            max_fit_inducing_points: Largest number of inducing points during the fit,
                at least one; `self.max_fit_inducing_points` by default.
            **kwargs: As in `fit_gpytorch_mll`.

        Returns:
            `mll`, in eval mode.

        Raises:
            InputDataError: If `rounds` or `max_fit_inducing_points` is not an integer
                above zero.
            ModelFittingError: If all attempts of a round failed. The model is then as
                it was before the fit.
        """
        is_asked = rounds is not None or closure is not None
        rounds = self.rounds if rounds is None else rounds
        cap = max_fit_inducing_points
        cap = self.max_fit_inducing_points if cap is None else cap
        _validate_positive("rounds", rounds)
        if cap is not None:
            _validate_positive("max_fit_inducing_points", cap)
        options = {"closure": closure, "closure_kwargs": closure_kwargs, **kwargs}
        options["optimizer_kwargs"] = optimizer_kwargs
        learns = closure is None and self._learns()
        is_free = not (is_asked or learns or max_fit_inducing_points is not None)
        with _each_warning_once(), self._restored_on_failure(mll):
            few = self._fit_on_few(mll, options) if is_free else None
            with self._fewer_inducing_points(cap):
                if learns:
                    with self._points_as_parameters():
                        options = self._with_optimizer(options, learns)
                        self._learn_on_part(mll, options)
                        fit_once(mll, **options)
                else:
                    with self._or_else(mll, few):
                        self._fit_in_rounds(mll, rounds, not is_asked, options)
            if few is not None:
                self._keep_the_better(mll, few)
        return mll.eval()

    def _fit_in_rounds(
        self,
        mll: MarginalLogLikelihood,
        rounds: int,
        needs_gain: bool,
        options: dict[str, Any],
    ) -> None:
        """Fit, and draw inducing points in between."""
        for remaining in reversed(range(rounds)):
            fit_once(mll, **self._with_optimizer(options))
            if remaining == 0 or not self._has_news(mll, needs_gain):
                break

    @contextmanager
    def _or_else(
        self, mll: MarginalLogLikelihood, few: dict[str, Tensor] | None
    ) -> Iterator[None]:
        """Take the hyperparameters of the fit on few where the other one fails."""
        try:
            yield
        except ModelFittingError:
            if few is None:
                raise
            with torch.no_grad():
                for name, parameter in mll.train().named_parameters():
                    parameter.copy_(few[name])

    def _has_news(self, mll: MarginalLogLikelihood, needs_gain: bool) -> bool:
        """Draw inducing points again, and say whether they call for another fit."""
        if self._given_points is not None:
            return False
        points = self.inducing_points
        loss = loss_of(mll) if needs_gain else None
        if same_tensor(points, self.resparsify().inducing_points):
            return False
        return loss is None or bool((loss_of(mll) - loss).abs().max() > ROUND_GAIN)

    def _with_optimizer(
        self, options: dict[str, Any], learns: bool = False
    ) -> dict[str, Any]:
        """The options of a fit, our optimizer where no other was asked for.

        Elements of a batch are fitted apart, unless points that they share move.
        """
        kwargs = options["optimizer_kwargs"] or {}
        is_default = "optimizer" not in options and "method" not in kwargs
        is_batch = self._aug_batch_shape.numel() > 1
        if not is_default or self._runs_exactly() or (is_batch and not learns):
            return options
        optimizer = (
            fit_points_and_hyperparameters if learns else fit_gpytorch_mll_in_logarithms
        )
        return {**options, "optimizer": optimizer}

    def _runs_exactly(self) -> bool:
        """Whether the model is the exact GP."""
        return self.is_exact  # type: ignore[attr-defined]

    def _unique_rows(self) -> RepeatedRows:
        """The repeated rows of the data, without drawing inducing points."""
        known, X = self._inducing, self._raw_train_X()
        if known is not None and known.belongs_to(X):
            return known.rows
        return RepeatedRows.find(X)

    @contextmanager
    def _fewer_inducing_points(self, cap: int | None) -> Iterator[None]:
        """Draw at most `cap` inducing points inside, and the final ones on leaving."""
        is_free = self._given_points is None and self._keeps_all_of_few
        if cap is None or not is_free or self._takes_all(self._unique_rows()):
            yield
            return
        sampler, has_warned = self.inducing_sampler, self._has_warned
        # Without a certificate, which is worth its cost for the final points alone.
        self.inducing_sampler = RecursiveRLSSampler(max_inducing_points=cap)
        self._has_warned = True  # this cap is not the user's
        known = self._inducing
        if known is not None and not known.is_complete and self.num_inducing > cap:
            self._inducing = None
        try:
            yield
        finally:
            self.inducing_sampler, self._has_warned = sampler, has_warned
        if self._given_points is None and not self._inducing_set().is_complete:
            self.resparsify()

    @contextmanager
    def _restored_on_failure(self, mll: MarginalLogLikelihood) -> Iterator[None]:
        """Leave hyperparameters, inducing points and mode as they were on an error."""
        kept = {name: getattr(self, name) for name in OF_A_FIT}
        was_training, was_fitting = mll.training, self._is_fitting
        self._is_fitting = True
        try:
            with module_rollback_ctx(mll) as checkpoint:
                yield
                checkpoint.clear()
        except BaseException:
            mll.train(was_training)
            for name, value in kept.items():
                setattr(self, name, value)
            raise
        finally:
            self._is_fitting = was_fitting


@contextmanager
def _each_warning_once() -> Iterator[None]:
    """Report on leaving, once for each line of code that warned, what it said first.

    An optimizer evaluates the objective a hundred times, and may add jitter each time.
    """
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            yield
    finally:
        first = {(w.category, w.filename, w.lineno): w for w in reversed(caught)}
        for w in reversed(first.values()):
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)


@torch.no_grad()
def loss_of(mll: MarginalLogLikelihood) -> Tensor:
    """The objective per observation, negated, under the present inducing points."""
    return get_loss_closure(mll.train())()


def fit_once(mll: MarginalLogLikelihood, **kwargs: Any) -> None:
    """BoTorch's fit, with a hint where it fails and never with NaN as its result."""
    try:
        _fit_fallback(mll, **kwargs)
        unset = not_finite(dict(mll.named_parameters()))
        if unset:
            raise ModelFittingError(f"{', '.join(unset)} became NaN or infinite.")
    except NUMERICAL_ERRORS as error:
        raise ModelFittingError(
            f"The fit failed and the model is as it was before: {error} Try inputs in "
            "the unit cube (input_transform=Normalize(d)), standardized observations "
            "(the default outcome transform), float64, and kernel parameters with "
            "priors or constraints that keep them from zero and infinity."
        ) from error


def _validate_positive(name: str, value: Any) -> None:
    """Raise `InputDataError` for anything but an integer of at least one."""
    if not is_positive_int(value):
        raise InputDataError(f"Got {name}={value!r}; need an integer of at least 1.")
