"""Temperature scaling by NLL and by ECE, the ensemble, the parametrised one and the fixed one."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptcal.calibrators import (
    CalibrationWarning,
    EnsembleTemperature,
    FixedTemperature,
    LogitMLP,
    ParametrisedTemperature,
    TemperatureECE,
    TemperatureScaling,
)
from promptcal.calibrators.temperature import best_temperature
from promptcal.errors import ConfigError, DataError, NumericalError
from promptcal.metrics import brier, ece, nll, nll_from_logits
from promptcal.types import Predictions


def noisy_logits(n, classes, seed, *, noise=2.0):
    """Logits that favour the label without separating it."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, size=n)
    logits = noise * rng.normal(size=(n, classes))
    logits[np.arange(n), labels] += 1.5
    return logits, labels


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.integers(2, 12), factor=st.floats(0.05, 20.0))
def test_t_of_t_scaled_logits_is_t(seed, classes, factor):
    logits, labels = noisy_logits(300, classes, seed)
    plain, scaled = best_temperature(logits, labels), best_temperature(factor * logits, labels)
    if not plain.at_bound and not scaled.at_bound:
        assert scaled.temperature == pytest.approx(factor * plain.temperature, rel=1e-8)
        again = best_temperature(logits / plain.temperature, labels).temperature
        assert again == pytest.approx(1.0, abs=1e-8)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), shift=st.floats(-1e3, 1e3))
def test_t_does_not_see_shifts_or_the_order_of_rows_and_classes(seed, shift):
    logits, labels = noisy_logits(120, 6, seed)
    expected = best_temperature(logits, labels).temperature
    rows, classes = np.random.default_rng(seed).permutation(120), np.random.default_rng(seed).permutation(6)
    moved = (logits + shift)[rows][:, classes]
    found = best_temperature(moved, np.argsort(classes)[labels[rows]]).temperature
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_t_is_the_brute_force_optimum(seed):
    logits, labels = noisy_logits(400, 7, seed)
    grid = np.exp(np.linspace(np.log(0.2), np.log(20), 2001))
    losses = [nll_from_logits(logits / t, labels) for t in grid]
    calibrator = TemperatureScaling().fit(logits, labels)
    assert calibrator.temperature_ == pytest.approx(grid[int(np.argmin(losses))], rel=2e-3)
    assert calibrator.nll_after_ <= min(losses) + 1e-12
    assert calibrator.nll_before_ == pytest.approx(nll_from_logits(logits, labels))


def test_overconfident_logits_get_a_t_above_one(overconfident):
    calibrator = TemperatureScaling().fit(*overconfident)
    low, high = calibrator.interval_
    assert low < 2.5 < high
    assert 1 < low < calibrator.temperature_ < high
    assert f"T = {calibrator.temperature_:.4f} (95 % interval {low:.4f} to {high:.4f})" in calibrator.report()


def test_t_divides_and_logits_stay(val, base):
    calibrator = TemperatureScaling().fit(val)
    found = calibrator.transform(base.replace(temperature=np.full(200, 2.0)))
    assert found.logits is base.logits
    assert found.temperature == pytest.approx(np.full(200, 2.0 * calibrator.temperature_))


def test_interval_covers_the_true_t():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        logits = 2.0 * rng.normal(size=(300, 4))
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        found = best_temperature(1.7 * logits, labels)
        hits += found.low <= 1.7 <= found.high
    assert 0.91 <= hits / 300 <= 0.99  # 95 % within three standard errors


def test_t_is_one_where_nothing_gains():
    constant = TemperatureScaling().fit(np.zeros((5, 3)), np.array([0, 1, 2, 0, 1]))
    assert constant.temperature_ == 1.0
    assert not constant.at_bound_
    one_class = TemperatureScaling().fit(np.ones((5, 1)), np.zeros(5, dtype=int))
    assert one_class.temperature_ == 1.0


@pytest.mark.parametrize(("sign", "bound"), [(1.0, 0.01), (-1.0, 100.0)])
def test_a_bound_is_flagged(sign, bound):
    labels = np.arange(4)
    with pytest.warns(CalibrationWarning, match="at a bound"):
        calibrator = TemperatureScaling().fit(sign * np.eye(4), labels)
    assert calibrator.at_bound_
    assert calibrator.temperature_ == bound
    assert calibrator.nll_after_ < calibrator.nll_before_
    assert "at a bound" in calibrator.report()


def test_bounds_that_make_no_sense_are_refused(val):
    with pytest.raises(ConfigError, match="0 < lowest"):
        TemperatureScaling(lowest=2.0).fit(val)


def test_nll_temperature_agrees_with_netcal(overconfident):
    netcal = pytest.importorskip("netcal.scaling")
    logits, labels = overconfident[0][:1000], overconfident[1][:1000]
    peer = netcal.TemperatureScaling()
    peer.fit(softmax(logits), labels)
    ours = TemperatureScaling().fit(logits, labels)
    theirs = peer.transform(softmax(logits))
    assert np.abs(ours.predict_proba(logits) - theirs).max() < 2e-3  # it stops its optimiser early


