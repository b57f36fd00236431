"""Split files of one's own: the published rule, with a seed of one's choice."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from promptcal.config import build
from promptcal.data.annotations import Annotated, Annotations, Entry
from promptcal.data.cards import Card
from promptcal.data.readers.split_json import NOTE
from promptcal.errors import ConfigError, DataError

TRAIN, VAL = 0.5, 0.2
"""Shares of a class where nothing is published but the images; the rest is for testing."""

VAL_OF_TRAIN = 0.2
"""The share of the published training images that is for validation where the test images are published."""


def split_of_ones_own(card: Card, folder: Path, seed: int) -> dict[str, Any]:
    """The content of a split file for a data set whose published one is not at hand; nothing is written.

    Args:
        card: the data set, whose ``annotations`` say what is known of its classes and test images.
        folder: where it lies.
        seed: what chance begins with.

    Raises:
        ConfigError: a data set whose split is no matter of chance.
        DataError: annotations that are missing or broken, or a class with too few images.
    """
    if card.annotations is None:
        raise ConfigError(f"'{card.name}' needs no split file: its own files or folders give its split.")
    annotations: Annotations = build(card.annotations)
    annotated = annotations.read(folder)
    splits = drawn_split(annotated, seed)
    known = "its test images are the published ones, the others are" if annotated.test else "it is"
    note = (
        f"this is not the published split of {card.title}: {known} drawn by the published rule with seed {seed}; "
        f"results do not compare with published ones."
    )
    return {NOTE: note, **{split: [list(entry) for entry in entries] for split, entries in splits.items()}}


def drawn_split(annotated: Annotated, seed: int) -> dict[str, tuple[Entry, ...]]:
    """Train, validation and test entries by the rule of the published splits.

    Where test images are published: a shuffled fifth of each class's training images, rounded, is for validation. Where
    nothing is: of each class, shuffled, the first half is for training and the next fifth for validation, both rounded.
    The classes come in the order of their first image. Zhou et al., "Learning to Prompt for Vision-Language Models",
    IJCV 2022, arXiv 2109.01134. Deviation from their released code: files are sorted by name before they are shuffled,
    where it takes them as the file system lists them.

    Raises:
        DataError: a class with too few images for the rule, by name.
    """
    rng = random.Random(seed)
    train: list[Entry] = []
    val: list[Entry] = []
    test: list[Entry] = []
    for entries in _by_label(annotated.images):
        rng.shuffle(entries)
        if annotated.test is None:
            first, second = round(len(entries) * TRAIN), round(len(entries) * VAL)
            parts = entries[:first], entries[first : first + second], entries[first + second :]
        else:
            first = round(len(entries) * VAL_OF_TRAIN)
            parts = entries[first:], entries[:first], []
        if not all(parts[: 2 if annotated.test else 3]):
            raise DataError(
                f"the class '{entries[0].name}' has {len(entries)} images, too few to train, validate and test on."
            )
        train += parts[0]
        val += parts[1]
        test += parts[2]
    return {"train": tuple(train), "val": tuple(val), "test": tuple(test if annotated.test is None else annotated.test)}


def _by_label(entries: Sequence[Entry]) -> list[list[Entry]]:
    groups: dict[int, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.label, []).append(entry)
    return list(groups.values())
