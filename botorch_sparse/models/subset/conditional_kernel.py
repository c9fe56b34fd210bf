"""The covariance of a GP given noisy observations of some points, as a kernel."""

from gpytorch.kernels import Kernel
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_sparse.posteriors.batching import solve_rows


class ConditionalKernel(Kernel):
    r"""The posterior covariance, given observations at `U` with noise `D`.

    .. math::
        k(x, x') - \phi(x)^\top \phi(x'), \qquad \phi(x) = L^{-1} k_U(x), \qquad
        L L^\top = K_{UU} + D

    It has no hyperparameters of its own. Cost: O(M^3) to build, O(M^2) for each point
    that it is evaluated at.

    Args:
        prior: The kernel `k`, unbatched.
        points: `M x d`, the points `U`.
        noise: `M` noise variances.
    """

    def __init__(self, prior: Kernel, points: Tensor, noise: Tensor) -> None:
        super().__init__()
        self.prior = prior
        self.points = points
        self.chol = psd_safe_cholesky(prior(points).to_dense() + noise.diag_embed())

    def features(self, X: Tensor) -> Tensor:
        r"""The vectors :math:`\phi(x)`, `q x M`."""
        return solve_rows(self.chol, self.prior(X, self.points).to_dense())

    def mean(self, X: Tensor, error: Tensor) -> Tensor:
        """The posterior mean, `q`, given `M` observations less the prior mean."""
        white = solve_rows(self.chol, error.unsqueeze(0)).squeeze(0)
        return self.features(X) @ white

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object
    ) -> Tensor:
        """The matrix, or its diagonal."""
        phi, phi_2 = self.features(x1), self.features(x2)
        if diag:
            return self.prior(x1, x2, diag=True) - (phi * phi_2).sum(-1)
        return self.prior(x1, x2).to_dense() - phi @ phi_2.mT
