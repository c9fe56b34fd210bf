r"""The exact likelihood of a model of the default form and its gradient, at once.

The kernel is a Matern or RBF kernel by itself, the mean a constant, and the noise has
one size, but for what outliers have besides. With errors :math:`e = y - c 1`,
:math:`\alpha = K^{-1} e`, :math:`G = \frac12 (\alpha \alpha^\top - K^{-1})`, points
:math:`z = x / \ell` and :math:`k(x_i, x_j) = \varphi(|z_i - z_j|^2)`,

.. math::
    \frac{\partial \log N}{\partial \log \ell_k}
        = -2 \sum_{ij} G_{ij} \varphi'_{ij} (z_{ik} - z_{jk})^2, \qquad
    \frac{\partial \log N}{\partial \sigma^2} = \mathrm{tr}\, G, \qquad
    \frac{\partial \log N}{\partial c} = 1^\top \alpha .

Fits of few points take it. Through GPyTorch's modules an evaluation takes some
milliseconds more, which up to some hundred points is most of a fit
(`benchmarks.fit_objective`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import Any

import torch
from botorch.models import SingleTaskGP
from botorch.optim.core import OptimizationResult
from botorch.optim.fit import fit_gpytorch_mll_scipy
from botorch.optim.utils import get_parameters
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn import Parameter

from botorch_sparse.kernels.stationary import MATERN, RBF, Profile
from botorch_sparse.threads import one_thread

# Beyond, modules take little of the time.
MOST_POINTS = 512
# Where `forward` and `__call__` are defined, of models whose prior is a kernel's.
MADE_IN = {
    "botorch.models.gp_regression",
    "gpytorch.models.exact_gp",
    "botorch_sparse.models.sparse_gp",
}
# The negated objective, and its gradient in some parameters.
Closure = Callable[[], tuple[Tensor, Sequence[Tensor | None]]]
# Of a parameter, as BoTorch's optimizers take it.
Bound = tuple[float | Tensor | None, float | Tensor | None]


def plain_closure(
    mll: MarginalLogLikelihood,
    parameters: dict[str, Tensor],
    most_points: int = MOST_POINTS,
) -> Closure | None:
    """What BoTorch's `get_loss_closure_with_grads` makes.

    None of a model of another form, or with more points than `most_points`.
    """
    plain = PlainLikelihood.of(mll, most_points)
    if plain is None:
        return None
    known = {id(p): name for name, p in plain.parameters.items() if p.requires_grad}
    names = [known.get(id(p)) for p in parameters.values()]
    if None in names:
        return None

    @torch.no_grad()
    def closure() -> tuple[Tensor, Sequence[Tensor]]:
        with one_thread():
            loss, gradient = plain.loss_and_gradient()
        return loss, [gradient[name] for name in names if name is not None]

    return closure


def fit_in_closed_form(
    mll: MarginalLogLikelihood,
    parameters: dict[str, Tensor] | None = None,
    bounds: dict[str, Bound] | None = None,
    closure: Closure | None = None,
    closure_kwargs: dict[str, Any] | None = None,
    **kwargs: Any,
) -> OptimizationResult:
    """`fit_gpytorch_mll_scipy`, by `plain_closure` where the model has one."""
    if closure is None and closure_kwargs is None:
        free = get_parameters(mll, requires_grad=True)
        closure = plain_closure(mll, free if parameters is None else parameters)
    return fit_gpytorch_mll_scipy(
        mll, parameters, bounds, closure, closure_kwargs, **kwargs
    )


@dataclass(frozen=True, eq=False)
class PlainLikelihood:
    """The marginal likelihood of a model of the default form.

    Attributes:
        X: `n x d` inputs as the kernel takes them, around zero, float64.
        Y: `n` outcomes as they are modelled.
        extra: `n` noise variances that outliers have besides, else zero.
        profile: The kernel.
        parameters: `lengthscale`, `1 x d` or `1 x 1`, `noise` and `constant`.
        priors: Log-normal priors of the first two, by their names.
    """

    X: Tensor
    Y: Tensor
    extra: Tensor
    profile: Profile
    parameters: dict[str, Parameter]
    priors: dict[str, list[LogNormalPrior]]

    @classmethod
    def of(
        cls, mll: MarginalLogLikelihood, most_points: int = MOST_POINTS
    ) -> "PlainLikelihood | None":
        """That of a model in train mode; None of one that has something besides."""
        if type(mll) is not ExactMarginalLogLikelihood or not mll.training:
            return None
        model, likelihood = mll.model, mll.likelihood
        if not _is_plain(model, most_points) or likelihood is not model.likelihood:
            return None
        if any(hasattr(each, "compute_custom_loss") for each in (mll, model)):
            return None  # BoTorch would call it
        kernel, mean = model.covar_module, model.mean_module
        if (profile := _profile(kernel)) is None:
            return None
        parameters = _parameters(kernel, mean, likelihood)
        if parameters is None or not getattr(model, "is_exact", True):
            return None
        modules = {"lengthscale": kernel, "noise": likelihood.noise_covar}
        priors = _log_normal_priors(model, modules, parameters)
        if priors is None:
            return None
        with torch.no_grad():
            X = model.transform_inputs(model.train_inputs[0])
        if parameters["lengthscale"].shape not in ((1, 1), (1, X.shape[-1])):
            return None
        Y = model.train_targets
        extra = getattr(model, "outlier_noise", torch.zeros_like(Y))
        return cls(X - X.mean(0), Y, extra, profile, parameters, priors)

    def loss_and_gradient(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The negated objective of an observation, and its gradient. O(n^3)."""
        of, num = self.parameters, len(self.Y)
        lengthscale, noise, constant = (of[name].detach() for name in of)
        Z = self.X / lengthscale
        squares = Z.square().sum(-1)
        D = torch.addmm(squares, Z, Z.mT, alpha=-2.0).add_(squares.unsqueeze(-1))
        D.clamp_min_(0.0).fill_diagonal_(0.0)
        K, slope = self.profile.value_and_slope(D)
        if slope is K:
            slope = K.clone()
        K.diagonal().add_(noise).add_(self.extra)
        L = psd_safe_cholesky(K)
        error = (self.Y - constant).unsqueeze(-1)
        alpha = torch.cholesky_solve(error, L)
        log_det = 2.0 * L.diagonal().log().sum()
        value = -0.5 * ((error * alpha).sum() + log_det + num * log(2 * pi))
        G = (alpha @ alpha.mT).sub_(torch.cholesky_inverse(L)).mul_(0.5)
        trace = G.diagonal().sum()
        W = G.mul_(slope)
        moved = (W.sum(-1, keepdim=True) * Z - W @ Z).mul_(Z).sum(0, keepdim=True)
        of_log = (-4.0 * self.profile.factor * moved).sum_to_size(lengthscale.shape)
        gradient = {
            "lengthscale": of_log / lengthscale,
            "noise": trace.expand_as(noise),
            "constant": alpha.sum().expand_as(constant),
        }
        for name, priors in self.priors.items():
            x = of[name].detach()
            for prior in priors:
                value = value + _log_density(prior, x)
                away = (x.log() - prior.loc) / prior.scale.square()
                gradient[name] = gradient[name] - (away + 1.0) / x
        return -value / num, {name: -g / num for name, g in gradient.items()}


