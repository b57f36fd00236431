"""One run of a sweep as something that travels to a worker, and what comes back from it."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from promptcal.errors import PromptcalError, RunBusy


@dataclass(frozen=True)
class Job:
    """One run to do; plain values alone, so that any process on any machine can take it.

    Attributes:
        number: its place in the sweep.
        label: what to call it.
        config: the resolved configuration.
        folder: the working folder that relative paths of the configuration start from.
        again: repeat the run where it is done.
        wait: wait where another process is at this run; else come back busy.
        quiet: no progress bars.
    """

    number: int
    label: str
    config: Mapping[str, Any]
    folder: str
    again: bool = False
    wait: bool = False
    quiet: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes:
        number: the job's.
        path: the folder of the finished run; None where there is none.
        error: why there is none, in a sentence.
        mistake: the error is one a person can mend, not a fault of the program or machine.
        busy: another process is at this run.
        found: the run was done already, or another process did it meanwhile.
        seconds: what it took.
        said: what the run had to say where nobody heard it live.
    """

    number: int
    path: str | None = None
    error: str | None = None
    mistake: bool = False
    busy: bool = False
    found: bool = False
    seconds: float = 0.0
    said: tuple[str, ...] = ()


def work(job: Job, say: Callable[[str], None] | None = None) -> Outcome:
    """Do a job; whatever goes wrong with it is in the outcome and touches no other job.

    Args:
        job: the run.
        say: told what is being done; without it the lines come with the outcome.
    """
    started = time.perf_counter()
    lines: list[str] = []

    def outcome(**facts: Any) -> Outcome:
        seconds = round(time.perf_counter() - started, 3)
        return Outcome(job.number, seconds=seconds, said=() if say else tuple(lines), **facts)

    tell = say or lines.append
    try:
        os.chdir(job.folder)
        from omegaconf import DictConfig  # not at the top: a worker sets its number of threads first

        from promptcal.config import discover
        from promptcal.experiment import complete
        from promptcal.preparation import prepare

        discover()
        prepared = prepare(DictConfig(dict(job.config)), tell)
        done_here = complete(prepared, again=job.again, wait=job.wait, quiet=job.quiet, say=tell)
        return outcome(path=str(prepared.folder.path), found=not done_here)
    except RunBusy:
        return outcome(busy=True)
    except PromptcalError as error:
        return outcome(error=str(error), mistake=True)
    except Exception as error:
        import traceback

        tell(traceback.format_exc().rstrip())
        reason = (str(error).splitlines() or ["no reason given"])[0]
        return outcome(error=f"{type(error).__name__}: {reason}")
