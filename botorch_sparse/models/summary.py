"""What a sparse model can say about itself."""

from dataclasses import dataclass
from html import escape

import torch
from botorch.models import SingleTaskGP
from gpytorch.module import Module
from torch import Tensor

from botorch_sparse.argument_checks import check_number
from botorch_sparse.inducing.certificate import (
    AccuracyCertificate,
    accuracy_certificates,
)
from botorch_sparse.models.inducing_points import InducingPoints, InducingSet
from botorch_sparse.models.training_data import TrainingData
from botorch_sparse.posteriors import NystromPosterior

# A difference of log likelihoods for each observation that says nothing.
NONE = 1e-4


@dataclass(frozen=True)
class ModelCertificate:
    """What the inducing points of a model are worth, the worst of its outputs.

    Attributes:
        num_points: Unique training points.
        num_inducing: Inducing points `m` in use.
        effective_dimension: Upper bound on the effective dimension.
        lambda_max: Upper bound `r` on the largest eigenvalue of
            `D^-1/2 (K - Q) D^-1/2`; 0 where the model is exact.
        failure_probability: Probability that a bound is wrong.
        tolerance: The `r` that the model grew its inducing points to, or None where
            they were given or a sampler without a tolerance drew them.
        cap: Largest number of inducing points allowed, or None where they were given.
        is_capped: Whether the cap was reached before all that was needed was drawn.
        is_exact: Whether the model is the exact GP.
        outputs: The certificate of each output (and batch), none for the exact GP.
    """

    num_points: int
    num_inducing: int
    effective_dimension: float
    lambda_max: float
    failure_probability: float
    tolerance: float | None
    cap: int | None
    is_capped: bool
    is_exact: bool
    outputs: tuple[AccuracyCertificate, ...] = ()

    @property
    def alpha(self) -> float:
        """Factor between the variance of the model and the exact one, either way."""
        return max((output.alpha for output in self.outputs), default=1.0)

    @property
    def is_certified(self) -> bool:
        """Whether `lambda_max` is within the tolerance (1 where there is none)."""
        return self.lambda_max <= (1.0 if self.tolerance is None else self.tolerance)


@dataclass(frozen=True, order=True)
class LikelihoodGap:
    """How far hyperparameters are from the exact likelihood's optimum after a fit.

    Attributes:
        per_observation: How much larger the exact log likelihood of some observations
            is where it was maximized, for each of them; 0 where that was kept.
        num_observations: How many they are.
    """

    per_observation: float
    num_observations: int


