"""Which training points a sparse model uses as inducing points."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.inducing import InducingPointSampler, RecursiveRLSSampler
from botorch_sparse.posteriors import RepeatedRows


@dataclass(frozen=True, eq=False)
class InducingSet:
    """Inducing points of one data set, as indices or raw inputs.

    Learned input transforms move the training points, and models of other data load
    our state: so neither transformed coordinates nor a buffer is kept.

    Attributes:
        train_X: `n x d`, the raw training inputs that it belongs to.
        rows: Their repeated rows.
        index: `m` training rows, or None where the points were given.
        given: `m x d` raw inputs, or None where the points were sampled.
        is_complete: Whether every training point is an inducing point.
    """

    train_X: Tensor
    rows: RepeatedRows
    index: Tensor | None
    given: Tensor | None
    is_complete: bool

    @classmethod
    def from_points(
        cls, train_X: Tensor, rows: RepeatedRows, given: Tensor
    ) -> "InducingSet":
        """Given points, `m x d` raw inputs. Cost: O((m + n) d log(m + n))."""
        complete = len(given) >= len(rows.first)
        if complete:
            joint = RepeatedRows.find(torch.cat([given, train_X[rows.first]]))
            complete = bool((joint.first < len(given)).all())
        return cls(train_X, rows, None, given, complete)

    @classmethod
    def from_index(
        cls, train_X: Tensor, rows: RepeatedRows, index: Tensor
    ) -> "InducingSet":
        """Sampled points, `m` different indices into the unique points."""
        complete = len(index) == len(rows.first)
        return cls(train_X, rows, rows.first[index], None, complete)

    @property
    def points(self) -> Tensor:
        """The inducing points, `m x d` raw inputs."""
        return self.train_X[self.index] if self.given is None else self.given

    def belongs_to(self, train_X: Tensor) -> bool:
        """Whether it was chosen for `train_X`. Cost: O(1) for the same tensor."""
        return same_tensor(self.train_X, train_X)

    def apply(
        self, fn: Callable[[Tensor], Tensor], train_X: Tensor, given: Tensor | None
    ) -> "InducingSet":
        """Move to another device or dtype, where `train_X` and `given` already are."""
        rows = RepeatedRows(first=fn(self.rows.first), inverse=fn(self.rows.inverse))
        index = None if self.index is None else fn(self.index)
        return replace(self, train_X=train_X, rows=rows, index=index, given=given)


def capped(sampler: RecursiveRLSSampler, cap: int | None) -> RecursiveRLSSampler:
    """The sampler with at most `cap` points, on each level of its recursion too."""
    if cap is None:
        return sampler
    own = sampler.max_inducing_points
    return replace(sampler, max_inducing_points=cap if own is None else min(own, cap))


def sample_inducing_points(
    sampler: InducingPointSampler,
    covar_module: Kernel,
    X: Tensor,
    noise: Tensor,
    *,
    generator: torch.Generator,
    variance: Tensor | None = None,
    cap: int | None = None,
) -> Tensor:
    """Draw inducing points; above `cap` keep as many in proportion to their variance.

    Args:
        sampler: The sampler.
        covar_module: The kernel.
        X: `n x d` unique training points, transformed.
        noise: `n` noise variances of the folded observations.
        generator: Source of randomness.
        variance: `n` variances under the previous inducing points, or None.
        cap: Largest number of points, or None.

    Returns:
        Sorted indices into the rows of `X`.
    """
    index = sampler(covar_module, X, noise, generator=generator, variance=variance)
    if cap is None or len(index) <= cap:
        return index
    weights = torch.ones_like(noise) if variance is None else variance / noise
    weights = weights[index].clamp_min(torch.finfo(weights.dtype).tiny)
    chosen = torch.multinomial(weights.to(generator.device), cap, generator=generator)
    return index[chosen.to(index.device)].sort().values


def same_tensor(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same values on the same device and in one dtype."""
    if first is second:
        return True
    return (
        first.shape == second.shape
        and first.dtype == second.dtype
        and first.device == second.device
        and torch.equal(first, second)
    )
