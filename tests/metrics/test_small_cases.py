"""Small cases worked out by hand, so that the core is tested without any data."""

import math

import numpy as np
import pytest

from promptcal import metrics
from promptcal.metrics import Measurement, measure
from promptcal.metrics.binned import binary_ece
from promptcal.metrics.bins import bin_index, mass_bins
from promptcal.metrics.contract import TopLabelPredictions
from promptcal.types import Predictions


def top(confidences: list[float], correct: list[int], classes: int = 11) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [n, classes] with these confidences in class 0, and labels 0 where correct, else 1."""
    confidence = np.array(confidences)
    probs = np.tile(((1 - confidence) / (classes - 1))[:, None], (1, classes))
    probs[:, 0] = confidence
    return probs, np.where(np.array(correct) == 1, 0, 1)


def test_edges_belong_to_the_documented_side():
    values = np.array([0.0, 0.1, 0.2, 0.3, 0.7, 0.9, 1.0])
    assert bin_index(values, 10, "right").tolist() == [0, 0, 1, 2, 6, 8, 9]
    assert bin_index(values, 10, "left").tolist() == [0, 1, 2, 3, 7, 9, 9]
    assert bin_index(values, 1).tolist() == [0] * 7


def test_float32_confidences_on_an_edge_give_the_same_ece():
    probs, labels = top([0.3] * 6 + [0.6] * 4, [1, 0, 0, 0, 0, 0, 1, 1, 0, 0])
    single = probs.astype(np.float32)
    assert metrics.ece(single, labels, bins=10) == pytest.approx(metrics.ece(probs, labels, bins=10), abs=1e-6)


def test_ece_by_hand():
    probs, labels = top([0.95, 0.95, 0.55, 0.55], [1, 0, 1, 1])
    assert metrics.ece(probs, labels, bins=10) == pytest.approx(0.5 * 0.45 + 0.5 * 0.45)
    assert metrics.ece(probs, labels, bins=10, norm="l2") == pytest.approx(0.45)
    assert metrics.mce(probs, labels, bins=10) == pytest.approx(0.45)
    assert metrics.mce_weighted(probs, labels, bins=10) == pytest.approx(0.225)
    assert metrics.overconfidence(probs, labels, bins=10) == pytest.approx(0.225)
    assert metrics.underconfidence(probs, labels, bins=10) == pytest.approx(0.225)
    assert metrics.signed_gap(probs, labels) == pytest.approx(0.0)
    assert metrics.ece(probs, labels, bins=1) == pytest.approx(0.0)


def test_a_bin_has_its_mean_confidence_not_its_middle():
    probs, labels = top([0.61, 0.61], [1, 0])
    assert metrics.ece(probs, labels, bins=10) == pytest.approx(0.11)


def test_certain_and_wrong_is_one_not_zero():
    probs = np.eye(3)[[0, 0, 1]]
    labels = np.array([1, 2, 0])
    for metric in (metrics.ece, metrics.mce, metrics.adaptive_ece, metrics.smooth_ece, metrics.aurc):
        assert metric(probs, labels) == pytest.approx(1.0, abs=1e-9)
    assert metrics.adaptive_ece_published(probs, labels) == 0.0
    assert metrics.clipped(probs, labels) == 3
    assert metrics.nll(probs, labels) == pytest.approx(-math.log(np.finfo(float).eps))
    assert metrics.hcfp(probs, labels, threshold=1.0).indices.tolist() == [0, 1, 2]


def test_equal_confidences_stay_in_one_adaptive_bin():
    probs, labels = top([0.5] * 20, [1, 0] * 10)
    assert metrics.adaptive_ece(probs, labels) == pytest.approx(0.0, abs=1e-12)
    assert mass_bins(15)(np.full(20, 0.5))[1] == 1


def test_one_sample():
    probs, labels = np.array([[0.7, 0.2, 0.1]]), np.array([0])
    expected = {
        "accuracy": 1.0,
        "ece": 0.3,
        "mce": 0.3,
        "adaptive_ece": 0.3,
        "classwise_ece": 0.2,
        "smooth_ece": 0.3,
        "nll": -math.log(0.7),
        "brier": 0.14,
        "aurc": 0.0,
        "auroc": None,
        "macro_f1": 1.0,
    }
    given = Predictions(np.log(probs), labels, ("a", "b", "c"))
    rows = {row.metric: row.value for row in reversed(measure(given))}
    for name, value in expected.items():
        assert rows[name] == (None if value is None else pytest.approx(value, abs=1e-9)), name


@pytest.mark.parametrize("correct", [0, 1])
def test_all_right_and_all_wrong(correct: int):
    probs, labels = top([0.6, 0.7, 0.8, 0.9], [correct] * 4)
    assert metrics.auroc(probs, labels) is None
    assert metrics.aurc(probs, labels) == 1.0 - correct
    assert metrics.eaurc(probs, labels) == 0.0
    assert metrics.hcfp(probs, labels, kind="given_wrong").rate == (None if correct else 0.25)
    assert metrics.ece(probs, labels) == pytest.approx(abs(0.75 - correct))


def test_an_absent_class_counts_in_the_classwise_mean():
    probs, labels = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]]), np.array([0, 1])
    assert metrics.classwise_errors(probs, labels) == pytest.approx([0.1, 0.2, 0.1])
    assert metrics.classwise_ece(probs, labels) == pytest.approx(0.4 / 3)
    assert metrics.classwise_ece(probs, labels, present_only=True) == pytest.approx(0.15)


def test_the_first_of_equal_probabilities_is_the_prediction():
    probs = np.array([[0.4, 0.2, 0.4]])
    assert metrics.accuracy(probs, np.array([0])) == 1.0
    assert metrics.accuracy(probs, np.array([2])) == 0.0


def test_binary_ece_is_not_the_top_label_ece():
    positive, outcome = np.array([0.1, 0.1, 0.9, 0.6]), np.array([0, 1, 1, 0])
    probs = np.stack([1 - positive, positive], axis=1)
    assert binary_ece(positive, outcome, bins=10) == pytest.approx((abs(0.2 - 1) + 0.1 + 0.6) / 4)
    assert metrics.ece(probs, outcome, bins=10) == pytest.approx((abs(2.7 - 2) + 0.6) / 4)


def test_macro_f1_averages_over_the_true_classes():
    probs = np.eye(4)[[0, 0, 1, 3]]
    assert metrics.macro_f1(probs, np.array([0, 1, 1, 0])) == pytest.approx((0.5 + 2 / 3) / 2)


def test_nll_from_logits_never_clips():
    logits, labels = np.array([[0.0, 2000.0], [3.0, 3.0]]), np.array([0, 1])
    assert metrics.nll_from_logits(logits, labels) == pytest.approx((2000.0 + math.log(2)) / 2)
    rows = {row.metric: row.value for row in measure(Predictions(logits, labels, ("a", "b")))}
    assert rows["nll"] == pytest.approx((2000.0 + math.log(2)) / 2)
    assert rows["nll_clipped"] == 0.0


def test_the_temperature_divides_the_logits_before_anything_is_measured():
    logits, labels = np.array([[4.0, 0.0], [0.0, 4.0]]), np.array([0, 0])
    cooled = Predictions(logits, labels, ("a", "b"), temperature=np.array([2.0, 4.0]))
    rows = {row.metric: row.value for row in measure(cooled)}
    softened = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert rows["nll"] == pytest.approx(metrics.nll_from_logits(softened, labels))


def test_brier_decomposition_of_forecasts_with_one_value_per_bin_has_nothing_hidden():
    probs = np.array([[0.8, 0.2]] * 5 + [[0.3, 0.7]] * 5)
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1, 0, 1])
    parts = metrics.brier_decomposition(probs, labels)
    assert parts.within_bin == pytest.approx(0.0, abs=1e-12)
    assert parts.reliability == pytest.approx(2 * 0.5 * 0.1**2)
    assert parts.uncertainty == pytest.approx(0.5)
    assert parts.reliability - parts.resolution + parts.uncertainty == pytest.approx(metrics.brier(probs, labels))


def test_threshold_for_an_error_budget():
    probs, labels = top([0.9, 0.8, 0.8, 0.7, 0.6], [1, 1, 0, 0, 1])
    assert metrics.threshold_for_budget(probs, labels, budget=0.0) == pytest.approx(0.9)
    assert metrics.threshold_for_budget(probs, labels, budget=0.2) == pytest.approx(0.8)
    assert metrics.threshold_for_budget(probs, labels, budget=0.35, kind="given_confident") == pytest.approx(0.8)
    assert metrics.threshold_for_budget(probs, labels, budget=0.5, kind="given_wrong") == pytest.approx(0.8)
    assert metrics.threshold_for_budget(*top([0.9], [0]), budget=0.1) is None


def test_aurc_counts_ties_by_their_expected_order():
    probs, labels = top([0.9, 0.5, 0.5], [1, 0, 1])
    assert metrics.aurc(probs, labels) == pytest.approx((0.0 + 0.5 / 2 + 1.0 / 3) / 3)
    assert metrics.augrc(probs, labels) == pytest.approx((0.0 + 0.5 + 1.0) / 9)


def test_top_label_predictions_leave_out_what_needs_all_classes():
    given = TopLabelPredictions(np.array([0.9, 0.6]), np.array([3, 1]), np.array([3, 2]))
    rows = {row.metric: row.value for row in measure(given)}
    assert rows["accuracy"] == 0.5
    assert rows["signed_gap"] == pytest.approx(0.25)
    assert not {"nll", "brier", "classwise_ece"} & set(rows)


def test_a_row_carries_its_convention_and_all_keys():
    rows = measure(Predictions(np.zeros((2, 3)), np.array([0, 1]), ("a", "b", "c")))
    headline = next(row for row in rows if row.metric == "ece")
    assert isinstance(headline, Measurement)
    shown = headline.row()
    assert [shown[key] for key in ("bins", "norm", "closed", "n", "preset")] == [15, "l1", "right", 2, "guo15"]
    assert {tuple(row.row()) for row in rows} == {tuple(shown)}
    assert {row.unit for row in rows} <= {"fraction", "nats", "score", "rows", "squared fraction"}
