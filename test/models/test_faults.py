"""Each row of the fault table, and the page that is made of it."""

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from fault_table import FAULTS, PAGE, Fault, page


def tensors(result: Any) -> Iterable[Tensor]:
    """The tensors that a fault that works returned."""
    return (result,) if isinstance(result, Tensor) else result


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.came)
def test_what_happens(fault: Fault, double: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(30, 2, generator=generator, dtype=torch.float64).to(**double)
    Y = (3 * X).sin().sum(-1, keepdim=True)
    if fault.error is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(fault.error, match=f"(?s){fault.match}"):
                fault.run(X, Y)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fault.run(X, Y)
    for values in tensors(result):
        assert values.isfinite().all()
    if fault.warning is not None:
        assert [w.category for w in caught].count(fault.warning) >= 1


def test_at_least_thirty_different() -> None:
    assert len({fault.came for fault in FAULTS}) == len(FAULTS) >= 30


def test_the_page_is_this_table() -> None:
    """Run `python test/models/fault_table.py` after a change of the table."""
    assert PAGE.read_text() == page()
