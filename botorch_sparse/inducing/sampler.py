"""What every sampler of inducing points offers, and what samplers draw with.

References:
    .. [Efraimidis2006]
        P. S. Efraimidis and P. G. Spirakis. Weighted random sampling with a reservoir.
        Information Processing Letters 97(5), 2006.
"""

import math
from dataclasses import is_dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from botorch.exceptions import InputDataError
from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_sparse.argument_checks import check_whole, short_repr
from botorch_sparse.kernels import prior_variance

# Rows of a cross-covariance taken at a time.
CHUNK_SIZE = 2048


@runtime_checkable
class InducingPointSampler(Protocol):
    """Chooses inducing points among the training points, by index.

    A sampler sees the unique training points with the noise variance that is left after
    repeats were folded (`noise / n_i` for a point seen `n_i` times), so that
    `variance / noise` is the ridge leverage score with repeats counted.

    A function of these arguments will do. A sampler may say more of itself by
    attributes, which are read by `uses_variance`, `returns_valid_indices` and `cap_of`.
    """

    def __call__(
        self,
        covar_module: Kernel,
        X: Tensor,
        noise: Tensor,
        *,
        generator: torch.Generator,
        variance: Tensor | None = None,
    ) -> Tensor:
        """Draw inducing points.

        Args:
            covar_module: The kernel.
            X: `n x d` unique training points.
            noise: `n` noise variances of the (folded) observations.
            generator: Source of randomness, on any device.
            variance: `n` posterior variances at `X` under the previous inducing set,
                for the samplers that use them.

        Returns:
            Sorted indices into the rows of `X`, at least one when `n > 0`.
        """
        ...


def uses_variance(sampler: InducingPointSampler) -> bool:
    """Whether a sampler wants variances under previous inducing points, O(n m^2).

    It says so by an attribute `uses_variance`; without one it gets them.
    """
    return bool(getattr(sampler, "uses_variance", True))


def returns_valid_indices(sampler: InducingPointSampler) -> bool:
    """Whether a sampler vouches that its indices are in range.

    It does so by an attribute `returns_valid_indices`. What others return is looked at
    on a device as well, where a look is a wait and a wrong index ends the process.
    """
    return bool(getattr(sampler, "returns_valid_indices", False))


def cap_of(sampler: InducingPointSampler) -> int | None:
    """A sampler's attribute `max_inducing_points`, or None where it has no cap."""
    cap: int | None = getattr(sampler, "max_inducing_points", None)
    return cap


def with_cap(sampler: InducingPointSampler, cap: int | None) -> InducingPointSampler:
    """The sampler with at most `cap` points, if it is a dataclass with such a field.

    Others stay as they are, so that whoever needs the cap has to leave out some points.
    """
    own = cap_of(sampler)
    if cap is None or (own is not None and own <= cap):
        return sampler
    if not is_dataclass(sampler) or not hasattr(sampler, "max_inducing_points"):
        return sampler
    return replace(sampler, max_inducing_points=cap)


def bernoulli(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Indices of independent Bernoulli draws, `n` probabilities in [0, 1].

    The draw happens on the generator's device, so that a seed gives the same points
    wherever the data live.
    """
    uniform = torch.rand(
        probabilities.shape,
        generator=generator,
        dtype=torch.float64,
        device=generator.device,
    )
    return (uniform.to(probabilities.device) < probabilities).nonzero().squeeze(-1)


def draw(p: Tensor, cap: int | None, generator: torch.Generator) -> Tensor:
    """Sorted indices of Bernoulli draws: at least the likeliest, and at most `cap`."""
    index = bernoulli(p, generator)
    if len(index) == 0 and len(p) > 0:
        return p.argmax().unsqueeze(0)
    return thinned(cap, index, p, generator)


def thinned(
    cap: int | None, index: Tensor, p: Tensor, generator: torch.Generator
) -> Tensor:
    """At most `cap` of the indices, drawn in proportion to `p` (of all points)."""
    if cap is None or len(index) <= cap:
        return index
    weights = p[index].to(generator.device)
    chosen = torch.multinomial(weights, cap, generator=generator)
    return index[chosen.to(index.device)].sort().values


def weighted_sample(
    index: Tensor,
    weight: Tensor,
    size: int,
    generator: torch.Generator,
    available: int | None = None,
) -> Tensor:
    """`size` points, sorted: `index` and others in proportion to `n` weights.

    The largest of `weight / exponential` variates are such a sample, without
    replacement [Efraimidis2006]_. Points of weight zero stay out. `available` is how
    many points have some weight or are in `index`, if that is known.
    """
    uniform = torch.rand(
        len(weight), generator=generator, dtype=torch.float64, device=generator.device
    )
    keys = weight / -uniform.clamp_min(1e-300).log().to(weight)
    keys = keys.index_fill(0, index, math.inf)
    available = int((keys > 0).sum()) if available is None else available
    size = max(min(size, available), min(1, len(keys)))
    return keys.topk(size).indices.sort().values


def covariance_matrix(covar_module: Kernel, S: Tensor, variance: Tensor) -> Tensor:
    """The covariance of `m x d` points whose prior variances are known, `m x m`.

    GPyTorch compares inputs of one shape, to give equal points their exact variance,
    and a host that has a device waits for that. There, another column makes the shapes
    differ, and the diagonal is put in.
    """
    if S.is_cpu:
        return covar_module(S).to_dense()
    K = covar_module(S, torch.cat([S, S[:1]])).to_dense()
    return K[:, :-1].diagonal_scatter(variance)


def variance_given(covar_module: Kernel, X: Tensor, S: Tensor, noise: Tensor) -> Tensor:
    """Exact GP variance at `n x d` points given observations at `m x d` points `S`.

    `K_SS + D` is factorized as it is: its smallest eigenvalue is at least min(noise),
    so only a failure to rounding calls for jitter, of the order of the noise. Cost: O(n
    m^2) time, O(m^2 + chunk m) memory.
    """
    if len(S) == 0:
        return prior_variance(covar_module, X)
    A = covar_module(S).to_dense() + torch.diag_embed(noise)
    L = psd_safe_cholesky(A)
    variances = []
    for chunk in X.split(CHUNK_SIZE):
        cross = covar_module(S, chunk).to_dense()
        v = torch.linalg.solve_triangular(L, cross, upper=False)
        k_diag = prior_variance(covar_module, chunk)
        variances.append((k_diag - v.square().sum(-2)).clamp_min(0.0))
    return torch.cat(variances)


def validate_cap(max_inducing_points: int | None) -> None:
    """Refuse a cap below one."""
    if max_inducing_points is not None:
        need = "need at least 1, or None for no cap."
        check_whole("max_inducing_points", max_inducing_points, 1, need)


def validate_sampler(name: str, sampler: object) -> None:
    """Refuse what is no sampler, such as a number or a class; None is fine."""
    if sampler is not None and (isinstance(sampler, type) or not callable(sampler)):
        raise InputDataError(
            f"Got {name}={short_repr(sampler)}; need an instance of an "
            "InducingPointSampler, such as RecursiveRLSSampler(), or None."
        )
