"""Fixtures shared by all tests: every dtype on every device that is present."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

# Tests share the dense formulas of `oracles.py`, whatever pytest's import mode is.
sys.path.insert(0, str(Path(__file__).parent))

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
DTYPES = [torch.float64, torch.float32]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """One device that is present."""
    return torch.device(request.param)


@pytest.fixture
def double(device: torch.device) -> dict[str, Any]:
    """Keyword arguments of a float64 tensor on each device."""
    return {"dtype": torch.float64, "device": device}


@pytest.fixture(params=DTYPES, ids=["float64", "float32"])
def tkwargs(request: pytest.FixtureRequest, device: torch.device) -> dict[str, Any]:
    """Keyword arguments of a tensor for each dtype on each device."""
    return {"dtype": request.param, "device": device}
