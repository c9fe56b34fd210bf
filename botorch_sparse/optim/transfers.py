"""Several numbers in one copy between the host and an accelerator."""

import torch
from torch import Tensor


def read(*scalars: Tensor) -> list[float]:
    """The values of tensors of one element, in one copy from the device.

    Integers up to 2^53 come through as they are.
    """
    return torch.cat([scalar.double().view(1) for scalar in scalars]).tolist()


def upload(*vectors: Tensor, device: torch.device) -> list[Tensor]:
    """Vectors of the host on a device, in one copy, or as they are if it is the host.

    Integers up to 2^53 come through as they are.
    """
    if device.type == "cpu":
        return list(vectors)
    packed = torch.cat([vector.double() for vector in vectors]).to(device)
    parts = packed.split([len(vector) for vector in vectors])
    return [part.to(v.dtype) for part, v in zip(parts, vectors, strict=True)]
