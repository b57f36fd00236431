"""Proper scoring rules, accuracy and macro-F1."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from promptcal.errors import DataError
from promptcal.metrics.bins import class_sums
from promptcal.metrics.inputs import check_labels, check_probabilities

SMALLEST = float(np.finfo(np.float64).eps)
"""Where the probability of the true class is clipped before its logarithm (as scikit-learn does)."""


def accuracy(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """The share of rows whose largest probability (the first of equals) is at the label.

    >>> accuracy(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1]))
    0.5
    """
    probs, labels = check_probabilities(probs, labels)
    return float((probs.argmax(axis=1) == labels).mean())


def macro_f1(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """The F1 of each class, 2·TP / (predicted + true), averaged over the classes that occur among the labels.

    >>> round(macro_f1(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 6)
    0.333333
    """
    probs, labels = check_probabilities(probs, labels)
    return macro_f1_of(probs.argmax(axis=1), labels)


def macro_f1_of(predicted: Int[np.ndarray, " n"], labels: Int[np.ndarray, " n"]) -> float:
    """Macro-F1 of predicted against true classes."""
    classes = int(max(predicted.max(), labels.max())) + 1
    true = np.bincount(labels, minlength=classes)
    chosen = np.bincount(predicted, minlength=classes)
    hits = np.bincount(labels[predicted == labels], minlength=classes)
    present = true > 0
    return float((2 * hits[present] / (true[present] + chosen[present])).mean())


def nll(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Negative log-likelihood in nats: the mean of -log p_y, with p_y clipped at the float64 epsilon 2.2e-16.

    ``clipped`` counts the rows that were clipped; ``nll_from_logits`` needs no clipping.

    >>> round(nll(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 6)
    0.713558
    """
    probs, labels = check_probabilities(probs, labels)
    return float(row_nll(probs, labels).mean())


def row_nll(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """-log of the clipped probability of the label, for each row."""
    result: np.ndarray = -np.log(np.maximum(probs[np.arange(len(labels)), labels], SMALLEST))
    return result


def clipped(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> int:
    """How many rows give their label a probability below the float64 epsilon, at which ``nll`` clips.

    >>> clipped(np.array([[1.0, 0.0], [0.7, 0.3]]), np.array([1, 1]))
    1
    """
    probs, labels = check_probabilities(probs, labels)
    return int((probs[np.arange(len(labels)), labels] < SMALLEST).sum())


def nll_from_logits(logits: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Negative log-likelihood in nats from logits: the mean of logsumexp(z) - z_y, in float64.

    Raises:
        DataError: a logit that is not finite, or labels out of range; the first offending row is named.

    >>> round(nll_from_logits(np.array([[0.0, 1000.0]]), np.array([0])), 6)
    1000.0
    """
    return float(row_nll_from_logits(logits, labels).mean())


def row_nll_from_logits(logits: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """logsumexp(z) - z_y for each row."""
    return softmax_and_nll(logits, check_labels(labels, *logits.shape))[1]


def softmax_and_nll(
    logits: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "n C"], Float[np.ndarray, " n"]]:
    """The softmax of logits, and logsumexp(z) - z_y for each row, in float64, for labels that were checked before.

    Raises:
        DataError: no rows, or a logit that is not finite; the first offending row is named.
    """
    if logits.size == 0:
        raise DataError(f"there is nothing to measure: the logits have shape {logits.shape}.")
    finite = np.isfinite(logits).all(axis=1)
    if not finite.all():
        raise DataError(f"row {int(finite.argmin())} of the logits holds a NaN or an infinity.")
    table = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    true = table[np.arange(len(labels)), labels]
    np.exp(table, out=table)
    total = table.sum(axis=1)
    table /= total[:, None]
    return table, np.log(total) - true


def brier(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Brier score, the mean over rows of sum_k (p_k - [k = y])²: between 0 and 2.

    Brier, "Verification of forecasts expressed in terms of probability", Monthly Weather Review 78, 1950: the sum over
    classes, neither halved nor divided by C.

    >>> round(brier(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.53
    """
    probs, labels = check_probabilities(probs, labels)
    return float(row_brier(probs, labels).mean())


def row_brier(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """sum_k (p_k - [k = y])² for each row."""
    true = probs[np.arange(len(labels)), labels]
    result: np.ndarray = np.einsum("nc,nc->n", probs, probs) - true**2 + (1.0 - true) ** 2
    return result


class BrierParts(NamedTuple):
    """The parts of a Brier score: reliability - resolution + uncertainty + within_bin is the score."""

    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float


def brier_decomposition(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15, closed: str = "right"
) -> BrierParts:
    """The Brier score (sum over classes) split into reliability, resolution, uncertainty and what bins hide.

    Per class and bin with mean forecast f, frequency o and the class's overall frequency q: reliability = sum n_b/n
    (f - o)², resolution = sum n_b/n (o - q)², uncertainty = q(1 - q), each summed over the classes. ``within_bin`` is
    the rest: the variance of the forecasts inside the bins less twice their covariance with the outcome.

    Murphy, "A new vector partition of the probability score", Journal of Applied Meteorology 12, 1973; the within-bin
    part after Stephenson, Coelho, Jolliffe, "Two extra components in the Brier score decomposition", Weather and
    Forecasting 23, 2008.

    >>> round(brier_decomposition(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1])).reliability, 9)
    0.5
    """
    probs, labels = check_probabilities(probs, labels)
    n = len(labels)
    sums = class_sums(probs, labels, bins, closed)
    weight = sums.count / n
    base = np.bincount(labels, minlength=probs.shape[1]) / n
    frequency = sums.outcome / np.maximum(sums.count, 1.0)
    reliability = float(weight @ sums.gap**2)
    resolution = float(weight @ (frequency - np.repeat(base, bins)) ** 2)
    uncertainty = float((base * (1.0 - base)).sum())
    score = float(row_brier(probs, labels).mean())
    return BrierParts(reliability, resolution, uncertainty, score - (reliability - resolution + uncertainty))
