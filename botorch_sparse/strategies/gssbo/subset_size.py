"""How many samples the model of GSSBO may hold."""

from numbers import Integral
from typing import Any, Literal, TypeAlias

from botorch.exceptions import InputDataError

from botorch_sparse.argument_checks import check_number, check_whole

SubsetSize: TypeAlias = int | Literal["dynamic"] | None

# Iterations whose mean time is the yardstick, and slow ones in a row that end growth.
WINDOW = 10
PATIENCE = 3


class SubsetBuffer:
    r"""The number of samples M in the model: given, or found by the clock.

    The dynamic buffer of [Wei2025]_ Section 4.3 (1): all samples are in the model until
    an iteration takes longer than Z times the mean initial one,

    .. math:: T_{current} > Z \bar T \quad\Rightarrow\quad M = |D|,

    and M stays as it is from there on. Here :math:`\bar T` is the mean of the first
    `window` iterations, and `patience` iterations in a row have to be slow, so that
    neither a single fit of the hyperparameters nor another process decides on M;
    `patience=1` is the paper's letter. What counts is learning and choosing a point,
    not the evaluation.

    Args:
        size: A number of samples, `"dynamic"`, or None for all samples always.
        Z: How many times slower an iteration may become, above 1.
        window: Initial iterations, at least 1.
        patience: Slow iterations in a row, at least 1.
        smallest: Samples that are forced into the model beside the newest one; M is
            larger.

    Attributes:
        size: M, or None as long as all samples are in the model.

    Raises:
        InputDataError: If an argument is out of its range.

    Example:
        >>> buffer = SubsetBuffer("dynamic", Z=4.0, window=2, patience=1)
        >>> for n, seconds in enumerate([1.0, 3.0, 7.9, 8.1]):
        ...     buffer.record(seconds, num_samples=n)
        >>> buffer.size
        3
    """

    def __init__(
        self,
        size: SubsetSize,
        Z: float = 4.0,
        window: int = WINDOW,
        patience: int = PATIENCE,
        *,
        smallest: int = 0,
    ) -> None:
        _validate_size(size, smallest)
        need = "need a number above 1, such as 4: how many times slower than in the "
        check_number("Z", Z, "(1, inf)", f"{need}beginning an iteration may become.")
        check_whole("window", window)
        check_whole("patience", patience)
        size = int(size) if isinstance(size, Integral) else size
        self.size = None if isinstance(size, str) else size
        self.Z, self.window, self.patience = Z, window, patience
        self._given, self._smallest = size, int(smallest)
        self._initial: list[float] = []
        self._num_slow = 0

    @property
    def is_open(self) -> bool:
        """Whether M is still to be found."""
        return self._given == "dynamic" and self.size is None

    def record(self, seconds: float, num_samples: int) -> None:
        """Note what an iteration took.

        Args:
            seconds: Its time.
            num_samples: Samples in the model, the M from now on if it was slow.
        """
        if not self.is_open:
            return
        if len(self._initial) < self.window:
            self._initial = [*self._initial, seconds]  # copies share the list
            return
        is_slow = seconds > self.Z * sum(self._initial) / self.window
        self._num_slow = self._num_slow + 1 if is_slow else 0
        if self._num_slow == self.patience:
            self.size = max(num_samples, self._smallest + 1)

    def config(self) -> dict[str, Any]:
        """Plain values for a state to agree on."""
        return {"subset_size": self._given} | {
            name: getattr(self, name) for name in ("Z", "window", "patience")
        }

    def state_dict(self) -> dict[str, Any]:
        """M, and the times on the way to it."""
        return {
            "size": self.size,
            "initial": list(self._initial),
            "num_slow": self._num_slow,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the buffer that `state_dict` came from."""
        self.size = state["size"]
        self._initial = list(state["initial"])
        self._num_slow = state["num_slow"]


def _validate_size(size: SubsetSize, smallest: int) -> None:
    """Refuse what is no size, or leaves no room beside the forced samples."""
    if size is None or size == "dynamic":
        return
    if not isinstance(size, Integral) or isinstance(size, bool):
        raise InputDataError(
            f"Got subset_size={size!r}; need a number of samples, 'dynamic', or None "
            "for all samples."
        )
    if size <= smallest:
        raise InputDataError(
            f"Got subset_size={size} with num_initial={smallest}; need a larger "
            "subset: the initial samples and the newest one are always in it."
        )
