r"""The bounds on `var_fb(x) / var_t(x)`, as formulas of sums.

Rules for tables of candidates and acquisition functions share these; all variances
are Bayesian, :math:`d_s` the noise variance of the batch's s-th evaluation.

.. math::
    \text{sum} &: 1 + \textstyle\sum_s \mathrm{var}_{fb}(x_s) / d_s \\
    \text{product} &: \textstyle\prod_s (1 + \mathrm{var}_{s-1}(x_s) / d_s) \\
    \text{local} &: 1 + \max\{\textstyle\sum_s \mathrm{cov}_{fb}(x, x_s)^2 / d_s,
        \sum_s (w(x)^\top w(x_s))^2 / d_s\} / \mathrm{var}_{fb}(x)

References:
    [Calandriello2020]_ Lemma 1 (sum), Lemma 3 and Appendix B.3 (local);
    [Desautels2014]_ Eq. 20 (product). The first prints standard deviations where its
    proofs have variances.
"""

from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from botorch_sparse.argument_checks import check_choice, check_number

LocalBound: TypeAlias = Literal["both", "embedded", "paper"]


def sum_ratio(variance: Tensor, noise: Tensor) -> Tensor:
    """The sum bound, from `... x s` variances at the batch's start."""
    return 1.0 + (variance / noise).sum(-1)


def product_ratio(variance_before: Tensor, noise: Tensor) -> Tensor:
    """The product bound, from `... x s` variances just before each point."""
    return (1.0 + variance_before / noise).prod(-1)


def local_sum(full: Tensor, embedded: Tensor, covariance: LocalBound) -> Tensor:
    r"""The sum of squared covariances that the local bound is made of.

    The terms are :math:`\mathrm{cov}_{fb}(x, x_s)^2` and :math:`(w(x)^\top w(x_s))^2`.
    `"embedded"` is a bound on the ratio of this posterior with its inducing set frozen,
    and so is `"both"`, the larger of the two. `"paper"`, the full sum, is none, since
    residual covariances may be negative.
    """
    if covariance == "both":
        return torch.maximum(full, embedded)
    return embedded if covariance == "embedded" else full


def local_ratio(sums: Tensor, scale: Tensor) -> Tensor:
    """The local bound, from sums of squares and the variances they are relative to."""
    return 1.0 + sums / scale


def validate_local_bound(local_bound: str) -> None:
    """Refuse an unknown local bound."""
    check_choice("local_bound", local_bound, get_args(LocalBound))


def validate_ratio_threshold(ratio_threshold: float) -> None:
    """Refuse a threshold that no ratio of variances can stay below.

    Raises:
        InputDataError: If it is no number of at least 1.
    """
    need = "need at least 1, such as 2. One gives batches of one point."
    check_number("ratio_threshold", ratio_threshold, "[1, inf)", need)
