"""How far the posterior was from the exact one, over a run."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.exceptions import UnsupportedError
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from botorch_sparse.argument_checks import check_kind
from botorch_sparse.inducing import (
    AccuracyCertificate,
    variance_inflation,
)
from botorch_sparse.models import ModelCertificate
from botorch_sparse.plotting.style import (
    GREY,
    finish_over_evaluations,
    new_axes,
    styles,
)
from botorch_sparse.strategies import Strategy

Certificate = AccuracyCertificate | ModelCertificate
CertifiedStep = tuple[int, Certificate]


def certified_step(strategy: Any) -> CertifiedStep:
    """The number of evaluations of a strategy, and the certificate of its posterior.

    A history does not hold the inducing points of the past, so certificates are taken
    while the strategy runs, after a `tell`. Cost: O(n m^2), and O(n^2 m) up to 5000
    different points.

    Args:
        strategy: `BBKB` or `BKB` with feedback, on a table or on a box. Of several
            outcomes it is the worst certificate.

    Raises:
        UnsupportedError: If the strategy has no inducing points to certify.
    """
    check_kind("strategy", strategy, Strategy, "BBKB or BKB with feedback")
    record, surrogate = strategy.record, strategy.surrogate
    certificate = None if surrogate is None else surrogate.certificate(record)
    if isinstance(certificate, tuple):  # one for each outcome
        known = [each for each in certificate if each is not None]
        certificate = max(known, key=lambda each: each.alpha, default=None)
    if certificate is None:
        raise UnsupportedError(
            f"{type(strategy).__name__} has no inducing points to certify; need BBKB "
            "or BKB after some feedback."
        )
    return len(strategy.history), certificate


def plot_certificates(
    steps: Mapping[str, Sequence[CertifiedStep] | Any], ax: Axes | None = None
) -> Figure:
    r"""The factor alpha between the variance and the exact GP's, over a run.

    For every `x` the exact variance is within :math:`[\sigma^2 / \alpha,
    \alpha \sigma^2]`. The dotted line is what :math:`\lambda_{\max} = \lambda` gives,
    2.62: the papers' theorems allow for a factor of 3.

    Args:
        steps: By name of the strategy, a list of `certified_step` taken while it ran,
            or the history of `SBPE`, which holds the certificates of its batches.
        ax: Axes to draw into.
    """
    need = "lists of certified_step, or histories of SBPE, by name"
    check_kind("steps", steps, Mapping, need)
    for name, run in steps.items():
        if not hasattr(run, "rounds"):
            check_kind(f"steps[{name!r}]", run, Sequence, need)
    ax = new_axes(ax)
    for style, run in zip(styles(steps), steps.values(), strict=True):
        n, alpha = _over_rounds(run) if hasattr(run, "rounds") else _over_steps(run)
        if len(n):
            ax.plot(n, alpha, marker=".", **style)
    ax.axhline(variance_inflation(1.0), color=GREY, lw=0.8, ls=":", zorder=0)
    ax.set(ylabel="certified factor of variances")
    ax.set_ylim(bottom=1.0)
    return finish_over_evaluations(ax)


def _over_steps(steps: Sequence[CertifiedStep]) -> tuple[Tensor, Tensor]:
    n = torch.tensor([n for n, _ in steps])
    return n, torch.tensor([certificate.alpha for _, certificate in steps])


def _over_rounds(history: Any) -> tuple[Tensor, Tensor]:
    """S-BPE's batches but for the first, whose posterior has no certificate."""
    lengths = torch.tensor([batch.num_evaluations for batch in history.rounds])
    r = torch.tensor([batch.lambda_max for batch in history.rounds])
    alpha = torch.tensor([variance_inflation(value) for value in r.tolist()])
    return lengths.cumsum(0)[~r.isnan()], alpha[~r.isnan()]
