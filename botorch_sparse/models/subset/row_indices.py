"""Indices of rows: those that are forced, others, and checks."""

import numpy as np
import torch
from botorch.exceptions import InputDataError
from torch import Tensor


def other_rows(n: int, rows: Tensor) -> Tensor:
    """The indices below `n` that are not among `rows`, in order, on the host."""
    is_other = torch.ones(n, dtype=torch.bool)
    is_other[rows] = False
    return is_other.nonzero().squeeze(-1)


def forced_rows(n: int, num: int, num_initial: int, num_newest: int) -> Tensor:
    """Indices of the first and the last rows; where all do not fit, of fewer last."""
    initial = torch.arange(min(num_initial, num))
    newest = min(num_newest, num - len(initial), n - len(initial))
    return torch.cat([initial, torch.arange(n - newest, n)])


def first_rows(
    n: int, num: int, num_initial: int, num_newest: int, seed: int
) -> Tensor:
    """The rows before any selection: at random but for those forced, in order."""
    forced = forced_rows(n, num, num_initial, num_newest)
    return random_rows(n, num, forced, selection_generator(seed, 0)).sort().values


def random_rows(n: int, num: int, forced: Tensor, generator: torch.Generator) -> Tensor:
    """The forced rows, and others up to `num` uniformly, without replacement."""
    others, device = other_rows(n, forced), generator.device
    order = torch.randperm(len(others), generator=generator, device=device)
    return torch.cat([forced, others[order.to(others.device)[: num - len(forced)]]])


def most_recent_rows(n: int, num: int, first: Tensor) -> Tensor:
    """Some rows first, and the last of the others up to `num`."""
    others = other_rows(n, first)
    return torch.cat([first, others[len(others) - (num - len(first)) :]])


def selection_generator(seed: int, count: int) -> torch.Generator:
    """The randomness of the selection number `count` of a seed."""
    state = np.random.SeedSequence([seed, count]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))


def validate_chosen(index: Tensor, num: int, n: int, forced: Tensor) -> Tensor:
    """A selection on the host: `num` different rows of `n` that include the forced."""
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
