"""What a sparse model can say about itself."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from torch import Tensor

from botorch_sparse.inducing.certificate import (
    AccuracyCertificate,
    accuracy_certificates,
)
from botorch_sparse.posteriors import NystromPosterior


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


class SummaryMixin:
    """`certificate` and `summary` for a model with `AdaptiveInducingMixin`."""

    covar_module: Any
    likelihood: Any
    objective: str
    num_outputs: Any
    _inducing_set: Callable[..., Any]
    _inducing_cap: Callable[[], int]
    _certificate: tuple[NystromPosterior, ModelCertificate] | None = None

    def certificate(
        self,
        *,
        method: str = "auto",
        delta: float = 1e-3,
        generator: torch.Generator | None = None,
    ) -> ModelCertificate:
        """What the inducing points are worth under the present hyperparameters.

        For every `x`, the variance of the model and that of the exact GP with the same
        hyperparameters differ at most by the factor `alpha`, either way. This says
        nothing about the hyperparameters. The last answer is kept as long as the
        posterior is.

        Args:
            method: How `lambda_max` is bounded, see `accuracy_certificate`.
            delta: Failure probability of the bounds together, in (0, 1).
            generator: Source of randomness; by default a new one with a fixed seed.

        Returns:
            The certificate. Cost: O(n m^2); the model is then in eval mode.
        """
        self.eval()  # type: ignore[attr-defined]
        chosen = self._inducing_set()
        if self.is_exact:  # type: ignore[attr-defined]
            return self._summarize_certificates(chosen, ())
        posterior = self.nystrom_posterior()  # type: ignore[attr-defined]
        is_default = method == "auto" and delta == 1e-3 and generator is None
        if is_default and self._certificate and self._certificate[0] is posterior:
            return self._certificate[1]
        X, noise = self._unique_points_and_noise(chosen)
        num_outputs = noise.shape[:-1].numel()
        outputs = accuracy_certificates(
            posterior,
            X,
            noise,
            method=method,
            delta=delta / num_outputs,
            generator=generator,
        )
        answer = self._summarize_certificates(chosen, tuple(outputs))
        if is_default:
            self._certificate = (posterior, answer)
        return answer

    def summary(self) -> ModelSummary:
        """Sizes, hyperparameters and certificate, to print or to show in a notebook.

        Example:
            >>> from botorch_sparse.models import SparseSingleTaskGP
            >>> X = torch.linspace(0, 1, 20, dtype=torch.double).unsqueeze(-1)
            >>> print(SparseSingleTaskGP(X, X.sin()).summary())  # doctest: +ELLIPSIS
            SparseSingleTaskGP, exact
              observations...20
              ...
        """
        certificate = self.certificate()
        kind = "exact" if certificate.is_exact else "sparse"
        n = self.train_targets.shape[-1]  # type: ignore[attr-defined]
        rows = [("observations", str(n))]
        if certificate.num_points < n:
            rows.append(("different points", str(certificate.num_points)))
        if self.num_outputs > 1:
            rows.append(("outputs", str(self.num_outputs)))
        if not certificate.is_exact:
            rows += self._sparse_rows(certificate)
        rows += self._hyperparameter_rows()
        return ModelSummary(f"{type(self).__name__}, {kind}", tuple(rows))

    def _unique_points_and_noise(self, chosen: Any) -> tuple[Tensor, Tensor]:
        """Transformed unique training points and the noise of folded observations."""
        X = self._transformed_train_X()  # type: ignore[attr-defined]
        data = self._folded_data(X, chosen.rows)  # type: ignore[attr-defined]
        return X[..., chosen.rows.first, :], data.noise

    def _summarize_certificates(
        self, chosen: Any, outputs: tuple[AccuracyCertificate, ...]
    ) -> ModelCertificate:
        """The worst of the outputs, and what the model knows of its inducing points."""
        sampler = self.inducing_sampler  # type: ignore[attr-defined]
        is_sampled = chosen.given is None
        cap = self._inducing_cap() if is_sampled else None
        m = chosen.points.shape[-2]
        n_unique = len(chosen.rows.first)
        tolerance = getattr(sampler, "tolerance", None) if is_sampled else None
        return ModelCertificate(
            num_points=n_unique,
            num_inducing=max((output.num_inducing for output in outputs), default=m),
            effective_dimension=max(
                (output.effective_dimension for output in outputs), default=float("nan")
            ),
            lambda_max=max((output.lambda_max for output in outputs), default=0.0),
            failure_probability=sum(output.failure_probability for output in outputs),
            tolerance=tolerance,
            cap=cap,
            is_capped=cap is not None and m >= cap and not chosen.is_complete,
            is_exact=not outputs,
            outputs=outputs,
        )

    def _sparse_rows(self, certificate: ModelCertificate) -> list[tuple[str, str]]:
        """What only a sparse model has."""
        m = str(certificate.num_inducing)
        if certificate.is_capped:
            m += f" (the cap of {certificate.cap} is reached)"
        factor = f"within a factor {certificate.alpha:.3g} of the exact one"
        bound = f"{certificate.lambda_max:.3g}"
        if certificate.failure_probability > 0:
            bound += f" (fails with probability {certificate.failure_probability:.0e})"
        return [
            ("inducing points", m),
            ("objective", self.objective),
            ("effective dimension", f"at most {certificate.effective_dimension:.4g}"),
            ("lambda_max / noise", f"at most {bound}"),
            ("variance", factor),
        ]

    def _hyperparameter_rows(self) -> list[tuple[str, str]]:
        """Noise and kernel parameters, each as a value or a range."""
        noise = getattr(self.likelihood, "noise", None)
        rows = [] if noise is None else [("noise variance", _range(noise))]
        for name, constraint_free in _kernel_values(self.covar_module):
            rows.append((name, _range(constraint_free)))
        return rows


def _kernel_values(covar_module: Any) -> list[tuple[str, Tensor]]:
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
