r"""Confidence radii: how far the function may lie from the posterior mean.

Every radius gives four numbers for the same `RadiusStatistics`: `multiplier`, the
factor of the Bayesian standard deviation :math:`\sigma`; `botorch_beta`, its square;
`offset`, what is added in units of Y whatever the variance; and `paper_value`, the
number that the paper prints (for [Calandriello2019]_ and [Calandriello2020]_ it
multiplies :math:`\sigma / \sqrt\lambda`). All are Python floats and cost O(1); numbers
outside their range raise an `InputDataError`.

| radius | function | posterior |
|---|---|---|
| `BBKBRadius` | norm bound | Nystrom, adaptive inducing points and batches; exact |
| `BKBRadius` | norm bound | Nystrom, adaptive inducing points, one at a time; exact |
| `ChowdhuryGopalanRadius` | norm bound | exact |
| `SrinivasAgnosticRadius` | norm bound, bounded noise | exact |
| `SrinivasFiniteRadius` | drawn from the prior, finite domain | exact |
| `SrinivasCompactRadius` | drawn from the prior, compact domain | exact |
| `SBPERadius` | norm bound, finite domain | any Nystrom, points chosen blindly |
| `SBPEContinuousRadius` | norm bound, compact domain | any Nystrom, points blind |
| `GSSBORadius` | drawn from the prior, compact domain | near the exact one |
| `UnknownHyperparameters` | norm and lengthscales unknown | as `BBKBRadius` |
| `FixedBeta`, `RandomizedRadius`, `ShiftedExponentialRadius` | for choosing points | |

`GuessAndDouble` wraps one whose norm bound is unknown.

Example:
    >>> import torch
    >>> radius = BBKBRadius(norm_bound=1.0, noise_variance=0.04, delta=0.1)
    >>> statistics = RadiusStatistics(lam=0.04, ratio_threshold=2.0)
    >>> statistics = statistics.add_batch(torch.tensor([25.0, 25.0]))  # var / lam
    >>> round(radius.multiplier(statistics), 4)
    4.916
    >>> FixedBeta(4.0).multiplier(statistics)
    2.0
"""

from typing import TYPE_CHECKING

from botorch_sparse.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from botorch_sparse.acquisition.confidence.bbkb_radius import BBKBRadius
    from botorch_sparse.acquisition.confidence.bkb_radius import BKBRadius
    from botorch_sparse.acquisition.confidence.chowdhury_gopalan_radius import (
        ChowdhuryGopalanRadius,
    )
    from botorch_sparse.acquisition.confidence.gssbo_radius import (
        GSSBORadius,
        SubsetStatistics,
    )
    from botorch_sparse.acquisition.confidence.guess_and_double import (
        GuessAndDouble,
        posterior_mean_norm,
    )
    from botorch_sparse.acquisition.confidence.radius import (
        ConfidenceRadius,
        Constants,
        FixedBeta,
        NormBoundRadius,
        RadiusStatistics,
    )
    from botorch_sparse.acquisition.confidence.randomized_radius import (
        RandomizedRadius,
        ShiftedExponentialRadius,
    )
    from botorch_sparse.acquisition.confidence.sbpe_radius import (
        SBPEContinuousRadius,
        SBPERadius,
        discretization_constant,
    )
    from botorch_sparse.acquisition.confidence.srinivas_radius import (
        SrinivasAgnosticRadius,
        SrinivasCompactRadius,
        SrinivasFiniteRadius,
    )
    from botorch_sparse.acquisition.confidence.unknown_hyperparameters import (
        UnknownHyperparameters,
    )

__all__ = [
    "BBKBRadius",
    "BKBRadius",
    "ChowdhuryGopalanRadius",
    "ConfidenceRadius",
    "Constants",
    "FixedBeta",
    "GSSBORadius",
    "GuessAndDouble",
    "NormBoundRadius",
    "RadiusStatistics",
    "RandomizedRadius",
    "SBPEContinuousRadius",
    "SBPERadius",
    "ShiftedExponentialRadius",
    "SrinivasAgnosticRadius",
    "SrinivasCompactRadius",
    "SrinivasFiniteRadius",
    "SubsetStatistics",
    "UnknownHyperparameters",
    "discretization_constant",
    "posterior_mean_norm",
]

__getattr__, __dir__ = lazy_exports(__name__, __file__)
