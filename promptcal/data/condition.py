"""In what condition a data set on disk is: whole, faulty in ways that are listed, or not there."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from promptcal.data.cards import Card, data_folder, load_task, size_warnings, sizes_of
from promptcal.data.checks import looked_for
from promptcal.data.sources import FolderImages
from promptcal.errors import DataError, PromptcalError

Bar = Callable[[Iterable[str | None], str, int], Iterable[str | None]]
"""What shows progress: it is given the items, a label and their number, and gives the items back."""


@dataclass(frozen=True)
class Condition:
    """What was found of a data set.

    Attributes:
        name: of its card.
        folder: where it lies, None where it is not there.
        counts: classes and images of each split.
        images: how many different images these are.
        missing: paths of images that are not there.
        broken: a sentence for each image that cannot be read.
        faults: a sentence for whatever else is wrong.
        opened: whether the images were opened.
    """

    name: str
    folder: Path | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    images: int = 0
    missing: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    opened: bool = False

    @property
    def state(self) -> str:
        """One word: ``absent``, ``faulty`` or ``whole``."""
        if self.folder is None:
            return "absent"
        return "faulty" if self.missing or self.broken or self.faults else "whole"


def condition(card: Card, root: Path, *, opening: bool, bar: Bar) -> Condition:
    """Look at a data set: its annotations, the sizes of its splits, whether its images are there and can be read.

    Args:
        card: the data set.
        root: the folder of all data sets.
        opening: open every image; otherwise it is enough that the files are there.
        bar: shows progress over the images.
    """
    try:
        folder = data_folder(card, root)
    except DataError:
        return Condition(card.name)
    try:
        task = load_task(card, root)
    except PromptcalError as error:
        return Condition(card.name, folder, faults=(str(error),))
    paths, missing = looked_for(task)
    broken: tuple[str, ...] = ()
    if opening and isinstance(task.images, FolderImages):
        absent = set(missing)
        broken = _broken(task.images, [path for path in paths if path not in absent], card.name, bar)
    faults = tuple(size_warnings(card, task))
    return Condition(card.name, folder, sizes_of(task), len(paths), tuple(missing), broken, faults, opened=opening)


def _broken(images: FolderImages, paths: Sequence[str], label: str, bar: Bar) -> tuple[str, ...]:
    """A sentence for each image that cannot be read; Pillow decodes outside Python's lock, so threads help."""

    def trouble(path: str) -> str | None:
        try:
            images.open(path)
        except DataError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return tuple(found for found in bar(pool.map(trouble, paths), label, len(paths)) if found is not None)
