"""ImageNet's validation images with the reassessed labels (ReaL)."""

import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from promptcal.config import register
from promptcal.data.readers.imagenet import ImageNet
from promptcal.errors import DataError
from promptcal.types import Sample, Task

logger = logging.getLogger(__name__)

CLASSES = 1000


@register("reader", "imagenet_real")
@dataclass(frozen=True)
class ImageNetReal:
    """ImageNet tested on the images that ReaL gives exactly one label, by that label.

    The file lists the labels of ``ILSVRC2012_val_00000001.JPEG`` and those after it. An image may have several or none:
    as one label is what a calibration error needs, these are left out, with their number in the log; published ReaL
    accuracies count an image of several labels as right by any of them.

    Beyer, Hénaff, Kolesnikov, Zhai, van den Oord, "Are We Done with ImageNet?", arXiv 2006.07159, 2020.

    Args:
        train: the folder of the training images, ``TRAIN/WNID/IMAGE``.
        test: the folder of the validation images.
        class_names: lines ``n01440764 tench``.
        real: the file of labels, relative to the data set's folder.
    """

    train: str = "train"
    test: str = "val"
    class_names: str = "classnames.txt"
    real: str = "real.json"

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task; raises DataError where the labels are missing or do not fit the images."""
        task = ImageNet(self.train, self.test, self.class_names).read(name, folder, templates)
        if folder is None or len(task.classes) != CLASSES:
            raise DataError(f"'{name}' has {len(task.classes)} class folders; ReaL labels are of all {CLASSES}.")
        labels = _labels(folder / self.real)
        real = [labels[_number(sample.path, len(labels))] for sample in task.test]
        test = tuple(Sample(s.path, one[0]) for s, one in zip(task.test, real, strict=True) if len(one) == 1)
        several, none = sum(len(one) > 1 for one in real), sum(not one for one in real)
        logger.warning("'%s': %d images with several ReaL labels and %d with none are left out.", name, several, none)
        return task.replace(test=test)


def _number(path: str, count: int) -> int:
    """The place of a validation image in the list, from 0."""
    found = re.search(r"_(\d{8})\.", PurePosixPath(path).name)
    if found is None or not 1 <= int(found[1]) <= count:
        raise DataError(f"'{path}' is not called as ImageNet's validation images are, ILSVRC2012_val_00000001.JPEG.")
    return int(found[1]) - 1


def _labels(file: Path) -> list[list[int]]:
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"there is no file {file}; it is real.json of google-research/reassessed-imagenet.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not JSON ({error}).") from error
    if not isinstance(content, list) or not all(isinstance(one, list) for one in content):
        raise DataError(f"{file} is no list with a list of labels for each image.")
    if any(type(label) is not int or not 0 <= label < CLASSES for one in content for label in one):
        raise DataError(f"{file} has a label outside 0 to {CLASSES - 1}.")
    return content
