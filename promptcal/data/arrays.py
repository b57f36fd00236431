"""Data sets that lie on disk as arrays: where to look for their files, and a task from what they hold."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from promptcal.data.sources import ArrayImages
from promptcal.errors import ConfigError, DataError
from promptcal.types import ClassNames, Sample, Task

Images = UInt8[np.ndarray, "_ _ _ ..."]
Labels = Int[np.ndarray, "_"]


def task_of_arrays(
    name: str,
    classes: ClassNames,
    train: tuple[Images, Labels] | None,
    test: tuple[Images, Labels],
    *,
    val_fraction: float = 0.0,
    split_seed: int = 0,
) -> Task:
    """A task whose images are held in memory; an image is called by its split and its row there, ``train/00012``.

    Args:
        name: of the data set.
        classes: in label order.
        train: training images and labels; None where the data set has test images alone.
        test: test images and labels.
        val_fraction: the share of the training images of each class that becomes the validation split.
        split_seed: the seed of that share.

    Raises:
        DataError: numbers of images and labels that differ, or a label that is no class.
    """
    parts = {"train": train, "test": test} if train is not None else {"test": test}
    samples: dict[str, tuple[Sample, ...]] = {"train": ()}
    for split, (images, labels) in parts.items():
        if len(images) != len(labels):
            raise DataError(
                f"'{name}' has {len(images)} {split} images and {len(labels)} labels; its files are broken."
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise DataError(f"'{name}' has a {split} label outside 0 to {len(classes) - 1}; its files are broken.")
        samples[split] = tuple(Sample(f"{split}/{row:05d}", int(label)) for row, label in enumerate(labels))
    rows = {sample.path: row for row, sample in enumerate((*samples["train"], *samples["test"]))}
    pixels = np.concatenate([images for images, _ in parts.values()])
    kept, val = hold_out(samples["train"], val_fraction, random.Random(split_seed))
    return Task(name, classes, kept, val, samples["test"], ArrayImages(pixels, rows))


def hold_out(
    samples: Sequence[Sample], fraction: float, rng: random.Random
) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """What is left of some samples, and a random share of each class, rounded; both in the order of the samples.

    Raises:
        ConfigError: a share that is not in [0, 1).
    """
    if not 0.0 <= fraction < 1.0:
        raise ConfigError(f"dataset.reader.val_fraction={fraction} must be a share of at least 0 and below 1.")
    groups: dict[int, list[int]] = {}
    for row, sample in enumerate(samples):
        groups.setdefault(sample.label, []).append(row)
    held = {row for rows in groups.values() for row in rng.sample(rows, round(len(rows) * fraction))}
    left = tuple(sample for row, sample in enumerate(samples) if row not in held)
    return left, tuple(samples[row] for row in sorted(held))


def find(
    name: str, folder: Path | None, places: Sequence[str], *, fetched: str | None = None, download: bool = False
) -> Path:
    """The folder that a data set's files lie in: that of the first of some files below a folder that is there.

    Args:
        name: of the data set.
        folder: where to look.
        places: the files, relative to it.
        fetched: the name of the data set in torchvision, where it can be downloaded.
        download: download it where none of the files is there; without this nothing is ever written.

    Raises:
        DataError: no folder, none of the files, or a download that failed.
    """
    if folder is None:
        raise DataError(f"the data set '{name}' lies in a folder; give data.root=/parent or dataset.path=/its/folder.")
    if fetched and download and not any((folder / place).is_file() for place in places):
        fetch(fetched, folder)
    for place in places:
        if (folder / place).is_file():
            return (folder / place).parent
    how = "; dataset.reader.download=true fetches it" if fetched else ""
    raise DataError(f"there is no {folder / places[0]} for '{name}'; correct data.root or dataset.path{how}.")


def fetch(name: str, folder: Path) -> None:
    """Download a data set of torchvision, by the name of its class there, into a folder.

    Raises:
        DataError: a download that failed.
    """
    import torchvision

    splits = ({"split": "train"}, {"split": "test"}) if name == "SVHN" else ({"train": True},)
    try:
        for split in splits:
            getattr(torchvision.datasets, name)(root=str(folder), download=True, **split)
    except (OSError, RuntimeError) as error:
        raise DataError(f"{name} could not be downloaded into {folder} ({error}).") from error
