"""Folders of images, one sub-folder a class."""

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptcal.config import register
from promptcal.data.class_names import normalise_class_names
from promptcal.data.folders import class_folders, is_image, visible_files
from promptcal.data.sources import FolderImages
from promptcal.data.splits import split_by_class
from promptcal.errors import ConfigError, DataError, unknown
from promptcal.types import ClassNames, Sample, Task

logger = logging.getLogger(__name__)


@register("reader", "image_folder")
@dataclass(frozen=True)
class ImageFolder:
    """A folder with ``class/image`` below it, or with ``train/class/image``, ``val/...`` and ``test/...``.

    It is the second kind where ``train`` itself has sub-folders. A folder of the first kind is split by class with a
    fixed seed, in memory: nothing is written. Classes are in name order, by number where all folder names are numbers;
    the class list is the union over the splits. Hidden files and folders and system files such as ``Thumbs.db`` are
    passed over; empty class folders and files that are no images are reported in the log.

    Args:
        train: the folder of the training images.
        val: the folder of the validation images; it may be absent.
        test: the folder of the test images.
        fractions: the shares of train, val and test where the folder has no splits; they sum to 1.
        split_seed: the seed of that split.
        names: what to call a class, by folder name; the folder's own name where it is not listed.
    """

    train: str = "train"
    val: str = "val"
    test: str = "test"
    fractions: Sequence[float] = (0.5, 0.2, 0.3)
    split_seed: int = 0
    names: Mapping[Any, str] | None = None

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task of this folder; raises DataError where there are no classes, or no train or test images."""
        if folder is None:
            raise DataError(f"the data set '{name}' lies in a folder; give dataset.path=/its/folder.")
        if class_folders(folder / self.train):
            return self._split(name, folder, templates)
        classes = {path.name: _images(path, folder) for path in class_folders(folder)}
        order = _in_order(folder, [classes])
        samples = [Sample(path, label) for label, raw in enumerate(order) for path in classes[raw]]
        train, val, test = split_by_class(samples, self.fractions, random.Random(self.split_seed))
        return Task(name, self._class_names(order, templates), train, val, test, FolderImages(folder))

    def _split(self, name: str, folder: Path, templates: tuple[str, ...]) -> Task:
        for part in (self.train, self.test):
            if not class_folders(folder / part):
                raise DataError(f"{folder / part} has no class folders; '{name}' needs train and test images.")
        parts = [
            {path.name: _images(path, folder) for path in class_folders(folder / part)}
            for part in (self.train, self.val, self.test)
        ]
        order = _in_order(folder, parts)
        train, val, test = (
            tuple(Sample(path, label) for label, raw in enumerate(order) for path in part.get(raw, ()))
            for part in parts
        )
        return Task(name, self._class_names(order, templates), train, val, test, FolderImages(folder))

    def _class_names(self, order: Sequence[str], templates: tuple[str, ...]) -> ClassNames:
        names = {str(raw): str(name) for raw, name in (self.names or {}).items()}
        for raw in names:
            if raw not in order:
                raise ConfigError(unknown("class folder in dataset.reader.names", raw, order))
        return ClassNames(normalise_class_names([names.get(raw, raw) for raw in order]), templates)


def _images(class_folder: Path, root: Path) -> list[str]:
    """The image files of a class at any depth, in name order, relative to the data set's folder."""
    files = visible_files(class_folder)
    others = [path for path in files if not is_image(path)]
    if others:
        first = class_folder / others[0]
        logger.warning("%d files of %s are no images and are left out, e.g. %s.", len(others), class_folder, first)
    base = class_folder.relative_to(root).as_posix()
    return [f"{base}/{path}" for path in files if is_image(path)]


def _in_order(folder: Path, parts: Sequence[Mapping[str, Sequence[str]]]) -> list[str]:
    """The folder names of the classes that have images, in label order; empty ones are reported by name."""
    found = sorted({raw for part in parts for raw in part})
    filled = [raw for raw in found if any(part.get(raw) for part in parts)]
    if empty := sorted(set(found) - set(filled)):
        logger.warning("class folders without images are left out of %s: %s.", folder, ", ".join(empty))
    if not filled:
        raise DataError(f"{folder} has no class folders with images in them; expected {folder}/CLASS/IMAGE.")
    return sorted(filled, key=int) if all(raw.isascii() and raw.isdigit() for raw in filled) else filled
