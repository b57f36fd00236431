"""What every launcher offers: ``launch(jobs, resources, say)``, a generator of outcomes as they come."""

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from promptcal import launchers
from promptcal.errors import ConfigError, unknown
from promptcal.jobs import Job, Outcome


@dataclass(frozen=True)
class Resources:
    """What a sweep may use.

    Attributes:
        jobs: how many runs at once; None lets the launcher choose.
        options: settings of the launcher itself, as people typed them.
        logs: a folder that all workers see, for what a launcher writes.
    """

    jobs: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    logs: Path = Path("runs/logs")

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"--jobs {self.jobs} would never end; give at least 1.")


Launch = Callable[[Sequence[Job], Resources, Callable[[str], None]], Iterator[Outcome]]
"""Do the jobs and yield the outcome of each, in any order, as they end.

Every job gets exactly one outcome: where a worker dies or a machine is lost, the launcher says so in the outcome of the
jobs it takes with it.
"""


@runtime_checkable
class Launcher(Protocol):
    """A module of ``promptcal.launchers``."""

    launch: Launch


def names() -> list[str]:
    """The launchers one can choose from."""
    return sorted(module.name for module in pkgutil.iter_modules(launchers.__path__) if module.name != "contract")


def launcher(name: str) -> Launch:
    """The launcher of a name.

    Raises:
        ConfigError: an unknown name.
    """
    if name not in names():
        raise ConfigError(unknown("launcher", name, names()))
    module: Launcher = importlib.import_module(f"promptcal.launchers.{name}")
    return module.launch


def cores() -> int:
    """The CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def with_threads(job: Job, threads: int) -> Job:
    """The job with so many CPU threads, unless its configuration says how many."""
    system = job.config["system"]
    return replace(job, config={**job.config, "system": {**system, "threads": system["threads"] or threads}})


def read_options(options: Mapping[str, str], known: Mapping[str, Callable[[str], object]]) -> dict[str, object]:
    """Typed options of a launcher; raises ConfigError for one it does not know or cannot read."""
    values = {}
    for name, text in options.items():
        if name not in known:
            raise ConfigError(unknown("option of the launcher", name, known))
        try:
            values[name] = known[name](text)
        except ValueError as error:
            raise ConfigError(f"the option {name}={text} is not a number.") from error
    return values
