"""``promptcal calibrate`` from files to files."""

import json

import numpy as np
import pytest

from promptcal.calibrators import TemperatureScaling, load_calibrator
from promptcal.cli import main
from promptcal.data.prediction_files import read_predictions
from promptcal.metrics import ece
from promptcal.storage import load_predictions, save_predictions
from promptcal.types import Predictions


def two_files(folder, *, classes=6, n=400):
    """Overconfident logits and labels, in a validation and a test file."""
    rng = np.random.default_rng(0)
    for name in ("val", "test"):
        logits = 2.0 * rng.normal(size=(n, classes))
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        np.savez(folder / f"{name}.npz", logits=2.0 * logits, labels=labels)
    return ["calibrate", "--fit", str(folder / "val.npz"), "--apply", str(folder / "test.npz")]


def test_before_and_after_side_by_side_and_on_disk(tmp_path, capsys):
    out = tmp_path / "out"
    command = [
        *two_files(tmp_path),
        "--calibrators",
        "temperature,isotonic,temperature+multi_isotonic",
        "--out",
        str(out),
    ]
    assert main(command) == 0
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line and line[0] != " "}
    names = ["none", "temperature", "isotonic", "temperature+multi_isotonic"]
    assert [line for line in rows if line in names] == names
    val, test = (read_predictions(tmp_path / f"{name}.npz") for name in ("val", "test"))
    calibrator = TemperatureScaling().fit(val)
    expected = calibrator.transform(test)
    assert rows["none"][2] == f"{ece(test.probs(), test.labels):.4f}"
    assert rows["temperature"][2] == f"{ece(expected.probs(), test.labels):.4f}"
    assert float(rows["temperature"][2]) < float(rows["none"][2])
    assert f"T = {calibrator.temperature_:.4f} (95 % interval" in printed
    assert "fitted on 400 rows" in printed
    assert "in-sample" not in printed
    for name in names:
        saved = load_calibrator(out / "calibrators" / f"{name}.safetensors").transform(test)
        written = load_predictions(out / "predictions" / f"{name}.safetensors")
        assert np.array_equal(written.probs(), saved.probs())
    assert written.transformed_by == ("temperature", "multi_isotonic")
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {row["calibrator"] for row in metrics} == set(names)


def test_all_takes_what_the_files_allow_and_says_what_it_leaves_out(tmp_path, capsys):
    out = tmp_path / "out"
    assert main([*two_files(tmp_path, n=120), "--calibrators", "all", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "note: sals is left out: the file to fit has no 'zero_shot_logits'." in printed
    assert (out / "predictions" / "vector.safetensors").is_file()
    assert not (out / "predictions" / "sals.safetensors").exists()


def test_class_tied_calibrators_are_not_for_other_classes(tmp_path, capsys):
    val = Predictions(np.eye(3).repeat(4, 0), np.arange(3).repeat(4), ("a", "b", "c"), split="val")
    novel = Predictions(2 * np.eye(2), np.array([0, 0]), ("d", "e"), split="novel")
    for split in (val, novel):
        save_predictions(tmp_path / f"{split.split}.safetensors", split)
    command = ["calibrate", "--fit", str(tmp_path / "val.safetensors"), "--apply", str(tmp_path / "novel.safetensors")]
    assert main([*command, "--calibrators", "vector,temperature", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "note: vector is left out: it is tied to its classes" in printed
    assert "temperature: T = " in printed
    assert not (tmp_path / "out" / "predictions" / "vector.safetensors").exists()
    assert main([*command, "--calibrators", "all", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "note: vector is left out: it is tied to its classes" in printed
    assert "note: temperature: T = 0.01 lies at a bound" in printed


def test_scoring_the_fitted_rows_is_flagged(tmp_path, capsys):
    two_files(tmp_path)
    val = str(tmp_path / "val.npz")
    assert main(["calibrate", "--fit", val, "--apply", val, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "in-sample: 400 rows" in printed
    assert "note: temperature: 400 of these 400 rows are among the 400" in printed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--calibrators": "temprature"}, "Did you mean 'temperature'"),
        ({"--calibrators": "temperature,dac"}, "carry no 'text_features'"),
        ({"--fit": "missing.npz"}, "there is no file missing.npz"),
        ({"--apply": "TOP"}, "top label alone"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, capsys, change, words):
    (tmp_path / "top.csv").write_text("true_label,pred_label,confidence\n0,0,0.9\n1,0,0.8\n")
    command = [*two_files(tmp_path, n=50), "--out", str(tmp_path / "out")]
    for option, value in change.items():
        value = str(tmp_path / "top.csv") if value == "TOP" else value
        command += [option, value]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
