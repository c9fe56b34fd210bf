"""Linear operators of a sparse posterior: low-rank likelihoods and cheap updates."""

from botorch_sparse.linear_operators.nystrom import NystromLinearOperator
from botorch_sparse.linear_operators.nystrom_added_diag import (
    NystromAddedDiagLinearOperator,
)
from botorch_sparse.linear_operators.posterior_covariance import (
    PosteriorCovarianceLinearOperator,
)
from botorch_sparse.linear_operators.rank_one_updated import (
    RankOneUpdatedLinearOperator,
)
from botorch_sparse.linear_operators.updatable_cholesky import (
    UpdatableCholeskyLinearOperator,
)

__all__ = [
    "NystromAddedDiagLinearOperator",
    "NystromLinearOperator",
    "PosteriorCovarianceLinearOperator",
    "RankOneUpdatedLinearOperator",
    "UpdatableCholeskyLinearOperator",
]
