"""Protocols: what is trained on and what is tested, from one task."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from promptcal.data.splits import base_novel, few_shot
from promptcal.errors import ConfigError
from promptcal.types import Task


@dataclass(frozen=True)
class Splits:
    """What a run trains on (``train.train``), calibrates on (``train.val``) and tests on (``targets[name].test``)."""

    train: Task
    targets: Mapping[str, Task]


def base_to_novel(
    task: Task,
    shots: int,
    seed: int,
    split_seed: int | None = None,
    calibration_split: str = "few_shot_val",
    test: str = "split",
) -> Splits:
    """Few shots of all classes, then the halves: train on base, test on base and novel.

    The few-shot draw comes before the halves, since train and validation share one random stream over all classes:
    that is what gives exactly the published images.

    Args:
        task: the whole task.
        shots: training images a class; -1 = all.
        seed: seed of the draw.
        split_seed: None = the first half of the labels is base; a number = a seeded random half.
        calibration_split: ``few_shot_val`` (min(shots, 4) images a class, as published) or ``full_val``.
        test: ``split`` = the test split; ``undrawn`` = that and every image neither trained nor calibrated on.

    Raises:
        ConfigError: an unknown ``calibration_split`` or ``test``.

    References:
        Zhou et al., "Conditional Prompt Learning for Vision-Language Models", CVPR 2022, arXiv 2203.05557.
    """
    if calibration_split not in ("few_shot_val", "full_val"):
        raise ConfigError(f"unknown calibration.split '{calibration_split}'; choose few_shot_val or full_val.")
    if test not in ("split", "undrawn"):
        raise ConfigError(f"unknown protocol.test '{test}'; choose split or undrawn.")
    drawn = few_shot(
        task,
        shots,
        seed,
        test="undrawn" if test == "undrawn" else "split",
        val_shots="all" if calibration_split == "full_val" else None,
    )
    base, novel = base_novel(drawn, split_seed)
    return Splits(train=base, targets={"base": base, "novel": novel})


def train(
    task: Task,
    shots: int,
    seed: int,
    split_seed: int | None = None,
    calibration_split: str = "full_val",
    val_share: float = 0.05,
) -> Splits:
    """Train on all classes and test on the same classes: one split, ``test``.

    Args:
        task: the whole task.
        shots: training images a class; -1 = all.
        seed: seed of the draw and of the validation images.
        split_seed: there are no halves; it has no effect.
        calibration_split: it has no effect: all validation images are used.
        val_share: the share of the training images to validate on instead, where the data set has no validation images
            of its own; 0.05 is the published one.

    Raises:
        ConfigError: a share outside (0, 1).
    """
    del split_seed, calibration_split
    if not 0 < val_share < 1:
        raise ConfigError(f"protocol.val_share is {val_share}; it must lie between 0 and 1.")
    drawn = few_shot(task, shots, seed, val_shots="all")
    if not drawn.val:
        rows = set(random.Random(seed).sample(range(len(drawn.train)), round(val_share * len(drawn.train))))
        val = tuple(sample for row, sample in enumerate(drawn.train) if row in rows)
        drawn = drawn.replace(train=tuple(sample for row, sample in enumerate(drawn.train) if row not in rows), val=val)
    return Splits(train=drawn, targets={"test": drawn})
