"""Folders of images, one a class: annotations by where an image lies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from promptcal.data.annotations.contract import Annotated, Entry
from promptcal.data.folders import class_folders, image_files
from promptcal.errors import DataError


@dataclass(frozen=True)
class ClassFolders:
    """``IMAGES/CLASS/IMAGE`` (Caltech-101, Food-101, DTD, EuroSAT); the published split drew every image at random.

    Labels are the sorted folder names, capitals before small letters, before any renaming.

    Args:
        images: the folder of the class folders.
        ignored: class folders that are left out.
        renamed: the published class names, by folder name.
    """

    images: str
    ignored: Sequence[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    def read(self, folder: Path) -> Annotated:
        """All images, files in name order; raises DataError where there are no class folders."""
        root = folder / self.images
        classes = [path for path in class_folders(root) if path.name not in self.ignored]
        if not classes:
            raise DataError(f"{root} has no class folders; expected {root}/CLASS/IMAGE.")
        return Annotated(
            tuple(
                Entry(f"{path.name}/{file}", label, self.renamed.get(path.name, path.name))
                for label, path in enumerate(classes)
                for file in image_files(path)
            )
        )
