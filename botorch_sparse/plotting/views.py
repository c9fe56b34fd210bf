"""What a strategy or a model believes, as the figures of posteriors need it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from botorch.models.model import Model
from torch import Tensor

from botorch_sparse.strategies import Strategy

MomentsFunction = Callable[[Tensor], tuple[Tensor, Tensor]]

# BoTorch's usual beta, for models, which have none of their own.
DEFAULT_BETA = 4.0
# Points of a joint posterior, whose covariance is of this size squared.
CHUNK_SIZE = 256


@dataclass(frozen=True, eq=False)
class View:
    """A posterior and the data behind it.

    Attributes:
        moments: Means and variances, `k` each, at `k x d` points.
        observations: Points `n x d` and values `n`, or None.
        inducing_points: `m x d`, or None where there are none to tell apart; for a
            model of a subset, the samples in it.
        candidates: `A x d` rows of a table: the only points that may be asked for.
        bounds: `2 x d` of a box, or of the data of a model.
        beta: BoTorch's beta of the band.
    """

    moments: MomentsFunction
    observations: tuple[Tensor, Tensor] | None = None
    inducing_points: Tensor | None = None
    candidates: Tensor | None = None
    bounds: Tensor | None = None
    beta: float = DEFAULT_BETA

    @torch.no_grad()
    def at(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations at points."""
        mean, variance = self.moments(X)
        return mean.cpu(), variance.clamp_min(0.0).sqrt().cpu()


def view_of(source: Any) -> View:
    """The view of a strategy, of a fitted model, or of a function of moments."""
    if isinstance(source, Strategy):
        return _strategy_view(source)
    if isinstance(source, Model):
        return _model_view(source)
    if callable(source):
        return View(source)
    raise InputDataError(
        f"Got {type(source).__name__}; need a strategy, a BoTorch model, or a function "
        "from points to means and variances."
    )


def _strategy_view(strategy: Any) -> View:
    if (num := len(strategy.history.outcomes)) > 1:
        raise UnsupportedError(
            f"Got a strategy of {num} outcomes; need one posterior. Give a function "
            "from points to its means and variances, by a column of what "
            "strategy.predict(X) returns."
        )
    surrogate, history = strategy.surrogate, strategy.history
    model = None if surrogate is None else surrogate.model
    some = strategy.domain.example_rows()
    if surrogate is None or (model is None and strategy.predict(some) is None):
        raise UnsupportedError(
            f"{type(strategy).__name__} has no posterior to draw: need a strategy with "
            "one, such as BBKB, and feedback. For SBPE use plot_elimination."
        )
    view = _prediction_view(strategy) if model is None else _model_view(model)
    view = replace(view, observations=(history.X, history.Y))
    if strategy.box is not None:
        view = replace(view, bounds=strategy.box.bounds)
    if hasattr(strategy, "radius") and hasattr(strategy, "statistics"):
        beta = strategy.radius.botorch_beta(strategy.statistics)
        view = replace(view, beta=beta)
    return view


def _prediction_view(strategy: Any) -> View:
    """By what is predicted; the exact posterior has no inducing points of its own."""

    def moments(X: Tensor) -> tuple[Tensor, Tensor]:
        mean, sd = strategy.predict(X)
        return mean, sd.square()

    surrogate, points = strategy.surrogate, None
    inducing = () if surrogate.posterior is None else surrogate.inducing
    if inducing and not surrogate.view.takes_all(len(inducing)):
        points = strategy.record.points(torch.tensor(inducing))
    candidates = strategy.candidates[:] if strategy.box is None else None
    return View(moments, inducing_points=points, candidates=candidates)


def _model_view(model: Any) -> View:
    def moments(X: Tensor) -> tuple[Tensor, Tensor]:
        parts = [model.posterior(x) for x in X.split(CHUNK_SIZE)]
        mean, variance = (
            torch.cat([getattr(part, name)[..., 0] for part in parts])
            for name in ("mean", "variance")
        )
        return mean, variance

    bounds, observations = None, _training_data(model)
    if observations is not None:
        X = observations[0]
        bounds = torch.stack([X.amin(0), X.amax(0)])
    return View(
        moments,
        observations=observations,
        inducing_points=_points_in_use(model),
        bounds=bounds,
    )


def _points_in_use(model: Any) -> Tensor | None:
    """Inducing points of a sparse model, samples of one of a subset; None for all."""
    if hasattr(model, "subset_indices"):
        is_whole = len(model.subset_indices) == len(model.all_train_X)
        return None if is_whole else model.all_train_X[model.subset_indices]
    is_sparse = hasattr(model, "inducing_points") and not model.is_exact
    return model.inducing_points if is_sparse else None


def _training_data(model: Any) -> tuple[Tensor, Tensor] | None:
    """What a model was trained on, in the user's units; None where it cannot tell."""
    if not hasattr(model, "train_targets") or not getattr(model, "train_inputs", None):
        return None
    if hasattr(model, "all_train_X"):
        return model.all_train_X, model.all_train_Y[..., 0]
    model.eval()  # the inputs of a model in train mode are the raw ones already
    X = getattr(model, "_original_train_inputs", None)
    X = model.train_inputs[0] if X is None else X
    Y = model.train_targets
    if X.dim() > 2 or Y.dim() > 1:
        return None
    if (transform := getattr(model, "outcome_transform", None)) is not None:
        Y = transform.untransform(Y.unsqueeze(-1))[0].squeeze(-1)
    return X, Y.detach()
