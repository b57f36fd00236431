"""Calibration error by kernel density: a ratio of beta-kernel sums instead of bins."""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaln

from promptcal.errors import ConfigError, DataError
from promptcal.metrics.inputs import top_label
from promptcal.metrics.smooth import AtBandwidth

BLOCK_ELEMENTS = 1 << 22
INSIDE = 1e-12
"""Confidences are moved this far inside (0, 1) where a kernel is evaluated: a beta density may vanish at the ends."""
BANDWIDTHS = tuple(np.geomspace(1e-3, 1.0, 16).tolist())
PROBES = 512
"""How many samples, evenly spread over the ranks, choose the bandwidth."""


def kde_ece(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], *, bandwidth: float | None = None) -> float:
    """KDE-ECE of the top label: the mean over j of |a_j - c_j|, a_j the kernel estimate of accuracy at confidence c_j.

    a_j = sum over i≠j of k(c_j; c_i)·y_i / sum over i≠j of k(c_j; c_i), with the beta density k(x; c) of parameters
    c/h + 1 and (1 - c)/h + 1. Without a bandwidth h, the one of 16 between 0.001 and 1 with the largest leave-one-out
    likelihood. The cost is O(n²).

    Popordanoska, Sayer, Blaschko, "A Consistent and Differentiable Lp Canonical Calibration Error Estimator", NeurIPS
    2022, arXiv 2210.07810; deviation: sums are taken relative to the largest term, so no density underflows to 0/0.

    Raises:
        DataError: what ``check_probabilities`` refuses, or fewer than two rows. ConfigError: a bandwidth not above 0.

    >>> round(kde_ece(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 0]), bandwidth=0.1), 9)
    0.1
    """
    return kernel_error(*top_label(probs, labels), bandwidth).value


def kernel_error(
    confidence: Float[np.ndarray, " n"], outcome: Float[np.ndarray, " n"], bandwidth: float | None = None
) -> AtBandwidth:
    """The kernel calibration error of forecasts of a 0/1 outcome, with its bandwidth."""
    n = len(confidence)
    if n < 2:
        raise DataError("the kernel calibration error compares each sample with the others; one row is not enough.")
    if bandwidth is None:
        order = np.argsort(confidence, kind="stable")
        probes = order[np.unique(np.linspace(0, n - 1, min(n, PROBES)).astype(np.int64))]
        bandwidth = max(BANDWIDTHS, key=lambda h: _log_likelihood(confidence, probes, h))
    if not bandwidth > 0:
        raise ConfigError(f"bandwidth={bandwidth} must be above 0.")
    gap, rows = 0.0, max(1, BLOCK_ELEMENTS // n)
    for start in range(0, n, rows):
        block = np.arange(start, min(start + rows, n))
        logs = log_kernel(confidence, block, bandwidth)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        gap += float(np.abs(weights @ outcome / weights.sum(axis=1) - confidence[block]).sum())
    return AtBandwidth(gap / n, float(bandwidth))


def log_kernel(
    confidence: Float[np.ndarray, " n"], rows: Int[np.ndarray, " r"], bandwidth: float
) -> Float[np.ndarray, "r n"]:
    """Log k(c_j; c_i) for j in ``rows`` and every i, minus infinity where i = j."""
    x = np.clip(confidence[rows], INSIDE, 1.0 - INSIDE)[:, None]
    a, b = confidence / bandwidth, (1.0 - confidence) / bandwidth
    result: np.ndarray = np.log(x) * a + np.log1p(-x) * b - betaln(a + 1.0, b + 1.0)
    result[np.arange(len(rows)), rows] = -np.inf
    return result


def _log_likelihood(confidence: np.ndarray, rows: np.ndarray, bandwidth: float) -> float:
    logs = log_kernel(confidence, rows, bandwidth)
    top = logs.max(axis=1)
    return float((top + np.log(np.exp(logs - top[:, None]).sum(axis=1))).mean())
