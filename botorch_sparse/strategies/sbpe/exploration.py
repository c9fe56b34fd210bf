r"""One batch of S-BPE: its points, and the inducing points that certify them.

Inside a batch only variances are known. With the residual matrix
:math:`E = D^{-1/2} (K - Q) D^{-1/2}` of the batch's points, Theorem 3.5 of
[Vakili2022]_ needs its largest eigenvalue `r`, and Theorem 5.2 needs :math:`r \le 1`
after every point (`lambda_max <= tau^2` in the paper's units).

The paper draws the inducing points anew after every point. Here they are kept while a
running upper bound on `r` is at most one, and appended where it is not:

.. math:: r \le r_0 + \sum_{s\ \mathrm{since}} E_{ss},

with the certificate `r_0` of an earlier moment (0 at the start of a batch) and the
present residuals of the points chosen since: more inducing points lower `E`, and a
border adds at most its trace to the largest eigenvalue.
"""

import math
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import torch
from linear_operator.utils.errors import NanError
from torch import Tensor

from botorch_sparse.inducing import accuracy_certificate
from botorch_sparse.pools.device_batch import read_scalars
from botorch_sparse.posteriors.incremental_variance import IncrementalVariance
from botorch_sparse.strategies.data.run_record import AppendOnlyList
from botorch_sparse.strategies.sbpe.design import Design

WHY = "lam is too small for the kernel, or the kernel returned NaN. Check both."


# A row, what it contributes to a trace, and whether inducing points leave some of it.
Contribution: TypeAlias = tuple[int, float, bool]
# A trace, the row of largest variance, and perhaps the largest contribution.
Reading: TypeAlias = tuple[float, int, Contribution | None]


def largest_contribution(
    posterior: IncrementalVariance, counts: Tensor
) -> Contribution:
    """The row that contributes most to the trace of `A` numbers of observations. O(A).

    Raises:
        NanError: If the contribution is NaN.
    """
    return _contribution(read_scalars(*_contribution_scalars(posterior, counts)))


def _contribution_scalars(
    posterior: IncrementalVariance, counts: Tensor
) -> list[Tensor]:
    shares = counts * posterior.residual
    worst = shares.argmax().view(1)
    return [worst, shares.index_select(0, worst), posterior.unexplained(worst)]


def _contribution(values: list[float]) -> Contribution:
    row, share, unexplained = values
    if math.isnan(share):
        raise NanError(f"Got a residual of {share}: {WHY}")
    return int(row), share, unexplained > 0


def read_batch(
    posterior: IncrementalVariance, since: Tensor, after_base: Tensor, num_rows: int
) -> Reading:
    """What every point of a batch asks for, in one read from a device. O(A).

    Args:
        posterior: The rows.
        since: `A` numbers of observations since `r_1`.
        after_base: `A` numbers of observations since `r_0`.
        num_rows: How many rows there are to choose from.

    Returns:
        The trace of the residuals since `r_1`; the first row of largest variance; the
        largest contribution since `r_0`, but None on the host, which looks for it
        where it is needed.
    """
    variance = posterior.variance[:num_rows]
    row = variance.argmax().view(1)
    is_away = not variance.is_cpu
    trace, largest, next_row, *worst = read_scalars(
        since @ posterior.residual,
        variance.index_select(0, row),
        row,
        *(_contribution_scalars(posterior, after_base) if is_away else ()),
    )
    if math.isnan(trace + largest):
        raise NanError(
            f"Got a largest variance of {largest:.3g} and residuals of {trace:.3g} "
            f"together: {WHY}"
        )
    return trace, int(next_row), _contribution(worst) if is_away else None


# Points in a block whose largest eigenvalue is computed; with more of them, and more
# than a sixteenth of the batch, the whole batch is certified anew.
BLOCK_SIZE = 128
# r_0 and r_0 + r_1 leave the rest of the allowance to the points that follow: a little
# less allows for fewer inducing points, a little more for fewer eigenvalues.
LARGEST_BASE, LARGEST_BLOCK = 0.3, 0.55
# The row of a point or of an appended inducing point, rows of drawn inducing points, or
# a new `r_0` or `r_1`.
Kind: TypeAlias = Literal["point", "append", "draw", "base", "block"]


