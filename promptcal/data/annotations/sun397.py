"""The annotations of SUN397: ``ClassName.txt``, ``Training_01.txt`` and ``Testing_01.txt``."""

from dataclasses import dataclass
from pathlib import Path

from promptcal.data.annotations.contract import Annotated, Entry, lines_of
from promptcal.errors import DataError


@dataclass(frozen=True)
class Sun397:
    """Lines ``/a/apartment_building/outdoor``: labels are line numbers of ``ClassName.txt``.

    A published name drops the letter and reverses the rest: "outdoor apartment_building". The first of the ten
    official partitions gives the test images; validation images were drawn at random from its training images.
    """

    def read(self, folder: Path) -> Annotated:
        """Train and validation images together, and the test images."""
        classes = [line.lstrip("/") for line in lines_of(folder / "ClassName.txt")]
        labels = {path: label for label, path in enumerate(classes)}
        return Annotated(
            _entries(folder / "Training_01.txt", labels),
            _entries(folder / "Testing_01.txt", labels),
        )


def _entries(file: Path, labels: dict[str, int]) -> tuple[Entry, ...]:
    found = []
    for line in lines_of(file):
        path = line.lstrip("/")
        place = path.rpartition("/")[0]
        if place not in labels:
            raise DataError(f"{file}: the class of '{line}' is not in ClassName.txt.")
        found.append(Entry(path, labels[place], " ".join(reversed(place.split("/")[1:]))))
    return tuple(found)
