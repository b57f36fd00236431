"""CIFAR-10-C: the test images of CIFAR-10, corrupted."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from promptcal.config import register
from promptcal.data.arrays import find, task_of_arrays
from promptcal.errors import ConfigError, DataError, unknown
from promptcal.types import ClassNames, Task

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SEVERITIES = 5


@register("reader", "cifar_c")
@dataclass(frozen=True)
class CifarC:
    """One corruption at one severity: 10,000 test images of the file ``CORRUPTION.npy``, which holds all five.

    There are no training images: the corrupted images are a target of protocol=domain_shift on dataset=cifar10.

    Hendrycks, Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019,
    arXiv 1903.12261.

    Args:
        corruption: the name of a file without its ending, such as ``gaussian_noise``.
        severity: 1 to 5; the rows of the file are in the order of severity.
    """

    corruption: str = "gaussian_noise"
    severity: int = 5

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task, with test images alone; raises DataError for files that are missing or of another shape."""
        if not 1 <= self.severity <= SEVERITIES:
            raise ConfigError(f"dataset.reader.severity={self.severity} must be one of 1 to {SEVERITIES}.")
        lies = find(name, folder, ["CIFAR-10-C/labels.npy", "labels.npy"])
        file = lies / f"{self.corruption}.npy"
        if not file.is_file():
            known = sorted(path.stem for path in lies.glob("*.npy") if path.stem != "labels")
            raise DataError(f"{unknown('corruption', self.corruption, known)} It is looked for in {lies}.")
        images, labels = _array(file), _array(lies / "labels.npy")
        if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8 or len(images) % SEVERITIES:
            raise DataError(f"{file} holds {images.dtype} of shape {list(images.shape)}, not bytes [5 n, h, w, 3].")
        size = len(images) // SEVERITIES
        rows = slice((self.severity - 1) * size, self.severity * size)
        return task_of_arrays(
            name, ClassNames(NAMES, templates), None, (np.array(images[rows]), np.array(labels[rows], dtype=np.int64))
        )


def _array(file: Path) -> np.ndarray:
    try:
        array: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {file}.") from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file} is no array that numpy can read ({error}); fetch the file again.") from error
    return array
