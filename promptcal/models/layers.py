"""Layers that start from random numbers of their own."""

import math

import torch
from torch import nn


def seeded_linear(width_in: int, width_out: int, generator: torch.Generator | None, *, bias: bool = True) -> nn.Linear:
    """A linear layer that starts as ``nn.Linear`` does, U(−1/√in, 1/√in), from a generator of its own."""
    layer = nn.Linear(width_in, width_out, bias=bias, device="meta").to_empty(device="cpu")
    bound = 1 / math.sqrt(width_in)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer
