"""NumPy's numbers as Python's."""

import json
from collections import namedtuple

import numpy as np

from botorch_sparse.strategies.core.plain_values import as_python

Size = namedtuple("Size", ["rows", "share"])


def test_what_holds_numbers_stays_what_it_is() -> None:
    given = {"a": [np.int64(3), 2.5], "b": Size(np.int32(4), np.float64(0.5)), "c": "d"}
    found = as_python(given)
    assert found == given and isinstance(found["b"], Size)
    assert json.dumps(found) == '{"a": [3, 2.5], "b": [4, 0.5], "c": "d"}'
