"""Which rows of the data a subset model is conditioned on."""

from typing import Protocol, TypeVar, cast

import numpy as np
import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.inducing import GradientFactors
from botorch_sparse.inducing.gradient_diversity import select_by_gradient_diversity


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


M = TypeVar("M", contravariant=True)


class SubsetSelection(Protocol[M]):
    """Chooses rows of a model's data.

    Write one to select by something else: `model.all_train_X`, `model.all_train_Y`,
    `model.sample_gradients()` and the posterior on the present subset,
    `model.subset_indices`, are there to be used.
    """

    def __call__(
        self,
        model: M,
        num: int,
        forced: Tensor,
        generator: torch.Generator,
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
    model: Selectable,
    num: int,
    forced: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """Gradient diversity [Wei2025]_; see `select_by_gradient_diversity`."""
    return select_by_gradient_diversity(
        model.sample_gradients(), num, forced, model.noise_scale, generator
    )


def at_random(
    model: Selectable,
    num: int,
    forced: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """The others uniformly, without replacement."""
    return random_rows(model.num_observations, num, forced, generator)


def random_rows(n: int, num: int, forced: Tensor, generator: torch.Generator) -> Tensor:
    """The forced rows, and others up to `num` uniformly, without replacement."""
    others, device = other_rows(n, forced), generator.device
    order = torch.randperm(len(others), generator=generator, device=device)
    return torch.cat([forced, others[order.to(others.device)[: num - len(forced)]]])


def most_recent(
    model: Selectable,
    num: int,
    forced: Tensor,
    generator: torch.Generator,
) -> Tensor:
    """The last rows."""
    return most_recent_rows(model.num_observations, num, forced)


def most_recent_rows(n: int, num: int, first: Tensor) -> Tensor:
    """Some rows first, and the last of the others up to `num`."""
    others = other_rows(n, first)
    return torch.cat([first, others[len(others) - (num - len(first)) :]])


SELECTIONS: dict[str, SubsetSelection[Selectable]] = {
    "gradient": by_gradient,
    "random": at_random,
    "recent": most_recent,
}


def selection_named(selection: object) -> SubsetSelection[Selectable]:
    """The selection of a name, or the callable that was given.

    Raises:
        InputDataError: If it is neither.
    """
    if isinstance(selection, str) and selection in SELECTIONS:
        return SELECTIONS[selection]
    if callable(selection) and not isinstance(selection, type):
        return cast(SubsetSelection[Selectable], selection)
    raise InputDataError(
        f"Got selection={selection!r}; need one of {tuple(SELECTIONS)} or a callable "
        "selection(model, num, forced, generator) that returns indices."
    )


def selection_generator(seed: int, count: int) -> torch.Generator:
    """The randomness of the selection number `count` of a seed."""
    state = np.random.SeedSequence([seed, count]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


def forced_rows(n: int, num: int, num_initial: int, num_newest: int) -> Tensor:
    """Indices of the first and the last rows; where all do not fit, of fewer last."""
    initial = torch.arange(min(num_initial, num))
    newest = min(num_newest, num - len(initial), n - len(initial))
    return torch.cat([initial, torch.arange(n - newest, n)])


@torch.no_grad()
def select_rows(
    model: Selectable, num: int, forced: Tensor, generator: torch.Generator
) -> Tensor:
    """What a model's selection chooses, checked, on the host.

    Args:
        model: The model.
        num: Rows to choose.
        forced: Those that must be among them, on the host.
        generator: Source of randomness.
    """
    is_ours = isinstance(model.selection, str)
    given = forced if is_ours else forced.to(model.all_train_X.device)
    chosen = selection_named(model.selection)(model, num, given, generator)
    return validate_chosen(chosen, num, model.num_observations, forced)


def first_rows(
    n: int, num: int, num_initial: int, num_newest: int, seed: int
) -> Tensor:
    """The rows before any selection: at random but for those forced, in order."""
    forced = forced_rows(n, num, num_initial, num_newest)
    return random_rows(n, num, forced, selection_generator(seed, 0)).sort().values


def validate_chosen(index: Tensor, num: int, n: int, forced: Tensor) -> Tensor:
    """Check what a selection returned, and take it to the host.

    Args:
        index: What it returned, on any device.
        num: Rows that were asked for.
        n: Rows of the data.
        forced: Rows that must be among them, on the host.

    Returns:
        The indices on the host.

    Raises:
        InputDataError: If it is not a vector of `num` different indices of `n` rows
            that include the forced ones.
    """
    is_index = isinstance(index, Tensor) and index.dtype == torch.int64
    index = index.cpu() if is_index else index
    if not is_index or index.dim() != 1 or len(index.unique()) != len(index):
        shown = f"{index.dtype} of shape {tuple(index.shape)}" if is_index else index
        raise InputDataError(
            f"Got a subset {shown}; need a vector of different int64 indices."
        )
    if len(index) != num or (num > 0 and not 0 <= index.min() <= index.max() < n):
        raise InputDataError(
            f"Got a subset of {len(index)} indices for {n} rows of data; need {num} "
            f"indices from 0 to {n - 1}."
        )
    if not bool(torch.isin(forced, index).all()):
        raise InputDataError(
            "Got a subset without some of the rows that are always in it: "
            f"{forced.tolist()}. A selection must return them too."
        )
    return index


def other_rows(n: int, rows: Tensor) -> Tensor:
    """The indices below `n` that are not among `rows`, in order, on the host."""
    is_other = torch.ones(n, dtype=torch.bool)
    is_other[rows] = False
    return is_other.nonzero().squeeze(-1)
