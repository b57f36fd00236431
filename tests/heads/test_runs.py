"""Heads of whole runs: behind the training, on finished runs, and in a predictor."""

import json

import numpy as np
import pytest

from promptcal import experiment
from promptcal.calibrators import build_calibrator, load_calibrator
from promptcal.cli import main
from promptcal.config import compose
from promptcal.errors import ConfigError, DataError
from promptcal.heads.loglinear import LogLinearHead
from promptcal.predictor import load


def overrides(place, *more):
    fast = ["training.epochs=2", "features.views=1", "shots=4", "system.threads=1", "calibrators=[none,temperature]"]
    return [*fast, "method=coop", f"runs={place / 'runs'}", f"system.cache={place / 'cache'}", *more]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("heads")


@pytest.fixture(scope="module")
def plain(place):
    return experiment.run(compose(overrides(place)), quiet=True)


@pytest.mark.filterwarnings("ignore::promptcal.calibrators.CalibrationWarning")
@pytest.mark.parametrize(("mode", "trainings"), [("classes", 2), ("val", 0)])
def test_a_head_behind_a_training_is_in_its_predictions(place, plain, mode, trainings):
    said = []
    config = compose(overrides(place, "head=loglinear", f"head.mode={mode}", "head.folds=2"))
    run = experiment.run(config, quiet=True, say=said.append)
    assert any(f"{trainings} further trainings" in line for line in said)
    assert run.path.parent.name == f"coop+loglinear_{mode}"
    head = load_calibrator(run.path / "head.safetensors")
    for split in ("val", "base", "novel"):
        own, bare = run.predictions(split), plain.predictions(split)
        assert np.array_equal(own.logits, bare.logits)
        assert np.allclose(own.temperature, head.temperatures(bare), rtol=1e-6)
    rows = {(row["calibrator"], row["split"]): row["value"] for row in run.metrics if row["metric"] == "accuracy"}
    (bare,) = [
        row["value"]
        for row in plain.metrics
        if (row["metric"], row["calibrator"], row["split"]) == ("accuracy", "none", "novel")
    ]
    assert rows["none", "novel"] == bare
    if mode == "val":
        predictor = load(run.path, split="novel")
        seen = predictor.predictions([np.zeros((8, 8), dtype=np.uint8)])
        assert seen.temperature == pytest.approx(head.temperatures(seen.replace(temperature=None)), rel=1e-6)


@pytest.mark.filterwarnings("ignore::promptcal.calibrators.CalibrationWarning")
def test_a_finished_run_gets_a_head_in_one_command_and_stays_as_it_is(plain, tmp_path, capsys):
    before = {path: path.stat().st_mtime_ns for path in plain.path.rglob("*")}
    assert main(["head", str(plain.path), "--folds", "2", "--out", str(tmp_path)]) == 0
    assert {path: path.stat().st_mtime_ns for path in plain.path.rglob("*")} == before
    printed = capsys.readouterr().out
    assert "classes left out gain" in printed
    assert "novel" in printed
    (out,) = tmp_path.rglob("head.safetensors")
    head, novel = load_calibrator(out), plain.predictions("novel")
    assert np.array_equal(
        head.transform(novel).temperature,
        load_calibrator(out).transform(novel).temperature,
    )
    effects = [json.loads(line) for line in (out.parent / "effects.jsonl").read_text().splitlines()]
    assert {(row["calibrator"], row["split"]) for row in effects} == {
        (name, split) for name in ("none", "temperature", "dac+temperature", "loglinear") for split in ("base", "novel")
    }
    assert all(row["low"] <= row["difference"] <= row["high"] for row in effects if row["calibrator"] == "none")
    assert (out.parent / "predictions" / "novel.safetensors").is_file()
    assert main(["head", str(plain.path), "--fit", "val", "--features", "kl", "--out", str(tmp_path / "val")]) == 0
    assert "weights kl" in capsys.readouterr().out


def test_mistakes_are_told_in_a_sentence(plain, tmp_path, capsys):
    assert main(["head", str(plain.path), "--fit", "clases", "--out", str(tmp_path)]) == 2
    assert "Did you mean 'classes'" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="Did you mean 'images'"):
        LogLinearHead(mode="image")
    with pytest.raises(DataError, match="fitted on validation images"):
        LogLinearHead().fitted(None, (), lambda fold: {})


def test_a_head_beside_the_prompts_is_saved_and_loaded_with_them(place, plain):
    config = compose(overrides(place, "head=calattn", "head.mode=separate", "head.source=cls"))
    run = experiment.run(config, quiet=True)
    bare = plain.learner_state()
    state = run.learner_state()
    assert all(np.array_equal(state[name], bare[name]) for name in bare)
    assert {name for name in state if name not in bare} == {
        f"head.{layer}.{kind}" for layer in ("inner", "outer") for kind in ("weight", "bias")
    }
    predictor = load(run.path, split="novel", calibrator="none")
    seen = predictor.predictions([np.zeros((8, 8), dtype=np.uint8)])
    assert seen.temperature.shape == (1,)
    assert run.predictions("novel").temperature.std() > 0
    assert "head_cross_entropy" in run.history[0]
    with pytest.raises(ConfigError, match="has an output for each training class"):
        experiment.run(compose(overrides(place, "head=dirichlet")), quiet=True)
    assert build_calibrator("none").transform(run.predictions("novel")).temperature is not None
