"""What is no probability or no label is refused, and the first offending row is named."""

import numpy as np
import pytest

from promptcal import metrics
from promptcal.errors import ConfigError, DataError, MissingField
from promptcal.metrics import measure
from promptcal.metrics.contract import TopLabelPredictions, score
from promptcal.metrics.inputs import check_labels, check_outcomes, check_probabilities
from promptcal.types import Predictions

GOOD = np.array([[0.7, 0.3], [0.4, 0.6], [0.5, 0.5]])
LABELS = np.array([0, 1, 0])


def spoiled(row: int, values: list[float]) -> np.ndarray:
    probs = GOOD.copy()
    probs[row] = values
    return probs


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (spoiled(1, [np.nan, 0.6]), "row 1 .* nan instead of a finite number"),
        (spoiled(2, [np.inf, 0.0]), "row 2 .* inf"),
        (spoiled(1, [-3.2, 4.1]), "row 1 holds -3.2, which is no probability; if these are logits"),
        (spoiled(0, [1.5, 0.0]), "row 0 holds 1.5"),
        (spoiled(0, [1.1, -0.1]), "row 0 holds -0.1"),
        (spoiled(2, [0.5, 0.4]), "row 2 .* sums to 0.9 instead of 1"),
        (np.log(GOOD), "row 0 holds -1.2.* logits"),
        (np.zeros((0, 2)), "nothing to measure"),
        (np.zeros((3, 0)), "nothing to measure"),
        (GOOD[:, 0], r"shape \[n, C\]"),
        (GOOD[..., None], r"shape \[n, C\]"),
        (GOOD.astype(str), "must be numbers"),
    ],
)
def test_bad_probabilities(probs: np.ndarray, message: str):
    with pytest.raises(DataError, match=message):
        check_probabilities(probs, LABELS[: len(probs)])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 2, 1]), "row 1 has label 2, but there are 2 classes"),
        (np.array([0, 1, -1]), "row 2 has label -1"),
        (np.array([0, 1]), r"shape \(2,\), but 3 rows"),
        (np.array([[0], [1], [0]]), r"shape \(3, 1\)"),
        (np.array([0.0, 0.5, 1.0]), "whole numbers"),
        (np.array([0.0, np.nan, 1.0]), "whole numbers"),
        (np.array(["a", "b", "a"]), "whole numbers"),
    ],
)
def test_bad_labels(labels: np.ndarray, message: str):
    with pytest.raises(DataError, match=message):
        check_probabilities(GOOD, labels)


def test_whole_floats_are_labels():
    assert check_labels(np.array([0.0, 1.0]), 2, 2).dtype == np.int64


@pytest.mark.parametrize(
    ("dtype", "off", "accepted"),
    [
        (np.float64, 5e-5, True),
        (np.float64, 5e-4, False),
        (np.float32, 5e-5, True),
        (np.float32, 5e-4, False),
        (np.float16, 5e-4, True),
        (np.float16, 5e-3, False),
    ],
)
def test_row_sums_have_a_tolerance_by_precision(dtype: type, off: float, accepted: bool):
    probs = np.array([[0.75, 0.25], [0.5 + off, 0.5]], dtype=dtype)
    labels = np.array([0, 1])
    if accepted:
        checked, _ = check_probabilities(probs, labels)
        assert checked[1, 0] == probs[1, 0], "rows are never renormalised"
    else:
        with pytest.raises(DataError, match="row 1"):
            check_probabilities(probs, labels)


def test_the_input_is_not_changed():
    probs, labels = GOOD.copy(), LABELS.copy()
    measure(Predictions(np.log(GOOD), labels, ("a", "b"), probabilities=probs))
    assert (probs == GOOD).all()
    assert (labels == LABELS).all()


def test_logits_must_be_finite():
    logits = np.zeros((3, 2))
    logits[2, 1] = np.nan
    with pytest.raises(DataError, match="row 2 of the logits"):
        score(Predictions(logits, LABELS, ("a", "b")))


def test_bad_top_labels():
    for confidence, message in ((1.2, "row 1 has confidence 1.2"), (np.nan, "row 1 has confidence nan")):
        with pytest.raises(DataError, match=message):
            measure(TopLabelPredictions(np.array([0.5, confidence]), np.array([0, 1]), np.array([0, 1])))
    with pytest.raises(DataError, match="row 0 has outcome 2"):
        check_outcomes(np.array([0.5]), np.array([2.0]))
    with pytest.raises(DataError, match="no confidences"):
        check_outcomes(np.array([]), np.array([]))
    with pytest.raises(DataError, match=r"shape \[n\]"):
        check_outcomes(np.array([0.5]), np.array([1.0, 0.0]))


def test_bad_options():
    for call, message in (
        (lambda: metrics.ece(GOOD, LABELS, norm="l3"), "unknown norm 'l3'"),
        (lambda: metrics.ece(GOOD, LABELS, closed="rigth"), "Did you mean 'right'"),
        (lambda: metrics.ece(GOOD, LABELS, bins=0), "bins=0"),
        (lambda: metrics.hcfp(GOOD, LABELS, kind="given_rong"), "Did you mean 'given_wrong'"),
        (lambda: metrics.threshold_for_budget(GOOD, LABELS, kind="x"), "unknown kind"),
        (lambda: metrics.noise_floor(GOOD, norm="x"), "unknown norm"),
        (lambda: metrics.kde_ece(GOOD, LABELS, bandwidth=0.0), "bandwidth=0.0"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()


def test_measure_refuses_unknown_names_and_missing_features():
    given = Predictions(np.log(GOOD), LABELS, ("a", "b"))
    with pytest.raises(ConfigError, match="Did you mean 'torchmetrics'"):
        measure(given, "torchmetric")
    with pytest.raises(ConfigError, match="Did you mean 'kde_ece'"):
        measure(given, also=["kde-ece"])
    with pytest.raises(MissingField, match="image features"):
        measure(given, also=["piece"])


def test_one_row_has_no_kernel_error():
    with pytest.raises(DataError, match="one row"):
        metrics.kde_ece(GOOD[:1], LABELS[:1])
