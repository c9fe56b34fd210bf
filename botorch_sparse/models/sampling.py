"""Inducing points that outputs share, as many for each element of a batch.

A point is drawn with the largest of the probabilities that the outputs give it: with
the same random numbers for all outputs, that is the union of their draws. Elements of a
batch that got fewer points than others get their next most probable ones.
"""

import itertools
from collections.abc import Callable

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.inducing import InducingPointSampler
from botorch_sparse.inducing.base import returns_valid_indices
from botorch_sparse.kernels import kernel_at
from botorch_sparse.models.data_values import ranges_of
from botorch_sparse.posteriors import NystromPosterior

Leverage = Callable[[Tensor], Tensor]


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
    _validate_index(index, len(X), is_in_range=is_trusted)
    if cap is None or len(index) <= cap:
        return index
    weights = torch.ones_like(noise) if variance is None else variance / noise
    weights = weights[index].clamp_min(torch.finfo(weights.dtype).tiny)
    chosen = torch.multinomial(weights.to(generator.device), cap, generator=generator)
    return index[chosen.to(index.device)].sort().values


def _validate_index(index: Tensor, num_points: int, is_in_range: bool = False) -> None:
    """Check what a sampler returned.

    Args:
        index: What it returned.
        num_points: The number of points it drew from.
        is_in_range: Whether the values are known to be right. A look at them waits for
            the device.

    Raises:
        InputDataError: If it is not a vector of indices of `num_points` points with at
            least one entry.
    """
    is_index = isinstance(index, Tensor) and index.dtype == torch.int64
    if not is_index or index.dim() != 1 or len(index) == 0:
        shown = f"{index.dtype} of shape {tuple(index.shape)}" if is_index else index
        raise InputDataError(
            f"The inducing sampler returned {shown}; need a vector of int64 indices "
            "with at least one entry."
        )
    if is_in_range:
        return
    ends = ranges_of({"index": index})["index"]
    if ends.low < 0 or ends.high >= num_points:
        raise InputDataError(
            f"The inducing sampler returned indices from {ends.low} to {ends.high} for "
            f"{num_points} unique training points; they must be from 0 to one less."
        )


def sample_shared_points(
    sampler: InducingPointSampler,
    covar_module: Kernel,
    X: Tensor,
    noise: Tensor,
    *,
    num_outputs: int,
    generator: torch.Generator,
    variance: Tensor | None = None,
    cap: int | None = None,
) -> Tensor:
    """Draw inducing points for several outputs or a batch of data.

    Args:
        sampler: The sampler; it sees one output of one element at a time.
        covar_module: The kernel.
        X: `aug_batch x n x d` unique training points, transformed; `aug_batch` is the
            batch shape, and then the outputs where there are several.
        noise: `aug_batch x n` noise variances of the folded observations.
        num_outputs: Number of outputs.
        generator: Source of randomness.
        variance: `aug_batch x n` variances under the previous inducing points.
        cap: Largest number of points, or None.

    Returns:
        Sorted indices into the rows of `X`, `batch_shape x m`. Cost: O(n m^2) for each
        output of each element.
    """
    aug_batch, n = noise.shape[:-1], noise.shape[-1]
    if not aug_batch:
        return sample_inducing_points(
            sampler,
            covar_module,
            X,
            noise,
            generator=generator,
            variance=variance,
            cap=cap,
        )
    X = X.expand(*aug_batch, n, X.shape[-1])
    batch_shape = aug_batch[:-1] if num_outputs > 1 else aug_batch
    chosen, leverages = [], []
    for element in itertools.product(*map(range, batch_shape)):
        outputs = [(*element, t) for t in range(num_outputs)]
        outputs = outputs if num_outputs > 1 else [element]
        kernels = [kernel_at(covar_module, output) for output in outputs]
        device = generator.device
        seed = int(torch.randint(2**31, (), generator=generator, device=device))
        draws = [
            sample_inducing_points(
                sampler,
                kernel,
                X[output],
                noise[output],
                generator=torch.Generator(device).manual_seed(seed),
                variance=None if variance is None else variance[output],
                cap=cap,
            )
            for kernel, output in zip(kernels, outputs, strict=True)
        ]
        chosen.append(torch.cat(draws).unique())
        leverages.append(_leverage_of(kernels, X, noise, outputs))
    size = max(len(index) for index in chosen)
    size = size if cap is None else min(size, cap)
    pairs = zip(chosen, leverages, strict=True)
    index = torch.stack([_resized(index, size, score) for index, score in pairs])
    return index.reshape(*batch_shape, size)


def _leverage_of(
    kernels: list[Kernel], X: Tensor, noise: Tensor, outputs: list[tuple[int, ...]]
) -> Leverage:
    """Largest ridge leverage score over the outputs, given the points chosen so far."""

    def leverage(index: Tensor) -> Tensor:
        scores = []
        for kernel, output in zip(kernels, outputs, strict=True):
            points, d = X[output], noise[output]
            posterior = NystromPosterior.from_data(
                kernel, points, torch.zeros_like(d), d, points[index]
            )
            scores.append(posterior.moments(points).variance / d)
        return torch.stack(scores).amax(0)

    return leverage


def _resized(index: Tensor, size: int, leverage: Leverage) -> Tensor:
    """The `size` most probable points, those in `index` first."""
    if len(index) == size:
        return index
    score = leverage(index)
    if len(index) > size:
        return index[score[index].topk(size).indices].sort().values
    score[index] = -1.0
    more = score.topk(size - len(index)).indices
    return torch.cat([index, more]).sort().values
