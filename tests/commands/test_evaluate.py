"""promptcal evaluate: a table on screen; JSON, CSV and a picture where asked for."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from promptcal import metrics
from promptcal.cli import main


@pytest.fixture
def file(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.ones(3), 60)
    labels = np.array([generator.choice(3, p=row) for row in probs])
    np.savez(tmp_path / "predictions.npz", probs=probs, labels=labels)
    return tmp_path / "predictions.npz", probs, labels


def test_table(file, capsys):
    path, probs, labels = file
    assert main(["evaluate", str(path)]) == 0
    text = capsys.readouterr().out
    assert "predictions.npz: 60 samples, preset guo15" in text
    line = next(line for line in text.splitlines() if line.startswith("ece "))
    assert f"{metrics.ece(probs, labels):.5g}" in line
    assert "15 bins, l1, right-closed" in line
    assert f"{metrics.noise_floor(probs):.4f}" in line
    assert "95 % interval" not in text


def test_intervals_slow_metrics_and_presets(file, capsys):
    path, *_ = file
    assert main(["evaluate", str(path), "--intervals", "--also", "kde_ece", "smooth_calibration_error"]) == 0
    text = capsys.readouterr().out
    assert "95 % interval" in text
    assert {"calibration_test", "kde_ece", "smooth_calibration_error"} <= {
        line.split(" ")[0] for line in text.splitlines()
    }
    assert main(["evaluate", str(path), "--preset", "torchmetrics"]) == 0
    assert "left-closed" in capsys.readouterr().out


def test_files(file, tmp_path: Path, capsys):
    path, probs, labels = file
    for folder in ("one", "two"):
        assert main(["evaluate", str(path), "--intervals", "--out", str(tmp_path / folder)]) == 0
    capsys.readouterr()
    written = json.loads((tmp_path / "one" / "metrics.json").read_text())
    assert written["n"] == 60
    headline = next(row for row in written["metrics"] if row["metric"] == "ece")
    assert headline["value"] == pytest.approx(metrics.ece(probs, labels))
    assert headline["low"] <= headline["value"] <= headline["high"]
    with (tmp_path / "one" / "metrics.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["metric"] for row in rows] == [row["metric"] for row in written["metrics"]]
    assert (tmp_path / "one" / "reliability.png").read_bytes().startswith(b"\x89PNG")
    for name in ("metrics.json", "metrics.csv", "reliability.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_top_label_alone_says_what_is_left_out(tmp_path: Path, capsys):
    path = tmp_path / "top.csv"
    path.write_text("true_label,pred_label,confidence\n3,3,0.9\n1,2,0.6\n")
    assert main(["evaluate", str(path), "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "these need the probabilities of all classes: nll, brier, classwise_ece" in text
    assert "undefined" not in next(line for line in text.splitlines() if line.startswith("auroc"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.npz"], "there is no file"),
        (["predictions.npz", "--preset", "guo"], "Did you mean 'guo15'"),
        (["predictions.npz", "--also", "kde"], "Did you mean 'kde_ece'"),
        (["predictions.npz", "--also", "piece"], "image features"),
    ],
)
def test_mistakes_are_one_sentence(file, words: list[str], message: str, capsys, monkeypatch):
    monkeypatch.chdir(file[0].parent)
    assert main(["evaluate", *words]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1
