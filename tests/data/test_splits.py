import json
import logging
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptcal.config import asset_path
from promptcal.data import base_novel, few_shot, load_task
from promptcal.data.splits import split_by_class
from promptcal.errors import ConfigError, DataError
from promptcal.types import ClassNames, Sample, Task


class NoImages:
    def open(self, path: str):
        raise DataError(path)

    def digest(self, path: str) -> str:
        return path


def make_task(train: list[int], val: list[int] = (), test: list[int] = (), classes: int | None = None) -> Task:
    """A task whose splits have these labels, in this order."""
    n = classes or max([*train, *val, *test]) + 1
    samples = {
        split: tuple(Sample(f"{split}/{row}", label) for row, label in enumerate(labels))
        for split, labels in (("train", train), ("val", val), ("test", test))
    }
    return Task("made", ClassNames(tuple(f"class {label}" for label in range(n))), **samples, images=NoImages())


labels = st.lists(st.integers(0, 6), min_size=1, max_size=60)
three = st.tuples(labels, labels, labels)


def official(folder: Path):
    return sorted((folder / "splits" / "official_few_shot").glob("*/*.json"))


def test_few_shot_draws_the_published_images_entry_by_entry(test_data):
    from omegaconf import OmegaConf

    files = official(test_data)
    assert len(files) >= 14
    tasks = {
        name: load_task(OmegaConf.load(asset_path("datasets", f"{name}.yaml")), test_data / "splits")
        for name in {file.parent.name for file in files}
    }
    for file in files:
        shots, seed = (int(part.split("_")[1]) for part in file.stem.split("-"))
        drawn = few_shot(tasks[file.parent.name], shots, seed)
        published = json.loads(file.read_text())
        for split, samples in (("train", drawn.train), ("val", drawn.val)):
            entries = published[split]["data"]
            expected = [(entry["impath"].split(f"/{file.parent.name}/")[1], entry["label"]) for entry in entries]
            assert [(sample.path, sample.label) for sample in samples] == expected, f"{file}, {split}"
            names = [drawn.classes.names[sample.label] for sample in samples]
            assert names == [entry["classname"].replace("_", " ") for entry in entries]


def test_few_shot_follows_the_rule_where_labels_come_out_of_order():
    task = make_task([2, 0, 1, 0, 2, 1, 0, 2, 1, 0] * 3, [1, 1, 0, 2, 0, 2, 1] * 2)
    rng = random.Random(7)
    expected = {}
    for split, samples, shots in (("train", task.train, 5), ("val", task.val, 4)):
        groups: dict[int, list[Sample]] = {}
        for sample in samples:
            groups.setdefault(sample.label, []).append(sample)
        expected[split] = [sample for group in groups.values() for sample in rng.sample(group, shots)]
    drawn = few_shot(task, 5, 7)
    assert list(drawn.train) == expected["train"]
    assert list(drawn.val) == expected["val"]


@given(three, st.integers(1, 20), st.integers(0, 2**31))
def test_few_shot_draws_without_repeats_and_the_same_for_the_same_seed(splits, shots, seed):
    task = make_task(*splits)
    drawn = few_shot(task, shots, seed)
    assert drawn == few_shot(task, shots, seed)
    assert drawn.test == task.test
    for samples, whole, count in ((drawn.train, task.train, shots), (drawn.val, task.val, min(shots, 4))):
        assert len(set(samples)) == len(samples)
        assert set(samples) <= set(whole)
        for label in {sample.label for sample in whole}:
            there = sum(sample.label == label for sample in whole)
            assert sum(sample.label == label for sample in samples) == min(there, count)


@given(three, st.integers(1, 20), st.integers(0, 2**31))
def test_undrawn_images_are_tested_and_no_image_is_lost_or_used_twice(splits, shots, seed):
    task = make_task(*splits)
    drawn = few_shot(task, shots, seed, test="undrawn")
    used = [*drawn.train, *drawn.val, *drawn.test]
    assert sorted(used, key=str) == sorted([*task.train, *task.val, *task.test], key=str)
    assert drawn.train == few_shot(task, shots, seed).train


def test_other_seeds_draw_other_images():
    task = make_task([0, 1] * 50)
    assert few_shot(task, 8, 1).train != few_shot(task, 8, 2).train


