"""Methods for boxes: ours, and peers as their users run them."""

import math
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any
from unittest.mock import patch

import gpytorch
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.gpytorch import GPyTorchModel
from botorch.optim import optimize_acqf
from botorch.optim.fit import fit_gpytorch_mll_scipy
from botorch.utils.sampling import manual_seed
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.spherical_linear import SphericalLinearKernel, spherical_linear_gp
from botorch_sparse.acquisition import FixedBeta
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.strategies import BBKB, RandomSearch, Strategy, TrustRegionBBKB
from botorch_sparse.strategies.surrogates import prior_fitting
from botorch_sparse.strategies.trust_region import local_surrogate

BATCH_SIZE = 20
Objective = Callable[[Tensor], Tensor]


class Run:
    """What a method was told, and what it took.

    Args:
        objective: From `n x d` points to `n` values, or to `n x k` of k outcomes; it
            may have `discrete_dims` and `cat_dims`, as strategies take them, and
            `true`, whose values are noted in place of noisy ones.
        bounds: `2 x d`.
        total: Evaluations.
        seed: Of the method.
        limit: CPU seconds after which it is broken off.
    """

    def __init__(
        self,
        objective: Objective,
        bounds: Tensor,
        total: int,
        seed: int,
        limit: float = math.inf,
    ) -> None:
        self.objective, self.bounds = objective, bounds.double()
        self.discrete = {
            name: values
            for name in ("discrete_dims", "cat_dims")
            if (values := getattr(objective, name, None)) is not None
        }
        self.total, self.seed, self.limit = total, seed, limit
        self.values: list[Any] = []
        self.seconds: list[float] = []  # after each value
        self._clock = time.process_time()
        self._spent = 0.0

    @property
    def is_over(self) -> bool:
        """Whether there are no evaluations left, or no time."""
        return len(self.values) >= self.total or self._spent > self.limit

    def evaluate(self, X: Tensor) -> Tensor:
        """Values of `n x d` points; the method's clock stands still."""
        self._spent += time.process_time() - self._clock
        with torch.no_grad():
            Y = self.objective(X).double()
            true = getattr(self.objective, "true", None)
            self.values += (Y if true is None else true(X)).tolist()
        self.seconds += [self._spent] * len(Y)
        self._clock = time.process_time()
        return Y


def by_strategy(make: Callable[..., Strategy]) -> Callable[[Run], None]:
    """A method that asks and tells one of ours."""

    def run(run: Run) -> None:
        box = {"bounds": run.bounds, **run.discrete}
        strategy = make(**box, seed=run.seed, minimize=True)
        while not run.is_over:
            batch = strategy.ask(min(BATCH_SIZE, run.total - len(run.values)))
            strategy.tell(batch, run.evaluate(batch.X))

    return run


def by_spherical_region(run: Run) -> None:
    """Ours by the bound, whose region has the spherical linear kernel, not Matern's."""

    def kernel(dim: int, reach: float = 1.0) -> Kernel:
        return SphericalLinearKernel(dim)

    with ExitStack() as stack:
        for module in (local_surrogate, prior_fitting):
            stack.enter_context(patch.object(module, "matern_kernel", kernel))
        by_strategy(trust_region_ucb)(run)


def by_cma(run: Run) -> None:
    """CMA-ES; populations are batches of 20 for all."""
    cma_es(run, run.evaluate, BATCH_SIZE)


def cma_es(run: Run, loss: Callable[[Tensor], Tensor], batch_size: int) -> None:
    """CMA-ES in the unit cube, begun again from a random point where it ends.

    Restarts do not double the population (IPOP).

    Args:
        run: What is told.
        loss: From `n x d` points to `n` values to be minimized; evaluates them.
        batch_size: Points of a population.
    """
    import cma

    g = torch.Generator().manual_seed(run.seed)
    low, high = run.bounds
    attempt = 0
    while not run.is_over:
        start = torch.rand(len(low), generator=g, dtype=torch.float64).numpy()
        options = {
            "bounds": [0, 1],
            "popsize": batch_size,
            "seed": 1000 * attempt + run.seed + 1,
            "verbose": -9,
        }
        search, attempt = cma.CMAEvolutionStrategy(start, 0.3, options), attempt + 1
        while not search.stop() and not run.is_over:
            Z = search.ask()
            X = low + (high - low) * torch.stack([torch.from_numpy(z) for z in Z])
            search.tell(Z, loss(X).tolist())


