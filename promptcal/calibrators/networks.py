"""Small networks that give each row a temperature: how they are made, trained, kept and run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers of torch from a seed, within the block alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def mlp(widths: Sequence[int], activation: Callable[[], nn.Module]) -> nn.Sequential:
    """Linear layers from each width to the next, with the activation between them."""
    layers: list[nn.Module] = []
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following), activation()]
    return nn.Sequential(*layers[:-1])


def train(
    network: nn.Module,
    loss: Callable[..., Tensor],
    tensors: Sequence[Tensor],
    *,
    optimiser: torch.optim.Optimizer,
    epochs: int,
    batch: int,
) -> None:
    """Minimise ``loss(*batch of each tensor)`` over shuffled batches."""
    network.train()
    n = len(tensors[0])
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(n), batch):
            optimiser.zero_grad()
            loss(*(tensor[rows] for tensor in tensors)).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    network.eval()


def weights_of(network: nn.Module) -> dict[str, np.ndarray]:
    """The tensors of a network as arrays."""
    return {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}


def put_weights(network: nn.Module, weights: Mapping[str, np.ndarray]) -> nn.Module:
    """The network with these tensors, ready to run."""
    network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    return network.eval()


def as_tensor(array: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
    """An array as a tensor of its own."""
    return torch.tensor(array, dtype=dtype)
