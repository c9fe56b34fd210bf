"""Tables and boxes with several outcomes, and the measure of what was found in them.

A run with several objectives is as good as the hypervolume that its feasible points
dominate; one with a single objective as good as its best feasible value. The
hypervolume's reference point is, on tables, the first quartile of each objective (a
quarter of the rows is worse), and the measure is the share of the whole table's; on
boxes it is BoTorch's, and the measure is absolute. No method is told this point.

References:
    .. [Eriksson2021]
        D. Eriksson and M. Poloczek. Scalable constrained Bayesian optimization.
        AISTATS 2021 (the constraints of ackley20).
    .. [Nugteren2015]
        C. Nugteren and V. Codreanu. CLTune: a generic auto-tuner for OpenCL kernels.
        MCSoC 2015 (the source of sgemm_gpu).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from botorch.test_functions import Ackley, Hartmann, SpeedReducer
from botorch.test_functions.multi_objective import (
    DTLZ2,
    CarSideImpact,
    Penicillin,
    VehicleSafety,
    WeldedBeam,
)
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.paper_problems import architectures, text_columns
from benchmarks.pool_tables import load_pool
from botorch_sparse.strategies import Constraint, Objective
from botorch_sparse.strategies.data.outcomes import Outcome, Outcomes

Values = Callable[[Tensor], Tensor]
QUARTILE = 0.25
LOG_TIMES = 5.55  # the range of sgemm_gpu's log times, in which they are given
LIMITED_ROWS, FEASIBLE_SHARE = 200_000, 0.01


@dataclass(frozen=True, eq=False)
class OutcomeProblem:
    """What is evaluated, what is wanted, and how it is measured.

    Attributes:
        outcomes: The `k` outcomes.
        values: From `n` rows of a table, or from `n x d` points, to `n x k` values
            without noise.
        feedback: From a seed to values as a method is told them.
        bounds: `2 x d` ranges of the features.
        X: `A x d` candidates; None on a box.
        reference: `o` values of the objectives in the sign that is maximized; None for
            one objective.
        unit: The hypervolume that is measured as 1.
    """

    outcomes: Outcomes
    values: Values
    feedback: Callable[[int], Values]
    bounds: Tensor
    X: Tensor | None = None
    reference: Tensor | None = None
    unit: float = 1.0

    def measure(self, Y: Tensor) -> float:
        """The figure of `n x k` values; of one objective infinite if none is feasible.

        A single objective is the first outcome.
        """
        Y = self.outcomes.signed_rows(Y)
        if self.reference is not None:
            return _hypervolume(self.outcomes, Y, self.reference) / self.unit
        found = Y[self.outcomes.violations(Y) <= 0, 0]
        return self.outcomes.signed(float(found.max()) if len(found) else -math.inf)


def _hypervolume(outcomes: Outcomes, Y: Tensor, reference: Tensor) -> float:
    """By a program of its own, which takes a millisecond with four objectives too."""
    import moocore

    F = Y[outcomes.violations(Y) <= 0][:, list(outcomes.objectives)]
    return float(moocore.hypervolume(F.numpy(), ref=reference.numpy(), maximise=True))


def table(
    X: Tensor,
    columns: dict[Outcome, Tensor],
    noisy: Callable[[int], Values] | None = None,
) -> OutcomeProblem:
    """A problem of `A x d` candidates with `A` values of each outcome."""
    outcomes, Y = Outcomes(tuple(columns)), torch.stack([*columns.values()], -1)

    def values(rows: Tensor) -> Tensor:
        return Y[rows]

    reference, unit = None, 1.0
    if len(outcomes.objectives) > 1:
        signed = outcomes.signed_rows(Y)
        objectives = signed[:, list(outcomes.objectives)]
        reference = objectives.quantile(QUARTILE, dim=0)
        unit = _hypervolume(outcomes, signed, reference)
    ranges = torch.stack([X.amin(0), X.amax(0)])
    told = noisy or (lambda _: values)
    return OutcomeProblem(outcomes, values, told, ranges, X, reference, unit)


def box(function: Any, *parts: Outcome, values: Values | None = None) -> OutcomeProblem:
    """A problem of BoTorch's, its slacks the constraints if nothing else is said."""
    num_slacks = getattr(function, "num_constraints", 0)
    parts = parts or (
        *(Objective(f"f{i}", minimize=True) for i in range(function.num_objectives)),
        *(Constraint(f"slack{i}", lower=0.0) for i in range(num_slacks)),
    )

    def own(X: Tensor) -> Tensor:
        Y = function(X).reshape(len(X), -1)
        return torch.cat([Y, function.evaluate_slack(X)], -1) if num_slacks else Y

    values, reference = values or own, None
    if function.num_objectives > 1:
        reference = -torch.as_tensor(function.ref_point, dtype=torch.double)
    bounds = function.bounds.double()
    told = values
    return OutcomeProblem(
        Outcomes(parts), values, lambda _: told, bounds, reference=reference
    )


def nas_bench_macro() -> OutcomeProblem:
    """Accuracy up, floating point operations down; one of three accuracies is told."""
    problem = architectures()
    columns: dict[Outcome, Tensor] = {
        Objective("accuracy"): problem.table.Y,
        Objective("flops", minimize=True): problem.cost,
    }

    def noisy(seed: int) -> Values:
        accuracy = problem.feedback(seed)
        return lambda rows: torch.stack([accuracy(rows), problem.cost[rows]], -1)

    return table((problem.table.X > 0).double(), columns, noisy)


