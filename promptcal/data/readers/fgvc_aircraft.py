"""FGVC-Aircraft: its own text files give the published split."""

from dataclasses import dataclass
from pathlib import Path

from promptcal.config import register
from promptcal.data.annotations.contract import lines_of
from promptcal.data.class_names import normalise_class_names
from promptcal.data.sources import FolderImages
from promptcal.errors import DataError
from promptcal.types import ClassNames, Sample, Task


@register("reader", "fgvc_aircraft")
@dataclass(frozen=True)
class FgvcAircraft:
    """``variants.txt``, whose line numbers are the labels, and ``images_variant_{train,val,test}.txt``.

    A line of the latter is ``1025794 707-320``, a file without its suffix and a variant, which may hold spaces.

    Args:
        images: the folder of the images.
        suffix: what their names end in.
    """

    images: str = "images"
    suffix: str = ".jpg"

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task; raises DataError naming a missing file, or a variant that is not listed."""
        if folder is None:
            raise DataError(f"the data set '{name}' lies in a folder; give dataset.path=/its/folder.")
        variants = lines_of(folder / "variants.txt")
        labels = {variant: label for label, variant in enumerate(variants)}
        train, val, test = (
            self._samples(folder / f"images_variant_{split}.txt", labels) for split in ("train", "val", "test")
        )
        return Task(
            name, ClassNames(normalise_class_names(variants), templates), train, val, test, FolderImages(folder)
        )

    def _samples(self, file: Path, labels: dict[str, int]) -> tuple[Sample, ...]:
        pairs = [line.partition(" ")[::2] for line in lines_of(file)]
        if unlisted := [variant for _, variant in pairs if variant not in labels]:
            raise DataError(f"{file}: the variant '{unlisted[0]}' is not in variants.txt.")
        return tuple(Sample(f"{self.images}/{image}{self.suffix}", labels[variant]) for image, variant in pairs)
