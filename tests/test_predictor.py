"""A finished run classifies images: from files, PIL and arrays alike, calibrated, with names."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from promptcal import experiment
from promptcal.cli import main
from promptcal.config import compose
from promptcal.data import load_task
from promptcal.errors import ConfigError, DataError
from promptcal.predictor import load


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("predictor")
    words = ["method=coop", "training.epochs=2", "features.views=1", "shots=4", "system.threads=1"]
    return experiment.run(compose([*words, f"runs={place}/runs", f"system.cache={place}/cache"]), quiet=True)


@pytest.fixture(scope="module")
def picture(run):
    task = load_task(run.config.dataset, None)
    stored = run.predictions("base")
    return task.images.open(stored.paths[0])


def test_a_picture_gets_the_probabilities_that_the_run_stored(run, picture):
    predictor = load(run.path, calibrator="none")
    stored = run.predictions("base")
    np.testing.assert_allclose(predictor.predict_proba([picture])[0], stored.probs()[0], atol=1e-6)
    assert predictor.classes == stored.classes


def test_files_pictures_and_arrays_agree(run, picture, tmp_path):
    predictor = load(run.path)
    picture.save(tmp_path / "digit.png")
    array = np.asarray(picture.convert("RGB"))
    kinds = [tmp_path / "digit.png", str(tmp_path / "digit.png"), picture, array, array / 255]
    probs = predictor.predict_proba(kinds)
    np.testing.assert_allclose(probs, np.tile(probs[:1], (5, 1)), atol=1e-6)
    np.testing.assert_allclose(probs.sum(axis=1), 1)


def test_the_runs_calibrator_is_temperature_scaling(run, picture):
    calibrated, raw = load(run.path), load(run.path, calibrator="none")
    assert calibrated.calibrator.n_fit_ == len(run.predictions("val").labels)
    temperature = calibrated.calibrator.temperature_
    logits = raw.predictions([picture]).logits.astype(np.float64) / temperature
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    np.testing.assert_allclose(calibrated.predict_proba([picture]), expected, atol=1e-6)


def test_a_run_without_validation_images_predicts_by_what_needs_none(run, picture, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / "predictions" / "val.safetensors").unlink()
    raw, mixed, routed = (load(tmp_path / "run", calibrator=name) for name in ("none", "mix", "route"))
    tuned = raw.predictions([picture])
    logits = (tuned.logits.astype(np.float64) + tuned.zero_shot_logits.astype(np.float64)) / 2
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    np.testing.assert_allclose(mixed.predict_proba([picture]), expected, atol=1e-6)
    np.testing.assert_allclose(routed.predict_proba([picture]), raw.predict_proba([picture]), atol=1e-9)
    with pytest.raises(DataError, match="'temperature' is fitted on validation images"):
        load(tmp_path / "run")


def test_other_classes_can_be_asked_for(run, picture):
    assert load(run.path, split="novel").classes == ("five", "six", "seven", "eight", "nine")
    assert load(run.path, classes=["red_apple", "pear"]).predict_proba([picture]).shape == (1, 2)
    with pytest.raises(ConfigError, match="no classes 'old'"):
        load(run.path, split="old")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((8, 8, 3), 200.0), "span|0, 1"),
        (np.zeros((8, 8, 3), dtype=np.int64), "int64"),
        (np.zeros((8, 8, 2), dtype=np.uint8), r"\[8, 8, 2\]"),
        (np.full((8, 8), np.nan), "0, 1"),
    ],
)
def test_strange_arrays_are_refused(run, array, message):
    with pytest.raises(DataError, match=message):
        load(run.path).predict_proba([array])


def test_predict_on_the_command_line(run, picture, tmp_path, capsys):
    picture.save(tmp_path / "digit.png")
    assert main(["predict", str(run.path), str(tmp_path / "digit.png")]) == 0
    assert "digit.png" in capsys.readouterr().out
    assert main(["predict", str(run.path), str(tmp_path / "digit.png"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["class"] in answer["probabilities"]
    assert answer["probability"] == pytest.approx(max(answer["probabilities"].values()))


def test_mistakes_on_the_command_line(run, tmp_path, capsys):
    (tmp_path / "text.png").write_text("hello")
    for words, message in (
        ([str(run.path), str(tmp_path / "none.png")], "there is no image"),
        ([str(run.path), str(tmp_path / "text.png")], "text.png"),
        ([str(tmp_path), str(tmp_path / "text.png")], "no finished run"),
        ([str(tmp_path / "nowhere"), "x.png"], "no folder"),
    ):
        assert main(["predict", *words]) == 2
        assert message in capsys.readouterr().err


def test_other_weights_are_refused(run, monkeypatch):
    from promptcal.models.clip import FrozenClip

    monkeypatch.setattr(FrozenClip, "weights_digest", lambda self: "other")
    with pytest.raises(DataError, match="weights of 'mini'"):
        load(run.path)


def test_a_grey_image_is_read_as_rgb(run):
    grey = Image.fromarray(np.full((8, 8), 128, dtype=np.uint8))
    assert load(run.path).predict_proba([grey]).shape == (1, 5)
