"""Base and novel numbers read together, and the joint softmax split by the true class's group."""

import math

import numpy as np
import pytest

from promptcal import metrics
from promptcal.errors import DataError
from promptcal.metrics import harmonic_mean, joint, measure, pair, proximity
from promptcal.types import Predictions


def draw(seed: int, n: int, classes: str) -> Predictions:
    generator = np.random.default_rng(seed)
    logits = 3 * generator.normal(size=(n, len(classes)))
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    paths = tuple(f"{k}.jpg" for k in range(n))
    return Predictions(logits, labels, tuple(classes), paths=paths, temperature=np.full(n, 1.5))


def test_harmonic_mean():
    assert harmonic_mean(0.82, 0.63) == pytest.approx(2 / (1 / 0.82 + 1 / 0.63))
    assert harmonic_mean(0.0, 0.5) == harmonic_mean(0.0, 0.0) == 0.0
    for bad in (-0.1, float("nan")):
        with pytest.raises(DataError, match="at least 0"):
            harmonic_mean(bad, 0.5)


def test_pair():
    base, novel = measure(draw(0, 80, "abc")), measure(draw(1, 50, "de"))
    rows = {(row.metric, row.bins): row for row in pair(base, novel)}
    first = {(row.metric, row.bins): row.value for row in base}
    second = {(row.metric, row.bins): row.value for row in novel}
    for bins in (10, 15, 20):
        assert rows["ece_worst", bins].value == max(first["ece", bins], second["ece", bins])
        assert rows["ece_novel_minus_base", bins].value == second["ece", bins] - first["ece", bins]
    accuracies = first["accuracy", None], second["accuracy", None]
    assert rows["accuracy_worst", None].value == min(accuracies)
    assert rows["accuracy_harmonic_mean", None].value == harmonic_mean(*accuracies)
    gaps = first["signed_gap", None], second["signed_gap", None]
    assert rows["signed_gap_worst", None].value == max(gaps, key=abs)
    assert rows["ece_worst", 15].n == 130
    assert {row.noise_floor for row in rows.values()} == {None}


def test_pair_leaves_out_what_one_side_lacks():
    certain = Predictions(np.array([[50.0, 0.0]]), np.array([0]), ("a", "b"))
    names = [row.metric for row in pair(measure(certain), measure(draw(2, 30, "ab")))]
    assert "auroc_worst" not in names
    assert "ece_worst" in names


def test_joint_softmax_is_split_by_the_true_class():
    given = draw(3, 120, "abcde")
    found = joint(given, ["a", "b", "c"])
    base = np.isin(given.labels, [0, 1, 2])
    probs = given.probs()
    for name, chosen in (("all", np.ones(120, bool)), ("base", base), ("novel", ~base)):
        rows = {(row.metric, row.bins): row for row in found[name]}
        assert rows["accuracy", None].n == chosen.sum()
        expected = metrics.ece(probs[chosen], given.labels[chosen])
        assert rows["ece", 15].value == pytest.approx(expected, abs=1e-12)
        assert rows["nll", None].value == pytest.approx(metrics.nll(probs[chosen], given.labels[chosen]), abs=1e-9)
    assert set(joint(given, list("abcde"))) == {"all", "base"}
    with pytest.raises(DataError, match="base class 'z'"):
        joint(given, ["a", "z"])


def test_proximity():
    features = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    assert proximity(features, neighbours=1) == pytest.approx(np.exp([-1.0, -1.0, -2.0]))
    assert proximity(features) == pytest.approx(np.exp([-2.0, -1.5, -2.5])), "fewer than ten others are all used"
    assert proximity(features, features[:1], neighbours=5) == pytest.approx(np.exp([0.0, -1.0, -3.0]))
    with pytest.raises(DataError, match="at least one other"):
        proximity(features[:1])


def test_proximity_is_the_mean_distance_to_the_nearest_others():
    generator = np.random.default_rng(0)
    features, reference = generator.normal(size=(40, 16)), generator.normal(size=(60, 16))
    found, own = proximity(features, reference, neighbours=7), proximity(reference, neighbours=7)
    for row in (0, 11, 39):
        distances = sorted(math.dist(features[row], other) for other in reference)
        assert found[row] == pytest.approx(math.exp(-sum(distances[:7]) / 7))
        others = sorted(math.dist(reference[row], other) for index, other in enumerate(reference) if index != row)
        assert own[row] == pytest.approx(math.exp(-sum(others[:7]) / 7))
    with pytest.raises(DataError, match="features have 3 numbers, those to compare with 16"):
        proximity(features[:, :3], reference)


def test_piece_by_hand():
    probs = np.array([[0.8, 0.2]] * 4)
    labels = np.array([0, 0, 1, 1])
    near = np.array([0.9, 0.8, 0.2, 0.1])
    assert metrics.piece(probs, labels, near, groups=2) == pytest.approx(0.5 * 0.2 + 0.5 * 0.8)
    assert metrics.ece(probs, labels) == pytest.approx(0.3)
    with pytest.raises(DataError, match="finite proximities"):
        metrics.piece(probs, labels, np.array([0.9, np.nan, 0.2, 0.1]))


def test_piece_on_request_uses_the_features_themselves():
    given = draw(4, 40, "abc")
    features = np.random.default_rng(4).normal(size=(40, 6))
    rows = {row.metric: row for row in measure(given.replace(image_features=features), also=["piece"])}
    assert rows["piece"].value == pytest.approx(metrics.piece(given.probs(), given.labels, proximity(features)))
    assert rows["piece"].bins == 10
