"""A base and a novel number of the same model, read together."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from promptcal.errors import DataError
from promptcal.metrics.contract import Measurement
from promptcal.metrics.measurement import measure
from promptcal.types import Predictions

HIGHER_IS_BETTER = ("accuracy", "macro_f1", "auroc")
NEITHER_BETTER = ("confidence", "saturated", "nll_clipped")


def harmonic_mean(base: float, novel: float) -> float:
    """2·base·novel / (base + novel), and 0 where both are 0.

    Raises:
        DataError: a negative value.

    >>> harmonic_mean(0.5, 1.0)
    0.6666666666666666
    """
    if not (base >= 0.0 and novel >= 0.0):
        raise DataError(f"a harmonic mean needs values of at least 0, not {base} and {novel}.")
    return 2.0 * base * novel / (base + novel) if base + novel > 0.0 else 0.0


def pair(base: list[Measurement], novel: list[Measurement]) -> list[Measurement]:
    """For every metric in both lists, its worse value, and novel minus base; for accuracy the harmonic mean, too.

    The rows are named ``<metric>_worst``, ``<metric>_novel_minus_base`` and ``accuracy_harmonic_mean`` (Xian et al.,
    "Zero-Shot Learning - the Good, the Bad and the Ugly", CVPR 2017, arXiv 1703.04394); their n is that of both splits.
    """
    known = {(row.metric, row.bins, row.preset): row for row in novel}
    rows: list[Measurement] = []
    for first in base:
        second = known.get((first.metric, first.bins, first.preset))
        if second is None or first.value is None or second.value is None:
            continue
        blank = replace(
            first,
            value=None,
            n=first.n + second.n,
            bandwidth=None,
            noise_floor=None,
            low=None,
            high=None,
            interval_kind=None,
        )
        worse = min if first.metric in HIGHER_IS_BETTER else max
        if first.metric == "signed_gap":
            worst = max(first.value, second.value, key=abs)
        else:
            worst = worse(first.value, second.value)
        if first.metric not in NEITHER_BETTER:
            rows.append(replace(blank, metric=f"{first.metric}_worst", value=worst))
        rows.append(replace(blank, metric=f"{first.metric}_novel_minus_base", value=second.value - first.value))
        if first.metric == "accuracy":
            mean = harmonic_mean(first.value, second.value)
            rows.append(replace(blank, metric="accuracy_harmonic_mean", value=mean))
    return rows


def joint(
    predictions: Predictions, base_classes: Collection[str], preset: str = "guo15"
) -> dict[str, list[Measurement]]:
    """The metrics of a softmax over base and novel classes together: of all rows, and split by the true class's group.

    Returns ``all``, ``base`` and ``novel``; a group without rows is left out. The generalised setting of Chao et al.,
    "An Empirical Study and Analysis of Generalized Zero-Shot Learning", ECCV 2016, arXiv 1605.04253.

    Raises:
        DataError: a base class that the predictions do not know.
    """
    missing = [name for name in base_classes if name not in predictions.classes]
    if missing:
        raise DataError(f"base class '{missing[0]}' is not among the {len(predictions.classes)} predicted classes.")
    is_base = np.array([name in set(base_classes) for name in predictions.classes])[predictions.labels]
    groups = {"all": np.ones_like(is_base), "base": is_base, "novel": ~is_base}
    return {
        name: measure(take(predictions, np.nonzero(chosen)[0]), preset)
        for name, chosen in groups.items()
        if chosen.any()
    }


PER_ROW = (
    *("logits", "labels", "temperature", "zero_shot_logits", "probabilities"),
    *("image_features", "norms", "norms_before"),
)
"""The fields of predictions that have a row an image."""


def take(predictions: Predictions, rows: np.ndarray) -> Predictions:
    """The predictions of some rows; what belongs to the classes stays."""
    changes = {name: value[rows] for name in PER_ROW if (value := getattr(predictions, name)) is not None}
    paths = predictions.paths
    return predictions.replace(**changes, paths=None if paths is None else tuple(paths[row] for row in rows))


def together(parts: Sequence[Predictions], split: str) -> Predictions:
    """The rows of several splits as one; what belongs to the classes is that of the first.

    Args:
        parts: predictions among the same classes.
        split: what to call them together.

    Raises:
        DataError: no parts, or other classes in one of them.
    """
    if not parts or any(one.classes != parts[0].classes for one in parts):
        raise DataError(f"'{split}' needs parts that are classified among the same classes.")
    columns = {name: [getattr(one, name) for one in parts] for name in PER_ROW}
    known = {name: column for name, column in columns.items() if all(value is not None for value in column)}
    paths = [one.paths for one in parts if one.paths is not None]
    return parts[0].replace(
        **{name: None for name in PER_ROW if name not in known},
        **{name: np.concatenate(column) for name, column in known.items()},
        paths=tuple(path for some in paths for path in some) if len(paths) == len(parts) else None,
        split=split,
    )
