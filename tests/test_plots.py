"""Reliability diagrams: what is drawn is what is computed."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from promptcal import metrics
from promptcal.errors import DataError
from promptcal.metrics.curve import reliability_curve
from promptcal.plots import reliability_diagram, top_label_diagram


def axes():
    return Figure().subplots()


def draw(seed: int = 0, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.full(4, 0.5), n)
    return probs, np.array([generator.choice(4, p=row) for row in probs])


def test_the_printed_ece_is_the_metric():
    probs, labels = draw()
    for bins in (10, 15):
        ax = reliability_diagram(probs, labels, axes(), bins=bins)
        assert f"ECE {metrics.ece(probs, labels, bins=bins):.4f}" in ax.texts[0].get_text()
        assert "n = 300" in ax.texts[0].get_text()


def test_empty_bins_are_blank():
    ax = top_label_diagram(np.array([0.05, 0.95, 0.95]), np.array([0.0, 1.0, 0.0]), axes(), bins=10)
    accuracy, gap = ax.containers
    assert [bar.get_x() + bar.get_width() / 2 for bar in accuracy] == pytest.approx([0.05, 0.95])
    assert [bar.get_height() for bar in accuracy] == [0.0, 0.5]
    assert [bar.get_height() for bar in gap] == pytest.approx([0.05, 0.45])


def test_counts_stand_in_a_strip():
    probs, labels = draw()
    plain, full = reliability_diagram(probs, labels, axes()), reliability_diagram(probs, labels, axes(), counts=True)
    assert not plain.child_axes
    (strip,) = full.child_axes
    assert sum(bar.get_height() for bar in strip.containers[0]) == 300


def test_the_title_is_above_everything():
    probs, labels = draw()
    assert reliability_diagram(probs, labels, axes(), title="T").get_title() == "T"
    assert reliability_diagram(probs, labels, axes(), title="T", counts=True).child_axes[0].get_title() == "T"


def test_any_axes_are_accepted_and_two_diagrams_do_not_mix():
    probs, labels = draw()
    left, right = Figure().subplots(1, 2)
    assert reliability_diagram(probs, labels, left, smooth=True) is left
    assert not right.lines
    reliability_diagram(probs[:50], labels[:50], right)
    assert "n = 50" in right.texts[0].get_text()


@pytest.mark.parametrize(
    ("confidence", "correct"),
    [([0.7], [1.0]), ([1.0, 1.0], [1.0, 0.0]), ([0.0, 1.0], [0.0, 1.0]), ([0.5] * 5, [0.0] * 5)],
)
def test_small_and_saturated_data(confidence: list[float], correct: list[float]):
    ax = top_label_diagram(np.array(confidence), np.array(correct), axes(), counts=True, smooth=True)
    ax.figure.canvas.draw()


def test_the_curve_follows_the_truth_and_its_band_covers_it():
    generator = np.random.default_rng(1)
    confidence = generator.random(4000)
    correct = (generator.random(4000) < confidence**2).astype(float)
    curve = reliability_curve(confidence, correct, replicates=50)
    inside = slice(50, 450)
    assert np.abs(curve.accuracy - curve.confidence**2)[inside].max() < 0.08
    assert (curve.low <= curve.accuracy)[inside].all()
    assert (curve.accuracy <= curve.high)[inside].all()
    narrow = reliability_curve(np.full(100, 0.5), np.arange(100) % 2.0, replicates=5)
    assert np.isnan(narrow.accuracy[0])
    assert narrow.accuracy[250] == pytest.approx(0.5)


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="row 0"):
        reliability_diagram(np.array([[2.0, 1.0]]), np.array([0]), axes())
    with pytest.raises(DataError, match="no confidences"):
        top_label_diagram(np.array([]), np.array([]), axes())
