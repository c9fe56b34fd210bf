"""The frozen view of an exact GP: pending points by a factor of their covariance."""

from typing import Any

import torch
from botorch.models.model import Model
from gpytorch.distributions import MultivariateNormal
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from botorch_sparse.acquisition.frozen.frozen_posterior import Features, FrozenPosterior
from botorch_sparse.kernels import in_double
from botorch_sparse.models.training_data import training_noise


class FrozenExactPosterior(FrozenPosterior):
    r"""Pending points of an exact GP, as in GP-BUCB [Desautels2014]_.

    With :math:`\phi(x) = L^{-1} k_X(x)`, :math:`L L^\top = K + D`, and the factor of
    the pending points' covariance under the posterior, :math:`L_p L_p^\top = C + D_p`,

    .. math:: g(x) = L_p^{-1} \mathrm{cov}_{fb}(X_{batch}, x)

    Nothing is left alone by pending points, and the embedded covariance is the full
    one. All is float64, whatever the data are in: rounding in float32 would be as large
    as the variances that are left near data of little noise.

    Cost: O(n^3) once, O(n^2) for each point's features, O(n + j) for each pair.

    Args:
        model: A fitted exact GP with Gaussian noise.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.train_X = self.model.train_inputs[0].detach().double()
        self._mean, self._covar = _prior_in_double(self.model)
        with torch.inference_mode(False), torch.no_grad():
            K, noise = self.prior_covariance(self.train_X), training_noise(model)
            self.chol = psd_safe_cholesky(K + torch.diag_embed(noise.to(K)))
            error = self.model.train_targets - self._prior(self.train_X).mean
            self.weights = torch.linalg.solve_triangular(
                self.chol, error.unsqueeze(-1), upper=False
            )
        self.chol_batch = K.new_zeros(*self.aug_shape, 0, 0)
        self._start()

    def _prior(self, Z: Tensor) -> MultivariateNormal:
        """The prior at transformed inputs, in float64."""
        if self._covar is None:
            return self.model.forward(Z)
        return MultivariateNormal(self._mean(Z), self._covar(Z))

    @override
    def mean(self, f: Features) -> Tensor:
        return self._prior(f.Z).mean + (f.phi @ self.weights).squeeze(-1)

    @override
    def parts(self, f: Features) -> tuple[Tensor, Tensor]:
        variance = (f.prior_variance - f.phi.square().sum(-1)).clamp_min(0.0)
        return torch.zeros_like(variance), variance

    @override
    def prior_covariance(self, Z: Tensor, Z2: Tensor | None = None) -> Tensor:
        if Z2 is None:
            return self._prior(Z).covariance_matrix
        n = Z.shape[-2]
        prior = self._prior(torch.cat([Z, Z2.expand(*Z.shape[:-2], -1, -1)], -2))
        return prior.lazy_covariance_matrix[..., :n, n:].to_dense()

    @override
    def covariances(self, f: Features, g: Features) -> tuple[Tensor, Tensor]:
        # O(n) for each pair
        full = self.prior_covariance(f.Z, g.Z) - f.phi @ g.phi.mT
        return full, full

    @override
    def reduction(self, f: Features) -> Tensor:
        full = self.covariances(f, self.batch)[0]
        return torch.linalg.solve_triangular(self.chol_batch, full.mT, upper=False).mT

    @override
    def last_reduction(self, f: Features, rows: Tensor) -> Tensor:
        last = self.chol_batch[..., -1:, :]
        full = self.covariances(f, self.batch.row(-1))[0]
        return (full - rows @ last[..., :-1].mT) / last[..., -1:]

    def _features(self, Z: Tensor) -> Features:
        cross = self.prior_covariance(Z, self.train_X)
        phi = torch.linalg.solve_triangular(self.chol, cross.mT, upper=False).mT
        k_diag = self._prior(Z).lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
        return Features(Z, k_diag, phi, phi[..., :0])

    def _extend(
        self, f: Features, noise: Tensor, rows: Tensor, embedded: Tensor
    ) -> None:
        # The Schur complement of the border is the variance left, plus noise.
        corner = (embedded + noise).sqrt().unsqueeze(-1)
        border = torch.cat([rows, corner], -1)
        self.chol_batch = torch.cat([pad(self.chol_batch, (0, 1)), border], -2)

    def _embedded_blocks(self, f: Features, X: Tensor) -> Tensor:
        return self._joint_covariance(f, X)


def _prior_in_double(model: Any) -> tuple[Any, Any]:
    """Copies of mean and kernel for float64, or None where the model is in float64."""
    dtype = model.train_inputs[0].dtype
    if dtype == torch.float64:
        return None, None
    return in_double(model.mean_module, dtype), in_double(model.covar_module, dtype)
