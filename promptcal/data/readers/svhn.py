"""SVHN, from the MATLAB files that torchvision, too, reads."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from promptcal.config import register
from promptcal.data.arrays import Images, Labels, find, task_of_arrays
from promptcal.data.readers.mnist import NAMES
from promptcal.errors import DataError
from promptcal.types import ClassNames, Task

PLACES = ("train_32x32.mat", "svhn/train_32x32.mat", "SVHN/train_32x32.mat")


@register("reader", "svhn")
@dataclass(frozen=True)
class Svhn:
    """73,257 and 26,032 house-number digits of 32 x 32 pixels; there is no validation split of its own.

    Netzer et al., "Reading Digits in Natural Images with Unsupervised Feature Learning", NIPS Workshop 2011. The file
    labels the digit 0 as 10.

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
        lies = find(name, folder, PLACES, fetched="SVHN", download=self.download)
        return task_of_arrays(
            name,
            ClassNames(NAMES, templates),
            _split(lies / "train_32x32.mat"),
            _split(lies / "test_32x32.mat"),
            val_fraction=self.val_fraction,
            split_seed=self.split_seed,
        )


def _split(file: Path) -> tuple[Images, Labels]:
    """Images [n, h, w, 3] and labels of a file, which holds them as [h, w, 3, n] and 1 to 10."""
    from scipy.io import loadmat

    try:
        content = loadmat(file)
        images, labels = content["X"], content["y"].reshape(-1)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {file}.") from error
    except (ValueError, KeyError, TypeError, OSError, NotImplementedError) as error:
        raise DataError(f"{file} is no SVHN file of cropped digits ({error}); fetch the file again.") from error
    if images.ndim != 4 or images.dtype != np.uint8:
        raise DataError(f"{file} holds {images.dtype} of shape {list(images.shape)}, not bytes [h, w, 3, n].")
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), labels.astype(np.int64) % 10
