"""The yardstick of GSSBO: samples drawn at random."""

from typing import Any

from botorch.exceptions import InputDataError

from botorch_sparse.strategies.gssbo.strategy import GSSBO


class RSSBO(GSSBO):
    """GSSBO whose other samples are drawn uniformly [Wei2025]_.

    The initial samples and the newest one are in the model, as in `GSSBO`, and all that
    costs time is the same but for the selection, which is O(n).

    Args:
        *args: As in `GSSBO`.
        **options: Keyword arguments of `GSSBO`; there are no gradients.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        about_gradients = {"selection", "reading", "gradients", "noise_scale"}
        if given := sorted(about_gradients & options.keys()):
            raise InputDataError(
                f"Got {given} for a random selection; use GSSBO for a choice by "
                "gradients or another one."
            )
        super().__init__(*args, **options, selection="random")
