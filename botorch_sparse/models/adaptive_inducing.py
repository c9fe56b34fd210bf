"""Inducing points of a model: drawn when needed, kept as indices or raw inputs."""

import warnings
from collections.abc import Callable
from typing import Any, Self

import torch
from botorch.exceptions import BotorchWarning, UnsupportedError
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from botorch_sparse.inducing import InducingPointSampler, RecursiveRLSSampler
from botorch_sparse.models.inducing_set import (
    InducingSet,
    capped,
    sample_inducing_points,
)
from botorch_sparse.models.prediction import residual_fraction
from botorch_sparse.posteriors import (
    FoldedData,
    NystromPosterior,
    RepeatedRows,
    fold_repeats,
)

# Up to this many points the exact GP is cheap, and nothing is gained by sampling.
EXACT_SIZE = 500
DEFAULT_SEED = 0


class AdaptiveInducingMixin:
    """Inducing points of a `BatchedMultiOutputGPyTorchModel` with one output.

    The model calls `_set_inducing_options` in its constructor and offers
    `_nystrom_posterior`, the posterior under the present inducing points.
    """

    train_inputs: Any
    train_targets: Any
    training: bool
    covar_module: Any
    likelihood: Any
    input_transform: Any
    transform_inputs: Callable[..., Tensor]
    _clear_cache: Callable[[], None]
    _nystrom_posterior: Callable[[], NystromPosterior]
    _has_transformed_inputs: bool
    _original_train_inputs: Any

    _inducing: InducingSet | None = None
    _given_points: Tensor | None = None
    _has_warned: bool = False

    def _set_inducing_options(
        self,
        inducing_points: Tensor | None,
        inducing_sampler: InducingPointSampler | None,
        max_inducing_points: int | None,
    ) -> None:
        """Keep what the constructor got."""
        self._given_points = inducing_points
        self._keeps_all_of_few = inducing_sampler is None
        sampler = inducing_sampler
        if sampler is None:
            sampler = RecursiveRLSSampler()
        if isinstance(sampler, RecursiveRLSSampler):
            sampler = capped(sampler, max_inducing_points)
        self.inducing_sampler = sampler
        self.max_inducing_points = max_inducing_points

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, `m x d`, before the input transform."""
        return self._inducing_set().points

    @property
    def num_inducing(self) -> int:
        """The number `m` of inducing points."""
        return self.inducing_points.shape[-2]

    def resparsify(self, generator: torch.Generator | None = None) -> Self:
        """Draw the inducing points again under the present hyperparameters.

        Inducing points that were given stay.

        Args:
            generator: Source of randomness; by default a new one with a fixed seed.

        Returns:
            The model. Cost: O(n m^2).
        """
        previous = self._inducing_set()
        if previous.given is not None:
            return self
        variance = None
        if not isinstance(self.inducing_sampler, RecursiveRLSSampler):
            with torch.no_grad():
                X = self._transformed_train_X()[previous.rows.first]
                variance = self._nystrom_posterior().moments(X).variance
        self._draw(self.inducing_sampler, previous.rows, variance, generator)
        self._warn_if_capped()
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        known = self._inducing
        is_valid = known is not None and known.belongs_to(self._raw_train_X())
        super()._apply(fn)  # type: ignore[misc]
        if self._has_transformed_inputs:
            self._original_train_inputs = fn(self._original_train_inputs)
        if self._given_points is not None:
            self._given_points = fn(self._given_points)
        self._inducing = None
        if known is not None and is_valid:
            self._inducing = known.apply(fn, self._raw_train_X(), self._given_points)
        return self

    def _raw_train_X(self) -> Tensor:
        """Training inputs before the input transform, in train and in eval mode."""
        if self._has_transformed_inputs:
            return self._original_train_inputs
        return self.train_inputs[0]

    def _transformed_train_X(self) -> Tensor:
        """Training inputs after the input transform, in train and in eval mode."""
        X = self.train_inputs[0]
        X = self.transform_inputs(X) if self.training else X
        if X.shape[:-1] != self.train_targets.shape:
            raise UnsupportedError(
                f"The training inputs have shape {tuple(X.shape)} after the input "
                f"transform and the targets {tuple(self.train_targets.shape)}; they "
                "must have the same number of rows. Use transform_on_train=False."
            )
        return X

    def _transformed_inducing_points(self) -> Tensor:
        """Inducing points as the kernel sees them; they never teach the transform."""
        points = self.inducing_points
        if not hasattr(self, "input_transform"):
            return points
        return self.input_transform.preprocess_transform(points)

    def _folded_data(self, X: Tensor, rows: RepeatedRows) -> FoldedData:
        """Observations with repeats folded, given transformed inputs `X` (`n x d`)."""
        Y = self.train_targets
        noiseless = MultivariateNormal(Y, DiagLinearOperator(torch.zeros_like(Y)))
        covariance = self.likelihood(noiseless, X).lazy_covariance_matrix
        return fold_repeats(rows, Y, covariance.diagonal(dim1=-1, dim2=-2))

    def _inducing_set(self) -> InducingSet:
        """The inducing points of the present data, drawn on first use."""
        X = self._raw_train_X()
        if self._inducing is not None and self._inducing.belongs_to(X):
            return self._inducing
        with torch.inference_mode(False):  # indices that autograd may keep
            rows = RepeatedRows.find(X)
            if self._given_points is None:
                return self._draw_first(rows)
            self._inducing = InducingSet.from_points(X, rows, self._given_points)
            return self._inducing

    def _draw_first(self, rows: RepeatedRows) -> InducingSet:
        """Draw without a previous posterior, or make one for samplers that use it."""
        sampler = self.inducing_sampler
        if isinstance(sampler, RecursiveRLSSampler):
            chosen = self._draw(sampler, rows)
            self._warn_if_capped()
            return chosen
        first = capped(RecursiveRLSSampler(), self.max_inducing_points)
        self._draw(first, rows)
        return self.resparsify()._inducing_set()

    def _draw(
        self,
        sampler: InducingPointSampler,
        rows: RepeatedRows,
        variance: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> InducingSet:
        """Draw inducing points among the unique rows, and drop the caches."""
        cap, num_unique = self.max_inducing_points, len(rows.first)
        index = torch.arange(num_unique, device=rows.first.device)
        few = EXACT_SIZE if cap is None else min(EXACT_SIZE, cap)
        if not self._keeps_all_of_few or num_unique > few:
            if generator is None:
                generator = torch.Generator().manual_seed(DEFAULT_SEED)
            with torch.no_grad():
                X = self._transformed_train_X()
                index = sample_inducing_points(
                    sampler,
                    self.covar_module,
                    X[rows.first],
                    self._folded_data(X, rows).noise,
                    generator=generator,
                    variance=variance,
                    cap=cap,
                )
        self._inducing = InducingSet.from_index(self._raw_train_X(), rows, index)
        self._clear_cache()
        return self._inducing

    def _warn_if_capped(self) -> None:
        """Say once what the cap on the inducing points leaves unexplained."""
        chosen = self._inducing_set()
        of_sampler = getattr(self.inducing_sampler, "max_inducing_points", None)
        caps = [c for c in (self.max_inducing_points, of_sampler) if c is not None]
        is_capped = any(self.num_inducing >= cap for cap in caps)
        if self._has_warned or chosen.is_complete or not is_capped:
            return
        self._has_warned = True
        X = self._transformed_train_X()[chosen.rows.first]
        left = residual_fraction(
            self.covar_module, X, self._transformed_inducing_points()
        )
        warnings.warn(
            f"The inducing points reached their cap of {min(caps)}; the residual trace "
            f"left is {left.trace:.3g}, {left.fraction:.2%} of the prior variance at "
            "the training points. Pass a larger max_inducing_points (and an "
            "inducing_sampler that allows it) if that is too much.",
            BotorchWarning,
            stacklevel=2,
        )
