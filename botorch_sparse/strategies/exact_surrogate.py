"""The exact posterior that strategies on tables learn with."""

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import posterior_mean_norm
from botorch_sparse.optim.exact_pool import ExactPool
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.constant_mean import condition_with_constant_mean
from botorch_sparse.strategies.folded import FoldedEvaluations, FoldedValues
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.rules import BatchRequest
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


class ExactSurrogate:
    """Exact posterior, updated one evaluation at a time.

    Runs of one candidate share a row of the factor; once there are twice as many rows
    as unique points, the folded data are factorized anew, so that rows stay within a
    constant of the unique points.

    Args:
        candidates: `A x d` candidates.
        source: Makes the prior.
    """

    def __init__(self, candidates: Tensor, source: PriorSource) -> None:
        self.source = source
        self._X = source.inputs(candidates)
        self.variances = HostVariances()
        self._is_scale_known = source.is_inferred
        self._forget()

    def _forget(self) -> None:
        """Start from the prior."""
        self._adopt(self.source.initial())
        self._num_learned = 0
        self._num_rebuilt = 0
        self._seen: set[int] = set()

    def _adopt(self, prior: Prior) -> None:
        """Take another prior, and a pool without data."""
        self.prior = prior
        mean = prior.mean_module
        self.pool = ExactPool(
            self._X,
            prior.covar_module,
            prior.lam,
            mean_module=mean,
            has_constant=mean is None,
        )

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

    def max_variance(self) -> float:
        """The largest variance of a candidate."""
        return self.variances.largest(self.pool.variance)

    @property
    def num_inducing(self) -> int:
        """Unique points in the exact posterior."""
        return len(self._seen)

    def kernel_config(self) -> dict[str, Any]:
        """See `Surrogate`."""
        return self.source.builder.kernel_config(self.pool.X)

    def information_gain(self, history: History) -> float:
        """`log det(I + K D^-1)` when the data were last factorized anew."""
        return self.pool.information_gain

    def residual_trace(self, history: History) -> float:
        """See `Surrogate`."""
        return 0.0

    @torch.no_grad()
    def mean_norm(self, history: History) -> float:
        """See `Surrogate`. Cost: O(n^3), of the data factorized anew."""
        return posterior_mean_norm(self._posterior(history))

    def _posterior(self, history: History) -> NystromPosterior:
        """The posterior of the data that were learned, factorized anew."""
        data = FoldedEvaluations.of(history, self._num_learned)
        X, noise = self.source.inputs(data.X), self.lam / data.counts
        mean = self.prior.mean_module
        prior = NystromPosterior.prior(self.covar_module, X, mean_module=mean)
        if mean is None:
            return condition_with_constant_mean(prior, X, data.Y / self.scale, noise)
        return prior.condition(X, data.Y / self.scale, noise)

    @torch.no_grad()
    def predict(self, X: Tensor, history: History) -> tuple[Tensor, Tensor]:
        """See `Surrogate`. Cost: O(n^3), of the data factorized anew."""
        Z = self.source.inputs(X)
        if self._num_learned == 0:
            sd = self.covar_module(Z, diag=True).sqrt()
            return torch.zeros_like(sd), self.scale * sd
        mean, variance = self._posterior(history).moments(Z)
        return self.scale * mean, self.scale * variance.sqrt()

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """Present variances at `k` point numbers, both on the host."""
        if bool((point < len(self.pool)).all()):
            return self.variances.at(self.pool.variance, point)
        X = self.source.inputs(history.points(point))
        return self.pool.variance_at(X, point).cpu()

    def learn(
        self,
        history: History,
        generator: torch.Generator,
        lengthscale_factor: float = 1.0,
    ) -> bool:
        """Fit where that is due, and condition on what is new; see `Surrogate`."""
        prior = self.prior
        if self.source.is_due(prior, history):
            prior = self.source.fitted(prior, history, generator)
        prior = self.source.shrunk(prior, lengthscale_factor)
        is_other = prior is not self.prior
        if is_other:
            self._adopt(prior)
            self._rebuild(history, len(history))
        else:
            self._append(history, len(history))
        if not self._is_scale_known and not self.source.awaits_fit(prior):
            values = FoldedValues.of(history.point_list, history.values)
            k_diag = float(self.covar_module(self._X, diag=True).detach().mean())
            self._is_scale_known = announce_scale(values.Y, prior.lam, k_diag)
        return is_other

    def _append(self, history: History, num_evaluations: int) -> None:
        """Condition on the evaluations up to a number."""
        points = history.point_list[self._num_learned : num_evaluations]
        values = history.values[self._num_learned : num_evaluations]
        beside = any(point >= len(self.pool) for point in points)
        if beside or self._num_learned == 0:
            self._rebuild(history, num_evaluations)
            return
        for point, y in zip(points, values, strict=True):
            self.pool.append(point, y / self.scale)
        self._num_learned = num_evaluations
        self._seen.update(points)
        if self.pool.num_rows > 2 * len(self._seen) + 32:
            self._rebuild(history, num_evaluations)

    def _rebuild(self, history: History, num_evaluations: int) -> None:
        """Factorize the folded data anew."""
        data = FoldedEvaluations.of(history, num_evaluations)
        X = self.source.inputs(data.X)
        self.pool.rebuild(X, data.Y / self.scale, self.lam / data.counts)
        self._num_learned = self._num_rebuilt = num_evaluations
        self._seen = set(data.point.tolist())

    def select(
        self, request: BatchRequest, history: History, generator: torch.Generator
    ) -> list[int]:
        """See `Surrogate`."""
        return select_from_pool(self.pool, self.lam, self.variances, request)

    def confidence_gap(self, multiplier: float, offset: float) -> float:
        """See `Surrogate`."""
        return self.scale * pool_confidence_gap(self.pool, multiplier, offset)

    def snapshot(self) -> dict[str, Any]:
        """See `Surrogate`."""
        own = vars(self) | {"_seen": set(self._seen)}
        return {"pool": self.pool.snapshot(), "own": own}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """See `Surrogate`."""
        vars(self).update(snapshot["own"])
        self.pool.restore(snapshot["pool"])

    def state_dict(self) -> dict[str, Any]:
        """When the data were factorized anew, and hyperparameters."""
        prior = self.source.state_dict(self.prior)
        return {"num_rebuilt": self._num_rebuilt, "prior": prior}

    def load_state_dict(
        self, state: dict[str, Any], history: History, num_learned: int
    ) -> None:
        """Factorize and append as the saved run did."""
        self._forget()
        if num_learned == 0:
            return
        self._adopt(self.source.from_state(state["prior"]))
        self._rebuild(history, state["num_rebuilt"])
        self._append(history, num_learned)
