"""The base of the rules that end a batch, as acquisition functions."""

import warnings
from abc import abstractmethod
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions import CandidateGenerationError, InputDataError
from botorch.exceptions.warnings import OptimizationWarning
from botorch.models.model import Model
from botorch.utils.sampling import manual_seed
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from botorch_sparse.acquisition.frozen import Features, FrozenPosterior, freeze
from botorch_sparse.acquisition.frozen.model_space import validate_width
from botorch_sparse.acquisition.ratios import sum_ratio, validate_ratio_threshold
from botorch_sparse.argument_checks import check_tensors

# Points of the batch from which the search starts, by default.
NUM_STARTS = 8
# Arguments of `optimize_acqf` that belong to the search for points.
OF_POINTS = {"batch_initial_conditions", "return_best_only", "sequential"}
# Rows of choices whose features are computed at a time.
CHUNK_SIZE = 4096


class RatioBound(AcquisitionFunction):
    r"""A bound on the ratio :math:`\mathrm{var}_{fb}(x) / \mathrm{var}_t(x)`.

    The first variance is that at the last feedback, the second that with the batch
    pending, both with mean and inducing set frozen ([Calandriello2020]_ Section 3). A
    batch goes on while the maximum over `x` is at most a threshold.

    All is in the model's transformed space, and ratios are dimensionless; with several
    outputs the largest ratio counts, which bounds the ratio of every weighted sum.
    The model is read once: build the bound after the model is fitted.

    Args:
        model: `SparseSingleTaskGP`, or an exact GP such as `SingleTaskGP`; or a
            posterior that is frozen already, with its pending points.
        X_batch: `s x d` points of the batch so far, or None.
        noise: `s` noise variances of their evaluations in the space of transformed
            outcomes; the likelihood's by default (its mean, if it was given
            with the data).
    """

    def __init__(
        self,
        model: Model | FrozenPosterior,
        X_batch: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> None:
        frozen = freeze(model)
        super().__init__(frozen.model)
        is_given = X_batch is not None or noise is not None
        self.frozen = frozen.with_batch(X_batch, noise) if is_given else frozen

    @property
    def X_batch(self) -> Tensor:
        """The batch's points, `s x d`."""
        return self.frozen.X_batch

    @property
    def X_pending(self) -> Tensor | None:
        """The batch's points, or None: they are what is pending."""
        return self.X_batch if len(self.X_batch) else None

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Replace the batch's points, `s x d`."""
        if X_pending is not None:
            check_tensors(X_pending=X_pending)
        self.frozen = self.frozen.with_batch(X_pending)

    def add(self, X: Tensor, noise: Tensor | None = None) -> None:
        """Add `s x d` points to the batch. Cost: O(m^2) for each.

        Args:
            X: The points.
            noise: Their `s` noise variances, as in the constructor.
        """
        check_tensors(X=X)
        self.frozen = self.frozen.add(X, noise)

    @t_batch_mode_transform(expected_q=1)
    def forward(self, X: Tensor) -> Tensor:
        """The bound at each point.

        Args:
            X: A `batch_shape x 1 x d` tensor.

        Returns:
            A `batch_shape` tensor of values of at least one.
        """
        check_tensors(X=X)
        f = self.frozen.features(X.reshape(-1, X.shape[-1]))
        return self.at(f).to(X.dtype).reshape(X.shape[:-2])

    def at(self, f: Features) -> Tensor:
        """The bound at points whose features are at hand, `N`."""
        ratio = self._ratio(f)
        return ratio.amax(0) if self.frozen.aug_shape else ratio

    @abstractmethod
    def _ratio(self, f: Features) -> Tensor:
        """The bound for each output, `aug x N`."""

    def global_bound(self) -> float:
        """The sum bound of Lemma 1, which no bound but the product is above."""
        return float(sum_ratio(self.frozen.variance, self.frozen.noise).max())

    def maximum(
        self,
        *,
        choices: Tensor | None = None,
        bounds: Tensor | None = None,
        optimizer_options: dict[str, Any] | None = None,
        enough: float = float("inf"),
    ) -> float:
        """The largest value over a finite set, or over a box with constraints.

        On a box it is a local search from where the bound peaks, the batch's own
        points; where that fails, it is the global bound.

        Args:
            choices: `A x d` choices. Cost: O(A m^2).
            bounds: A `2 x d` tensor of lower and upper bounds.
            optimizer_options: For `optimize_acqf`: `num_restarts` and `raw_samples`
                (default: the batch's points alone), constraints, `fixed_features`, ...
            enough: A value beyond which no larger one is looked for.

        Returns:
            The maximum, one at least.
        """
        if (choices is None) == (bounds is None):
            raise InputDataError("Give either choices or bounds.")
        if not len(self.X_batch):
            return 1.0
        if choices is not None:
            check_tensors(choices=choices)
            return self._maximum_over(choices)
        if bounds is not None:
            validate_width("bounds", bounds, self.X_batch.shape[-1])
        return self._maximum_in(bounds, optimizer_options or {}, enough)

    def bound(self, ratio_threshold: float, **domain: Any) -> float:
        """A bound on all ratios that is as tight as the threshold asks for.

        The global bound while that is at most the threshold, and nothing is maximized;
        else the maximum.

        Args:
            ratio_threshold: Largest ratio of variances allowed, at least one.
            **domain: `choices` or `bounds`, and `optimizer_options`, as in `maximum`.
        """
        validate_ratio_threshold(ratio_threshold)
        if (total := self.global_bound()) <= ratio_threshold:
            return total
        return self.maximum(**domain, enough=ratio_threshold)

    def terminates(self, ratio_threshold: float, **domain: Any) -> bool:
        """Whether the batch is over: `bound`, of the same arguments, is too large."""
        return self.bound(ratio_threshold, **domain) > ratio_threshold

    @torch.no_grad()
    def _maximum_over(self, choices: Tensor) -> float:
        values = [self(X.unsqueeze(-2)).max() for X in choices.split(CHUNK_SIZE)]
        return float(torch.stack(values).max())

    def _maximum_in(
        self, bounds: Tensor | None, options: dict[str, Any], enough: float
    ) -> float:
        """The largest value found; the global bound where no search succeeds."""
        X, ceiling = self.X_batch.unique(dim=0), self.global_bound()
        with torch.no_grad():
            at_batch = self(X.unsqueeze(-2))
        floor = float(at_batch.max())
        if floor > enough or not floor < ceiling:
            return floor
        options = {k: v for k, v in options.items() if k not in OF_POINTS}
        num_starts = min(options.pop("num_restarts", NUM_STARTS), len(X))
        starts = X[at_batch.topk(num_starts).indices].unsqueeze(-2)
        try:
            found = _search(self, bounds, starts, options)
        except (CandidateGenerationError, RuntimeError, ValueError):
            return ceiling
        return min(max(found, floor), ceiling) if found == found else ceiling


def _search(
    bound: AcquisitionFunction,
    bounds: Tensor | None,
    starts: Tensor,
    options: dict[str, Any],
) -> float:
    """The best value from the starts and, with `raw_samples`, a few random ones."""
    from botorch.optim import optimize_acqf  # takes time, and tables search no box

    options = {"retry_on_optimization_warning": False} | options
    raw_samples = options.pop("raw_samples", None)
    num_random = min(2, raw_samples or 0)
    seed = (options.get("options") or {}).get("seed")
    with warnings.catch_warnings(), manual_seed(seed):
        warnings.simplefilter("ignore", category=OptimizationWarning)
        _, value = optimize_acqf(
            bound,
            bounds=bounds,
            q=1,
            num_restarts=len(starts) + num_random,
            raw_samples=raw_samples,
            batch_initial_conditions=starts,
            **options,
        )
    return float(value)
