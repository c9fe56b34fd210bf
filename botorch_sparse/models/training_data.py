"""Training data that is not put together before someone looks at it.

A fantasy model has all data of its parent and a few new rows, times the number of
fantasies. Its posterior needs none of that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from botorch.exceptions import BotorchTensorDimensionError, UnsupportedError
from botorch.models.transforms.input import ChainedInputTransform
from gpytorch.likelihoods.noise_models import FixedGaussianNoise
from gpytorch.module import Module
from torch import Tensor

from botorch_sparse.kernels import in_double
from botorch_sparse.models.inducing_set import same_tensor
from botorch_sparse.posteriors import NystromFeatures, NystromPosterior
from botorch_sparse.posteriors.low_rank_update import LowRankUpdate


@dataclass(eq=False)
class JoinedRows:
    """Rows of several tensors, concatenated and expanded when `join` is called.

    Attributes:
        parts: Tensors `part_batch x n_i x event`, whose batch shapes broadcast.
        batch_shape: The batch shape of the result.
        event_dims: Dimensions from the rows on: 2 for inputs, 1 for targets.
    """

    parts: tuple[Tensor, ...]
    batch_shape: torch.Size
    event_dims: int
    _joined: Tensor | None = field(default=None, repr=False)

    @property
    def shape(self) -> torch.Size:
        """The shape of the result. Cost: O(1)."""
        n = sum(part.shape[-self.event_dims] for part in self.parts)
        event = self.parts[0].shape[self.parts[0].dim() - self.event_dims + 1 :]
        return torch.Size((*self.batch_shape, n, *event))

    def join(self) -> Tensor:
        """The result; the same tensor each time."""
        if self._joined is None:
            k = self.event_dims
            batches = [part.shape[: part.dim() - k] for part in self.parts]
            common = torch.broadcast_shapes(*batches)
            parts = [part.expand(*common, *part.shape[-k:]) for part in self.parts]
            rows = torch.cat(parts, dim=-k)
            self._joined = rows.expand(*self.batch_shape, *rows.shape[-k:])
        return self._joined

    def detached(self) -> "JoinedRows":
        """The same rows without gradients; itself where it has none."""
        if not any(part.requires_grad for part in self.parts):
            return self
        parts = tuple(part.detach() for part in self.parts)
        return JoinedRows(parts, self.batch_shape, self.event_dims)


Rows = Tensor | JoinedRows


def append_rows(
    old: Rows, new: Tensor, batch_shape: torch.Size, event_dims: int
) -> JoinedRows:
    """The rows of `old` and then of `new`. Cost: O(1)."""
    parts = old.parts if isinstance(old, JoinedRows) else (old,)
    return JoinedRows((*parts, new), batch_shape, event_dims)


def joined(rows: Any) -> Any:
    """The tensor; anything but `JoinedRows` is returned as it is."""
    return rows.join() if isinstance(rows, JoinedRows) else rows


class JoinedNoise(FixedGaussianNoise):
    """Noise variances of old and new observations.

    Args:
        old: `batch_shape x n` noise variances, or several such.
        new: `new_batch x q` noise variances.

    Attributes:
        newest: `new`, not below what GPyTorch allows.
    """

    def __init__(self, old: Rows, new: Tensor) -> None:
        Module.__init__(self)
        new = FixedGaussianNoise(new).noise
        batches = [(*old.shape[:-1],), (*new.shape[:-1],)]
        shape = torch.broadcast_shapes(*batches)
        self.newest = new
        self.rows: Rows = append_rows(old, new, shape, event_dims=1)

    @property
    def noise(self) -> Tensor:
        """All noise variances, `batch_shape x (n + q)`."""
        return joined(self.rows)

    @noise.setter
    def noise(self, value: Tensor) -> None:
        self.rows = value

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> "JoinedNoise":
        if isinstance(self.rows, JoinedRows):
            parts = tuple(fn(part) for part in self.rows.parts)
            self.rows = JoinedRows(parts, self.rows.batch_shape, event_dims=1)
        else:
            self.rows = fn(self.rows)
        self.newest = fn(self.newest)
        return Module._apply(self, fn)

    def mean(self) -> Tensor:
        """Their mean, `batch_shape x 1`, without putting them together."""
        if not isinstance(self.rows, JoinedRows):
            return self.rows.mean(dim=-1, keepdim=True)
        sums = [part.sum(dim=-1, keepdim=True) for part in self.rows.parts]
        total = sums[0]
        for part in sums[1:]:
            total = total + part
        return total / self.rows.shape[-1]


class LazyTrainingDataMixin:
    """`train_inputs` and `train_targets` that may be `JoinedRows` behind the scenes."""

    input_transform: Any
    _has_transformed_inputs: bool
    _num_outputs: int
    _inputs: Any = None
    _targets: Any = None
    _original_inputs: Any = None
    _drop_posterior: Callable[[], None]

    @property
    def train_inputs(self) -> Any:
        """The training inputs, a tuple of one tensor, as in `ExactGP`."""
        rows = self._inputs
        return (rows.join(),) if isinstance(rows, JoinedRows) else rows

    @train_inputs.setter
    def train_inputs(self, value: Any) -> None:
        self.__dict__["_inputs"] = value
        self._drop_posterior()

    @property
    def train_targets(self) -> Any:
        """The training targets, as in `ExactGP`."""
        return joined(self._targets)

    @train_targets.setter
    def train_targets(self, value: Any) -> None:
        self.__dict__["_targets"] = value
        self._drop_posterior()

    @property
    def _original_train_inputs(self) -> Any:
        """Training inputs before the input transform, while it is applied."""
        return joined(self._original_inputs)

    @_original_train_inputs.setter
    def _original_train_inputs(self, value: Any) -> None:
        self.__dict__["_original_inputs"] = value

    @property
    def _raw_rows(self) -> Rows:
        """Training inputs before the input transform, not put together."""
        if self._has_transformed_inputs:
            return self._original_inputs
        return self._inputs if isinstance(self._inputs, JoinedRows) else self._inputs[0]

    @property
    def _input_dimension(self) -> int | None:
        """The last dimension of the training inputs, None without data."""
        if self._inputs is None:
            return None
        rows = self._inputs if isinstance(self._inputs, JoinedRows) else self._inputs[0]
        return rows.shape[-1]

    def _data_kinds(self) -> set[tuple[torch.dtype, torch.device]]:
        """Dtypes and devices of the training data."""
        rows = self._targets
        if rows is None:
            return set()
        parts = rows.parts if isinstance(rows, JoinedRows) else (rows,)
        return {(part.dtype, part.device) for part in parts}

    @torch.no_grad()
    def _raw_inputs_of(self, inputs: Any) -> Tensor | None:
        """What the input transform makes new training inputs of in eval mode.

        None where that is known: in train mode, without a transform, and for inputs
        that the model has.

        Raises:
            UnsupportedError: If the transform cannot be undone.
        """
        if inputs is None or not self._has_transformed_inputs:
            return None
        X = inputs if isinstance(inputs, Tensor) else inputs[0]
        X = X.unsqueeze(-1) if X.dim() == 1 else X
        known = (self._original_train_inputs, self.train_inputs[0])
        if any(same_tensor(X, Z) for Z in known):
            return None
        transform = in_double(self.input_transform, X.dtype)
        try:
            raw = _undone(transform, X.double())
            again = transform.preprocess_transform(raw)
        except (RuntimeError, IndexError, BotorchTensorDimensionError):
            again = None
        if again is not None and again.shape == X.shape:
            if torch.allclose(again, X.double(), equal_nan=True):
                return raw.to(X)
        raise UnsupportedError(
            f"{type(self.input_transform).__name__} cannot be undone, and in eval mode "
            "set_train_data gets inputs that are transformed already. Call "
            "model.train() before it and pass raw inputs."
        )

    def _raw_train_X(self) -> Tensor:
        """Training inputs before the input transform, `batch_shape x n x d`."""
        X = joined(self._raw_rows)
        return X[..., 0, :, :] if self._num_outputs > 1 else X

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the graphs of fantasies, which cannot be copied."""
        memo: dict[int, Any] = {}
        state = {**self.__dict__}
        state.pop("_is_fitting", None)  # a copy made during a fit is not being fitted
        for name in ("_inputs", "_targets", "_original_inputs", "_conditioned"):
            state[name] = detached(state.get(name), memo)
        posterior = state.get("_fantasy_posterior")
        if posterior is not None:
            state["_fantasy_posterior"] = _detached_posterior(posterior)
        return state


