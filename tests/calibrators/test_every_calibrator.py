"""What holds for every registered calibrator, whatever it does."""

import warnings
from dataclasses import fields

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from promptcal.calibrators import Calibrator, InSampleWarning, build_calibrator, load_calibrator
from promptcal.config import options
from promptcal.errors import DataError, MissingField, NotFitted
from promptcal.metrics.base_novel import take

QUICK = {"sats": {"epochs": 2, "hidden": [32, 16]}, "calattn": {"steps": 5}}
"""Parameters that shorten a training; the others run with their defaults."""


def make(name):
    return build_calibrator(name, QUICK.get(name))


@pytest.fixture(scope="module")
def fitted(val):
    """Every calibrator fitted once on base validation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: make(name).fit(val) for name in options("calibrator")}


@pytest.fixture(params=options("calibrator"))
def name(request):
    return request.param


@pytest.fixture
def calibrator(fitted, name):
    return fitted[name]


def splits_of(calibrator, base, novel):
    return [base, novel] if calibrator.transfers_to_new_classes else [base]


def test_says_who_it_is(name, calibrator):
    assert isinstance(calibrator, Calibrator)
    assert type(calibrator).name == name
    assert type(calibrator).__doc__


def test_fit_returns_self_and_records_what_it_was_fitted_on(name, val):
    calibrator = make(name)
    assert calibrator.fit(val) is calibrator
    assert calibrator.n_fit_ == 240
    assert tuple(calibrator.classes_) == val.classes
    assert calibrator.fit_split_ == "val"
    if calibrator.learns_from == "rows":
        assert "240 rows of val" in calibrator.report()


def test_unfitted_transform_is_refused_unless_there_is_nothing_to_learn(name, base):
    calibrator = make(name)
    if calibrator.learns_from == "nothing":
        assert np.array_equal(calibrator.transform(base).probs(), make(name).fit(base).transform(base).probs())
    else:
        with pytest.raises(NotFitted, match=name):
            calibrator.transform(base)
        with pytest.raises(NotFitted, match=name):
            calibrator.predict_proba(base)


def test_input_is_never_changed(calibrator, base):
    before = {field.name: getattr(base, field.name) for field in fields(base)}
    copies = {key: value.copy() for key, value in before.items() if isinstance(value, np.ndarray)}
    calibrator.transform(base)
    for key, value in before.items():
        assert getattr(base, key) is value
    for key, copy in copies.items():
        assert np.array_equal(before[key], copy)


def test_rows_are_probabilities(calibrator, base, novel):
    for split in splits_of(calibrator, base, novel):
        probs = calibrator.transform(split).probs()
        assert probs.dtype == np.float64
        assert np.isfinite(probs).all()
        assert (probs >= 0).all()
        assert np.abs(probs.sum(axis=1) - 1).max() < 1e-12


def test_argmax_is_kept_where_declared(calibrator, base, novel):
    if calibrator.keeps_argmax:
        for split in splits_of(calibrator, base, novel):
            assert np.array_equal(calibrator.transform(split).probs().argmax(axis=1), split.probs().argmax(axis=1))


def test_strange_classes_are_refused_where_class_tied(calibrator, base, novel):
    shuffled = base.replace(classes=base.classes[::-1])
    if calibrator.transfers_to_new_classes:
        calibrator.transform(novel)
    else:
        with pytest.raises(DataError, match="'class 8' is not one of them"):
            calibrator.transform(novel)
        with pytest.raises(DataError, match="another order"):
            calibrator.transform(shuffled)


def test_save_and_load_give_identical_output(calibrator, base, novel, tmp_path):
    calibrator.save(tmp_path / "calibrator.safetensors")
    loaded = load_calibrator(tmp_path / "calibrator.safetensors")
    assert type(loaded) is type(calibrator)
    assert loaded.report() == calibrator.report()
    for split in splits_of(calibrator, base, novel):
        assert np.array_equal(loaded.transform(split).probs(), calibrator.transform(split).probs())
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "calibrator.safetensors").read_bytes()


def test_clone_is_unfitted_and_alike(calibrator):
    copy = clone(calibrator)
    assert copy.get_params(deep=False) == calibrator.get_params(deep=False)
    assert not hasattr(copy, "n_fit_")


def test_rows_do_not_depend_on_each_other(calibrator, base):
    if calibrator.reads_other_rows:
        pytest.skip("it says that it reads the other rows")
    rows = np.arange(0, 200, 3)
    whole = calibrator.transform(base).probs()[rows]
    assert np.allclose(calibrator.transform(take(base, rows)).probs(), whole, rtol=1e-5, atol=1e-8)


def test_missing_fields_are_named(calibrator, base):
    for field in calibrator.needs:
        with pytest.raises(MissingField, match=field):
            calibrator.transform(base.replace(**{field: None}))
        with pytest.raises(MissingField, match=field):
            clone(calibrator).fit(base.replace(**{field: None}))


def test_nan_and_no_rows_are_refused(calibrator, base):
    logits = base.logits.copy()
    logits[7, 2] = np.nan
    empty = take(base, np.arange(0))
    for split, words in ((base.replace(logits=logits), "row 7 of logits of base"), (empty, "no rows")):
        if calibrator.name != "none" or split is empty:
            with pytest.raises(DataError, match=words):
                clone(calibrator).fit(split)
        if calibrator.name != "none":
            with pytest.raises(DataError, match=words):
                calibrator.transform(split)


def test_in_sample_rows_are_flagged(calibrator, val, base):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrator.transform(base)
    if calibrator.learns_from == "rows":
        assert calibrator.rows_seen(val) == 240
        with pytest.warns(InSampleWarning, match="240 of these 240 rows"):
            calibrator.transform(val)
    else:
        assert calibrator.rows_seen(val) == 0


def test_names_are_appended(calibrator, base):
    marked = base.replace(transformed_by=("before",))
    names = {"none": (), "chain": ("dac", "temperature")}.get(calibrator.name, (calibrator.name,))
    assert calibrator.transform(marked).transformed_by == ("before", *names)


def test_starts_from_what_the_predictions_stand_for(calibrator, base):
    """An earlier temperature, or the same probabilities set by an earlier map, lead to the same result."""
    rng = np.random.default_rng(5)
    temperature = rng.uniform(0.5, 2.0, size=200)
    divided = base.replace(temperature=temperature)
    replaced = base.replace(logits=base.logits.astype(np.float64) / temperature[:, None])
    expected = calibrator.transform(replaced).probs()
    assert np.allclose(calibrator.transform(divided).probs(), expected, rtol=1e-6, atol=1e-12)
    if calibrator.name not in {"logit_mlp", "vector", "matrix"}:  # which see a shift of all logits of a row
        mapped = base.replace(logits=np.zeros_like(base.logits), probabilities=base.probs())
        plain = calibrator.transform(base).probs()
        assert np.allclose(calibrator.transform(mapped).probs(), plain, rtol=1e-5, atol=1e-9)


def test_is_a_scikit_learn_estimator(name, overconfident):
    logits, labels = overconfident[0][:400], overconfident[1][:400]
    calibrator = make(name)
    if calibrator.needs:
        with pytest.raises(MissingField):
            calibrator.fit(logits, labels)
        return
    pipeline = make_pipeline(FunctionTransformer(np.negative), FunctionTransformer(np.negative), calibrator)
    pipeline.fit(logits, labels)
    fresh = overconfident[0][400:420]
    probs = pipeline.predict_proba(fresh)
    assert np.allclose(probs.sum(axis=1), 1)
    assert np.array_equal(pipeline.predict(fresh), probs.argmax(axis=1))
    assert calibrator.score(logits, labels) == pytest.approx((pipeline.predict(logits) == labels).mean())
    assert np.array_equal(calibrator.classes_, np.arange(5))
    assert np.allclose(np.exp(calibrator.transform(fresh)), probs)


def test_cross_validation_scores_and_searches_parameters(overconfident):
    logits, labels = overconfident[0][:600], overconfident[1][:600]
    before = cross_val_score(build_calibrator("none"), logits, labels, scoring="neg_log_loss")
    after = cross_val_score(build_calibrator("temperature"), logits, labels, scoring="neg_log_loss")
    assert after.mean() > before.mean() + 0.1
    search = GridSearchCV(build_calibrator("histogram"), {"bins": [2, 15]}, scoring="neg_brier_score").fit(
        logits, labels
    )
    assert search.best_estimator_.bins in {2, 15}
    binary = cross_val_score(build_calibrator("temperature"), logits[:, :2], labels % 2, scoring="roc_auc")
    assert np.isfinite(binary).all()
