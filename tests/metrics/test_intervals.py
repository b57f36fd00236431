"""Intervals cover, tests keep their level, noise floors are what a calibrated model shows: the short form.

The full form is scripts/coverage_intervals.py.
"""

import numpy as np
import pytest

from promptcal import metrics
from promptcal.metrics import measure
from promptcal.metrics.bins import bin_sums, equal_width, l1, over, under, width_bins
from promptcal.metrics.intervals import (
    convex_interval,
    l2_interval,
    level_interval,
    mean_interval,
    outcome_test,
    squared_l2_interval,
)
from promptcal.metrics.noise import binned_floors, smooth_floor
from promptcal.metrics.selective import risk_coverage_area, roc_area
from promptcal.metrics.smooth import smooth_error
from promptcal.types import Predictions

BINS = width_bins(15)


def draw(generator: np.random.Generator, n: int, gap: float) -> tuple[np.ndarray, np.ndarray]:
    confidence = np.maximum(generator.beta(5.0, 1.5, n), gap)
    return confidence, (generator.random(n) < confidence - gap).astype(np.float64)


def at_least(hits: int, repeats: int, share: float) -> bool:
    """Whether so few hits are compatible with this share (3.5 standard errors)."""
    return hits / repeats >= share - 3.5 * np.sqrt(share * (1 - share) / repeats)


