"""What a batch of S-BPE came to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """One batch of S-BPE: points chosen blindly, then one look at their feedback.

    A first batch that a kernel is fitted to has no bounds, and leaves all.

    Attributes:
        length: Points that the schedule gave it.
        num_evaluations: Points whose feedback was there at its end.
        num_inducing: Inducing points of its posterior.
        survivors: Candidates left after it; None on a continuous domain.
        fraction: Share of what it explored that is left after it.
        beta: BoTorch's beta, the square of what multiplies the standard deviation.
        offset: What is added to the radius whatever the variance, in units of Y.
        lambda_max: Certified upper bound on the largest eigenvalue of the residual
            matrix at its points, in units of the noise variance.
        max_width: Largest width of its intervals over what is left, in units of Y.
    """

    length: int
    num_evaluations: int = 0
    num_inducing: int = 0
    survivors: int | None = None
    fraction: float = 1.0
    beta: float = float("nan")
    offset: float = 0.0
    lambda_max: float = float("nan")
    max_width: float = float("inf")