class BatchExploration:
    """The design of one batch over a table of rows, without feedback.

    Everything follows from `events`, so that a loaded run rounds as the saved one did.

    Args:
        posterior: The rows, no data and no inducing points yet.
        design: When inducing points are chosen again, and what a draw may cost.

    Attributes:
        events: What was done, in its order.
        num_draws: Draws of inducing points or certificates so far.
        bound: The running upper bound on `r`.
        base: `r_0`.
        block: `r_1`, of the points since `r_0`.
        num_rows: Rows to choose from, before `add_row`.
    """

    def __init__(self, posterior: IncrementalVariance, design: Design) -> None:
        self.posterior = posterior
        self.design = design
        self.events = AppendOnlyList[tuple[Kind, Any]]()
        self.num_draws = 0
        self.bound = self.base = self.block = 0.0
        self.num_rows = len(posterior)
        # Rows that came later. No view: a saved state would hold all of `X` with it.
        self._added = posterior.X[:0].clone()
        self._after_base = torch.zeros_like(posterior.counts)  # observations since r_0
        self._since = torch.zeros_like(posterior.counts)  # ... and since r_1
        self._reading: Reading | None = None  # until anything changes

    @property
    def points(self) -> list[int]:
        """Rows of the batch so far, repeats included."""
        return [row for kind, row in self.events if kind == "point"]

    def argmax(self, is_open: Tensor | None = None) -> int:
        """The row of largest variance; ties go to the lowest. O(A)."""
        if is_open is None:
            _, row, _ = self._read()
            return row
        variance = self.posterior.variance[: self.num_rows]
        return int(variance.masked_fill(~is_open, -torch.inf).argmax())

    def add_row(self, x: Tensor) -> int:
        """A further row, `1 x d`, to choose from; its number. O(A m)."""
        self._added = torch.cat([self._added, x])
        self._extend()
        return len(self.posterior) - 1

    def add(self, row: int, generator: torch.Generator) -> None:
        """One more point of the batch, and what its certificate asks for. O(A m)."""
        self._do("point", row)
        if self.design.refresh == "exact":
            self._do("append", row)
        elif self.design.refresh == "every":
            self._draw(generator)
        self._update_bound()
        if self.bound > 1.0 and self.design.refresh == "certificate":
            self._certify(generator)
        while self.bound > 1.0:
            if not self._append(largest_contribution(self.posterior, self._since)):
                break
            self._update_bound()

    def folded(self) -> tuple[Tensor, Tensor]:
        """The batch's rows without repeats, and their noise variances."""
        rows = self.posterior.counts.nonzero().squeeze(-1)
        return rows, self.posterior.noise / self.posterior.counts[rows]

    def _do(
        self, kind: Kind, value: Any, *, is_unexplained: bool | None = None
    ) -> None:
        """Do something, and remember it."""
        self._reading = None
        self.events.append((kind, value))
        if kind == "point":
            self._observe(value)
        elif kind == "append":
            self.posterior.add_inducing(value, is_unexplained=is_unexplained)
        elif kind == "draw":
            rows = torch.tensor(value, device=self.posterior.X.device)
            self.posterior.set_inducing(rows)
        else:
            self._since = torch.zeros_like(self._since)
            self.block = value
        if kind == "base":
            self.base, self.block = value, 0.0
            self._after_base = torch.zeros_like(self._since)

    def _observe(self, row: int) -> None:
        while row >= len(self.posterior):
            self._extend()
        self.posterior.observe(row)
        self._since[row].add_(1)
        self._after_base[row].add_(1)

    def _extend(self) -> None:
        """The next of the rows that were added."""
        self._reading = None
        next_row = len(self.posterior) - self.num_rows
        self.posterior.add_rows(self._added[next_row : next_row + 1])
        zero = self._since.new_zeros(1)
        self._since = torch.cat([self._since, zero])
        self._after_base = torch.cat([self._after_base, zero])

    def _read(self) -> Reading:
        """What `read_batch` reads, once until anything changes."""
        if self._reading is None:
            counts = (self._since, self._after_base)
            self._reading = read_batch(self.posterior, *counts, self.num_rows)
        return self._reading

    def _worst(self) -> Contribution:
        """The row that contributes most since `r_0`."""
        worst = None if self._after_base.is_cpu else self._read()[2]
        return worst or largest_contribution(self.posterior, self._after_base)

    def _append(self, worst: Contribution) -> bool:
        """The row that contributes most to a trace becomes inducing.

        Returns:
            Whether any contributes. Where none does, what is left of `E` is rounding,
            and no inducing point would make it smaller.
        """
        row, share, is_unexplained = worst
        if share > 0:
            self._do("append", row, is_unexplained=is_unexplained)
        return share > 0

    def _update_bound(self) -> None:
        """The running bound. O(A)."""
        trace, _, _ = self._read()
        self.bound = self.base + self.block + trace / self.posterior.noise

    def _draw(self, generator: torch.Generator) -> None:
        """A new inducing set by recursive ridge leverage scores. O((A + n) m^2)."""
        rows, noise = self.folded()
        self.num_draws += 1
        delta = min(self.design.draw_delta(self.num_draws), self.design.sampler.delta)
        chosen = replace(self.design.sampler, delta=delta)(
            self.posterior.covar_module,
            self.posterior.X[rows],
            noise,
            generator=generator,
        )
        self._do("draw", rows[chosen].tolist())

    def _certify(self, generator: torch.Generator) -> None:
        """New `r_0` or `r_1`; inducing points are appended until they are small."""
        self._append_dominant()
        self._update_bound()
        if self.bound <= 1.0:
            return
        rows, num_points = self._points_since_base(), len(set(self.points))
        if len(rows) > max(BLOCK_SIZE, num_points // 16):
            self._certify_all(generator)
            rows = []
        allowed = LARGEST_BLOCK - self.base
        while (block := self._largest_eigenvalue(rows)) > allowed:
            if not self._append(self._worst()):
                break
        self._do("block", block)
        self._update_bound()

    def _points_since_base(self) -> list[int]:
        """Their rows, without repeats, ascending."""
        kinds = [kind for kind, _ in self.events]
        start = len(kinds) - kinds[::-1].index("base") if "base" in kinds else 0
        return sorted({row for kind, row in self.events[start:] if kind == "point"})

    def _append_dominant(self) -> None:
        """Points whose own diagonal entry of `E` is too large; no eigenvalue needed."""
        allowed = (LARGEST_BLOCK - self.base) * self.posterior.noise
        while (worst := self._worst())[1] > allowed and self._append(worst):
            pass

    def _certify_all(self, generator: torch.Generator) -> None:
        """A new `r_0`. O(n^2 m) up to 5000 points, then O(n m^2)."""
        posterior, (rows, noise) = self.posterior, self.folded()
        while True:
            self.num_draws += 1
            certificate = accuracy_certificate(
                posterior.feature_map(),
                posterior.X[rows],
                noise,
                delta=self.design.draw_delta(self.num_draws),
                generator=generator,
            )
            if certificate.lambda_max <= LARGEST_BASE:
                break
            appended = [
                self._append(largest_contribution(posterior, posterior.counts))
                for _ in range(1 + posterior.num_inducing // 16)
            ]
            if not any(appended):
                break
        self._do("base", certificate.lambda_max)

    def _largest_eigenvalue(self, rows: list[int]) -> float:
        """Of `E` restricted to the observations since `r_0`. O(k^2 (m + k)).

        The host computes it: `k x k` is small, and one copy is all that is waited for.
        """
        if len(rows) == 0:
            return 0.0
        index = torch.tensor(rows, device=self._since.device)
        X, phi = self.posterior.X[index], self.posterior.features[:, index]
        with torch.no_grad():
            K = self.posterior.covar_module(X).to_dense() - phi.mT @ phi
        root = (self._after_base[index] / self.posterior.noise).sqrt()
        E = root.unsqueeze(-1) * K * root
        return float(torch.linalg.eigvalsh(E.cpu())[-1].clamp_min(0.0))

    def log(self) -> dict[str, Any]:
        """What `replay` needs to do everything again. O(1)."""
        events = self.events.fork()
        return {"events": events, "num_draws": self.num_draws, "added": self._added}

    def replay(self, state: dict[str, Any]) -> None:
        """Do again what was done, without asking why. O(A m) for each event.

        What the last draw of inducing points left nothing of is remembered alone.
        """
        self._added = state["added"].to(self.posterior.X)
        kinds = [kind for kind, _ in state["events"]]
        last_draw = max(
            (i for i, kind in enumerate(kinds) if kind == "draw"), default=0
        )
        for place, (kind, value) in enumerate(state["events"]):
            if place < last_draw and kind in ("append", "draw"):
                self.events.append((kind, value))
            else:
                self._do(kind, value)
        self.num_draws = state["num_draws"]
        self._update_bound()