def redoxmers() -> OutcomeProblem:
    """Four substituents of a molecule; three outcomes down."""
    names = ("abs_lam_diff", "ered", "gsol")
    return _one_hot("redoxmers", [Objective(name, minimize=True) for name in names])


def dye_lasers() -> OutcomeProblem:
    """Three fragments of a molecule; two outcomes up, the overlap of spectra down."""
    overlap = Objective("spectral_overlap", minimize=True)
    return _one_hot(
        "dye_lasers", [Objective("peak_score"), overlap, Objective("fluo_rate")]
    )


def _one_hot(name: str, objectives: list[Objective]) -> OutcomeProblem:
    """A table whose columns are names but for its objectives."""
    cells = text_columns(name)
    columns: dict[Outcome, Tensor] = {
        outcome: torch.tensor(
            [float(cell) for cell in cells.pop(outcome.name)]
        ).double()
        for outcome in objectives
    }
    parts = []
    for column in cells.values():
        place = {cell: i for i, cell in enumerate(sorted(set(column)))}
        places = torch.tensor([place[cell] for cell in column])
        parts.append(torch.nn.functional.one_hot(places))
    return table(torch.cat(parts, -1).double(), columns)


def sgemm_gpu() -> OutcomeProblem:
    r"""A matrix product's speed up, an energy of our own making down [Nugteren2015]_.

    The energy is the logarithm of time times power, in units of the range of log times.
    A power is made up of threads, accumulators, local memory and vector widths,

    .. math:: 64 + M_d N_d + M N / 8 + K (M s_A + N s_B) / 4 + 16 (v_M + v_N).

    One of four runs is told; speed and energy are of the same run.
    """
    pool = load_pool("sgemm_gpu")
    X = pool.candidates.X
    M, N, K, M_d, N_d, _, _, _, v_M, v_N = X[:, :10].exp2().unbind(-1)
    s_A, s_B = X[:, -2:].unbind(-1)
    power = 64 + M_d * N_d + M * N / 8 + K * (M * s_A + N * s_B) / 4 + 16 * (v_M + v_N)
    log_power = power.log() / LOG_TIMES
    columns: dict[Outcome, Tensor] = {
        Objective("speed"): pool.table.Y,
        Objective("energy", minimize=True): log_power - pool.table.Y,
    }

    def noisy(seed: int) -> Values:
        run = pool.feedback(seed)

        def told(rows: Tensor) -> Tensor:
            speed = run(rows)
            return torch.stack([speed, log_power[rows] - speed], -1)

        return told

    return table(X, columns, noisy)


def limited(num_rows: int = LIMITED_ROWS) -> OutcomeProblem:
    r"""Sobol points of six features; one row of a hundred keeps to both constraints.

    The objective is minus Hartmann's function (its global maximum 3.32 is not
    feasible); the constraints have equally strict upper limits:

    .. math:: c_1 = \tfrac 1 6 \sum_i \cos(2 \pi x_i + i), \quad
        c_2 = \sum_i (x_i - a_i)^2, \quad a = (0.7, 0.5, 0.3, 0.7, 0.5, 0.3).
    """
    X = SobolEngine(6, scramble=True, seed=0).draw(num_rows, dtype=torch.double)
    phases = torch.arange(6, dtype=torch.double)
    center = torch.tensor([0.7, 0.5, 0.3] * 2, dtype=torch.double)
    C = torch.stack(
        [(2 * math.pi * X + phases).cos().mean(-1), (X - center).square().sum(-1)], -1
    )
    # A row's place in the stricter of both; the limits are at its quantile.
    places = C.argsort(0).argsort(0).amax(-1).sort().values
    place = int(places[max(1, round(FEASIBLE_SHARE * num_rows)) - 1])
    limits = C.sort(0).values[place].tolist()
    columns: dict[Outcome, Tensor] = {
        Objective("value"): -Hartmann()(X),
        Constraint("wave", upper=limits[0]): C[:, 0],
        Constraint("distance", upper=limits[1]): C[:, 1],
    }
    return table(X, columns)


def ackley20() -> OutcomeProblem:
    """Ackley's function within two limits, as in [Eriksson2021]_."""
    function = Ackley(dim=20, bounds=[(-5.0, 10.0)] * 20)

    def values(X: Tensor) -> Tensor:
        return torch.stack([function(X), X.mean(-1), X.norm(dim=-1)], -1)

    limits = Constraint("mean", upper=0.0), Constraint("norm", upper=5.0)
    return box(function, Objective("ackley", minimize=True), *limits, values=values)


TABLES: dict[str, Callable[[], OutcomeProblem]] = {
    "nas_bench_macro": nas_bench_macro,
    "redoxmers": redoxmers,
    "dye_lasers": dye_lasers,
    "sgemm_gpu": sgemm_gpu,
    "limited": limited,
}
BOXES: dict[str, Callable[[], OutcomeProblem]] = {
    "vehicle_safety": lambda: box(VehicleSafety()),
    "car_side_impact": lambda: box(CarSideImpact()),
    "penicillin": lambda: box(Penicillin()),
    "dtlz2": lambda: box(DTLZ2(dim=12)),
    "welded_beam": lambda: box(WeldedBeam()),
    "speed_reducer": lambda: box(SpeedReducer()),
    "ackley20": ackley20,
}


@cache
def load_outcomes(name: str) -> OutcomeProblem:
    """A problem by its name.

    Raises:
        InputDataError: If it is a table that is not here.
    """
    return (TABLES | BOXES)[name]()
