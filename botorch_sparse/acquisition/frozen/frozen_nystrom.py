"""The frozen view of a Nystrom posterior: pending points by rank-one updates."""

import torch
from botorch.models.model import Model
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.frozen.frozen_posterior import Features, FrozenPosterior
from botorch_sparse.posteriors import NystromPosterior
from botorch_sparse.posteriors.pending_points import PendingRows


class FrozenNystromPosterior(FrozenPosterior):
    r"""Pending points in the whitened space [Calandriello2020]_.

    .. math:: g_j(x) = w(x)^\top u_j, \qquad
        I - U^\top U = (I + \textstyle\sum_s w_s w_s^\top / d_s)^{-1}

    The residual :math:`k - \phi^\top\phi` stays: it is the price of a frozen inducing
    set. A pending point costs O(m^2), and then O(m) for each point looked at.

    Args:
        model: A fitted model that is not exact, such as `SparseSingleTaskGP`.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        with torch.inference_mode(False), torch.no_grad():
            self.nystrom: NystromPosterior = self.model.nystrom_posterior()
        L_B = self.nystrom.chol_inner
        self.dtype = L_B.dtype
        self._last = L_B.new_zeros(*self.aug_shape, L_B.shape[-1])
        self._pending = PendingRows.none(self._last)
        self._start()

    @override
    def mean(self, f: Features) -> Tensor:
        weighted = f.w @ self.nystrom.weights.unsqueeze(-1)
        return self.nystrom.mean_module(f.Z) + weighted.squeeze(-1)

    @override
    def parts(self, f: Features) -> tuple[Tensor, Tensor]:
        residual = (f.prior_variance - f.phi.square().sum(-1)).clamp_min(0.0)
        return residual, f.w.square().sum(-1)

    @override
    def prior_covariance(self, Z: Tensor, Z2: Tensor | None = None) -> Tensor:
        return self.nystrom.covar_module(Z, Z2).to_dense()

    @override
    def covariances(self, f: Features, g: Features) -> tuple[Tensor, Tensor]:
        # O(m) for each pair
        embedded = f.w @ g.w.mT
        K = self.prior_covariance(f.Z, g.Z)
        return K - f.phi @ g.phi.mT + embedded, embedded

    @override
    def reduction(self, f: Features) -> Tensor:
        return f.w @ self._pending.U.mT

    @override
    def last_reduction(self, f: Features, rows: Tensor) -> Tensor:
        return f.w @ self._last.unsqueeze(-1)

    def _features(self, Z: Tensor) -> Features:
        phi = self.nystrom.features(Z)
        k_diag = self.nystrom.covar_module(Z, diag=True)
        return Features(Z, k_diag, phi, self.nystrom.whiten(phi))

    def _extend(
        self, f: Features, noise: Tensor, rows: Tensor, embedded: Tensor
    ) -> None:
        self._last = self._pending.row(f.w.squeeze(-2)).u(noise.squeeze(-1))
        self._pending = self._pending.append(self._last)

    def _embedded_blocks(self, f: Features, X: Tensor) -> Tensor:
        w, g = self._blocks(f.w, X), self._blocks(self.reduction(f), X)
        return w @ w.mT - g @ g.mT
