"""Checks of arguments at public functions: numbers, flags, names, types, tensors.

Each check raises an `InputDataError` that says what came and what is needed.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from inspect import Parameter, signature
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from numpy.typing import NDArray
from torch import Tensor

DTYPES = (torch.float32, torch.float64)
MOST_SEED = 2**64
MAX_INTEGER = 2**53  # float64 holds whole numbers up to here


def check_number(name: str, value: object, interval: str, need: str = "") -> None:
    """Refuse what is no real number in an interval, such as `"[0, inf)"`.

    A tensor of one number is a number; text and truth values are none. `need` is the
    end of the message, in place of one that says the interval.
    """
    if not _is_in(_as_number(value), interval):
        raise InputDataError(
            f"Got {name}={short_repr(value)}; {need or f'need a number in {interval}.'}"
        )


def check_whole(name: str, value: object, least: int = 1, need: str = "") -> int:
    """A whole number of at least `least`, as Python's."""
    if (whole := _as_whole(value)) is None or whole < least:
        need = need or f"need at least {least}, a whole number."
        raise InputDataError(f"Got {name}={short_repr(value)}; {need}")
    return whole


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise InputDataError(f"Got {name}={short_repr(value)}; need True or False.")


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Refuse what is none of a few names."""
    if not any(value is choice or value == choice for choice in choices):
        raise InputDataError(
            f"Got {name}={short_repr(value)}; need one of {tuple(choices)}."
        )


def check_kind(
    name: str, value: object, kind: type | tuple[type, ...], need: str
) -> None:
    """Refuse what is no instance of a class or protocol, such as the class itself.

    The message ends with `need`, such as `"a GPyTorch kernel, such as RBFKernel()"`.
    """
    if isinstance(value, type) or not isinstance(value, kind):
        raise InputDataError(f"Got {name}={short_repr(value)}; need {need}.")


def check_callable(name: str, value: object, need: str) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise InputDataError(f"Got {name}={short_repr(value)}; need {need}.")


def check_path(name: str, value: object) -> None:
    """Refuse what is no path of a file."""
    need = "the path of a file: text or a pathlib.Path"
    check_kind(name, value, (str, os.PathLike), need)
    if "\0" in os.fsdecode(value):  # type: ignore[arg-type]
        raise InputDataError(
            f"Got {name}={value!r}, which has a null byte; need {need} without one."
        )


def check_generator(name: str, value: object) -> None:
    """Refuse what is no source of randomness, nor None."""
    if value is not None:
        check_kind(name, value, torch.Generator, "a torch.Generator, or None")


def check_keywords(given: Collection[str], known: Collection[str], cls: type) -> None:
    """Refuse keyword arguments that are neither `known` nor parameters of the class.

    The `TypeError` names the nearest one that is.
    """
    for name in given:
        if name not in known:
            names = sorted({*known, *parameters_of(cls)})
            raise TypeError(
                f"Got an unexpected keyword argument {name!r}; {cls.__name__} needs "
                f"one of {', '.join(names)}.{near_hint(name, names)}"
            )


def near_hint(name: str, known: Collection[str]) -> str:
    """The known name that is nearest, as the end of a message; empty for none.

    That of `R13-1` is `R13`, as of a repeat, before `R31`; and that of `C1` is `C01`.
    """
    same = [each for each in known if each.casefold() == name.casefold()]
    begins = [
        each
        for each in known
        if name.startswith(each) and not name[len(each) : len(each) + 1].isalnum()
    ]
    plain = _without_zeros(name)
    padded = [each for each in known if _without_zeros(each) == plain]
    near = same or padded or sorted(begins, key=len)[-1:]
    near = near or get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _without_zeros(name: str) -> str:
    """A name in small letters, without zeros before other digits."""
    return re.sub(r"(?<![\d.])0+(?=\d)", "", name.casefold())


def parameters_of(cls: type) -> list[str]:
    """What the constructor of a class calls its arguments.

    The nearest base names them where the class does not, as with `*args`.
    """
    for base in cls.__mro__:
        if (build := vars(base).get("__init__")) is not None:
            _, *given = signature(build).parameters.values()  # but `self`
            several = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
            if names := [p.name for p in given if p.kind not in several]:
                return names
    return []


def as_seed(value: object, name: str = "seed") -> int:
    """A seed as `torch.Generator.manual_seed` takes it, from 0 to 2^64 - 1."""
    if (seed := _as_whole(value)) is None or not 0 <= seed < MOST_SEED:
        raise InputDataError(
            f"Got {name}={short_repr(value)}; need a whole number from 0 to 2^64 - 1."
        )
    return seed


def check_tensors(**tensors: object) -> None:
    """Refuse what are no tensors, such as arrays and lists."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise InputDataError(
                f"Got {name}={short_repr(value)} of type {type(value).__name__}; need "
                f"a torch.Tensor. Try torch.as_tensor({name}, dtype=torch.float64)."
            )


