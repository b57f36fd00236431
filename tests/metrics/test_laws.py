"""Laws that hold for every input: order, shards, bounds, and the exactness of what is computed cleverly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import diags_array, vstack

from promptcal import metrics
from promptcal.metrics import measure
from promptcal.metrics.bins import class_sums, equal_width, l1, l2, maximum, over, under
from promptcal.metrics.selective import levels, risk_coverage_area, roc_area
from promptcal.metrics.smooth import COSINES, cosine_sums, lipschitz_supremum, smooth_error
from promptcal.types import Predictions

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed: int, *, most: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels with ties, edges, saturation and absent classes among them."""
    generator = np.random.default_rng(seed)
    n, classes = int(generator.integers(1, most)), int(generator.integers(2, 8))
    probs = generator.dirichlet(np.full(classes, generator.choice([0.1, 1.0, 10.0])), n)
    if generator.random() < 0.5:
        probs = np.round(probs * 20) / 20
        probs[:, 0] += 1.0 - probs.sum(axis=1)
        probs = np.clip(probs, 0.0, 1.0)
        probs /= probs.sum(axis=1, keepdims=True)
    if generator.random() < 0.3:
        probs[: n // 2] = np.eye(classes)[generator.integers(0, classes, n // 2)]
    return probs, generator.integers(0, int(generator.integers(1, classes + 1)), n)


def predictions(probs: np.ndarray, labels: np.ndarray) -> Predictions:
    names = tuple(map(str, range(probs.shape[1])))
    return Predictions(np.zeros(probs.shape), labels, names, probabilities=probs)


@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_row_order_never_changes_a_measurement(seed: int):
    probs, labels = draw(seed)
    order = np.random.default_rng(seed).permutation(len(labels))
    before = measure(predictions(probs, labels))
    after = measure(predictions(probs[order], labels[order]))
    for a, b in zip(before, after, strict=True):
        assert a.metric == b.metric
        for x, y in ((a.value, b.value), (a.noise_floor, b.noise_floor)):
            assert (x is None) == (y is None)
            assert x is None or x == pytest.approx(y, abs=1e-12), a.metric


@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_row_order_never_changes_an_interval_or_a_slow_metric(seed: int):
    probs, labels = draw(seed)
    if len(labels) < 2:
        return
    order = np.random.default_rng(seed).permutation(len(labels))
    also = ["kde_ece", "smooth_calibration_error"]
    before = measure(predictions(probs, labels), intervals=True, also=also)
    after = measure(predictions(probs[order], labels[order]), intervals=True, also=also)
    for a, b in zip(before, after, strict=True):
        assert (a.low is None) == (b.low is None)
        assert a.low is None or (a.low, a.high) == pytest.approx((b.low, b.high), abs=1e-12), a.metric
        assert a.value is None or a.value == pytest.approx(b.value, abs=1e-12), a.metric


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(1, 30), st.sampled_from(["right", "left"]))
def test_bounds_among_the_binned_errors(seed: int, bins: int, closed: str):
    confidence, correct = metrics.top_label(*draw(seed))
    sums = equal_width(confidence, correct, bins, closed)
    gap = float(confidence.mean() - correct.mean())
    assert sums.count.sum() == len(correct), "every sample is in exactly one bin"
    assert abs(gap) <= l1(sums) + 1e-12
    assert l1(sums) <= l2(sums) + 1e-12
    assert l2(sums) <= maximum(sums) + 1e-12
    assert over(sums) + under(sums) == pytest.approx(float(l1(sums)), abs=1e-12)
    assert over(sums) - under(sums) == pytest.approx(gap, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(1, 20), st.sampled_from(["right", "left"]))
