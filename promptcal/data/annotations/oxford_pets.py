"""The annotations of Oxford-IIIT Pets: ``annotations/trainval.txt`` and ``annotations/test.txt``."""

from dataclasses import dataclass
from pathlib import Path

from promptcal.data.annotations.contract import Annotated, Entry, lines_of
from promptcal.errors import DataError


@dataclass(frozen=True)
class OxfordPets:
    """Lines ``Abyssinian_100 1 1 1``: a file, its class from 1, species and breed number; names are lower-case breeds.

    The test images are published; validation images were drawn at random from ``trainval.txt``.
    """

    def read(self, folder: Path) -> Annotated:
        """Train and validation images together, and the test images."""
        return Annotated(_entries(folder / "annotations/trainval.txt"), _entries(folder / "annotations/test.txt"))


def _entries(file: Path) -> tuple[Entry, ...]:
    return tuple(_entry(file, line) for line in lines_of(file))


def _entry(file: Path, line: str) -> Entry:
    parts = line.split()
    breed = parts[0].rpartition("_")[0].lower()
    if len(parts) < 2 or not breed or not parts[1].isdigit():
        raise DataError(f"{file}: the line '{line}' is not 'Breed_number class species breed'.")
    return Entry(f"{parts[0]}.jpg", int(parts[1]) - 1, breed)
