r"""A batch among choices by the bound of a model of one output, in a pool.

Where outcomes are standardized and the posterior transform is a weight and an offset,
`BatchUpperConfidenceBound` is :math:`|a| (\pm \mu(x) + \beta^{1/2} \sigma_t(x)) + b`
with moments of the model's own space: the bound that pools maximize.
"""

from dataclasses import dataclass, replace
from typing import Self, TypeGuard

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP
from botorch.models.transforms.outcome import Standardize
from gpytorch.means import Mean
from torch import Tensor

from botorch_sparse.acquisition.batch_ucb import MIN_VARIANCE, BatchUpperConfidenceBound
from botorch_sparse.acquisition.frozen import FrozenPosterior
from botorch_sparse.acquisition.frozen.frozen_exact import FrozenExactPosterior
from botorch_sparse.acquisition.frozen.frozen_nystrom import FrozenNystromPosterior
from botorch_sparse.acquisition.frozen.model_space import transformed_inputs
from botorch_sparse.batching.rules import Rule
from botorch_sparse.kernels import in_double
from botorch_sparse.models import SparseSingleTaskGP
from botorch_sparse.models.training_data import training_noise
from botorch_sparse.pools.exact_pool import ExactPool
from botorch_sparse.pools.nystrom_pool import NystromPool
from botorch_sparse.pools.shard import SelectableRows
from botorch_sparse.pools.table_batch import Points
from botorch_sparse.posteriors import RepeatedRows

# Models whose prior has their mean and their kernel.
PLAIN = {SingleTaskGP.forward, SparseSingleTaskGP.forward}


class PoolBatch:
    """Maximizers among `A x d` choices; the lowest index among equals.

    Pending points that `acqf` has at the start are rows of the pool behind the choices;
    a rule that looks at all rows looks at them too. If `unique`, a choice is taken
    once, and with it all that are equal to it: at most `most` points then.
    """

    def __init__(
        self, acqf: BatchUpperConfidenceBound, rule: Rule, X: Tensor, *, unique: bool
    ) -> None:
        frozen, device = acqf.frozen, X.device
        self._X = X
        every = torch.arange(len(X))
        self._different = RepeatedRows.find(X).first.cpu() if unique else every
        self._num_pending, size = len(frozen.X_batch), len(self._different)
        self._line = _AffineBound.of(acqf)
        left = X[self._different.to(device)] if unique else X
        Z = transformed_inputs(frozen.model, torch.cat([left, frozen.X_batch.to(X)]))
        self._points = _points(frozen, Z.to(frozen.dtype), self._line.sign)
        behind = torch.arange(size, size + self._num_pending, device=device)
        selectable = SelectableRows(behind if len(behind) else None, unique)
        self.batch = self._points.batch(self._line.root, rule, selectable)
        for row in range(size, size + self._num_pending):
            self.batch.append(row)
        self.most = size if unique else None

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to choose."""
        return self.batch.size - self._num_pending == self.most

    def found(self) -> tuple[Tensor, Tensor, Tensor]:
        """The points that were chosen; see `AcquisitionBatch.found`."""
        chosen = self.batch.rows[self._num_pending :]
        mean = self._points.moments(torch.tensor(chosen, device=self._X.device)).mean
        variance = mean.new_tensor(self.batch.variances_before[self._num_pending :])
        values = self._line.values(mean, variance).to(self._X)
        rows = self._different[chosen].to(self._X.device)
        return self._X[rows], values, rows


@dataclass(frozen=True)
class _AffineBound:
    """A bound in units of Y, from moments in the model's own space."""

    scale: float  # what multiplies standard deviations, positive
    sign: int  # one, or minus one where small outcomes are wanted
    offset: float  # added at last
    root: float  # what multiplies standard deviations in the bound

    @classmethod
    def of(cls, acqf: BatchUpperConfidenceBound) -> Self:
        """Of an acquisition function that suits a pool."""
        X = acqf.frozen.batch.Z.new_zeros(2, acqf.frozen.X_batch.shape[-1])
        unit = torch.arange(2).to(X)
        posterior = acqf.frozen.posterior_from_moments(
            X, unit, torch.ones_like(unit), acqf.posterior_transform
        )
        at_zero, at_one = posterior.mean.flatten().tolist()
        slope, turn = at_one - at_zero, 1 if acqf.maximize else -1
        root = float(acqf.beta.sqrt())
        return cls(abs(slope), turn if slope >= 0 else -turn, turn * at_zero, root)

    def values(self, mean: Tensor, variance: Tensor) -> Tensor:
        """The bound, from the sign times the mean."""
        sigma = (self.scale**2 * variance).clamp_min(MIN_VARIANCE).sqrt()
        return self.scale * mean + self.offset + self.root * sigma


class _NegatedMean(Mean):
    """The mean of minus a function."""

    def __init__(self, mean_module: Mean) -> None:
        super().__init__()
        self.mean_module = mean_module

    def forward(self, x: Tensor) -> Tensor:
        """Its values, `... x n`."""
        return -self.mean_module(x)


def suits_pool(
    acqf: AcquisitionFunction, frozen: FrozenPosterior
) -> TypeGuard[BatchUpperConfidenceBound]:
    """Whether a pool maximizes the same bound over choices.

    Args:
        acqf: The acquisition function.
        frozen: The posterior that the rule looks at.
    """
    if type(acqf) is not BatchUpperConfidenceBound or acqf.frozen is not frozen:
        return False
    model, to_scalar = acqf.frozen.model, acqf.posterior_transform
    transform = getattr(model, "outcome_transform", None)
    return (
        model.num_outputs == acqf.beta.numel() == 1
        and type(model).forward in PLAIN
        and (transform is None or type(transform) is Standardize)
        and (to_scalar is None or type(to_scalar) is ScalarizedPosteriorTransform)
    )


@torch.no_grad()
def _points(frozen: FrozenPosterior, Z: Tensor, sign: int) -> Points:
    """The choices under the posterior of the function, or of minus the function."""
    noise, model = float(frozen.lam), frozen.model
    if isinstance(frozen, FrozenNystromPosterior):
        posterior = frozen.nystrom
        if sign < 0:
            posterior = replace(
                posterior,
                weights=-posterior.weights,
                mean_module=_NegatedMean(posterior.mean_module),
            )
        pool = NystromPool(Z, noise)
        pool.update(posterior)
        return pool
    assert isinstance(frozen, FrozenExactPosterior)
    dtype = model.train_inputs[0].dtype
    mean = in_double(model.mean_module, dtype)
    exact = ExactPool(
        Z,
        in_double(model.covar_module, dtype),
        noise,
        mean_module=_NegatedMean(mean) if sign < 0 else mean,
    )
    Y = sign * model.train_targets.to(Z)
    exact.rebuild(frozen.train_X, Y, training_noise(model).to(Z).expand_as(Y))
    return exact
