"""Files are whole or absent, byte-identical, and speak when they are broken."""

import jaxtyping
import numpy as np
import pytest

from promptcal.errors import DataError, MissingField
from promptcal.storage import (
    load_predictions,
    load_tensors,
    read_jsonl,
    save_predictions,
    save_tensors,
    write_bytes,
    write_jsonl,
)
from promptcal.types import Predictions


def make() -> Predictions:
    rng = np.random.default_rng(0)
    return Predictions(
        logits=rng.normal(size=(5, 3)).astype(np.float32),
        labels=np.array([0, 1, 2, 1, 0]),
        classes=("a", "b", "ä"),
        zero_shot_logits=rng.normal(size=(5, 3)).astype(np.float32),
        paths=("x/1.png", "x/2.png", "x/3.png", "y/4.png", "y/5.png"),
        split="base",
    )


def test_predictions_come_back_as_they_went(tmp_path):
    save_predictions(tmp_path / "p.safetensors", make())
    back = load_predictions(tmp_path / "p.safetensors")
    assert back.classes == ("a", "b", "ä")
    assert back.paths == make().paths
    assert back.split == "base"
    assert back.temperature is None
    np.testing.assert_array_equal(back.logits, make().logits)
    with pytest.raises(MissingField, match=r"'text_features'.*'promptcal run' saves it"):
        back.require("text_features")


def test_twenty_saves_are_one_file(tmp_path):
    for i in range(20):
        save_predictions(tmp_path / f"{i}.safetensors", make())
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    from pathlib import Path

    target = tmp_path / "file"
    write_bytes(target, b"old")

    def broken(self, other):
        raise OSError("no space")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="no space"):
        write_bytes(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_broken_files_are_named(tmp_path):
    with pytest.raises(DataError, match="no file"):
        load_tensors(tmp_path / "none.safetensors")
    (tmp_path / "half.safetensors").write_bytes(b"\x10\x00")
    with pytest.raises(DataError, match=r"half\.safetensors is not a whole"):
        load_tensors(tmp_path / "half.safetensors")
    save_tensors(tmp_path / "other.safetensors", {"x": np.zeros(2)}, {})
    with pytest.raises(DataError, match="no 'logits'"):
        load_predictions(tmp_path / "other.safetensors")
    write_jsonl(tmp_path / "rows.jsonl", [{"a": 1}])
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a"')
    with pytest.raises(DataError, match="line 2"):
        read_jsonl(tmp_path / "rows.jsonl")


def test_shapes_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # what a person meets, without the test's checks
    with pytest.raises(DataError, match="4 labels"):
        make().replace(labels=np.array([0, 1, 2, 1]))
    with pytest.raises(DataError, match="2 class names"):
        make().replace(classes=("a", "b"))
