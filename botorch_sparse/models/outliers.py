"""Outliers among the data of a robust model."""

from dataclasses import replace

from botorch.models.transforms.outcome import Standardize
from torch import Tensor, nan
from typing_extensions import override

from botorch_sparse.models.training_data import TrainingData
from botorch_sparse.posteriors import Moments, NystromPosterior, leave_one_out
from botorch_sparse.posteriors.outlier_noise import is_far, outlier_noise


class OrdinaryStandardize(Standardize):
    """`Standardize` that learns from the values that are not far from the others.

    One wrong value of a million would make all others the same. Where no value is far,
    it is BoTorch's.
    """

    @override
    def forward(
        self, Y: Tensor, Yvar: Tensor | None = None, X: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if not self.training:
            return super().forward(Y, Yvar, X)
        super().forward(Y.masked_fill(is_far(Y, dim=-2), nan), Yvar, X)  # learns
        self.eval()
        try:
            return super().forward(Y, Yvar, X)
        finally:
            self.train()


def far_noise(Y: Tensor) -> Tensor:
    """Extra noise of far values, `... x n`, which a search begins with."""
    middle = Y.median(dim=-1, keepdim=True).values
    return (Y - middle).square().where(is_far(Y, dim=-1), 0.0)


def found_outliers(
    blank: NystromPosterior,
    data: TrainingData,
    start: Tensor,
    least_scale: float = 1.0,
) -> Tensor:
    """Extra noise variances under the hyperparameters of a posterior without data.

    Args:
        blank: The posterior's prior.
        data: All data, with the noise that they have anyway.
        start: `aug_batch x n` extra noise variances to begin with.
        least_scale: See `outlier_noise`.

    Returns:
        `aug_batch x n`. Cost: O(n m^2), some five times.
    """

    def left_out(rho: Tensor) -> Moments:
        noisy = replace(data, noise=data.noise + rho)
        rows = (noisy.points, noisy.folded.Y, noisy.folded.noise)
        dtype = blank.inducing_points.dtype
        posterior = blank.condition(*(t.to(dtype) for t in rows))
        return leave_one_out(posterior, noisy.X, noisy.Y, noisy.noise)

    return outlier_noise(
        left_out,
        data.Y,
        data.noise,
        num=data.Y.shape[-1],
        least_scale=least_scale,
        start=start,
    )