@pytest.mark.parametrize("every", [-1, "all"])
def test_all_shots_keep_everything(every):
    task = make_task([0, 1, 1, 0], [1, 0, 0, 0, 0, 0])
    assert few_shot(task, every, 1) == task


def test_the_number_of_validation_shots_can_be_set():
    task = make_task([0, 1] * 20, [0, 1] * 20)
    assert len(few_shot(task, 16, 1).val) == 8
    assert len(few_shot(task, 16, 1, val_shots=10).val) == 20
    assert few_shot(task, 16, 1, val_shots="all").val == task.val
    assert few_shot(task, 16, 1, val_shots=10).train == few_shot(task, 16, 1).train


def test_a_short_class_gives_all_its_images_once_and_is_named(caplog):
    task = make_task([0] * 3 + [1] * 20)
    with caplog.at_level(logging.WARNING):
        drawn = few_shot(task, 16, 1)
    assert sum(sample.label == 0 for sample in drawn.train) == 3
    assert len(set(drawn.train)) == 19
    assert "class 0 (3 of 16)" in caplog.text
    assert "class 1" not in caplog.text


@pytest.mark.parametrize("shots", [0, -2, True])
def test_no_such_number_of_shots(shots):
    with pytest.raises(ConfigError, match="shots="):
        few_shot(make_task([0, 1]), shots, 1)


def test_no_training_images():
    with pytest.raises(DataError, match="no training images"):
        few_shot(make_task([], [0], [0]), 1, 1)


@given(three, st.none() | st.integers(0, 1000))
def test_halves_partition_classes_and_images(splits, split_seed):
    task = make_task(*splits)
    n = len(task.classes)
    if n < 2:
        return
    base, novel = base_novel(task, split_seed)
    assert len(base.classes) == (n + 1) // 2
    assert sorted(base.classes.names + novel.classes.names) == sorted(task.classes.names)
    for split in ("train", "val", "test"):
        by_path = {sample.path: task.classes.names[sample.label] for sample in getattr(task, split)}
        halves = {
            sample.path: half.classes.names[sample.label] for half in (base, novel) for sample in getattr(half, split)
        }
        assert halves == by_path
        assert len(getattr(base, split)) + len(getattr(novel, split)) == len(by_path)


def test_the_first_half_in_label_order_is_base():
    base, novel = base_novel(make_task([4, 3, 2, 1, 0]))
    assert base.classes.names == ("class 0", "class 1", "class 2")
    assert novel.classes.names == ("class 3", "class 4")
    assert [sample.label for sample in novel.train] == [1, 0]
    assert base.classes.templates == novel.classes.templates == ("a photo of a {}.",)


def test_a_seeded_half_is_another_half_and_reproducible():
    task = make_task(list(range(40)))
    halves = {seed: base_novel(task, seed)[0].classes.names for seed in range(5)}
    assert len(set(halves.values())) == 5
    assert base_novel(task, 3)[0].classes.names == halves[3]
    assert all(list(names) == sorted(names, key=lambda name: int(name[6:])) for names in halves.values())


def test_base_shots_are_the_all_class_shots():
    task = make_task([label for _ in range(30) for label in range(6)])
    base, _ = base_novel(few_shot(task, 4, 3))
    assert base.train == tuple(sample for sample in few_shot(task, 4, 3).train if sample.label < 3)


def test_one_class_has_no_novel_half():
    with pytest.raises(DataError, match=r"one class \('class 0'\)"):
        base_novel(make_task([0, 0]))


@given(labels, st.integers(0, 100))
def test_a_split_by_class_is_a_partition_with_something_to_test(labels, seed):
    samples = make_task(labels).train
    parts = split_by_class(samples, (0.5, 0.2, 0.3), random.Random(seed))
    assert sorted(sum(parts, ()), key=str) == sorted(samples, key=str)
    for label in set(labels):
        train, val, test = ([sample for sample in part if sample.label == label] for part in parts)
        assert train
        assert test or len(train) == 1
        assert abs(len(train) - 0.5 * (len(train) + len(val) + len(test))) <= 1


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.5, 0.2, 0.4), (0.0, 0.5, 0.5), (0.8, 0.2, 0.0), (1.2, -0.5, 0.3)])
def test_faulty_fractions(fractions):
    with pytest.raises(ConfigError, match="fractions="):
        split_by_class(make_task([0, 0]).train, fractions, random.Random(0))
