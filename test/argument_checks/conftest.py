"""Lets the tests find the rows, which hold no tests of their own."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("matplotlib")

sys.path.append(str(Path(__file__).parent))

collect_ignore_glob = ["*_rows.py"]
