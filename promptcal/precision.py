"""Number formats: what is computed in float32 or wider, and autocast by a key."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from promptcal.errors import ConfigError

AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""What a precision of the configuration means for autocast."""


def wide(tensor: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The tensor in float32, or as it is where it is wider: for losses, softmax, temperatures and features."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


@contextmanager
def outside_autocast(device: torch.device) -> Iterator[None]:
    """No autocast in here: matrix products of float32 stay float32."""
    with torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def autocast(device: torch.device, precision: str) -> Iterator[None]:
    """Autocast of a device in the precision of the configuration; nothing for ``float32``.

    Raises:
        ConfigError: an unknown precision, or ``float16`` on a CPU, which computes it slowly and inexactly.
    """
    if precision not in AUTOCAST:
        raise ConfigError(f"unknown precision '{precision}'; choose {', '.join(AUTOCAST)}.")
    if precision == "float16" and device.type == "cpu":
        raise ConfigError("precision=float16 needs a GPU; on the CPU use float32 or bfloat16.")
    dtype = AUTOCAST[precision]
    if dtype is None:
        yield
        return
    with torch.autocast(device.type, dtype=dtype):
        yield
