"""The factor of `B`, and what becomes of a matrix that has none."""

from typing import Any

import pytest
import torch

from botorch_sparse.posteriors.inner_factor import inner_cholesky


def test_elements_without_a_factor(double: dict[str, Any]) -> None:
    """An error on the host; on a device NaN, in that element alone."""
    good = torch.tensor([[4.0, 2.0], [2.0, 5.0]], **double)
    both = torch.stack([good, torch.diag(good.new_tensor([1.0, -1.0]))])
    torch.testing.assert_close(inner_cholesky(good) @ inner_cholesky(good).mT, good)
    if good.is_cpu:
        with pytest.raises(torch.linalg.LinAlgError):
            inner_cholesky(both)
        return
    L = inner_cholesky(both)
    torch.testing.assert_close(L[0], inner_cholesky(good))
    assert L[1].isnan().all()
