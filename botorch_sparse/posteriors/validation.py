"""What a posterior refuses at the door."""

from botorch.exceptions import BotorchTensorDimensionError, InputDataError
from torch import Tensor

from botorch_sparse.doors import check_finite, check_tensors


def validate_data(X: Tensor, Y: Tensor, noise: Tensor, inducing_points: Tensor) -> None:
    """Check kinds, shapes and signs at the door."""
    check_tensors(X=X, Y=Y, noise=noise, inducing_points=inducing_points)
    if X.shape[:-1] != Y.shape or Y.shape != noise.shape:
        raise BotorchTensorDimensionError(
            f"Got X of shape {tuple(X.shape)}, Y of shape {tuple(Y.shape)} and noise "
            f"of shape {tuple(noise.shape)}; need `batch_shape x n x d` and twice "
            "`batch_shape x n`. Squeeze the output dimension of Y and expand the noise."
        )
    if inducing_points.dim() != X.dim() or inducing_points.shape[-1] != X.shape[-1]:
        raise BotorchTensorDimensionError(
            f"Got inducing points of shape {tuple(inducing_points.shape)} for X of "
            f"shape {tuple(X.shape)}; need `batch_shape x m x d` with the same `d`."
        )
    is_finite = X.isfinite().all() & Y.isfinite().all()
    if not ((noise > 0).all() & is_finite):
        check_finite(X=X.cpu(), Y=Y.cpu())
        raise InputDataError(
            f"Got a noise variance of {noise.min().item():.3g}; all must be positive. "
            "Use a small positive one for observations that are exact."
        )