@pytest.mark.parametrize("gap", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("n", [500, 2000])
def test_coverage_of_the_binned_intervals(n: int, gap: float):
    generator, repeats = np.random.default_rng(1), 200
    l1_hits = l2_hits = 0
    for _ in range(repeats):
        confidence, outcome = draw(generator, n, gap)
        value = float(l1(bin_sums(confidence, outcome, *BINS(confidence))))
        low, high, _ = convex_interval(confidence - outcome, value)
        l1_hits += low <= gap <= high
        assert low <= value <= high
        interval = l2_interval(confidence, outcome, BINS)
        assert interval is not None
        l2_hits += interval.low <= gap <= interval.high
    assert at_least(l1_hits, repeats, 0.95)
    assert at_least(l2_hits, repeats, 0.93)


def test_coverage_of_the_one_sided_and_smooth_intervals():
    generator, repeats, gap = np.random.default_rng(2), 60, 0.05
    hits = np.zeros(3)
    for _ in range(repeats):
        confidence, outcome = draw(generator, 800, gap)
        sums, residual = equal_width(confidence, outcome), confidence - outcome
        for k, (value, sign, truth) in enumerate(
            (
                (float(over(sums)), 1.0, gap),
                (float(under(sums)), -1.0, 0.0),
                (smooth_error(confidence, outcome).value, None, gap),
            )
        ):
            low, high, _ = convex_interval(residual, value, sign)
            hits[k] += low <= truth <= high
    assert all(at_least(int(count), repeats, 0.95) for count in hits)


@pytest.mark.parametrize("area", [roc_area, risk_coverage_area])
def test_coverage_of_the_bootstrap(area):
    generator, repeats = np.random.default_rng(3), 60
    from promptcal.metrics.selective import levels

    truth = float(area(levels(*draw(generator, 200_000, 0.05))))
    hits = 0
    for _ in range(repeats):
        interval = level_interval(*draw(generator, 400, 0.05), area, replicates=200)
        assert interval is not None
        assert interval.kind == "basic bootstrap"
        hits += interval.low <= truth <= interval.high
    assert at_least(hits, repeats, 0.93)


def test_mean_intervals():
    wilson = mean_interval(np.array([1.0] * 8 + [0.0] * 2), bounded=True)
    assert wilson is not None
    assert wilson.kind == "Wilson"
    assert (wilson.low, wilson.high) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    student, half = mean_interval(np.array([0.5, 1.5]), bounded=False), 12.706205 * np.sqrt(0.5) / np.sqrt(2)
    assert student is not None
    assert (student.low, student.high) == pytest.approx((1 - half, 1 + half))
    assert mean_interval(np.array([0.5]), bounded=False) is None


def test_a_small_sample_without_an_error_proves_little():
    confidence, outcome = np.full(10, 0.9), np.ones(10)
    for interval in (
        mean_interval(np.zeros(10), bounded=True),
        mean_interval(confidence - outcome, bounded=True),
        convex_interval(confidence - outcome, 0.1),
    ):
        assert interval is not None
        assert interval.high - interval.low > 0.25
    assert l2_interval(confidence, outcome, BINS) is None


def test_the_squared_l2_interval_by_hand():
    confidence, outcome = np.array([0.9, 0.9, 0.9, 0.9]), np.array([1.0, 0.0, 0.0, 0.0])
    u = outcome - confidence
    m, q, n = u.mean(), (u**2).mean(), 4
    estimate = (n / (n - 1)) * (n * m**2 - q) / n
    deviation = np.sqrt((4 * m**2 * q - 3 * m**4 - m**4) / n)
    interval = squared_l2_interval(confidence, outcome, BINS)
    assert interval is not None
    low, high, _ = interval
    assert high == pytest.approx(min(1.0, estimate + 1.959964 * deviation), abs=1e-6)
    assert low == pytest.approx(max(0.0, estimate - 1.644854 * deviation), abs=1e-6)


def test_the_calibration_test_keeps_its_level_and_finds_a_gap():
    generator, repeats = np.random.default_rng(4), 150
    rejected = sum(
        outcome_test(*draw(generator, 300, 0.0), BINS, replicates=99, seed=k).p_value <= 0.05 for k in range(repeats)
    )
    assert 0.05 - 3.5 * np.sqrt(0.0475 / repeats) <= rejected / repeats <= 0.05 + 3.5 * np.sqrt(0.0475 / repeats)
    assert outcome_test(*draw(generator, 2000, 0.1), BINS).p_value == 0.001


def test_the_noise_floor_is_the_error_of_a_calibrated_model():
    generator = np.random.default_rng(5)
    confidence = generator.beta(5.0, 1.5, 400)
    observed, smooth = [], []
    for _ in range(300):
        outcome = (generator.random(400) < confidence).astype(np.float64)
        observed.append(float(l1(equal_width(confidence, outcome))))
        if len(smooth) < 60:
            smooth.append(smooth_error(confidence, outcome).value)
    from promptcal.metrics.contract import Binned

    floor = binned_floors(confidence, [Binned(BINS, l1)], replicates=300)[0]
    assert floor == pytest.approx(np.mean(observed), rel=0.06)
    assert smooth_floor(confidence) == pytest.approx(np.mean(smooth), rel=0.2)
    probs = np.stack([np.maximum(confidence, 1 - confidence), np.minimum(confidence, 1 - confidence)], axis=1)
    assert 0 < metrics.noise_floor(probs) < 0.1


def test_measure_adds_intervals_where_they_are_honest_and_says_which():
    generator = np.random.default_rng(6)
    probs = generator.dirichlet(np.ones(4), 300)
    labels = np.array([generator.choice(4, p=row) for row in probs])
    given = Predictions(np.log(probs), labels, tuple("abcd"))
    rows = {(row.metric, row.bins): row for row in measure(given, intervals=True)}
    kinds = {name: row.interval_kind for (name, _), row in rows.items()}
    assert kinds["accuracy"] == "Wilson"
    assert (kinds["nll"], kinds["brier"]) == ("Student", "Student")
    assert (kinds["signed_gap"], kinds["confidence"]) == ("normal", "normal")
    assert kinds["ece"] == kinds["smooth_ece"] == kinds["adaptive_ece"] == "mean gap below, plug-in above"
    assert kinds["rmsce"] == kinds["debiased_ece_squared"] == "debiased l2, asymptotic"
    assert kinds["auroc"] == kinds["aurc"] == "basic bootstrap"
    assert kinds["mce"] is None
    assert rows["mce", 15].low is None
    for row in rows.values():
        assert (row.low is None) == (row.high is None) == (row.interval_kind is None)
        assert row.low is None or row.low <= row.high
    assert rows["calibration_test", 15].value > 0.01
    assert rows["ece", 15].noise_floor == pytest.approx(metrics.noise_floor(probs))
    assert all(row.low is None for row in measure(given))
