"""What every metric takes: probabilities that are probabilities, labels that are labels, and their top label."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from promptcal.errors import DataError

ROW_SUM_TOLERANCE = 1e-4
HALF_ROW_SUM_TOLERANCE = 1e-3
"""How far a row may be from summing to one, in float32 or wider and in half precision; rows are never renormalised."""


class TopLabel(NamedTuple):
    """The largest probability of each row [n] and whether its class is the label [n], both float64."""

    confidence: Float[np.ndarray, " n"]
    correct: Float[np.ndarray, " n"]


def check_labels(labels: np.ndarray, n: int, classes: int | None = None) -> Int[np.ndarray, " n"]:
    """The labels as int64, one for each of ``n`` rows and each in ``[0, classes)``.

    Raises:
        DataError: the number of labels, their type or one label is wrong; the first offending row is named.
    """
    labels = np.asarray(labels)
    if labels.shape != (n,):
        raise DataError(f"labels have shape {labels.shape}, but {n} rows of predictions need shape ({n},).")
    if labels.dtype.kind not in "iu":
        whole = labels.dtype.kind == "f" and bool(np.all(labels == np.floor(labels)))
        if not whole:
            raise DataError(f"labels must be whole numbers (class indices), not {labels.dtype}.")
    labels = labels.astype(np.int64)
    wrong = (labels < 0) if classes is None else (labels < 0) | (labels >= classes)
    if wrong.any():
        row = int(wrong.argmax())
        known = "classes count from 0" if classes is None else f"there are {classes} classes, numbered from 0"
        raise DataError(f"row {row} has label {labels[row]}, but {known}.")
    return labels


def check_probabilities(
    probs: np.ndarray, labels: np.ndarray, tolerance: float | None = None
) -> tuple[Float[np.ndarray, "n C"], Int[np.ndarray, " n"]]:
    """The probabilities [n, C] as float64 and the labels [n] as int64, after every check; never renormalised.

    Raises:
        DataError: no rows; wrong shapes; a NaN, an infinity, a negative value, a row that does not sum to one (to 1e-4
            in float32 or wider, 1e-3 in half precision) or a label out of range; the first offending row is named.
    """
    probs = np.asarray(probs)
    if probs.ndim != 2 or probs.dtype.kind not in "fiu":
        raise DataError(f"probabilities must be numbers of shape [n, C], not {probs.dtype} of shape {probs.shape}.")
    n, classes = probs.shape
    if n == 0 or classes == 0:
        raise DataError(f"there is nothing to measure: the probabilities have shape {probs.shape}.")
    labels = check_labels(labels, n, classes)
    if tolerance is None:
        tolerance = HALF_ROW_SUM_TOLERANCE if probs.dtype == np.float16 else ROW_SUM_TOLERANCE
    probs = probs.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):
        sums = probs.sum(axis=1)
        good = (np.abs(sums - 1.0) <= tolerance) & (probs.min(axis=1) >= 0.0)
    if not good.all():
        row = int(good.argmin())
        raise DataError(_what_is_wrong(probs[row], row, float(sums[row])))
    return probs, labels


def _what_is_wrong(values: np.ndarray, row: int, total: float) -> str:
    if not np.isfinite(values).all():
        return f"row {row} of the probabilities holds {values[~np.isfinite(values)][0]} instead of a finite number."
    if values.min() < 0.0 or values.max() > 1.0:
        worst = values.min() if values.min() < 0.0 else values.max()
        return (
            f"row {row} holds {worst:.6g}, which is no probability; if these are logits, say so or take their softmax."
        )
    return f"row {row} of the probabilities sums to {total:.6g} instead of 1; mend the file, rows are not renormalised."


def check_outcomes(confidence: np.ndarray, outcome: np.ndarray) -> TopLabel:
    """Forecasts [n] in [0, 1] and their outcomes [n] (0 or 1) as float64, after every check.

    Raises:
        DataError: no rows; shapes that differ; a forecast outside [0, 1] or NaN; an outcome that is neither 0 nor 1.
    """
    confidence, outcome = np.asarray(confidence, dtype=np.float64), np.asarray(outcome, dtype=np.float64)
    if confidence.ndim != 1 or confidence.shape != outcome.shape:
        raise DataError(f"confidences {confidence.shape} and outcomes {outcome.shape} must both have shape [n].")
    if len(confidence) == 0:
        raise DataError("there is nothing to measure: no confidences.")
    for name, good in (
        ("confidence", (confidence >= 0.0) & (confidence <= 1.0)),
        ("outcome", (outcome == 0.0) | (outcome == 1.0)),
    ):
        if not good.all():
            row = int(good.argmin())
            value = confidence[row] if name == "confidence" else outcome[row]
            wanted = "between 0 and 1" if name == "confidence" else "0 or 1"
            raise DataError(f"row {row} has {name} {value:.6g}; it must be {wanted}.")
    return TopLabel(confidence, outcome)


def top_label(probs: np.ndarray, labels: np.ndarray) -> TopLabel:
    """The confidence max_k p_k and its correctness for each row; of equal probabilities the lowest class wins.

    Raises:
        DataError: what ``check_probabilities`` refuses.

    >>> top_label(np.array([[0.4, 0.2, 0.4]]), np.array([2])).correct
    array([0.])
    """
    return top_of(*check_probabilities(probs, labels))


def top_of(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> TopLabel:
    """The top labels of probabilities that were checked before."""
    predicted = probs.argmax(axis=1)
    confidence = np.take_along_axis(probs, predicted[:, None], axis=1)[:, 0]
    return TopLabel(np.minimum(confidence, 1.0), (predicted == labels).astype(np.float64))