def by_tpe(run: Run) -> None:
    """Optuna's tree-structured Parzen estimator, batches by constant liar."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    sampler = optuna.samplers.TPESampler(
        seed=run.seed, multivariate=True, constant_liar=True
    )
    study = optuna.create_study(sampler=sampler)
    space: dict[str, optuna.distributions.BaseDistribution] = {
        f"x{i}": optuna.distributions.FloatDistribution(low, high)
        for i, (low, high) in enumerate(run.bounds.mT.tolist())
    }
    for values in run.discrete.values():
        for i, each in values.items():
            choices = [float(value) for value in each]
            space[f"x{i}"] = optuna.distributions.CategoricalDistribution(choices)
    while not run.is_over:
        trials = [study.ask(space) for _ in range(BATCH_SIZE)]
        X = [[trial.params[name] for name in space] for trial in trials]
        Y = run.evaluate(torch.tensor(X, dtype=torch.float64))
        for trial, y in zip(trials, Y.tolist(), strict=True):
            study.tell(trial, y)


def by_turbo(
    fitted: Callable[[Tensor, Tensor], GPyTorchModel],
) -> Callable[[Run], None]:
    """TuRBO-1 as BoTorch's tutorial has it, begun again where it ends.

    Lengths, tolerances, kernel and candidates are the tutorial's; a batch has 20 points
    and not 4. So regions double after ten batches in a row that bring a better value,
    and are halved after ceil(max(4, d) / 20) without.

    Args:
        fitted: From points of the unit cube and standardized values to a model.
    """

    def run(run: Run) -> None:
        low, high = run.bounds
        d, begun = len(low), 0
        with manual_seed(run.seed):
            while not run.is_over:
                begun += 1
                sobol = SobolEngine(d, scramble=True, seed=1000 * run.seed + begun)
                X = sobol.draw(2 * d, dtype=torch.float64)
                Y = -run.evaluate(low + (high - low) * X)
                length, successes, failures = 0.8, 0, 0
                tolerance = math.ceil(max(4.0, d) / BATCH_SIZE)
                while length >= 0.5**7 and not run.is_over:
                    Z = (Y - Y.mean()) / Y.std()
                    with gpytorch.settings.max_cholesky_size(float("inf")):
                        model = fitted(X, Z.unsqueeze(-1))
                        x = around(X[Y.argmax()], length, lengthscale_of(model))
                        choose = MaxPosteriorSampling(model, replacement=False)
                        with torch.no_grad():
                            x = choose(x, num_samples=BATCH_SIZE)
                    y = -run.evaluate(low + (high - low) * x)
                    if y.max() > Y.max() + 1e-3 * Y.max().abs():
                        successes, failures = successes + 1, 0
                    else:
                        successes, failures = 0, failures + 1
                    if successes == 10:
                        length, successes = min(2 * length, 1.6), 0
                    elif failures == tolerance:
                        length, failures = length / 2, 0
                    X, Y = torch.cat([X, x]), torch.cat([Y, y])

    return run


def around(center: Tensor, length: float, lengthscale: Tensor) -> Tensor:
    """Candidates of a trust region of the tutorial."""
    d = len(center)
    weights = lengthscale / lengthscale.mean()
    weights = weights / weights.log().mean().exp()
    low = (center - weights * length / 2).clamp(0.0, 1.0)
    high = (center + weights * length / 2).clamp(0.0, 1.0)
    num = min(5000, max(2000, 200 * d))
    U = SobolEngine(d, scramble=True).draw(num, dtype=torch.float64)
    moves = torch.rand(num, d) <= min(20.0 / d, 1.0)
    none = ~moves.any(-1)
    moves[none, torch.randint(d, (int(none.sum()),))] = True
    return torch.where(moves, low + (high - low) * U, center)


def lengthscale_of(model: GPyTorchModel) -> Tensor:
    """The lengthscales of a scaled kernel."""
    kernel = model.model.covar_module if hasattr(model, "model") else model.covar_module
    return kernel.base_kernel.lengthscale.detach().flatten()


def matern(d: int) -> ScaleKernel:
    """The tutorial's."""
    return ScaleKernel(
        MaternKernel(
            nu=2.5, ard_num_dims=d, lengthscale_constraint=Interval(0.005, 4.0)
        )
    )


def exact_gp(X: Tensor, Y: Tensor) -> GPyTorchModel:
    """`SingleTaskGP` with the tutorial's kernel and noise."""
    likelihood = GaussianLikelihood(noise_constraint=Interval(1e-8, 1e-3))
    model = SingleTaskGP(
        X,
        Y,
        covar_module=matern(X.shape[-1]),
        likelihood=likelihood,
        outcome_transform=None,
    )
    with suppress(ModelFittingError):  # goes on with where the fit began
        fit_gpytorch_mll(ExactMarginalLogLikelihood(likelihood, model))
    return model.eval()


