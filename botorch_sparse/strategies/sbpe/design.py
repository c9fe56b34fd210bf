r"""How S-BPE spends its evaluations: lengths of batches, and how points are chosen.

References:
    .. [Vakili2022]
        S. Vakili, J. Scarlett, D. Shiu, A. Bernacchia. Improved Convergence Rates for
        Sparse Approximation Methods in Kernel-Based Learning. ICML 2022.
    .. [Li2022]
        Z. Li, J. Scarlett. Gaussian Process Bandit Optimization with Few Batches.
        AISTATS 2022.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from botorch.exceptions import InputDataError

from botorch_sparse.acquisition.confidence import ConfidenceRadius, Constants
from botorch_sparse.acquisition.confidence.radius import require, require_radius
from botorch_sparse.acquisition.confidence.sbpe_radius import Bias
from botorch_sparse.argument_checks import check_choice, check_number, check_whole
from botorch_sparse.inducing import RecursiveRLSSampler
from botorch_sparse.strategies.core.fingerprint import fingerprint

Schedule = Literal["sqrt", "doubling"]
Exploration = Literal["variance", "random"]
Refresh = Literal["certificate", "every", "exact"]
NEED_LAM = "need a positive noise variance, such as noise_std ** 2."


def batch_lengths(
    num_evaluations: int, schedule: Schedule | Sequence[int] = "sqrt"
) -> list[int]:
    r"""Lengths of the batches, the last one cut so that they sum up to the horizon.

    `"sqrt"`, [Vakili2022]_ Algorithm 1 line 3 after [Li2022]_, with :math:`N_0 = 1`:

    .. math:: N_i = \lceil \sqrt{N N_{i-1}} \rceil

    has O(log log N) batches. `"doubling"` starts at the same
    :math:`N_1 = \lceil \sqrt N \rceil` and doubles, O(log N) batches: more rounds of
    feedback, and eliminations come sooner. A sequence of lengths is taken as it is, its
    last entry repeated while the horizon is not reached.

    Args:
        num_evaluations: The horizon N.
        schedule: A name, or positive lengths in a list, an array or a tensor.

    Returns:
        Positive lengths.

    Raises:
        InputDataError: If the horizon or a length is below one, or the name is unknown.

    Example:
        >>> batch_lengths(10_000)
        [100, 1000, 3163, 5625, 112]
        >>> batch_lengths(1000, "doubling")
        [32, 64, 128, 256, 512, 8]
    """
    N = check_whole("num_evaluations", num_evaluations)
    fixed = None if isinstance(schedule, str) else _validate_lengths(schedule)
    if fixed is None and schedule not in get_args(Schedule):
        raise InputDataError(
            f"Got schedule={schedule!r}; need 'sqrt', 'doubling' or a list of lengths."
        )
    lengths: list[int] = []
    while (left := N - sum(lengths)) > 0:
        if fixed is not None:
            length = fixed[min(len(lengths), len(fixed) - 1)]
        elif schedule == "sqrt" or not lengths:
            # The smallest integer whose square is at least N N_{i-1}; exact.
            length = math.isqrt(N * (lengths[-1] if lengths else 1) - 1) + 1
        else:
            length = 2 * lengths[-1]
        lengths.append(min(length, left))
    return lengths


def max_num_batches(
    num_evaluations: int, schedule: Schedule | Sequence[int] = "sqrt"
) -> int:
    r"""The number B of batches that the confidence level is shared among.

    :math:`B = \lceil \log_2 \log_2 N \rceil + 1` for `"sqrt"` ([Li2022]_ Proposition 1;
    the base is 2: with natural logarithms the bound fails at N = 10^4), and 1 for
    N = 1; the number itself for other schedules.
    """
    if not isinstance(schedule, str) or schedule != "sqrt":
        return len(batch_lengths(num_evaluations, schedule))
    N = check_whole("num_evaluations", num_evaluations)
    return 1 if N <= 2 else math.ceil(math.log2(math.log2(N))) + 1


def _validate_lengths(lengths: Any) -> list[int]:
    """Positive integers, at least one of them."""
    given = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    if not isinstance(given, Sequence) or len(given) == 0:
        raise InputDataError(
            f"Got schedule={lengths!r}; need at least one batch length in a list."
        )
    return [check_whole("schedule, a batch length", each) for each in given]


@dataclass(frozen=True)
class Design:
    r"""What a run was asked for: how points are chosen, and how wide bounds are.

    Args:
        refresh: When inducing points are chosen again inside a batch. `"certificate"`:
            append when the bound on `r` exceeds one; `"every"`: a new draw after every
            point, as the paper writes, and the worst points appended where a draw
            fails; `"exact"`: every point of the batch is inducing (BPE, the exact
            posterior).
        delta: Failure probability of a whole run.
        num_batches: Batches B that share it.
        norm_bound: See `SBPE` for this and the next ones, up to `num_restarts`.
        lam: In squared units of Y; None for the noise variance of the prior.
        noise_std: In units of Y; None for the root of that noise variance.
        discretization: None for the constant of the kernel.
        radius: Takes the place of the paper's.
        sampler: For the draws of `"every"`.

    Raises:
        InputDataError: For an unknown name or a number out of its range.
    """

    refresh: Refresh
    delta: float
    num_batches: int
    norm_bound: float = 1.0
    constants: Constants = "theory"
    bias: Bias = "paper"
    mgf_radius: float = math.inf
    exploration: Exploration = "variance"
    raw_samples: int = 512
    num_restarts: int = 2
    lam: float | None = None
    noise_std: float | None = None
    discretization: float | None = None
    radius: ConfidenceRadius | None = None
    sampler: RecursiveRLSSampler = field(default_factory=RecursiveRLSSampler)

    def __post_init__(self) -> None:
        check_choice("refresh", self.refresh, get_args(Refresh))
        check_choice("exploration", self.exploration, get_args(Exploration))
        check_whole("raw_samples", self.raw_samples)
        check_whole("num_restarts", self.num_restarts)
        require(self, "(0, inf)", norm_bound="1")
        require(self, "(0, inf]", mgf_radius="inf for sub-Gaussian noise")
        if self.lam is not None:
            check_number("lam", self.lam, "(0, inf)", NEED_LAM)
        if self.noise_std is not None:
            check_number("noise_std", self.noise_std, "[0, inf)")
        if self.discretization is not None:
            check_number("discretization", self.discretization, "(0, inf)")
        if self.radius is not None:
            require_radius(self.radius)

    @property
    def is_random(self) -> bool:
        """Whether points are drawn, and no variance is looked at."""
        return self.exploration == "random"

    def draw_delta(self, draw: int) -> float:
        r"""Failure probability of the j-th draw of a batch.

        :math:`\delta_j = 3 \delta / (\pi^2 B j^2)` ([Vakili2022]_ Theorem 5.2): the
        draws of all batches together fail with probability at most
        :math:`\delta / 2`, and the other half is left to the confidence bounds.
        """
        return 3.0 * self.delta / (math.pi**2 * self.num_batches * draw**2)

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        names = (each.name for each in fields(self))
        return {name: fingerprint(getattr(self, name), name) for name in names}
