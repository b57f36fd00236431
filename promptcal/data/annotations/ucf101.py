"""The annotations of UCF101: ``ucfTrainTestlist/{classInd,trainlist01,testlist01}.txt``."""

import re
from dataclasses import dataclass
from pathlib import Path

from promptcal.data.annotations.contract import Annotated, Entry, lines_of
from promptcal.errors import DataError

LISTS = "ucfTrainTestlist"


@dataclass(frozen=True)
class Ucf101:
    """Lines ``ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi 1``; the image is the middle frame of the video.

    A published name splits the action before its capitals, "Apply_Eye_Makeup", and so does the folder of its frames.
    The first official split gives the test images; validation images were drawn at random from its training images.
    """

    def read(self, folder: Path) -> Annotated:
        """Train and validation images together, and the test images."""
        labels = {}
        for line in lines_of(folder / LISTS / "classInd.txt"):
            number, _, action = line.partition(" ")
            if not number.isdigit() or not action:
                raise DataError(f"{folder / LISTS}/classInd.txt: the line '{line}' is not 'number Action'.")
            labels[action] = int(number) - 1
        return Annotated(
            _entries(folder / LISTS / "trainlist01.txt", labels),
            _entries(folder / LISTS / "testlist01.txt", labels),
        )


def _entries(file: Path, labels: dict[str, int]) -> tuple[Entry, ...]:
    found = []
    for line in lines_of(file):
        action, _, video = line.split(" ")[0].partition("/")
        if action not in labels:
            raise DataError(f"{file}: the action of '{line}' is not in classInd.txt.")
        name = "_".join(re.findall("[A-Z][^A-Z]*", action))
        found.append(Entry(f"{name}/{video.replace('.avi', '.jpg')}", labels[action], name))
    return tuple(found)
