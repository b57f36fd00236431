"""A task on paper: what a run folder keeps of it, and the digest of what decides numbers."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from promptcal.types import Sample, Task


def task_record(task: Task) -> dict[str, Any]:
    """The task for ``task.json``: class names, templates and, by split, the drawn images with their labels."""

    def listed(samples: Sequence[Sample]) -> list[list[Any]]:
        return [[sample.path, sample.label] for sample in samples]

    return {
        "name": task.name,
        "classes": list(task.classes.names),
        "templates": list(task.classes.templates),
        "train": listed(task.train),
        "val": listed(task.val),
        "test": listed(task.test),
    }


def task_digest(task: Task) -> str:
    """SHA-256 of what decides numbers: class names, templates, sample lists and the contents of the images.

    Paths are relative, so moving the data changes nothing; another image under the same name does.
    """
    record = {key: value for key, value in task_record(task).items() if key != "name"}
    paths = dict.fromkeys(sample.path for sample in (*task.train, *task.val, *task.test))
    record["contents"] = [task.images.digest(path) for path in paths]
    return hashlib.sha256(json.dumps(record, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
