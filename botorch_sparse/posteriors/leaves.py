"""What the gradient of a function of a kernel flows to, and its sum over blocks."""

from collections.abc import Iterable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor


def leaves_of(kernel: Kernel, S: Tensor) -> list[Tensor]:
    """All that a kernel's gradient flows to, its inputs excepted.

    Its parameters, and the leaves of hyperparameters that are the result of another
    computation (sampled ones, or parameters in another dtype).
    """
    leaves = {id(p): p for p in kernel.parameters() if p.requires_grad and p.is_leaf}
    K = kernel(S[..., :1, :].detach()).to_dense()
    seen, ahead = set(), [K.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves[id(node.variable)] = node.variable
        ahead += [function for function, _ in node.next_functions]
    return list(leaves.values())


class Leaves:
    """Tensors whose gradients add up over the blocks; None where not wanted.

    Args:
        tensors: The tensors.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors = list(tensors)
        self.grads: list[Tensor | None] = [None] * len(self._tensors)

    def pull(self, outputs: list[Tensor], grads: list[Tensor]) -> None:
        """Add what flows back from `outputs`."""
        pairs = [
            (output, grad.expand(output.shape))
            for output, grad in zip(outputs, grads, strict=False)
            if output.requires_grad
        ]
        wanted = [i for i, t in enumerate(self._tensors) if t.requires_grad]
        if not pairs or not wanted:
            return
        parts = torch.autograd.grad(
            [output for output, _ in pairs],
            [self._tensors[i] for i in wanted],
            [grad for _, grad in pairs],
            retain_graph=True,  # what computed the hyperparameters serves each block
            allow_unused=True,
        )
        for i, part in zip(wanted, parts, strict=True):
            known = self.grads[i]
            if part is not None:
                self.grads[i] = part if known is None else known + part
