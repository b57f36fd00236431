import json
import shutil

import pytest

from promptcal.data import few_shot, load_task, task_digest, task_record
from promptcal.types import ClassNames, Sample, Task


def test_a_record_holds_what_was_drawn(toy_task):
    drawn = few_shot(toy_task, 2, 1)
    record = json.loads(json.dumps(task_record(drawn)))
    assert record["classes"] == list(drawn.classes.names)
    assert record["templates"] == ["a photo of a {}."]
    assert [tuple(entry) for entry in record["train"]] == [(sample.path, sample.label) for sample in drawn.train]
    assert (len(record["train"]), len(record["val"]), len(record["test"])) == (12, 12, 24)


def changed(task: Task, change: str) -> Task:
    names = task.classes.names
    return {
        "names": task.replace(classes=ClassNames(("apple", *names[1:]), task.classes.templates)),
        "templates": task.replace(classes=ClassNames(names, ("{} texture.",))),
        "order": task.replace(train=task.train[::-1]),
        "label": task.replace(test=(Sample(task.test[0].path, 3), *task.test[1:])),
        "val": task.replace(val=()),
        "split of a sample": task.replace(train=task.train[1:], val=(*task.val, task.train[0])),
    }[change]


@pytest.mark.parametrize("change", ["names", "templates", "order", "label", "val", "split of a sample"])
def test_the_digest_follows_everything_that_decides_numbers(toy_task, change):
    assert task_digest(changed(toy_task, change)) != task_digest(toy_task)


def test_the_digest_stays_where_data_moves_or_the_task_is_renamed(toy, toy_card, toy_task):
    before = task_digest(toy_task)
    assert task_digest(toy_task.replace(name="other")) == before
    moved = shutil.move(toy, toy.parent / "elsewhere")
    assert task_digest(load_task(toy_card | {"path": str(moved)})) == before


def test_an_edited_split_file_changes_the_draw(toy, toy_card, toy_task):
    entries = json.loads((toy / "split.json").read_text())
    entries["train"] = entries["train"][1:]
    (toy / "split.json").write_text(json.dumps(entries))
    assert task_digest(few_shot(load_task(toy_card), 2, 1)) != task_digest(few_shot(toy_task, 2, 1))
