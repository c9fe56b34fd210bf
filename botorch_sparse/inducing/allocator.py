"""Our samplers as allocators of BoTorch's variational models."""

from collections.abc import Iterator
from itertools import product
from typing import NoReturn

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models.utils.inducing_point_allocators import InducingPointAllocator
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import as_seed, check_number
from botorch_sparse.inducing.certificate import ScaledResidual
from botorch_sparse.inducing.recursive_rls import RecursiveRLSSampler
from botorch_sparse.inducing.sampler import (
    InducingPointSampler,
    thinned,
    validate_sampler,
    weighted_sample,
    with_cap,
)
from botorch_sparse.kernels import in_double, kernel_at
from botorch_sparse.posteriors import NystromFeatures, RepeatedRows

DEFAULT_SEED = 0


class SamplerInducingPointAllocator(InducingPointAllocator):
    """A sampler of inducing points for `SingleTaskVariationalGP`.

    The allocators of BoTorch form the `n x n` kernel matrix; here the cost is O(n m^2).
    Exactly `num_inducing` points are returned, as long as there are as many different
    ones: too many are thinned out at random, too few are joined by points in proportion
    to their residual variance.

    Args:
        sampler: A sampler that needs no previous posterior; `RecursiveRLSSampler()` by
            default.
        noise: Noise variance assumed, in the units of the outcomes that the model sees:
            the variational likelihood is not known here. The default suits standardized
            outcomes.
        seed: Seed of each allocation.

    Example:
        >>> from botorch.models import SingleTaskVariationalGP
        >>> from botorch.utils import standardize
        >>> X = torch.rand(300, 2, dtype=torch.double)
        >>> model = SingleTaskVariationalGP(
        ...     X,
        ...     standardize(X.sum(-1, keepdim=True)),
        ...     inducing_points=20,
        ...     learn_inducing_points=False,
        ...     inducing_point_allocator=SamplerInducingPointAllocator(),
        ... )
        >>> model.model.variational_strategy.inducing_points.shape
        torch.Size([20, 2])
    """

    def __init__(
        self,
        sampler: InducingPointSampler | None = None,
        *,
        noise: float = 1e-2,
        seed: int = DEFAULT_SEED,
    ) -> None:
        check_number("noise", noise, "(0, inf)", "need a positive variance.")
        validate_sampler("sampler", sampler)
        self.sampler = RecursiveRLSSampler() if sampler is None else sampler
        self.noise = noise
        self.seed = as_seed(seed)

    def _get_quality_function(self) -> NoReturn:
        raise UnsupportedError(
            "A sampler has no quality function; call allocate_inducing_points."
        )

    @torch.no_grad()
    def allocate_inducing_points(
        self,
        inputs: Tensor,
        covar_module: Kernel,
        num_inducing: int,
        input_batch_shape: torch.Size,
    ) -> Tensor:
        """Choose inducing points among the inputs.

        Args:
            inputs: `batch_shape x n x d` inputs.
            covar_module: The kernel. Of a batched one the first element is used for
                each output, and the matching one for each batch of inputs.
            num_inducing: The number `m` of points, at least one.
            input_batch_shape: The batch shape that the result needs, without outputs.

        Returns:
            `input_batch_shape x m x d` inducing points; fewer than `m` where there
            are fewer different inputs, and then repeated in a batch.

        Raises:
            InputDataError: If `num_inducing` is below one or there are no inputs.
        """
        if num_inducing < 1 or inputs.shape[-2] == 0:
            raise InputDataError(
                f"Got num_inducing={num_inducing} and {inputs.shape[-2]} inputs; need "
                "at least one of each."
            )
        covar_module = covar_module.to(inputs.device)
        if len(input_batch_shape) == 0:
            X = inputs[(0,) * (inputs.dim() - 2)]
            return self._choose(X, _element(covar_module, ()), num_inducing)
        batched = inputs.expand(*input_batch_shape, *inputs.shape[-2:])
        chosen = [
            _repeated(
                self._choose(X, _element(covar_module, i), num_inducing), num_inducing
            )
            for i, X in _elements(batched)
        ]
        return torch.stack(chosen).reshape(*input_batch_shape, num_inducing, -1)

    def _choose(self, X: Tensor, kernel: Kernel, m: int) -> Tensor:
        """Up to `m` different points out of `n x d`."""
        X = X[RepeatedRows.find(X).first]
        if len(X) <= m:
            return X
        generator = torch.Generator().manual_seed(self.seed)
        kernel, Z = in_double(kernel, X.dtype), X.double()
        noise = torch.full_like(Z[:, 0], self.noise)
        index = with_cap(self.sampler, m)(kernel, Z, noise, generator=generator)
        index = thinned(m, index, torch.ones_like(noise), generator)
        if len(index) < m:
            features = NystromFeatures.of(kernel, Z[index])
            leverage = ScaledResidual(features, Z, noise).summary().leverage
            tiny = torch.finfo(leverage.dtype).tiny
            index = weighted_sample(index, leverage.clamp_min(tiny), m, generator)
        return X[index]


def _elements(X: Tensor) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Indices and matrices of a batch, in row-major order."""
    for index in product(*map(range, X.shape[:-2])):
        yield index, X[index]


def _element(kernel: Kernel, index: tuple[int, ...]) -> Kernel:
    """The kernel of one batch of inputs and, after it, of the first output."""
    sizes = kernel.batch_shape
    padded = (*index, *(0,) * (len(sizes) - len(index)))[: len(sizes)]
    own = tuple(i if i < n else 0 for i, n in zip(padded, sizes, strict=True))
    return kernel_at(kernel, own)


def _repeated(points: Tensor, m: int) -> Tensor:
    """`m` rows: the points, over and over."""
    return points[torch.arange(m, device=points.device) % len(points)]
