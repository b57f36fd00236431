"""The ways in which a calibrator may rewrite predictions, and the logits it starts from."""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import log_softmax

from promptcal.errors import NumericalError
from promptcal.types import Predictions

SMALLEST = float(np.finfo(np.float32).tiny)
"""Where a probability is clipped before its logarithm: below it, a float32 softmax says zero."""


def current_logits(predictions: Predictions) -> Float[np.ndarray, "n C"]:
    """The float64 logits whose softmax the predictions stand for now.

    They are divided by the temperature where there is one; where an earlier map has set probabilities, they are its
    log-probabilities (clipped at 1.2e-38).
    """
    if predictions.probabilities is None:
        return predictions.calibrated_logits
    logs: np.ndarray = np.log(np.maximum(predictions.probabilities.astype(np.float64), SMALLEST))
    return logs


def log_probs(predictions: Predictions) -> Float[np.ndarray, "n C"]:
    """The float64 logarithm of ``predictions.probs()``, from logits where there are logits."""
    logs: np.ndarray = log_softmax(current_logits(predictions), axis=1)
    return logs


def divide_rows(predictions: Predictions, factor: Float[np.ndarray, " n"] | float) -> Predictions:
    """Divide the logits of each row by a further ``factor``: the temperature grows by it, ``logits`` stay."""
    if predictions.probabilities is not None:
        predictions = replace_logits(predictions, current_logits(predictions))
    old = 1.0 if predictions.temperature is None else predictions.temperature.astype(np.float64)
    with np.errstate(over="ignore"):
        temperature = np.broadcast_to(old * np.asarray(factor, dtype=np.float64), predictions.labels.shape).copy()
    _refuse_strange(np.isfinite(temperature) & (temperature > 0), "temperature")
    return predictions.replace(temperature=temperature)


def replace_logits(predictions: Predictions, logits: Float[np.ndarray, "n C"]) -> Predictions:
    """Put other logits in place of temperature, logits and probabilities."""
    _refuse_strange(np.isfinite(logits).all(axis=1), "logits")
    return predictions.replace(logits=logits, temperature=None, probabilities=None)


def replace_probabilities(
    predictions: Predictions, weights: Float[np.ndarray, "n C"], top: Int[np.ndarray, " n"] | None = None
) -> Predictions:
    """Put probabilities in place of the softmax: non-negative weights, divided by the sum of their row.

    A row of zeros, which no sum can mend, keeps the probabilities it had. Where ``top`` is given, rounding may not move
    the argmax from it: an equal that comes first gives way by one unit in the last place.
    """
    _refuse_strange(np.isfinite(weights).all(axis=1), "probabilities")
    kept = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, predictions.probs())
    probs = kept / kept.sum(axis=1, keepdims=True)
    if top is not None:
        rows = np.flatnonzero(probs.argmax(axis=1) != top)
        rows = rows[probs[rows, top[rows]] == probs[rows].max(axis=1)]
        probs[rows, top[rows]] = np.nextafter(probs[rows, top[rows]], 2.0)
    return predictions.replace(probabilities=probs)


def with_confidence(predictions: Predictions, confidence: Float[np.ndarray, " n"]) -> Predictions:
    """Give the predicted class of each row another probability in [0, 1]; the others share the rest as they did.

    Where the others had nothing to share in proportion to, they share it alike. The confidence may fall below the
    runner-up, and the argmax then changes.
    """
    probs = predictions.probs().copy()
    rows, top = np.arange(len(probs)), probs.argmax(axis=1)
    if probs.shape[1] == 1:
        return predictions.replace(probabilities=np.ones_like(probs))
    confidence = np.clip(confidence, 0.0, 1.0)
    probs[rows, top] = 0.0
    rest = probs.sum(axis=1, keepdims=True)
    even = np.full_like(probs, 1.0 / (probs.shape[1] - 1))
    even[rows, top] = 0.0
    probs = np.where(rest > 0, probs / np.where(rest > 0, rest, 1.0), even) * (1.0 - confidence)[:, None]
    probs[rows, top] = confidence
    return replace_probabilities(predictions, probs)


def _refuse_strange(good: np.ndarray, what: str) -> None:
    if not good.all():
        raise NumericalError(f"calibration made the {what} of row {int(good.argmin())} NaN, infinite or not positive.")
