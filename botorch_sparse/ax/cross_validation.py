"""Leave-one-out predictions of models in Ax's plots and analyses."""

from functools import cached_property

import torch
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.model import Model
from torch import Tensor

from botorch_sparse.models import SparseSingleTaskGP, training_noise
from botorch_sparse.posteriors import Moments, NystromPosterior, leave_one_out

# Inputs this close are the same point, in the space of the model.
TOLERANCE = 1e-9


class LeftOutPredictions:
    r"""What a model predicts at a point from the observations elsewhere.

    Hyperparameters and inducing points stay. Observations :math:`y_j` at the point,
    with noise variances :math:`d_j`, are one with the precision
    :math:`p = \sum_j 1 / d_j` and the mean :math:`\sum_j y_j / (p d_j)`; see
    `botorch_sparse.posteriors.leave_one_out`. A `SubsetSingleTaskGP` predicts as it is
    at rows that it does not use.
    The model is fitted, and has no outcome transform.
    """

    def __init__(self, model: SingleTaskGP) -> None:
        self.model = model.eval()
        inputs, self.targets = model.train_inputs[0], model.train_targets
        with torch.no_grad():
            self.noise = training_noise(model)
            self.posterior = _posterior(model, inputs, self.noise)
        self.all_inputs, self.inputs = inputs, inputs.reshape(-1, *inputs.shape[-2:])[0]

    @cached_property
    def _each(self) -> Moments:
        """Moments at each row, without that row; at once, in O(n m^2)."""
        data = self.all_inputs, self.targets, self.noise
        return leave_one_out(self.posterior, *data)

    @cached_property
    def _sorted(self) -> tuple[Tensor, Tensor]:
        """The first coordinates of the inputs, ascending, and their rows."""
        first, rows = self.inputs[:, 0].sort()
        return first, rows

    def _rows_at(self, x: Tensor) -> Tensor:
        """The rows at a `1 x d` point. Cost: O(log n + k d), k with the first of x."""
        first, rows = self._sorted
        start = torch.searchsorted(first, x[:, 0] - TOLERANCE)
        stop = torch.searchsorted(first, x[:, 0] + TOLERANCE, right=True)
        near = rows[start:stop]
        return near[((self.inputs[near] - x).abs() <= TOLERANCE).all(-1)]

    @torch.no_grad()
    def __call__(self, x: Tensor, observation_noise: bool) -> Moments:
        """Moments of the outcomes at a `1 x d` point, before the input transform.

        Cost: O(m^2) in the number of inducing points, and once O(n m^2).
        """
        x = self.model.transform_inputs(x)
        there = self._rows_at(x)
        if len(there) == 1:
            noise = self.noise[..., there]
            mean, variance = (moments[..., there] for moments in self._each)
        elif len(there):
            noise, Y = self.noise[..., there], self.targets[..., there]
            precision = (1 / noise).sum(-1, keepdim=True)
            Y = (Y / noise).sum(-1, keepdim=True) / precision
            mean, variance = leave_one_out(self.posterior, x, Y, 1 / precision)
        else:
            noise = self.noise
            mean, variance = self.posterior.moments(x)
        if observation_noise:
            variance = variance + noise.mean(-1, keepdim=True)
        return Moments(mean.reshape(-1), variance.reshape(-1))


def left_out_models(model: Model | None) -> list[LeftOutPredictions] | None:
    """One for the model, or for each in a list; None for models of another kind."""
    models = model.models if isinstance(model, ModelListGP) else [model]
    for each in models:
        if not isinstance(each, SingleTaskGP) or hasattr(each, "outcome_transform"):
            return None
    return [LeftOutPredictions(each) for each in models]


def predictions(
    models: list[LeftOutPredictions], X: Tensor, observation_noise: bool
) -> tuple[Tensor, Tensor]:
    """Means, `k x m`, and diagonal covariances, `k x m x m`, at `k x d` points."""
    means, variances = [], []
    for x in X.split(1):
        moments = [model(x, observation_noise) for model in models]
        means.append(torch.cat([mean for mean, _ in moments]))
        variances.append(torch.cat([variance for _, variance in moments]))
    return torch.stack(means), torch.stack(variances).diag_embed()


def _posterior(model: SingleTaskGP, X: Tensor, noise: Tensor) -> NystromPosterior:
    """The posterior of the model; an exact one with all points as inducing points."""
    if isinstance(model, SparseSingleTaskGP):
        model.sparsify()
        if not model.is_exact:
            return model.nystrom_posterior()
    return NystromPosterior.from_data(
        model.covar_module,
        X,
        model.train_targets,
        noise,
        X,
        mean_module=model.mean_module,
    )
