"""S-BPE: batched pure exploration, and elimination of what cannot be the best."""

from botorch_sparse.strategies.sbpe.regression import UncertaintyReduction
from botorch_sparse.strategies.sbpe.strategy import SBPE

__all__ = ["SBPE", "UncertaintyReduction"]
