"""Methods for several outcomes: ours, and peers as their users run them.

Batches have 10 points. Peers on tables begin with 20 random rows, and evaluate a row at
most once; ours begin as they do by themselves.

References:
    .. [Ament2023]
        S. Ament, S. Daulton, D. Eriksson, M. Balandat and E. Bakshy. Unexpected
        improvements to expected improvement for Bayesian optimization. NeurIPS 2023.
    .. [Deb2002]
        K. Deb, A. Pratap, S. Agarwal and T. Meyarivan. A fast and elitist
        multiobjective genetic algorithm: NSGA-II. IEEE Trans. Evol. Comput. 6, 2002.
    .. [Eriksson2021]
        D. Eriksson and M. Poloczek. Scalable constrained Bayesian optimization.
        AISTATS 2021.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import gpytorch
import numpy as np
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    GenericMCObjective,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.multi_objective import (
    IdentityMCMultiOutputObjective,
    qLogNoisyExpectedHypervolumeImprovement,
)
from botorch.acquisition.multi_objective.parego import qLogNParEGO
from botorch.generation.sampling import ConstrainedMaxPosteriorSampling
from botorch.models import ModelListGP
from botorch.optim import optimize_acqf_discrete
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from botorch.utils.sampling import manual_seed
from botorch.utils.transforms import standardize
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks import box_methods
from benchmarks.outcome_problems import OutcomeProblem
from benchmarks.pool_gps import CHUNK, FIT_STEPS, SCREENED_ROWS, WarmGP, rows_of
from benchmarks.pool_tables import Proposer, random_rows, unit
from botorch_sparse.strategies import (
    BBKB,
    ExpectedImprovement,
    RandomSearch,
    Strategy,
    ThompsonSampling,
    TrustRegionBBKB,
)
from botorch_sparse.strategies.data import preference
from botorch_sparse.strategies.data.outcomes import Outcomes
from botorch_sparse.strategies.data.preference import feasible_front

BATCH_SIZE = 10
FIRST_ROWS = 20
MC_SAMPLES = 64
NUM_TREES = 100
POPULATION = 50


class Run(box_methods.Run):
    """What a method was told; points are rows of a table, or points of a box.

    Args:
        problem: What it evaluates.
    """

    def __init__(
        self, problem: OutcomeProblem, total: int, seed: int, limit: float = math.inf
    ) -> None:
        super().__init__(problem.feedback(seed), problem.bounds, total, seed, limit)
        self.problem = problem
        self.points: list[Tensor] = []

    @property
    def outcomes(self) -> Outcomes:
        """What is wanted."""
        return self.problem.outcomes

    @property
    def batch_size(self) -> int:
        """Of the next batch: as many as the others, or what is left."""
        return min(BATCH_SIZE, self.total - len(self.values))

    def evaluate(self, X: Tensor) -> Tensor:
        """Values of `n` rows or points, `n x k` in the users' signs."""
        self.points.append(X)
        return super().evaluate(X)

    def signed(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Values with objectives maximized, and `n` total violations."""
        Y = self.outcomes.signed_rows(self.evaluate(X))
        return Y, self.outcomes.violations(Y)


def by_strategy(make: Callable[..., Strategy]) -> Callable[[Run], None]:
    """A method that asks and tells one of ours."""

    def method(run: Run) -> None:
        X = run.problem.X
        domain = {"bounds": run.bounds} if X is None else {"candidates": X}
        strategy = make(**domain, outcomes=run.outcomes.parts, seed=run.seed)
        while not run.is_over:
            batch = strategy.ask(run.batch_size)
            points = batch.X if batch.indices is None else batch.indices
            strategy.tell(batch, run.evaluate(points))

    return method


def random_search(**given: Any) -> Strategy:
    """Uniform choice: each row once, or Sobol points."""
    options = {"unique": True} if "candidates" in given else {}
    return RandomSearch(**given, **options, batch_size=BATCH_SIZE)


def thompson(**given: Any) -> Strategy:
    """`ThompsonSampling` as it is."""
    return ThompsonSampling(**given, batch_size=BATCH_SIZE)


def improvement(**given: Any) -> Strategy:
    """`ExpectedImprovement` as it is."""
    return ExpectedImprovement(**given, batch_size=BATCH_SIZE)


def bbkb(**given: Any) -> Strategy:
    """`BBKB` in batches of a size, each row at most once."""
    return BBKB(**given, batch_size=BATCH_SIZE)


def trust_region(num_regions: int, **given: Any) -> Strategy:
    """`TrustRegionBBKB` as it is but for the number of regions."""
    return TrustRegionBBKB(**given, num_regions=num_regions, batch_size=BATCH_SIZE)


def by_rows(make: Callable[[Run], Proposer]) -> Callable[[Run], None]:
    """A peer on tables, which is given `n x k` values with objectives maximized."""

    def method(run: Run) -> None:
        assert run.problem.X is not None
        free = torch.ones(len(run.problem.X), dtype=torch.bool)
        new = random_rows(free, FIRST_ROWS, torch.Generator().manual_seed(run.seed))
        rows, Y = new[:0], torch.empty(0, len(run.outcomes), dtype=torch.double)
        with manual_seed(run.seed):
            propose = make(run)
            while not run.is_over:
                free[new] = False
                rows, Y = torch.cat([rows, new]), torch.cat([Y, run.signed(new)[0]])
                if not run.is_over:
                    new = propose(rows, Y, free, run.batch_size)

    return method


def exact_gps(acquisitions: Callable[..., list[AcquisitionFunction]]) -> Any:
    """Exact GPs with BoTorch's defaults, one for each outcome, and an acquisition.

    It is evaluated at all free rows for each point of a batch; beyond `SCREENED_ROWS`
    at so many random ones, new for each batch.

    Args:
        acquisitions: From outcomes, model, `n x d` inputs, `n x k` values and a number
            of points to the functions that are maximized one after the other, for as
            many points each.
    """

    def make(run: Run) -> Proposer:
        assert run.problem.X is not None
        X = unit(run.problem.X)
        gps = [WarmGP(FIT_STEPS) for _ in run.outcomes.parts]
        generator = torch.Generator().manual_seed(run.seed)

        def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
            fitted = [gp.fit(X[rows], y) for gp, y in zip(gps, Y.mT, strict=True)]
            model = ModelListGP(*fitted)
            left = random_rows(free, SCREENED_ROWS, generator)
            chosen = left[:0]
            functions = acquisitions(run.outcomes, model, X[rows], Y, q)
            for function in functions:
                if len(chosen):
                    function.set_X_pending(X[chosen])
                points, _ = optimize_acqf_discrete(
                    function, q // len(functions), X[left], max_batch_size=CHUNK
                )
                new = rows_of(points, X, left)
                chosen, left = torch.cat([chosen, new]), left[~torch.isin(left, new)]
            return chosen

        return propose

    return by_rows(make)


def qlognehvi(
    outcomes: Outcomes, model: ModelListGP, X: Tensor, Y: Tensor, q: int
) -> list[AcquisitionFunction]:
    """Noisy hypervolume improvement [Ament2023]_; noisy improvement of one objective.

    Its reference point is BoTorch's `infer_reference_point` of the feasible front, or
    of the whole front where nothing is feasible.
    """
    columns = list(outcomes.objectives)
    given = {"sampler": _sampler(), "constraints": limits_of(outcomes)}
    if len(columns) == 1:
        objective = GenericMCObjective(lambda Y, X=None: Y[..., columns[0]])
        return [qLogNoisyExpectedImprovement(model, X, objective=objective, **given)]
    feasible = feasible_front(outcomes, Y)
    front = Y[feasible] if len(feasible) else Y[is_non_dominated(Y[:, columns])]
    return [
        qLogNoisyExpectedHypervolumeImprovement(
            model,
            infer_reference_point(front[:, columns]),
            X,
            objective=IdentityMCMultiOutputObjective(columns, len(outcomes)),
            prune_baseline=True,
            **given,
        )
    ]


def qlognparego(
    outcomes: Outcomes, model: ModelListGP, X: Tensor, Y: Tensor, q: int
) -> list[AcquisitionFunction]:
    """Noisy improvement of random Chebyshev scalarizations, one for each point."""
    objective = IdentityMCMultiOutputObjective(list(outcomes.objectives), len(outcomes))
    given = {"sampler": _sampler(), "constraints": limits_of(outcomes)}
    return [
        qLogNParEGO(model, X, objective=objective, prune_baseline=True, **given)
        for _ in range(q)
    ]


def _sampler() -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(torch.Size([MC_SAMPLES]))


def limits_of(outcomes: Outcomes) -> list[Callable[[Tensor], Tensor]] | None:
    """The limits as BoTorch has them: negative where a value is feasible."""

    def below(Y: Tensor, column: int, limit: float) -> Tensor:
        return Y[..., column] - limit

    def above(Y: Tensor, column: int, limit: float) -> Tensor:
        return limit - Y[..., column]

    found = []
    for column, (low, high) in zip(
        outcomes.constraints, outcomes.limits.mT.tolist(), strict=True
    ):
        for side, limit in ((above, low), (below, high)):
            if math.isfinite(limit):
                found.append(partial(side, column=column, limit=limit))
    return found or None


def forest(run: Run) -> Proposer:
    """Rows in the order of non-dominated sorting of a random forest's means.

    Feasible means come first, then those of the smallest violation in standard
    deviations of what was told; rows of one front come in random order.
    """
    from sklearn.ensemble import RandomForestRegressor

    assert run.problem.X is not None
    X = run.problem.X.numpy().astype(np.float32)
    outcomes = run.outcomes

    def propose(rows: Tensor, Y: Tensor, free: Tensor, q: int) -> Tensor:
        trees = RandomForestRegressor(NUM_TREES, random_state=run.seed + len(rows))
        trees.fit(X[rows.numpy()], Y.numpy())
        left = free.nonzero().squeeze(-1)
        left = left[torch.randperm(len(left))]
        means = torch.from_numpy(trees.predict(X[left.numpy()]))
        spread = Y[:, list(outcomes.constraints)].std(0).clamp_min(1e-12)
        violation = outcomes.violations(means, spread)
        F, is_left = means[:, list(outcomes.objectives)], violation <= 0
        chosen: list[int] = []
        while len(chosen) < q and bool(is_left.any()):
            places = is_left.nonzero().squeeze(-1)
            front = places[is_non_dominated(F[places])][: q - len(chosen)]
            is_left[front] = False
            chosen += front.tolist()
        nearest = violation.where(violation > 0, torch.inf).argsort()
        chosen += nearest[: q - len(chosen)].tolist()
        return left[chosen]

    return propose


def nsga2(run: Run) -> None:
    """NSGA-II [Deb2002]_ of pymoo, a population of 50 and 10 new points at a time."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.evaluator import Evaluator
    from pymoo.core.problem import Problem
    from pymoo.core.termination import NoTermination
    from pymoo.problems.static import StaticProblem

    columns, (low, high) = list(run.outcomes.objectives), run.bounds.numpy()
    problem = Problem(
        n_var=len(low),
        n_obj=len(columns),
        n_ieq_constr=int(bool(run.outcomes.constraints)),
        xl=low,
        xu=high,
    )
    search = NSGA2(pop_size=POPULATION, n_offsprings=BATCH_SIZE)
    search.setup(problem, termination=NoTermination(), seed=run.seed, verbose=False)
    while not run.is_over:
        new = search.ask()
        Y, violation = run.signed(torch.from_numpy(new.get("X").astype(float)))
        told = {"F": -Y[:, columns].numpy()}
        if run.outcomes.constraints:
            told["G"] = violation.unsqueeze(-1).numpy()
        Evaluator().eval(StaticProblem(problem, **told), new)
        search.tell(infills=new)


def cma_es(run: Run) -> None:
    """CMA-ES with Deb's penalty.

    A point that is not feasible is worse than all others so far, by its violation.
    """
    worst = 0.0

    def loss(X: Tensor) -> Tensor:
        nonlocal worst
        Y, violation = run.signed(X)
        values = -Y[:, run.outcomes.objectives[0]]
        worst = max([worst, *values[violation <= 0].tolist()])
        return torch.where(violation > 0, worst + violation, values)

    box_methods.cma_es(run, loss, BATCH_SIZE)


def scbo(run: Run) -> None:
    """SCBO [Eriksson2021]_ as BoTorch's tutorial has it, begun again where it ends.

    One exact GP for the objective, one for each limit in units of its standard
    deviation, and one trust region.
    """
    (low, high), d, begun = run.bounds, run.bounds.shape[-1], 0
    column, limits = run.outcomes.objectives[0], limits_of(run.outcomes) or []
    with manual_seed(run.seed):
        while not run.is_over:
            begun += 1
            sobol = SobolEngine(d, scramble=True, seed=1000 * run.seed + begun)
            X = sobol.draw(2 * d, dtype=torch.double)
            Y, violation = run.signed(low + (high - low) * X)
            length, successes, failures = 0.8, 0, 0
            tolerance = math.ceil(max(4.0, d) / BATCH_SIZE)
            while length >= 0.5**7 and not run.is_over:
                best = best_place(Y[:, column], violation)
                Z = standardize(Y[:, [column]])
                C = [limit(Y).unsqueeze(-1) for limit in limits]
                with gpytorch.settings.max_cholesky_size(float("inf")):
                    choose = ConstrainedMaxPosteriorSampling(
                        box_methods.exact_gp(X, Z),
                        ModelListGP(*(box_methods.exact_gp(X, c / c.std()) for c in C)),
                        replacement=False,
                    )
                    near = box_methods.around(X[best], length, torch.ones(d))
                    with torch.no_grad():
                        x = choose(near, num_samples=BATCH_SIZE)
                y, over = run.signed(low + (high - low) * x)
                new = best_place(y[:, column], over)
                if over[new] > 0 or violation[best] > 0:
                    is_better = bool(over[new] < violation[best])
                else:
                    old = Y[best, column]
                    is_better = bool(y[new, column] > old + 1e-3 * old.abs())
                successes = successes + 1 if is_better else 0
                failures = 0 if is_better else failures + 1
                if successes == 10:
                    length, successes = min(2 * length, 1.6), 0
                elif failures == tolerance:
                    length, failures = length / 2, 0
                X, Y = torch.cat([X, x]), torch.cat([Y, y])
                violation = torch.cat([violation, over])


def best_place(values: Tensor, violation: Tensor) -> int:
    """The place of the largest feasible value, or of the smallest violation."""
    if bool((violation <= 0).any()):
        return int(values.where(violation <= 0, -torch.inf).argmax())
    return int(violation.argmin())


@dataclass(frozen=True)
class Method:
    """A method, and the problems that it is for.

    Attributes:
        run: What it does.
        is_ours: Whether it is compared with the others.
        on: Whether it takes tables and boxes.
        objectives: Whether it takes one objective, and several.
    """

    run: Callable[[Run], None]
    is_ours: bool = False
    on: tuple[str, ...] = ("table", "box")
    objectives: tuple[str, ...] = ("one", "several")

    def suits(self, problem: OutcomeProblem) -> bool:
        """Whether the problem is one of those."""
        kind = "box" if problem.X is None else "table"
        number = "one" if problem.reference is None else "several"
        return kind in self.on and number in self.objectives


def first_quantile(outcomes: Outcomes, Y: Tensor, q: float, num: int) -> Tensor:
    """A quantile of each objective among the first so many points."""
    return Y[:num, list(outcomes.objectives)].quantile(q, dim=0)


def front_point(outcomes: Outcomes, Y: Tensor) -> Tensor:
    """BoTorch's `infer_reference_point` of the front so far."""
    F = Y[:, list(outcomes.objectives)]
    return infer_reference_point(F[is_non_dominated(F)])


def with_reference(rule: Callable[[Outcomes, Tensor], Tensor]) -> Method:
    """Thompson sampling whose scalarizations start from another point."""

    def low(outcomes: Outcomes, Y: Tensor, quantile: float) -> Tensor:
        return rule(outcomes, Y)

    def run(run: Run) -> None:
        with mock.patch.object(preference, "first_quantile", low):
            by_strategy(thompson)(run)

    return Method(run, on=TABLE, objectives=SEVERAL)


TABLE, BOX, ONE, SEVERAL = ("table",), ("box",), ("one",), ("several",)
METHODS = {
    "thompson": Method(by_strategy(thompson), is_ours=True),
    "improvement": Method(by_strategy(improvement), is_ours=True, on=TABLE),
    "bbkb": Method(by_strategy(bbkb), is_ours=True, on=TABLE),
    **{
        name: Method(by_strategy(partial(trust_region, num)), is_ours=True, on=BOX)
        for name, num in {"trust-region": 1, "trust-region-5": 5}.items()
    },
    "random": Method(by_strategy(random_search)),
    "forest": Method(by_rows(forest), on=TABLE),
    "qlognehvi": Method(exact_gps(qlognehvi), on=TABLE),
    "qlognparego": Method(exact_gps(qlognparego), on=TABLE, objectives=SEVERAL),
    "nsga2": Method(nsga2, on=BOX),
    "scbo": Method(scbo, on=BOX, objectives=ONE),
    "cma-es": Method(cma_es, on=BOX, objectives=ONE),
}
REFERENCE_POINTS = {
    "thompson": METHODS["thompson"],
    **{
        name: with_reference(partial(first_quantile, q=q, num=num))
        for name, q, num in (
            ("minimum of the first 20", 0.0, 20),
            ("worst tenth of the first 20", 0.1, 20),
            ("quartile of the first 20", 0.25, 20),
            ("median of the first 20", 0.5, 20),
            ("quartile so far", 0.25, 1_000_000),
        )
    },
    "front so far": with_reference(front_point),
}
