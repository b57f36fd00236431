"""Tiny-ImageNet: 200 classes of ImageNet at 64 x 64 pixels."""

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from promptcal.config import register
from promptcal.data.arrays import find, hold_out
from promptcal.data.class_names import normalise_class_names
from promptcal.data.sources import FolderImages
from promptcal.errors import DataError
from promptcal.types import ClassNames, Sample, Task


@register("reader", "tiny_imagenet")
@dataclass(frozen=True)
class TinyImageNet:
    """``train/WNID/images/*.JPEG``, and ``val/images/*.JPEG`` with their classes in ``val/val_annotations.txt``.

    The published test images have no labels, so the 10,000 annotated ones are tested on, as is usual; the validation
    split is a share of the training images. Labels are in the order of sorted WordNet ids. A class is called by the
    first of its names in ``words.txt``, or by all of them where two classes share the first.

    Args:
        val_fraction: the share of the training images of each class that becomes the validation split.
        split_seed: the seed of that share.
    """

    val_fraction: float = 0.05
    split_seed: int = 0

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task; raises DataError for files that are missing or do not fit each other."""
        lies = find(name, folder, ["tiny-imagenet-200/wnids.txt", "tiny_imagenet/wnids.txt", "wnids.txt"])
        ids = sorted(_lines(lies / "wnids.txt"))
        labels = {wnid: label for label, wnid in enumerate(ids)}
        train = tuple(
            Sample(path.relative_to(lies).as_posix(), label)
            for wnid, label in labels.items()
            for path in sorted((lies / "train" / wnid / "images").glob("*.JPEG"))
        )
        left, val = hold_out(train, self.val_fraction, random.Random(self.split_seed))
        test = _annotated(lies / "val", labels)
        return Task(name, ClassNames(_names(lies, ids), templates), left, val, test, FolderImages(lies))


def _annotated(folder: Path, labels: dict[str, int]) -> tuple[Sample, ...]:
    file = folder / "val_annotations.txt"
    samples = []
    for number, line in enumerate(_lines(file), start=1):
        image, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        if wnid not in labels:
            raise DataError(f"{file}, line {number}: '{wnid}' is not in wnids.txt.")
        samples.append(Sample(f"{folder.name}/images/{image}", labels[wnid]))
    return tuple(samples)


def _names(folder: Path, ids: list[str]) -> tuple[str, ...]:
    words = dict(line.split("\t", 1) for line in _lines(folder / "words.txt") if "\t" in line)
    if absent := [wnid for wnid in ids if wnid not in words]:
        raise DataError(f"{folder / 'words.txt'} has no name for {absent[0]}.")
    first = {wnid: words[wnid].split(",")[0].strip() for wnid in ids}
    shared = {name for name, count in Counter(first.values()).items() if count > 1}
    return normalise_class_names([words[wnid] if first[wnid] in shared else first[wnid] for wnid in ids])


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        raise DataError(f"there is no file {file}; Tiny-ImageNet comes with it.")
    return [line.rstrip("\n") for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
