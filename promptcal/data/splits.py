"""Which images are drawn, and which classes are base and novel: pure functions of a task and a seed."""

import logging
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from promptcal.data.class_names import listed
from promptcal.errors import ConfigError, DataError
from promptcal.types import ClassNames, Sample, Task

logger = logging.getLogger(__name__)

ALL = -1
MAX_VAL_SHOTS = 4


def few_shot(
    task: Task,
    shots: int | Literal["all"],
    seed: int,
    *,
    test: Literal["split", "undrawn"] = "split",
    val_shots: int | Literal["all"] | None = None,
    val_from: Literal["val", "train"] = "val",
    given: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> Task:
    """The task with ``shots`` training images a class, drawn by the published rule before any halving of the classes.

    With Python's ``random`` seeded by ``seed``: the training samples are grouped by label in the order of first
    appearance and ``random.sample`` draws ``shots`` of each group; the same stream then draws min(shots, 4) validation
    images a class. This is what Zhou et al., "Learning to Prompt for Vision-Language Models", IJCV 2022, arXiv
    2109.01134, and the works built on it do, image by image. Deviation: a class with fewer images than shots gives all
    of them once (reported in the log by name), where one published option draws with replacement.

    Args:
        task: the whole task, all classes.
        shots: images a class; -1 or "all" keeps every training and validation image.
        seed: the seed of the draw.
        test: "split" keeps the test split; "undrawn" adds to it all training and validation images that were not drawn.
        val_shots: validation images a class instead of min(shots, 4); "all" or -1 keeps the whole split.
        val_from: "train" draws the validation images from the training images that were not drawn, in the place of the
            validation split; the published draw of the training images stays as it is.
        given: rows of ``train``, and of ``val`` where these are drawn as published, that are drawn already; the seed
            then draws the others alone.

    Raises:
        ConfigError: a number of shots below 1 that is not -1, or an unknown ``test`` or ``val_from``.
        DataError: no training images to draw from.
    """
    if test not in ("split", "undrawn"):
        raise ConfigError(f"unknown test '{test}'; choose split or undrawn.")
    if val_from not in ("val", "train"):
        raise ConfigError(f"unknown val_from '{val_from}'; choose val or train.")
    if not task.train:
        raise DataError(f"'{task.name}' has no training images to draw from.")
    wanted = _count(shots, "shots")
    wanted_val = _count(val_shots, "val_shots") if val_shots is not None else _default_val(wanted)
    rng = random.Random(seed)
    train = _draw(task, task.train, wanted, rng, "training")
    train = list(given.get("train", train))
    offered = task.val if val_from == "val" else _without(task.train, train)
    as_published = val_from == "val" and val_shots is None
    own = given.get("val") if as_published else None
    val = tuple(offered[row] for row in own or _draw(task, offered, wanted_val, rng, "validation"))
    extra: tuple[Sample, ...] = ()
    if test == "undrawn":
        spoken_for = {sample.path for sample in (*(task.train[row] for row in train), *val, *task.test)}
        left = (*_without(task.train, train), *task.val)
        extra = tuple(sample for sample in left if sample.path not in spoken_for)
    return task.replace(train=tuple(task.train[row] for row in train), val=val, test=task.test + extra)


def _count(shots: int | str, what: str) -> int:
    if shots == "all" or shots == ALL:
        return ALL
    if not isinstance(shots, int) or isinstance(shots, bool) or shots < 1:
        raise ConfigError(f"{what}={shots} is not a number of images a class; give 1 or more, or -1 for all.")
    return shots


def _default_val(shots: int) -> int:
    return ALL if shots == ALL else min(shots, MAX_VAL_SHOTS)


def _rows_by_label(samples: Sequence[Sample]) -> dict[int, list[int]]:
    """The rows of each label, labels in the order of first appearance."""
    rows: dict[int, list[int]] = {}
    for row, sample in enumerate(samples):
        rows.setdefault(sample.label, []).append(row)
    return rows


def _draw(task: Task, samples: Sequence[Sample], shots: int, rng: random.Random, split: str) -> list[int]:
    """The drawn rows of a split, class after class."""
    if shots == ALL:
        return list(range(len(samples)))
    groups = _rows_by_label(samples)
    short = {label: len(rows) for label, rows in groups.items() if len(rows) < shots}
    if short:
        named = listed([f"{task.classes.names[label]} ({found} of {shots})" for label, found in short.items()])
        logger.warning("'%s' has fewer %s images than asked for, all are taken: %s.", task.name, split, named)
    return [row for rows in groups.values() for row in (rng.sample(rows, shots) if len(rows) >= shots else rows)]


def _without(samples: Sequence[Sample], drawn: Iterable[int]) -> tuple[Sample, ...]:
    taken = set(drawn)
    return tuple(sample for row, sample in enumerate(samples) if row not in taken)


def base_novel(task: Task, split_seed: int | None = None) -> tuple[Task, Task]:
    """The base task and the novel task: the first ceil(n/2) classes in label order and the rest, both labelled from 0.

    The halves of Zhou et al., "Conditional Prompt Learning for Vision-Language Models", CVPR 2022, arXiv 2203.05557.

    Args:
        task: all classes; draw the few-shot images first.
        split_seed: a seeded random half of ceil(n/2) classes is base instead; label order stays within each half.

    Raises:
        DataError: a task of one class, which has no novel half.
    """
    count = len(task.classes)
    if count < 2:
        raise DataError(
            f"'{task.name}' has one class ('{task.classes.names[0]}'); base and novel halves need two or more."
        )
    size = math.ceil(count / 2)
    base = list(range(size))
    if split_seed is not None:
        base = sorted(random.Random(split_seed).sample(range(count), size))
    novel = sorted(set(range(count)) - set(base))
    return of_classes(task, base, "base"), of_classes(task, novel, "novel")


def of_classes(task: Task, labels: Sequence[int], half: str) -> Task:
    """The task restricted to some classes, relabelled from 0 in the given order."""
    new = {label: index for index, label in enumerate(labels)}

    def kept(samples: Sequence[Sample]) -> tuple[Sample, ...]:
        return tuple(Sample(sample.path, new[sample.label]) for sample in samples if sample.label in new)

    names = ClassNames(tuple(task.classes.names[label] for label in labels), task.classes.templates)
    return task.replace(
        name=f"{task.name}/{half}", classes=names, train=kept(task.train), val=kept(task.val), test=kept(task.test)
    )


def split_by_class(
    samples: Sequence[Sample], fractions: Sequence[float], rng: random.Random
) -> tuple[tuple[Sample, ...], tuple[Sample, ...], tuple[Sample, ...]]:
    """Training, validation and test samples: a shuffled share of each class, rounded, the rest going to test.

    A class of two or more images keeps at least one for training and one for testing.

    Raises:
        ConfigError: fractions that are not three shares summing to 1, train and test above 0.
    """
    if len(fractions) != 3 or min(fractions) < 0 or not math.isclose(sum(fractions), 1, abs_tol=1e-9):
        raise ConfigError(f"fractions={list(fractions)} must be three shares (train, val, test) that sum to 1.")
    if not fractions[0] or not fractions[2]:
        raise ConfigError(f"fractions={list(fractions)} leave nothing to train on or to test on.")
    train, val, test = [], [], []
    for rows in _rows_by_label(samples).values():
        order = rng.sample(rows, len(rows))
        n_train = min(max(1, round(len(rows) * fractions[0])), max(1, len(rows) - 1))
        n_val = min(round(len(rows) * fractions[1]), max(0, len(rows) - n_train - 1))
        train += sorted(order[:n_train])
        val += sorted(order[n_train : n_train + n_val])
        test += sorted(order[n_train + n_val :])
    picked = [tuple(samples[row] for row in rows) for rows in (train, val, test)]
    return picked[0], picked[1], picked[2]
