"""Factors and inverses that are updated instead of computed again."""

from botorch_sparse.linear_operators.rank_one_updated import (
    RankOneUpdatedLinearOperator,
)
from botorch_sparse.linear_operators.updatable_cholesky import (
    UpdatableCholeskyLinearOperator,
)

__all__ = [
    "RankOneUpdatedLinearOperator",
    "UpdatableCholeskyLinearOperator",
]
