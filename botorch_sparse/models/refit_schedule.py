"""When to refit hyperparameters in a loop that gathers data."""

from dataclasses import dataclass, field

from botorch.exceptions import InputDataError
from gpytorch.mlls import MarginalLogLikelihood

from botorch_sparse.argument_checks import check_kind, check_number, check_whole


@dataclass
class RefitSchedule:
    """Says when hyperparameters are due for a fit, and remembers the last one.

    A fit costs O(n m^2) fifty times, an update of the posterior once: a loop that
    refits after each observation spends its time fitting. Take `every=1` while data are
    few, `growth=2.0` for a total cost that stays a small multiple of the last fit's.

    Args:
        every: Refit once this many observations were added. 1 by default, where
            `growth` is not given.
        growth: Refit once the data grew by this factor, above 1; 2.0 when they doubled.

    Attributes:
        last_fit: Observations at the last fit, or None before the first.

    Raises:
        InputDataError: For both arguments, `every` below one, or `growth` not above 1.

    Example:
        >>> schedule = RefitSchedule(growth=2.0)
        >>> due = []
        >>> for n in (10, 15, 20, 30, 45):
        ...     if schedule.is_due(n):
        ...         due.append(n)
        ...         schedule.record(n)
        >>> due
        [10, 20, 45]
    """

    every: int | None = None
    growth: float | None = None
    last_fit: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.every is not None and self.growth is not None:
            raise InputDataError(
                f"Got every={self.every} and growth={self.growth}; need one of them."
            )
        if self.every is None and self.growth is None:
            self.every = 1
        if self.every is not None:
            check_whole("every", self.every)
        if self.growth is not None:
            need = "need more than 1. Use every=1 to refit each time."
            check_number("growth", self.growth, "(1, inf)", need)

    def is_due(self, num_observations: int) -> bool:
        """Whether to fit at this many observations.

        The first time, and with fewer observations than at the last fit (other data),
        it always is.

        Raises:
            InputDataError: If it is no number of observations.
        """
        check_whole("num_observations", num_observations, least=0)
        last = self.last_fit
        if last is None or num_observations < last:
            return True
        if self.growth is not None:
            return num_observations > last and num_observations >= self.growth * last
        return num_observations >= last + (self.every or 1)

    def record(self, num_observations: int) -> None:
        """Note that hyperparameters were fitted at this many observations.

        Raises:
            InputDataError: If it is no number of observations.
        """
        check_whole("num_observations", num_observations, least=0)
        self.last_fit = num_observations

    def fit(self, mll: MarginalLogLikelihood, **kwargs: object) -> bool:
        """Fit a model if that is due, from its present hyperparameters.

        In a loop that builds a model each time, `load_state_dict` of the previous one
        first: the fit is then a short one, and skipping it keeps what is known. That
        keeps the standardization of the outcomes as well, to which hyperparameters
        belong. Where a fit `is_due`, load the state without its `outcome_transform`, or
        outcomes that have gathered at an optimum have the mean and the scale of the
        first ones for ever.

        Args:
            mll: The marginal log likelihood of the model, or of a `ModelListGP`.
            **kwargs: For `fit_gpytorch_mll`.

        Returns:
            Whether it was fitted. `mll` is in eval mode either way. A fit that fails
            is not recorded.

        Raises:
            InputDataError: If `mll` is no marginal log likelihood.
        """
        need = "a marginal log likelihood, such as ExactMarginalLogLikelihood(...)"
        check_kind("mll", mll, MarginalLogLikelihood, need)
        targets = mll.model.train_targets
        each = targets if isinstance(targets, list | tuple) else [targets]
        num_observations = max(y.shape[-1] for y in each)
        if not self.is_due(num_observations):
            mll.eval()
            return False
        from botorch.fit import fit_gpytorch_mll  # takes time, and a fit alone needs it

        fit_gpytorch_mll(mll, **kwargs)
        self.record(num_observations)
        return True

    def state_dict(self) -> dict[str, int | None]:
        """What a resumed loop needs."""
        return {"last_fit": self.last_fit}

    def load_state_dict(self, state: dict[str, int | None]) -> None:
        """Go on from `state_dict`.

        Raises:
            InputDataError: If it is not the state of a `RefitSchedule`.
        """
        check_kind("state", state, dict, "what state_dict() returned")
        if set(state) != {"last_fit"}:
            raise InputDataError(
                f"Got a state with the keys {sorted(state)}; need `last_fit` alone, as "
                "`RefitSchedule.state_dict` returns it."
            )
        if state["last_fit"] is not None:
            check_whole("last_fit", state["last_fit"], least=0)
        self.last_fit = state["last_fit"]
