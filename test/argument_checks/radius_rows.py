"""Bad inputs of `botorch_sparse.acquisition` and `botorch_sparse.batching`."""

from functools import partial
from typing import Any

import argument_rows as bad
import torch
from argument_rows import BOUNDS, KERNEL, NAN, Row, X, anything, arguments, usual
from botorch.exceptions import BotorchError
from botorch.models import SingleTaskGP

from botorch_sparse import acquisition as a
from botorch_sparse import batching as b
from botorch_sparse import distributed, pools
from botorch_sparse.models import SparseSingleTaskGP

MODEL = SparseSingleTaskGP(X, X[:, :1])
MODELS: list[Any] = [None, 3.0, SingleTaskGP]
BETA = [*bad.NON_NEGATIVE, None, torch.tensor([1.0, -1.0])]
POINTS: list[Any] = [X[:, :1], [[0.0, 0.0]], X[0], X * NAN]
NO_TENSORS: list[Any] = [X.numpy(), X.tolist(), "x", None]
CHOICES: list[Any] = [X[:, :1], X[0], [[0.0, 0.0]]]
NOISE: list[Any] = [torch.tensor(-1.0), torch.tensor(NAN), "2"]
TABLE: list[Any] = [X[0], X[:0], X * NAN, X.long(), X.half(), [[0.0, 1.0]], "x"]
AT_LEAST_ZERO = [-1, NAN, "2"]
RULES: list[Any] = [b.Global, b.Local, b.Product, b.Single, b.UntilHalved]


def bounded(radius: Any, **given: Any) -> partial[Any]:
    """A radius of a norm bound."""
    plain = {"norm_bound": 1.0, "noise_variance": 1e-2, "delta": 0.1}
    return partial(radius, **plain | given)


UCB = a.BatchUpperConfidenceBound(MODEL, 4.0)
ADAPTIVE = partial(b.optimize_adaptive_batch, UCB)

