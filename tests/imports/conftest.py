"""Checkpoints as the released code of the CoOp family saves them, with live objects inside."""

from collections import OrderedDict
from pathlib import Path

import pytest
import torch


def released(
    path: Path,
    tensors: dict[str, torch.Tensor],
    *,
    epoch: int | None = 5,
    legacy: bool = False,
    wrapped: str = "",
    more: dict | None = None,
) -> Path:
    """A file like that of Dassl's ``save_checkpoint``: half tensors, the optimiser's state, and a live scheduler."""
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = torch.optim.SGD([parameter], lr=0.002, momentum=0.9, weight_decay=5e-4)
    parameter.sum().backward()
    optimizer.step()
    successor = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5.0)
    scheduler = {"successor": successor, "last_epoch": 5, "base_lrs": [0.002], "verbose": False, "_last_lr": [1e-5]}
    content = {
        "state_dict": OrderedDict((f"{wrapped}{name}", tensor) for name, tensor in tensors.items()),
        "epoch": epoch,
        "optimizer": optimizer.state_dict(),
        "live_optimizer": optimizer,
        "scheduler": scheduler,
        "val_result": None,
        **(more or {}),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


def buffers(classes: int, tokens: int, width: int) -> dict[str, torch.Tensor]:
    """The buffers that hold the embedded class names."""
    generator = torch.Generator().manual_seed(9)
    prefix, suffix = (torch.randn(classes, n, width, generator=generator).half() for n in (1, 76 - tokens))
    return {"token_prefix": prefix, "token_suffix": suffix}


@pytest.fixture(scope="session")
def save():
    """``released``, as tests have it."""
    return released


@pytest.fixture(scope="session")
def name_buffers():
    """``buffers``, as tests have it."""
    return buffers
