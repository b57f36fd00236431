"""Runs on a Ray cluster, or on a Ray of this machine's own.

The nodes need promptcal installed, and the folders of runs, data and cache under the same paths (a shared file system).
A run whose node is lost is started again by Ray and goes on after its last whole epoch.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from promptcal.extras import extra
from promptcal.jobs import Job, Outcome, work
from promptcal.launchers.contract import Resources, cores, read_options, with_threads

OPTIONS: dict[str, Callable[[str], object]] = {"address": str, "num_cpus": float, "num_gpus": float, "memory": float}


def launch(jobs: Sequence[Job], resources: Resources, say: Callable[[str], None]) -> Iterator[Outcome]:
    """Do the jobs as Ray tasks, ``resources.jobs`` at once (default: as many as Ray has room for).

    Options: ``address`` of a cluster (else ``RAY_ADDRESS``, else a Ray of this machine's own), and ``num_cpus``,
    ``num_gpus`` and ``memory`` (bytes) of each run. A run sees a GPU only where ``num_gpus`` gives it one.
    """
    ray = extra("ray", "ray", "--on ray")
    options = read_options(resources.options, OPTIONS)
    address = options.pop("address", None) or os.environ.get("RAY_ADDRESS")
    at_once = min(resources.jobs or len(jobs), len(jobs))
    here = {} if address else {"num_cpus": min(at_once, cores()), "include_dashboard": False}
    threads = max(1, int(options.get("num_cpus") or 1) if address else cores() // min(at_once, cores()))  # type: ignore[call-overload]
    ray.init(address=address, log_to_driver=False, logging_level="warning", **here)
    try:
        task = ray.remote(max_retries=3, **{"num_cpus": 1, **options})(work)
        running: dict[object, Job] = {}
        waiting = [with_threads(job, threads) for job in reversed(jobs)]
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop()
                running[task.remote(job)] = job
            (done,), _ = ray.wait(list(running), num_returns=1)
            job = running.pop(done)
            try:
                yield ray.get(done)
            except ray.exceptions.RayError as error:
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                yield Outcome(job.number, error=f"Ray lost it ({reason}); the same command goes on.")
    finally:
        with suppress(Exception):
            ray.shutdown()
