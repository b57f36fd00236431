"""Folds of a training set: prompts are to be trained on the rest of each, and predict what was left out."""

import numpy as np
from jaxtyping import Bool, Int

from promptcal.data.protocols import Splits
from promptcal.data.splits import of_classes
from promptcal.errors import ConfigError, DataError
from promptcal.types import Sample, Task


def cross_fit(task: Task, folds: int, seed: int) -> tuple[Splits, ...]:
    """For each fold of the images: all classes, the other images to train on, its own images as the target ``base``.

    Args:
        task: the training task; its test images play no part.
        folds: how many, at least 2; never more than the smallest class has images.
        seed: of the folds.

    Raises:
        ConfigError: fewer than two folds. DataError: a class with fewer than two training images.
    """
    fold_of = image_folds(task, folds, seed)
    return tuple(_held_out(task, fold_of == fold) for fold in range(fold_of.max() + 1))


def leave_classes_out(task: Task, folds: int, repeats: int, shot_folds: int, seed: int) -> tuple[Splits, ...]:
    """For each fold of the classes: trained on the others, ``novel`` its own, ``base`` unseen images of the others.

    ``novel`` is every training image of the classes left out. ``base`` is one fold of the images of the others, which
    training goes without; the fold changes from one training to the next.

    Args:
        task: the training task; its test images play no part.
        folds: into how many folds the classes are divided; at most so many that each has two classes.
        repeats: how often the classes are divided anew.
        shot_folds: into how many folds the images are divided.
        seed: of all folds.

    Raises:
        ConfigError: fewer than two folds of either kind, or no repeat.
        DataError: fewer than four classes, or a class with fewer than two training images.
    """
    classes = len(task.classes)
    if folds < 2 or repeats < 1:
        raise ConfigError(f"{folds} class folds, {repeats} times: give at least 2 folds, at least once.")
    if classes < 4:
        raise DataError(
            f"'{task.name}' has {classes} training classes; leaving classes out needs four, so that two or more go and "
            f"two or more stay. Fit the head on images alone."
        )
    fold_of = image_folds(task, shot_folds, seed)
    labels = np.array([sample.label for sample in task.train])
    rng = np.random.default_rng(seed)
    found: list[Splits] = []
    for _ in range(repeats):
        for left_out in np.array_split(rng.permutation(classes), min(folds, classes // 2)):
            stays = ~np.isin(labels, left_out)
            held = fold_of == len(found) % (fold_of.max() + 1)
            others = [label for label in range(classes) if label not in left_out]
            rest = _held_out(of_classes(task, others, "others"), held[stays])
            novel = of_classes(task.replace(train=(), val=(), test=task.train), sorted(left_out.tolist()), "left out")
            found.append(Splits(rest.train, {**rest.targets, "novel": novel}))
    return tuple(found)


def image_folds(task: Task, folds: int, seed: int) -> Int[np.ndarray, " n"]:
    """The fold of each training image: within a class in random order, as even as can be; no fold lacks a class.

    Raises:
        ConfigError: fewer than two folds. DataError: a class with fewer than two training images.
    """
    if folds < 2:
        raise ConfigError(f"folds={folds} leaves nothing to train on; give at least 2.")
    labels = np.array([sample.label for sample in task.train], dtype=np.int64)
    counts = np.bincount(labels, minlength=len(task.classes))
    if counts.min() < 2:
        raise DataError(
            f"'{task.classes.names[int(counts.argmin())]}' has {counts.min()} training images; held-out predictions "
            f"need two or more of every class."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    grouped = order[np.argsort(labels[order], kind="stable")]
    place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    fold_of = np.empty_like(labels)
    fold_of[grouped] = (place + labels[grouped]) % min(folds, int(counts.min()))
    return fold_of


def _held_out(task: Task, held: Bool[np.ndarray, " n"]) -> Splits:
    """Trained on the other images, with the held ones as the target ``base``."""

    def chosen(mask: Bool[np.ndarray, " n"]) -> tuple[Sample, ...]:
        return tuple(task.train[row] for row in np.flatnonzero(mask))

    target = task.replace(train=(), val=(), test=chosen(held))
    return Splits(task.replace(train=chosen(~held), test=()), {"base": target})