def _undone(transform: Any, X: Tensor) -> Tensor:
    """What a transform of training inputs made `X` of, if it can be undone at all."""
    if isinstance(transform, ChainedInputTransform):
        for part in reversed(list(transform.values())):
            X = _undone(part, X)
        return X
    if not transform.transform_on_train:
        return X
    try:
        return transform.untransform(X)
    except NotImplementedError:
        return X  # right where applying it again changes nothing, as in rounding


def detached(rows: Any, memo: dict[int, Any]) -> Any:
    """Rows, or a tuple of them, without gradients; the same for the same ones."""
    if isinstance(rows, tuple) and hasattr(rows, "_replace"):
        return type(rows)(*(detached(row, memo) for row in rows))
    if isinstance(rows, tuple | list):
        return tuple(detached(row, memo) for row in rows)
    if isinstance(rows, JoinedRows):
        return memo.setdefault(id(rows), rows.detached())
    if isinstance(rows, Tensor) and rows.requires_grad and not rows.is_leaf:
        return memo.setdefault(id(rows), rows.detach())
    return rows


def _detached_posterior(posterior: NystromPosterior) -> NystromPosterior:
    """The same posterior without gradients, except those of kernel and mean."""
    return replace(
        posterior,
        feature_map=_detached_tensors(posterior.feature_map),
        chol_inner=posterior.chol_inner.detach(),
        weights=posterior.weights.detach(),
        updates=tuple(
            LowRankUpdate(*(t.detach() for t in update)) for update in posterior.updates
        ),
    )


def _detached_tensors(features: NystromFeatures) -> NystromFeatures:
    """The same features without gradients, except those of the kernel."""
    return replace(
        features,
        inducing_points=features.inducing_points.detach(),
        chol_inducing=features.chol_inducing.detach(),
    )
