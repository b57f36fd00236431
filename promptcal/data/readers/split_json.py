"""CoOp's split files, as they lie on disk."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from promptcal.config import register
from promptcal.data.class_names import normalise_class_names
from promptcal.data.sources import FolderImages
from promptcal.errors import DataError
from promptcal.types import ClassNames, Sample, Task

logger = logging.getLogger(__name__)

SPLITS = ("train", "val", "test")
NOTE = "note"
"""A key of split files that promptcal itself makes: what a reader of results must know of the split."""


@register("reader", "split_json")
@dataclass(frozen=True)
class SplitJson:
    """A data set with a split file ``{"train": [[path, label, class name], ...], "val": [...], "test": [...]}``.

    The format is that of Zhou et al., "Learning to Prompt for Vision-Language Models", IJCV 2022, arXiv 2109.01134. An
    absent file is an error, never an invitation to split anew. ``val`` may be empty or missing. Labels are renumbered
    from 0 in label order; a class that only one split has counts all the same.

    Args:
        split: the split file, relative to the data set's folder.
        images: the folder that the paths in the split file are relative to; ``.`` is the data set's folder itself.
    """

    split: str
    images: str = "."

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task of this split file; raises DataError naming the file, split and entry at fault."""
        if folder is None:
            raise DataError(f"the data set '{name}' lies in a folder; give dataset.path=/its/folder.")
        file = folder / str(self.split)
        entries = _entries(file)
        names: dict[int, str] = {}
        for split in SPLITS:
            for row, (_, label, class_name) in enumerate(entries[split]):
                if names.setdefault(label, class_name) != class_name:
                    raise DataError(
                        f"{file}: label {label} is called '{names[label]}' and, in {split}[{row}], '{class_name}'; "
                        f"a label has one name."
                    )
        labels = sorted(names)
        index = {label: position for position, label in enumerate(labels)}
        base = PurePosixPath(str(self.images))
        samples = {
            split: tuple(Sample((base / path).as_posix(), index[label]) for path, label, _ in entries[split])
            for split in SPLITS
        }
        return Task(
            name=name,
            classes=ClassNames(normalise_class_names([names[label] for label in labels]), templates),
            train=samples["train"],
            val=samples["val"],
            test=samples["test"],
            images=FolderImages(folder),
        )


def _entries(file: Path) -> dict[str, list[tuple[str, int, str]]]:
    """The entries of each split, checked."""
    if not file.is_file():
        raise DataError(
            f"there is no split file {file}; put the published one there, or make one of your own, whose results do "
            f"not compare with published ones, with 'promptcal data split'."
        )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"the split file {file} is not JSON ({error}).") from error
    if not isinstance(content, dict):
        raise DataError(f'the split file {file} must hold an object {{"train": [...], "val": [...], "test": [...]}}.')
    for split in ("train", "test"):
        if not content.get(split):
            raise DataError(f"the split file {file} has no '{split}' entries; a task needs train and test images.")
    if note := content.get(NOTE):
        logger.warning("%s: %s", file, note)
    return {split: _checked(file, split, content.get(split) or []) for split in SPLITS}


def _checked(file: Path, split: str, rows: Any) -> list[tuple[str, int, str]]:
    if not isinstance(rows, list):
        raise DataError(f"{file}: '{split}' is not a list.")
    for row, entry in enumerate(rows):
        if not _is_entry(entry):
            raise DataError(f"{file}: {split}[{row}] is {entry!r}, not [relative path, label >= 0, class name].")
    return [(str(path), int(label), str(name)) for path, label, name in rows]


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, Sequence) or len(entry) != 3:
        return False
    path, label, name = entry
    if not (isinstance(path, str) and isinstance(name, str) and type(label) is int and label >= 0):
        return False
    return bool(path) and not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts
