r"""Sample paths of a Nystrom posterior.

**Kernels with random Fourier features.** A draw `g` of the prior by them becomes one of
the posterior by an update at the inducing points ([Wilson2020]_, [VakiliMPD2021]_
Section 4.1):

.. math:: f(x) = c(x) + g(x) + k_S(x)^\top L^{-\top} \big( z - L^{-1} g(S) \big),
    \qquad z = L_B^{-\top} (a + \varepsilon), \quad \varepsilon \sim N(0, I).

Its mean is the posterior's, and its covariance too, but for the kernel of the residual,
which is the features' kernel. Paths of one draw share the features and their error.
Paths of a `RelatedKernel` are the sum of those of its stationary part and of the known
functions, each with a random factor, the path's slope in that input.

**All other kernels.** The posterior is a sum of two independent parts, of which the
first is drawn exactly by `m` weights:

.. math:: f(x) = c(x) + k_S(x)^\top L^{-\top} z + e(x), \qquad
    e \sim GP(0, k - k_S^\top K_{SS}^{-1} k_S).

The residual `e` is drawn jointly, with all its covariances, at some candidates; see
`botorch_sparse.pools.path_maximizers`.
"""

import copy
import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from botorch.exceptions import UnsupportedError
from botorch.sampling.pathwise.features import KernelFeatureMap, gen_kernel_features
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from gpytorch.means import ConstantMean, Mean, ZeroMean
from linear_operator.utils.cholesky import psd_safe_cholesky
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch.nn.functional import pad

from botorch_sparse.kernels import dense_covariance, prior_variance
from botorch_sparse.kernels.kernel_matrices import covariance_sums, unscaled
from botorch_sparse.kernels.lengthscales import innermost
from botorch_sparse.kernels.related_kernel import RelatedKernel
from botorch_sparse.kernels.stationary import with_gradient
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.threads import FEATURE, KERNEL_ENTRY

NUM_FEATURES = 512
# Rounding of a path, in prior standard deviations, below which covariances are float32:
# half of what 512 random features leave open.
TOLERANCE = 0.02
# Of the residual, above and below what is known of a path.
NUM_DEVIATIONS = 3.0
# What is added to a residual's singular covariance, of the prior variance; ten times as
# much with each further try.
JITTER, MOST_TRIES = 1e-10, 8


class Residual(NamedTuple):
    """What inducing points leave of a kernel without random features."""

    chol: Tensor  # the factor `L` of `K_SS`
    spread: Tensor | None  # `k` factors of how far paths are from the mean
    seed: int  # of what is drawn of it


