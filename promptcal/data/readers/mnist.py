"""MNIST, from the idx files that torchvision, too, reads."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from promptcal.config import register
from promptcal.data.arrays import find, task_of_arrays
from promptcal.errors import DataError
from promptcal.types import ClassNames, Task

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FOLDERS = ("MNIST/raw/", "raw/", "mnist/", "mnist/MNIST/raw/", "")
BYTES = 8
"""The code of unsigned bytes in the third byte of an idx file."""


@register("reader", "mnist")
@dataclass(frozen=True)
class Mnist:
    """70,000 handwritten digits of 28 x 28 pixels; there is no validation split of its own.

    LeCun, Bottou, Bengio, Haffner, "Gradient-Based Learning Applied to Document Recognition", Proc. IEEE 1998.

    Args:
        val_fraction: the share of the training images of each class that becomes the validation split.
        split_seed: the seed of that share.
        download: fetch the files through torchvision where they are not there.
    """

    val_fraction: float = 0.05
    split_seed: int = 0
    download: bool = False

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task; raises DataError for files that are missing or broken."""
        places = [f"{place}train-images-idx3-ubyte{suffix}" for place in FOLDERS for suffix in ("", ".gz")]
        lies = find(name, folder, places, fetched="MNIST", download=self.download)
        return task_of_arrays(
            name,
            ClassNames(NAMES, templates),
            (_idx(lies, "train-images-idx3-ubyte"), _idx(lies, "train-labels-idx1-ubyte").astype(np.int64)),
            (_idx(lies, "t10k-images-idx3-ubyte"), _idx(lies, "t10k-labels-idx1-ubyte").astype(np.int64)),
            val_fraction=self.val_fraction,
            split_seed=self.split_seed,
        )


def _idx(folder: Path, name: str) -> np.ndarray:
    """The bytes of an idx file, plain or gzipped: two zeros, the type, the number of sides, the sides, the values.

    Raises:
        DataError: no such file, or one of another kind or length.
    """
    file = next((place for place in (folder / name, folder / f"{name}.gz") if place.is_file()), None)
    if file is None:
        raise DataError(f"there is no file {folder / name}, nor {name}.gz.")
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError) as error:
        raise DataError(f"{file} cannot be unpacked ({error}); fetch the file again.") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != BYTES:
        raise DataError(f"{file} is no idx file of bytes; fetch the file again.")
    sides = np.frombuffer(content, dtype=">u4", count=content[3], offset=4).tolist()
    start = 4 + 4 * content[3]
    if len(content) - start != np.prod(sides):
        raise DataError(f"{file} holds {len(content) - start} values, not the {np.prod(sides)} it announces.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(sides)
