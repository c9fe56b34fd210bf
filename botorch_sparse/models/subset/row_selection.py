"""Which rows a subset model keeps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.inducing import GradientFactors
from botorch_sparse.inducing.gradient_diversity import select_by_gradient_diversity
from botorch_sparse.kernels import dense_covariance, in_double, prior_variance
from botorch_sparse.models.subset.row_indices import (
    most_recent_rows,
    random_rows,
    validate_chosen,
)
from botorch_sparse.models.subset.subset_checks import validate_gradients


@torch.no_grad()
def rows_by_leverage(
    kernel: Kernel, X: Tensor, noise: Tensor, num: int, forced: Tensor
) -> Tensor:
    r"""Greedy choice of the largest residual leverage: `num` indices in their order.

    The next row is :math:`\arg\max_i \sigma_U^2(x_i) / d_i`, with the posterior
    variance given noisy observations of the rows `U` that are chosen, forced ones
    first: a pivoted Cholesky factorization of `K + D`. Observed values do not matter.
    Elements of a batch share the choice by the sum of their leverages. Cost: O(n num^2)
    time, O(n num) memory, and `num` columns of the kernel matrix, in float64. Nothing
    is copied to the host.
    """
    kernel, X, noise = in_double(kernel, X.dtype), X.double(), noise.double()
    variance = prior_variance(kernel, X)
    columns = variance.new_zeros(num, *variance.shape)
    chosen = list(forced.to(X.device).unsqueeze(-1).unbind())
    taken = variance.new_zeros(X.shape[-2])
    for t in range(num):
        if t >= len(forced):
            leverage = (variance / noise).reshape(-1, X.shape[-2]).sum(0)
            chosen.append((leverage + taken).argmax(keepdim=True))
        j = chosen[t]
        taken.index_fill_(0, j, -torch.inf)
        known, pivot = columns[:t], (variance + noise).index_select(-1, j)
        cross = dense_covariance(kernel, X, X.index_select(-2, j)).squeeze(-1)
        explained = torch.einsum("t...n,t...k->...n", known, known.index_select(-1, j))
        columns[t] = (cross - explained) / pivot.sqrt()
        variance = (variance - columns[t].square()).clamp_min(0.0)
    return torch.cat(chosen) if chosen else forced


Selection: TypeAlias = str | Callable[..., Tensor]
READING, GRADIENTS, NOISE_SCALE = "contribution", "pilot", 0.1


class Selectable(Protocol):
    """What these selections ask of a `SubsetSingleTaskGP`."""

    selection: object
    noise_scale: float

    @property
    def all_train_X(self) -> Tensor:
        """All inputs."""
        ...

    @property
    def num_observations(self) -> int:
        """Their number."""
        ...

    def sample_gradients(self) -> Tensor | GradientFactors:
        """Gradients of the log likelihood, by sample."""
        ...

    def rows_by_leverage(self, num: int, forced: Tensor) -> Tensor:
        """Rows of the largest residual leverage, one after another."""
        ...


class SubsetSelection(Protocol):
    """Chooses rows of a model's data.

    Write one to select by something else: `model.all_train_X`, `model.all_train_Y`,
    `model.sample_gradients()` and the posterior on the present subset,
    `model.subset_indices`, are there to be used.
    """

    def __call__(
        self, model: Any, num: int, forced: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Choose.

        Args:
            model: The model, conditioned on its present subset.
            num: Rows to choose, forced ones included; fewer than there are.
            forced: Indices of rows that must be chosen, at most `num`, on the device of
                the data.
            generator: Source of randomness, on the CPU unless the caller gave another.

        Returns:
            `num` different indices that include the forced ones.
        """
        ...


def by_gradient(
    model: Selectable, num: int, forced: Tensor, generator: torch.Generator
) -> Tensor:
    """Gradient diversity [Wei2025]_; see `select_by_gradient_diversity`."""
    return select_by_gradient_diversity(
        model.sample_gradients(), num, forced, model.noise_scale, generator
    )


def at_random(
    model: Selectable, num: int, forced: Tensor, generator: torch.Generator
) -> Tensor:
    """The others uniformly, without replacement."""
    return random_rows(model.num_observations, num, forced, generator)


def most_recent(
    model: Selectable, num: int, forced: Tensor, generator: torch.Generator
) -> Tensor:
    """The last rows."""
    return most_recent_rows(model.num_observations, num, forced)


def by_leverage(
    model: Selectable, num: int, forced: Tensor, generator: torch.Generator
) -> Tensor:
    """The largest residual leverage; see `rows_by_leverage`."""
    return model.rows_by_leverage(num, forced)


def mixed(
    model: Selectable, num: int, forced: Tensor, generator: torch.Generator
) -> Tensor:
    """Half of those that are free by leverage, the others at random."""
    spread = model.rows_by_leverage((num + len(forced) + 1) // 2, forced)
    return random_rows(model.num_observations, num, spread.cpu(), generator)


SELECTIONS: dict[str, SubsetSelection] = {
    "leverage": by_leverage,
    "mixed": mixed,
    "gradient": by_gradient,
    "random": at_random,
    "recent": most_recent,
}


def selection_named(selection: object) -> SubsetSelection:
    """The selection of a name, or the callable that was given."""
    if isinstance(selection, str) and selection in SELECTIONS:
        return SELECTIONS[selection]
    if callable(selection) and not isinstance(selection, type):
        return selection
    raise InputDataError(
        f"Got selection={selection!r}; need one of {tuple(SELECTIONS)} or a callable "
        "selection(model, num, forced, generator) that returns indices."
    )


@dataclass(frozen=True)
class SelectionOptions:
    """How rows are chosen; see `SubsetSingleTaskGP`. `of` knows the defaults.

    Args:
        selection: A name in `SELECTIONS` or a callable. By default `"gradient"` where
            one of the others is given, and `"leverage"` where none is.
        reading: `"contribution"` by default.
        gradients: `"pilot"` by default.
        noise_scale: 0.1 by default.

    Raises:
        InputDataError: If one of them is unknown, or negative.
    """

    selection: Selection
    reading: str
    gradients: str
    noise_scale: float

    def __post_init__(self) -> None:
        selection_named(self.selection)
        validate_gradients(self.reading, self.gradients, self.noise_scale)

    @classmethod
    def of(
        cls,
        selection: Selection | None = None,
        reading: str | None = None,
        gradients: str | None = None,
        noise_scale: float | None = None,
    ) -> Self:
        """With the defaults of those that are None."""
        if selection is None:
            is_free = (reading, gradients, noise_scale) == (None, None, None)
            selection = "leverage" if is_free else "gradient"
        return cls(
            selection,
            READING if reading is None else reading,
            GRADIENTS if gradients is None else gradients,
            NOISE_SCALE if noise_scale is None else noise_scale,
        )


@torch.no_grad()
def select_rows(
    model: Selectable, num: int, forced: Tensor, generator: torch.Generator
) -> Tensor:
    """`num` rows that a model's selection chooses, checked, on the host."""
    is_ours = isinstance(model.selection, str)
    given = forced if is_ours else forced.to(model.all_train_X.device)
    chosen = selection_named(model.selection)(model, num, given, generator)
    return validate_chosen(chosen, num, model.num_observations, forced)
