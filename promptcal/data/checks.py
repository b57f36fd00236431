"""Look before the model is loaded: are the images there."""

import logging
from collections.abc import Sequence
from typing import Literal

from promptcal.data.sources import FolderImages
from promptcal.errors import ConfigError, DataError
from promptcal.types import Sample, Task

logger = logging.getLogger(__name__)

LISTED = 3


def looked_for(task: Task) -> tuple[list[str], list[str]]:
    """The different images of a task, and those of them whose files are not there; images in no folder always are."""
    paths = list(dict.fromkeys(sample.path for sample in (*task.train, *task.val, *task.test)))
    images = task.images
    return paths, [path for path in paths if not images.exists(path)] if isinstance(images, FolderImages) else []


def check_images(task: Task, *, missing: Literal["refuse", "skip"] = "refuse") -> Task:
    """The task, once every image file of its splits has been found; images that lie in no folder need no check.

    Args:
        task: all classes or a draw of them.
        missing: "refuse" stops at missing files; "skip" leaves them out and says in the log how many.

    Raises:
        DataError: missing images: how many of how many, the first few, and the folder they were looked for in.
    """
    if missing not in ("refuse", "skip"):
        raise ConfigError(f"unknown missing '{missing}'; choose refuse or skip.")
    paths, absent = looked_for(task)
    if not absent or not isinstance(task.images, FolderImages):
        return task
    first = ", ".join(absent[:LISTED]) + (", ..." if len(absent) > LISTED else "")
    counted = f"{len(absent)} of {len(paths)} images of '{task.name}' are missing under {task.images.root}: {first}"
    if missing == "refuse":
        raise DataError(f"{counted}; check data.root or dataset.path, and the names in the split file.")
    logger.warning("%s; they are left out.", counted)
    gone = set(absent)

    def kept(samples: Sequence[Sample]) -> tuple[Sample, ...]:
        return tuple(sample for sample in samples if sample.path not in gone)

    return task.replace(train=kept(task.train), val=kept(task.val), test=kept(task.test))
