"""What raw annotations determine of a published split, and reading their files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from promptcal.errors import DataError


class Entry(NamedTuple):
    """One image as split files list it: its path below the folder of images, its label and the name of its class."""

    path: str
    label: int
    name: str


@dataclass(frozen=True)
class Annotated:
    """What raw annotations say.

    Attributes:
        images: the images whose split is left to chance, in the order of the annotations.
        test: the published test images; None where they, too, were drawn at random.
    """

    images: tuple[Entry, ...]
    test: tuple[Entry, ...] | None = None


@runtime_checkable
class Annotations(Protocol):
    """A way to read the raw annotations of a data set."""

    def read(self, folder: Path) -> Annotated:
        """What they determine; raises DataError naming the file and line at fault."""
        ...


def lines_of(file: Path) -> list[str]:
    """The lines of a text file that are not empty, ends trimmed; raises DataError for a missing file."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"there is no annotation file {file}; it belongs to the data set's own files.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the annotation file {file} cannot be read as text ({error}).") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def matlab(file: Path, variable: str) -> Any:
    """A variable of a .mat file with its one-element dimensions dropped; raises DataError naming what is missing."""
    from scipy.io import loadmat

    if not file.is_file():
        raise DataError(f"there is no annotation file {file}; it belongs to the data set's own files.")
    try:
        content = loadmat(str(file), squeeze_me=True)
    except Exception as error:  # scipy raises whatever a broken file makes it stumble over
        raise DataError(f"the annotation file {file} is not a whole .mat file ({error}).") from error
    if variable not in content:
        raise DataError(f"the annotation file {file} has no variable '{variable}'.")
    return content[variable]
