"""The posteriors that strategies learn with."""

from typing import Any, Protocol

import torch
from torch import Tensor

from botorch_sparse.strategies.history import History
from botorch_sparse.strategies.rules import BatchRequest


class Surrogate(Protocol):
    """A posterior over a domain that learns from a history.

    Attributes:
        lam: Noise variance of one evaluation, on the scale of its variances.
        dim: Number of features that its kernel sees.
    """

    @property
    def lam(self) -> float:
        """See the attributes."""
        ...

    @property
    def dim(self) -> int:
        """See the attributes."""
        ...

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

    def learn(
        self,
        history: History,
        generator: torch.Generator,
        lengthscale_factor: float = 1.0,
    ) -> bool:
        """Take the whole history into account.

        Args:
            history: The evaluations.
            generator: Source of randomness.
            lengthscale_factor: What multiplies the kernel's lengthscales.

        Returns:
            Whether the prior is another one than before.
        """
        ...

    def predict(self, X: Tensor, history: History) -> tuple[Tensor, Tensor]:
        """Posterior mean and standard deviation at `q x d` points, in units of Y."""
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
