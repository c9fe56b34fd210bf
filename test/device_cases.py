"""Which cases of a test run on which devices.

All that is computed on the simulated device is computed by the host: what a sweep over
kernels, sizes and seeds would find there one case finds, at 50 us an operation.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import simulated_device
import torch

OTHERS = ["cuda"] * torch.cuda.is_available() + ["sim"] * simulated_device.IS_AVAILABLE
on_the_host = pytest.mark.parametrize("device", ["cpu"], indirect=True)


def sweep(
    names: str, cases: Iterable[Any], elsewhere: Sequence[Any]
) -> pytest.MarkDecorator:
    """All cases on the host, and some on every other device that is present.

    Args:
        names: Arguments of the test, as in `pytest.mark.parametrize`.
        cases: Their values on the host, tuples where there are several arguments.
        elsewhere: Those of the values that are taken on other devices.
    """
    places = [(case, "cpu") for case in cases]
    places += [(case, device) for device in OTHERS for case in elsewhere]
    rows = [(*(c if "," in names else (c,)), device) for c, device in places]
    return pytest.mark.parametrize(f"{names}, device", rows, indirect=["device"])