def variational_gp(X: Tensor, Y: Tensor) -> GPyTorchModel:
    """`SingleTaskVariationalGP`, 128 inducing points, at most 100 iterations."""
    model = SingleTaskVariationalGP(
        X,
        Y,
        covar_module=matern(X.shape[-1]),
        inducing_points=min(128, len(X)),
        outcome_transform=None,
    ).to(X)
    elbo = VariationalELBO(model.likelihood, model.model, num_data=len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the iterations are used up
        with suppress(ModelFittingError):
            fit_gpytorch_mll(
                elbo,
                optimizer=fit_gpytorch_mll_scipy,  # Adam from 1,024 points on otherwise
                optimizer_kwargs={"options": {"maxiter": 100}},
            )
    return model.eval()


def by_log_ei(
    model: Callable[[Tensor, Tensor], GPyTorchModel],
) -> Callable[[Run], None]:
    """Expected improvement of a model of all points.

    The points of a batch are searched one after the other by `optimize_acqf`, with the
    settings of Doumont et al. (arXiv:2512.00170), whose batches have one point.

    Args:
        model: From points of the unit cube and values to a model that is not fitted.
    """
    options = {
        "sample_around_best": True,
        "sample_around_best_sigma": 0.1,
        "maxiter": 300,
        "batch_limit": 64,
    }

    def run(run: Run) -> None:
        low, high = run.bounds
        cube = torch.stack([torch.zeros_like(low), torch.ones_like(low)])
        sobol = SobolEngine(len(low), scramble=True, seed=run.seed)
        X = sobol.draw(2 * len(low), dtype=torch.float64)
        with manual_seed(run.seed):
            Y = -run.evaluate(low + (high - low) * X)
            while not run.is_over:
                fitted = model(X, Y.unsqueeze(-1))
                mll = ExactMarginalLogLikelihood(fitted.likelihood, fitted)
                with gpytorch.settings.max_cholesky_size(float("inf")):
                    with suppress(ModelFittingError):
                        fit_gpytorch_mll(mll)
                    x, _ = optimize_acqf(
                        qLogExpectedImprovement(fitted.eval(), Y.max()),
                        bounds=cube,
                        q=min(BATCH_SIZE, run.total - len(Y)),
                        num_restarts=4,
                        raw_samples=512,
                        retry_on_optimization_warning=False,
                        sequential=True,
                        options=options,
                    )
                Y = torch.cat([Y, -run.evaluate(low + (high - low) * x)])
                X = torch.cat([X, x])

    return run


def by_turbo_enn(run: Run) -> None:
    """TuRBO with a model of nearest neighbours (Sweet and Jadhav, arXiv:2506.12818).

    As its package has it, with whole batches of first points: it takes no batch of
    another size. `pip install --no-deps ennbo==0.1.9 faiss-cpu`: later versions need a
    compiler, and it asks for an older NumPy than it needs.
    """
    import numpy as np
    from enn import create_optimizer
    from enn.turbo.config import turbo_enn_config

    num_initial = BATCH_SIZE * math.ceil(2 * run.bounds.shape[-1] / BATCH_SIZE)
    search = create_optimizer(
        bounds=run.bounds.mT.numpy(),
        config=turbo_enn_config(num_init=num_initial),
        rng=np.random.default_rng(run.seed),
    )
    while not run.is_over:
        X = search.ask(BATCH_SIZE)
        search.tell(X, -run.evaluate(torch.from_numpy(X)).numpy())


def bbkb(**given: Any) -> Strategy:
    """The strategy for boxes with a regret bound."""
    return BBKB(**given, radius=FixedBeta(4.0), batch_size=BATCH_SIZE)


def trust_region(**given: Any) -> Strategy:
    """Ours, one region."""
    return TrustRegionBBKB(**given, batch_size=BATCH_SIZE)


def trust_regions(**given: Any) -> Strategy:
    """Ours, five regions."""
    return TrustRegionBBKB(**given, batch_size=BATCH_SIZE, num_regions=5)


def trust_region_repeats(**given: Any) -> Strategy:
    """Ours, whose middle is evaluated again in each batch."""
    return TrustRegionBBKB(**given, batch_size=BATCH_SIZE, repeats=True)


def trust_region_ucb(**given: Any) -> Strategy:
    """Ours by the bound."""
    return TrustRegionBBKB(**given, batch_size=BATCH_SIZE, acquisition="ucb")


def random_search(**given: Any) -> Strategy:
    """The yardstick."""
    return RandomSearch(**given, batch_size=BATCH_SIZE)


# Those that know of features that take some values only.
DISCRETE_METHODS = ("trust-region", "trust-region-5", "random", "tpe")
METHODS: dict[str, Callable[[Run], None]] = {
    "trust-region": by_strategy(trust_region),
    "trust-region-5": by_strategy(trust_regions),
    "trust-region-ucb": by_strategy(trust_region_ucb),
    "trust-region-spherical": by_spherical_region,
    "trust-region-repeats": by_strategy(trust_region_repeats),
    "bbkb": by_strategy(bbkb),
    "random": by_strategy(random_search),
    "turbo-1": by_turbo(exact_gp),
    "svgp-region": by_turbo(variational_gp),
    "cma-es": by_cma,
    "tpe": by_tpe,
    "log-ei": by_log_ei(SingleTaskGP),
    "log-ei-sparse": by_log_ei(SparseSingleTaskGP),
    "log-ei-spherical": by_log_ei(spherical_linear_gp),
    "turbo-enn": by_turbo_enn,
}
