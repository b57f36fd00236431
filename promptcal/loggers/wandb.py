"""Weights & Biases: one W&B run a run, in the project ``promptcal`` (``WANDB_PROJECT`` names another)."""

import os
from collections.abc import Mapping
from typing import Any

from promptcal.extras import extra
from promptcal.loggers.contract import About


class WandbLogger:
    """Metrics by epoch; a run that goes on after a stop is gone on with under its own id."""

    def __init__(self, about: About) -> None:
        wandb = extra("wandb", "wandb", "system.log=wandb")
        self.run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "promptcal"),
            id=about.name.replace("/", "-"),
            name=about.name,
            config=dict(about.config),
            resume="allow",
            reinit=True,
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send the metrics."""
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        """Send what is left."""
        self.run.finish()


def open_logger(about: About) -> WandbLogger:
    """The logger of a run."""
    return WandbLogger(about)
