"""How the tests say that a call is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from botorch.exceptions import InputDataError


def refused(match: str, call: Callable[..., Any], *args: Any, **options: Any) -> None:
    """The call raises an InputDataError whose words match."""
    with pytest.raises(InputDataError, match=match):
        call(*args, **options)
