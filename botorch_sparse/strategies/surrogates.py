"""The posteriors that strategies learn with: those on tables of candidates."""

from typing import Any, Protocol

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.acquisition.confidence import posterior_mean_norm
from botorch_sparse.inducing import (
    InducingPointSampler,
    PosteriorVarianceSampler,
    RecursiveRLSSampler,
)
from botorch_sparse.optim.candidate_pool import MAX_MEMORY, CandidatePool
from botorch_sparse.optim.exact_pool import ExactCandidatePool
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.chosen_inducing import posterior_of_chosen
from botorch_sparse.posteriors.precision import in_double
from botorch_sparse.strategies.folded import FoldedEvaluations, FoldedValues
from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.rules import BatchRequest
from botorch_sparse.strategies.table import HostVariances, TableSelection


class Surrogate(Protocol):
    """A posterior over a domain that learns from a history.

    Attributes:
        lam: Noise variance of one evaluation, on the scale of its variances.
    """

    lam: float

    @property
    def num_inducing(self) -> int:
        """Inducing points in use; for an exact posterior its unique points."""
        ...

    def information_gain(self, history: History) -> float:
        """`log det(I + K D^-1)` of the first history that was learned, or a bound.

        This is twice the mutual information in nats.
        """
        ...

    def residual_trace(self, history: History) -> float:
        """`tr (K - Q) D^-1` of a history that was learned; 0 for an exact posterior.

        An upper bound on its largest eigenvalue.
        """
        ...

    def mean_norm(self, history: History) -> float:
        """The RKHS norm of the posterior mean of a history that was learned."""
        ...

    def variance(self, history: History, point: Tensor) -> Tensor:
        """Present variances at `k` point numbers, both on the host."""
        ...

    def max_variance(self) -> float:
        """The largest present variance over the domain; NaN where not known."""
        ...

    def select(
        self, request: BatchRequest, history: History, generator: torch.Generator
    ) -> list[int]:
        """A batch by the upper confidence bound: numbers of points."""
        ...

    def confidence_gap(self, multiplier: float, offset: float) -> float:
        """The largest upper less the largest lower bound, in units of Y."""
        ...

    def kernel_config(self) -> dict[str, Any]:
        """What a state must agree on, in plain values."""
        ...

    def learn(self, history: History, generator: torch.Generator) -> bool:
        """Take the whole history into account.

        Returns:
            Whether the prior is another one than before.
        """
        ...

    def snapshot(self) -> dict[str, Any]:
        """What `restore` needs when something fails after `learn` began."""
        ...

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Become what the surrogate was at the snapshot."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs beside the history."""
        ...

    def load_state_dict(
        self, state: dict[str, Any], history: History, num_learned: int
    ) -> None:
        """Become the surrogate of a saved run, to the bit."""
        ...


