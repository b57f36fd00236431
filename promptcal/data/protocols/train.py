"""Training on all images of all classes, as image classifiers are."""

import random

from promptcal.config import register
from promptcal.data.protocols.contract import Draw, Splits, apart
from promptcal.data.splits import few_shot
from promptcal.errors import ConfigError
from promptcal.types import Task


@register("protocol", "train")
def train(task: Task, draw: Draw, val_share: float = 0.05) -> Splits:
    """Train on all classes and test on the same classes: one split, ``test``.

    Args:
        task: the whole task.
        draw: shots and seed, of the draw and of the validation images; all validation images are used.
        val_share: the share of the training images to validate on instead, where the data set has no validation images
            of its own; 0.05 is the published one.

    Raises:
        ConfigError: a share outside (0, 1).
    """
    if not 0 < val_share < 1:
        raise ConfigError(f"protocol.val_share is {val_share}; it must lie between 0 and 1.")
    few, notes = apart(few_shot(task, draw.shots, draw.seed, val_shots="all"))
    if not few.val:
        rows = set(random.Random(draw.seed).sample(range(len(few.train)), round(val_share * len(few.train))))
        val = tuple(sample for row, sample in enumerate(few.train) if row in rows)
        few = few.replace(train=tuple(sample for row, sample in enumerate(few.train) if row not in rows), val=val)
    return Splits(train=few, targets={"test": few}, notes=notes)
