"""Calibrators by name, by node, in chains, and on disk."""

import numpy as np
import pytest

from promptcal.calibrators import (
    DAC,
    Chain,
    Histogram,
    InSampleWarning,
    TemperatureScaling,
    build_calibrator,
    fit_for,
    load_calibrator,
)
from promptcal.calibrators.contract import row_keys
from promptcal.config import build
from promptcal.errors import ConfigError, DataError
from promptcal.storage import save_tensors


def test_a_name_is_built_with_its_defaults_and_what_differs():
    assert build_calibrator("histogram").get_params() == {"bins": 15}
    assert build_calibrator("histogram", {"bins": 4}).get_params() == {"bins": 4}
    with pytest.raises(ConfigError, match="Did you mean 'temperature'"):
        build_calibrator("temprature")
    with pytest.raises(ConfigError, match=r"key of .*Histogram"):
        build_calibrator("histogram", {"bin": 4})


def test_a_node_or_an_object_is_built_too(val):
    node = {"_target_": "promptcal.calibrators.histogram.Histogram", "bins": 3}
    assert build_calibrator(node).bins == build(node).bins == 3
    fitted = Histogram(bins=3).fit(val)
    copy = build_calibrator(fitted)
    assert copy.bins == 3
    assert not hasattr(copy, "n_fit_")
    with pytest.raises(ConfigError, match="is not a calibrator"):
        build_calibrator({"_target_": "promptcal.errors.nearest", "name": "a", "known": ["a"]})


def test_a_calibrator_is_fitted_on_what_it_learns_from(val, base, novel):
    assert fit_for("temperature", {"base": base, "val": val, "novel": novel}).fit_split_ == "val"
    assert fit_for("route", {"base": base, "val": val}).fit_split_ == "val"
    assert fit_for("route", {"base": base, "novel": novel}).fit_split_ == "base"
    assert not hasattr(fit_for("mix", {"val": val}), "n_fit_")
    assert np.array_equal(fit_for("none", {}).transform(base).probs(), base.probs())


@pytest.mark.parametrize(("name", "splits"), [("temperature", ["base", "novel"]), ("route", ["novel"])])
def test_a_calibrator_without_anything_to_learn_from_is_refused(name, splits, base, novel):
    everything = {split: one for split, one in (("base", base), ("novel", novel)) if split in splits}
    with pytest.raises(DataError, match=f"the calibrator '{name}' is fitted on validation images"):
        fit_for(name, everything)


def test_names_joined_by_plus_are_a_chain(val, novel):
    chain = build_calibrator("dac + temperature").fit(val)
    dac = DAC().fit(val)
    temperature = TemperatureScaling().fit(dac.apply(val))
    expected = temperature.transform(dac.transform(novel))
    found = chain.transform(novel)
    assert np.array_equal(found.probs(), expected.probs())
    assert found.transformed_by == expected.transformed_by == ("dac", "temperature")
    assert chain.needs == dac.needs


def test_each_step_is_fitted_on_what_the_steps_before_it_make(val, base):
    chain = Chain(["multi_isotonic", TemperatureScaling()]).fit(val)
    first = build_calibrator("multi_isotonic").fit(val)
    second = TemperatureScaling().fit(first.apply(val))
    assert chain.steps_[1].temperature_ == second.temperature_
    assert np.array_equal(chain.transform(base).probs(), second.apply(first.apply(base)).probs())
    assert "multi_isotonic" in chain.report()
    assert "T = " in chain.report()


def test_a_chain_is_what_its_steps_are():
    assert Chain(["temperature", "multi_isotonic"]).keeps_argmax
    assert not Chain(["temperature", "vector"]).keeps_argmax
    assert not Chain(["temperature", "vector"]).transfers_to_new_classes
    assert (Chain(["dac", "none"]).learns_from, Chain().learns_from) == ("classes", "rows")
    with pytest.raises(ConfigError, match="at least one step"):
        Chain([]).keeps_argmax  # noqa: B018


def test_only_seen_rows_are_counted(val, base):
    calibrator = TemperatureScaling().fit(val)
    mixed = base.replace(logits=np.concatenate([val.logits[:7], base.logits[7:]]))
    assert calibrator.rows_seen(mixed) == 7
    with pytest.warns(InSampleWarning, match="7 of these 200 rows"):
        calibrator.transform(mixed)


def test_row_keys_tell_rows_apart():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 3)).astype(np.float32)
    from promptcal.types import Predictions

    keys = row_keys(Predictions(logits, np.zeros(20_000, dtype=np.int64), ("a", "b", "c")))
    assert len(np.unique(keys)) == len(np.unique(logits, axis=0))
    swapped = Predictions(logits[:, [1, 0, 2]], np.zeros(20_000, dtype=np.int64), ("a", "b", "c"))
    assert not np.isin(row_keys(swapped), keys).any()


def test_files_that_hold_no_calibrator_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        load_calibrator(tmp_path / "missing.safetensors")
    save_tensors(tmp_path / "other.safetensors", {"x": np.zeros(2)}, {"classes": []})
    with pytest.raises(DataError, match="holds no calibrator"):
        load_calibrator(tmp_path / "other.safetensors")
    save_tensors(tmp_path / "list.safetensors", {}, {"calibrator": [1]})
    with pytest.raises(DataError, match="holds no calibrator"):
        load_calibrator(tmp_path / "list.safetensors")
    unknown = {"name": "of_a_plugin", "parameters": {}, "learned": {}}
    save_tensors(tmp_path / "plugin.safetensors", {}, {"calibrator": unknown})
    with pytest.raises(ConfigError, match="unknown calibrator 'of_a_plugin'"):
        load_calibrator(tmp_path / "plugin.safetensors")


def test_nested_calibrators_are_saved_with_their_parameters(val, novel, tmp_path):
    inner = {"_target_": "promptcal.calibrators.temperature.TemperatureScaling", "highest": 50.0}
    chain = Chain([Chain(["dac", inner]), build_calibrator("mix", {"weight": 0.25}), "multi_isotonic"]).fit(val)
    chain.save(tmp_path / "chain.safetensors")
    loaded = load_calibrator(tmp_path / "chain.safetensors")
    assert np.array_equal(loaded.transform(novel).probs(), chain.transform(novel).probs())
    assert loaded.steps_[0].steps_[1].highest == 50.0
    assert loaded.steps_[1].weight == 0.25
    assert loaded.report() == chain.report()
    assert loaded.fit(val).transform(novel).transformed_by == ("dac", "temperature", "mix", "multi_isotonic")
