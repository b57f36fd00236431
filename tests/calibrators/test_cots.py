"""CoTS: tuned predictions as confident as frozen ones, without labels."""

import numpy as np
import pytest
from scipy.special import softmax

from promptcal.calibrators import CalibrationWarning, build_calibrator
from promptcal.calibrators.cots import CoTS, CoTSOnValidation
from promptcal.errors import ConfigError
from promptcal.types import Predictions


def confidence(logits, temperature=1.0):
    return softmax(logits.astype(np.float64) / temperature, axis=1).max(axis=1)


def objective(predictions, temperature):
    aim = confidence(predictions.zero_shot_logits)
    return ((confidence(predictions.logits, temperature) - aim) ** 2).mean()


def test_no_other_temperature_is_closer_to_the_zero_shot_confidence(novel):
    moved = CoTS().transform(novel)
    found = moved.temperature[0]
    assert np.array_equal(moved.temperature, np.full(len(novel.labels), found))
    least = objective(novel, found)
    assert all(objective(novel, other) >= least - 1e-15 for other in np.geomspace(0.01, 100, 2001))
    assert least < objective(novel, 1.0)


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_a_tuned_model_that_is_the_frozen_one_times_a_factor_gets_that_factor_back(novel, factor):
    scaled = novel.replace(logits=factor * novel.zero_shot_logits.astype(np.float64))
    assert CoTS().transform(scaled).temperature == pytest.approx(np.full(len(novel.labels), factor), rel=1e-6)


def test_labels_are_never_read(val, novel):
    other = novel.replace(labels=(novel.labels + 1) % 4)
    assert np.array_equal(CoTS().transform(other).probs(), CoTS().transform(novel).probs())
    shuffled = val.replace(labels=val.labels[::-1].copy())
    assert CoTSOnValidation().fit(val).temperature_ == CoTSOnValidation().fit(shuffled).temperature_


def test_a_temperature_for_each_row_gives_the_zero_shot_confidence(base):
    moved = CoTS(per="row").transform(base)
    assert moved.probs().max(axis=1) == pytest.approx(confidence(base.zero_shot_logits), abs=1e-9)
    assert np.array_equal(moved.probs().argmax(axis=1), base.probs().argmax(axis=1))


def test_the_temperature_of_validation_is_used_as_it_is(val, novel):
    fitted = CoTSOnValidation().fit(val)
    assert fitted.temperature_ == CoTS().transform(val).temperature[0]
    assert np.array_equal(fitted.transform(novel).temperature, np.full(len(novel.labels), fitted.temperature_))
    assert "without labels" in fitted.report()


def test_it_starts_from_what_earlier_steps_left(val, novel):
    chain = build_calibrator("fixed_temperature+cots").fit(val)
    assert chain.reads_other_rows
    assert chain.learns_from == "classes"
    chained = chain.transform(novel)
    assert chained.temperature == pytest.approx(CoTS().transform(novel).temperature, rel=1e-6)


def test_bounds_and_unknown_words_are_told():
    flat = Predictions(
        logits=np.array([[1.0, 0.0], [2.0, 0.0]]),
        labels=np.array([0, 0]),
        classes=("a", "b"),
        zero_shot_logits=np.zeros((2, 2)),
    )
    with pytest.warns(CalibrationWarning, match="bound 100"):
        assert CoTS().transform(flat).temperature[0] == pytest.approx(100)
    with pytest.raises(ConfigError, match="Did you mean 'split'"):
        CoTS(per="splits").transform(flat)
