"""The annotations of Stanford Cars: MATLAB files, in the devkit and beside it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from promptcal.data.annotations.contract import Annotated, Entry, matlab
from promptcal.errors import DataError


@dataclass(frozen=True)
class StanfordCars:
    """``devkit/cars_train_annos.mat``, ``cars_test_annos_withlabels.mat`` and the names of ``devkit/cars_meta.mat``.

    The year, last in the data set's own names, stands first in the published ones: "2012 Acura RL Sedan". The test
    images are published; validation images were drawn at random from the training annotations.
    """

    def read(self, folder: Path) -> Annotated:
        """Train and validation images together, and the test images."""
        listed = np.atleast_1d(matlab(folder / "devkit/cars_meta.mat", "class_names"))
        names = [_year_first(str(name)) for name in listed]
        return Annotated(
            _entries(folder / "devkit/cars_train_annos.mat", "cars_train", names),
            _entries(folder / "cars_test_annos_withlabels.mat", "cars_test", names),
        )


def _year_first(name: str) -> str:
    rest, _, year = name.strip().rpartition(" ")
    return f"{year} {rest}"


def _entries(file: Path, images: str, names: list[str]) -> tuple[Entry, ...]:
    rows = np.atleast_1d(matlab(file, "annotations"))
    fields = rows.dtype.names or ()
    if not {"class", "fname"} <= set(fields):
        raise DataError(f"{file}: the annotations have no 'class' and 'fname'; these may be those without labels.")
    found = []
    for row in rows:
        label = int(row["class"]) - 1
        if not 0 <= label < len(names):
            raise DataError(f"{file}: {row['fname']} is of class {label + 1}, but there are {len(names)} names.")
        found.append(Entry(f"{images}/{row['fname']}", label, names[label]))
    return tuple(found)