RADII = [
    *[
        row
        for radius in (
            *(a.BBKBRadius, a.ChowdhuryGopalanRadius, a.NormBoundRadius),
            a.SrinivasAgnosticRadius,
        )
        for row in usual(bounded(radius))
    ],
    *usual(bounded(a.BKBRadius), accuracy=bad.PROBABILITY),
    *usual(bounded(a.SBPERadius), num_intervals=[0, NAN, "2"]),
    *usual(bounded(a.SBPEContinuousRadius, dim=2), num_intervals=[0, NAN, "2"]),
    *usual(
        a.UnknownHyperparameters,
        norm_bound=[0, *bad.NON_NEGATIVE],
        growth=[*AT_LEAST_ZERO, 2.0],
        norm_growth=AT_LEAST_ZERO,
        start=bad.WHOLE,
    ),
    *arguments(a.FixedBeta, beta=BETA),
    *usual(partial(a.GSSBORadius, dim=2, delta=0.1), penalty=bad.CHOICE),
    *usual(partial(a.SrinivasCompactRadius, dim=2, delta=0.1)),
    *usual(partial(a.SrinivasFiniteRadius, num_candidates=3, delta=0.1)),
    *arguments(a.GuessAndDouble, radius=[a.FixedBeta(2.0), a.BBKBRadius, 3.0, None]),
    *usual(
        partial(a.RandomizedRadius, radius=a.FixedBeta(2.0)),
        radius=[a.FixedBeta, 3.0, None],
        distribution=bad.CHOICE,
        shift=AT_LEAST_ZERO,
        mean_excess=[0, *AT_LEAST_ZERO],
    ),
    *usual(partial(a.ShiftedExponentialRadius, num_candidates=3)),
    *usual(partial(a.RadiusStatistics, lam=0.1), num_evaluations=bad.NON_NEGATIVE),
    *usual(
        partial(a.SubsetStatistics, lam=0.1, feedback_norm=1.0),
        num_evaluations=bad.NON_NEGATIVE,
    ),
    *arguments(a.ConfidenceGapStopping, tolerance=[*AT_LEAST_ZERO, None]),
    *usual(
        partial(a.discretization_constant, dim=2, lipschitz_constant=1.0),
        lipschitz_constant=bad.POSITIVE,
    ),
    *arguments(partial(a.confidence_gap, width=torch.ones(3)), mean=[3.0, [1.0, 2.0]]),
    *arguments(a.posterior_mean_norm, posterior=[3.0, MODEL]),
    *anything(
        partial(a.model_confidence_gap, MODEL, 4.0),
        says="choices|bounds|inputs",
        choices=CHOICES,
        bounds=bad.BAD_BOUNDS,
    ),
    *arguments(partial(a.model_confidence_gap, MODEL, choices=X), beta=BETA),
    *arguments(partial(a.model_confidence_gap, beta=4.0, choices=X), model=[None, 3.0]),
]
WITH_MODEL = [
    *arguments(partial(a.LowerConfidenceBound, MODEL), beta=BETA),
    *arguments(partial(a.LowerConfidenceBound, beta=4.0), model=MODELS),
    *[
        row
        for kind in (a.BatchUpperConfidenceBound, a.qBatchUpperConfidenceBound)
        for row in (
            *arguments(partial(kind, MODEL), beta=BETA),
            *anything(partial(kind, beta=4.0), says="model", model=MODELS),
            *anything(
                partial(kind, MODEL, 4.0),
                says="points|X_pending",
                X_pending=[POINTS[0], POINTS[1], POINTS[3]],
            ),
        )
    ],
    *[
        row
        for kind in (*(a.ExactRatio, a.LocalRatioBound), a.GlobalLocal)
        for row in (
            *anything(kind, says="model", model=MODELS),
            *anything(partial(kind, MODEL), says="points", X_batch=POINTS),
            *arguments(partial(kind, MODEL, X[:1]), noise=NOISE),
        )
    ],
    *arguments(partial(a.GlobalLocal, MODEL), ratio_threshold=bad.THRESHOLD),
    *arguments(
        partial(a.GlobalLocal, MODEL), says="local_bound", covariance=bad.CHOICE
    ),
    *arguments(
        partial(a.LocalRatioBound, MODEL), says="local_bound", covariance=bad.CHOICE
    ),
]
BOUND_OF_X = a.LocalRatioBound(MODEL)
VALUES = [
    row
    for acqf in (
        UCB,
        a.qBatchUpperConfidenceBound(MODEL, 4.0),
        a.LowerConfidenceBound(MODEL, 4.0),
        BOUND_OF_X,
    )
    for row in arguments(acqf, type(acqf).__name__, X=NO_TENSORS)
]
VALUES += arguments(BOUND_OF_X.add, "LocalRatioBound.add", X=NO_TENSORS)
VALUES += arguments(
    BOUND_OF_X.set_X_pending, "LocalRatioBound.set_X_pending", X_pending=NO_TENSORS[:2]
)
OPTIM = [
    *[row for rule in RULES for row in arguments(rule, ratio_threshold=bad.THRESHOLD)],
    *arguments(b.Local, says="local_bound", covariance=bad.CHOICE),
    *arguments(b.Local, large_enough=bad.WHOLE),
    *arguments(
        partial(b.FixedSize, size=3), size=bad.WHOLE, ratio_threshold=bad.THRESHOLD
    ),
    *arguments(b.rule_of, rule=["bless", 3, b.Local, None]),
    *arguments(partial(b.rule_of, "global"), ratio_threshold=bad.THRESHOLD),
    *arguments(
        partial(b.rule_of, "global-local"), says="local_bound", covariance=bad.CHOICE
    ),
    *arguments(
        partial(pools.CompactRows.from_packed, num_columns=9),
        "CompactRows",
        says="bytes|uint8",
        packed=[X, [[1]], torch.ones(2, dtype=torch.uint8), X.to(torch.uint8)[:, :1]],
    ),
    *arguments(
        partial(pools.CompactRows.from_packed, X.to(torch.uint8)),
        "CompactRows",
        num_columns=bad.WHOLE,
    ),
    *anything(pools.NystromPool, says="candidates|X=", X=TABLE),
    *anything(
        partial(pools.ExactPool, covar_module=KERNEL, noise=0.1),
        says="candidates|X=",
        X=TABLE,
    ),
    *arguments(
        partial(pools.ExactPool, X, covar_module=KERNEL, noise=0.1),
        covar_module=bad.KERNELS,
        noise=bad.POSITIVE,
    ),
    *arguments(distributed.Ranks, rank=[-1, 1, 0.5, "0"], size=[0, -1, 2.5, "1"]),
    *arguments(
        partial(distributed.Shard, ranks=distributed.Ranks(size=2)),
        says="need.* a tile",
        num_rows=[900],
    ),
    *arguments(a.validate_ratio_threshold, ratio_threshold=[0.5, NAN, None, "x"]),
    *arguments(partial(distributed.read_shard, ranks=None), path=[None, 3]),
    *arguments(partial(distributed.read_shard, "x.npy"), ranks=[2, None]),
    *arguments(distributed.own_device, device=["gpu", 3.5, None]),
    *anything(
        partial(ADAPTIVE, b.Local(2.0)),
        says="choices|bounds",
        choices=[*CHOICES, X[:0]],
        bounds=bad.BAD_BOUNDS,
    ),
    *arguments(
        partial(ADAPTIVE, b.Local(2.0), choices=X),
        max_batch_size=bad.WHOLE,
        min_batch_size=bad.WHOLE,
    ),
    *arguments(partial(ADAPTIVE, choices=X), says="rule", termination=[3, b.Local]),
    *arguments(
        partial(ADAPTIVE, a.LocalRatioBound(MODEL), choices=X),
        ratio_threshold=bad.THRESHOLD[:-1],
    ),
    *arguments(
        partial(b.optimize_adaptive_batch, termination=b.Local(2.0), choices=X),
        raises=BotorchError,
        acqf=[None, 3.0, MODEL],
    ),
    *anything(
        partial(b.BoxBatch, UCB, b.Local(2.0)), says="bounds", bounds=bad.BAD_BOUNDS
    ),
    *arguments(partial(b.BoxBatch, rule=None, bounds=BOUNDS), acqf=[None, 3.0]),
    *arguments(partial(b.BoxBatch, UCB, bounds=BOUNDS), rule=["bless", b.Local]),
]
ROWS: list[Row] = [*RADII, *WITH_MODEL, *VALUES, *OPTIM]
