"""CIFAR-10 and CIFAR-100, from the Python batches that torchvision, too, reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from promptcal.config import register
from promptcal.data.arrays import Images, Labels, find, task_of_arrays
from promptcal.data.class_names import normalise_class_names
from promptcal.data.plain_pickle import read_plain_pickle
from promptcal.errors import ConfigError, DataError
from promptcal.types import ClassNames, Task


@dataclass(frozen=True)
class Layout:
    """Where one of the two has what."""

    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    names: str
    labels: str


LAYOUTS = {
    10: Layout(
        "cifar-10-batches-py",
        tuple(f"data_batch_{number}" for number in range(1, 6)),
        "test_batch",
        "batches.meta",
        "label_names",
        "labels",
    ),
    100: Layout("cifar-100-python", ("train",), "test", "meta", "fine_label_names", "fine_labels"),
}


@register("reader", "cifar")
@dataclass(frozen=True)
class Cifar:
    """60,000 photographs of 32 x 32 pixels; there is no validation split of its own.

    Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", technical report, 2009.

    Args:
        classes: 10 or 100.
        val_fraction: the share of the training images of each class that becomes the validation split.
        split_seed: the seed of that share.
        download: fetch the files through torchvision where they are not there.
    """

    classes: int = 10
    val_fraction: float = 0.05
    split_seed: int = 0
    download: bool = False

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task; raises DataError for files that are missing or broken."""
        if self.classes not in LAYOUTS:
            raise ConfigError(f"dataset.reader.classes={self.classes}: there is CIFAR with 10 and with 100 classes.")
        layout = LAYOUTS[self.classes]
        places = [
            f"{place}{layout.meta}" for place in (f"{layout.folder}/", f"cifar{self.classes}/{layout.folder}/", "")
        ]
        lies = find(name, folder, places, fetched=f"CIFAR{self.classes}", download=self.download)
        names = _entry(lies / layout.meta, layout.names)
        images, labels = zip(*(_batch(lies / file, layout.labels) for file in layout.train), strict=True)
        return task_of_arrays(
            name,
            ClassNames(normalise_class_names(list(map(str, names))), templates),
            (np.concatenate(images), np.concatenate(labels)),
            _batch(lies / layout.test, layout.labels),
            val_fraction=self.val_fraction,
            split_seed=self.split_seed,
        )


def _batch(file: Path, labels: str) -> tuple[Images, Labels]:
    """The images [n, 32, 32, 3] and labels of a batch: a row holds the red, the green and the blue plane."""
    pixels = np.asarray(_entry(file, "data"))
    if pixels.ndim != 2 or pixels.shape[1] != 3072 or pixels.dtype != np.uint8:
        raise DataError(f"{file} holds {pixels.dtype} of shape {list(pixels.shape)}, not bytes [n, 3072].")
    return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), np.array(_entry(file, labels), dtype=np.int64)


def _entry(file: Path, key: str) -> Any:
    content = read_plain_pickle(file)
    if key not in content:
        raise DataError(f"{file} has no '{key}'; is it the Python version of the data set?")
    return content[key]
