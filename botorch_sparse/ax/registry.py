"""The generators of this package, as Ax registers generators."""

from enum import unique

from ax.adapter.random import RandomAdapter
from ax.adapter.registry import (
    Cont_X_trans,
    GeneratorRegistryBase,
    GeneratorSetup,
    MBM_X_trans,
)
from ax.adapter.transforms.derelativize import Derelativize

from botorch_sparse.ax.nearest_candidate import NearestCandidate, TableSobolGenerator
from botorch_sparse.ax.sparse_adapter import SparseAdapter
from botorch_sparse.ax.sparse_generator import SparseGenerator
from botorch_sparse.ax.transforms import (
    AsStored,
    OneSidedBilogY,
    ScheduledStandardizeY,
    ScheduledWinsorize,
)
from botorch_sparse.ax.trust_region_generator import TrustRegionGenerator

# As in Ax's `BOTORCH_MODULAR`, with constants that follow the schedule.
Y_TRANSFORMS = [
    AsStored,
    Derelativize,
    ScheduledWinsorize,
    OneSidedBilogY,
    ScheduledStandardizeY,
]

SETUPS = {
    "BoTorchSparse": GeneratorSetup(
        adapter_class=SparseAdapter,
        generator_class=SparseGenerator,
        transforms=[NearestCandidate, *MBM_X_trans, *Y_TRANSFORMS],
        not_saved_generator_kwargs=["candidates"],
    ),
    "TrustRegion": GeneratorSetup(
        adapter_class=SparseAdapter,
        generator_class=TrustRegionGenerator,
        transforms=[*MBM_X_trans, *Y_TRANSFORMS],
    ),
    "TableSobol": GeneratorSetup(
        adapter_class=RandomAdapter,
        generator_class=TableSobolGenerator,
        transforms=[NearestCandidate, *Cont_X_trans],
        not_saved_generator_kwargs=["candidates"],
    ),
}


@unique
class SparseGenerators(GeneratorRegistryBase):
    """Generators for `GeneratorSpec`, as `ax.adapter.registry.Generators`."""

    BOTORCH_SPARSE = "BoTorchSparse"
    TRUST_REGION = "TrustRegion"
    TABLE_SOBOL = "TableSobol"

    @property
    def GENERATOR_KEY_TO_GENERATOR_SETUP(self) -> dict[str, GeneratorSetup]:
        """What belongs to each key."""
        return SETUPS