def test_ece_grid_is_the_first_minimum_of_the_measured_ece(val):
    calibrator = TemperatureECE().fit(val)
    grid = [step / 10 for step in range(1, 101)]
    errors = [ece(softmax(val.logits.astype(np.float64) / t), val.labels) for t in grid]
    assert calibrator.ece_ == pytest.approx(errors, abs=1e-12)
    assert calibrator.temperature_ == grid[int(np.argmin(errors))]


def test_ece_grid_takes_the_first_of_equals_and_warns_of_its_ends():
    logits, labels = np.zeros((6, 3)), np.array([0, 1, 2, 0, 1, 2])
    with pytest.warns(CalibrationWarning, match="end of the grid"):
        calibrator = TemperatureECE().fit(logits, labels)
    assert calibrator.temperature_ == 0.1
    with pytest.warns(CalibrationWarning, match="end of the grid"):
        assert TemperatureECE().fit(30 * np.eye(2), np.array([1, 0])).temperature_ == 10.0


def test_ensemble_weights_are_the_best_on_the_simplex(overconfident):
    logits, labels = overconfident
    flipped = np.where(np.random.default_rng(1).random(len(labels)) < 0.15, (labels + 1) % 5, labels)
    calibrator = EnsembleTemperature().fit(logits, flipped)
    assert calibrator.weights_.sum() == pytest.approx(1)
    assert (calibrator.weights_ >= 0).all()
    found = nll(calibrator.predict_proba(logits), flipped)
    assert found <= nll(TemperatureScaling().fit(logits, flipped).predict_proba(logits), flipped)
    plain = Predictions(logits, flipped, tuple("abcde"))
    members = [plain.replace(logits=logits / calibrator.temperature_).probs(), plain.probs(), np.full((4000, 5), 0.2)]
    for first in np.linspace(0, 1, 11):
        for second in np.linspace(0, 1 - first, 11):
            mixed = first * members[0] + second * members[1] + (1 - first - second) * members[2]
            assert nll(mixed, flipped) >= found - 1e-6


def test_parametrised_temperature_lowers_its_loss_and_ignores_class_order(overconfident):
    logits, labels = overconfident
    hard = np.where((np.arange(len(labels)) % 2 == 0)[:, None], logits, 4 * logits)
    calibrator = ParametrisedTemperature().fit(hard, labels)
    plain = TemperatureScaling().fit(hard, labels)
    assert brier(calibrator.predict_proba(hard), labels) < brier(plain.predict_proba(hard), labels) - 0.005
    order = [3, 1, 4, 0, 2]
    assert np.allclose(calibrator.predict_proba(hard[:, order]), calibrator.predict_proba(hard)[:, order])
    narrow = calibrator.predict_proba(hard[:, :3])
    assert np.isfinite(narrow).all()
    with pytest.raises(ConfigError, match="top=1"):
        ParametrisedTemperature(top=1).fit(hard, labels)


def test_networks_leave_the_random_state_alone(val):
    import torch

    state = torch.random.get_rng_state()
    first = LogitMLP().fit(val)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(1)
    second = LogitMLP().fit(val)
    torch.random.set_rng_state(state)
    assert all(np.array_equal(first.weights_[key], second.weights_[key]) for key in first.weights_)


def test_logit_mlp_learns_with_enough_epochs(overconfident):
    logits, labels = overconfident
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrator = LogitMLP(epochs=20, batch=256).fit(logits, labels)
    assert nll(calibrator.predict_proba(logits), labels) < nll(
        LogitMLP().fit(logits, labels).predict_proba(logits), labels
    )
    assert nll(calibrator.predict_proba(logits), labels) < nll_from_logits(logits, labels)


def test_fixed_temperature(base):
    assert FixedTemperature().transform(base).temperature == pytest.approx(np.full(200, 1.16))
    with pytest.raises(ConfigError, match="above zero"):
        FixedTemperature(temperature=0.0).transform(base)


def test_a_temperature_that_overflows_is_refused(base):
    with pytest.raises(NumericalError, match="temperature of row 0"):
        FixedTemperature(temperature=1e308).transform(base.replace(temperature=np.full(200, 100.0)))


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (None, "needs labels"),
        (np.array([0, 1]), "shape"),
        (np.full(4, 7), "row 0 has label 7"),
        (np.full(4, 0.5), "whole numbers"),
    ],
)
def test_labels_that_do_not_fit_are_refused(y, words):
    with pytest.raises(DataError, match=words):
        TemperatureScaling().fit(np.eye(4), y)


def test_arrays_that_are_no_logits_are_refused(val):
    with pytest.raises(DataError, match=r"shape \[n, C\]"):
        TemperatureScaling().fit(np.zeros(4), np.zeros(4, dtype=int))
    with pytest.raises(DataError, match="bring their own labels"):
        TemperatureScaling().fit(val, val.labels)
    with pytest.raises(DataError, match="not above zero"):
        TemperatureScaling().fit(val.replace(temperature=np.zeros(240)))
