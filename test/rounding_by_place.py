"""Whether products round a column by its place, as MKL's do on some AMD processors."""

from functools import cache

import pytest
import torch


@cache
def rounds_by_place() -> bool:
    """Whether equal columns of a product of 512 of them have other bits.

    There the last 8 of 512 columns, what is left of groups of 24, have a kernel of
    their own.
    """
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        a = torch.randn(16, 5, dtype=torch.double, generator=g)
        b = torch.randn(1, 5, dtype=torch.double, generator=g)
        product = a @ b.expand(512, -1).contiguous().mT
        if bool((product != product[:, :1]).any()):
            return True
    return False


needs_products_that_round_alike = pytest.mark.skipif(
    rounds_by_place(), reason="products round columns by their place here"
)
