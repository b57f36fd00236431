"""Few-shot draws of the CoOp family: read without Dassl, found under another root, equal to the draw of the seed."""

import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from promptcal.data.cards import card_named, load_task
from promptcal.data.readers.split_json import SplitJson
from promptcal.data.splits import few_shot
from promptcal.errors import ConfigError, DataError
from promptcal.imports.few_shot import given_draw, read_drawn
from promptcal.types import Task


@pytest.fixture
def datum(monkeypatch):
    """Dassl's class, for the time of writing a file with it."""
    name = "dassl.data.datasets.base_dataset"

    class Datum:
        def __init__(self, path, label, class_name):
            self._impath, self._label, self._domain, self._classname = path, label, 0, class_name

    Datum.__module__, Datum.__qualname__ = name, "Datum"
    for part in ("dassl", "dassl.data", "dassl.data.datasets", name):
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    sys.modules[name].Datum = Datum
    return Datum


@pytest.fixture
def task(tmp_path) -> Task:
    rows = {
        split: [[f"{'ab'[i % 2]}/{split}_{i}.jpg", i % 2, ["cat", "dog"][i % 2]] for i in range(12)]
        for split in ("train", "val", "test")
    }
    (tmp_path / "split.json").write_text(json.dumps(rows))
    return SplitJson("split.json", "images").read("pets", tmp_path, ("a photo of a {}.",))


def write(path: Path, datum, draw: Task, root: str = "/home/someone/data/pets", splits=("train", "val")) -> Path:
    content = {
        split: [datum(f"{root}/{s.path}", s.label, draw.classes.names[s.label]) for s in getattr(draw, split)]
        for split in splits
    }
    path.write_bytes(pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL))
    return path


@pytest.mark.parametrize("root", ["/home/someone/data/pets", "C:\\data\\pets", "./data/elsewhere/deep", "."])
def test_the_images_are_found_under_another_root(tmp_path, task, datum, root):
    drawn = few_shot(task, 2, 3)
    rows = given_draw(task, write(tmp_path / "shot_2-seed_3.pkl", datum, drawn, root), 2)
    assert tuple(task.train[row] for row in rows["train"]) == drawn.train
    assert tuple(task.val[row] for row in rows["val"]) == drawn.val
    assert few_shot(task, 2, 99, given=rows) == drawn


def test_the_given_draw_takes_the_place_of_the_seeds(tmp_path, task, datum):
    drawn = few_shot(task, 2, 3)
    file = write(tmp_path / "shot_2-seed_3.pkl", datum, drawn)
    rows = given_draw(task, file, 2)
    undrawn = few_shot(task, 2, 1, given=rows, test="undrawn")
    assert undrawn.train == drawn.train
    assert len(undrawn.test) == 36 - len(drawn.train) - len(drawn.val)
    assert few_shot(task, 2, 1, given=rows, val_shots="all").val == task.val
    only_train = given_draw(task, write(file, datum, drawn, splits=("train",)), 2)
    assert set(only_train) == {"train"}
    assert few_shot(task, 2, 3, given=only_train) == drawn


def test_a_file_of_another_split_or_number_is_told(tmp_path, task, datum):
    drawn = few_shot(task, 2, 3)
    file = write(tmp_path / "shot_2-seed_3.pkl", datum, drawn)
    with pytest.raises(ConfigError, match=r"shot_2-seed_3\.pkl has 2 images a class.*shots=2"):
        given_draw(task, file, 4)
    moved = task.replace(train=task.train[2:])
    with pytest.raises(
        DataError, match=r"'/home/someone/data/pets/images/.*' is none of the 10 train images of 'pets'"
    ):
        given_draw(moved, write(file, datum, few_shot(task, 6, 1)), 6)
    swapped = task.replace(train=tuple(replace(sample, label=1 - sample.label) for sample in task.train))
    with pytest.raises(DataError, match=r"has label 0 \('cat'\), which is label 1 in 'pets'"):
        given_draw(swapped, write(file, datum, drawn), 2)


def test_a_poisoned_draw_runs_nothing(tmp_path, monkeypatch):
    import os

    monkeypatch.chdir(tmp_path)

    class Call:
        def __reduce__(self):
            return os.system, ("touch marker",)

    (tmp_path / "draw.pkl").write_bytes(pickle.dumps({"train": [Call()]}))
    with pytest.raises(DataError, match=r"draw\.pkl asks for 'posix\.system'"):
        read_drawn(tmp_path / "draw.pkl")
    assert not (tmp_path / "marker").exists()
    for content, match in (
        (pickle.dumps({"train": [1, 2]}), "not a list of images"),
        (pickle.dumps([1]), "no few-shot draw"),
        (pickle.dumps({"train": [1]})[:9], "not whole"),
    ):
        (tmp_path / "draw.pkl").write_bytes(content)
        with pytest.raises(DataError, match=match):
            read_drawn(tmp_path / "draw.pkl")
    with pytest.raises(DataError, match="there is no file"):
        read_drawn(tmp_path / "none.pkl")


@pytest.mark.parametrize("name", ["dtd", "eurosat"])
def test_the_official_draws_are_the_seeds_own(tmp_path, datum, test_data, name):
    """The draws of the CoOp family as published, written as its pickles: paths, labels and order."""
    task = load_task(card_named(name), test_data / "splits")
    for published in sorted((test_data / "splits" / "official_few_shot" / name).glob("shot_*.json")):
        shots, seed = (int(part.rpartition("_")[2]) for part in published.stem.split("-"))
        content = json.loads(published.read_text())
        held = {
            split: [datum(one["impath"], one["label"], one["classname"]) for one in content[split]["data"]]
            for split in ("train", "val")
        }
        (tmp_path / "draw.pkl").write_bytes(pickle.dumps(held))
        rows = given_draw(task, tmp_path / "draw.pkl", shots)
        given, own = few_shot(task, shots, 0, given=rows), few_shot(task, shots, seed)
        assert (set(given.train), set(given.val)) == (set(own.train), set(own.val))


def test_a_run_takes_the_draw_that_it_is_given(tmp_path, task, datum):
    from promptcal.config import compose
    from promptcal.preparation import drawn

    few = few_shot(task, 2, 3)
    file = write(tmp_path / "shot_2-seed_3.pkl", datum, few)
    data = ["dataset=split_file", f"dataset.path={tmp_path}", "dataset.reader.split=split.json"]
    words = [*data, "dataset.reader.images=images", "shots=2", "seed=2"]
    for more, same in (([f"data.few_shot={file}"], True), ([], False)):
        _, splits = drawn(compose([*words, *more]))
        wanted = {sample.path for sample in few.train if sample.label == 0}
        assert ({sample.path for sample in splits.train.train} == wanted) is same
