"""The annotations of Oxford Flowers-102: labels in a MATLAB file, names in a JSON file."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from promptcal.data.annotations.contract import Annotated, Entry, matlab
from promptcal.errors import DataError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OxfordFlowers:
    """``imagelabels.mat`` (labels from 1, in the order of the files) and ``cat_to_name.json`` (keys "1" to "102").

    Without the JSON file the names are those of torchvision, which are the same.
    The published split is not the data set's own (``setid.mat``): it drew every image at random.
    """

    def read(self, folder: Path) -> Annotated:
        """All images, ``image_00001.jpg`` first."""
        labels = np.atleast_1d(matlab(folder / "imagelabels.mat", "labels")).astype(int)
        file = folder / "cat_to_name.json"
        names = _names(file)
        absent = sorted({int(label) for label in labels if str(label) not in names})
        if absent:
            raise DataError(f"{file} has no name for class {absent[0]}.")
        return Annotated(
            tuple(
                Entry(f"image_{number:05d}.jpg", int(label) - 1, str(names[str(label)]))
                for number, label in enumerate(labels, start=1)
            )
        )


def _names(file: Path) -> dict[str, str]:
    """Class names by number, from 1."""
    if not file.is_file():
        from torchvision.datasets import Flowers102

        logger.warning("there is no %s; the names of the flowers are those of torchvision.", file)
        return {str(number): name.rstrip("?") for number, name in enumerate(Flowers102.classes, start=1)}
    try:
        names: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not JSON ({error}).") from error
    return names
