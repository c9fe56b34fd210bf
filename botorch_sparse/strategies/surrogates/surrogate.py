"""What a strategy has learned: a Gaussian process, sparse or exact, on any domain."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from botorch_sparse.acquisition.confidence import posterior_mean_norm
from botorch_sparse.inducing import InducingPointSampler, PosteriorVarianceSampler
from botorch_sparse.models.inducing_points import EXACT_SIZE, sample_inducing_points
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.strategies.data.evaluations import FoldedValues
from botorch_sparse.strategies.data.history import History, evaluations_at
from botorch_sparse.strategies.surrogates.box_posterior import BoxPosterior
from botorch_sparse.strategies.surrogates.prior import (
    Prior,
    PriorSource,
    announce_noise,
    announce_scale,
)
from botorch_sparse.strategies.surrogates.table_posterior import (
    ExactTablePosterior,
    NystromTablePosterior,
)

# What is announced once has been, or need not be.
ANNOUNCED = ("is_scale_known", "is_noise_known")

DomainPosterior: TypeAlias = NystromTablePosterior | ExactTablePosterior | BoxPosterior


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A posterior whose inducing set is drawn anew each time it learns; a value.

    Without inducing points yet, from more than one unique point, the first draw is by
    `initial_sampler`; afterwards `sampler` sees the variances of the posterior before
    ([Calandriello2020]_, Algorithm 1, lines 10-15). Where hyperparameters were fitted
    since, these are the variances of the previous inducing set under the new ones.
    Without a sampler all points are inducing points. Where the kernel is inferred,
    which no theorem covers, so it is up to `exact_size` points, and from there on there
    are `max_inducing` of them at most.

    Attributes:
        source: Makes the prior.
        view: The posterior, on its domain.
        sampler: Sampler of inducing points, or None. `PosteriorVarianceSampler` draws
            on the host, which knows the variances.
        initial_sampler: Sampler of the first ones; `BLESSSampler` for a warm start from
            much data.
        exact_size: See above.
        max_inducing: The largest number of inducing points, where the kernel is
            inferred.
        inducing: Numbers of the inducing points in use.
        is_scale_known: Whether the scale of the feedback has been looked at.
        is_noise_known: Whether its repeats have been.
    """

    source: PriorSource
    view: DomainPosterior
    sampler: InducingPointSampler | None
    initial_sampler: InducingPointSampler
    exact_size: int = EXACT_SIZE
    max_inducing: int = EXACT_SIZE
    inducing: tuple[int, ...] = ()
    is_scale_known: bool = False
    is_noise_known: bool = False

    @property
    def pool(self) -> Any:
        """The candidates of a table under the posterior; None on a box."""
        return getattr(self.view, "pool", None)

    @torch.no_grad()
    def information_gain(self, history: History) -> float:
        r"""A bound on `log det(I + K D^-1)` of the first history that was learned.

        This is twice the mutual information in nats. It is
        :math:`\log\det B + \mathrm{tr}((K - Q) D^{-1})`: the logarithm of the
        determinant is concave.
        """
        if (posterior := self.view.posterior) is None:
            return float(getattr(self.pool, "information_gain", 0.0))
        log_det = 2.0 * float(posterior.chol_inner.diagonal().log().sum())
        return max(log_det, 0.0) + self.residual_trace(history)

    @torch.no_grad()
    def residual_trace(self, history: History) -> float:
        """`tr (K - Q) D^-1` of a history that was learned; 0 for an exact posterior.

        An upper bound on its largest eigenvalue. Cost: O(n m^2).
        """
        posterior = self.view.posterior
        if posterior is None:
            return 0.0
        data = evaluations_at(history, history.folded())
        X = self.source.inputs(data.X)
        residual = posterior.residual(X, posterior.features(X))
        return float((residual * data.counts).sum()) / self.view.prior.lam

    @torch.no_grad()
    def mean_norm(self, history: History) -> float:
        """The RKHS norm of the posterior mean of a history that was learned.

        Cost: O(m^2); O(n^3) for the exact posterior, factorized anew.
        """
        posterior = self.view.posterior_of(history)
        return 0.0 if posterior is None else posterior_mean_norm(posterior)

    def learn(
        self,
        history: History,
        generator: torch.Generator,
        lengthscale_factor: float = 1.0,
    ) -> "Surrogate":
        """Fit where that is due, draw the inducing set anew, and condition.

        Args:
            history: The evaluations, all of which are taken into account.
            generator: Source of randomness.
            lengthscale_factor: What multiplies the kernel's lengthscales.

        Returns:
            What is known then; `prior` is another object where it is another prior.
        """
        values, source = history.folded(), self.source
        prior, ranks = self.view.prior, source.ranks
        if ranks.size > 1:
            history.points(values.point)  # all ranks know them from here on
        if source.is_due(prior, history):
            before = prior
            prior = ranks.once_drawing(
                generator, lambda: source.fitted(before, history, generator)
            )
        prior = source.shrunk(prior, lengthscale_factor)
        chosen = self._draw(prior, history, values, generator)
        view = self.view.learned(prior, history, values, chosen)
        inducing = tuple(values.point[chosen].tolist())
        learned = replace(self, view=view, inducing=inducing)
        return learned._with_announcements(history, values)

    def _with_announcements(
        self, history: History, values: FoldedValues
    ) -> "Surrogate":
        """What does not fit the prior is announced, once."""
        prior, source, is_known = self.view.prior, self.source, self.is_scale_known
        if not is_known and not source.awaits_fit(prior):
            X = source.inputs(history.points(values.point))
            k_diag = float(prior.covar_module(X, diag=True).detach().mean())
            is_known = announce_scale(values.Y, prior.lam, k_diag)
        is_noise_known = self.is_noise_known or announce_noise(
            history, values, prior.lam
        )
        return replace(self, is_scale_known=is_known, is_noise_known=is_noise_known)

    def _draw(
        self,
        prior: Prior,
        history: History,
        values: FoldedValues,
        generator: torch.Generator,
    ) -> Tensor:
        """Places of the next inducing points among the unique points; on the host."""
        is_inferred, ranks = self.source.is_inferred, self.source.ranks
        is_small = is_inferred and len(values) <= self.exact_size
        if self.sampler is None or is_small:
            return torch.arange(len(values))
        variance = self._variance_before(prior, history, values)
        fresh = not self.inducing and len(values) > 1
        sampler = self.initial_sampler if fresh else self.sampler
        if type(sampler) is PosteriorVarianceSampler and not is_inferred:
            leverage = variance / (prior.lam / values.counts)
            return ranks.once_drawing(
                generator, lambda: sampler.draw(leverage, generator)
            )
        data = evaluations_at(history, values)
        return ranks.once_drawing(
            generator,
            lambda: sample_inducing_points(
                sampler,
                prior.covar_module,
                self.source.inputs(data.X),
                prior.lam / data.counts,
                generator=generator,
                variance=variance.to(data.X.device),
                cap=self.max_inducing if is_inferred else None,
            ).cpu(),
        )

    @torch.no_grad()
    def _variance_before(
        self, prior: Prior, history: History, values: FoldedValues
    ) -> Tensor:
        """Variances at the unique points with the inducing points there were."""
        if prior is self.view.prior:
            return self.view.variance(history, values.point)
        data = evaluations_at(history, values, values.places(self.inducing))
        X = self.source.inputs(data.X)
        if not self.inducing:
            return prior.covar_module(X, diag=True).cpu()
        blank = NystromPosterior.prior(prior.covar_module, X[data.chosen])
        posterior = blank.condition(X, data.Y, prior.lam / data.counts)
        return posterior.variance(X).cpu()

    def state_dict(self) -> dict[str, Any]:
        """Hyperparameters, the point numbers of the inducing set, what was said."""
        if isinstance(self.view, ExactTablePosterior):
            how: dict[str, Any] = {"num_rebuilt": self.view.num_rebuilt}
        else:
            how = {"inducing": list(self.inducing)}
        said = {name: getattr(self, name) for name in ANNOUNCED}
        return {"prior": self.view.prior.state_dict()} | said | how

    def moved(
        self,
        view: DomainPosterior,
        number: Mapping[int, int],
        history: History,
        num_learned: int,
    ) -> "Surrogate":
        """The same on another table.

        Args:
            view: Of that table, without data.
            number: Numbers of points there by those here.
            history: The evaluations by their numbers there.
            num_learned: How many of them were learned.
        """
        state = self.state_dict()
        if "inducing" in state:
            moved = (number[point] for point in state["inducing"])
            state["inducing"] = list(dict.fromkeys(moved))  # copies may be one row
        return replace(self, view=view).restored(state, history, num_learned)

    def restored(
        self, state: dict[str, Any], history: History, num_learned: int
    ) -> "Surrogate":
        """What a saved run had learned, to the bit, from `state_dict`."""
        said = {name: state[name] for name in ANNOUNCED}
        if num_learned == 0:
            view = self.view.blank(self.source.initial())
            return replace(self, view=view, inducing=(), **said)
        prior = self.source.from_state(state["prior"])
        inducing, view = tuple(state.get("inducing", ())), self.view.blank(prior)
        # The exact posterior: factorized, then appended to.
        for num in sorted({state.get("num_rebuilt", num_learned), num_learned}):
            values = history.folded(num)
            chosen = values.places(inducing)
            view = view.learned(prior, history, values, chosen)
        return replace(self, view=view, inducing=inducing, **said)
