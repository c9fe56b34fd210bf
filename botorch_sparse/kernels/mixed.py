"""The kernel of `MixedSingleTaskGP`, for models that are not one."""

from botorch import settings
from botorch.models import MixedSingleTaskGP
from gpytorch.kernels import Kernel
from torch import Tensor


def mixed_kernel(train_X: Tensor, train_Y: Tensor, cat_dims: list[int]) -> Kernel:
    r"""BoTorch's kernel for inputs some of whose columns are categories.

    .. math:: k_1(x, x') + c_1(z, z') + k_2(x, x') \, c_2(z, z')

    for the other columns `x` and the categories `z`, with kernels `c` of the Hamming
    distance. It is that of a `MixedSingleTaskGP` of one point.

    Args:
        train_X: `batch_shape x n x d` inputs.
        train_Y: `batch_shape x n x m` observations; both for their shapes alone.
        cat_dims: Columns of categories, at least one.
    """
    with settings.validate_input_scaling(False):
        model = MixedSingleTaskGP(
            train_X[..., :1, :], train_Y[..., :1, :], cat_dims, outcome_transform=None
        )
    return model.covar_module
