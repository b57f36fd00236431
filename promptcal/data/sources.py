"""Where the images of a task come from: a folder on disk, arrays in memory, a drawing rule."""

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError

from promptcal.errors import DataError


@dataclass(frozen=True)
class FolderImages:
    """Image files below a folder; a sample's path is relative to it."""

    root: Path

    def exists(self, path: str) -> bool:
        """Whether there is a file at this path."""
        return (self.root / path).is_file()

    def open(self, path: str) -> Image.Image:
        """The image in RGB, 16-bit grey scaled to 8; an orientation tag is not followed, as in the works compared with.

        Raises:
            DataError: a missing or broken file, by name.
        """
        content = self._read(path)
        try:
            with Image.open(io.BytesIO(content)) as image:
                return _rgb(image)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            reason = "not an image Pillow can read" if isinstance(error, UnidentifiedImageError) else str(error)
            raise DataError(f"the image {self.root / path} is broken ({reason}); replace or remove it.") from error

    def digest(self, path: str) -> str:
        """SHA-256 of the file's bytes; read again when its size or time of change differs."""
        try:
            stat = (self.root / path).stat()
        except OSError as error:
            raise self._missing(path) from error
        return _digest_of(self, path, stat.st_size, stat.st_mtime_ns)

    def _read(self, path: str) -> bytes:
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError as error:
            raise self._missing(path) from error
        except OSError as error:
            raise DataError(f"the image {self.root / path} cannot be read ({error.strerror}).") from error

    def _missing(self, path: str) -> DataError:
        return DataError(f"there is no image {self.root / path}; check data.root or dataset.path, and the split file.")


@lru_cache(maxsize=1 << 20)
def _digest_of(images: FolderImages, path: str, size: int, changed: int) -> str:
    """SHA-256 of a file; kept while its size and time of change are the same, as the runs of a sweep share images."""
    del size, changed
    return hashlib.sha256(images._read(path)).hexdigest()


def _rgb(image: Image.Image) -> Image.Image:
    """The image in RGB. Pillow would cut values above 255 off; 16-bit grey is scaled instead, floats are refused."""
    if image.mode == "F":
        raise ValueError("floating-point pixels, whose range is unknown; save it with 8 bits a channel")
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


@dataclass(frozen=True, eq=False)
class ArrayImages:
    """Images held in memory: ``arrays[rows[path]]`` is grey [h, w] or colour [h, w, 3], 8 bits a channel."""

    arrays: UInt8[np.ndarray, "n h w *channels"]
    rows: Mapping[str, int]

    def open(self, path: str) -> Image.Image:
        """The image in RGB; raises DataError for an unknown path."""
        return Image.fromarray(self._array(path)).convert("RGB")

    def digest(self, path: str) -> str:
        """SHA-256 of the array's shape and bytes."""
        array = self._array(path)
        return hashlib.sha256(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes()).hexdigest()

    def _array(self, path: str) -> np.ndarray:
        if path not in self.rows:
            raise DataError(f"there is no image '{path}' among the {len(self.rows)} held in memory.")
        array: np.ndarray = self.arrays[self.rows[path]]
        return array


@dataclass(frozen=True)
class DrawnImages:
    """Images drawn on demand: ``draw(path)`` depends on the path and the rule alone; ``rule`` names everything else."""

    draw: Callable[[str], Image.Image]
    rule: str

    def open(self, path: str) -> Image.Image:
        """The image in RGB, drawn anew."""
        return self.draw(path).convert("RGB")

    def digest(self, path: str) -> str:
        """SHA-256 of the rule and the path: the image is a pure function of both."""
        return hashlib.sha256(f"{self.rule}\n{path}".encode()).hexdigest()
