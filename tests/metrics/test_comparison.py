"""Paired comparisons: right values, exact level on equally good models, Holm's correction, and refusals."""

import numpy as np
import pytest

from promptcal import metrics
from promptcal.errors import DataError
from promptcal.metrics import compare, holm
from promptcal.metrics.contract import TopLabelPredictions
from promptcal.types import Predictions

NAMES = tuple("abcde")


def draw(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    logits = 2.0 * generator.normal(size=(n, 5))
    return logits, (logits + generator.gumbel(size=(n, 5))).argmax(axis=1)


def test_values_and_differences():
    logits, labels = draw(np.random.default_rng(0), 400)
    first, other = Predictions(logits, labels, NAMES), Predictions(3 * logits, labels, NAMES)
    rows = {row.metric: row for row in compare({"first": first, "hot": other}, replicates=400)}
    assert set(rows) == {"accuracy", "ece", "nll", "brier"}
    for name in rows:
        row, function = rows[name], getattr(metrics, name)
        assert row.first_value == pytest.approx(function(first.probs(), labels), abs=1e-9)
        assert row.other_value == pytest.approx(function(other.probs(), labels), abs=1e-9)
        assert row.difference == pytest.approx(row.other_value - row.first_value)
        assert row.low <= row.difference <= row.high
    assert rows["accuracy"].p_value == rows["accuracy"].p_holm == 1.0
    for name in ("ece", "nll", "brier"):
        assert rows[name].p_value == pytest.approx(1 / 401)
        assert rows[name].p_holm == pytest.approx(4 / 401)
        assert rows[name].low > 0


def test_the_same_predictions_do_not_differ():
    logits, labels = draw(np.random.default_rng(1), 50)
    same = Predictions(logits, labels, NAMES)
    for row in compare({"a": same, "b": same}, replicates=50):
        assert (row.difference, row.p_value, row.low, row.high) == (0.0, 1.0, 0.0, 0.0)


def test_the_level_on_equally_good_models():
    generator, repeats = np.random.default_rng(2), 150
    rejected: dict[str, int] = {}
    for repeat in range(repeats):
        logits, labels = draw(generator, 200)
        models = {name: Predictions(logits + 0.5 * generator.normal(size=(200, 5)), labels, NAMES) for name in "ab"}
        for row in compare(models, replicates=99, seed=repeat):
            rejected[row.metric] = rejected.get(row.metric, 0) + (row.p_value <= 0.05)
    slack = 3.5 * np.sqrt(0.05 * 0.95 / repeats)
    for metric, count in rejected.items():
        assert count / repeats <= 0.05 + slack, metric
        assert count / repeats >= (0.0 if metric == "accuracy" else 0.05 - slack), metric


def test_several_files_are_corrected_together():
    logits, labels = draw(np.random.default_rng(3), 200)
    models = {name: Predictions(scale * logits, labels, NAMES) for name, scale in (("a", 1), ("b", 2), ("c", 3))}
    rows = compare(models, replicates=100)
    assert [row.other for row in rows] == ["b"] * 4 + ["c"] * 4
    assert [row.p_holm for row in rows] == pytest.approx(holm(np.array([row.p_value for row in rows])).tolist())


def test_top_labels_compare_accuracy_and_ece():
    labels = np.array([0, 1, 1])
    a = TopLabelPredictions(np.array([0.9, 0.8, 0.7]), np.array([0, 1, 0]), labels)
    b = TopLabelPredictions(np.array([0.6, 0.6, 0.6]), np.array([0, 1, 1]), labels)
    assert [row.metric for row in compare({"a": a, "b": b}, replicates=20)] == ["accuracy", "ece"]


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.5], [0.5]),
        ([0.6, 0.6], [1.0, 1.0]),
        ([0.02, 0.01], [0.02, 0.02]),
    ],
)
def test_holm(p_values: list[float], expected: list[float]):
    assert holm(np.array(p_values)) == pytest.approx(expected)


def test_refusals():
    logits, labels = draw(np.random.default_rng(4), 10)
    given = Predictions(logits, labels, NAMES, paths=tuple(f"{k}.jpg" for k in range(10)))
    other = labels.copy()
    other[3] = (other[3] + 1) % 5
    shuffled = given.replace(paths=tuple(f"{(k + 1) % 10}.jpg" for k in range(10)))
    for models, message in (
        ({"a": given}, "at least two"),
        ({"a": given, "b": Predictions(logits[:9], labels[:9], NAMES)}, "a has 10 rows and b has 9"),
        ({"a": given, "b": Predictions(logits, other, NAMES)}, "row 3 has label"),
        ({"a": given, "b": shuffled}, "row 0 is 0.jpg in a and 1.jpg in b"),
    ):
        with pytest.raises(DataError, match=message):
            compare(models)
