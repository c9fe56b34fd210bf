"""The folder in which `suggest` is called."""

from pathlib import Path
from typing import Any

import pytest
from laboratory import Laboratory


@pytest.fixture
def lab(tmp_path: Path, capfdbinary: Any) -> Laboratory:
    return Laboratory(tmp_path, capfdbinary)
