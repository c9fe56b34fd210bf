r"""How far a subset is from all data, by errors that are measured.

With :math:`\lambda`-scaled quantities, :math:`\tilde k = D^{-1/2} k_X(x)`,
:math:`\tilde y = D^{-1/2}(y - c)`, and the spectral error :math:`r`, an upper bound on
the largest eigenvalue of :math:`D^{-1/2} (K - \hat K) D^{-1/2}`:

`approximation="theorem"` is [Wei2025]_ Theorem 5.1. Its approximate posterior has all
observations and :math:`\hat K = K_{XU} K_{UU}^{-1} K_{UX}` in place of `K`:

.. math::
    |\Delta\mu| \le \|\tilde k\| \|\tilde y\| \tfrac{r}{1 + r}, \qquad
    0 \le \Delta\sigma^2 \le \|\tilde k\|^2 \tfrac{r}{1 + r}.

The paper has :math:`C_M \|K - \hat K\|`, at best `r`, in place of `r / (1 + r)`. Since
:math:`\hat K \preceq K \preceq \hat K + r D`, the inverses of `I + K` and
:math:`I + \hat K` (scaled) differ by at most :math:`1 - 1/(1 + r)`. The paper goes on
to bound the error by an eigenvalue and an unknown constant; here it is measured.

`approximation="subset"` is the posterior of the model, the exact GP on the subset `U`,
of which the theorem says nothing. Conditioning it on the other rows `R`, whose
covariance given `U` is `C`, gives the GP on all data. With :math:`\hat K` now the part
of :math:`K_{RR}` that the noisy observations of `U` explain,
:math:`K_{RR} - \hat K = C`, and errors :math:`e = D_R^{-1/2} (y_R - \mu_U(R))`:

.. math::
    0 \le \sigma_U^2 - \sigma^2 \le \sigma_U^2 \tfrac{r}{1 + r}, \qquad
    |\Delta\mu| \le \sigma_U \sqrt{\tfrac{r}{1 + r}} \, \|e\|.

Proof: with c the covariance of x with `R` given `U`, the differences are
:math:`c^\top (C + D)^{-1} c` and :math:`c^\top (C + D)^{-1} (y_R - \mu_U)`. As
:math:`C - c c^\top / \sigma_U^2 \succeq 0`, the first is at most
:math:`\sigma_U^2 \lambda_{\max}(C (C + D)^{-1})`, and Cauchy-Schwarz with
:math:`(C + D)^{-1} \preceq D^{-1}` gives the second.
"""

from typing import NamedTuple, TypedDict

import torch
from botorch.exceptions import UnsupportedError
from botorch.models.transforms.outcome import Standardize
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import check_choice, check_number
from botorch_sparse.inducing import AccuracyCertificate, accuracy_certificate
from botorch_sparse.kernels import in_double, kernel_at
from botorch_sparse.models.subset.fixed_subset import (
    FixedSubsetSingleTaskGP,
    all_observations,
)
from botorch_sparse.models.subset.row_indices import other_rows
from botorch_sparse.posteriors import NystromFeatures


