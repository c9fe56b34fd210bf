"""Warnings that a model gives once."""

import warnings
from dataclasses import dataclass, field

from botorch.exceptions import BotorchWarning
from torch import Tensor

from botorch_sparse.argument_checks import short_list
from botorch_sparse.models.summary import LikelihoodGap

# Points above which forming and factorizing a joint covariance takes seconds and
# gigabytes.
VERY_LARGE_Q = 2000
# A difference of log likelihoods for each observation that predictions show.
FAR = 0.05


@dataclass
class ModelWarnings:
    """The warnings of one model, each given once."""

    given: set[str] = field(default_factory=set)  # their names

    def large_joint(self, q: int) -> None:
        """A joint covariance of very many points is formed."""
        if q > VERY_LARGE_Q:
            self._warn_once(
                "large joint",
                f"The joint covariance of {q} points is formed. Joint samples at q "
                "points cost O(q^3) time and O(q^2) memory, unlike means and "
                "variances. Acquisition functions that sample at the data "
                "(qLogNoisyExpectedImprovement, prune_inferior_points) do with a few "
                "hundred of the best points; for one outcome that is maximized "
                "X_baseline=X[model.posterior(X).mean.squeeze(-1).topk(300).indices]. "
                "For Thompson sampling use PathwiseThompsonSampling or "
                "draw_matheron_paths: O(q).",
            )

    def cap(self, cap: int, remedy: str) -> None:
        """The inducing points reached their cap; what is left would cost O(n m^2)."""
        self._warn_once(
            "cap",
            f"The inducing points reached their cap of {cap}, and may leave some of "
            "the prior variance unexplained. model.certificate() says how much; pass a "
            f"larger {remedy} if it is too much.",
        )

    def far_fit(self, gap: LikelihoodGap) -> None:
        """The hyperparameters that were kept are far from the exact likelihood's."""
        if gap.per_observation > FAR:
            self._warn_once(
                "far fit",
                "The fitted hyperparameters may be far from the exact GP's: the exact "
                f"log likelihood of {gap.num_observations} random observations is "
                f"{gap.per_observation:.2g} below its optimum, for each of them. More "
                "inducing points during the fit come closer, at a higher cost: set "
                "model.max_fit_inducing_points to more, such as 1000, and fit again.",
            )

    def outliers(self, extra: Tensor) -> None:
        """Observations are taken to be outliers; `extra` is their noise besides."""
        rows = (extra > 0).flatten(0, -2).any(0) if extra.dim() > 1 else extra > 0
        if found := rows.nonzero().squeeze(-1).tolist():
            shown = short_list(found, 10, show=str)
            self._warn_once(
                f"outliers {found}",
                f"{len(found)} of {len(rows)} observations are taken to be outliers, "
                f"since the others contradict them: rows {shown}. They say little; "
                "model.outlier_noise has their noise. Correct those that are mistakes. "
                "With robust=False all count as they are.",
            )

    def exact_prior(self, n: int) -> None:
        """The dense prior at all data was asked for."""
        self._warn_once(
            "exact prior",
            f"The exact prior at all {n} training points was asked for, as "
            "botorch.cross_validation.loo_cv does. They are results of the exact "
            "GP, at O(n^3), and not of this model: use botorch_sparse.models.loo_cv.",
        )

    def _warn_once(self, name: str, message: str) -> None:
        if name not in self.given:
            self.given.add(name)
            warnings.warn(message, BotorchWarning, stacklevel=4)
