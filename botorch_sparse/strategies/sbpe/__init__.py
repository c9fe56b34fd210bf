"""S-BPE: batched pure exploration, and elimination of what cannot be the best."""

from botorch_sparse.strategies.sbpe.sbpe import SBPE
from botorch_sparse.strategies.sbpe.uncertainty_reduction import UncertaintyReduction

__all__ = ["SBPE", "UncertaintyReduction"]
