r"""One batch of S-BPE: which points, and which inducing points certify them.

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
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from botorch.exceptions import InputDataError
from linear_operator.utils.errors import NanError
from torch import Tensor

from botorch_sparse.inducing import RecursiveRLSSampler, accuracy_certificate
from botorch_sparse.optim.transfers import read
from botorch_sparse.posteriors.growing import GrowingPosterior

Refresh = Literal["certificate", "every", "exact"]
# Points in a block whose largest eigenvalue is computed; with more of them, and more
# than a sixteenth of the batch, the whole batch is certified anew.
BLOCK_SIZE = 128
# r_0 and r_0 + r_1 leave the rest of the allowance to the points that follow: a little
# less allows for fewer inducing points, a little more for fewer eigenvalues.
LARGEST_BASE, LARGEST_BLOCK = 0.3, 0.55


@dataclass(frozen=True)
class CertificatePolicy:
    r"""When inducing points are chosen again inside a batch, and what a draw may cost.

    Args:
        refresh: `"certificate"`: append when the bound on `r` exceeds one; `"every"`:
            a new draw after every point, as the paper writes, and the worst points
            appended where a draw fails; `"exact"`: every point of the batch is
            inducing (BPE, the exact posterior).
        delta: Failure probability of a whole run.
        num_batches: Batches B that share it.
        sampler: For the draws of `"every"`.
    """

    refresh: Refresh
    delta: float
    num_batches: int
    sampler: RecursiveRLSSampler = field(default_factory=RecursiveRLSSampler)

    def __post_init__(self) -> None:
        if self.refresh not in ("certificate", "every", "exact"):
            raise InputDataError(
                f"Got refresh={self.refresh!r}; need 'certificate', 'every' or 'exact'."
            )

    def draw_delta(self, draw: int) -> float:
        r"""Failure probability of the j-th draw of a batch.

        :math:`\delta_j = 3 \delta / (\pi^2 B j^2)` ([Vakili2022]_ Theorem 5.2): the
        draws of all batches together fail with probability at most
        :math:`\delta / 2`, and the other half is left to the confidence bounds.
        """
        return 3.0 * self.delta / (math.pi**2 * self.num_batches * draw**2)


class Worst(NamedTuple):
    """The row that contributes most to a weighted trace of residuals."""

    row: int
    share: float
    is_unexplained: bool | None = None  # by the inducing points; None for not known

    @classmethod
    def of(cls, posterior: GrowingPosterior, counts: Tensor) -> "Worst":
        """The row, given the `A` weights. O(A)."""
        if not counts.is_cpu:
            return cls.from_values(*read(*cls.scalars(posterior, counts)))
        share = counts * posterior.residual
        row = int(share.argmax())
        return cls(row, float(share[row]))

    @staticmethod
    def scalars(posterior: GrowingPosterior, counts: Tensor) -> list[Tensor]:
        """What `from_values` needs, still on an accelerator."""
        share = counts * posterior.residual
        row = share.argmax().view(1)
        columns = torch.stack([share, posterior.unexplained])
        return [row, *columns.index_select(1, row).unbind()]

    @classmethod
    def from_values(cls, row: float, share: float, unexplained: float) -> "Worst":
        """From what was read."""
        return cls(int(row), share, unexplained > 0)


class Glance:
    """What the next decisions about a batch look at.

    On the host each is computed when asked for. An accelerator is asked once for all.

    Args:
        posterior: The rows.
        since: `A` numbers of observations since `r_1`.
        after_base: `A` numbers of observations since `r_0`.
        num_rows: How many rows there are to choose from.
    """

    def __init__(
        self,
        posterior: GrowingPosterior,
        since: Tensor,
        after_base: Tensor,
        num_rows: int,
    ) -> None:
        self._posterior = posterior
        self._since = since
        self._after_base = after_base
        self._num_rows = num_rows
        if not since.is_cpu:
            worst = Worst.scalars(posterior, after_base)
            row = self._next().view(1)
            first = posterior.variance.index_select(0, row)
            trace, largest, next_row, *values = read(self._trace(), first, row, *worst)
            if math.isnan(trace + largest):
                raise NanError(
                    f"Got a largest variance of {largest:.3g} and residuals of "
                    f"{trace:.3g} together: lam is too small for the kernel, or the "
                    "kernel returned NaN. Check both."
                )
            self.trace, self.next_row = trace, int(next_row)
            self.worst = Worst.from_values(*values)

    @cached_property
    def trace(self) -> float:
        """Of the residuals of the points since `r_1`."""
        return float(self._trace())

    @cached_property
    def next_row(self) -> int:
        """The row of largest variance; ties go to the lowest."""
        return int(self._next())

    @cached_property
    def worst(self) -> Worst:
        """Of the points since `r_0`."""
        return Worst.of(self._posterior, self._after_base)

    def _trace(self) -> Tensor:
        return self._since @ self._posterior.residual

    def _next(self) -> Tensor:
        return self._posterior.variance[: self._num_rows].argmax()


class BatchExploration:
    """The design of one batch over a table of rows, without feedback.

    Everything follows from `events`, so that a loaded run rounds as the saved one did.

    Args:
        posterior: The rows, no data and no inducing points yet.
        policy: When inducing points are chosen again.

    Attributes:
        events: Rows in their order; a point `s` of the batch is `s`, an appended
            inducing point `z` is `~z`.
        bound: The running upper bound on `r`.
    """

    def __init__(self, posterior: GrowingPosterior, policy: CertificatePolicy) -> None:
        self.posterior = posterior
        self.policy = policy
        self.events: list[int] = []
        self.num_draws = 0
        self.bound = 0.0
        self._base, self._base_at = 0.0, 0  # r_0, and how many events it knew
        self._block, self._block_at = 0.0, 0  # r_1 likewise
        self._drawn: list[int] = []  # the inducing set of the last draw ...
        self._drawn_at = 0  # ... and how many events came before it
        self._after_base = torch.zeros_like(posterior.counts)  # observations since
        self._since = torch.zeros_like(posterior.counts)  # ... and since r_1
        self._num_rows = len(posterior)  # before `add_row`
        self._added = posterior.X[:0]  # rows that came later
        self._seen: Glance | None = None  # until anything changes

    @property
    def points(self) -> list[int]:
        """Rows of the batch so far, repeats included."""
        return [event for event in self.events if event >= 0]

    def argmax(self, num_candidates: int, is_open: Tensor | None = None) -> int:
        """The row of largest variance among the first; ties go to the lowest. O(A).

        Args:
            num_candidates: How many may be chosen.
            is_open: Which of them; None for all.
        """
        if is_open is None and num_candidates == self._num_rows:
            return self._glance().next_row
        variance = self.posterior.variance[:num_candidates]
        if is_open is not None:
            variance = variance.masked_fill(~is_open, -torch.inf)
        return int(variance.argmax())

    def add_row(self, x: Tensor) -> int:
        """A further row, `1 x d`, to choose from; its number. O(A m)."""
        self._added = torch.cat([self._added, x])
        self._extend()
        return len(self.posterior) - 1

    def record(self, row: int) -> None:
        """One more point of the batch, with no certificate kept. O(1)."""
        self._observe(row)

    def add(self, row: int, generator: torch.Generator) -> None:
        """One more point of the batch, and what its certificate asks for. O(A m)."""
        self._observe(row)
        if self.policy.refresh == "exact":
            self._append(row)
        elif self.policy.refresh == "every":
            self._draw(generator)
        self._update_bound()
        if self.bound > 1.0 and self.policy.refresh == "certificate":
            self._certify(generator)
        while self.bound > 1.0 and self._append_worst(self._since):
            self._update_bound()

    def folded(self) -> tuple[Tensor, Tensor]:
        """The batch's rows without repeats, and their numbers of observations."""
        rows = self.posterior.counts.nonzero().squeeze(-1)
        return rows, self.posterior.counts[rows]

    def _glance(self) -> Glance:
        """What the next decisions look at."""
        if self._seen is None:
            counts = (self._since, self._after_base)
            self._seen = Glance(self.posterior, *counts, self._num_rows)
        return self._seen

    def _forget_since(self) -> None:
        """A new `r_1` knows of all observations."""
        self._seen, self._since = None, torch.zeros_like(self._since)

    def _forget_after_base(self) -> None:
        """A new `r_0` knows of all observations."""
        self._seen, self._after_base = None, torch.zeros_like(self._since)

    def _extend(self) -> None:
        """The next of the rows that were added."""
        self._seen = None
        next_row = len(self.posterior) - self._num_rows
        self.posterior.add_rows(self._added[next_row : next_row + 1])
        zero = self._since.new_zeros(1)
        self._since = torch.cat([self._since, zero])
        self._after_base = torch.cat([self._after_base, zero])

    def _observe(self, row: int) -> None:
        while row >= len(self.posterior):
            self._extend()
        self._seen = None
        self.events.append(row)
        self.posterior.observe(row)
        self._since[row].add_(1)
        self._after_base[row].add_(1)

    def _append(self, row: int, *, is_unexplained: bool | None = None) -> None:
        self._seen = None
        self.events.append(~row)
        self.posterior.add_inducing(row, is_unexplained=is_unexplained)

    def _append_worst(self, counts: Tensor) -> bool:
        """The row that contributes most to a weighted trace becomes inducing.

        Returns:
            Whether any contributes. Where none does, what is left of `E` is rounding,
            and no inducing point would make it smaller.
        """
        is_seen = counts is self._after_base
        worst = self._glance().worst if is_seen else Worst.of(self.posterior, counts)
        if not worst.share > 0:
            return False
        self._append(worst.row, is_unexplained=worst.is_unexplained)
        return True

    def _update_bound(self) -> None:
        """The running bound. O(A)."""
        trace = self._glance().trace
        self.bound = self._base + self._block + trace / self.posterior.noise

    def _draw(self, generator: torch.Generator) -> None:
        """A new inducing set by recursive ridge leverage scores. O((A + n) m^2)."""
        rows, counts = self.folded()
        self.num_draws += 1
        delta = min(self.policy.draw_delta(self.num_draws), self.policy.sampler.delta)
        chosen = replace(self.policy.sampler, delta=delta)(
            self.posterior.covar_module,
            self.posterior.X[rows],
            self.posterior.noise / counts,
            generator=generator,
        )
        self._seen = None
        self._drawn, self._drawn_at = rows[chosen].tolist(), len(self.events)
        self.posterior.set_inducing(rows[chosen])

    def _certify(self, generator: torch.Generator) -> None:
        """New `r_0` or `r_1`; inducing points are appended until they are small."""
        self._append_dominant()
        self._update_bound()
        if self.bound <= 1.0:
            return
        since = (event for event in self.events[self._base_at :] if event >= 0)
        rows, num_points = sorted(set(since)), len(set(self.points))
        if len(rows) > max(BLOCK_SIZE, num_points // 16):
            self._certify_all(generator)
            rows = []
        allowed = LARGEST_BLOCK - self._base
        while (block := self._largest_eigenvalue(rows)) > allowed:
            if not self._append_worst(self._after_base):
                break
        self._block, self._block_at = block, len(self.events)
        self._forget_since()
        self._update_bound()

    def _append_dominant(self) -> None:
        """Points whose own diagonal entry of `E` is too large; no eigenvalue needed."""
        allowed = (LARGEST_BLOCK - self._base) * self.posterior.noise
        while self._glance().worst.share > allowed:
            if not self._append_worst(self._after_base):
                break

    def _certify_all(self, generator: torch.Generator) -> None:
        """A new `r_0`. O(n^2 m) up to 5000 points, then O(n m^2)."""
        rows, counts = self.folded()
        while True:
            self.num_draws += 1
            certificate = accuracy_certificate(
                self.posterior.feature_map(),
                self.posterior.X[rows],
                self.posterior.noise / counts,
                delta=self.policy.draw_delta(self.num_draws),
                generator=generator,
            )
            steps = range(1 + self.posterior.num_inducing // 16)
            if certificate.lambda_max <= LARGEST_BASE or not any(
                [self._append_worst(self.posterior.counts) for _ in steps]
            ):
                break
        self._base, self._base_at = certificate.lambda_max, len(self.events)
        self._block, self._block_at = 0.0, len(self.events)
        self._forget_after_base()
        self._forget_since()

    def _largest_eigenvalue(self, rows: list[int]) -> float:
        """That of `E` restricted to the observations since `r_0`. O(k^2 (m + k)).

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

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers from which `load_state_dict` builds everything again."""
        return {
            "events": list(self.events),
            "num_draws": self.num_draws,
            "base": self._base,
            "base_at": self._base_at,
            "block": self._block,
            "block_at": self._block_at,
            "drawn": list(self._drawn),
            "drawn_at": self._drawn_at,
            "added": self._added.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the exploration of a saved run. O(A m) for each of its events."""
        old, rows = self.posterior, self.posterior.X[: self._num_rows]
        fresh = GrowingPosterior(old.covar_module, rows, old.noise)
        self.__init__(fresh, self.policy)  # type: ignore[misc]
        self._added = state["added"].to(rows)
        self.num_draws = state["num_draws"]
        self._base, self._base_at = state["base"], state["base_at"]
        self._block, self._block_at = state["block"], state["block_at"]
        self._drawn, self._drawn_at = list(state["drawn"]), state["drawn_at"]
        self._replay(state["events"])

    def _replay(self, events: list[int]) -> None:
        """Do again what was done, without asking why."""
        for place, event in enumerate(events):
            self._pass(place)
            if event >= 0:
                self._observe(event)
            elif place >= self._drawn_at:
                self._append(~event)
            else:  # the draw that followed left nothing of it
                self.events.append(event)
        self._pass(len(events))
        self._update_bound()

    def _pass(self, place: int) -> None:
        """What happened between two events."""
        if place == self._drawn_at and self._drawn:
            index = torch.tensor(self._drawn, device=self.posterior.X.device)
            self.posterior.set_inducing(index)
        if place == self._base_at:
            self._forget_after_base()
        if place == self._block_at:
            self._forget_since()
