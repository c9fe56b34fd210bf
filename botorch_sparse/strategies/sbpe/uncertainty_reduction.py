r"""Regression from a dataset that reduces uncertainty, with a uniform error bound.

[Vakili2022]_ Section 4: points of largest posterior variance, then one look at all of
their feedback. The published constants rest on Lemma G.1, which is false as printed
(the Nystrom variance can be below the exact one). With the two-sided factor
:math:`\alpha(r)` of `variance_inflation`, for every `x` and every `j < n`

.. math::
    \bar\sigma_n^2(x) \le \alpha \sigma_n^2(x) \le \alpha \sigma_j^2(x)
    \le \alpha^2 \bar\sigma_j^2(x) \le \alpha^2 \bar\sigma_j^2(x_{j+1})
    \le \alpha^3 \sigma_j^2(x_{j+1}),

and with :math:`\sum_j \sigma_j^2(x_{j+1}) \le 2 \kappa I / \log(1 + \kappa / \tau^2)`,
:math:`\kappa = \max k(x, x)`, the average over `j` is

.. math:: \bar\sigma_n^2(x) \le
    \frac{2 \alpha^3 \kappa I_n}{\log(1 + \kappa / \tau^2) \, n},

where the paper has :math:`(1 + r)^2` for :math:`\alpha^3`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from botorch.exceptions import InputDataError, UnsupportedError
from gpytorch.kernels import Kernel
from torch import Tensor
from typing_extensions import override

from botorch_sparse.acquisition.confidence import Constants
from botorch_sparse.acquisition.confidence.sbpe_radius import Bias
from botorch_sparse.argument_checks import check_number, check_whole
from botorch_sparse.inducing import variance_inflation
from botorch_sparse.strategies.core.transaction import step
from botorch_sparse.strategies.data.box import DomainOptions
from botorch_sparse.strategies.data.domain import domain_of
from botorch_sparse.strategies.data.feedback import read_points
from botorch_sparse.strategies.data.history import Batch, History
from botorch_sparse.strategies.sbpe.bounds import (
    BatchBounds,
    batch_statistics,
    domain_sample,
)
from botorch_sparse.strategies.sbpe.design import (
    NEED_LAM,
    Design,
    Refresh,
)
from botorch_sparse.strategies.sbpe.round_strategy import RoundStrategy
from botorch_sparse.strategies.surrogates.prior import PosteriorSettings


@dataclass(frozen=True)
class ErrorBound:
    r"""How far the prediction is from the function, anywhere in the domain.

    Each holds with probability at least :math:`1 - \delta` for a design that was chosen
    by largest variance.

    Attributes:
        measured: :math:`\beta \max_x \bar\sigma_n(x)` plus the offset; the maximum is
            exact on a table, and over drawn points on a continuous domain.
        theorem: Theorem 4.1 (table) or 4.2 (continuous) with :math:`\alpha(r)` and the
            information gain of the design itself in place of its maximum.
        information_gain: An upper bound on :math:`I_n`, in nats.
        lambda_max: The certified `r`.
    """

    measured: float
    theorem: float
    information_gain: float
    lambda_max: float


class UncertaintyReduction(RoundStrategy):
    r"""Collects a dataset of nearly uniform accuracy [Vakili2022]_ (Section 4).

    Use it to learn a function everywhere, where `SBPE` looks for its maximum. The
    dataset is fixed before any feedback; `predict` and `error_bound` follow once all of
    it is told. Rows of a table that failed do not come again: while the dataset is
    collected in parts, Theorem 4.1 is then about the others.

    Args:
        candidates: `A x d` points to choose from.
        covar_module: The kernel, which is needed: the points are chosen by it before
            there is feedback to fit one to, and the bounds are for functions of its
            space. Its hyperparameters stay as they are, and its prior mean is zero.
        lam: The regularizer :math:`\tau^2`, as the posterior's noise variance.
        noise_std: R, the noise is R-sub-Gaussian.
        norm_bound: Bound on the RKHS norm of the function.
        delta: Failure probability, in (0, 1).
        refresh: See `Design`.
        constants: See `SBPERadius`, as for `bias` and `mgf_radius`.
        bias: See there.
        mgf_radius: See there.
        discretization: See `SBPE`.
        seed: Seed of the strategy's generator.
        **domain: `bounds` (`2 x d`) of a continuous domain instead of candidates.

    Raises:
        InputDataError: If there is no kernel.
        UnsupportedError: By `ask`, before `collect_dataset` or `run` has given the
            dataset a size.

    Example:
        >>> import torch, gpytorch
        >>> X = torch.linspace(0, 1, 100, dtype=torch.float64).unsqueeze(-1)
        >>> kernel = gpytorch.kernels.RBFKernel().double().requires_grad_(False)
        >>> strategy = UncertaintyReduction(X, kernel, lam=1e-2)
        >>> dataset = strategy.collect_dataset(20)
        >>> strategy.tell(dataset, dataset.X.squeeze(-1).sin())
        >>> mean, lower, upper = strategy.predict(X)
        >>> bool((upper - lower <= 2 * strategy.error_bound().measured + 1e-9).all())
        True
    """

    def __init__(
        self,
        candidates: Any = None,
        covar_module: Kernel | None = None,
        lam: float = 1e-4,
        noise_std: float = 1e-2,
        norm_bound: float = 1.0,
        delta: float = 1e-3,
        refresh: Refresh = "certificate",
        constants: Constants = "theory",
        *,
        bias: Bias = "paper",
        mgf_radius: float = math.inf,
        discretization: float | None = None,
        seed: int = 0,
        **domain: Unpack[DomainOptions],
    ) -> None:
        if covar_module is None:
            raise InputDataError(
                "Got no covar_module; need the kernel by which the dataset is chosen, "
                "before any feedback that it could be fitted to. Give one that you "
                "know or have fitted, such as the covar_module of a SparseSingleTaskGP "
                "fitted to other data in these units, with lam and noise_std; or take "
                "SBPE or BBKB, which infer theirs."
            )
        check_number("lam", lam, "(0, inf)", NEED_LAM)
        check_number("noise_std", noise_std, "[0, inf)")
        place = domain_of(candidates, domain, type(self))
        design = Design(
            refresh=refresh,
            delta=delta,
            num_batches=1,  # Theorems 4.1 and 4.2 take delta / (4 |X|) and delta / 4
            norm_bound=norm_bound,
            constants=constants,
            bias=bias,
            mgf_radius=mgf_radius,
            lam=lam,
            noise_std=noise_std,
            discretization=discretization,
        )
        settings = PosteriorSettings.of(place, covar_module, lam)
        super().__init__(place, settings, design, lengths=[], seed=seed)

    @step
    def collect_dataset(self, n: int) -> Batch:
        """The points of the dataset, chosen one by one by largest variance.

        Args:
            n: How many, repeats included.

        Returns:
            A batch of `n` points, to be told as every batch, whole or in parts.

        Raises:
            InputDataError: If `n` is not a whole number from 1 on.
            UnsupportedError: If there is a dataset already: its points would depend on
                the noise.
        """
        n = check_whole("n", n)
        if self.lengths:
            raise UnsupportedError(
                f"This strategy has collected a dataset of {self.lengths[0]} points; "
                "build another one for another dataset."
            )
        self.lengths = [n]
        return self.ask()

    @override
    def _select(self, max_batch_size: int | None) -> list[int]:
        if not self.lengths:
            raise UnsupportedError(
                "The dataset has no size yet: call collect_dataset(n), or "
                "run(objective, n)."
            )
        return super()._select(max_batch_size)

    @override
    def run(
        self, objective: Callable[[Tensor], Any], num_evaluations: int, **options: Any
    ) -> History:
        """Evaluate; the dataset has `num_evaluations` points, if it has no size yet."""
        if not self.lengths:
            self.lengths = [check_whole("num_evaluations", num_evaluations)]
        try:
            return super().run(objective, num_evaluations, **options)
        finally:
            if len(self.record.batches) == 0:  # the run was refused
                self.lengths = []

    def predict(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means, and lower and upper confidence bounds that hold at all points.

        Args:
            X: `q x d` points.

        Returns:
            Three tensors of shape `q`. O(q m^2).

        Raises:
            BotorchTensorDimensionError: If they are not `q x d`.
            InputDataError: If they are no numbers.
            UnsupportedError: Before the dataset is told.
        """
        X = read_points(X, self.domain)
        bounds = self._bounds()
        with torch.no_grad():
            lower, upper = bounds.interval(X.double())
        return ((lower + upper) / 2).to(X), lower.to(X), upper.to(X)

    @torch.no_grad()
    def error_bound(self) -> ErrorBound:
        """Bounds on the largest error of `predict`'s mean.

        Raises:
            UnsupportedError: Before the dataset is told.
        """
        bounds, lam = self._bounds(), self.progress.prior.lam
        data = bounds.inputs(bounds.data["X"]), bounds.data["counts"]
        seen = batch_statistics(bounds.posterior, *data, lam, bounds.lambda_max)
        n, gain = seen.num_evaluations, 0.5 * seen.log_det_sum
        X = domain_sample(self.domain)
        kappa = float(bounds.posterior.covar_module(X, diag=True).max())
        inflation = variance_inflation(max(self.certified, bounds.lambda_max)) ** 3
        variance = inflation * 2 * kappa * gain / (math.log1p(kappa / lam) * n)
        lower, upper = bounds.interval(X)
        return ErrorBound(
            measured=float((upper - lower).max()) / 2,
            theorem=bounds.multiplier * math.sqrt(variance) + bounds.offset,
            information_gain=gain,
            lambda_max=bounds.lambda_max,
        )

    @property
    def certified(self) -> float:
        """What `r` was certified to stay below at every step of the design."""
        return 0.0 if self.progress.design.refresh == "exact" else 1.0

    def _bounds(self) -> BatchBounds:
        if self.last_bounds is None:
            raise UnsupportedError(
                "There is no prediction before the dataset is told: call "
                "collect_dataset(n), evaluate its points and tell their feedback."
            )
        return self.last_bounds

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"lengths": list(self.lengths)}

    def _load_state(self, state: dict[str, Any]) -> None:
        self.lengths = list(state["lengths"])
        super()._load_state(state)
