"""What a protocol is given and what it returns: a function of a task and a draw, ``@register("protocol", name)``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from promptcal.config import asset_path
from promptcal.data.cards import Card, card_named, load_task, read_card, size_warnings
from promptcal.data.checks import check_images
from promptcal.data.splits import few_shot
from promptcal.errors import ConfigError, DataError
from promptcal.types import Task

Described = str | Mapping[str, Any]
"""A data set to test on: the name of a card, or ``{card: NAME, ...}`` with keys that replace those of the card."""

CALIBRATION_SPLITS = ("few_shot_val", "full_val", "from_train", "val_or_train")


def _no_others(described: Described) -> Task:
    raise ConfigError(f"'{described}' cannot be read here: this draw knows of one data set alone.")


@dataclass(frozen=True)
class Draw:
    """What every protocol draws by.

    Attributes:
        shots: training images a class; -1 = all.
        seed: seed of the draw.
        split_seed: None = the first half of the labels is base; a number = a seeded random half.
        calibration_split: where validation images come from: ``few_shot_val`` (min(shots, 4) of the validation split a
            class, as published), ``full_val`` (all of it), ``from_train`` (min(shots, 4) training images a class
            that were not drawn), or ``val_or_train`` (the first where there is a validation split besides the test
            images, else the third).
        read: the task of another data set, for protocols that test on several.
        given: rows of ``train`` and ``val`` that are drawn already, as a file of the CoOp family holds them.
    """

    shots: int
    seed: int
    split_seed: int | None = None
    calibration_split: str = "few_shot_val"
    read: Callable[[Described], Task] = _no_others
    given: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Splits:
    """What a run trains on (``train.train``), calibrates on (``train.val``) and tests on (``targets[name].test``).

    Attributes:
        train: the task that is learned; its classes are the trained ones.
        targets: by split name, the tasks to test; each is classified among its own classes.
        joined: splits that are the images of several targets together, which have the same classes.
        notes: what a reader of the results must know of these images.
    """

    train: Task
    targets: Mapping[str, Task]
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def drawn(task: Task, draw: Draw, test: str = "split") -> tuple[Task, tuple[str, ...]]:
    """The task with its few-shot training and validation images, none of them tested, and what is to be said of them.

    Args:
        task: all classes.
        draw: shots, seed and where validation images come from.
        test: ``split`` = the test split; ``undrawn`` = that and every image neither trained nor calibrated on.

    Raises:
        ConfigError: an unknown ``test`` or ``calibration.split``, or no training images left to calibrate on.
    """
    if draw.calibration_split not in CALIBRATION_SPLITS:
        listed = ", ".join(CALIBRATION_SPLITS)
        raise ConfigError(f"unknown calibration.split '{draw.calibration_split}'; choose one of {listed}.")
    if test not in ("split", "undrawn"):
        raise ConfigError(f"unknown protocol.test '{test}'; choose split or undrawn.")
    tested = {sample.path for sample in task.test}
    own_val = any(sample.path not in tested for sample in task.val)
    from_train = draw.calibration_split == "from_train" or (draw.calibration_split == "val_or_train" and not own_val)
    few = few_shot(
        task,
        draw.shots,
        draw.seed,
        test="undrawn" if test == "undrawn" else "split",
        val_shots="all" if draw.calibration_split == "full_val" else None,
        val_from="train" if from_train else "val",
        given=draw.given,
    )
    if from_train and not few.val:
        raise ConfigError(
            f"calibration.split={draw.calibration_split} needs training images of '{task.name}' that are not trained "
            f"on; lower shots."
        )
    return apart(few)


def apart(task: Task) -> tuple[Task, tuple[str, ...]]:
    """The task without validation images that are test images, too, and a sentence where there were some.

    Nothing is calibrated on what is tested. All validation images go where a data set has none of its own and lists its
    test images twice, as ImageNet does.
    """
    tested = {sample.path for sample in task.test}
    kept = tuple(sample for sample in task.val if sample.path not in tested)
    left_out = len(task.val) - len(kept)
    if not left_out:
        return task, ()
    note = (
        f"{left_out} of {len(task.val)} validation images of '{task.name}' are test images, too, and nothing is "
        f"calibrated on them; calibration.split=from_train takes training images instead."
    )
    return task.replace(val=kept), (note,)


def reader_of_targets(
    root: str | Path | None, *, missing: str = "refuse", say: Callable[[str], None] = lambda line: None
) -> Callable[[Described], Task]:
    """What reads the other data sets of a protocol.

    Args:
        root: the parent folder of all data sets.
        missing: ``skip`` leaves missing images out, with their number in the log.
        say: told where sizes differ from those on the card.
    """
    return lambda described: whole_task(card_of(described), root, missing=missing, say=say)


def whole_task(card: Card, root: str | Path | None, *, missing: str, say: Callable[[str], None]) -> Task:
    """All of a data set, without images that are not there where ``missing`` is ``skip``.

    Args:
        card: the data set.
        root: the parent folder of all data sets.
        missing: ``skip``, or ``refuse`` for images that are drawn later.
        say: told where sizes differ from those on the card.
    """
    task = load_task(card, root)
    for warning in size_warnings(card, task):
        say(warning)
    return check_images(task, missing="skip") if missing == "skip" else task


def card_of(described: Described) -> Card:
    """The card of a target: a shipped one, with some keys replaced where a mapping gives them.

    ``{name: xray, path: /my/xray}`` is a folder of images; ``card: split_file`` and so on choose another card.

    Raises:
        ConfigError: an unknown card or key.
    """
    if isinstance(described, str):
        return card_named(described)
    values = dict(described)
    base = str(values.pop("card", "folder"))
    card_named(base)  # an unknown one is answered with the nearest
    if "name" in values:
        values.setdefault("title", values["name"])
    return read_card(OmegaConf.merge(OmegaConf.load(asset_path("datasets", f"{base}.yaml")), values))


def named_targets(tasks: Sequence[Task]) -> dict[str, Task]:
    """Tasks to test by the names of their data sets.

    Raises:
        ConfigError: two of one name, or a name that cannot be that of a split. DataError: one without test images.
    """
    found: dict[str, Task] = {}
    for task in tasks:
        if task.name in found:
            raise ConfigError(
                f"two data sets to test on are called '{task.name}'; give one another name, such as "
                f"{{card: folder, name: other, path: /its/folder}}."
            )
        if task.name in ("train", "val") or "/" in task.name:
            raise ConfigError(f"a data set to test on cannot be called '{task.name}'; give it another name.")
        if not task.test:
            raise DataError(f"'{task.name}' has no test images to test on.")
        found[task.name] = task
    return found
