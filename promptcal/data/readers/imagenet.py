"""ImageNet and its variants: folders named by WordNet id, class names in a list of their own."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptcal.config import register
from promptcal.data.annotations.contract import lines_of
from promptcal.data.class_names import normalise_class_names
from promptcal.data.folders import class_folders, image_files
from promptcal.data.sources import FolderImages
from promptcal.errors import DataError
from promptcal.types import ClassNames, Sample, Task

logger = logging.getLogger(__name__)


@register("reader", "imagenet")
@dataclass(frozen=True)
class ImageNet:
    """``TRAIN/WNID/IMAGE`` and ``TEST/WNID/IMAGE``: labels by sorted WordNet id, names from ``classnames.txt``.

    The published test images are ImageNet's validation images, and they are the published validation images, too;
    protocols calibrate on none of them. Training images are in the order of their file names; published draws depended
    on the order in which a file system lists a folder, and are not to be had again without their lists.

    Args:
        train: the folder of the training images.
        test: the folder of the test images.
        class_names: lines ``n01440764 tench``; where the file is missing, here and in ``../imagenet``, the names that
            come with open_clip are taken.
        drawn: a file that lists the training images one may draw from, ``n01440764/n01440764_10026.JPEG`` a line.
    """

    train: str = "images/train"
    test: str = "images/val"
    class_names: str = "classnames.txt"
    drawn: str | None = None

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task; raises DataError for folders or lists that are missing or do not fit each other."""
        if folder is None:
            raise DataError(f"the data set '{name}' lies in a folder; give dataset.path=/its/folder.")
        ids = sorted({path.name for part in (self.train, self.test) for path in _class_folders(name, folder / part)})
        labels = {wnid: label for label, wnid in enumerate(ids)}
        train, test = (_samples(folder, part, labels) for part in (self.train, self.test))
        if self.drawn is not None:
            train = _listed(Path(str(self.drawn)).expanduser(), self.train, train)
        else:
            logger.warning(
                "'%s' is drawn from in the order of file names; published draws depended on the order of folders on "
                "disk and are other images. A list of theirs: dataset.reader.drawn=FILE.",
                name,
            )
        file = folder / self.class_names
        names = _names(name, file, imagenet_names(name, file), ids)
        return Task(name, ClassNames(names, templates), train, test, test, FolderImages(folder))


@register("reader", "imagenet_variant")
@dataclass(frozen=True)
class ImageNetVariant:
    """``IMAGES/WNID/IMAGE`` or ``IMAGES/NUMBER/IMAGE``: another test set for some or all classes of ImageNet.

    There are no training images; a method is trained on ImageNet. The classes, which the softmax runs over, are those
    of the folders; numbered folders count the sorted WordNet ids from 0, and their classes are all of ImageNet's.

    Args:
        images: the folder of the class folders.
        numbered: class folders are called 0, 1, 2, ... (ImageNetV2).
        class_names: as for ImageNet.
    """

    images: str
    numbered: bool = False
    class_names: str = "classnames.txt"

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task, with test images alone; raises DataError for a folder that is no class of ImageNet."""
        if folder is None:
            raise DataError(f"the data set '{name}' lies in a folder; give dataset.path=/its/folder.")
        found = [path.name for path in _class_folders(name, folder / self.images)]
        file = folder / self.class_names
        known = imagenet_names(name, file)
        if self.numbered:
            ids = sorted(known)
            labels = {str(label): label for label in range(len(ids))}
            if beyond := [number for number in found if number not in labels]:
                raise DataError(f"{folder / self.images / beyond[0]} is not one of the classes 0 to {len(ids) - 1}.")
        else:
            ids = found
            labels = {wnid: label for label, wnid in enumerate(ids)}
        test = _samples(folder, self.images, labels)
        names = _names(name, file, known, ids)
        return Task(name, ClassNames(names, templates), (), (), test, FolderImages(folder))


def imagenet_names(name: str, file: Path) -> dict[str, str]:
    """Class names by WordNet id: of ``file``, of the same file of ImageNet itself beside it, or of open_clip."""
    for place in (file, file.parent.parent / "imagenet" / file.name):
        if place.is_file():
            pairs = [line.split(maxsplit=1) for line in lines_of(place)]
            if wrong := [pair for pair in pairs if len(pair) < 2]:
                raise DataError(f"{place}: the line '{' '.join(wrong[0])}' is not 'wnid name'.")
            return {wnid: called for wnid, called in pairs}
    from open_clip import IMAGENET_CLASSNAMES
    from timm.data.imagenet_info import ImageNetInfo

    logger.warning("there is no %s; '%s' takes the class names that come with open_clip.", file, name)
    ids: list[str] = ImageNetInfo("imagenet-1k").label_names()  # type: ignore[no-untyped-call]
    return dict(zip(ids, IMAGENET_CLASSNAMES, strict=True))


def _names(name: str, file: Path, known: Mapping[str, str], ids: Sequence[str]) -> tuple[str, ...]:
    """The names of some WordNet ids. Two pairs of ImageNet's published names are equal, and stay so."""
    if absent := [wnid for wnid in ids if wnid not in known]:
        raise DataError(f"the class folder {absent[0]} of '{name}' has no name in {file}; is it a WordNet id?")
    return normalise_class_names([known[wnid] for wnid in ids], duplicates="say")


def _class_folders(name: str, folder: Path) -> list[Path]:
    folders = class_folders(folder)
    if not folders:
        raise DataError(f"{folder} has no class folders; '{name}' needs {folder}/CLASS/IMAGE.")
    return folders


def _samples(folder: Path, part: str, labels: dict[str, int]) -> tuple[Sample, ...]:
    """The images of a part, class after class, files in name order."""
    return tuple(
        Sample(f"{part}/{raw}/{file}", label)
        for raw, label in labels.items()
        if (folder / part / raw).is_dir()
        for file in image_files(folder / part / raw)
    )


def _listed(file: Path, part: str, train: Sequence[Sample]) -> tuple[Sample, ...]:
    """The training images of a list, in its order."""
    known = {sample.path: sample for sample in train}
    paths = [line if line.startswith(f"{part}/") else f"{part}/{line}" for line in lines_of(file)]
    if absent := [path for path in paths if path not in known]:
        raise DataError(f"{file}: {len(absent)} of {len(paths)} images are not there, the first {absent[0]}.")
    return tuple(known[path] for path in dict.fromkeys(paths))
