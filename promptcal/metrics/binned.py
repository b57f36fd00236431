"""Binned calibration errors: how far mean confidence is from accuracy, bin by bin.

Bins are (a, b] unless ``closed="left"`` asks for [a, b); see ``promptcal.metrics.bins``.
"""

import numpy as np
from jaxtyping import Float, Int

from promptcal.errors import ConfigError, unknown
from promptcal.metrics.bins import (
    NORMS,
    average,
    class_sums,
    debiased_l2_squared,
    equal_mass,
    equal_width,
    l1,
    maximum,
    over,
    published_adaptive_error,
    under,
    weighted_maximum,
)
from promptcal.metrics.inputs import check_outcomes, check_probabilities, top_label


def ece(
    probs: Float[np.ndarray, "n C"],
    labels: Int[np.ndarray, " n"],
    *,
    bins: int = 15,
    norm: str = "l1",
    closed: str = "right",
) -> float:
    """Top-label expected calibration error: sum over bins of n_b/n · |mean confidence - accuracy| (norm l1).

    ``norm="l2"`` is the root of the weighted mean of squared gaps, ``norm="max"`` the largest gap of a bin that is not
    empty. A fraction in [0, 1].

    Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, arXiv 1706.04599; here a
    confidence of exactly 0 belongs to the first bin.

    Raises:
        DataError: see ``check_probabilities``. ConfigError: an unknown norm or closure, or fewer than one bin.

    >>> round(ece(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.45
    """
    if norm not in NORMS:
        raise ConfigError(unknown("norm", norm, NORMS))
    return float(NORMS[norm](equal_width(*top_label(probs, labels), bins, closed)))


def mce(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15, closed: str = "right"
) -> float:
    """Top-label maximum calibration error: the largest |mean confidence - accuracy| of a bin, unweighted.

    Naeini, Cooper, Hauskrecht, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015.

    >>> round(mce(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.7
    """
    return float(maximum(equal_width(*top_label(probs, labels), bins, closed)))


def mce_weighted(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15, closed: str = "right"
) -> float:
    """The largest n_b/n · |mean confidence - accuracy| of a bin: what some prompt-learning papers print as MCE.

    >>> round(mce_weighted(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.35
    """
    return float(weighted_maximum(equal_width(*top_label(probs, labels), bins, closed)))


def average_calibration_error(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15, closed: str = "right"
) -> float:
    """The unweighted mean of |mean confidence - accuracy| over the bins that are not empty.

    Neumann, Zisserman, Vedaldi, "Relaxed Softmax: Efficient Confidence Auto-Calibration for Safe Pedestrian Detection",
    2018. It is not the adaptive calibration error, with which it shares an abbreviation.

    >>> round(average_calibration_error(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.45
    """
    return float(average(equal_width(*top_label(probs, labels), bins, closed)))


def adaptive_ece(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15) -> float:
    """Top-label calibration error over bins that hold about equally many samples.

    The edges are the sorted confidences interpolated at ranks k·n/B; bins are (a, b], equal confidences stay together,
    repeated edges are merged, and the smallest confidence belongs to the first bin, so row order never matters.

    Nguyen, O'Connor, "Posterior calibration and exploratory analysis for natural language processing models", EMNLP
    2015, arXiv 1508.05154; edges as in Mukhoti et al., NeurIPS 2020, arXiv 2002.09437, whose code loses the smallest
    confidence (``adaptive_ece_published``).

    >>> round(adaptive_ece(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1])), 9)
    0.3
    """
    return float(l1(equal_mass(*top_label(probs, labels), bins)))


def adaptive_ece_published(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15) -> float:
    """Adaptive ECE as the code of the focal-loss papers prints it: the smallest confidence falls in no bin.

    Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020, arXiv 2002.09437. Where all
    confidences are equal it is 0, whatever the accuracy.

    >>> adaptive_ece_published(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1]))
    0.0
    """
    confidence, correct = top_label(probs, labels)
    return published_adaptive_error(confidence, correct, bins)


def classwise_errors(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15, closed: str = "right"
) -> Float[np.ndarray, " C"]:
    """The one-vs-rest calibration error of each class: sum over bins of n_b/n · |mean p_k - frequency of class k|."""
    probs, labels = check_probabilities(probs, labels)
    sums = class_sums(probs, labels, bins, closed)
    per_bin = np.abs(sums.confidence - sums.outcome) / len(labels)
    result: np.ndarray = per_bin.reshape(-1, bins).sum(axis=1)
    return result


def classwise_ece(
    probs: Float[np.ndarray, "n C"],
    labels: Int[np.ndarray, " n"],
    *,
    bins: int = 15,
    closed: str = "right",
    present_only: bool = False,
) -> float:
    """Classwise (static) calibration error: the one-vs-rest error of each class, averaged over all C classes.

    ``present_only`` averages over the classes that occur among the labels instead.

    Kull et al., "Beyond temperature scaling", NeurIPS 2019, arXiv 1910.12656; Nixon et al., "Measuring Calibration in
    Deep Learning", 2019, arXiv 1904.01685 (static calibration error).

    >>> round(classwise_ece(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.45
    """
    errors = classwise_errors(probs, labels, bins=bins, closed=closed)
    return float(errors[np.unique(labels)].mean() if present_only else errors.mean())


def debiased_ece_squared(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15, closed: str = "right"
) -> float:
    """The squared l2 calibration error with its small-sample bias taken off; it may be negative.

    sum over bins of n_b/n · ((mean confidence - A_b)² - A_b(1 - A_b)/(n_b - 1)), A_b the accuracy of bin b.

    Kumar, Liang, Ma, "Verified Uncertainty Calibration", NeurIPS 2019, arXiv 1909.10155; here over equal-width bins,
    and the sign is kept instead of a root floored at 0.

    >>> round(debiased_ece_squared(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.265
    """
    return float(debiased_l2_squared(equal_width(*top_label(probs, labels), bins, closed)))


def overconfidence(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15, closed: str = "right"
) -> float:
    """The part of the ECE from bins whose confidence exceeds their accuracy: sum of n_b/n · max(gap, 0).

    >>> round(overconfidence(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.35
    """
    return float(over(equal_width(*top_label(probs, labels), bins, closed)))


def underconfidence(
    probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bins: int = 15, closed: str = "right"
) -> float:
    """The part of the ECE from bins whose accuracy exceeds their confidence: sum of n_b/n · max(-gap, 0).

    >>> round(underconfidence(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.1
    """
    return float(under(equal_width(*top_label(probs, labels), bins, closed)))


def signed_gap(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Mean confidence minus accuracy: positive where the model is overconfident on the whole.

    >>> round(signed_gap(np.array([[0.8, 0.2], [0.7, 0.3]]), np.array([0, 1])), 9)
    0.25
    """
    confidence, correct = top_label(probs, labels)
    return float(confidence.mean() - correct.mean())


def binary_ece(
    positive: Float[np.ndarray, " n"],
    outcome: np.ndarray,
    *,
    bins: int = 15,
    norm: str = "l1",
    closed: str = "right",
) -> float:
    """Calibration error of P(class 1) against a 0/1 outcome: not the top-label ECE of a two-column table.

    >>> round(binary_ece(np.array([0.2, 0.9]), np.array([0, 1])), 9)
    0.15
    """
    if norm not in NORMS:
        raise ConfigError(unknown("norm", norm, NORMS))
    return float(NORMS[norm](equal_width(*check_outcomes(positive, outcome), bins, closed)))
