"""The demo's strategies: what they are called in its tables and by its options."""

from collections.abc import Sequence

from botorch.exceptions.errors import InputDataError

GP_UCB, THOMPSON, RANDOM = "GP-UCB", "Thompson sampling", "random search"
METHODS = {"bbkb": "BBKB", "thompson": THOMPSON, "gp-ucb": GP_UCB, "random": RANDOM}
PAPER_METHODS = {
    "bbkb-global": "BBKB global",
    "bbkb": "BBKB global-local",
    "gp-ucb": GP_UCB,
    "random": RANDOM,
}


def chosen_names(methods: Sequence[str], *, paper: bool) -> list[str]:
    """The strategies that short names mean, all if there are none.

    Raises:
        InputDataError: If a name is none of the setting's.
    """
    known = PAPER_METHODS if paper else METHODS
    if unknown := [method for method in methods if method not in known]:
        raise InputDataError(
            f"--methods: there is no {unknown[0]!r} {'with' if paper else 'without'} "
            f"--paper; choose from {', '.join(known)}."
        )
    return [known[method] for method in methods or known]
