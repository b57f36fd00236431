"""Smooth calibration errors: no bins, so no bin edges to argue about."""

import math
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.fft import dct, rfft

from promptcal.metrics.inputs import top_label

COSINES = 4000
"""The highest cosine of the series, and the cells of the grid on [0, 1] on which its absolute value is integrated."""
DAMPING = 2.8 * math.pi
"""Smallest bandwidth tried, times pi, times the highest cosine: damping exp(-38.7) is below float64 precision."""
HALVINGS = 24
"""Bisection steps for the bandwidth: to 6e-8."""
FINENESS = 8
TAYLOR_TERMS = 11
"""Cosine sums expand about a grid ``FINENESS`` times finer; 11 terms leave less than 1e-15 of the largest cosine."""


class AtBandwidth(NamedTuple):
    """A calibration error and the kernel bandwidth at which it was taken."""

    value: float
    bandwidth: float


def smooth_ece(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Smooth ECE (smECE) of the top label: the integral of |kernel-smoothed (confidence - correct)|.

    smECE_s = integral over t in [0, 1] of |r_s(t)|, r_s(t) = mean of (c_i - y_i)·K_s(t, c_i), K_s the Gaussian kernel
    of standard deviation s reflected at 0 and 1, and s the fixed point smECE_s = s.

    Błasiok, Nakkiran, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing", ICLR 2024, arXiv 2309.12236.
    Deviations: the reflected kernel is exact, as its cosine series r_s(t) = a_0 + 2·sum_k a_k exp(-(k·pi·s)²/2)
    cos(k·pi·t) with a_k = mean((c - y)·cos(k·pi·c)), so confidences of exactly 0 or 1 keep their full weight; the
    bandwidth is bisected to 6e-8 instead of 1e-3.

    >>> round(smooth_ece(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 0])), 6)
    0.1
    """
    return smooth_error(*top_label(probs, labels)).value


def smooth_error(confidence: Float[np.ndarray, " n"], outcome: Float[np.ndarray, " n"]) -> AtBandwidth:
    """The smooth calibration error of forecasts of a 0/1 outcome, with its bandwidth."""
    value, bandwidth = fixed_point(cosine_sums(confidence, confidence - outcome) / len(confidence))
    return AtBandwidth(float(value), float(bandwidth))


def cosine_sums(
    position: Float[np.ndarray, " n"],
    weight: Float[np.ndarray, "*r n"],
    cosines: int = COSINES,
    terms: int = TAYLOR_TERMS,
) -> Float[np.ndarray, "*r K"]:
    """sum_i weight_i·cos(k·pi·position_i), k = 0 to ``cosines``: all that smooth ECE knows of the data; they add up.

    Each cosine is a Taylor series about the nearest point of a fine grid, so the cost is O(n + K log K), not O(n·K).
    Fewer ``terms`` are faster and coarser.
    """
    replicates, fine = weight.shape[:-1], FINENESS * cosines
    node = np.rint(position * fine).astype(np.int64)
    angle = np.pi * (position - node / fine)
    count = math.prod(replicates)
    cells = (np.arange(count)[:, None] * (fine + 1) + node).ravel()
    frequency = np.arange(cosines + 1, dtype=np.float64)
    total = np.zeros((*replicates, cosines + 1))
    for term in range(terms):
        moments = np.bincount(cells, weights=(weight * angle**term).ravel(), minlength=count * (fine + 1))
        spectrum = rfft(moments.reshape(*replicates, fine + 1), n=2 * fine)[..., : cosines + 1]
        part = (spectrum.real, spectrum.imag, -spectrum.real, -spectrum.imag)[term % 4]
        total += part * frequency**term / math.factorial(term)
    return total


def smoothed(coefficients: Float[np.ndarray, "*r K"], bandwidth: Float[np.ndarray, "*r"]) -> Float[np.ndarray, "*r K"]:
    """The kernel-smoothed function at t = j/(K - 1), j = 0 to K - 1, from its mean cosines a_0 to a_{K-1}."""
    frequency = np.arange(coefficients.shape[-1])
    damped = coefficients * np.exp(-0.5 * (frequency * np.pi * bandwidth[..., None]) ** 2)
    damped[..., -1] *= 2.0
    result: np.ndarray = dct(damped, type=1)
    return result


def integral(values: Float[np.ndarray, "*r K"]) -> Float[np.ndarray, "*r"]:
    """The trapezoid integral over [0, 1] of a function given at equal steps."""
    ends = 0.5 * (values[..., 0] + values[..., -1])
    return np.asarray((values.sum(axis=-1) - ends) / (values.shape[-1] - 1))


def fixed_point(
    coefficients: Float[np.ndarray, "*r K"],
) -> tuple[Float[np.ndarray, "*r"], Float[np.ndarray, "*r"]]:
    """The integral of |r_s| at the bandwidth s that equals it, and that bandwidth, from the mean cosines a_k."""
    low = np.full(coefficients.shape[:-1], DAMPING / (np.pi * (coefficients.shape[-1] - 1)))
    high = np.ones(coefficients.shape[:-1])
    for _ in range(HALVINGS):
        middle = np.asarray(0.5 * (low + high))
        above = integral(np.abs(smoothed(coefficients, middle))) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return integral(np.abs(smoothed(coefficients, low))), low


def smooth_calibration_error(probs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """Smooth calibration error (smCE) of the top label: sup over w of mean(w(c)·(y - c)), w 1-Lipschitz and |w| ≤ 1.

    The supremum is exact: a linear program over the distinct confidences, solved from left to right. It is another
    quantity than smooth ECE, within a constant factor of the distance to the nearest calibrated predictor.

    Kakade, Foster, "Deterministic calibration and Nash equilibrium", 2008; Błasiok, Gopalan, Hu, Nakkiran, "A Unifying
    Theory of Distance from Calibration", STOC 2023, arXiv 2211.16886.

    >>> round(smooth_calibration_error(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 0])), 6)
    0.1
    """
    return lipschitz_supremum(*top_label(probs, labels))


def lipschitz_supremum(confidence: Float[np.ndarray, " n"], outcome: Float[np.ndarray, " n"]) -> float:
    """The largest mean of w(c)·(y - c) over 1-Lipschitz w bounded by 1.

    From left to right over the distinct confidences, the best total as a function of w there is concave and piecewise
    linear; ``rising`` and ``falling`` are heaps of its breakpoints (position, change of slope) on either side of the
    maximum, the rising side mirrored. Moving on by d lets w change by d: the breakpoints part by d. Adding residual·w
    moves breakpoints of that much slope across the maximum, each worth its position. Every step needs the one before,
    so there is no array form; the cost is O(n log n).
    """
    levels, index = np.unique(confidence, return_inverse=True)
    residuals = np.bincount(index, weights=outcome - confidence) / len(confidence)
    rising: list[tuple[float, float]] = []
    falling: list[tuple[float, float]] = []
    best, start = 0.0, float(levels[0])
    for level, residual in zip(levels.tolist(), residuals.tolist(), strict=True):
        source, target = (falling, rising) if residual > 0 else (rising, falling)
        remaining, parted = abs(residual), level - start
        while remaining > 0.0:
            position, slope = heappop(source) if source else (math.inf, math.inf)
            place = min(position + parted, 1.0)
            moved = remaining if place == 1.0 else min(slope, remaining)
            if place < 1.0 and slope > moved:
                heappush(source, (position, slope - moved))
            best += moved * place
            heappush(target, (-place - parted, moved))
            remaining -= moved
    return best
