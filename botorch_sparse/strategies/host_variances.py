"""Variances of candidates on the host, where the candidates are elsewhere."""

import torch
from torch import Tensor


class HostVariances:
    """Variances of candidates, each copied from an accelerator once.

    They belong to one tensor: where it is another one, all are forgotten.
    """

    def __init__(self) -> None:
        self._source: Tensor | None = None
        self._known: dict[int, float] = {}
        self._largest: float | None = None

    def at(self, source: Tensor, rows: Tensor, there: Tensor | None = None) -> Tensor:
        """Some variances on the host.

        Args:
            source: `A` variances.
            rows: `k` candidates, on the host.
            there: The same where the variances are, if they are there already.
        """
        if source.is_cpu:
            return source[rows]
        known, wanted = self.known(source), rows.tolist()
        if missing := sorted(set(wanted).difference(known)):
            if there is None:
                there = torch.tensor(missing, device=source.device)
            else:
                missing = wanted
            both = torch.cat([source.max().view(1), source.index_select(0, there)])
            self._largest, *values = both.tolist()
            known.update(zip(missing, values, strict=True))
        return torch.tensor([known[row] for row in wanted], dtype=source.dtype)

    def largest(self, source: Tensor) -> float:
        """The largest variance; it comes to the host with any others."""
        self.known(source)
        if self._largest is None:
            self._largest = float(source.max())
        return self._largest

    def known(self, source: Tensor) -> dict[int, float]:
        """What is known of these variances; others may write what they read there."""
        if source is not self._source:
            self._source, self._known, self._largest = source, {}, None
        return self._known
