"""Prediction files of any origin: npz, csv and safetensors, with probabilities or logits, or the top label alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from promptcal.errors import DataError, unknown
from promptcal.metrics.contract import TopLabelPredictions
from promptcal.metrics.inputs import check_labels, check_outcomes, check_probabilities
from promptcal.storage import load_predictions, load_tensors
from promptcal.types import Predictions

PROBABILITIES = ("probs", "probabilities", "predictions")
LABELS = ("labels", "label", "ground_truth", "true_label", "targets", "y_true")
PREDICTED = ("pred_label", "predicted_label", "predicted", "prediction", "y_pred")
CONFIDENCE = ("confidence", "conf")
SMALLEST = float(np.finfo(np.float64).tiny)


def read_predictions(path: Path, *, logits: bool = False) -> Predictions | TopLabelPredictions:
    """Predictions and labels from a file.

    ``.safetensors``: what promptcal wrote, or tensors named as in an npz. ``.npz``: ``labels`` (or ``ground_truth``)
    [n] and ``probs`` (or ``predictions``) or ``logits`` [n, C]. ``.csv``: a header, then one row per sample: a column
    ``label`` and one column per class; or ``true_label``, ``pred_label`` and ``confidence`` for the top label alone.
    Where a file has probabilities alone, the logits are their logarithms, and the probabilities are kept as they are.

    Args:
        path: the file.
        logits: the class columns of a csv, or the array ``predictions``, hold logits and not probabilities.

    Raises:
        DataError: the file is missing, broken, of an unknown kind or lacks something, or what it holds is refused.
    """
    if path.suffix not in READERS:
        raise DataError(f"{path} is no prediction file: its name must end in {', '.join(READERS)}.")
    if not path.is_file():
        raise DataError(f"there is no file {path}.")
    try:
        return READERS[path.suffix](path, logits)
    except DataError as error:
        raise error if str(path) in str(error) else DataError(f"{path}: {error}") from error


def _from_safetensors(path: Path, logits: bool) -> Predictions | TopLabelPredictions:
    arrays, metadata = load_tensors(path)
    return load_predictions(path) if metadata else _from_arrays(arrays, logits)


def _from_npz(path: Path, logits: bool) -> Predictions | TopLabelPredictions:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise DataError(f"{path} is not a whole npz file of plain numbers ({error}).") from error
    return _from_arrays(arrays, logits)


def _from_arrays(arrays: Mapping[str, np.ndarray], logits: bool) -> Predictions | TopLabelPredictions:
    labels = _one_of(arrays, LABELS)
    if labels is None:
        raise DataError(f"no labels among {_list(arrays)}; name them 'labels' or 'ground_truth'.")
    classes = arrays.get("classes")
    names = None if classes is None else tuple(str(name) for name in classes)
    scores, probabilities = _one_of(arrays, ("logits",)), _one_of(arrays, PROBABILITIES)
    if logits and scores is None:
        scores, probabilities = probabilities, None
    if probabilities is not None:
        return of_probabilities(probabilities, labels, names)
    if scores is not None:
        return of_logits(scores, labels, names)
    confidence, predicted = _one_of(arrays, CONFIDENCE), _one_of(arrays, PREDICTED)
    if confidence is not None and predicted is not None:
        return of_top_label(confidence, predicted, labels)
    raise DataError(f"neither probabilities nor logits among {_list(arrays)}; name them 'probs' or 'logits'.")


def _from_csv(path: Path, logits: bool) -> Predictions | TopLabelPredictions:
    try:
        table = pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a table in csv ({str(error).strip()}).") from error
    if table.empty:
        raise DataError("there is nothing to measure: the table has no rows.")
    columns = {str(name).strip(): table[name].to_numpy() for name in table.columns}
    labels = _one_of(columns, LABELS)
    if labels is None:
        raise DataError(f"no label column among {_list(columns)}; the header needs 'label' or 'true_label'.")
    confidence, predicted = _one_of(columns, CONFIDENCE), _one_of(columns, PREDICTED)
    if confidence is not None and predicted is not None:
        return of_top_label(confidence, predicted, labels)
    names = tuple(name for name in columns if name not in (*LABELS, *PREDICTED, *CONFIDENCE))
    if not names:
        raise DataError("there are no class columns, and no 'pred_label' with 'confidence'.")
    text = [name for name in names if columns[name].dtype.kind not in "fiu"]
    if text:
        raise DataError(f"the column '{text[0]}' holds something else than numbers.")
    scores = np.stack([columns[name].astype(np.float64) for name in names], axis=1)
    return (of_logits if logits else of_probabilities)(scores, labels, names)


def of_probabilities(probs: np.ndarray, labels: np.ndarray, classes: tuple[str, ...] | None = None) -> Predictions:
    """Predictions from probabilities [n, C]; labels are class indices [n], or class names where those are given.

    Raises:
        DataError: what ``check_probabilities`` refuses, or class names that do not fit.
    """
    checked, indices = check_probabilities(probs, _indices(labels, classes))
    logits = np.log(np.maximum(checked, SMALLEST))
    return Predictions(logits, indices, _names(classes, checked.shape[1]), probabilities=checked)


def of_logits(logits: np.ndarray, labels: np.ndarray, classes: tuple[str, ...] | None = None) -> Predictions:
    """Predictions from logits [n, C]; labels are class indices [n], or class names where those are given.

    Raises:
        DataError: logits that are not finite numbers [n, C], labels out of range, or class names that do not fit.
    """
    logits = np.asarray(logits)
    if logits.ndim != 2 or logits.dtype.kind not in "fiu":
        raise DataError(f"logits must be numbers of shape [n, C], not {logits.dtype} of shape {logits.shape}.")
    finite = np.isfinite(logits).all(axis=1)
    if not finite.all():
        raise DataError(f"row {int(finite.argmin())} of the logits holds a NaN or an infinity.")
    indices = check_labels(_indices(labels, classes), *logits.shape)
    return Predictions(logits.astype(np.float64), indices, _names(classes, logits.shape[1]))


def of_top_label(confidence: np.ndarray, predicted: np.ndarray, labels: np.ndarray) -> TopLabelPredictions:
    """Top-label predictions from confidences [n], predicted and true classes [n], both indices or both names.

    Raises:
        DataError: shapes that differ, a class that is missing, a confidence outside [0, 1].
    """
    if not confidence.shape == predicted.shape == labels.shape:
        raise DataError(f"confidences {confidence.shape}, predictions {predicted.shape}, labels {labels.shape} differ.")
    missing = pd.isna(predicted) | pd.isna(labels)
    if missing.any():
        raise DataError(f"row {int(missing.argmax())} lacks its predicted or its true class.")
    if labels.dtype.kind not in "iuf" or predicted.dtype.kind not in "iuf":
        _, both = np.unique(np.concatenate([predicted, labels]).astype(str), return_inverse=True)
        predicted, labels = both[: len(predicted)], both[len(predicted) :]
    predicted, labels = check_labels(predicted, len(confidence)), check_labels(labels, len(confidence))
    confidence, _ = check_outcomes(confidence, predicted == labels)
    return TopLabelPredictions(confidence, predicted, labels)


def _one_of(arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray | None:
    return next((arrays[name] for name in names if name in arrays), None)


def _list(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"'{name}'" for name in list(arrays)[:8]) or "nothing"


def _indices(labels: np.ndarray, classes: tuple[str, ...] | None) -> np.ndarray:
    """Class indices: the labels themselves, or the positions of class names."""
    if labels.dtype.kind not in "OUST" or classes is None:
        return labels
    known = {name: index for index, name in enumerate(classes)}
    strange = sorted({str(label) for label in labels} - set(known))
    if strange:
        raise DataError(unknown("class among the labels", strange[0], known))
    return np.array([known[str(label)] for label in labels], dtype=np.int64)


def _names(classes: tuple[str, ...] | None, count: int) -> tuple[str, ...]:
    if classes is not None and len(classes) != count:
        raise DataError(f"{len(classes)} class names for {count} columns.")
    return classes or tuple(map(str, range(count)))


READERS: dict[str, Callable[[Path, bool], Predictions | TopLabelPredictions]] = {
    ".npz": _from_npz,
    ".csv": _from_csv,
    ".safetensors": _from_safetensors,
}
