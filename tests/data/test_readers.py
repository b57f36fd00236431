import json
import logging
import pickle
import random
import shutil

import numpy as np
import pytest

from promptcal.data import load_task
from promptcal.data.readers.digits import Digits
from promptcal.data.readers.image_folder import ImageFolder
from promptcal.data.readers.shapes import Shapes
from promptcal.data.readers.split_json import SplitJson
from promptcal.errors import ConfigError, DataError
from promptcal.types import Task

TEMPLATES = ("a photo of a {}.",)


def write(image, path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(image, path)


@pytest.fixture
def image(toy):
    return toy / "images" / "cat" / "00.png"


def read_json(folder, content) -> Task:
    (folder / "split.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return SplitJson("split.json", "images").read("toy", folder, TEMPLATES)


def rows(task: Task) -> dict[str, list[tuple[str, str]]]:
    return {
        split: [(sample.path, task.classes.names[sample.label]) for sample in getattr(task, split)]
        for split in ("train", "val", "test")
    }


# --- split_json ------------------------------------------------------------------------------------------------------


def test_a_split_file_is_read_as_it_lies(toy):
    entries = json.loads((toy / "split.json").read_text())
    task = SplitJson("split.json", "images").read("toy", toy, TEMPLATES)
    assert task.classes.names == ("apple pie", "big dog", "cat", "deer", "egg", "fox")
    assert rows(task) == {
        split: [(f"images/{path}", name.replace("_", " ")) for path, _, name in entries[split]] for split in entries
    }
    assert all(task.images.open(sample.path).size == (14, 10) for sample in task.test)


@pytest.mark.parametrize("absent", [[], None])
def test_validation_images_may_be_missing(toy, absent):
    entries = json.loads((toy / "split.json").read_text())
    del entries["val"]
    if absent is not None:
        entries["val"] = absent
    assert read_json(toy, entries).val == ()


def test_classes_are_those_of_all_splits_by_name(toy):
    entry = {split: [[f"{split}.png", label, f"name {label}"]] for split, label in (("train", 7), ("test", 3))}
    task = read_json(toy, entry | {"val": [["val.png", 5, "name 5"]]})
    assert task.classes.names == ("name 3", "name 5", "name 7")
    assert rows(task)["train"] == [("images/train.png", "name 7")]
    assert task.val[0].label == 1


def test_a_task_tells_which_split_lacks_a_class(toy, toy_card, caplog):
    entries = json.loads((toy / "split.json").read_text())
    entries["test"] = [entry for entry in entries["test"] if entry[2] != "deer"] + [["cat/00.png", 9, "only here"]]
    (toy / "split.json").write_text(json.dumps(entries))
    with caplog.at_level(logging.WARNING):
        task = load_task(toy_card)
    assert len(task.classes) == 7
    assert "no test images of: deer." in caplog.text
    assert "no training images of: only here." in caplog.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "must hold an object"),
        ({"train": [["a.png", 0, "a"]]}, "has no 'test' entries"),
        ({"train": [], "test": [["a.png", 0, "a"]]}, "has no 'train' entries"),
        ({"train": {"a": 1}, "test": [["a.png", 0, "a"]]}, "'train' is not a list"),
        ({"train": [["a.png", 0, "a"]], "test": [["a.png", 0]]}, r"test\[0\] is \['a.png', 0\]"),
        ({"train": [["a.png", 0, "a"], ["b.png", "1", "b"]], "test": [["a.png", 0, "a"]]}, r"train\[1\]"),
        ({"train": [["a.png", -1, "a"]], "test": [["a.png", 0, "a"]]}, r"train\[0\]"),
        ({"train": [["/etc/a.png", 0, "a"]], "test": [["a.png", 0, "a"]]}, r"train\[0\]"),
        ({"train": [["../a.png", 0, "a"]], "test": [["a.png", 0, "a"]]}, r"train\[0\]"),
        ({"train": [["a.png", 0, "a"]], "test": [["a.png", 0, "b"]]}, r"label 0 is called 'a' and, in test\[0\], 'b'"),
        ({"train": [["a.png", 0, "a"]], "test": [["a.png", 1, "A_"]]}, "have the same name"),
    ],
)
def test_a_faulty_split_file_is_one_sentence(toy, content, words):
    with pytest.raises(DataError, match=words) as caught:
        read_json(toy, content)
    assert "\n" not in str(caught.value)


def test_a_missing_split_file_is_named_and_not_made(toy):
    (toy / "split.json").unlink()
    before = sorted(toy.rglob("*"))
    with pytest.raises(DataError, match=r"no split file .*split\.json"):
        SplitJson("split.json", "images").read("toy", toy, TEMPLATES)
    assert sorted(toy.rglob("*")) == before


