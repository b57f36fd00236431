"""Vector, matrix and Dirichlet scaling; histogram, isotonic and spline calibration."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from promptcal.calibrators import (
    CalibrationWarning,
    Dirichlet,
    Histogram,
    Isotonic,
    MatrixScaling,
    MultiIsotonic,
    Spline,
    TemperatureScaling,
    VectorScaling,
)
from promptcal.calibrators.affine import PENALTIES, Affine, fit_diagonal, fit_full
from promptcal.calibrators.monotone import evaluate_monotone, fit_monotone
from promptcal.errors import ConfigError
from promptcal.metrics import ece, nll, nll_from_logits


def penalised(affine, logits, labels, penalty):
    off = affine.weight[~np.eye(len(affine.weight), dtype=bool)]
    return nll_from_logits(affine(logits), labels) + penalty * ((off**2).mean() + (affine.bias**2).mean())


@pytest.mark.parametrize("penalty", [0.0, 0.1, 10.0])
def test_no_nearby_affine_map_has_a_lower_loss(overconfident, penalty):
    logits, labels = overconfident
    found = fit_full(logits, labels, penalty)
    lowest = penalised(found, logits, labels, penalty)
    rng = np.random.default_rng(0)
    for _ in range(50):
        step = Affine(0.02 * rng.normal(size=(5, 5)), 0.02 * rng.normal(size=5))
        other = Affine(found.weight + step.weight, found.bias + step.bias)
        assert penalised(other, logits, labels, penalty) > lowest - 1e-9


def test_vector_scaling_is_an_optimum_and_beats_temperature(overconfident):
    logits, labels = overconfident
    biased = logits * [1.0, 0.5, 2.0, 1.0, 1.0] + [0.0, 3.0, 0.0, -2.0, 0.0]
    found = fit_diagonal(biased, labels)
    lowest = nll_from_logits(found(biased), labels)
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = Affine(found.weight + 0.02 * rng.normal(size=5), found.bias + 0.02 * rng.normal(size=5))
        assert nll_from_logits(other(biased), labels) > lowest - 1e-9
    calibrator = VectorScaling().fit(biased, labels)
    assert nll(calibrator.predict_proba(biased), labels) == pytest.approx(lowest)
    assert lowest < TemperatureScaling().fit(biased, labels).nll_after_ - 0.05
    assert calibrator.weight_ * [1.0, 0.5, 2.0, 1.0, 1.0] == pytest.approx(np.full(5, 0.4), abs=0.05)


def test_matrix_scaling_without_penalty_is_logistic_regression(overconfident):
    linear_model = pytest.importorskip("sklearn.linear_model")
    logits, labels = overconfident[0][:1500], overconfident[1][:1500]
    peer = linear_model.LogisticRegression(C=np.inf, tol=1e-8, max_iter=5000).fit(logits, labels)
    ours = MatrixScaling(penalty=0.0).fit(logits, labels)
    assert np.abs(ours.predict_proba(logits) - peer.predict_proba(logits)).max() < 1e-3


def test_a_large_penalty_leaves_the_diagonal_alone_to_move(overconfident):
    calibrator = MatrixScaling(penalty=1e6).fit(*overconfident)
    off = calibrator.weight_[~np.eye(5, dtype=bool)]
    assert np.abs(off).max() < 1e-3
    assert np.abs(calibrator.bias_).max() < 1e-3
    assert np.diag(calibrator.weight_) == pytest.approx(np.full(5, 0.4), abs=0.05)


def test_the_penalty_is_chosen_by_cross_validation(overconfident, val):
    assert MatrixScaling().fit(*overconfident).penalty_ in PENALTIES
    assert MatrixScaling(penalty=3.0).fit(val).penalty_ == 3.0
    few = val.replace(logits=val.logits[:2], labels=val.labels[:2], zero_shot_logits=None, image_features=None)
    assert Dirichlet().fit(few).penalty_ == PENALTIES[0]


def test_dirichlet_is_matrix_scaling_of_log_probabilities(overconfident):
    logits, labels = overconfident
    dirichlet = Dirichlet(penalty=1.0).fit(logits + 7.0, labels)
    matrix = MatrixScaling(penalty=1.0).fit(log_softmax(logits, axis=1), labels)
    expected = matrix.predict_proba(log_softmax(logits, axis=1))
    assert np.abs(dirichlet.predict_proba(logits + 7.0) - expected).max() < 1e-5


def test_an_affine_map_that_does_not_converge_says_so(monkeypatch, overconfident):
    monkeypatch.setattr("promptcal.calibrators.affine.MOST_STEPS", 2)
    with pytest.warns(CalibrationWarning, match="still improving after 2 steps"):
        MatrixScaling(penalty=0.0).fit(*overconfident)


def test_histogram_agrees_with_netcal(overconfident):
    netcal = pytest.importorskip("netcal.binning")
    logits, labels = overconfident
    probs = softmax(logits, axis=1)
    peer = netcal.HistogramBinning(bins=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.fit(probs[:3000], labels[:3000])
        theirs = peer.transform(probs[3000:])
    ours = Histogram(bins=10).fit(logits[:3000], labels[:3000]).predict_proba(logits[3000:])
    assert np.abs(ours - theirs).max() < 1e-9


def test_histogram_answers_with_the_share_of_its_bin():
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.3, 0.7]])
    calibrator = Histogram(bins=2).fit(np.log(probs), np.array([0, 1, 0, 1]))
    assert calibrator.frequency_ == pytest.approx(np.array([[0.0, 2 / 3], [1 / 3, 1.0]]))
    assert calibrator.predict_proba(np.log(probs[:1])) == pytest.approx(np.array([[2 / 3, 1 / 3]]))


def test_a_row_of_zeros_keeps_its_probabilities():
    probs = np.array([[0.6, 0.3, 0.1], [0.3, 0.6, 0.1]])
    fresh = np.log(np.array([[0.3, 0.3, 0.4], [0.6, 0.3, 0.1]]))
    calibrator = Isotonic().fit(np.log(probs), np.array([2, 2]))
    calibrator.knots_ = {**calibrator.knots_, "outputs": np.zeros_like(calibrator.knots_["outputs"])}
    assert np.allclose(calibrator.predict_proba(fresh), np.exp(fresh))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6), n=st.integers(1, 60), columns=st.integers(1, 5), levels=st.sampled_from([3, 10, 10**9])
)
def test_monotone_columns_agree_with_scikit_learn(seed, n, columns, levels):
    isotonic = pytest.importorskip("sklearn.isotonic")
    rng = np.random.default_rng(seed)
    inputs = np.round(rng.random((n, columns)) * levels) / levels
    targets = (rng.random((n, columns)) < inputs).astype(np.float64)
    at = np.r_[rng.random((20, columns)), inputs[:5], np.zeros((1, columns)), np.ones((1, columns))]
    ours = evaluate_monotone(fit_monotone(inputs, targets), at)
    for column in range(columns):
        peer = isotonic.IsotonicRegression(out_of_bounds="clip").fit(inputs[:, column], targets[:, column])
        assert np.abs(ours[:, column] - peer.predict(at[:, column])).max() < 1e-9


def test_isotonic_and_multi_isotonic_agree_with_scikit_learn(overconfident):
    isotonic = pytest.importorskip("sklearn.isotonic")
    logits, labels = overconfident
    probs, truth = softmax(logits, axis=1), np.eye(5)[labels]
    fit, fresh = slice(0, 3000), slice(3000, None)
    columns = [
        isotonic.IsotonicRegression(out_of_bounds="clip").fit(probs[fit, k], truth[fit, k]).predict(probs[fresh, k])
        for k in range(5)
    ]
    expected = np.stack(columns, axis=1)
    ours = Isotonic().fit(logits[fit], labels[fit]).predict_proba(logits[fresh])
    assert np.abs(ours - expected / expected.sum(axis=1, keepdims=True)).max() < 1e-9
    both = isotonic.IsotonicRegression(out_of_bounds="clip").fit(probs[fit].ravel(), truth[fit].ravel())
    expected = both.predict(probs[fresh].ravel()).reshape(-1, 5) + 1e-9 * probs[fresh]
    ours = MultiIsotonic().fit(logits[fit], labels[fit]).predict_proba(logits[fresh])
    assert np.abs(ours - expected / expected.sum(axis=1, keepdims=True)).max() < 1e-9


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), decimals=st.integers(1, 8))
def test_multi_isotonic_keeps_the_class_of_near_ties(seed, decimals):
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=(60, 4)), decimals)
    logits[:, 1] = logits[:, 0] + rng.choice([-1, 0, 1], size=60) * 10.0**-decimals
    calibrator = MultiIsotonic().fit(logits, rng.integers(0, 4, size=60))
    assert np.array_equal(calibrator.predict(logits), softmax(logits, axis=1).argmax(axis=1))


def test_spline_straightens_an_overconfident_top_label(overconfident):
    logits, labels = overconfident
    calibrator = Spline().fit(logits[:3000], labels[:3000])
    before, after = softmax(logits[3000:], axis=1), calibrator.predict_proba(logits[3000:])
    assert ece(before, labels[3000:]) > 0.15
    assert ece(after, labels[3000:]) < 0.05
    assert (calibrator.calibrated_ >= 0).all()
    assert (calibrator.calibrated_ <= 1).all()


def test_spline_does_not_see_the_order_of_rows_and_shares_the_rest(overconfident):
    logits, labels = np.round(overconfident[0][:300], 1), overconfident[1][:300]
    calibrator = Spline().fit(logits, labels)
    rows = np.random.default_rng(0).permutation(300)
    other = Spline().fit(logits[rows], labels[rows])
    assert np.allclose(other.calibrated_, calibrator.calibrated_)
    before, after = softmax(logits, axis=1), calibrator.predict_proba(logits)
    top = before.argmax(axis=1)
    rest = np.arange(5)[None] != top[:, None]
    shares = (before * rest) / (before * rest).sum(axis=1, keepdims=True)
    got = (after * rest) / (after * rest).sum(axis=1, keepdims=True)
    moved = (after * rest).sum(axis=1) > 1e-6
    assert np.allclose(got[moved], shares[moved])
    with pytest.raises(ConfigError, match="at least two"):
        Spline(knots=1).fit(logits, labels)


def test_one_class_has_probability_one():
    logits, labels = np.arange(5.0)[:, None], np.zeros(5, dtype=int)
    for calibrator in (Spline(), Histogram(), Isotonic(), MultiIsotonic(), VectorScaling(), MatrixScaling()):
        assert np.array_equal(calibrator.fit(logits, labels).predict_proba(logits), np.ones((5, 1)))