@dataclass(frozen=True, eq=False)
class SamplePaths:
    """Some functions drawn from a posterior, but for a `residual`; see `joint`.

    With random features, what is evaluated at all candidates is float32, since they
    leave more open than it rounds: the features, and where `rounding` is small the
    covariances, which take half the time then. The weights of the update are computed
    in float64, and so are the features that they come from: a nearly singular `L`
    magnifies what is rounded there. With a `tolerance` of zero nothing is rounded to
    float32. Without random features all is in the dtype of the posterior.
    """

    mean: Mean  # the prior mean, in the dtype of the candidates
    kernel: Kernel  # the kernel of the update, in the dtype of `points`
    # Draws of the prior at points less `center`; None if it has no features.
    prior: "_FourierFeatures | None"
    center: Tensor  # `d`, the mean of the inducing points; zero without features
    points: Tensor  # `m x d` inducing points less `center`
    beta: Tensor  # `k x m` weights of the covariances, in the dtype of `points`
    residual: Residual | None = None  # of a kernel without features

    @classmethod
    def draw(
        cls,
        posterior: NystromPosterior,
        num_paths: int,
        num_features: int,
        tolerance: float = TOLERANCE,
        spread: Tensor | None = None,
    ) -> "SamplePaths":
        """Draw `k` of them, on the host. Cost: O(k m^2 + k m F).

        With a `spread` of `k` factors, paths are so many times as far from the mean.
        """
        S, L = posterior.inducing_points, posterior.chol_inducing
        kernel = posterior.covar_module
        features = None
        if has_random_features(kernel):
            features = _feature_map(_stationary(kernel), S.shape[-1], num_features)
            omega = torch.randn(num_paths, num_features, dtype=torch.float64)
            omega = omega.to(S.device)
        noise = torch.randn(num_paths, len(S), dtype=S.dtype).to(S.device)
        if spread is not None:
            noise = noise * spread.unsqueeze(-1).to(noise)
        z = torch.linalg.solve_triangular(
            posterior.chol_inner, posterior.weights + noise, upper=False, left=False
        )
        if features is None:
            beta = torch.linalg.solve_triangular(L, z, upper=False, left=False)
            zero = torch.zeros_like(S[:1]).squeeze(0)
            left = Residual(L, spread, int(torch.randint(2**31, ())))
            return cls(posterior.mean_module, kernel, None, zero, S, beta, left)
        center, slopes = S.mean(0), None
        if isinstance(kernel, RelatedKernel):
            slopes = _slopes(kernel, num_paths, S.shape[-1]).to(omega)
            center[-len(kernel.slope_deviations()) :] = 0.0  # products have an origin
        if spread is not None:
            factor = spread.unsqueeze(-1).to(omega)
            omega = omega * factor
            slopes = None if slopes is None else slopes * factor
        prior = _FourierFeatures.of(features, omega, slopes, S.shape[-1])
        g_S = prior((S - center).double()).mT.to(S)
        white = torch.linalg.solve_triangular(L, g_S, upper=False).mT
        beta = torch.linalg.solve_triangular(L, z - white, upper=False, left=False)
        points = S - center
        if tolerance == 0.0:
            return cls(posterior.mean_module, kernel, prior, center, points, beta)
        if rounding(kernel, points, beta) <= tolerance:
            kernel = copy.deepcopy(kernel).float()
            points, beta = points.float(), beta.float()
        coarse = prior.float()
        return cls(posterior.mean_module, kernel, coarse, center, points, beta)

    @property
    def work(self) -> int:
        """What values at a point take, in the units of `for_each`."""
        num_features = 0 if self.prior is None else len(self.prior.frequencies)
        return KERNEL_ENTRY * len(self.points) + FEATURE * num_features

    def __call__(self, X: Tensor) -> Tensor:
        """Values at `q x d` points, `k x q`."""
        if self.prior is None:
            return self._explained(X, self._covariance(X))
        Z = X - self.center
        K = dense_covariance(self.kernel, self.points, Z.to(self.points))
        drawn = self.prior(Z.to(self.prior.frequencies))
        f = drawn.to(K.dtype).addmm_(self.beta, K)
        return self.mean(X) + f.to(X.dtype)

    def at_own_points(self, X: Tensor) -> Tensor:
        """The value of each path at a point of its own, `k`; differentiable.

        At `k x d` points; without a residual. Cost: O(k d (m + F)).
        """
        Z = X - self.center
        f = covariance_sums(self.kernel, Z.to(self.points), self.points, self.beta)
        if self.prior is not None:
            f = f + self.prior.at_own_points(Z.to(self.prior.frequencies))
        return self.mean(X) + f.to(X.dtype)

    def subset(self, numbers: Tensor) -> "SamplePaths":
        """Some of the paths."""
        prior = None if self.prior is None else self.prior.subset(numbers)
        return replace(self, prior=prior, beta=self.beta[numbers])

    def _covariance(self, X: Tensor) -> Tensor:
        """`k_S(x)` without features, `m x q`."""
        Z = X.to(self.points) if X.is_floating_point() else X
        return dense_covariance(self.kernel, self.points, Z)

    def _explained(self, X: Tensor, K: Tensor) -> Tensor:
        """What `k_S(x)` makes of the values, `k x q`."""
        f = self.beta @ K
        if X.is_floating_point():
            return self.mean(X) + f.to(X.dtype)
        needs_points = type(self.mean) not in (ConstantMean, ZeroMean)
        return self.mean(X.to(f) if needs_points else X) + f

    def bounds(self, X: Tensor, K: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What values at `q x d` points are between, `k x q` each.

        Themselves, or `NUM_DEVIATIONS` of the residual around them. `K` is `k_S(x)`,
        `m x q`, where it is known. Cost: O(q m^2).
        """
        if self.residual is None:
            values = self(X)
            return values, values
        K = self._covariance(X) if K is None else K
        values = self._explained(X, K)
        phi = torch.linalg.solve_triangular(self.residual.chol, K, upper=False)
        variance = prior_variance(self.kernel, X)
        sd = (variance - phi.square_().sum(0)).clamp_min_(0.0).sqrt_().to(values)
        width = NUM_DEVIATIONS * sd.expand_as(values)
        if self.residual.spread is not None:
            width = width * self.residual.spread.unsqueeze(-1).to(width)
        return values - width, values + width

    def joint(self, X: Tensor, numbers: Tensor) -> Tensor:
        """Values of `p` paths at `q x d` points, `p x q`, residuals drawn jointly.

        The same each time for the same paths and points. Cost: O(q^3 + q^2 m), and
        O(q^2) for each path.
        """
        if self.residual is None:
            return self(X)[numbers]
        some = self.subset(numbers)
        chol, spread, seed = self.residual
        K = self._covariance(X)
        values = some._explained(X, K)
        phi = torch.linalg.solve_triangular(chol, K, upper=False)
        Z = X.to(self.points) if X.is_floating_point() else X
        covariance = dense_covariance(self.kernel, Z).to(phi) - phi.mT @ phi
        largest = float(prior_variance(self.kernel, Z).max())
        if largest == 0.0:
            return values  # as at the origin of a linear kernel
        jitter = JITTER * largest
        with warnings.catch_warnings():  # of equal rows it is singular
            warnings.simplefilter("ignore", category=NumericalWarning)
            root = psd_safe_cholesky(covariance, jitter=jitter, max_tries=MOST_TRIES)
        g = torch.Generator().manual_seed(seed + int(numbers[0]))
        noise = torch.randn(values.shape, generator=g, dtype=root.dtype)
        drawn = noise.to(root) @ root.mT
        if spread is not None:
            drawn = drawn * spread[numbers.to(spread.device)].unsqueeze(-1).to(drawn)
        return values + drawn.to(values)


class _FourierFeatures(NamedTuple):
    r"""Functions :math:`\sum_i a_i \sin(w_i^\top x) + b_i \cos(w_i^\top x)`.

    With `slopes` also :math:`s^\top x`.
    """

    frequencies: Tensor  # `F x d` of them
    sines: Tensor  # `k x F` amplitudes
    cosines: Tensor  # `k x F` amplitudes
    slopes: Tensor | None = None  # `k x d`; None for zeros

    @classmethod
    def of(
        cls, features: KernelFeatureMap, omega: Tensor, slopes: Tensor | None, dim: int
    ) -> "_FourierFeatures":
        """Sums of random features, sines first, by weights (`k x 2F`); and slopes."""
        eye = torch.eye(dim, dtype=omega.dtype, device=omega.device)
        inputs = features.input_transform
        frequencies = features.weight @ (eye if inputs is None else inputs(eye)).mT
        amplitude = features(torch.zeros_like(eye[:1]))[..., -1]
        sines, cosines = (amplitude * omega).chunk(2, dim=-1)
        return cls(frequencies, sines, cosines, slopes)

    def __call__(self, X: Tensor) -> Tensor:
        """Values at `q x d` points, `k x q`."""
        phase = self.frequencies @ X.mT
        sine = phase.sin()
        f = torch.addmm(self.sines @ sine, self.cosines, phase.cos_())
        return f if self.slopes is None else f.addmm_(self.slopes, X.mT)

    def at_own_points(self, X: Tensor) -> Tensor:
        """The value of each function at a point of its own, `k`."""
        with torch.no_grad():
            phase = X @ self.frequencies.mT
            sine, cosine = phase.sin(), phase.cos_()
            f = (self.sines * sine + self.cosines * cosine).sum(-1)
        if torch.is_grad_enabled() and X.requires_grad:
            slope = self.sines * cosine - self.cosines * sine
            f = with_gradient(X, f, slope @ self.frequencies)
        return f if self.slopes is None else f + (self.slopes * X).sum(-1)

    def subset(self, numbers: Tensor) -> "_FourierFeatures":
        """Some of the functions."""
        slopes = None if self.slopes is None else self.slopes[numbers]
        sines, cosines = self.sines[numbers], self.cosines[numbers]
        return _FourierFeatures(self.frequencies, sines, cosines, slopes)

    def float(self) -> "_FourierFeatures":
        """The same in float32."""
        frequencies, sines, cosines, slopes = self
        slopes = None if slopes is None else slopes.float()
        return _FourierFeatures(
            frequencies.float(), sines.float(), cosines.float(), slopes
        )


def rounding(kernel: Kernel, points: Tensor, beta: Tensor) -> float:
    r"""What float32 covariances make of a path at most, in prior standard deviations.

    With :math:`\rho^2` the largest squared norm of a centered inducing point in units
    of the lengthscale, and of the points near it, squared distances round by :math:`4
    \rho^2 \epsilon`. A kernel changes by at most 1.5 k(0) for each unit of them, but
    for the exponential one, whose slope at zero has no bound:

    .. math:: |\Delta f| \le \epsilon \, (6 \rho^2 + 2) \, k(0) \, |\beta|_1.
    """
    base = innermost(kernel)
    if isinstance(base, RelatedKernel) or getattr(base, "nu", 2.5) < 1.5:
        return torch.inf
    seen = points if kernel.active_dims is None else points[:, kernel.active_dims]
    squares = (seen / base.lengthscale).square().sum(-1)
    scale = kernel(points[:1], diag=True).sqrt()
    bound = (6 * squares.max() + 2) * scale * beta.abs().sum(-1).max()
    return float(torch.finfo(torch.float32).eps / 2 * bound)


def has_random_features(covar_module: Kernel) -> bool:
    """Whether a kernel is one of those whose random features are known."""
    return isinstance(unscaled(_stationary(covar_module)), RBFKernel | MaternKernel)


def _stationary(covar_module: Kernel) -> Kernel:
    """The part of a kernel that random Fourier features are of."""
    if isinstance(covar_module, RelatedKernel):
        return covar_module.stationary
    return covar_module


def _slopes(covar_module: RelatedKernel, num: int, dim: int) -> Tensor:
    """Slopes of some functions in all inputs, `num x dim`, drawn on the host."""
    sd = covar_module.slope_deviations().cpu()
    drawn = sd * torch.randn(num, len(sd), dtype=torch.float64)
    return pad(drawn, (dim - len(sd), 0))


def _feature_map(covar_module: Kernel, dim: int, num_features: int) -> KernelFeatureMap:
    """Random features of a stationary kernel, float64, drawn on the host."""
    kernel = copy.deepcopy(covar_module).double().cpu().requires_grad_(False)
    device = next(covar_module.parameters()).device
    features = gen_kernel_features(kernel, num_inputs=dim, num_outputs=num_features)
    return features.to(device)


def require_random_features(covar_module: Kernel) -> None:
    """Refuse a kernel whose sample paths can't be drawn outside of a table."""
    if not has_random_features(covar_module):
        raise UnsupportedError(
            f"Got {type(covar_module).__name__}, for which there are no random "
            "features; on a continuous domain sample paths need RBFKernel or "
            "MaternKernel, in a ScaleKernel or not. On a table, and by strategies with "
            "an upper confidence bound, any kernel is taken."
        )
