"""Models: drop-ins for `SingleTaskGP` whose cost does not grow with n^2 or n^3."""

from typing import TYPE_CHECKING

from botorch_sparse.lazy_exports import lazy_exports
from botorch_sparse.models import pathwise  # registers with draw_matheron_paths
from botorch_sparse.models.fantasy import SparseFantasyModel
from botorch_sparse.models.nystrom_prior import NystromPrior
from botorch_sparse.models.sparse_multi_task_gp import SparseMultiTaskGP
from botorch_sparse.models.sparse_single_task_gp import SparseSingleTaskGP

if TYPE_CHECKING:
    from botorch_sparse.models.loo import loo_cv
    from botorch_sparse.models.refit_schedule import RefitSchedule
    from botorch_sparse.models.subset import SubsetSingleTaskGP
    from botorch_sparse.models.summary import ModelCertificate
    from botorch_sparse.models.training_data import training_noise

__all__ = [
    "ModelCertificate",
    "NystromPrior",
    "RefitSchedule",
    "SparseFantasyModel",
    "SparseMultiTaskGP",
    "SparseSingleTaskGP",
    "SubsetSingleTaskGP",
    "loo_cv",
    "pathwise",
    "training_noise",
]

__getattr__, __dir__ = lazy_exports(__name__, __file__)
