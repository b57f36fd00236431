"""The fit on held-out rows, and the gate."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from promptcal.calibrators import LogLinear, TemperatureScaling, load_calibrator
from promptcal.errors import ConfigError, DataError
from promptcal.heads.held_out import Episode, Part, fit_held_out, gate, mean_over_classes
from promptcal.types import Predictions


def made(n, classes, split, seed, weight):
    """Rows whose zero-shot range tells their temperature: log s = 0.5 + weight·log(range / zero-shot range)."""
    rng = np.random.default_rng(seed)
    logits = 4.0 * rng.normal(size=(n, len(classes)))
    frozen = logits * np.exp(rng.normal(scale=0.7, size=n))[:, None]
    temperature = np.exp(0.5 + weight * np.log(np.ptp(logits, axis=1) / np.ptp(frozen, axis=1)))
    labels = (logits / temperature[:, None] + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Predictions(logits, labels, classes, zero_shot_logits=frozen, split=split)


def episodes(base_weight, novel_weight, n=150):
    """Four class folds of eight classes: prompts of six, two left out."""
    names = [f"class {index}" for index in range(8)]
    found = []
    for fold in range(4):
        novel = tuple(names[2 * fold : 2 * fold + 2])
        base = tuple(name for name in names if name not in novel)
        rows = made(n, base, "base", fold, base_weight), made(n, novel, "novel", 10 + fold, novel_weight)
        found.append(Episode(*rows))
    return found


@pytest.fixture(scope="module")
def val():
    return made(300, tuple(f"class {index}" for index in range(8)), "val", 99, 0.6)


HEAD = LogLinear(["range"])


def test_a_feature_that_helps_both_sides_passes_the_gate(val, tmp_path):
    head = fit_held_out(HEAD, val, episodes(0.6, 0.6))
    assert head.held_out_["kept"]
    assert head.held_out_["low"] > 0
    assert 0.2 < head.weights_[0] < 0.8
    novel = made(2000, ("a", "b", "c"), "novel", 50, 0.6)
    scaling = TemperatureScaling().fit(val)

    def nll(calibrator):
        return -np.log(calibrator.transform(novel).probs()[np.arange(2000), novel.labels]).mean()

    assert nll(head) < nll(scaling)
    assert "classes left out gain" in head.report()
    head.save(tmp_path / "head.safetensors")
    assert load_calibrator(tmp_path / "head.safetensors").report() == head.report()


def test_a_feature_that_harms_new_classes_is_shut_out(val):
    head = fit_held_out(HEAD, val, episodes(0.6, -0.6))
    assert not head.held_out_["kept"]
    assert "the gate is shut" in head.report()
    novel = made(200, ("a", "b", "c"), "novel", 50, 0.6)
    expected = TemperatureScaling().fit(val).transform(novel)
    assert np.array_equal(head.transform(novel).probs(), expected.probs())
    plain = fit_held_out(HEAD, val, [Episode(episode.base) for episode in episodes(0.6, -0.6)])
    assert plain.weights_[0] > 0.3  # what the images alone would have said


def test_noise_is_shut_out_about_as_often_as_the_level_says(val):
    passed = 0
    for seed in range(10):
        rows = [
            Episode(
                made(60, tuple("abcdef"), "base", 100 * seed + fold, 0.0),
                made(60, (f"x{fold}", f"y{fold}"), "novel", 100 * seed + 50 + fold, 0.0),
            )
            for fold in range(4)
        ]
        passed += fit_held_out(HEAD, val, rows).held_out_["kept"]
    assert passed <= 4  # 1 of 10 is expected; 5 or more have a chance of 0.2 %


def test_the_weights_are_fitted_on_held_out_rows_and_the_temperature_on_val(val):
    hot = val.replace(logits=2.0 * val.logits, zero_shot_logits=2.0 * val.zero_shot_logits)
    once, twice = (fit_held_out(HEAD, rows, episodes(0.6, 0.6)) for rows in (val, hot))
    assert twice.weights_ == pytest.approx(once.weights_, rel=1e-12)
    assert twice.temperature_ == pytest.approx(2.0 * once.temperature_, rel=1e-9)


def test_the_gate_judges_a_class_by_rows_of_other_classes():
    """One class alone gains: without its own rows the head does not know, and the gain is none."""
    parts = []
    for fold, episode in enumerate(episodes(0.0, 0.0)):
        novel = made(400, episode.novel.classes, "novel", 70 + fold, 0.8 if fold == 0 else 0.0)
        base = HEAD.fit(episode.base)
        parts.append(Part(base.rows_of(episode.base, base.reference_), base.rows_of(novel, base.reference_)))
    assert gate(parts, HEAD).gain < 0.005
    assert gate(parts, HEAD).classes == 8


def test_the_bound_is_students_over_classes():
    values = np.array([0.1, 0.3, 0.0, 0.2, 0.4, 0.6])
    names = np.array(["a", "a", "b", "b", "b", "c"])
    mean, low, classes = mean_over_classes(values, names)
    means = [0.2, 0.2, 0.6]
    assert (mean, classes) == (pytest.approx(np.mean(means)), 3)
    assert low == pytest.approx(np.mean(means) - student.ppf(0.9, 2) * np.std(means, ddof=1) / math.sqrt(3))
    assert mean_over_classes(values[:2], names[:2])[1] == -math.inf


def test_what_cannot_be_fitted_is_refused(val):
    with pytest.raises(DataError, match="all of them with novel classes or none"):
        fit_held_out(HEAD, val, [])
    mixed = episodes(0.6, 0.6)
    with pytest.raises(DataError, match="all of them with novel classes or none"):
        fit_held_out(HEAD, val, [mixed[0], Episode(mixed[1].base)])
    with pytest.raises(ConfigError, match="leave its weights out"):
        fit_held_out(LogLinear(["range"], weights=[1.0]), val, mixed)
