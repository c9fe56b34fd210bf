"""Which training points a sparse model uses as inducing points."""

from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.inducing import InducingPointSampler
from botorch_sparse.inducing.base import returns_valid_indices
from botorch_sparse.models.validation import validate_index
from botorch_sparse.posteriors import RepeatedRows


@dataclass(frozen=True, eq=False)
class InducingSet:
    """Inducing points of one data set, as indices or raw inputs.

    Learned input transforms move the training points, and models of other data load
    our state: so neither transformed coordinates nor a buffer is kept.

    Attributes:
        train_X: `batch_shape x n x d`, the raw training inputs that it belongs to.
        rows: Their repeated rows.
        index: `m` or `batch_shape x m` training rows; None if the points were given.
        given: `m x d` or `batch_shape x m x d` raw inputs, or None if they were
            sampled.
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
        """Given points, raw inputs. Cost: O((m + n) d log(m + n)) for each element."""
        unique = train_X[..., rows.first, :]
        complete = given.shape[-2] >= unique.shape[-2]
        if complete:
            batch_shape = torch.broadcast_shapes(given.shape[:-2], unique.shape[:-2])
            both = [t.expand(*batch_shape, *t.shape[-2:]) for t in (given, unique)]
            elements = torch.cat(both, dim=-2)
            elements = elements.reshape(-1, *elements.shape[-2:])
            complete = all(_covers(element, given.shape[-2]) for element in elements)
        return cls(train_X, rows, None, given, complete)

    @classmethod
    def from_index(
        cls, train_X: Tensor, rows: RepeatedRows, index: Tensor
    ) -> "InducingSet":
        """Sampled points, `m` different indices into the unique points."""
        complete = index.shape[-1] == len(rows.first)
        return cls(train_X, rows, rows.first[index], None, complete)

    @property
    def points(self) -> Tensor:
        """The inducing points, `batch_shape x m x d` raw inputs."""
        if self.given is not None:
            return self.given
        if self.index is None or self.index.dim() == 1:
            return self.train_X[..., self.index, :]
        return self.train_X.take_along_dim(self.index.unsqueeze(-1), dim=-2)

    def belongs_to(self, train_X: Tensor) -> bool:
        """Whether it was chosen for `train_X`. Cost: O(1) for the same tensor."""
        return same_tensor(self.train_X, train_X)

    def moved(self, train_X: Tensor, given: Tensor | None) -> "InducingSet":
        """The same points on the device and in the dtype of `train_X` and `given`."""
        device = train_X.device
        rows = RepeatedRows(*(t.to(device) for t in self.rows))
        index = None if self.index is None else self.index.to(device)
        return replace(self, train_X=train_X, rows=rows, index=index, given=given)


def _covers(points: Tensor, num_inducing: int) -> bool:
    """Whether the first rows of `points` (`p x d`) are all that there are."""
    return bool((RepeatedRows.find(points).first < num_inducing).all())


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
    is_trusted = not X.is_cpu and returns_valid_indices(sampler)
    validate_index(index, len(X), is_in_range=is_trusted)
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
    if first.device == second.device and first.dtype == second.dtype:
        layouts = [(t.data_ptr(), t.shape, t.stride()) for t in (first, second)]
        if layouts[0] == layouts[1] and first.numel() > 0:
            return True
    return (
        first.shape == second.shape
        and first.dtype == second.dtype
        and first.device == second.device
        and torch.equal(first, second)
    )
