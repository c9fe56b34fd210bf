"""Numbers that are too large: their squares overflow where they are added up."""

from collections.abc import Iterable

from botorch.exceptions import InputDataError

from botorch_sparse.strategies.domain import Domain

# The squares of 10^8 such numbers add up to 1e308; float64 goes to 1.8e308.
LARGEST = 1e150


def refuse_large_values(values: Iterable[float], largest: float) -> None:
    """Refuse feedback that is too large to be learned from.

    It would be in the way of all that is told later: nothing takes it back.

    Raises:
        InputDataError: If a value is beyond `largest`, either way.
    """
    most = max(map(abs, values), default=0.0)
    if most > largest:
        raise InputDataError(
            f"Got feedback as large as {most:.3g}, whose squares overflow when they "
            f"are added up; need values up to {largest:.3g}. Rescale all feedback, or "
            "leave out, with fail(ids) where they are pending, those that are no "
            "measurements."
        )


def refuse_large_inputs(domain: Domain) -> None:
    """Refuse a domain whose coordinates are too large for a kernel that is given.

    Raises:
        InputDataError: If one is beyond `LARGEST`, either way.
    """
    most = float(domain.ranges.abs().max())
    if most > LARGEST:
        raise InputDataError(
            f"Got {'candidates' if domain.num_rows else 'bounds'} as large as "
            f"{most:.3g} with a kernel, whose squares overflow; need coordinates up to "
            f"{LARGEST:.3g}. Rescale them and the lengthscales, or leave covar_module "
            "out: then inputs are scaled."
        )
