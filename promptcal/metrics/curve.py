"""The smooth reliability curve: accuracy as a function of confidence, with a band."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from promptcal.metrics.smooth import cosine_sums, smooth_error, smoothed

COSINES = 500
SPARSE = 1e-3
"""Where the smoothed density of confidences is below this, nothing is known and the curve is NaN."""


@dataclass(frozen=True)
class ReliabilityCurve:
    """Accuracy at each confidence and its pointwise bounds, all [501]; NaN where there is no data."""

    confidence: Float[np.ndarray, " T"]
    accuracy: Float[np.ndarray, " T"]
    low: Float[np.ndarray, " T"]
    high: Float[np.ndarray, " T"]
    bandwidth: float


def reliability_curve(
    confidence: Float[np.ndarray, " n"],
    correct: Float[np.ndarray, " n"],
    *,
    level: float = 0.95,
    replicates: int = 200,
    seed: int = 0,
) -> ReliabilityCurve:
    """Kernel regression of the gap on confidence, as accuracy, with a bootstrap band.

    accuracy(t) = t - sum_i (c_i - y_i)·K_s(t, c_i) / sum_i K_s(t, c_i), K_s the reflected Gaussian kernel; the band is
    the pointwise percentile interval over resampled rows.

    Błasiok, Nakkiran, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing", ICLR 2024, arXiv 2309.12236.
    Deviations: the gap is smoothed and not the correctness, which bends the curve less; the bandwidth is smooth ECE's
    or, where it is smaller, Silverman's rule 1.06·sd·n^(-1/5), and at least 0.01.
    """
    order = np.lexsort((correct, confidence))
    confidence, correct = confidence[order], correct[order]
    n, generator, grid = len(correct), np.random.default_rng(seed), np.linspace(0.0, 1.0, COSINES + 1)
    rule = 1.06 * float(confidence.std()) * n ** (-0.2)
    bandwidth = max(0.01, min(rule, smooth_error(confidence, correct).bandwidth))

    def curve(times: np.ndarray) -> np.ndarray:
        sums = cosine_sums(confidence, np.stack([times * (confidence - correct), times]), COSINES, terms=2) / n
        gap, density = smoothed(sums, np.full(2, bandwidth))
        known = density > SPARSE
        result: np.ndarray = np.clip(grid - np.where(known, gap / np.where(known, density, 1.0), np.nan), 0.0, 1.0)
        return result

    middle = curve(np.ones(n))
    drawn = np.stack(
        [curve(np.bincount(generator.integers(0, n, n), minlength=n).astype(np.float64)) for _ in range(replicates)]
    )
    tails = [0.5 - level / 2.0, 0.5 + level / 2.0]
    low, high = np.full_like(middle, np.nan), np.full_like(middle, np.nan)
    shown = ~np.isnan(drawn).all(axis=0) & ~np.isnan(middle)
    low[shown], high[shown] = np.nanquantile(drawn[:, shown], tails, axis=0)
    return ReliabilityCurve(grid, np.where(shown, middle, np.nan), low, high, bandwidth)
