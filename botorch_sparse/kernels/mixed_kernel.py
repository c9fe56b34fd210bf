"""The kernel of `MixedSingleTaskGP`, for models that are not one."""

from collections.abc import Sequence
from numbers import Integral

from botorch.exceptions import InputDataError
from botorch.models import MixedSingleTaskGP
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_sparse.argument_checks import check_kind, check_tensors
from botorch_sparse.threads import data_unchecked


def check_columns(cat_dims: object, d: int) -> None:
    """Refuse what are no different columns of `d`."""
    check_kind("cat_dims", cat_dims, Sequence, "a list of columns")
    given = list(cat_dims) if isinstance(cat_dims, Sequence) else []
    integers = [int(dim) for dim in given if isinstance(dim, Integral)]
    columns = [dim % d for dim in integers if -d <= dim < d]
    if len(columns) < len(given) or len(set(columns)) < len(columns):
        raise InputDataError(
            f"Got cat_dims={cat_dims!r} for inputs of dimension {d}; need different "
            f"integers from {-d} to {d - 1}."
        )


def mixed_kernel(train_X: Tensor, train_Y: Tensor, cat_dims: list[int]) -> Kernel:
    r"""BoTorch's kernel for inputs some of whose columns are categories.

    .. math:: k_1(x, x') + c_1(z, z') + k_2(x, x') \, c_2(z, z')

    for the other columns `x` and the categories `z`, with kernels `c` of the Hamming
    distance. A `MixedSingleTaskGP` of one point has it.

    Args:
        train_X: `batch_shape x n x d` inputs.
        train_Y: `batch_shape x n x m` observations; both for their shapes alone.
        cat_dims: Columns of categories, at least one.
    """
    check_tensors(train_X=train_X, train_Y=train_Y)
    check_columns(cat_dims, train_X.shape[-1])
    with data_unchecked():
        model = MixedSingleTaskGP(
            train_X[..., :1, :], train_Y[..., :1, :], cat_dims, outcome_transform=None
        )
    return model.covar_module
