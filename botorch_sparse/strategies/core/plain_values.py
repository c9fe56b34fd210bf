"""NumPy's numbers as Python's, which alone are read from files and JSON."""

from typing import Any

import numpy as np


def as_python(value: Any) -> Any:
    """A value whose NumPy scalars, in lists and dictionaries, are Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: as_python(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        exact = (int, float)  # most entries, and NumPy's float64 is no exact float
        items = [v if type(v) in exact else as_python(v) for v in value]
        make = getattr(type(value), "_make", type(value))  # that of a named tuple
        return make(items)
    return value
