"""Prediction files of every kind, and a sentence for every broken one."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from promptcal import metrics
from promptcal.data.prediction_files import read_predictions
from promptcal.errors import DataError
from promptcal.metrics.contract import TopLabelPredictions
from promptcal.storage import save_predictions
from promptcal.types import Predictions

PROBS = np.array([[0.7, 0.2, 0.1], [0.0, 0.4, 0.6], [0.3, 0.3, 0.4]])
LABELS = np.array([0, 2, 1])


@pytest.mark.parametrize(
    "arrays",
    [
        {"probs": PROBS, "labels": LABELS},
        {"predictions": PROBS.astype(np.float32), "ground_truth": LABELS.astype(np.int32)},
        {"probabilities": PROBS, "y_true": LABELS.astype(float)},
        {"probs": PROBS, "labels": np.array(["cat", "dog", "eel"])[LABELS], "classes": np.array(["cat", "dog", "eel"])},
    ],
)
def test_npz_with_probabilities(tmp_path: Path, arrays: dict):
    np.savez(tmp_path / "a.npz", **arrays)
    read = read_predictions(tmp_path / "a.npz")
    assert isinstance(read, Predictions)
    assert read.probs() == pytest.approx(PROBS, abs=1e-7)
    assert read.labels.tolist() == LABELS.tolist()
    assert read.classes in (("0", "1", "2"), ("cat", "dog", "eel"))
    exponentials = np.exp(read.logits)
    assert exponentials / exponentials.sum(axis=1, keepdims=True) == pytest.approx(PROBS, abs=1e-7)


def test_npz_with_logits(tmp_path: Path):
    logits = np.array([[3.0, -1.0], [0.5, 0.0]], dtype=np.float32)
    np.savez(tmp_path / "a.npz", logits=logits, labels=np.array([0, 1]))
    np.savez(tmp_path / "b.npz", predictions=logits, ground_truth=np.array([0, 1]))
    read = read_predictions(tmp_path / "a.npz")
    assert isinstance(read, Predictions)
    assert read.probabilities is None
    assert read.logits.tolist() == logits.tolist()
    same = read_predictions(tmp_path / "b.npz", logits=True)
    assert isinstance(same, Predictions)
    assert same.logits.tolist() == logits.tolist()
    with pytest.raises(DataError, match=r"b\.npz: row 0 holds -1, which is no probability; if these are logits"):
        read_predictions(tmp_path / "b.npz")


def test_safetensors_of_ours_and_of_others(tmp_path: Path):
    ours = Predictions(np.log(PROBS + 0.1), LABELS, ("a", "b", "c"), split="novel", temperature=np.full(3, 2.0))
    save_predictions(tmp_path / "ours.safetensors", ours)
    read = read_predictions(tmp_path / "ours.safetensors")
    assert isinstance(read, Predictions)
    assert read.split == "novel"
    assert read.classes == ("a", "b", "c")
    assert read.temperature is not None
    save_file({"probs": PROBS, "labels": LABELS}, tmp_path / "others.safetensors")
    other = read_predictions(tmp_path / "others.safetensors")
    assert isinstance(other, Predictions)
    assert (other.probs() == PROBS).all()


def test_csv_with_all_classes(tmp_path: Path):
    rows = "".join(f"{label},{','.join(map(str, row))}\n" for label, row in zip(LABELS, PROBS, strict=True))
    (tmp_path / "a.csv").write_text("label,cat,dog,eel\n" + rows)
    read = read_predictions(tmp_path / "a.csv")
    assert isinstance(read, Predictions)
    assert read.classes == ("cat", "dog", "eel")
    assert (read.probs() == PROBS).all()
    (tmp_path / "b.csv").write_text("label,cat,dog\ndog,1.5,-3\ncat,0,1\n")
    logits = read_predictions(tmp_path / "b.csv", logits=True)
    assert isinstance(logits, Predictions)
    assert logits.labels.tolist() == [1, 0]
    assert logits.logits.tolist() == [[1.5, -3.0], [0.0, 1.0]]


@pytest.mark.parametrize("names", [("3", "7"), ("sea lion", "eel")])
def test_csv_with_the_top_label_alone(tmp_path: Path, names: tuple[str, str]):
    a, b = names
    (tmp_path / "a.csv").write_text(f"true_label,pred_label,confidence\n{a},{a},0.9\n{b},{a},0.6\n{b},{b},0.5\n")
    read = read_predictions(tmp_path / "a.csv")
    assert isinstance(read, TopLabelPredictions)
    assert (read.predicted == read.labels).tolist() == [True, False, True]
    assert read.confidence.tolist() == [0.9, 0.6, 0.5]


def test_whole_numbers_are_the_same_class_in_any_notation(tmp_path: Path):
    (tmp_path / "a.csv").write_text("true_label,pred_label,confidence\n3,3.0,0.9\n1,3.0,0.6\n")
    read = read_predictions(tmp_path / "a.csv")
    assert isinstance(read, TopLabelPredictions)
    assert (read.predicted == read.labels).tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a table"),
        ("cat,dog\n0.5,0.5\n", "no label column among 'cat', 'dog'"),
        ("label\n1\n", "no class columns"),
        ("label,cat,dog\n0,0.5,0.6\n", "row 0 of the probabilities sums to 1.1"),
        ("label,cat,dog\n0,0.5,\n", "row 0 of the probabilities holds nan"),
        ("label,cat,dog\n0,0.5,half\n", "the column 'dog' holds something else than numbers"),
        ("label,cat,dog\ndgo,0.5,0.5\n", "unknown class among the labels 'dgo'. Did you mean 'dog'"),
        ("label,cat,dog\n2,0.5,0.5\n", "row 0 has label 2, but there are 2 classes"),
        ("label,cat,dog\n", "nothing to measure"),
        ("true_label,pred_label,confidence\n3,3,0.9\n,3,0.8\n", "row 1 lacks its predicted or its true class"),
        ("true_label,pred_label,confidence\n3,3,\n", "row 0 has confidence nan"),
        ('label,cat,dog\n0,"0.5,0.5\n', "not a table"),
    ],
)
def test_broken_csv(tmp_path: Path, text: str, message: str):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_predictions(tmp_path / "a.csv")
    assert "a.csv" in str(caught.value)


def test_broken_files(tmp_path: Path):
    np.savez(tmp_path / "nolabels.npz", probs=PROBS)
    np.savez(tmp_path / "noprobs.npz", labels=LABELS)
    np.savez(tmp_path / "names.npz", probs=PROBS, labels=LABELS, classes=np.array(["a"]))
    np.savez(tmp_path / "pickle.npz", probs=np.array([{}], dtype=object), labels=LABELS)
    np.savez(tmp_path / "nan.npz", logits=np.array([[0.0, np.nan]]), labels=np.array([0]))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "nolabels.npz").read_bytes()[:-30])
    (tmp_path / "cut.safetensors").write_bytes(b"abc")
    for name, message in (
        ("nolabels.npz", "no labels among 'probs'"),
        ("noprobs.npz", "neither probabilities nor logits among 'labels'"),
        ("names.npz", "1 class names for 3 columns"),
        ("pickle.npz", "not a whole npz file of plain numbers"),
        ("nan.npz", "row 0 of the logits holds a NaN"),
        ("cut.npz", "not a whole npz file"),
        ("cut.safetensors", "not a whole safetensors file"),
        ("missing.npz", "there is no file"),
        ("predictions.txt", "must end in .npz, .csv, .safetensors"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            read_predictions(tmp_path / name)
        assert name in str(caught.value)


def test_what_is_read_is_measured(tmp_path: Path):
    np.savez(tmp_path / "a.npz", probs=PROBS, labels=LABELS)
    rows = {row.metric: row.value for row in reversed(metrics.measure(read_predictions(tmp_path / "a.npz")))}
    assert rows["ece"] == pytest.approx(metrics.ece(PROBS, LABELS), abs=1e-12)
    assert rows["nll"] == pytest.approx(metrics.nll(PROBS, LABELS))