class ObservedKernel(Kernel):
    r"""A kernel, and the noise of those points that are observations.

    .. math::
        \tilde k(z, z') = k(x, x') + d_i \, [z \text{ and } z' \text{ are observation }
        i]

    With noisy observations of `U` as inducing points, the residual of Nystrom features
    is the posterior covariance of values given these observations,
    :math:`k(x, x') - k_U(x)^\top (K_{UU} + D)^{-1} k_U(x')`.

    Args:
        prior: The kernel `k`, unbatched. It has all hyperparameters.
    """

    def __init__(self, prior: Kernel) -> None:
        super().__init__()
        self.prior = prior

    @staticmethod
    def values(X: Tensor) -> Tensor:
        """The process itself at `n x d` points, as inputs `n x (d + 2)`."""
        return torch.nn.functional.pad(X, (0, 2))

    @staticmethod
    def observations(X: Tensor, noise: Tensor) -> Tensor:
        """Observations with `n` noise variances, as inputs `n x (d + 2)`."""
        number = torch.arange(1, len(X) + 1, dtype=X.dtype, device=X.device)
        return torch.cat([X, noise.unsqueeze(-1), number.unsqueeze(-1)], -1)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object
    ) -> Tensor:
        """The matrix, or its diagonal."""
        noise, first, second = x1[..., -2], x1[..., -1], x2[..., -1]
        K = self.prior(x1[..., :-2], x2[..., :-2], diag=diag)
        if diag:
            return K + noise * (first == second)
        if not bool(first.any()):  # values alone, of which there may be many
            return K.to_dense()
        is_same = first.unsqueeze(-1) == second.unsqueeze(-2)
        return K.to_dense() + noise.unsqueeze(-1) * is_same


APPROXIMATIONS = ("subset", "theorem")


class SubsetErrorBounds(NamedTuple):
    """What the rows that are left out can change.

    Attributes:
        mean: `q x m` bounds on the difference of the means, in units of Y.
        variance: `q x m` bounds on the difference of the variances, in squared units.
        spectral_error: The upper bound r, one for each output, in units of the noise
            variance.
        failure_probability: Of these bounds together.
    """

    mean: Tensor
    variance: Tensor
    spectral_error: Tensor
    failure_probability: float


class _Options(TypedDict, total=False):
    """Of `accuracy_certificate`."""

    method: str
    delta: float
    generator: torch.Generator | None


class ErrorOptions(_Options, total=False):
    """Of `subset_error_bounds`."""

    approximation: str


@torch.no_grad()
def subset_error_bounds(
    model: FixedSubsetSingleTaskGP,
    X: Tensor,
    *,
    approximation: str = "subset",
    method: str = "auto",
    delta: float = 1e-3,
    generator: torch.Generator | None = None,
) -> SubsetErrorBounds:
    """Bounds on the distance to the exact GP on all data, same hyperparameters.

    Args:
        model: A model of unbatched data; it is in eval mode afterwards.
        X: `q x d` inputs, before the input transform.
        approximation: `"subset"` for the posterior of the model, `"theorem"` for that
            of Theorem 5.1; see the module.
        method: How the spectral error is bounded, see `accuracy_certificate`.
        delta: Failure probability allowed to methods that draw, in (0, 1).
        generator: Source of randomness; by default a new one with a fixed seed.

    Returns:
        The bounds. They are of use where they are small against the standard deviation:
        with little noise and much left out they say nothing. Cost: O(n M^2), and O(n^2)
        kernel values up to n = 5000.

    Raises:
        InputDataError: For an unknown approximation, or a probability that is none.
        UnsupportedError: For batched data, and for outcome transforms other than
            `Standardize`.
    """
    check_choice("approximation", approximation, APPROXIMATIONS)
    check_number("delta", delta, "(0, 1)")
    scale = _scale(model)
    bounds = _theorem_bounds if approximation == "theorem" else _subset_bounds
    delta = delta / model.num_outputs
    options: _Options = {"method": method, "delta": delta, "generator": generator}
    outputs = [bounds(view, options) for view in _View.outputs(model.eval(), X)]
    r = torch.tensor([output.certificate.lambda_max for output in outputs])
    return SubsetErrorBounds(
        (torch.stack([output.mean for output in outputs], -1) * scale).to(X),
        (torch.stack([output.variance for output in outputs], -1) * scale**2).to(X),
        r.to(X),
        sum(output.certificate.failure_probability for output in outputs),
    )