def check_finite(**tensors: object) -> None:
    """Refuse what are no tensors, or hold NaN or infinity.

    Those on an accelerator are not looked at, since the host would wait for it.
    """
    check_tensors(**tensors)
    for name, value in tensors.items():
        if isinstance(value, Tensor) and value.is_cpu and not value.isfinite().all():
            raise InputDataError(
                f"Got {name} with {int((~value.isfinite()).sum())} entries that are "
                "NaN or infinite; need finite ones. Leave out their rows."
            )


def as_array(
    name: str, value: object, need: str, kinds: str, no: str = "no array of numbers"
) -> Tensor:
    """An array or a list of numbers as a tensor of its dtype; a tensor is itself.

    An array of objects is one of numbers if each of them is one: int, float, Decimal.
    `kinds` are letters of `numpy.dtype.kind` that arrays may have. Masked arrays,
    sparse tensors and tensors without data are refused. The message says `no` for what
    is no array, and ends with `need`.
    """
    came = f"Got {name}={short_repr(value)} of type {type(value).__name__}"
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_meta or value.is_complex():
            raise InputDataError(
                f"{came} (dtype {value.dtype}, layout {value.layout}, device "
                f"{value.device}); need a dense tensor of real numbers."
            )
        return value
    if np.ma.is_masked(value):
        raise InputDataError(f"{came}, of which entries are masked; {need}")
    try:
        array = _as_plain_numbers(np.array(_detached(value)))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputDataError(f"{came}, which is {no} ({error}); {need}") from error
    if array.dtype.kind not in kinds:
        raise InputDataError(f"{came}, which is {no}; {need}")
    kind, size = array.dtype.kind, min(array.itemsize, 8)
    return torch.from_numpy(array.astype(f"{kind}{size}"))  # in native byte order


def as_numbers(name: str, value: object, need: str) -> Tensor:
    """Real numbers: a tensor without its gradient, all else in float64.

    Whole numbers with more digits than that are refused.
    """
    numbers = as_array(name, value, need, "iuf", "no matrix of numbers")
    is_whole = not isinstance(value, Tensor) and not numbers.is_floating_point()
    if is_whole and bool(is_inexact(numbers.numpy()).any()):
        raise InputDataError(
            f"Got {name}={short_repr(value)} with whole numbers beyond 2^53, where "
            "float64 loses digits; need smaller ones. Subtract what they have in "
            "common."
        )
    if isinstance(value, Tensor):
        return numbers.detach() if numbers.requires_grad else numbers
    return numbers.double()


