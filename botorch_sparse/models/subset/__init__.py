"""An exact GP on chosen rows: the model of GSSBO [Wei2025]_."""

from botorch_sparse.models.subset.subset_single_task_gp import SubsetSingleTaskGP

__all__ = ["SubsetSingleTaskGP"]
