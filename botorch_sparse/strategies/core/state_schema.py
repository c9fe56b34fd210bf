"""The form of a saved state: which parts it has, and what each of them may be.

A form is one of these, and forms are made of forms:

==================  ==================================================
`{"a": form, ...}`  a dictionary with these keys and no others
`[form]`            a list of any length
`[form, form]`      a list of so many
`(form, form)`      one of them; None is a form
`In(int, "[0, 1]")` a number in an interval, as in `check_number`
`Entries(dtype, n)` a tensor of a type and a shape, None for any size
`Column(int)`       a tensor of such numbers, in an interval or as below
`{"a", "b"}`        one of these texts
a dataclass         a dictionary of its fields
`int`               a whole number from 0 on
`float`             a number, NaN too
`bool`, `object`    a truth value; anything
==================  ==================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, TypeAlias, get_args

import torch
from botorch.exceptions import InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import (
    check_choice,
    check_kind,
    check_number,
    short_repr,
)

Schema: TypeAlias = Any


@dataclass(frozen=True)
class Interval:
    """A number, `int` or `float`, in an interval."""

    kind: type
    interval: str


class TensorSpec:
    """A tensor without NaN.

    Args:
        dtype: Of its entries.
        *shape: Its sizes, None for any.
        allows_infinity: Whether entries may be infinite.
    """

    def __init__(
        self, dtype: torch.dtype, *shape: int | None, allows_infinity: bool = False
    ) -> None:
        self.dtype, self.shape = dtype, shape
        self.allows_infinity = allows_infinity

    def has(self, value: object) -> bool:
        """Whether a value is one."""
        if not isinstance(value, Tensor) or value.dtype != self.dtype:
            return False
        sizes = zip(self.shape, value.shape, strict=False)
        is_sound = ~value.isnan() if self.allows_infinity else value.isfinite()
        fits = value.dim() == len(self.shape)
        return fits and all(n in (None, m) for n, m in sizes) and bool(is_sound.all())


class VectorSpec:
    """Numbers of a kind, one after the other: a tensor of one dimension.

    Args:
        kind: `int` or `float`.
        interval: Where they have to be, as in `check_number`. By default whole numbers
            are from 0 on, and others may be NaN too.
    """

    def __init__(self, kind: Any, interval: str | None = None) -> None:
        self.dtype = DTYPES[kind]
        self.interval = "[0, inf)" if interval is None and kind is int else interval

    def check(self, name: str, value: Any) -> None:
        """Refuse anything else."""
        is_tensor = isinstance(value, Tensor)
        if not is_tensor or value.dim() != 1 or value.dtype != self.dtype:
            need = f"a tensor of {self.dtype} and one dimension"
            raise InputDataError(f"Got {name}={short_repr(value)}; need {need}.")
        if self.interval is not None and len(value):
            for most in value.aminmax():
                check_number(name, most.item(), self.interval)


FINITE = Interval(float, "(-inf, inf)")
POSITIVE = Interval(float, "(0, inf)")
NON_NEGATIVE = Interval(float, "[0, inf)")
# Of what type a column of numbers is.
DTYPES: dict[Any, torch.dtype] = {int: torch.long, float: torch.double}
# What each type of plain values is known by: NumPy's numbers are numbers.
KINDS = {int: Integral, float: Real, bool: bool, str: str, object: object}


def schema_like(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Schema]:
    """The form of other tensors by the same names, such as of a model's parameters."""
    return {
        name: TensorSpec(x.dtype, *x.shape, allows_infinity=bool(x.isinf().any()))
        for name, x in tensors
    }


def check_schema(name: str, value: Any, form: Schema) -> None:
    """Refuse what has another form.

    Args:
        name: Of the value.
        value: What came.
        form: What it should be.

    Raises:
        InputDataError: If it has another one; says which part.
    """
    if isinstance(form, type) and is_dataclass(form):
        form = {f.name: f.type for f in fields(form)}
    if isinstance(form, UnionType):
        form = get_args(form)
    if form is int:
        form = Interval(int, "[0, inf)")
    if isinstance(form, set):
        check_kind(name, value, str, f"one of {sorted(form)}")
        check_choice(name, value, form)
    elif isinstance(form, dict):
        _check_keys(name, value, form)
        for key, part in form.items():
            check_schema(f"{name}.{key}", value[key], part)
    elif isinstance(form, list):
        _check_list(name, value, form)
    elif isinstance(form, tuple):
        _check_one_of(name, value, form)
    elif isinstance(form, Interval):
        _check_plain(name, value, form.kind)
        check_number(name, value, form.interval)
    elif isinstance(form, VectorSpec):
        form.check(name, value)
    elif isinstance(form, TensorSpec):
        if not form.has(value):
            need = f"a tensor of {form.dtype}, shape {form.shape}, without NaN"
            raise InputDataError(f"Got {name}={short_repr(value)}; need {need}.")
    else:
        _check_plain(name, value, form)


def _check_keys(name: str, value: Any, form: dict[str, Schema]) -> None:
    keys = sorted(value, key=str) if isinstance(value, dict) else short_repr(value)
    if keys != sorted(form):
        raise InputDataError(f"Got {name}={keys}; need {sorted(form)}.")


def _check_list(name: str, value: Any, form: list[Schema]) -> None:
    if not isinstance(value, list) or len(form) not in (1, len(value)):
        raise InputDataError(
            f"Got {name}={short_repr(value)}; need a list, as it was saved."
        )
    forms = form * len(value) if len(form) == 1 else form
    for place, (entry, part) in enumerate(zip(value, forms, strict=True)):
        check_schema(f"{name}[{place}]", entry, part)


def _check_one_of(name: str, value: Any, forms: tuple[Schema, ...]) -> None:
    """The error is that of the last form, which is the most telling one."""
    if value is None and (None in forms or NoneType in forms):
        return
    *others, last = [f for f in forms if f not in (None, NoneType)]
    for form in others:
        try:
            return check_schema(name, value, form)
        except InputDataError:
            continue
    check_schema(name, value, last)


def _check_plain(name: str, value: Any, kind: type) -> None:
    is_bool = isinstance(value, bool) and kind not in (bool, object)
    if is_bool or not isinstance(value, KINDS[kind]):
        raise InputDataError(f"Got {name}={short_repr(value)}; need {kind.__name__}.")
