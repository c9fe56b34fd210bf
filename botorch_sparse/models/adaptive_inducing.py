"""Inducing points of a model: drawn when needed, kept as indices or raw inputs."""

import warnings
from collections.abc import Callable
from typing import Any, Self

import torch
from botorch.exceptions import BotorchWarning, UnsupportedError
from torch import Tensor

from botorch_sparse.inducing import (
    CertifiedSampler,
    InducingPointSampler,
    RecursiveRLSSampler,
)
from botorch_sparse.inducing.base import cap_of, capped, uses_variance
from botorch_sparse.models.inducing_set import InducingSet, sample_inducing_points
from botorch_sparse.models.leave_one_out import training_noise
from botorch_sparse.models.memory import (
    affordable_inducing_points,
    default_max_memory,
)
from botorch_sparse.models.prediction import residual_fraction
from botorch_sparse.models.shared_sampling import sample_shared_points
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
    """Inducing points of a `BatchedMultiOutputGPyTorchModel`.

    The outputs share them; each element of a batch of training data has its own. The
    model calls `_set_inducing_options` in its constructor and offers
    `nystrom_posterior`, the posterior under the present inducing points.
    """

    train_inputs: Any
    train_targets: Any
    training: bool
    covar_module: Any
    likelihood: Any
    input_transform: Any
    transform_inputs: Callable[..., Tensor]
    _clear_cache: Callable[[], None]
    nystrom_posterior: Callable[[], NystromPosterior]
    _has_transformed_inputs: bool
    _original_train_inputs: Any
    _num_outputs: int
    _aug_batch_shape: torch.Size
    _raw_rows: Any
    _raw_train_X: Callable[[], Tensor]
    _conditioned: Any
    _keeps_conditioning: Callable[[], bool]
    _data_kinds: Callable[[], set[tuple[torch.dtype, torch.device]]]

    _inducing: InducingSet | None = None
    _given_points: Tensor | None = None
    _has_warned: bool = False
    _budget: int | None = None
    _is_fitting: bool = False  # a fit goes back to checkpoints, with the same points

    def _set_inducing_options(
        self,
        inducing_points: Tensor | None,
        inducing_sampler: InducingPointSampler | None,
        max_inducing_points: int | None,
        max_memory: int | None,
    ) -> None:
        """Keep what the constructor got."""
        self._given_points = inducing_points
        self._keeps_all_of_few = inducing_sampler is None
        sampler = CertifiedSampler() if inducing_sampler is None else inducing_sampler
        self.inducing_sampler = capped(sampler, max_inducing_points)
        self.max_inducing_points = max_inducing_points
        self.max_memory = max_memory

    @property
    def inducing_points(self) -> Tensor:
        """The inducing points, `batch_shape x m x d`, before the input transform."""
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
        if self._given_points is not None:
            return self
        self._conditioned = None
        variance = None
        if uses_variance(self.inducing_sampler):
            with torch.no_grad():
                X = self._transformed_train_X()[..., previous.rows.first, :]
                variance = self.nystrom_posterior().moments(X).variance
        self._draw(self.inducing_sampler, previous.rows, variance, generator)
        self._warn_if_capped()
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Forget points that were drawn under other hyperparameters."""
        super()._load_from_state_dict(*args, **kwargs)  # type: ignore[misc]
        if not self._is_fitting:
            self._inducing = None
            self._clear_cache()

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        if not self._is_moved_by(fn):
            # Analytic acquisition functions call `.to` for each evaluation.
            return torch.nn.Module._apply(self, fn)  # type: ignore[arg-type]
        known = self._inducing
        is_valid = known is not None and known.belongs_to(self._raw_train_X())
        conditioned = self._conditioned if self._keeps_conditioning() else None
        super()._apply(fn)  # type: ignore[misc]
        self._clear_cache()
        if self._has_transformed_inputs:
            self._original_train_inputs = fn(self._original_train_inputs)
        if self._given_points is not None:
            self._given_points = fn(self._given_points)
        if conditioned is not None:
            points = None if conditioned.points is None else fn(conditioned.points)
            conditioned = conditioned._replace(rows=self._raw_rows, points=points)
        self._conditioned = conditioned
        self._inducing, self._budget = None, None
        if known is not None and is_valid:
            given = None if known.given is None else fn(known.given)
            self._inducing = known.moved(self._raw_train_X(), given)
        return self

    def _is_moved_by(self, fn: Callable[[Tensor], Tensor]) -> bool:
        """Whether `fn` changes the dtype or device of anything in the model."""
        module: Any = self
        tensors = [*module.parameters(), *module.buffers()]
        kinds = {(t.dtype, t.device) for t in tensors}
        kinds |= self._data_kinds()
        probes = [torch.empty(0, dtype=kind[0], device=kind[1]) for kind in kinds]
        return any(fn(probe) is not probe for probe in probes)

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
        """Inducing points as the kernel sees them, `aug_batch x m x d`.

        They never teach the transform.
        """
        points = self.inducing_points
        points = points.unsqueeze(-3) if self._num_outputs > 1 else points
        aug_batch = self.train_targets.shape[:-1]
        points = points.expand(*aug_batch, *points.shape[-2:])
        if not hasattr(self, "input_transform"):
            return points
        return self.input_transform.preprocess_transform(points)

    def _folded_data(self, X: Tensor, rows: RepeatedRows) -> FoldedData:
        """Observations with repeats folded, given transformed inputs `X`."""
        return fold_repeats(rows, self.train_targets, training_noise(self, X))

    def _inducing_set(self) -> InducingSet:
        """The inducing points of the present data, drawn on first use."""
        X = self._raw_train_X()
        if self._inducing is not None and self._inducing.belongs_to(X):
            return self._inducing
        with torch.inference_mode(False):  # indices that autograd may keep
            rows, given = RepeatedRows.find(X), self._given_points
            if self._keeps_conditioning():
                given = self._conditioned.points
                if given is None:
                    given = X
            if given is None:
                return self._draw_first(rows)
            self._inducing = InducingSet.from_points(X, rows, given)
            return self._inducing

    def _draw_first(self, rows: RepeatedRows) -> InducingSet:
        """Draw without a previous posterior, or make one for samplers that use it."""
        sampler = self.inducing_sampler
        if not uses_variance(sampler):
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
        index = torch.arange(len(rows.first), device=rows.first.device)
        if not self._takes_all(rows):
            if generator is None:
                generator = torch.Generator().manual_seed(DEFAULT_SEED)
            with torch.no_grad():
                index = self._sample(sampler, rows, variance, generator)
        self._inducing = InducingSet.from_index(self._raw_train_X(), rows, index)
        self._clear_cache()
        return self._inducing

    def _takes_all(self, rows: RepeatedRows) -> bool:
        """Whether there are so few unique points that the exact GP is cheap."""
        few = min(EXACT_SIZE, self._inducing_cap())
        return self._keeps_all_of_few and len(rows.first) <= few

    def _sample(
        self,
        sampler: InducingPointSampler,
        rows: RepeatedRows,
        variance: Tensor | None,
        generator: torch.Generator,
    ) -> Tensor:
        """Indices into the unique rows, `batch_shape x m`."""
        X = self._transformed_train_X()
        noise = self._folded_data(X, rows).noise
        X, cap = X[..., rows.first, :], self._inducing_cap()
        sampler = capped(sampler, cap)
        given: Any = {"generator": generator, "variance": variance, "cap": cap}
        if noise.dim() == 1:
            return sample_inducing_points(sampler, self.covar_module, X, noise, **given)
        return sample_shared_points(
            sampler, self.covar_module, X, noise, num_outputs=self._num_outputs, **given
        )

    def _inducing_cap(self) -> int:
        """Largest number of points to draw: asked for, the sampler's, or in memory."""
        of_sampler = cap_of(self.inducing_sampler)
        caps = (self.max_inducing_points, of_sampler, self._memory_cap())
        return min(cap for cap in caps if cap is not None)

    def _memory_cap(self) -> int:
        """Inducing points that `max_memory` allows all outputs together."""
        if self._budget is None:
            self._budget = self.max_memory
        if self._budget is None:
            self._budget = default_max_memory(self._raw_train_X().device)
        num_outputs = self._aug_batch_shape.numel()
        return affordable_inducing_points(self._budget // max(1, num_outputs))

    def _warn_if_capped(self) -> None:
        """Say once what the cap on the inducing points leaves unexplained."""
        chosen, cap = self._inducing_set(), self._inducing_cap()
        if self._has_warned or chosen.is_complete or self.num_inducing < cap:
            return
        self._has_warned = True
        X = self._transformed_train_X()[..., chosen.rows.first, :]
        left = residual_fraction(
            self.covar_module, X, self._transformed_inducing_points()
        )
        remedy = "max_inducing_points (and an inducing_sampler that allows it)"
        remedy = "max_memory" if cap == self._memory_cap() else remedy
        warnings.warn(
            f"The inducing points reached their cap of {cap}; the residual trace left "
            f"is {left.trace:.3g}, {left.fraction:.2%} of the prior variance at the "
            "training points. See model.certificate() for what that means, and pass a "
            f"larger {remedy} if it is too much.",
            BotorchWarning,
            stacklevel=2,
        )
