"""Seeds for what takes a seed and no generator."""

import torch


def draw_seed(generator: torch.Generator) -> int:
    """A seed from the next bits of a generator, at least 0 and below 2^31."""
    return int(torch.randint(2**31, (), generator=generator))