class _View(NamedTuple):
    """One output of a model in float64, transformed."""

    kernel: Kernel
    X: Tensor  # `n x d` inputs of all rows
    error: Tensor  # `n` observations less the prior mean
    noise: Tensor  # `n` noise variances
    subset: Tensor  # the rows in use
    others: Tensor  # the rows that are not
    test: Tensor  # `q x d` inputs to predict at

    @classmethod
    def outputs(cls, model: FixedSubsetSingleTaskGP, X: Tensor) -> list["_View"]:
        """What a model sees, output by output."""
        data, error, noise = all_observations(model)
        kernel = in_double(model.covar_module, data.dtype)
        data, error, noise = data.double(), error.double(), noise.double()
        subset = model.subset
        others = other_rows(len(subset.full), subset.rows).to(data.device)
        split = (subset.index, others, model.transform_inputs(X).double())
        noise = noise.expand_as(error)
        if model.num_outputs == 1:
            return [cls(kernel, data, error, noise, *split)]
        return [
            cls(kernel_at(kernel, (i,)), data[i], error[i], noise[i], *split)
            for i in range(model.num_outputs)
        ]


NO_ERROR = AccuracyCertificate(0, 0, 0.0, 0.0, "trace", 0.0, None, trace=0.0)


class _Bounds(NamedTuple):
    """Bounds for one output, each `q`."""

    mean: Tensor
    variance: Tensor
    certificate: AccuracyCertificate


def _theorem_bounds(view: _View, options: _Options) -> _Bounds:
    """Theorem 5.1, for the posterior with all observations."""
    features = NystromFeatures.of(view.kernel, view.X[view.subset])
    certificate = accuracy_certificate(features, view.X, view.noise, **options)
    share, root = _share(certificate), view.noise.sqrt()
    k_norm = (view.kernel(view.test, view.X).to_dense() / root).norm(dim=-1)
    y_norm = (view.error / root).norm()
    return _Bounds(k_norm * y_norm * share, k_norm.square() * share, certificate)


def _subset_bounds(view: _View, options: _Options) -> _Bounds:
    """The exact GP on the subset against that on all data."""
    subset, others = view.subset, view.others
    if len(others) == 0:
        zero = view.test.new_zeros(len(view.test))
        return _Bounds(zero, zero, NO_ERROR)
    prior, rest = _given_subset(view), ObservedKernel.values(view.X[others])
    noise, test = view.noise[others], ObservedKernel.values(view.test)
    certificate = accuracy_certificate(prior, rest, noise, **options)
    share = _share(certificate)
    y_U = view.error[subset][prior.inducing_index]
    weights = torch.linalg.solve_triangular(
        prior.chol_inducing, y_U.unsqueeze(-1), upper=False
    )
    error = view.error[others] - (prior.features(rest) @ weights).squeeze(-1)
    e_norm = (error / noise.sqrt()).norm()
    variance = prior.residual(test, prior.features(test))
    return _Bounds((variance * share).sqrt() * e_norm, variance * share, certificate)


def _given_subset(view: _View) -> NystromFeatures:
    """Features whose residual is the covariance given the observations in use."""
    U = ObservedKernel.observations(view.X[view.subset], view.noise[view.subset])
    return NystromFeatures.of(ObservedKernel(view.kernel), U)


def _share(certificate: AccuracyCertificate) -> float:
    """The factor r / (1 + r)."""
    return certificate.lambda_max / (1 + certificate.lambda_max)


def _scale(model: FixedSubsetSingleTaskGP) -> Tensor:
    """Units of Y in one transformed unit, `m`; refused where there is none."""
    if len(model.batch_shape) > 0:
        raise UnsupportedError(
            f"Got a model with batch shape {tuple(model.batch_shape)}; need one data "
            "set. Take its elements one by one."
        )
    transform = getattr(model, "outcome_transform", None)
    ones = model.all_train_Y.new_ones(model.num_outputs, dtype=torch.float64)
    if transform is None:
        return ones
    if not isinstance(transform, Standardize):
        raise UnsupportedError(
            f"Got a {type(transform).__name__} outcome transform; the bounds are known "
            "in units of Y for Standardize or none."
        )
    return transform.stdvs.double().flatten() * ones
