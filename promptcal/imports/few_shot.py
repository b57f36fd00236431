"""The few-shot draws that the CoOp family left in the folders of its data sets, as pickles."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from promptcal.errors import ConfigError, DataError
from promptcal.imports.unpickling import Placeholder, unpickle
from promptcal.types import Sample, Task

SPLITS = ("train", "val")


class Drawn(Placeholder):
    """An image of a draw, as Dassl's ``Datum`` saves it: its path on the machine of its time, label and class name."""

    path: Any = None
    label: Any = None
    class_name: Any = None

    def fill(self, state: Any) -> None:
        """Take the three attributes."""
        held = state if isinstance(state, dict) else {}
        self.path, self.label, self.class_name = (held.get(key) for key in ("_impath", "_label", "_classname"))


def read_drawn(file: Path) -> dict[str, list[Drawn]]:
    """The drawn images of a file ``split_fewshot/shot_K-seed_S.pkl``, by split; nothing in it is run.

    Raises:
        DataError: no such file, a name that is refused, a cut-off file, or one that is something else.
    """
    if not file.is_file():
        raise DataError(f"there is no file {file}.")
    with file.open("rb") as opened:
        content = unpickle(opened, file, {"dassl.data.datasets.base_dataset.Datum": Drawn})
    if not isinstance(content, dict) or not content.get("train"):
        raise DataError(f"{file} holds no few-shot draw (a mapping with 'train').")
    splits = {split: content[split] for split in SPLITS if split in content}
    for split, drawn in splits.items():
        if not isinstance(drawn, list) or not all(
            isinstance(one, Drawn) and isinstance(one.path, str) and type(one.label) is int for one in drawn
        ):
            raise DataError(f"{file}: '{split}' is not a list of images with a path and a label.")
    return splits


def given_draw(task: Task, file: Path, shots: int) -> dict[str, tuple[int, ...]]:
    """The rows of a task's splits that a file has drawn, in its order.

    The paths in the file are absolute, on the machine where it was drawn; an image is known by the longest end of its
    path that is an image of the task.

    Args:
        task: the whole task, before any draw.
        file: ``split_fewshot/shot_K-seed_S.pkl``; that of ImageNet has no ``val``.
        shots: K, as the run has it.

    Raises:
        ConfigError: another number of images a class. DataError: as ``read_drawn``, and an image that the
            split of the task does not have or that has another label.
    """
    splits = read_drawn(file)
    most = max(Counter(one.label for one in splits["train"]).values())
    if most != shots:
        raise ConfigError(f"{file} has {most} images a class, the run {shots}; give the two alike with shots={most}.")
    return {
        split: _rows(task, split, task.train if split == "train" else task.val, drawn, file)
        for split, drawn in splits.items()
    }


def _rows(task: Task, split: str, samples: Sequence[Sample], drawn: Sequence[Drawn], file: Path) -> tuple[int, ...]:
    places = {sample.path: row for row, sample in enumerate(samples)}
    rows = []
    for one in drawn:
        parts = one.path.replace("\\", "/").split("/")
        ends = ("/".join(parts[start:]) for start in range(len(parts)))
        row = next((places[end] for end in ends if end in places), None)
        if row is None:
            raise DataError(
                f"{file}: '{one.path}' is none of the {len(samples)} {split} images of '{task.name}'; the file was "
                f"drawn from another split of the data."
            )
        if samples[row].label != one.label:
            raise DataError(
                f"{file}: '{one.path}' has label {one.label} ('{one.class_name}'), which is label "
                f"{samples[row].label} in '{task.name}'; the file was drawn from another split of the data."
            )
        rows.append(row)
    return tuple(rows)
