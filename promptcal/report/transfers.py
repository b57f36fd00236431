"""Protocols whose splits are data sets: one that was trained on, and others."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from promptcal.report.results import Number

Value = TypeVar("Value", float, np.ndarray)
"""A number, or its replicates."""

TRANSFERS = ("cross_dataset", "domain_shift")
"""The protocols whose splits are data sets, the one that was trained on first."""

OTHERS = "mean of others"
"""Instead of a split: the mean over the data sets that were tested and not trained on, where there are several."""


def others_of(splits: Iterable[str], protocol: str) -> tuple[str, ...]:
    """The splits that are data sets which were not trained on: all but the first, where data sets are tested."""
    return tuple(splits)[1:] if protocol in TRANSFERS else ()


def with_means(
    values: "Mapping[tuple[str, Number], Value]", others: Sequence[str]
) -> "dict[tuple[str, Number], Value]":
    """The numbers of a run and, of each metric, the mean over its other data sets where there are two or more."""
    found = dict(values)
    if len(others) < 2:
        return found
    for calibrator, number in values:
        keys = [(calibrator, number._replace(split=split)) for split in others]
        if number.split == others[0] and all(key in values for key in keys):
            parts = [values[key] for key in keys]
            found[calibrator, number._replace(split=OTHERS)] = sum(parts[1:], parts[0]) / len(parts)
    return found
