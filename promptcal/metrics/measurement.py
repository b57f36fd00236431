"""Every number of one split in one call, each with the convention that produced it."""

from collections.abc import Callable, Sequence

import numpy as np

from promptcal.errors import ConfigError, unknown
from promptcal.metrics.bins import Binning, BinSums, debiased_l2_squared, l1, l2, over, under, width_bins
from promptcal.metrics.contract import Binned, Measurement, Metric, Scored, TopLabelPredictions, score
from promptcal.metrics.intervals import (
    Interval,
    convex_interval,
    l2_interval,
    level_interval,
    mean_interval,
    outcome_test,
    squared_l2_interval,
)
from promptcal.metrics.noise import binned_floors, smooth_floor
from promptcal.metrics.presets import ON_REQUEST, PRESETS
from promptcal.metrics.smooth import AtBandwidth
from promptcal.types import Predictions

CONVEX: dict[Callable[[BinSums], np.ndarray], float | None] = {l1: None, over: 1.0, under: -1.0}
"""The binned errors with a convex interval, and the sign of the gaps that count."""
SQUARED: dict[Callable[[BinSums], np.ndarray], Callable[[np.ndarray, np.ndarray, Binning], Interval | None]] = {
    debiased_l2_squared: squared_l2_interval,
    l2: l2_interval,
}
"""The binned errors with an interval from the debiased l2 estimate."""


def measure(
    predictions: Predictions | TopLabelPredictions,
    preset: str = "guo15",
    *,
    intervals: bool = False,
    also: Sequence[str] = (),
) -> list[Measurement]:
    """Every metric of a preset on one split, with its bins, norm, closure, unit and noise floor.

    Metrics that need the probabilities of all classes are left out where only the top label is known.

    Args:
        predictions: one split; NLL comes from its logits unless a calibrator has set the probabilities.
        preset: ``guo15``, or a peer's name for the numbers that this peer prints.
        intervals: add 95 % intervals, and the p-value of a test of calibration. MCE, classwise ECE and macro-F1 get
            none: no interval of theirs is known to us to hold what it promises.
        also: slow metrics on request: ``kde_ece``, ``smooth_calibration_error``, ``piece``.

    Raises:
        DataError: what ``check_probabilities`` refuses. ConfigError: an unknown preset or metric.
        MissingField: ``piece`` without image features.
    """
    if preset not in PRESETS:
        raise ConfigError(unknown("preset", preset, PRESETS))
    wrong = [name for name in also if name not in ON_REQUEST]
    if wrong:
        raise ConfigError(unknown("metric on request", wrong[0], ON_REQUEST))
    scored = score(predictions)
    metrics = [
        metric
        for metric in (*PRESETS[preset], *(ON_REQUEST[name] for name in also))
        if scored.probabilities is not None or not metric.all_classes
    ]
    floors = _floors(scored, metrics)
    rows = [_row(metric, scored, preset, floor, intervals) for metric, floor in zip(metrics, floors, strict=True)]
    if intervals:
        test = outcome_test(scored.confidence, scored.correct, width_bins(15))
        row = Measurement("calibration_test", test.p_value, len(scored), 15, "l2", "right", None, "p-value", preset)
        rows.append(row)
    return rows


def _row(metric: Metric, scored: Scored, preset: str, floor: float | None, intervals: bool) -> Measurement:
    found = metric.value(scored)
    value, bandwidth = found if isinstance(found, AtBandwidth) else (found, None)
    bounds = _interval(metric, scored, value) if intervals else None
    low, high, kind = bounds or (None, None, None)
    return Measurement(
        metric=metric.name,
        value=value,
        n=len(scored),
        bins=metric.bins,
        norm=metric.norm,
        closed=metric.closed,
        bandwidth=bandwidth,
        unit=metric.unit,
        preset=preset,
        noise_floor=floor,
        low=low,
        high=high,
        interval_kind=kind,
    )


def _floors(scored: Scored, metrics: Sequence[Metric]) -> list[float | None]:
    functions = [metric.binned or metric.floor(scored) for metric in metrics]
    known = [function for function in functions if function is not None]
    binned = iter(binned_floors(scored.confidence, known).tolist() if known else [])

    def floor(metric: Metric, function: Binned | None) -> float | None:
        if function is not None:
            return float(next(binned))
        return smooth_floor(scored.confidence) if metric.name == "smooth_ece" else None

    return [floor(metric, function) for metric, function in zip(metrics, functions, strict=True)]


def _interval(metric: Metric, scored: Scored, value: float | None) -> Interval | None:
    if value is None:
        return None
    if metric.rows is not None:
        return mean_interval(metric.rows(scored), bounded=metric.unit == "fraction")
    residual = scored.confidence - scored.correct
    if metric.name == "smooth_ece":
        return convex_interval(residual, value)
    if metric.binned is not None:
        reduce, binning = metric.binned.reduce, metric.binned.binning
        if reduce in CONVEX:
            return convex_interval(residual, value, CONVEX[reduce])
        interval = SQUARED.get(reduce)
        return interval and interval(scored.confidence, scored.correct, binning)
    if metric.levels is not None:
        return level_interval(scored.confidence, scored.correct, metric.levels)
    return None
