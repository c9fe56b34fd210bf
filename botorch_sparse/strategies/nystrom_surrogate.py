"""The sparse posterior that strategies on tables learn with."""

from typing import Any

import torch
from botorch.exceptions import InputDataError
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import posterior_mean_norm
from botorch_sparse.inducing import (
    InducingPointSampler,
    PosteriorVarianceSampler,
    RecursiveRLSSampler,
)
from botorch_sparse.models.inducing_points import EXACT_SIZE
from botorch_sparse.models.sampling import sample_inducing_points
from botorch_sparse.optim.path_maximizers import path_maximizers
from botorch_sparse.optim.pool import MAX_MEMORY, NystromPool
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.chosen_inducing import posterior_of_chosen
from botorch_sparse.posteriors.constant_mean import condition_with_constant_mean
from botorch_sparse.strategies.folded import FoldedEvaluations, FoldedValues
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.rules import BatchRequest
from botorch_sparse.strategies.seeding import draw_seed
from botorch_sparse.strategies.table import (
    HostVariances,
    pool_confidence_gap,
    select_from_pool,
)
from botorch_sparse.strategies.table_prior import (
    Prior,
    PriorSource,
    announce_scale,
)

# Points that are all inducing points, where the kernel is inferred.
FEW = 100


class NystromSurrogate:
    """Nystrom posterior whose inducing set is drawn anew each time it learns.

    Without inducing points yet, from more than one unique point, the first draw is by
    `initial_sampler`; afterwards `sampler` sees the variances of the
    posterior before ([Calandriello2020]_, Algorithm 1, lines 10-15). Where
    hyperparameters were fitted since, these are the variances of the previous inducing
    set under the new ones. Where the kernel is inferred, which no theorem covers, all
    points are inducing points up to `exact_size`, and their number is at most 500.

    Args:
        candidates: `A x d` candidates.
        source: Makes the prior.
        sampler: Sampler of inducing points. `PosteriorVarianceSampler` draws on the
            host, which knows the variances.
        initial_sampler: Sampler of the first ones, recursive ridge leverage scores by
            default; `BLESSSampler` for a warm start from much data.
        max_memory: Bytes that the pool may keep.
        exact_size: See above.
        embeds: Whether all candidates are embedded, which an upper confidence bound
            needs and sample paths do not.
    """

    def __init__(
        self,
        candidates: Tensor,
        source: PriorSource,
        sampler: InducingPointSampler,
        *,
        initial_sampler: InducingPointSampler | None = None,
        max_memory: int = MAX_MEMORY,
        exact_size: int = FEW,
        embeds: bool = True,
    ) -> None:
        self.source = source
        self.sampler = sampler
        self.initial_sampler = initial_sampler or RecursiveRLSSampler()
        self.exact_size = exact_size
        self.embeds = embeds
        self.pool = NystromPool(source.inputs(candidates), max_memory=max_memory)
        self.variances = HostVariances()
        self._is_scale_known = source.is_inferred
        self._forget()

    def _forget(self) -> None:
        """Start from the prior."""
        self._adopt(self.source.initial())
        self.pool.reset(self._k_diag)
        self._inducing: list[int] = []

    @torch.no_grad()
    def _adopt(self, prior: Prior) -> None:
        """Take another prior; the posterior is still that of the old one."""
        self.prior = prior
        self._k_diag = prior.covar_module(self.pool.X, diag=True)

    @property
    def covar_module(self) -> Kernel:
        """The kernel, of the pool's points."""
        return self.prior.covar_module

    @property
    def lam(self) -> float:
        """See `Surrogate`."""
        return self.prior.lam

    @property
    def scale(self) -> float:
        """Unit of the pool's means and standard deviations, in units of Y."""
        return self.prior.scale

    @property
    def dim(self) -> int:
        """See `Surrogate`."""
        return self.pool.X.shape[-1]

    @property
    def num_inducing(self) -> int:
        """Inducing points in use."""
        return 0 if self.pool.posterior is None else self.pool.posterior.num_inducing

    def max_variance(self) -> float:
        """The largest variance of a candidate; NaN where they are not embedded."""
        if not self.embeds:
            return float("nan")
        return self.variances.largest(self.pool.all_variances())

    def kernel_config(self) -> dict[str, Any]:
        """See `Surrogate`."""
        return self.source.builder.kernel_config(self.pool.X)

    @torch.no_grad()
    def information_gain(self, history: History) -> float:
        r"""A bound on `log det(I + K D^-1)` of a history that was learned.

        It is :math:`\log\det B + \mathrm{tr}((K - Q) D^{-1})`: the logarithm of the
        determinant is concave.
        """
        if self.pool.posterior is None:
            return 0.0
        log_det = 2.0 * self.pool.posterior.chol_inner.diagonal().log().sum()
        return max(float(log_det), 0.0) + self.residual_trace(history)

    @torch.no_grad()
    def residual_trace(self, history: History) -> float:
        """See `Surrogate`. Cost: O(n m^2)."""
        posterior = self.pool.posterior
        if posterior is None:
            return 0.0
        data = FoldedEvaluations.of(history, len(history))
        X = self.source.inputs(data.X)
        residual = posterior.residual(X, posterior.features(X))
        return float((residual * data.counts).sum()) / self.lam

    def mean_norm(self, history: History) -> float:
        """See `Surrogate`. Cost: O(m^2)."""
        posterior = self.pool.posterior
        return 0.0 if posterior is None else posterior_mean_norm(posterior)

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """Present variances at `k` point numbers, both on the host."""
        if self.embeds and bool((point < len(self.pool)).all()):
            return self.variances.at(self.pool.all_variances(), point)
        X = self.source.inputs(history.points(point))
        if self.pool.posterior is None:
            return self.covar_module(X, diag=True).cpu()
        return self.pool.posterior.variance(X).cpu()

    @torch.no_grad()
    def predict(self, X: Tensor, history: History) -> tuple[Tensor, Tensor]:
        """See `Surrogate`; before any feedback those of the prior."""
        posterior = self.pool.posterior
        Z = self.source.inputs(X)
        if posterior is None:
            variance = self.covar_module(Z, diag=True)
            return torch.zeros_like(variance), self.scale * variance.sqrt()
        mean, variance = posterior.moments(Z)
        return self.scale * mean, self.scale * variance.sqrt()

    def learn(
        self,
        history: History,
        generator: torch.Generator,
        lengthscale_factor: float = 1.0,
    ) -> bool:
        """Fit where that is due, resample the inducing set, and condition.

        See `Surrogate`.
        """
        values = FoldedValues.of(history.point_list, history.values)
        prior = self.prior
        if self.source.is_due(prior, history):
            prior = self.source.fitted(prior, history, generator)
        prior = self.source.shrunk(prior, lengthscale_factor)
        is_other = prior is not self.prior
        if is_other:
            self._adopt(prior)
        chosen = self._draw(history, values, generator, is_other)
        self._condition(history, values, chosen)
        if not self._is_scale_known and not self.source.awaits_fit(prior):
            k_diag = float(self._k_diag.mean())
            self._is_scale_known = announce_scale(values.Y, prior.lam, k_diag)
        return is_other

    def _draw(
        self,
        history: History,
        values: FoldedValues,
        generator: torch.Generator,
        is_other_prior: bool,
    ) -> Tensor:
        """Places of the next inducing points among the unique points; on the host."""
        if self.source.is_inferred and len(values) <= self.exact_size:
            return torch.arange(len(values))
        variance = self._variance_before(history, values, is_other_prior)
        fresh = self.pool.posterior is None and len(values) > 1
        sampler = self.initial_sampler if fresh else self.sampler
        if type(sampler) is PosteriorVarianceSampler and not self.source.is_inferred:
            return sampler.draw(variance / (self.lam / values.counts), generator)
        data = FoldedEvaluations.of(history, len(history))
        return sample_inducing_points(
            sampler,
            self.covar_module,
            self.source.inputs(data.X),
            self.lam / data.counts,
            generator=generator,
            variance=variance.to(data.X.device),
            cap=EXACT_SIZE if self.source.is_inferred else None,
        ).cpu()

    def _variance_before(
        self, history: History, values: FoldedValues, is_other_prior: bool
    ) -> Tensor:
        """Variances at the unique points with the inducing points there were."""
        if not is_other_prior or not self._inducing:
            return self.variance(history, values.point)
        places = _places(values, self._inducing)
        data = values.at(history, places)
        posterior = self._posterior(data)
        return posterior.variance(self.source.inputs(data.X)).cpu()

    @torch.no_grad()
    def _posterior(self, data: FoldedEvaluations) -> NystromPosterior:
        """That of folded data with some of its points as inducing points."""
        X, S = self.source.inputs(data.X), self.source.inputs(data.X[data.chosen])
        prior = NystromPosterior.prior(
            self.covar_module,
            S,
            mean_module=self.prior.mean_module,
            chunk_size=self.pool.chunk_size,
        )
        Y, noise = data.Y / self.scale, self.lam / data.counts
        if self.prior.mean_module is None:
            return condition_with_constant_mean(prior, X, Y, noise)
        return prior.condition(X, Y, noise)

    @torch.no_grad()
    def _condition(
        self, history: History, values: FoldedValues, chosen: Tensor
    ) -> None:
        """The posterior of folded data with some of its points as inducing points."""
        data, pool = values.at(history, chosen), self.pool
        is_small = pool.fits_in_memory(len(chosen))
        in_table = bool((values.point < len(pool)).all())
        if not self.embeds:
            pool.hold(self._posterior(data))
        elif pool.on_device and is_small and in_table:
            self._condition_there(data)
        else:
            pool.update(self._posterior(data), self._k_diag, noise=self.lam)
        self._inducing = values.point[chosen].tolist()

    def _condition_there(self, data: FoldedEvaluations) -> None:
        """The same on an accelerator, for points of the table.

        The host waits for the factor of `K_SS`, and for the variances that `variance`
        and `max_variance` will be asked for.
        """
        posterior = posterior_of_chosen(
            self.covar_module,
            self.source.inputs(data.X),
            data.Y / self.scale,
            self.lam / data.counts,
            data.chosen,
            self._k_diag[data.number[data.chosen]],
            mean_module=self.prior.mean_module,
            chunk_size=self.pool.chunk_size,
        )
        self.pool.update(posterior, self._k_diag, noise=self.lam, is_awaited=False)
        known = self.variances.at(self.pool.all_variances(), data.point, data.number)
        if not known.isfinite().all():
            self.pool.update(posterior, self._k_diag, noise=self.lam)

    def select(
        self, request: BatchRequest, history: History, generator: torch.Generator
    ) -> list[int]:
        """See `Surrogate`."""
        return select_from_pool(self.pool, self.lam, self.variances, request)

    def sample_maximizers(
        self, request: BatchRequest, history: History, generator: torch.Generator
    ) -> list[int]:
        """Maximizers of as many sample paths as the request has points at most.

        Pending points lower no sample, but may be excluded.
        """
        choosable = request.choosable(self.pool.X.device)
        with manual_seed(draw_seed(generator)):
            return path_maximizers(
                self.pool.X, self._learned(), request.limit, choosable
            )

    def _learned(self) -> NystromPosterior:
        """The posterior, if there is one."""
        if self.pool.posterior is None:
            raise InputDataError("The model has no data yet: tell some feedback first.")
        return self.pool.posterior

    def confidence_gap(self, multiplier: float, offset: float) -> float:
        """See `Surrogate`."""
        return self.scale * pool_confidence_gap(self.pool, multiplier, offset)

    def snapshot(self) -> dict[str, Any]:
        """See `Surrogate`; no copies, since learning replaces what it changes."""
        names = ("prior", "_k_diag", "_inducing")
        own = {name: vars(self)[name] for name in names}
        return {"pool": self.pool.snapshot(), "own": own}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """See `Surrogate`."""
        self.pool.restore(snapshot["pool"])
        vars(self).update(snapshot["own"])

    def state_dict(self) -> dict[str, Any]:
        """The point numbers of the inducing set, and hyperparameters."""
        prior = self.source.state_dict(self.prior)
        return {"inducing": list(self._inducing), "prior": prior}

    def load_state_dict(
        self, state: dict[str, Any], history: History, num_learned: int
    ) -> None:
        """Condition again on what had been learned, with the same inducing set."""
        self._forget()
        if num_learned == 0:
            return
        self._adopt(self.source.from_state(state["prior"]))
        values = FoldedValues.of(
            history.point_list[:num_learned], history.values[:num_learned]
        )
        self._condition(history, values, _places(values, state["inducing"]))


def _places(values: FoldedValues, numbers: list[int]) -> Tensor:
    """Where points stand among the unique points."""
    place = {number: row for row, number in enumerate(values.point.tolist())}
    return torch.tensor([place[number] for number in numbers])
