"""promptcal compare: paired tests between prediction files."""

import json
from pathlib import Path

import numpy as np
import pytest

from promptcal.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    generator = np.random.default_rng(0)
    logits = 2 * generator.normal(size=(200, 4))
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    for name, scale in (("good", 1.0), ("hot", 4.0), ("cold", 0.3)):
        np.savez(tmp_path / f"{name}.npz", logits=scale * logits, labels=labels)
    np.savez(tmp_path / "other.npz", logits=logits, labels=(labels + 1) % 4)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_table_and_json(folder: Path, capsys):
    words = ["compare", "good.npz", "hot.npz", "cold.npz", "--replicates", "200", "--out", "rows.json"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "200 samples; difference = the other file minus good.npz" in text
    rows = json.loads((folder / "rows.json").read_text())
    assert [(row["metric"], row["other"]) for row in rows][:2] == [("accuracy", "hot.npz"), ("ece", "hot.npz")]
    assert len(rows) == 8
    hot = next(row for row in rows if row["metric"] == "nll")
    assert hot["difference"] > 0
    assert hot["p_value"] == pytest.approx(1 / 201)
    assert f"{hot['difference']:+.4f}" in text
    first = (folder / "rows.json").read_bytes()
    assert main(words) == 0
    assert (folder / "rows.json").read_bytes() == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["good.npz"], "at least two"),
        (["good.npz", "good.npz"], "given twice"),
        (["good.npz", "missing.npz"], "there is no file missing.npz"),
        (["good.npz", "other.npz"], "row 0 has label"),
        (["good.npz", "hot.npz", "--replicates", "0"], "at least 1"),
    ],
)
def test_mistakes_are_one_sentence(folder: Path, words: list[str], message: str, capsys):
    assert main(["compare", *words]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1