def _log_density(prior: LogNormalPrior, x: Tensor) -> Tensor:
    """The sum of `prior.log_prob`, in a tenth of the time."""
    away = (x.log() - prior.loc).square() / (2 * prior.scale.square())
    return -(away + x.log() + prior.scale.log() + 0.5 * log(2 * pi)).sum()


def _is_plain(model: Any, most_points: int) -> bool:
    """Whether a model is made as BoTorch's or ours, with few outcomes in float64."""
    made_in = {type(model).forward.__module__, type(model).__call__.__module__}
    if not isinstance(model, SingleTaskGP) or not made_in <= MADE_IN:
        return False
    if not model.training:
        return False
    X, Y = model.train_inputs[0], model.train_targets
    is_double = X.dtype == Y.dtype == torch.float64
    is_small = Y.dim() == 1 and len(Y) <= most_points
    return is_double and is_small and bool(Y.isfinite().all())


def _profile(kernel: Kernel) -> Profile | None:
    """The kernel by squared distances of all inputs; None of another one."""
    if kernel.active_dims is not None or kernel.batch_shape:
        return None
    if type(kernel) is RBFKernel:
        return RBF
    return MATERN.get(kernel.nu) if type(kernel) is MaternKernel else None


def _parameters(kernel: Any, mean: Any, likelihood: Any) -> dict[str, Parameter] | None:
    """The model's parameters, where they are what they say, without a transform."""
    if type(mean) is not ConstantMean or type(likelihood) is not GaussianLikelihood:
        return None
    noise = likelihood.noise_covar
    if type(noise) is not HomoskedasticNoise:
        return None
    constraints = [kernel.raw_lengthscale_constraint, noise.raw_noise_constraint]
    if any(each.enforced for each in constraints):
        return None
    if hasattr(mean, "raw_constant_constraint"):
        return None
    parameters = {
        "lengthscale": kernel.raw_lengthscale,
        "noise": noise.raw_noise,
        "constant": mean.raw_constant,
    }
    is_one = parameters["noise"].numel() == parameters["constant"].numel() == 1
    are_apart = len({id(p) for p in parameters.values()}) == len(parameters)
    return parameters if is_one and are_apart else None


def _log_normal_priors(
    model: Any, modules: dict[str, Any], parameters: dict[str, Parameter]
) -> dict[str, list[LogNormalPrior]] | None:
    """Those of an objective; None where there are others, or added losses."""
    if any(True for _ in model.added_loss_terms()):
        return None
    found = dict[str, list[LogNormalPrior]]()
    for _, module, prior, closure, _ in model.named_priors():
        name = next((n for n, each in modules.items() if module is each), None)
        if name is None or type(prior) is not LogNormalPrior:
            return None
        parameter = parameters[name]
        is_of_it = (
            closure(module) is parameter and prior.transform(parameter) is parameter
        )
        if not is_of_it or prior.loc.numel() not in (1, parameter.numel()):
            return None
        found.setdefault(name, []).append(prior)
    return found
