"""Inducing points that a fit moves, as hyperparameters of the collapsed bound."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor

from botorch_sparse.models.inducing_set import InducingSet

# The name of the points among the parameters during a fit, and in state dicts.
NAME = "learned_points"


class LearnedPointsMixin:
    """`learn_inducing_points` for a model with `AdaptiveInducingMixin`.

    The points are parameters while `_points_as_parameters` is open, which a fit
    optimizes with the hyperparameters; afterwards they are inducing points like those
    that a user gives. Raw inputs are learned: input transforms move them as they move
    the data. `resparsify` forgets what was learned, and so does loading a state dict
    without learned points.

    Attributes:
        learn_inducing_points: Whether fits move the inducing points.
    """

    learn_inducing_points: bool = False
    _has_learned: bool = False
    _unlearned_points: Tensor | None = None  # those given, before the first fit

    _keeps_all_of_few: bool
    _takes_all: Callable[..., bool]
    _unique_rows: Callable[[], Any]
    _runs_exactly: Callable[[], bool]
    _given_points: Tensor | None
    _inducing: InducingSet | None
    _inducing_set: Callable[[], InducingSet]
    _raw_train_X: Callable[[], Tensor]
    _clear_cache: Callable[[], None]

    def _learns(self) -> bool:
        """Whether a fit has points to move; the exact GP has none."""
        if not self.learn_inducing_points:
            return False
        if self._given_points is None and self._keeps_all_of_few:
            return not self._takes_all(self._unique_rows())  # before any are drawn
        return not self._runs_exactly()

    @contextmanager
    def _points_as_parameters(self) -> Iterator[None]:
        """Let optimizers see the inducing points, and keep where they end.

        On an error the points are what they were; the caller restores the rest.
        """
        chosen = self._inducing_set()
        start = chosen.points.detach().clone(memory_format=torch.contiguous_format)
        points = torch.nn.Parameter(start)
        module: Any = self
        module.register_parameter(NAME, points)
        self._use(chosen, points)
        try:
            yield
        except BaseException:
            delattr(self, NAME)
            self._inducing = chosen
            raise
        delattr(self, NAME)
        if not self._has_learned:
            self._unlearned_points = self._given_points
        self._given_points, self._has_learned = points.detach(), True
        self._use(chosen, self._given_points)

    def _forget_learned(self) -> None:
        """Go back to the points given, or to drawing them."""
        self._given_points, self._unlearned_points = self._unlearned_points, None
        self._has_learned, self._inducing = False, None
        self._clear_cache()

    def resparsify(self, generator: torch.Generator | None = None) -> Self:
        """Draw the inducing points again under the present hyperparameters.

        Learned ones are forgotten. Inducing points that were given stay.

        Args:
            generator: Source of randomness; by default a new one with a fixed seed.

        Returns:
            The model. Cost: O(n m^2).
        """
        if self._has_learned:
            self._forget_learned()
        return super().resparsify(generator)  # type: ignore[misc, no-any-return]

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        if self._unlearned_points is not None:
            self._unlearned_points = fn(self._unlearned_points)
        return super()._apply(fn)  # type: ignore[misc, no-any-return]

    def _use(self, known: InducingSet, points: Tensor) -> None:
        """Replace the inducing points of the present data."""
        self._inducing = InducingSet.from_points(known.train_X, known.rows, points)
        self._clear_cache()

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[misc]
        if self._has_learned and NAME not in self._parameters:  # type: ignore[attr-defined]
            destination[prefix + NAME] = self._given_points

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Take learned points over, of whatever number, where this model learns too."""
        is_fitting = NAME in self._parameters  # type: ignore[attr-defined]
        points = None if is_fitting else state_dict.pop(prefix + NAME, None)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)  # type: ignore[misc]
        if points is None and self._has_learned and not is_fitting:
            self._forget_learned()
        if points is None or not self.learn_inducing_points:
            return
        if not self._has_learned:
            self._unlearned_points = self._given_points
        self._given_points = points.detach().to(self._raw_train_X(), copy=True)
        self._has_learned, self._inducing = True, None
        self._clear_cache()
