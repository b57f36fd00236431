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
    """Do the jobs with ``resources.jobs`` processes (default 1: this one), which share cores and GPUs evenly."""
    read_options(resources.options, {})
    n = min(resources.jobs or 1, len(jobs))
    if n <= 1:
        for job in jobs:
            yield work(job, say)
        return
    threads = max(1, cores() // n)
    waiting = deque(with_threads(job, threads) for job in jobs)
    devices = visible_devices() if jobs[0].config["system"].get("device", "auto") in ("auto", "cuda") else []
    started = (_start(threads, devices[i % len(devices)] if len(devices) > 1 else None) for i in range(n))
    workers = {worker.pipe: worker for worker in started}
    busy: dict[Connection, Job] = {}
    try:
        for worker in workers.values():
            busy |= worker.give(waiting)
        while busy:
            for pipe in wait(list(busy)):
                worker = workers[pipe]  # type: ignore[index]
                outcome = worker.take(busy.pop(worker.pipe))
                if worker.process.exitcode is not None:
                    del workers[worker.pipe]
                    worker.pipe.close()
                    worker = _start(threads, worker.device)
                    workers[worker.pipe] = worker
                busy |= worker.give(waiting)
                yield outcome
    finally:
        for worker in workers.values():
            if worker.pipe in busy:
                worker.process.terminate()
            worker.pipe.close()  # an idle worker ends by itself
        for worker in workers.values():
            worker.process.join()


@dataclass(frozen=True)
class _Worker:
    """A process, our end of its pipe, and the GPU it has for itself."""

    process: BaseProcess
    pipe: Connection
    device: str | None

    def give(self, waiting: deque[Job]) -> dict[Connection, Job]:
        """Hand over the next job, where there is one; returns it by the pipe that its outcome will come from."""
        if not waiting:
            return {}
        job = waiting.popleft()
        with suppress(BrokenPipeError):  # the process is dead, which ``take`` notices
            self.pipe.send(job)
        return {self.pipe: job}

    def take(self, job: Job) -> Outcome:
        """The outcome of the job; where the process died, a sentence that says so."""
        try:
            outcome: Outcome = self.pipe.recv()
            return outcome
        except (EOFError, ConnectionResetError):
            self.process.join()
            code = self.process.exitcode
            how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            return Outcome(
                job.number,
                error=f"its process ended with {how}, as when memory runs out; the same command goes on, and fewer "
                f"--jobs need less.",
            )


def visible_devices() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return [name.strip() for name in told.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _start(threads: int, device: str | None) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, threads, device), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, device)


def _serve(pipe: Connection, threads: int, device: str | None) -> None:
    """The life of a worker: jobs in, outcomes out, until nobody is there; it dies with its parent."""
    os.environ |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
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