# --- image_folder ----------------------------------------------------------------------------------------------------


def test_a_folder_of_classes_is_split_by_class_and_nothing_is_written(toy):
    folder = toy / "images"
    before = sorted(folder.rglob("*"))
    task = ImageFolder().read("own", folder, TEMPLATES)
    assert sorted(folder.rglob("*")) == before
    assert task.classes.names == ("apple pie", "big dog", "cat", "deer", "egg", "fox")
    assert [len(split) for split in (task.train, task.val, task.test)] == [36, 12, 24]
    everything = [*task.train, *task.val, *task.test]
    assert len({sample.path for sample in everything}) == 72
    assert all(task.classes.names[s.label].replace(" ", "_") == s.path.split("/")[0] for s in everything)
    assert ImageFolder().read("own", folder, TEMPLATES) == task
    assert ImageFolder(split_seed=1).read("own", folder, TEMPLATES).train != task.train


def test_a_folder_with_its_own_splits(toy, image):
    for path in ("train/b/1.png", "train/a/1.png", "valid/a/2.JPEG", "test/b/sub/3.png", "test/c/4.png"):
        write(image, toy / "own" / path)
    task = ImageFolder(val="valid").read("own", toy / "own", TEMPLATES)
    assert rows(task) == {
        "train": [("train/a/1.png", "a"), ("train/b/1.png", "b")],
        "val": [("valid/a/2.JPEG", "a")],
        "test": [("test/b/sub/3.png", "b"), ("test/c/4.png", "c")],
    }
    assert ImageFolder().read("own", toy / "own", TEMPLATES).val == ()


def test_a_class_may_be_called_train(toy, image):
    for name in ("train", "test", "tram"):
        for number in range(4):
            write(image, toy / "own" / name / f"{number}.png")
    assert ImageFolder().read("own", toy / "own", TEMPLATES).classes.names == ("test", "train", "tram")


def test_a_missing_test_split_is_named(toy, image):
    write(image, toy / "own" / "train" / "a" / "1.png")
    write(image, toy / "own" / "val" / "a" / "1.png")
    with pytest.raises(DataError, match=r"own/test has no class folders"):
        ImageFolder().read("own", toy / "own", TEMPLATES)


def test_numbers_sort_as_numbers_and_names_as_text(toy, image):
    for name in ("0", "1", "2", "10", "11", "100"):
        write(image, toy / "numbers" / name / "x.png")
        write(image, toy / "names" / f"n{name}" / "x.png")
    assert ImageFolder().read("own", toy / "numbers", TEMPLATES).classes.names == ("0", "1", "2", "10", "11", "100")
    names = ImageFolder().read("own", toy / "names", TEMPLATES).classes.names
    assert names == ("n0", "n1", "n10", "n100", "n11", "n2")


def test_junk_is_passed_over_and_empty_classes_and_other_files_are_reported(toy, image, caplog):
    folder = toy / "own"
    for path in ("a/1.png", "a/2.png", "b/1.png", "b/2.png", ".ipynb_checkpoints/x.png", "__MACOSX/y.png"):
        write(image, folder / path)
    for path in ("a/._1.png", "a/Thumbs.db", "b/.cache/z.png", "b/desktop.ini"):
        write(image, folder / path)
    (folder / "empty class").mkdir()
    (folder / "a" / "notes.txt").write_text("notes")
    with caplog.at_level(logging.WARNING):
        task = ImageFolder().read("own", folder, TEMPLATES)
    assert task.classes.names == ("a", "b")
    assert sum(len(split) for split in (task.train, task.val, task.test)) == 4
    assert "without images are left out" in caplog.text
    assert "empty class" in caplog.text
    assert "1 files" in caplog.text
    assert "notes.txt" in caplog.text
    assert "Thumbs" not in caplog.text


def test_classes_can_be_renamed(toy):
    task = ImageFolder(names={"cat": "tabby_cat"}).read("own", toy / "images", TEMPLATES)
    assert task.classes.names[2] == "tabby cat"
    with pytest.raises(ConfigError, match=r"dataset\.reader\.names 'cta'. Did you mean 'cat'"):
        ImageFolder(names={"cta": "tabby cat"}).read("own", toy / "images", TEMPLATES)


def test_numbered_classes_can_be_renamed_by_number(toy, image):
    for name in ("1", "2"):
        write(image, toy / "own" / name / "x.png")
    assert ImageFolder(names={1: "one"}).read("own", toy / "own", TEMPLATES).classes.names == ("one", "2")