def test_class_sums_equal_one_class_after_the_other(seed: int, bins: int, closed: str):
    probs, labels = draw(seed)
    sums = class_sums(probs, labels, bins, closed)
    for k in range(probs.shape[1]):
        one = equal_width(probs[:, k], (labels == k).astype(float), bins, closed)
        part = slice(k * bins, (k + 1) * bins)
        for name in ("count", "confidence", "outcome"):
            assert getattr(sums, name)[part] == pytest.approx(getattr(one, name), abs=1e-12)


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_float32_changes_no_value_by_more_than_its_precision(seed: int):
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.ones(6), 40)
    labels = generator.integers(0, 6, 40)
    for metric in (metrics.ece, metrics.classwise_ece, metrics.smooth_ece, metrics.brier, metrics.nll, metrics.aurc):
        assert metric(probs.astype(np.float32), labels) == pytest.approx(metric(probs, labels), abs=1e-5)


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_smooth_ece_lies_between_the_mean_gap_and_the_mean_absolute_residual(seed: int):
    confidence, correct = metrics.top_label(*draw(seed))
    value = smooth_error(confidence, correct).value
    assert abs(float((confidence - correct).mean())) <= value + 1e-6
    assert value <= float(np.abs(confidence - correct).mean()) + 1e-6


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_cosine_sums_equal_their_definition(seed: int):
    generator = np.random.default_rng(seed)
    position = np.concatenate([generator.random(30), [0.0, 1.0, 0.5]])
    weight = generator.normal(size=(2, 33))
    exact = weight @ np.cos(np.pi * np.outer(position, np.arange(COSINES + 1)))
    assert cosine_sums(position, weight) == pytest.approx(exact, abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_lipschitz_supremum_equals_the_linear_program(seed: int):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, 40))
    confidence = generator.random(n)
    if seed % 3 == 0:
        confidence = np.round(confidence, 1)
    correct = (generator.random(n) < generator.choice([0.2, 0.5, 0.9])).astype(float)
    assert lipschitz_supremum(confidence, correct) == pytest.approx(linear_program(confidence, correct), abs=1e-9)


def linear_program(confidence: np.ndarray, correct: np.ndarray) -> float:
    levels, index = np.unique(confidence, return_inverse=True)
    residual = np.bincount(index, weights=correct - confidence) / len(confidence)
    m = len(levels)
    if m == 1:
        return abs(float(residual[0]))
    steps = diags_array([-np.ones(m - 1), np.ones(m - 1)], offsets=[0, 1], shape=(m - 1, m)).tocsr()
    limits = np.tile(np.diff(levels), 2)
    return -float(linprog(-residual, A_ub=vstack([steps, -steps]), b_ub=limits, bounds=(-1, 1)).fun)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_selective_metrics_equal_their_definitions(seed: int):
    confidence, correct = metrics.top_label(*draw(seed, most=30))
    found = levels(confidence, correct)
    order = np.argsort(-confidence, kind="stable")
    rate = [1 - correct[confidence == level].mean() for level in confidence[order]]
    risks = np.cumsum(rate) / np.arange(1, len(correct) + 1)
    assert risk_coverage_area(found) == pytest.approx(risks.mean(), abs=1e-12)
    pairs = [(a > b) + 0.5 * (a == b) for a in confidence[correct == 1] for b in confidence[correct == 0]]
    assert roc_area(found) == pytest.approx(np.mean(pairs) if pairs else np.nan, nan_ok=True)


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_a_threshold_keeps_its_budget_and_no_lower_one_does(seed: int):
    probs, labels = draw(seed)
    for kind in ("joint", "given_confident", "given_wrong"):
        threshold = metrics.threshold_for_budget(probs, labels, budget=0.1, kind=kind)
        levels = np.unique(metrics.top_label(probs, labels).confidence)
        rates = [metrics.hcfp(probs, labels, threshold=float(level), kind=kind).rate or 0.0 for level in levels]
        within = [level for level, rate in zip(levels, rates, strict=True) if rate <= 0.1]
        assert threshold == (min(within) if within else None)


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_the_brier_parts_add_up(seed: int):
    probs, labels = draw(seed)
    parts = metrics.brier_decomposition(probs, labels)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bin
    assert total == pytest.approx(metrics.brier(probs, labels), abs=1e-12)
    assert min(parts.reliability, parts.resolution, parts.uncertainty) >= 0


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_piece_is_never_below_ece_and_equals_it_in_one_group(seed: int):
    probs, labels = draw(seed)
    proximities = np.random.default_rng(seed).random(len(labels))
    assert metrics.piece(probs, labels, proximities) >= metrics.ece(probs, labels, bins=10) - 1e-12
    assert metrics.piece(probs, labels, proximities, groups=1) == pytest.approx(metrics.ece(probs, labels, bins=10))
