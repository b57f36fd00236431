"""Runs on this machine: one after the other in this process, or several at once in processes of their own."""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from promptcal.jobs import Job, Outcome, work
from promptcal.launchers.contract import Resources, cores, read_options, with_threads

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def launch(jobs: Sequence[Job], resources: Resources, say: Callable[[str], None]) -> Iterator[Outcome]:
    """Do the jobs with ``resources.jobs`` processes (default 1: this one), which share the cores evenly."""
    read_options(resources.options, {})
    n = min(resources.jobs or 1, len(jobs))
    if n <= 1:
        for job in jobs:
            yield work(job, say)
        return
    threads = max(1, cores() // n)
    waiting = deque(with_threads(job, threads) for job in jobs)
    workers = {worker.pipe: worker for worker in (_start(threads) for _ in range(n))}
    try:
        for worker in workers.values():
            worker.give(waiting)
        while busy := [pipe for pipe, worker in workers.items() if worker.job is not None]:
            for pipe in wait(busy):
                worker = workers[pipe]  # type: ignore[index]
                outcome = worker.take()
                if worker.process.exitcode is not None:
                    del workers[worker.pipe]
                    worker.pipe.close()
                    worker = _start(threads)
                    workers[worker.pipe] = worker
                worker.give(waiting)
                yield outcome
    finally:
        for worker in workers.values():
            worker.pipe.close()  # an idle worker ends by itself
            if worker.job is not None:
                worker.process.terminate()
        for worker in workers.values():
            worker.process.join()


@dataclass
class _Worker:
    """A process and the job it is at."""

    process: BaseProcess
    pipe: Connection
    job: Job | None = None

    def give(self, waiting: deque[Job]) -> None:
        """Hand over the next job, where there is one."""
        self.job = waiting.popleft() if waiting else None
        if self.job is not None:
            with suppress(BrokenPipeError):  # the process is dead, which ``take`` notices
                self.pipe.send(self.job)

    def take(self) -> Outcome:
        """The outcome of the job; where the process died, a sentence that says so."""
        job = self.job
        assert job is not None
        try:
            outcome: Outcome = self.pipe.recv()
            return outcome
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode
            how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            return Outcome(
                job.number,
                error=f"its process ended with {how}, as when memory runs out; the same command goes on, --jobs with "
                f"fewer needs less.",
            )


def _start(threads: int) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, threads), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(pipe: Connection, threads: int) -> None:
    """The life of a worker: jobs in, outcomes out, until nobody is there; it dies with its parent."""
    os.environ |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        while True:
            pipe.send(work(pipe.recv()))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _die_with_parent() -> None:
    """Wait for the parent's end, however it came, and end at once: everything on disk is whole."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