def test_a_folder_without_classes(tmp_path):
    with pytest.raises(DataError, match="has no class folders with images"):
        ImageFolder().read("own", tmp_path, TEMPLATES)


@pytest.mark.parametrize("reader", [ImageFolder(), SplitJson("split.json")])
def test_a_reader_of_files_needs_a_folder(reader):
    with pytest.raises(DataError, match=r"dataset\.path="):
        reader.read("own", None, TEMPLATES)


# --- digits ----------------------------------------------------------------------------------------------------------


def test_digits_are_scikit_learns_in_halves_fifths_and_tenths():
    from sklearn.datasets import load_digits

    task = Digits().read("digits", None, TEMPLATES)
    images, labels = load_digits(return_X_y=True)
    everything = [*task.train, *task.val, *task.test]
    assert len({sample.path for sample in everything}) == 1797
    assert [len(split) for split in (task.train, task.val, task.test)] == [898, 359, 540]
    for sample in random.Random(0).sample(everything, 20):
        name, row = sample.path.split("/")
        assert labels[int(row)] == sample.label
        assert task.classes.names[sample.label] == name
        pixels = np.asarray(task.images.open(sample.path))
        assert pixels.shape == (8, 8, 3)
        assert np.abs(pixels[..., 0] - images[int(row)].reshape(8, 8) * 255 / 16).max() <= 0.5
    for label in range(10):
        counts = [sum(sample.label == label for sample in split) for split in (task.train, task.val, task.test)]
        assert np.abs(np.array(counts) - np.array([0.5, 0.2, 0.3]) * sum(counts)).max() <= 1


def test_the_digits_split_never_moves():
    task = Digits().read("digits", None, TEMPLATES)
    assert [sample.path for sample in task.train[:3]] == ["zero/0000", "zero/0030", "zero/0079"]
    assert Digits(split_seed=1).read("digits", None, TEMPLATES).train != task.train


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_shapes_are_compositions_with_two_thousand_test_images_a_half():
    from promptcal.data import base_novel

    task = Shapes().read("shapes", None, TEMPLATES)
    base, novel = base_novel(task)
    assert len(base.test) == len(novel.test) == 2000
    assert len(set(task.classes.names)) == 40
    assert len({sample.path for split in (task.train, task.val, task.test) for sample in split}) == 40 * 80 + 4000


def test_the_larger_test_set_and_class_numbers_that_do_not_divide():
    from promptcal.data import base_novel

    base, novel = base_novel(Shapes(classes=7, test="large").read("shapes", None, TEMPLATES))
    assert (len(base.classes), len(novel.classes)) == (4, 3)
    assert len(base.test) == len(novel.test) == 10_000
    counts = np.bincount([sample.label for sample in novel.test])
    assert counts.max() - counts.min() <= 1


def test_a_shape_is_a_pure_function_of_seed_and_path():
    task = Shapes(classes=4).read("shapes", None, TEMPLATES)
    paths = [sample.path for sample in task.test[:6]]
    once = [task.images.open(path).tobytes() for path in paths]
    again = Shapes(classes=4).read("shapes", None, TEMPLATES).images
    assert [again.open(path).tobytes() for path in reversed(paths)] == once[::-1]
    assert len(set(once)) == 6
    for other in (Shapes(seed=1, classes=4), Shapes(classes=4, severity=5), Shapes(classes=4, style="pretrain")):
        images = other.read("shapes", None, TEMPLATES).images
        assert images.open(paths[0]).tobytes() != once[0]
        assert images.digest(paths[0]) != task.images.digest(paths[0])
    assert pickle.loads(pickle.dumps(task)).images.open(paths[0]).tobytes() == once[0]


def test_the_size_of_a_shape():
    task = Shapes(classes=2, size=48).read("shapes", None, TEMPLATES)
    assert task.images.open(task.test[0].path).size == (48, 48)


def test_all_compositions():
    assert len(Shapes(classes=None, train_images=1).read("shapes", None, TEMPLATES).classes) == 12 * 4 * 12


@pytest.mark.parametrize(
    "faulty",
    [
        {"classes": 1},
        {"classes": 10_000},
        {"severity": 6},
        {"severity": -1},
        {"train_images": 0},
        {"size": 2},
        {"test": "huge"},
    ],
)
def test_options_of_shapes_out_of_range_are_named(faulty):
    with pytest.raises(ConfigError, match=rf"dataset\.reader\.{next(iter(faulty))}="):
        Shapes(**faulty).read("shapes", None, TEMPLATES)
