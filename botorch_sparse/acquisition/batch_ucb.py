"""The upper confidence bound of batch bandits: mean frozen, variance hallucinated."""

from typing import Any

from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions import InputDataError
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from botorch_sparse.acquisition.frozen import Features, FrozenPosterior, freeze
from botorch_sparse.acquisition.frozen.model_space import validate_batch, validate_model
from botorch_sparse.argument_checks import check_number, check_tensors

# The smallest variance, as in BoTorch's analytic acquisition functions.
MIN_VARIANCE = 1e-12


def validate_beta(beta: object) -> None:
    """Refuse what is neither a number of at least 0 nor a tensor of these."""
    need = "need a number of at least 0, such as 4: its root multiplies the standard "
    if not isinstance(beta, Tensor) or beta.dim() == 0:
        check_number("beta", beta, "[0, inf)", f"{need}deviation.")
    elif not (beta >= 0).all():
        raise InputDataError(f"Got beta={beta}; {need}deviation.")


class BatchUpperConfidenceBound(UpperConfidenceBound):
    r"""UCB with pending points: they shrink the variance, not the mean.

    .. math:: \mu_{fb}(x) + \beta^{1/2} \sigma_t(x)

    With `SparseSingleTaskGP` it is the bound of BBKB ([Calandriello2020]_ Eq. 4), whose
    inducing set stands still inside a batch. With an exact GP it is the bound of
    GP-BUCB [Desautels2014]_. Without pending points it is `UpperConfidenceBound`.

    Use it with `optimize_acqf(..., sequential=True)`, with the optimizers for discrete
    and mixed domains, or with `optimize_adaptive_batch`, which finds the size of the
    batch.

    For a block of q > 1 points the value is the mean of their bounds, each with those
    before it pending too, which is what greedy optimizers report.

    The model is read once: build the acquisition function after the model is fitted.

    Cost: O(m^2) for a new pending point, O(m^2 + j m) for a candidate with j pending
    points (O(n^2) and O(n^2 + j n) for the exact GP, and O(n^3) once).

    Args:
        model: `SparseSingleTaskGP`, or an exact GP such as `SingleTaskGP`.
        beta: What the variance is multiplied by; see the radii of
            `botorch_sparse.acquisition`, whose `botorch_beta` it is.
        X_pending: `j x d` points whose evaluations are still to come, or None.
        posterior_transform: As in `UpperConfidenceBound`; needed for several outputs.
        maximize: If False, the bound of minus the function.

    Raises:
        InputDataError: If `beta` is negative.
        UnsupportedError: For a list of models, batches of models, or several outputs
            without a posterior transform.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.rand(8, 2, dtype=torch.float64)
        >>> model = SingleTaskGP(X, X.sum(-1, keepdim=True).sin())
        >>> ucb = BatchUpperConfidenceBound(model, beta=4.0)
        >>> before = ucb(X[:1].unsqueeze(0) + 0.1)
        >>> ucb.set_X_pending(X[:1] + 0.1)
        >>> bool(ucb(X[:1].unsqueeze(0) + 0.1) < before)
        True
    """

    beta: Tensor

    def __init__(
        self,
        model: Model,
        beta: float | Tensor,
        X_pending: Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
    ) -> None:
        validate_model(model)
        validate_beta(beta)
        super().__init__(model, beta, posterior_transform, maximize)
        self.frozen: FrozenPosterior = freeze(model)
        if self.beta.dim():  # a single number is multiplied with from the host
            self.beta = self.beta.to(self.frozen.X_batch.device)
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Take other points as pending, `j x d`; those pending already cost nothing."""
        if X_pending is not None:
            check_tensors(X_pending=X_pending)
            validate_batch(X_pending, self.frozen.X_batch.shape[-1])
        AcquisitionFunction.set_X_pending(self, X_pending)
        self.frozen = self.frozen.with_batch(self.X_pending)

    @t_batch_mode_transform()
    def forward(self, X: Tensor) -> Tensor:
        """The bound at each point.

        Args:
            X: A `batch_shape x q x d` tensor.

        Returns:
            A `batch_shape` tensor, in the space of the untransformed outcomes.
        """
        check_tensors(X=X)
        points = X.reshape(-1, X.shape[-1])
        f = self.frozen.features(points)
        variance = self.frozen.sequential_variance(f, X.flatten(0, -3))
        moments = self.moments(points, f, variance)
        mean, sigma = (v.view(X.shape[:-1]).mean(-1) for v in moments)
        return self.bound_from_moments(mean, sigma)

    def bound_from_moments(self, mean: Tensor, sigma: Tensor) -> Tensor:
        """The bound from untransformed means and standard deviations, elementwise."""
        root = self.beta.to(mean.dtype).sqrt()
        return (mean if self.maximize else -mean) + root * sigma

    def moments(
        self, X: Tensor, f: Features, variance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Untransformed mean and standard deviation of points, each `N`.

        Args:
            X: `N x d` points.
            f: Their features.
            variance: Their variances in the transformed space, `aug x N`.
        """
        mean = self.frozen.mean(f)

        def posterior(variance: Tensor) -> Any:
            return self.frozen.posterior_from_moments(
                X, mean, variance, self.posterior_transform
            )

        transform = getattr(self.model, "outcome_transform", None)
        now = before = posterior(variance)
        if transform is not None and not transform._is_linear:
            # Undone, the mean of such outcomes depends on the variance.
            before = posterior(self.frozen.initial_variance(f))
        sigma = now.variance.clamp_min(MIN_VARIANCE).sqrt()
        return before.mean.view(len(X)), sigma.view(len(X))
