"""Intervals and a test for calibration errors, whose coverage is tested, and what they assume."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import norm as normal
from scipy.stats import t as student

from promptcal.metrics.bins import Binning, bin_sums, debiased_l2_squared, width_bins
from promptcal.metrics.inputs import top_label
from promptcal.metrics.noise import blocks, calibrated_outcomes
from promptcal.metrics.selective import Levels, levels

LEVEL = 0.95
TEST_REPLICATES = 999
BOOTSTRAP_REPLICATES = 1000


class Interval(NamedTuple):
    """Bounds that cover the true value with probability ``LEVEL`` or more, and the method that made them."""

    low: float
    high: float
    kind: str


def mean_interval(values: Float[np.ndarray, " n"], *, bounded: bool, level: float = LEVEL) -> Interval | None:
    """The interval of a mean: Wilson's where the values are 0 or 1, else mean ± half a width; None for one value.

    Values of differences of fractions (``bounded``) have ``half_width``; others t·sd/sqrt(n) with Student's t.
    """
    n, mean = len(values), float(values.mean())
    if np.isin(values, (0.0, 1.0)).all():
        z = float(normal.ppf(0.5 + level / 2.0))
        centre = (mean + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * float(np.sqrt(mean * (1 - mean) / n + z**2 / (4 * n**2)))
        return Interval(max(0.0, centre - half), min(1.0, centre + half), "Wilson")
    if bounded:
        half = half_width(float(values.var()), n, level)
        return Interval(mean - half, mean + half, "normal")
    if n < 2:
        return None
    half = float(student.ppf(0.5 + level / 2.0, n - 1)) * float(values.std(ddof=1)) / float(np.sqrt(n))
    return Interval(mean - half, mean + half, "Student")


def half_width(variance: float, n: int, level: float = LEVEL) -> float:
    """z·sqrt((variance + z²/n)/n): the normal half width, which never falls below z²/n (about Wilson's at 0 or 1).

    A small sample without a single error has no variance, which is no proof that there will be none.
    """
    z = float(normal.ppf(0.5 + level / 2.0))
    return z * float(np.sqrt((max(0.0, variance) + z**2 / n) / n))


def squared_l2_interval(
    confidence: Float[np.ndarray, " n"], outcome: Float[np.ndarray, " n"], binning: Binning, level: float = LEVEL
) -> Interval | None:
    """The interval of the squared l2 calibration error over given bins, from its debiased estimate.

    With residuals u = y - c, bin means m_b of u and q_b of u² and counts n_b:
    T = (1/n) sum over bins of n_b/(n_b - 1)·(n_b m_b² - q_b), floored at 0, and
    s² = (sum n_b/n (4 m_b² q_b - 3 m_b⁴) - (sum n_b/n m_b²)²) / n. With z at 1 - a/2 and z1 at 1 - a: the upper bound
    is T + z·s; the lower one T - z·s where T >= 2·z·s, T/2 where 2·z1·s <= T < 2·z·s, else max(0, T - z1·s).

    Sun, Chaudhari, Barnett, Dobriban, "A Confidence Interval for the l2 Expected Calibration Error", 2024, arXiv
    2408.08998. Asymptotic: where every outcome is the same it has no variance to go by, and the answer is None.
    """
    if outcome.min() == outcome.max():
        return None
    index, bins = binning(confidence)
    n, residual = len(outcome), outcome - confidence
    count = np.bincount(index, minlength=bins)
    filled = np.maximum(count, 1)
    mean = np.bincount(index, weights=residual, minlength=bins) / filled
    square = np.bincount(index, weights=residual**2, minlength=bins) / filled
    pairs = np.where(count > 1, count / np.maximum(count - 1, 1) * (count * mean**2 - square), 0.0)
    estimate = max(0.0, float(pairs.sum()) / n)
    weight = count / n
    variance = float(weight @ (4 * mean**2 * square - 3 * mean**4)) - float(weight @ mean**2) ** 2
    deviation = float(np.sqrt(max(0.0, variance) / n))
    two_sided, one_sided = normal.ppf(0.5 + level / 2.0) * deviation, normal.ppf(level) * deviation
    if estimate >= 2 * two_sided:
        low = estimate - two_sided
    else:
        low = estimate / 2 if estimate >= 2 * one_sided else max(0.0, estimate - one_sided)
    return Interval(float(low), float(min(1.0, estimate + two_sided)), "debiased l2, asymptotic")


def l2_interval(
    confidence: Float[np.ndarray, " n"], outcome: Float[np.ndarray, " n"], binning: Binning, level: float = LEVEL
) -> Interval | None:
    """The roots of ``squared_l2_interval``."""
    squared = squared_l2_interval(confidence, outcome, binning, level)
    return squared and Interval(float(np.sqrt(squared.low)), float(np.sqrt(squared.high)), squared.kind)


def convex_interval(
    residual: Float[np.ndarray, " n"], value: float, sign: float | None = None, level: float = LEVEL
) -> Interval:
    """Bounds of an error that is a convex function of mean residuals c - y: ECE, its one-sided parts, smooth ECE.

    Such a plug-in value is on average too large and never below |mean residual|. So the truth lies, each side failing
    with probability (1 - level)/2, between |mean residual| less its half width, and the value plus the half width for
    the variance (mean of squared residuals) - value². Tight where the model errs to one side, wide where to both.

    Args:
        residual: confidence minus outcome.
        value: the plug-in value.
        sign: +1 or -1 where only over- or underconfidence counts.
        level: how often the bounds are to hold.
    """
    n, mean = len(residual), float(residual.mean())
    least = (abs(mean) if sign is None else sign * mean) - half_width(float(residual.var()), n, level)
    most = value + half_width(float((residual**2).mean()) - value**2, n, level)
    return Interval(max(0.0, least), min(1.0, most), "mean gap below, plug-in above")


def level_interval(
    confidence: Float[np.ndarray, " n"],
    correct: Float[np.ndarray, " n"],
    area: Callable[[Levels], np.ndarray],
    *,
    level: float = LEVEL,
    replicates: int = BOOTSTRAP_REPLICATES,
    seed: int = 0,
) -> Interval | None:
    """The basic bootstrap interval, 2·value - quantiles over resampled rows, of a function of the errors by confidence.

    Resamples on which the function does not exist are left out; None where it exists on none.
    """
    _, index = np.unique(-confidence, return_inverse=True)
    cell = np.sort(2 * index + (correct == 0.0))
    n, cells = len(cell), 2 * (int(index.max()) + 1)
    generator, drawn = np.random.default_rng(seed), []
    for block in blocks(replicates, n):
        chosen = cell[generator.integers(0, n, (block, n))] + np.arange(block)[:, None] * cells
        counts = np.bincount(chosen.ravel(), minlength=block * cells).reshape(block, -1, 2).astype(np.float64)
        drawn.append(area(Levels(counts.sum(axis=-1), counts[..., 1])))
    values = np.concatenate(drawn)
    values = values[~np.isnan(values)]
    value = float(area(levels(confidence, correct)))
    if np.isnan(value) or len(values) == 0:
        return None
    low, high = np.quantile(values, [0.5 - level / 2.0, 0.5 + level / 2.0])
    return Interval(2 * value - float(high), 2 * value - float(low), "basic bootstrap")


class CalibrationTest(NamedTuple):
    """A test of the hypothesis that confidences are calibrated: the debiased squared l2 error and its p-value."""

    statistic: float
    p_value: float


def calibration_test(
    probs: Float[np.ndarray, "n C"],
    labels: Int[np.ndarray, " n"],
    *,
    bins: int = 15,
    closed: str = "right",
    replicates: int = TEST_REPLICATES,
    seed: int = 0,
) -> CalibrationTest:
    """A test of top-label calibration, exact at any n: is the debiased squared l2 error more than chance makes it?

    The p-value is the share of outcomes drawn as correct with probability equal to the confidence (and the data itself)
    whose statistic is at least as large.

    Statistic: Kumar, Liang, Ma, NeurIPS 2019, arXiv 1909.10155; consistency resampling: Bröcker, Smith, Weather and
    Forecasting 22, 2007; Vaicenavicius et al., AISTATS 2019, arXiv 1902.06977.

    >>> calibration_test(np.array([[0.9, 0.1]] * 50), np.array([1] * 50)).p_value
    0.001
    """
    return outcome_test(*top_label(probs, labels), width_bins(bins, closed), replicates, seed)


def outcome_test(
    confidence: Float[np.ndarray, " n"],
    outcome: Float[np.ndarray, " n"],
    binning: Binning,
    replicates: int = TEST_REPLICATES,
    seed: int = 0,
) -> CalibrationTest:
    """The calibration test for forecasts of a 0/1 outcome, over given bins."""
    observed = float(debiased_l2_squared(bin_sums(confidence, outcome, *binning(confidence))))
    ordered = np.sort(confidence)
    assigned = binning(ordered)
    larger = 1 + sum(
        int((debiased_l2_squared(bin_sums(ordered, drawn, *assigned)) >= observed - 1e-12).sum())
        for drawn in calibrated_outcomes(ordered, replicates, seed)
    )
    return CalibrationTest(observed, larger / (replicates + 1))
