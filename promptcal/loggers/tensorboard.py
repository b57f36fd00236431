"""TensorBoard: event files in the run's folder, below ``logs/tensorboard``."""

from collections.abc import Mapping
from typing import Any

from promptcal.extras import extra
from promptcal.loggers.contract import About


class TensorBoardLogger:
    """Scalars by epoch."""

    def __init__(self, about: About) -> None:
        extra("tensorboard", "tensorboard", "system.log=tensorboard")
        module = extra("torch.utils.tensorboard", "tensorboard", "system.log=tensorboard")
        self.writer: Any = module.SummaryWriter(log_dir=str(about.folder / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the scalars."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()


def open_logger(about: About) -> TensorBoardLogger:
    """The logger of a run."""
    return TensorBoardLogger(about)