@dataclass(frozen=True)
class ModelSummary:
    """Names and values, printed as a table in a terminal and in a notebook.

    Attributes:
        title: The first line.
        rows: Names and values.
    """

    title: str
    rows: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows)
        lines = [f"  {name:<{width}}  {value}" for name, value in self.rows]
        return "\n".join([self.title, *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cell = '<td style="text-align: left">{}</td>'
        body = "".join(
            f"<tr>{cell.format(escape(name))}{cell.format(escape(value))}</tr>"
            for name, value in self.rows
        )
        return f"<table><caption>{escape(self.title)}</caption>{body}</table>"


def certify(
    chosen: InducingSet,
    points: InducingPoints,
    data: TrainingData,
    posterior: NystromPosterior | None,
    *,
    method: str = "auto",
    delta: float = 1e-3,
    generator: torch.Generator | None = None,
) -> ModelCertificate:
    """What the inducing points of a model are worth, the worst of the outputs.

    `posterior` is None for the exact GP. For the others see
    `SparseSingleTaskGP.certificate`. Cost: O(n m^2).
    """
    check_number("delta", delta, "(0, 1)")
    num_outputs = data.noise.shape[:-1].numel()
    outputs: tuple[AccuracyCertificate, ...] = ()
    if posterior is not None:
        outputs = tuple(
            accuracy_certificates(
                posterior,
                data.points,
                data.folded.noise,
                method=method,
                delta=delta / num_outputs,
                generator=generator,
            )
        )
    is_drawn = chosen.given is None
    cap = points.cap(num_outputs) if is_drawn else None
    m = chosen.points.shape[-2]
    dimensions = [output.effective_dimension for output in outputs]
    return ModelCertificate(
        num_points=len(data.rows.first),
        num_inducing=max((output.num_inducing for output in outputs), default=m),
        effective_dimension=max(dimensions, default=float("nan")),
        lambda_max=max((output.lambda_max for output in outputs), default=0.0),
        failure_probability=sum(output.failure_probability for output in outputs),
        tolerance=getattr(points.sampler, "tolerance", None) if is_drawn else None,
        cap=cap,
        is_capped=cap is not None and m >= cap and not chosen.is_complete,
        is_exact=posterior is None,
        outputs=outputs,
    )


def summarize(
    model: SingleTaskGP,
    certificate: ModelCertificate,
    objective: str,
    gap: LikelihoodGap | None,
) -> ModelSummary:
    """Sizes, hyperparameters and certificate of a model, and how far its fit is off."""
    kind = "exact" if certificate.is_exact else "sparse"
    n = model.train_targets.shape[-1]
    rows = [("observations", str(n))]
    if certificate.num_points < n:
        rows.append(("different points", str(certificate.num_points)))
    if model.num_outputs > 1:
        rows.append(("outputs", str(model.num_outputs)))
    if num_outliers := int((model.outlier_noise > 0).sum()):
        rows.append(("outliers", str(num_outliers)))
    if not certificate.is_exact:
        rows += _sparse_rows(certificate, objective)
    if gap is not None:
        rows.append(("exact likelihood", _gap_text(gap, n)))
    rows += _hyperparameter_rows(model)
    return ModelSummary(f"{type(model).__name__}, {kind}", tuple(rows))


def _sparse_rows(
    certificate: ModelCertificate, objective: str
) -> list[tuple[str, str]]:
    """What only a sparse model has."""
    m = str(certificate.num_inducing)
    if certificate.is_capped:
        m += f" (the cap of {certificate.cap} is reached)"
    bound = f"{certificate.lambda_max:.3g}"
    if certificate.failure_probability > 0:
        bound += f" (fails with probability {certificate.failure_probability:.0e})"
    return [
        ("inducing points", m),
        ("objective", objective),
        ("effective dimension", f"at most {certificate.effective_dimension:.4g}"),
        ("lambda_max / noise", f"at most {bound}"),
        ("variance", f"within a factor {certificate.alpha:.3g} of the exact one"),
    ]


def _gap_text(gap: LikelihoodGap, n: int) -> str:
    """Where a fit is as to the exact likelihood of some of `n` observations."""
    where = "at its optimum"
    if gap.per_observation > NONE:
        where = f"{gap.per_observation:.2g} an observation below its optimum"
    if gap.num_observations < n:
        where += f", of {gap.num_observations} random ones"
    return where


def _hyperparameter_rows(model: SingleTaskGP) -> list[tuple[str, str]]:
    """Noise and kernel parameters, each as a value or a range."""
    noise = getattr(model.likelihood, "noise", None)
    rows = [] if noise is None else [("noise variance", _range(noise))]
    values = _kernel_values(model.covar_module)
    return rows + [(name, _range(value)) for name, value in values]


def _kernel_values(covar_module: Module) -> list[tuple[str, Tensor]]:
    """Lengthscales and outputscales of all kernels inside."""
    values = []
    for module in covar_module.modules():
        for name in ("lengthscale", "outputscale"):
            value = getattr(module, name, None)
            if isinstance(value, Tensor):
                values.append((name, value))
    return values


def _range(values: Tensor) -> str:
    """One number, or the smallest and the largest."""
    low, high = values.min().item(), values.max().item()
    same = f"{low:.3g}" == f"{high:.3g}"
    return f"{low:.3g}" if same else f"{low:.3g} to {high:.3g}"
