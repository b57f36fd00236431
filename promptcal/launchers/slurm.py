"""Runs on a Slurm cluster through submitit: an array of tasks, each of which does its share of the runs in order.

The nodes need promptcal installed, and the folders of runs, data and cache under the same paths (a shared file system).
A task that Slurm preempts or that runs out of time is queued again and goes on where it stopped.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from promptcal.errors import ConfigError
from promptcal.extras import extra
from promptcal.jobs import Job, Outcome, work
from promptcal.launchers.contract import Resources, with_threads

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Share:
    """What one task of the array does.

    Attributes:
        jobs: its runs, in order.
        outcomes: a file of its own, one JSON line an outcome, which the launcher reads while the task works.
    """

    jobs: tuple[Job, ...]
    outcomes: Path

    def __call__(self) -> int:
        """Do the runs; returns how many."""
        for job in self.jobs:
            done = json.dumps(asdict(work(job)))
            with self.outcomes.open("a", encoding="utf-8") as file:
                file.write(f"{done}\n")
        return len(self.jobs)

    def checkpoint(self) -> Any:
        """What submitit queues when the task is preempted or out of time: the same share, whose done runs are found."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def launch(jobs: Sequence[Job], resources: Resources, say: Callable[[str], None]) -> Iterator[Outcome]:
    """Do the jobs as ``resources.jobs`` tasks of a Slurm array (default: a task for each run).

    Options: ``cluster`` (``slurm``; ``local`` runs the tasks as processes of this machine), and everything that
    submitit's ``AutoExecutor.update_parameters`` takes, such as ``slurm_partition``, ``timeout_min``,
    ``gpus_per_node``, ``cpus_per_task``, ``mem_gb``, ``slurm_array_parallelism``.
    """
    submitit = extra("submitit", "slurm", "--on slurm")
    options = {name: _number(text) for name, text in resources.options.items()}
    cluster = options.pop("cluster", "slurm")
    options = {"timeout_min": 24 * 60, "cpus_per_task": 1, "name": "promptcal", **options}
    logs = resources.logs.absolute() / "slurm"
    logs.mkdir(parents=True, exist_ok=True)
    n = min(resources.jobs or len(jobs), len(jobs))
    threaded = [with_threads(job, int(options["cpus_per_task"])) for job in jobs]
    stem = uuid.uuid4().hex[:8]
    shares = [Share(tuple(threaded[i::n]), logs / f"{stem}-{i}.jsonl") for i in range(n)]
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
        executor.update_parameters(**options)
        with executor.batch():
            tasks = [executor.submit(share) for share in shares]
    except (RuntimeError, ValueError, NameError, TypeError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"submitit cannot submit: {reason}; --option cluster=local runs without Slurm.") from error
    say(f"{n} task{'s' if n != 1 else ''} submitted; their logs are in {logs}")
    try:
        yield from _follow(shares, tasks)
    except BaseException:  # an interruption, or nobody wants the rest
        for task in tasks:
            task.cancel(check=False)
        raise


def _follow(shares: Sequence[Share], tasks: Sequence[Any]) -> Iterator[Outcome]:
    """The outcomes as the tasks write them; where a task ends without, a sentence for each run it left."""
    left = {i: {job.number for job in share.jobs} for i, share in enumerate(shares)}
    while left:
        for i in list(left):
            ended = tasks[i].done()  # before reading, so that nothing written before the end is missed
            for outcome in read_outcomes(shares[i].outcomes):
                if outcome.number in left[i]:
                    left[i].discard(outcome.number)
                    yield outcome
            if ended:
                for number in sorted(left[i]):
                    yield Outcome(
                        number,
                        error=f"the task {tasks[i].job_id} ended without it (state {tasks[i].state}; its log is "
                        f"{tasks[i].paths.stderr}); the same command goes on.",
                    )
            if ended or not left[i]:
                del left[i]
        if left:
            time.sleep(POLL_SECONDS)


def read_outcomes(path: Path) -> list[Outcome]:
    """The outcomes that a task has written so far; a line that is half written is left for later."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [Outcome(**{**row, "said": tuple(row["said"])}) for row in rows]


def _number(text: str) -> Any:
    """A whole number where the text is one."""
    return int(text) if text.lstrip("-").isdigit() else text
