"""Thompson sampling on sparse posteriors."""

from functools import partial
from typing import Any, ClassVar, Unpack

from gpytorch.kernels import Kernel

from botorch_sparse.argument_checks import check_keywords, check_whole
from botorch_sparse.inducing import InducingPointSampler, PosteriorVarianceSampler
from botorch_sparse.pools.sample_paths import require_random_features
from botorch_sparse.strategies.data.domain import FEWEST_INITIAL, Domain
from botorch_sparse.strategies.data.outcomes import Outcomes
from botorch_sparse.strategies.model_strategy import (
    ModelOptions,
    ModelStrategy,
    OneOrEach,
    settings_of,
    surrogate_of,
)
from botorch_sparse.strategies.surrogates.inferred_kernels import few_data_kernel
from botorch_sparse.strategies.surrogates.prior import PosteriorSettings
from botorch_sparse.strategies.surrogates.surrogate import Surrogate

DEFAULT_BATCH_SIZE = 20


class ThompsonSampling(ModelStrategy[Surrogate]):
    r"""Maximizers of sample paths of the sparse posterior [VakiliMPD2021]_.

    Each point of a batch maximizes a function drawn from the posterior, so that points
    differ by what is not known yet. On a table a batch takes one pass over all
    candidates; on a continuous domain all paths are maximized by one call of
    `optimize_acqf`. Paths are drawn by Matheron's rule from random Fourier features of
    the prior where the kernel is a `RBFKernel` or a `MaternKernel`, in a `ScaleKernel`
    or not. With a table any other positive definite kernel will do: what inducing
    points explain is drawn by their weights, and what they leave is drawn jointly where
    a path may be largest; see `botorch_sparse.pools.path_maximizers`.

    Use it to find the best candidate with batches of a size of your own; `BBKB` where
    cumulative regret counts, for which its batches carry a guarantee. The regret of
    [VakiliMPD2021]_ (Theorem 2) equals exact Thompson sampling's up to constants, for
    paths with the variance inflated and one point at a time; neither is done here.

    **Several outcomes** (`outcomes`) have a posterior each, with its own
    hyperparameters and inducing points. For each point of a batch a path of each
    outcome is drawn, and one random hypervolume scalarization of the objectives
    [ZhangGolovin2020]_. With several objectives three of four points, drawn at random,
    go by the posterior means in place of paths. A candidate whose values keep to all
    constraints is better than one whose values do not, and of two that do not the one
    with the smaller violation is better [Eriksson2021]_. See
    `botorch_sparse.strategies.data.preference`, and `History.pareto`,
    `History.hypervolume` and `History.reference_point` for what came of it. On a box
    violations are a penalty during the search. The kernel that is inferred is Matern's
    with the narrower prior of `few_data_kernel`, but with `related` and of molecules,
    where it is the same as for one outcome. On a table `num_initial` is 5, rounded up
    to whole batches.

    **Costs.** With the `cost` of each candidate of a table, each path chooses what it
    gains for its cost; with a `budget` costs count less and less as it is spent, and
    nothing is proposed that can't be paid. See `botorch_sparse.strategies.data.costs`
    for the rule. The rows at the start are drawn whatever they cost. An evaluation
    costs when it is asked for, and nothing any more if it fails or is withdrawn.

    Cost, with `A` candidates, `n` evaluations, `m` inducing points and F = 512 random
    features, for each outcome: O(n m^2) and O(A d (m + F)) for each batch, O(A (m + F))
    for each point of it; memory O(A d). For kernels without these features F = 0, and
    there are O(A m^2) for a batch. On a box F = 1,024, and a step of the search takes,
    for `q` points with `r` restarts each, O(q r d (m + F)) time and O(q r (m + F))
    memory for each outcome; `optimizer_options={"options": {"batch_limit": 50}}` has
    fewer restarts at a time.

    Args:
        candidates: `A x d` points to choose from; or give `bounds`.
        covar_module: The kernel, or None to infer it; see `ModelStrategy`.
        lam: The noise variance of an evaluation; see `ModelStrategy`.
        oversampling: See `PosteriorVarianceSampler`.
        batch_size: Points in each batch.
        sampler: A sampler of inducing points of one's own in place of
            `PosteriorVarianceSampler(oversampling)`.
        initial_sampler: See `Surrogate`.
        cost: `A` positive costs of the candidates of a table, in any unit.
        budget: What all evaluations may cost together, in that unit; None for no limit.
        **options: Keyword arguments of `ModelStrategy`, such as `seed`, `unique`,
            `bounds` and `refit`.

    Example:
        >>> import torch
        >>> X = torch.linspace(0, 1, 100, dtype=torch.float64).unsqueeze(-1)
        >>> strategy = ThompsonSampling(X, unique=True, minimize=True)
        >>> history = strategy.run(
        ...     lambda X: (X - 0.3).square(), 20, progress=False
        ... )
        >>> len(history), history.num_unique
        (20, 20)

        >>> from botorch_sparse.strategies import Constraint, Objective
        >>> outcomes = [Objective("yield"), Constraint("heat", upper=0.5)]
        >>> strategy = ThompsonSampling(X, outcomes=outcomes, batch_size=5)
        >>> for _ in range(4):
        ...     batch = strategy.ask()
        ...     strategy.tell(batch, torch.cat([batch.X.sin(), batch.X], dim=-1))
        >>> strategy.history.best().is_feasible
        True
    """

    takes_several_outcomes: ClassVar[bool] = True

    def __init__(
        self,
        candidates: Any = None,
        covar_module: OneOrEach[Kernel] = None,
        lam: OneOrEach[float] = None,
        oversampling: float = 2.0,
        batch_size: int = DEFAULT_BATCH_SIZE,
        *,
        sampler: InducingPointSampler | None = None,
        initial_sampler: InducingPointSampler | None = None,
        cost: Any = None,
        budget: float | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        check_keywords(options, ModelOptions.__annotations__, type(self))
        if (outcomes := options.get("outcomes")) is not None:
            wanted = Outcomes.of(outcomes, minimize=options.get("minimize", False))
            options["outcomes"] = wanted.parts
            is_inferred = candidates is not None and covar_module is None
            if is_inferred and len(wanted) > 1 and options.get("num_initial") is None:
                options["num_initial"] = FEWEST_INITIAL
        super().__init__(
            candidates,
            covar_module,
            lam,
            partial(
                self._surrogate_of,
                sampler=sampler or PosteriorVarianceSampler(oversampling),
                initial_sampler=initial_sampler,
            ),
            cost=cost,
            budget=budget,
            **options,
        )
        for kernel, _ in settings_of(covar_module, lam, len(self.record.outcomes)):
            if kernel is not None and self.box is not None:
                require_random_features(kernel)
        check_whole("batch_size", batch_size)
        self.batch_size = batch_size

    def _surrogate_of(
        self, domain: Domain, settings: PosteriorSettings, **samplers: Any
    ) -> Surrogate:
        """The surrogate of one outcome, with another kernel for several.

        A fit with BoTorch's priors is too sure of itself far from few data, and points
        that are best by several outcomes at once are there.
        """
        kernel = few_data_kernel if len(self.record.outcomes) > 1 else None
        return surrogate_of(
            domain, settings, embeds=False, inferred_kernel=kernel, **samplers
        )

    def _select_by_model(self, limit: int) -> list[int]:
        return self.surrogate.maximizers(
            limit,
            self._selectable(),
            self.record,
            self.generator,
            price=None if self.costs is None else self.costs.price(self._paid()),
        )

    def _config(self) -> dict[str, Any]:
        return super()._config() | {"batch_size": self.batch_size}
