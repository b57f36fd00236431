"""What every logger offers: a module with ``open_logger(about)``, and an object that takes epochs and metrics.

``history.jsonl`` and ``metrics.jsonl`` are always written; loggers are for people who look at many runs elsewhere.
"""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from promptcal import loggers
from promptcal.errors import ConfigError, unknown

HEADLINE_BINS = 15


@dataclass(frozen=True)
class About:
    """What a logger is told about its run.

    Attributes:
        name: ``dataset/method/hash``, the same when a stopped run goes on.
        config: the resolved configuration.
        folder: where a logger may write beside the run's own files; what is there when a stopped run goes on is kept.
    """

    name: str
    config: Mapping[str, Any]
    folder: Path


@runtime_checkable
class Logger(Protocol):
    """Takes the numbers of one run; a run that goes on after a stop starts with the epoch where it stopped."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers by name; ``step`` is the epoch, counted from 1."""

    def close(self) -> None:
        """The run is over, or broke."""


def names() -> list[str]:
    """The loggers one can choose from."""
    return sorted(module.name for module in pkgutil.iter_modules(loggers.__path__) if module.name != "contract")


@contextmanager
def open_loggers(wanted: str | Sequence[str] | None, about: About) -> Iterator[Sequence[Logger]]:
    """The loggers of some names, closed however the block ends.

    Raises:
        ConfigError: an unknown name, or a package that is not installed.
    """
    chosen = [wanted] if isinstance(wanted, str) else list(wanted or ())
    with ExitStack() as stack:
        opened: list[Logger] = []
        for name in chosen:
            if name not in names():
                raise ConfigError(unknown("logger", name, names()))
            logger: Logger = importlib.import_module(f"promptcal.loggers.{name}").open_logger(about)
            stack.callback(logger.close)
            opened.append(logger)
        yield opened


def log_epoch(loggers: Sequence[Logger], row: Mapping[str, Any]) -> None:
    """Log a row of history."""
    values = {f"train/{name}": float(value) for name, value in row.items() if name not in ("epoch", "steps")}
    for logger in loggers:
        logger.log(values, int(row["epoch"]))


def log_metrics(loggers: Sequence[Logger], rows: Sequence[Mapping[str, Any]], step: int) -> None:
    """Log metric rows as ``calibrator/split/metric``; of binned metrics, those of 15 bins."""
    values = {
        f"{row['calibrator']}/{row['split']}/{row['metric']}": float(row["value"])
        for row in rows
        if row["value"] is not None and row.get("bins") in (None, HEADLINE_BINS)
    }
    for logger in loggers:
        logger.log(values, step)
