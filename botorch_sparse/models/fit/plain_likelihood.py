r"""The exact likelihood of the default model and its gradient, in closed form.

The kernel is a Matern or RBF kernel by itself, the mean a constant, and the noise has
one size. With errors :math:`e = y - c 1`, :math:`\alpha = K^{-1} e`,
:math:`G = \frac12 (\alpha \alpha^\top - K^{-1})`, points :math:`z = x / \ell` and
:math:`k(x_i, x_j) = \varphi(|z_i - z_j|^2)`,

.. math::
    \frac{\partial \log N}{\partial \log \ell_k}
        = -2 \sum_{ij} G_{ij} \varphi'_{ij} (z_{ik} - z_{jk})^2, \qquad
    \frac{\partial \log N}{\partial \sigma^2} = \mathrm{tr}\, G, \qquad
    \frac{\partial \log N}{\partial c} = 1^\top \alpha .

Through GPyTorch's modules this takes some two milliseconds more for each evaluation: up
to some hundred points that is most of a fit (`benchmarks.fit_objective`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import Any

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn import Parameter

from botorch_sparse.kernels.stationary import MATERN, RBF, Profile

# Beyond, modules take little of the time.
MOST_POINTS = 512
# The negated objective, and its gradient in some parameters.
Closure = Callable[[], tuple[Tensor, Sequence[Tensor]]]


def plain_closure(
    mll: MarginalLogLikelihood, parameters: dict[str, Tensor]
) -> Closure | None:
    """What BoTorch's `get_loss_closure_with_grads` makes; None of another model."""
    plain = PlainLikelihood.of(mll)
    if plain is None:
        return None
    known = {id(p): name for name, p in plain.parameters.items()}
    names = [known.get(id(p)) for p in parameters.values()]
    if None in names:
        return None

    @torch.no_grad()
    def closure() -> tuple[Tensor, Sequence[Tensor]]:
        loss, gradient = plain.loss_and_gradient()
        return loss, [gradient[name] for name in names if name is not None]

    return closure


@dataclass(frozen=True, eq=False)
class PlainLikelihood:
    """The marginal likelihood of a default model.

    Attributes:
        X: `n x d` inputs as the kernel takes them, around zero, float64.
        Y: `n` outcomes as they are modelled.
        profile: The kernel.
        parameters: `lengthscale`, `1 x d` or `1 x 1`, `noise` and `constant`.
        priors: Log-normal priors of the first two, by their names.
    """

    X: Tensor
    Y: Tensor
    profile: Profile
    parameters: dict[str, Parameter]
    priors: dict[str, list[LogNormalPrior]]

    @classmethod
    def of(cls, mll: MarginalLogLikelihood) -> "PlainLikelihood | None":
        """That of a model in train mode; None of one that has something besides."""
        model, likelihood = mll.model, mll.likelihood
        mean, kernel = model.mean_module, model.covar_module
        if type(mll) is not ExactMarginalLogLikelihood or not _is_exact(model):
            return None
        if likelihood is not model.likelihood:
            return None
        if type(mean) is not ConstantMean or type(likelihood) is not GaussianLikelihood:
            return None
        profile, noise = _profile(kernel), likelihood.noise_covar
        constraints = [
            getattr(kernel, "raw_lengthscale_constraint", None),
            noise.raw_noise_constraint,
        ]
        # Parameters that are transformed have another gradient.
        if profile is None or any(
            each is None or each.enforced for each in constraints
        ):
            return None
        if hasattr(mean, "raw_constant_constraint"):
            return None
        parameters = {
            "lengthscale": kernel.raw_lengthscale,
            "noise": noise.raw_noise,
            "constant": mean.raw_constant,
        }
        priors = _log_normal_priors(
            mll, {"lengthscale": kernel, "noise": noise}, parameters
        )
        X, Y = model.train_inputs[0], model.train_targets
        is_double = X.dtype == Y.dtype == torch.float64
        if priors is None or not is_double or Y.dim() != 1 or len(Y) > MOST_POINTS:
            return None
        with torch.no_grad():
            X = model.transform_inputs(X)
        return cls(X - X.mean(0), Y, profile, parameters, priors)

    def loss_and_gradient(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The negated objective of an observation, and its gradient. O(n^3)."""
        of, num = self.parameters, len(self.Y)
        lengthscale, noise, constant = (of[name].detach() for name in of)
        Z = self.X / lengthscale
        squares = Z.square().sum(-1)
        D = torch.addmm(squares, Z, Z.mT, alpha=-2.0).add_(squares.unsqueeze(-1))
        K, slope = self.profile.value_and_slope(D.clamp_min_(0.0))
        if slope is K:
            slope = K.clone()
        K.diagonal().add_(noise)
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
                away = (x.log() - prior.loc) / prior.scale
                density = -0.5 * away.square() - x.log() - prior.scale.log()
                value = value + (density - 0.5 * log(2 * pi)).sum()
                gradient[name] = gradient[name] - (away / prior.scale + 1.0) / x
        return -value / num, {name: -g / num for name, g in gradient.items()}


def _is_exact(model: Any) -> bool:
    """Whether a fit takes a model of BoTorch's class, or ours, as an exact one."""
    from botorch_sparse.models import SparseSingleTaskGP

    if type(model) is SingleTaskGP:
        return True
    if type(model) is not SparseSingleTaskGP:
        return False
    extra = model._outlier_noise
    return model.is_exact and (extra is None or not extra.any())


def _profile(kernel: Kernel) -> Profile | None:
    """The kernel by squared distances of all inputs; None of another one."""
    if kernel.active_dims is not None or kernel.batch_shape:
        return None
    if type(kernel) is RBFKernel:
        return RBF
    return MATERN.get(kernel.nu) if type(kernel) is MaternKernel else None


def _log_normal_priors(
    mll: MarginalLogLikelihood,
    modules: dict[str, Any],
    parameters: dict[str, Parameter],
) -> dict[str, list[LogNormalPrior]] | None:
    """Those of an objective; None where there are others, or added losses."""
    if any(True for _ in mll.model.added_loss_terms()):
        return None
    found = dict[str, list[LogNormalPrior]]()
    for _, module, prior, closure, _ in mll.model.named_priors():
        name = next((n for n, each in modules.items() if module is each), None)
        if name is None or type(prior) is not LogNormalPrior:
            return None
        if closure(module) is not parameters[name]:
            return None
        found.setdefault(name, []).append(prior)
    return found