class NystromSurrogate(TableSelection):
    """Nystrom posterior whose inducing set is drawn anew each time it learns.

    Without inducing points yet, from more than one unique point, the first draw is by
    `initial_sampler`; afterwards `sampler` sees the variances of the
    posterior before ([Calandriello2020]_, Algorithm 1, lines 10-15).

    Args:
        candidates: `A x d` candidates.
        covar_module: The kernel.
        lam: Noise variance lambda of one evaluation.
        sampler: Sampler of inducing points. `PosteriorVarianceSampler` draws on the
            host, which knows the variances.
        initial_sampler: Sampler of the first ones, recursive ridge leverage scores by
            default; `BLESSSampler` for a warm start from much data.
        max_memory: Bytes that the pool may keep.
    """

    def __init__(
        self,
        candidates: Tensor,
        covar_module: Kernel,
        lam: float,
        sampler: InducingPointSampler,
        *,
        initial_sampler: InducingPointSampler | None = None,
        max_memory: int = MAX_MEMORY,
    ) -> None:
        self.covar_module = in_double(covar_module, candidates.dtype)
        self.lam = lam
        self.sampler = sampler
        self.initial_sampler = initial_sampler or RecursiveRLSSampler()
        self.pool = CandidatePool(candidates.double(), max_memory=max_memory)
        self.variances = HostVariances()
        with torch.no_grad():
            self._prior = self.covar_module(self.pool.X, diag=True)
        self._inducing: list[int] = []
        self._forget()

    def _forget(self) -> None:
        """Start from the prior."""
        self.pool.reset()
        self.pool.variance = self._prior
        self._inducing = []

    @property
    def num_inducing(self) -> int:
        """Inducing points in use."""
        return 0 if self.pool.posterior is None else self.pool.posterior.num_inducing

    def kernel_config(self) -> dict[str, Any]:
        """See `Surrogate`."""
        return kernel_config(self.covar_module, self.pool.X)

    @torch.no_grad()
    def information_gain(self, history: History) -> float:
        r"""A bound on `log det(I + K D^-1)` of a history that was learned.

        It is :math:`\log\det B + \mathrm{tr}((K - Q) D^{-1})`: the logarithm of the
        determinant is concave.
        """
        if self.pool.posterior is None:
            return 0.0
        log_det = 2.0 * self.pool.posterior.chol_inner.diagonal().log().sum()
        return float(log_det) + self.residual_trace(history)

    @torch.no_grad()
    def residual_trace(self, history: History) -> float:
        """See `Surrogate`. Cost: O(n m^2)."""
        posterior = self.pool.posterior
        if posterior is None:
            return 0.0
        data = FoldedEvaluations.of(history, len(history))
        residual = posterior.residual(data.X, posterior.features(data.X))
        return float((residual * data.counts).sum()) / self.lam

    def mean_norm(self, history: History) -> float:
        """See `Surrogate`. Cost: O(m^2)."""
        posterior = self.pool.posterior
        return 0.0 if posterior is None else posterior_mean_norm(posterior)

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """Present variances at `k` point numbers, both on the host."""
        if bool((point < len(self.pool)).all()):
            return self.variances.at(self.pool.variance, point)
        X = history.points(point).double()
        if self.pool.posterior is None:
            return self.covar_module(X, diag=True).cpu()
        return self.pool.posterior.variance(X).cpu()

    def learn(self, history: History, generator: torch.Generator) -> bool:
        """Resample the inducing set and condition on the whole history."""
        values = FoldedValues.of(history.point_list, history.values)
        variance = self.variance(history, values.point)
        fresh = self.pool.posterior is None and len(values) > 1
        sampler = self.initial_sampler if fresh else self.sampler
        if type(sampler) is PosteriorVarianceSampler:
            leverage = variance / (self.lam / values.counts)
            chosen = sampler.draw(leverage, generator)
        else:
            data = FoldedEvaluations.of(history, len(history))
            chosen = sampler(
                self.covar_module,
                data.X,
                self.lam / data.counts,
                generator=generator,
                variance=variance.to(data.X.device),
            ).cpu()
        self._condition(history, values, chosen)
        return False

    @torch.no_grad()
    def _condition(
        self, history: History, values: FoldedValues, chosen: Tensor
    ) -> None:
        """The posterior of folded data with some of its points as inducing points."""
        data, pool = values.at(history, chosen), self.pool
        is_small = pool.fits_in_memory(len(chosen))
        in_table = bool((values.point < len(pool)).all())
        if pool.on_device and is_small and in_table:
            self._condition_there(data)
        else:
            noise, S = self.lam / data.counts, data.X[data.chosen]
            posterior = NystromPosterior.from_data(
                self.covar_module, data.X, data.Y, noise, S, chunk_size=pool.chunk_size
            )
            pool.update(posterior, self._prior)
        self._inducing = values.point[chosen].tolist()

    def _condition_there(self, data: FoldedEvaluations) -> None:
        """The same on an accelerator, for points of the table.

        The host waits for the factor of `K_SS`, and for the variances that `variance`
        and `max_variance` will be asked for.
        """
        posterior = posterior_of_chosen(
            self.covar_module,
            data.X,
            data.Y,
            self.lam / data.counts,
            data.chosen,
            self._prior[data.number[data.chosen]],
            chunk_size=self.pool.chunk_size,
        )
        self.pool.update(posterior, self._prior, is_awaited=False)
        known = self.variances.at(self.pool.variance, data.point, data.number)
        if not known.isfinite().all():
            self.pool.update(posterior, self._prior)

    def snapshot(self) -> dict[str, Any]:
        """See `Surrogate`; no copies, since learning replaces what it changes."""
        return {"pool": self.pool.snapshot(), "inducing": self._inducing}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """See `Surrogate`."""
        self.pool.restore(snapshot["pool"])
        self._inducing = snapshot["inducing"]

    def state_dict(self) -> dict[str, Any]:
        """The point numbers of the inducing set."""
        return {"inducing": list(self._inducing)}

    def load_state_dict(
        self, state: dict[str, Any], history: History, num_learned: int
    ) -> None:
        """Condition again on what had been learned, with the same inducing set."""
        if num_learned == 0:
            self._forget()
            return
        values = FoldedValues.of(
            history.point_list[:num_learned], history.values[:num_learned]
        )
        place = {number: row for row, number in enumerate(values.point.tolist())}
        chosen = torch.tensor([place[number] for number in state["inducing"]])
        self._condition(history, values, chosen)


