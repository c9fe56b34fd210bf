"""Predictions from a factor that is updated while rows come and go."""

from dataclasses import dataclass
from typing import Any

import torch
from gpytorch import settings
from gpytorch.kernels import Kernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from torch import Tensor

from botorch_sparse.linear_operators import (
    TrackedCholesky,
    UpdatableCholeskyLinearOperator,
)


class FactoredPredictionStrategy(DefaultPredictionStrategy):
    r"""GPyTorch's exact predictions, given the factor of :math:`K_y`.

    .. math::
        \mu(x) = c(x) + k(x)^\top L^{-\top} L^{-1} (y - c), \qquad
        \sigma^2(x) = k(x, x) - \| L^{-1} k(x) \|^2

    The parent inverts :math:`K_y`, in O(M^3), for the first prediction; here it costs
    O(M^2), as each further one does.

    Args:
        train_inputs: As in the parent.
        train_prior_dist: As in the parent.
        train_labels: As in the parent.
        likelihood: As in the parent.
        root: As in the parent.
        inv_root: As in the parent.
        chol: `batch_shape x M x M`, the factor; without it this is the parent.
    """

    def __init__(
        self,
        train_inputs: Any,
        train_prior_dist: Any,
        train_labels: Tensor,
        likelihood: _GaussianLikelihoodBase,
        root: Any = None,
        inv_root: Any = None,
        chol: Tensor | None = None,
    ) -> None:
        super().__init__(
            train_inputs, train_prior_dist, train_labels, likelihood, root, inv_root
        )
        self.chol = chol
        if chol is not None:
            self.lik_train_train_covar = UpdatableCholeskyLinearOperator(chol)

    @property
    def covar_cache(self) -> Tensor:
        """The factor; without one the parent's cache."""
        if self.chol is None:
            return super().covar_cache
        return self.chol

    def _mean_cache(self, nan_policy: str) -> Tensor:
        if self.chol is None or nan_policy != "ignore":
            return super()._mean_cache(nan_policy)
        if self._weights is None:
            error = self.train_labels - self.train_prior_dist.loc.detach()
            weights = torch.cholesky_solve(error.unsqueeze(-1), self.chol)
            self._weights = weights.squeeze(-1)
        return self._weights

    _weights: Tensor | None = None

    def _exact_predictive_covar_inv_quad_form_root(
        self, precomputed_cache: Tensor, test_train_covar: Any
    ) -> Any:
        if self.chol is None:
            return super()._exact_predictive_covar_inv_quad_form_root(
                precomputed_cache, test_train_covar
            )
        cross = _dense(test_train_covar)
        if self.chol.dim() > 2:
            return torch.linalg.solve_triangular(
                self.chol.mT, cross, upper=True, left=False
            )
        # One system for all points: a batch would copy the factor for each element.
        columns = cross.reshape(-1, cross.shape[-1]).mT
        root = torch.linalg.solve_triangular(self.chol, columns, upper=False)
        return root.mT.reshape(cross.shape)


def _dense(matrix: Any) -> Tensor:
    return matrix if isinstance(matrix, Tensor) else matrix.to_dense()


@dataclass(frozen=True, eq=False)
class SubsetFactor:
    """The factor of the covariance of some rows, under some hyperparameters.

    Attributes:
        rows: `M` rows of the data on the host, in the order of the factor.
        cholesky: The covariance of their observations and its factor.
        hyperparameters: All numbers that the covariance of two rows depends on.
        noise: `batch_shape x M` noise variances, the part of the diagonal that may
            differ from row to row.
    """

    rows: Tensor
    cholesky: TrackedCholesky
    hyperparameters: Tensor
    noise: Tensor

    @classmethod
    def build(
        cls,
        covar_module: Kernel,
        X: Tensor,
        *,
        rows: Tensor,
        noise: Tensor,
        hyperparameters: Tensor,
    ) -> "SubsetFactor":
        """From kernel values; O(M^3).

        Args:
            covar_module: The kernel.
            X: `batch_shape x M x d` transformed inputs of the rows.
            rows: Their indices, on the host.
            noise: `batch_shape x M` noise variances.
            hyperparameters: As in the attribute.
        """
        matrix = covar_module(X).to_dense() + torch.diag_embed(noise)
        return cls(rows, TrackedCholesky.build(matrix), hyperparameters, noise)

    def move_to(
        self,
        rows: Tensor,
        covar_module: Kernel,
        X: Tensor,
        *,
        noise: Tensor,
        hyperparameters: Tensor,
    ) -> "SubsetFactor | None":
        """The factor of other rows by deletion and then appending.

        Args:
            rows: The new rows. Those that stay must come first, in their old order.
            covar_module: The kernel.
            X: `batch_shape x M x d` transformed inputs of the new rows.
            noise: `batch_shape x M` noise variances of the new rows.
            hyperparameters: As in the attribute.

        Returns:
            The factor, or None where none of the rows stays, or those that do have
            other noise variances, or the hyperparameters have changed. Cost: O(M^2) for
            each row that goes or comes.
        """
        stays = torch.isin(self.rows, rows)
        num_kept = int(stays.sum())
        if num_kept == 0 or not torch.equal(self.rows[stays], rows[:num_kept]):
            return None
        kept = stays.nonzero().squeeze(-1).to(X.device)
        old_noise, new_noise = self.noise.index_select(-1, kept), noise[..., :num_kept]
        pairs = [(self.hyperparameters, hyperparameters), (old_noise, new_noise)]
        if not _are_equal(pairs):
            return None
        tracked = self.cholesky
        if num_kept < len(stays):
            tracked = tracked.delete((~stays).nonzero().squeeze(-1).tolist())
        if num_kept < len(rows):
            kept, new = X[..., :num_kept, :], X[..., num_kept:, :]
            cross = covar_module(kept, new).to_dense()
            corner = covar_module(new).to_dense()
            corner = corner + torch.diag_embed(noise[..., num_kept:])
            tracked = tracked.append(cross, corner)
        return SubsetFactor(rows, tracked, self.hyperparameters, noise)


def _are_equal(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    """Whether the tensors of each pair have the same shape and values; one wait."""
    if any(a.shape != b.shape for a, b in pairs):
        return False
    flags = [(a == b).all() for a, b in pairs if a.numel() > 0]
    return bool(torch.stack(flags).all())


def flat_state(*modules: torch.nn.Module | None) -> Tensor:
    """All parameters and buffers of some modules, one after another, in float64."""
    tensors = [
        tensor.detach().double().flatten()
        for module in modules
        if module is not None
        for tensor in module.state_dict().values()
        if isinstance(tensor, Tensor)
    ]
    return torch.cat(tensors) if tensors else torch.zeros(0)


def is_default_prediction() -> bool:
    """Whether GPyTorch's settings leave predictions to a detached factor."""
    return (
        settings.detach_test_caches.on()
        and settings.prior_mode.off()
        and settings.observation_nan_policy.value() == "ignore"
    )
