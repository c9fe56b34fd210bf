r"""A subset of samples whose gradients point in diverse directions.

References:
    .. [Wei2025]
        Q. Wei, H. Wang, Z. Cao, S. Wang, R. Allmendinger, M. A. Alvarez. Gradient-based
        Sample Selection for Faster Bayesian Optimization. 2025 (GSSBO).
    .. [Aljundi2019]
        R. Aljundi, M. Lin, B. Goujaud, Y. Bengio. Gradient Based Sample Selection for
        Online Continual Learning. NeurIPS 2019.
"""

from collections.abc import Callable, Sequence

import torch
from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_sparse.argument_checks import check_number, check_tensors, check_whole
from botorch_sparse.inducing.gradient_factors import GradientFactors, perturb

# Scores nearer than this many roundings per chosen sample are a tie.
TIE = 32


def select_by_gradient_diversity(
    gradients: Tensor | GradientFactors,
    num: int,
    forced: Tensor | Sequence[int] | None = None,
    noise_scale: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Greedy choice of samples with diverse gradient directions [Wei2025]_ Sec. 4.2.

    Starting from the forced samples, the next one is

    .. math::
        \arg\min_i \Bigl\langle \frac{\tilde g_i}{\|\tilde g_i\|},
            \sum_{j \in \mathcal U} \frac{\tilde g_j}{\|\tilde g_j\|} \Bigr\rangle,
        \qquad \tilde g_i = g_i + \epsilon_i, \quad
        \epsilon_i \sim \mathcal N(0, \sigma_d^2 I)

    until `num` are chosen: the greedy maximizer of the variance of directions, Eq. 1
    ([Aljundi2019]_ Algorithm 2). The perturbation is added before the gradients are
    normalized (Sec. 4.3 (3)); the paper's experiments take a variance of 0.01. Ties go
    to the lowest index; where gradients are perturbed they are broken at random, which
    matters for scalars: their directions are signs, and all of one sign tie. A gradient
    of zero has no direction: it scores 0.

    It looks at gradients alone, so that it serves any surrogate: for a neural network
    stack the gradients of the samples' losses (`torch.func.vmap` of `torch.func.grad`),
    for a Gaussian process see `pilot_gradients`.

    Args:
        gradients: `n x p`, one row for each sample (a vector is `n` scalars), or
            `GradientFactors` of gradients that are too many to be formed.
        num: Size of the subset, forced samples included, between their number and `n`.
        forced: Indices of samples that are in the subset whatever their gradients.
        noise_scale: Standard deviation :math:`\sigma_d` of the perturbation, in the
            units of the gradients; 0.1 is the paper's. Each coordinate of a row is
            perturbed independently; see `GradientFactors.perturbed` for factors.
        generator: Source of the perturbation, on any device; without one it is torch's.

    Returns:
        `num` indices: the forced ones and then the others, in the order of choice. Cost
        of each: O(n p), or O(n m) for factors of rank `m`; nothing `n x n` is formed.

    Raises:
        BotorchTensorDimensionError: If `gradients` is not a matrix.
        InputDataError: If `num` or `forced` do not fit, if `noise_scale` is negative,
            or if a gradient is not finite.

    Example:
        >>> gradients = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [-1.0, -1.0]])
        >>> select_by_gradient_diversity(gradients, num=3, forced=[0]).tolist()
        [0, 3, 2]
    """
    if not isinstance(gradients, GradientFactors):
        check_tensors(gradients=gradients)
        gradients = _validated(gradients)
    n = len(gradients)
    start = validate_forced(forced, num, n, gradients.device)
    need = (
        "the standard deviation of the perturbation must not be negative. Use 0 for "
        "none, 0.1 as in the paper."
    )
    check_number("noise_scale", noise_scale, "[0, inf)", need)
    order = torch.arange(n, device=start.device)
    if isinstance(gradients, GradientFactors):
        factors = gradients
        if noise_scale > 0:
            factors = factors.perturbed(noise_scale, generator)
            order = _shuffled(order, generator)
        gram = factors.gram()
        return _greedy(gram.row, gram.squared_norms, num, start, order)
    if noise_scale > 0:
        gradients = perturb(gradients, noise_scale, generator)
        order = _shuffled(order, generator)
    directions = torch.nn.functional.normalize(gradients, dim=-1, eps=0.0)
    # Columns in memory one after another, for faster products.
    directions = directions.nan_to_num(nan=0.0).mT.contiguous().mT

    def row(j: Tensor) -> Tensor:
        return directions @ directions.index_select(0, j).squeeze(0)  # O(n p)

    return _greedy(row, directions.new_ones(n), num, start, order)


def _shuffled(order: Tensor, generator: torch.Generator | None) -> Tensor:
    """The ranks in a random order."""
    device = "cpu" if generator is None else generator.device
    shuffle = torch.randperm(len(order), generator=generator, device=device)
    return shuffle.to(order.device)


def _greedy(
    row: Callable[[Tensor], Tensor],
    squared_norms: Tensor,
    num: int,
    start: Tensor,
    order: Tensor,
) -> Tensor:
    """The greedy choice of `num` indices, `start` included; no copy to the host.

    `row` gives inner products of one gradient with all `n`. The lowest `order` wins.
    """
    inverse = squared_norms.clamp_min(0).rsqrt()
    inverse = torch.where(squared_norms > 0, inverse, torch.zeros_like(inverse))
    total, taken = torch.zeros_like(inverse), torch.zeros_like(inverse)
    tie = TIE * torch.finfo(inverse.dtype).eps
    chosen = list(start.unsqueeze(-1).unbind())
    for t in range(num):
        if t >= len(start):
            scores = torch.addcmul(taken, total, inverse)
            # The first of those that are the smallest up to rounding.
            is_tied = scores <= scores.min() + tie * max(1, t)
            chosen.append(order.where(is_tied, len(order)).argmin(keepdim=True))
        taken.index_fill_(0, chosen[t], torch.inf)
        total.addcmul_(row(chosen[t]), inverse.index_select(0, chosen[t]))
    return torch.cat(chosen) if chosen else start


def _validated(gradients: Tensor) -> Tensor:
    """The gradients as a matrix of finite numbers; anything else is refused."""
    if gradients.dim() == 1:
        gradients = gradients.unsqueeze(-1)
    if gradients.dim() != 2:
        raise BotorchTensorDimensionError(
            f"Got gradients of shape {tuple(gradients.shape)}; need `n x p`, one row "
            "for each sample. Try gradients.flatten(start_dim=1)."
        )
    if not gradients.is_floating_point() or not gradients.isfinite().all():
        raise InputDataError(
            f"Got gradients in {gradients.dtype} with "
            f"{int((~gradients.isfinite()).sum())} entries that are NaN or infinite; "
            "all must be finite floating-point numbers."
        )
    return gradients.detach()


def validate_forced(
    forced: Tensor | Sequence[int] | None, num: int, n: int, device: torch.device
) -> Tensor:
    """The forced indices as a tensor: different ones in range that fit into `num`."""
    given = torch.as_tensor([] if forced is None else forced)
    index = given.cpu()
    is_index = index.dim() == 1 and (index.numel() == 0 or index.dtype == torch.int64)
    if not is_index or len(index.unique()) < len(index):
        raise InputDataError(
            f"Got forced={forced}; need a vector of different int64 indices."
        )
    if len(index) > 0 and not 0 <= index.min() <= index.max() < n:
        raise InputDataError(
            f"Got forced indices from {int(index.min())} to {int(index.max())} for {n} "
            f"samples; they must be from 0 to {n - 1}."
        )
    need = f"need an integer from {len(index)} to {n}, forced samples included."
    if check_whole("num", num, len(index), need) > n:
        raise InputDataError(f"Got num={num} for {n} samples; {need}")
    return given.to(device).long()
