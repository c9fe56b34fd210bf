"""What a saved state knows the parts of a strategy by: plain values, never an address.

A part is its class and its dataclass fields. A `repr` will not do: an object
without one shows its address, and fields may be left out of it.
"""

import enum
import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.exceptions import InputDataError
from torch import Tensor


def fingerprint(value: Any, name: str) -> Any:
    """Plain values that are equal where two parts are, in this process or another.

    Args:
        value: Numbers, text, tensors, arrays, collections of such; a dataclass; a class
            or a function that is found by its name in its module; an object without
            state.
        name: What it is called in an error.

    Raises:
        InputDataError: If something in it has no identity, such as a lambda.
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if isinstance(value, enum.Enum):
        return [_name(type(value)), value.name]
    if isinstance(value, Tensor):
        return ["Tensor", str(value.dtype), list(value.shape), value.tolist()]
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    if isinstance(value, Mapping):
        return _of_mapping(value, name)
    if isinstance(value, set | frozenset):
        items = [fingerprint(item, f"{name}[...]") for item in value]
        return ["set", sorted(items, key=repr)]
    if isinstance(value, list | tuple):
        return [fingerprint(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, partial):
        parts = (value.func, value.args, value.keywords)
        return ["partial", *(fingerprint(part, name) for part in parts)]
    return _of_object(value, name)


def _of_mapping(value: Mapping[Any, Any], name: str) -> list[Any]:
    """The items of a mapping, in an order of their own."""
    items = [
        [fingerprint(k, name), fingerprint(v, f"{name}[{k!r}]")]
        for k, v in value.items()
    ]
    return ["mapping", sorted(items, key=repr)]


def _of_object(value: Any, name: str) -> Any:
    """A dataclass by its fields, what is in a module by its name."""
    if isinstance(value, type):
        return _name(value)
    if is_dataclass(value):
        own = {f.name: getattr(value, f.name) for f in fields(value)}
        return [_name(type(value)), _of_mapping(own, f"{name}.{type(value).__name__}")]
    if hasattr(value, "__self__") and hasattr(value, "__func__"):
        return ["method", fingerprint(value.__self__, name), value.__func__.__name__]
    if _is_importable(value):
        return _name(value)
    if type(value).__module__ != "builtins" and _has_no_state(value):
        return [_name(type(value))]
    raise InputDataError(
        f"Got {name}={value!r}, which a saved state cannot know again: make it a "
        "dataclass, or a function of a module (no lambda, no function within another)."
    )


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _is_importable(value: Any) -> bool:
    """Whether a function is what its module has under its name."""
    found: Any = sys.modules.get(str(getattr(value, "__module__", None)))
    for part in str(getattr(value, "__qualname__", "")).split("."):
        found = getattr(found, part, None)
    return found is not None and found is value


def _has_no_state(value: Any) -> bool:
    """Whether all of an object is its class, as it is to `pickle` and `copy`."""
    try:
        reduced = value.__reduce_ex__(2)
    except TypeError:  # what cannot be written, such as a pattern or a generator
        return False
    stateless = object().__reduce_ex__(2)[0], (type(value),)
    return reduced[:2] == stateless and not any(reduced[2:])