class ExactSurrogate(TableSelection):
    """Exact posterior, updated one evaluation at a time.

    Runs of one candidate share a row of the factor; once there are twice as many rows
    as unique points, the folded data are factorized anew, so that rows stay within a
    constant of the unique points.

    Args:
        candidates: `A x d` candidates.
        covar_module: The kernel.
        lam: Noise variance lambda of one evaluation.
    """

    def __init__(self, candidates: Tensor, covar_module: Kernel, lam: float) -> None:
        self.covar_module = in_double(covar_module, candidates.dtype)
        self.lam = lam
        self.pool = ExactCandidatePool(candidates.double(), self.covar_module, lam)
        self.variances = HostVariances()
        self._num_learned = 0
        self._num_rebuilt = 0
        self._seen: set[int] = set()

    @property
    def num_inducing(self) -> int:
        """Unique points in the exact posterior."""
        return len(self._seen)

    def kernel_config(self) -> dict[str, Any]:
        """See `Surrogate`."""
        return kernel_config(self.covar_module, self.pool.X)

    def information_gain(self, history: History) -> float:
        """`log det(I + K D^-1)` when the data were last factorized anew."""
        return self.pool.information_gain

    def residual_trace(self, history: History) -> float:
        """See `Surrogate`."""
        return 0.0

    @torch.no_grad()
    def mean_norm(self, history: History) -> float:
        """See `Surrogate`. Cost: O(n^3), of the data factorized anew."""
        data = FoldedEvaluations.of(history, len(history))
        noise = self.lam / data.counts
        return posterior_mean_norm(
            NystromPosterior.from_data(self.covar_module, data.X, data.Y, noise, data.X)
        )

    @torch.no_grad()
    def variance(self, history: History, point: Tensor) -> Tensor:
        """Present variances at `k` point numbers, both on the host."""
        if bool((point < len(self.pool)).all()):
            return self.variances.at(self.pool.variance, point)
        return self.pool.variance_at(history.points(point).double(), point).cpu()

    def learn(self, history: History, generator: torch.Generator) -> bool:
        """Condition on what is new in the history."""
        self._append(history, len(history))
        return False

    def _append(self, history: History, num_evaluations: int) -> None:
        """Condition on the evaluations up to a number."""
        points = history.point_list[self._num_learned : num_evaluations]
        values = history.values[self._num_learned : num_evaluations]
        beside = any(point >= len(self.pool) for point in points)
        if beside or self._num_learned == 0:
            self._rebuild(history, num_evaluations)
            return
        for point, y in zip(points, values, strict=True):
            self.pool.append(point, y)
        self._num_learned = num_evaluations
        self._seen.update(points)
        if self.pool.num_rows > 2 * len(self._seen) + 32:
            self._rebuild(history, num_evaluations)

    def _rebuild(self, history: History, num_evaluations: int) -> None:
        """Factorize the folded data anew."""
        data = FoldedEvaluations.of(history, num_evaluations)
        self.pool.rebuild(data.X, data.Y, self.lam / data.counts)
        self._num_learned = self._num_rebuilt = num_evaluations
        self._seen = set(data.point.tolist())

    def snapshot(self) -> dict[str, Any]:
        """See `Surrogate`."""
        numbers = (self._num_learned, self._num_rebuilt, set(self._seen))
        return {"pool": self.pool.snapshot(), "numbers": numbers}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """See `Surrogate`."""
        self.pool.restore(snapshot["pool"])
        self._num_learned, self._num_rebuilt, self._seen = snapshot["numbers"]

    def state_dict(self) -> dict[str, Any]:
        """When the data were factorized anew."""
        return {"num_rebuilt": self._num_rebuilt}

    def load_state_dict(
        self, state: dict[str, Any], history: History, num_learned: int
    ) -> None:
        """Factorize and append as the saved run did."""
        if num_learned == 0:
            self.pool.reset()
            self._num_learned = self._num_rebuilt = 0
            self._seen = set()
            return
        self._rebuild(history, state["num_rebuilt"])
        self._append(history, num_learned)


@torch.no_grad()
def kernel_config(covar_module: Kernel, X: Tensor) -> dict[str, Any]:
    """A kernel's parameters, exactly, and a few values for what it makes of them.

    The values are rounded, since they may differ in the last bits between machines.

    Args:
        covar_module: The kernel.
        X: `A x d` points of the domain.
    """
    K = covar_module(X[:: -(-len(X) // 4)]).to_dense()
    state = {name: value.tolist() for name, value in covar_module.state_dict().items()}
    return {"values": [f"{value:.4g}" for value in K.flatten().tolist()]} | state