def is_inexact(array: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Where whole numbers are beyond what float64 holds."""
    return (array > MAX_INTEGER) | (array < -MAX_INTEGER)


def as_python(value: Any) -> Any:
    """A value whose NumPy scalars, in lists and dictionaries, are Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: as_python(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        exact = (int, float)  # most entries, and NumPy's float64 is no exact float
        items = [v if type(v) in exact else as_python(v) for v in value]
        make = getattr(type(value), "_make", type(value))  # of a named tuple
        return make(items)
    return value


def as_device(value: torch.device | str | None) -> torch.device:
    """The device that is meant, the default one for None; it must be there."""
    try:
        return torch.empty(0, device=value).device
    except (RuntimeError, AssertionError, TypeError) as error:  # as torch raises
        raise InputDataError(
            f"Got device={short_repr(value)}, which is not there "
            f"({str(error).splitlines()[0]}); need one such as 'cpu' or 'cuda:0'."
        ) from error


def as_points(name: str, value: object, dim: int, device: torch.device) -> Tensor:
    """`k x d` points as a tensor of floats on a device, without its gradient."""
    X = as_numbers(name, value, f"need `k x {dim}` points.")
    if X.dim() != 2 or X.shape[-1] != dim:
        raise BotorchTensorDimensionError(
            f"Got {name} of shape {tuple(X.shape)}; need `k x {dim}`: a row for each "
            "point."
        )
    X = X.to(device)
    return X if X.is_floating_point() else X.double()


def _reads_as_pairs(value: object) -> bool:
    """Whether a list or array is sound as SciPy's bounds, a range for each of two."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    pairs = value if isinstance(value, list | tuple) else ()
    if len(pairs) != 2 or not all(isinstance(p, list | tuple) for p in pairs):
        return False
    return all(len(p) == 2 and p[0] < p[1] for p in pairs)


def as_bounds(value: object) -> Tensor:
    """Finite `2 x d` bounds of a box as a tensor in float32 or float64, lower first."""
    need = "need the `2 x d` bounds of a box: the lower ones, then the upper ones."
    bounds = as_numbers("bounds", value, need)
    if _reads_as_pairs(value):
        raise InputDataError(
            f"Got bounds={value!r}, which may be two ranges, or two lower bounds and "
            "two upper ones; need a tensor of the lower bounds, then the upper ones: "
            f"torch.tensor({bounds.mT.tolist()}) for the ranges."
        )
    if bounds.dim() != 2 or bounds.shape[0] != 2 or bounds.shape[1] == 0:
        pairs = bounds.dim() == 2 and bounds.shape[1] == 2
        hint = " Of a range for each feature take torch.tensor(ranges).T." * pairs
        raise BotorchTensorDimensionError(
            f"Got bounds of shape {tuple(bounds.shape)}; need `2 x d`: the lower "
            f"bounds, then the upper ones.{hint}"
        )
    is_sound = bounds.dtype in DTYPES and bool(bounds.isfinite().all())
    is_sound &= bool((bounds[1] - bounds[0]).isfinite().all())
    if not is_sound or not bool((bounds[0] < bounds[1]).all()):
        raise InputDataError(
            f"Got bounds {bounds.tolist()} of dtype {bounds.dtype}; need finite "
            "float32 or float64 with every lower bound below its upper one, at a "
            "finite distance."
        )
    return bounds


def short_repr(value: Any, most: int = 60) -> str:
    """A value as messages show it: short, in one line, without control characters."""
    if isinstance(value, str):
        return repr(_cut(value, most))
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, torch.nn.Module):
        return type(value).__name__
    if isinstance(value, Tensor | np.ndarray) and value.ndim > 0:
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    try:
        text = repr(value) if math.isnan(_as_number(value)) else str(value)
    except ValueError:  # Python writes no more than some 4,300 digits
        text = f"a number of type {type(value).__name__} with very many digits"
    return _cut(" ".join(text.split()), most)


def short_list(
    values: Iterable[Any], most: int = 5, show: Callable[[Any], str] = short_repr
) -> str:
    """The first of some values as messages show them, and how many more there are."""
    shown = list(map(show, values))
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + rest


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _detached(value: object) -> object:
    """A list of tensors without their gradients, which NumPy would not take."""
    if not isinstance(value, list | tuple):
        return value
    return [v.detach() if isinstance(v, Tensor) else v for v in value]


def _as_plain_numbers(array: NDArray[Any]) -> NDArray[Any]:
    """Objects that are numbers, such as a row of a DataFrame, as numbers."""
    items = array.ravel().tolist() if array.dtype.kind == "O" else []
    is_number = [isinstance(v, Real | Decimal) for v in items]
    if not items or not all(is_number) or any(isinstance(v, bool) for v in items):
        return array
    is_whole = all(isinstance(v, Integral) for v in items)
    return array.astype(np.int64 if is_whole else np.float64)


def _as_number(value: object) -> float:
    """A real number; NaN for all else."""
    if isinstance(value, Tensor):
        is_one = value.numel() == 1 and not value.is_complex()
        return float(value) if is_one else math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # a whole number beyond 1e308
            return math.nan
    return math.nan


def _as_whole(value: object) -> int | None:
    """A whole number of a type for these; None for all else."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return None


def _is_in(value: float, interval: str) -> bool:
    low, high = (float(end) for end in interval[1:-1].split(","))
    at_low = interval[0] == "[" and value == low
    at_high = interval[-1] == "]" and value == high
    return low < value < high or at_low or at_high


def nonfinite_names(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of those with NaN or infinity, at least one tensor, for one wait."""
    flags = torch.stack([values.isfinite().all() for values in tensors.values()])
    pairs = zip(tensors, flags.tolist(), strict=True)
    return [name for name, is_finite in pairs if not is_finite]
