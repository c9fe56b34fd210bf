"""States with one thing changed: every leaf and every part of a state, in its turn."""

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import product
from typing import Any

import torch
from argument_rows import INF, NAN
from torch import Tensor

Path = tuple[Any, ...]
# What is out of range in a column, by its type.
NUMBERS: dict[torch.dtype, tuple[float, ...]] = {
    torch.long: (-2, 10**9),
    torch.double: (NAN, INF, -1e300),
}


def changes(state: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was changed, in words, and the state with that change.

    Of lists and columns the first and the last entry, which stand for the others;
    nothing of what a state has to agree on with its strategy, which is compared as a
    whole.
    """
    own = {k: v for k, v in state.items() if k != "config"}
    for path, value in parts(own):
        name = ".".join(map(str, path))
        yield f"{name} left out", changed(state, path, None, leave_out=True)
        for other in others(value):
            yield f"{name}={told(other)}", changed(state, path, other)
    for path, column in parts(own, Tensor):
        if column.dim() == 1:
            name = ".".join(map(str, path))
            for place, number in product(_ends(column), NUMBERS.get(column.dtype, ())):
                other = column.clone()
                other[place] = number
                yield f"{name}.{place}={told(number)}", changed(state, path, other)
    for path, value in parts(own, dict):
        name = ".".join([*map(str, path), "unknown"])
        yield f"{name}=1", changed(state, path, {**value, "unknown": 1})


def parts(
    state: Any, kind: type = object, path: Path = ()
) -> Iterator[tuple[Path, Any]]:
    """All parts of a state of a kind, with where they are."""
    if path and isinstance(state, kind):
        yield path, state
    if isinstance(state, dict):
        for key, value in state.items():
            yield from parts(value, kind, (*path, key))
    elif isinstance(state, list | tuple):
        for place in _ends(state):
            yield from parts(state[place], kind, (*path, place))


def _ends(entries: Sequence[Any] | Tensor) -> list[int]:
    """The places of the first and of the last."""
    return sorted({0, len(entries) - 1}) if len(entries) else []


def others(value: Any) -> list[Any]:
    """What is wrong in place of a value: another type, NaN, or out of its range."""
    if isinstance(value, Tensor):
        return [None, value.tolist(), *other_tensors(value)]
    if isinstance(value, bool):
        return [None, "x", 1]
    if isinstance(value, int):
        return [None, "x", True, 0.5, NAN, -2, 10**9]
    if isinstance(value, float):
        return [None, "x", True, torch.zeros(1), NAN, INF, -1e300]
    wrong: list[Any] = [None, "x", 0.5, [], {}]
    return [w for w in wrong if w != value]


def other_tensors(value: Tensor) -> Iterator[Tensor]:
    """Tensors of another shape, of another type, or with numbers that mean nothing."""
    yield value.unsqueeze(0)
    yield value.to(torch.complex64)
    yield value.to(torch.int32)
    if value.numel():
        yield value[:-1] if value.dim() else value.repeat(2)
    if value.numel() and value.is_floating_point():
        yield value * NAN
        yield value.half()


def changed(state: Any, path: Path, value: Any, *, leave_out: bool = False) -> Any:
    """A state with one part changed, or left out; the rest of it is shared."""
    if not path:
        return value
    key, *rest = path
    state = list(state) if isinstance(state, tuple) else copy(state)
    if leave_out and not rest:
        del state[key]
    else:
        state[key] = changed(state[key], tuple(rest), value, leave_out=leave_out)
    return state


def told(value: Any) -> str:
    """A value in a few letters."""
    if isinstance(value, Tensor):
        return f"{value.dtype}{tuple(value.shape)}"
    return repr(value)[:30]
