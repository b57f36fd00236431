"""Protocols: the draw before the halves, what is tested, and that nothing tested is trained or calibrated on."""

import itertools
from collections.abc import Callable

import pytest

from promptcal.config import build, compose, options
from promptcal.data import load_task
from promptcal.data.protocols import Draw, Splits, drawn, reader_of_targets
from promptcal.data.protocols.base_to_novel import base_to_novel
from promptcal.data.protocols.cross_dataset import cross_dataset
from promptcal.data.protocols.domain_shift import domain_shift
from promptcal.data.protocols.few_shot import few_shot
from promptcal.data.splits import base_novel
from promptcal.errors import ConfigError, DataError
from promptcal.types import ClassNames, Sample, Task


class Nowhere:
    def open(self, path: str):
        raise DataError(path)

    def digest(self, path: str) -> str:
        return path


def made(
    name: str, names: tuple[str, ...], train: int = 8, val: int = 5, test: int = 3, template: str = "a {}."
) -> Task:
    """A task with so many images of each class."""

    def samples(split: str, count: int) -> tuple[Sample, ...]:
        return tuple(
            Sample(f"{name}/{split}/{label}_{number}", label) for label in range(len(names)) for number in range(count)
        )

    parts = {split: samples(split, count) for split, count in (("train", train), ("val", val), ("test", test))}
    return Task(name, ClassNames(names, (template,)), **parts, images=Nowhere())


def reading(*tasks: Task) -> Callable[[object], Task]:
    known = {task.name: task for task in tasks}
    return lambda described: known[described]


def paths(samples) -> list[str]:
    return [sample.path for sample in samples]


LETTERS = ("a", "b", "c", "d", "e")


@pytest.fixture(scope="module")
def digits():
    return load_task(compose(["dataset=digits"]).dataset, None)


@pytest.mark.parametrize(
    ("protocol", "calibration", "test"),
    itertools.product(
        [base_to_novel, few_shot, cross_dataset], ["few_shot_val", "full_val", "from_train"], ["split", "undrawn"]
    ),
)
def test_what_is_tested_is_neither_trained_nor_calibrated_on(digits, protocol, calibration, test):
    draw = Draw(16, 1, calibration_split=calibration, read=reading(made("other", LETTERS)))
    splits = protocol(digits, draw, test=test, **({"targets": ["other"]} if protocol is cross_dataset else {}))
    assert isinstance(splits, Splits)
    used = {*paths(splits.train.train), *paths(splits.train.val)}
    tested = [path for target in splits.targets.values() for path in paths(target.test)]
    assert len(tested) == len(set(tested))
    assert not used & set(tested)
    classes = 5 if protocol is base_to_novel else 10
    assert len(splits.train.classes) == classes
    assert len(splits.train.train) == 16 * classes
    val = {"few_shot_val": 4 * classes, "from_train": 4 * classes, "full_val": 359 if classes == 10 else 180}
    assert len(splits.train.val) == val[calibration]
    everything = set(paths((*digits.train, *digits.val, *digits.test)))
    if test == "undrawn" and protocol is few_shot:
        assert used | set(tested) == everything
    if test == "split":
        assert len(set(tested) & everything) == 540


def test_the_training_images_do_not_depend_on_what_is_calibrated_on(digits):
    first = base_to_novel(digits, Draw(16, 1))
    for other in ("full_val", "from_train"):
        assert base_to_novel(digits, Draw(16, 1, calibration_split=other)).train.train == first.train.train


def test_the_base_shots_are_those_of_all_classes(digits):
    base, few = base_to_novel(digits, Draw(4, 3)), few_shot(digits, Draw(4, 3))
    assert set(paths(base.train.train)) <= set(paths(few.train.train))
    assert few.targets["test"].classes.names == digits.classes.names


@pytest.mark.parametrize("split_seed", [None, 0])
def test_among_all_classes_the_true_class_says_which_half_an_image_is_of(digits, split_seed):
    own = base_to_novel(digits, Draw(4, 1, split_seed))
    joint = base_to_novel(digits, Draw(4, 1, split_seed), target="all")
    assert joint.train == own.train
    assert joint.joined == {"all": ("base", "novel")}
    assert "among base and novel classes together" in joint.notes[-1]
    for half, target in joint.targets.items():
        assert target.classes == digits.classes
        assert paths(target.test) == paths(own.targets[half].test)
        assert {target.classes.names[sample.label] for sample in target.test} == set(own.targets[half].classes.names)
        assert not target.train
        assert not target.val


def test_classes_of_one_name_stay_apart_among_all_classes():
    twins = made("twins", ("crane", "dog", "crane", "elk"))
    joint = base_to_novel(twins, Draw(1, 1), target="all")
    assert [sample.label for sample in joint.targets["novel"].test] == [2, 2, 2, 3, 3, 3]


def test_every_target_keeps_its_own_classes_texts_and_images():
    source, first, second = made("s", LETTERS), made("t", ("x", "y"), template="the {}."), made("u", LETTERS[:2])
    splits = cross_dataset(source, Draw(2, 1, read=reading(first, second)), targets=["t", "u"])
    assert list(splits.targets) == ["s", "t", "u"]
    assert splits.targets["t"].classes == first.classes
    assert splits.targets["t"].test == first.test
    assert splits.targets["t"].images is first.images
    assert not splits.targets["t"].train
    assert len(splits.train.train) == 10


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([], "nothing to test on"),
        (["t", "t"], "two data sets to test on are called 't'"),
        (["s"], "two data sets to test on are called 's'"),
        (["val"], "cannot be called 'val'"),
        (["empty"], "'empty' has no test images"),
    ],
)
def test_targets_that_make_no_sense_are_refused(targets, message):
    others = [made(name, LETTERS, test=0 if name == "empty" else 3) for name in ("t", "s", "val", "empty")]
    with pytest.raises((ConfigError, DataError), match=message):
        cross_dataset(made("s", LETTERS), Draw(2, 1, read=reading(*others)), targets=targets)


def test_a_domain_shift_matches_classes_by_name():
    source, shifted = made("s", LETTERS), made("shifted", ("d", "b"), template="a sketch of a {}.")
    draw = Draw(2, 1, read=reading(shifted))
    own = domain_shift(source, draw, targets=["shifted"]).targets["shifted"]
    assert own.classes == ClassNames(("b", "d"), ("a sketch of a {}.",))
    assert [own.classes.names[sample.label] for sample in own.test] == ["d"] * 3 + ["b"] * 3
    whole = domain_shift(source, draw, targets=["shifted"], classes="source").targets["shifted"]
    assert whole.classes.names == LETTERS
    assert [sample.label for sample in whole.test] == [3, 3, 3, 1, 1, 1]


def test_a_domain_shift_refuses_other_classes_and_what_it_cannot_tell_apart():
    source = made("s", ("crane", "dog", "crane"))
    draw = Draw(
        1, 1, read=reading(made("strange", ("dog", "cranes")), made("one", ("crane",)), made("two", ("dog",) * 2))
    )
    with pytest.raises(DataError, match=r"class 'cranes', which is not among .* \(the nearest is 'crane'\)"):
        domain_shift(source, draw, targets=["strange"])
    with pytest.raises(DataError, match="'dog' more often"):
        domain_shift(source, draw, targets=["two"])
    assert domain_shift(source, draw, targets=["one"]).targets["one"].classes.names == ("crane",)
    with pytest.raises(DataError, match="nothing says which"):
        domain_shift(source, draw, targets=["one"], classes="source")
    with pytest.raises(ConfigError, match=r"protocol\.classes 'all'"):
        domain_shift(source, draw, targets=["one"], classes="all")


def test_validation_images_that_are_test_images_are_not_calibrated_on():
    task = made("imagenet", LETTERS)
    same = task.replace(val=task.test)
    for draw in (Draw(2, 1), Draw(2, 1, calibration_split="full_val")):
        few, notes = drawn(same, draw)
        assert not few.val
        assert "validation images of 'imagenet' are test images, too" in notes[0]
        assert few.test == task.test
    undrawn, _ = drawn(same, Draw(2, 1), "undrawn")
    assert len(paths(undrawn.test)) == len(set(paths(undrawn.test)))
    few, notes = drawn(same, Draw(2, 1, calibration_split="from_train"))
    assert len(few.val) == 10
    assert not notes
    assert not set(paths(few.val)) & {*paths(few.train), *paths(few.test)}
    assert {sample.label for sample in few.val} == set(range(5))
    assert drawn(same, Draw(2, 1, calibration_split="val_or_train"))[0] == few
    assert drawn(task, Draw(2, 1, calibration_split="val_or_train")) == drawn(task, Draw(2, 1))


def test_unknown_choices_are_refused(digits):
    with pytest.raises(ConfigError, match=r"calibration\.split 'val'"):
        base_to_novel(digits, Draw(16, 1, calibration_split="val"))
    with pytest.raises(ConfigError, match=r"protocol\.test 'all'"):
        base_to_novel(digits, Draw(16, 1), test="all")
    with pytest.raises(ConfigError, match=r"protocol\.target 'novel'"):
        base_to_novel(digits, Draw(16, 1), target="novel")
    with pytest.raises(ConfigError, match="lower shots"):
        few_shot(digits, Draw(-1, 1, calibration_split="from_train"))


def test_every_protocol_composes_with_the_defaults_of_its_function(digits):
    assert {"base_to_novel", "few_shot", "cross_dataset", "domain_shift"} <= set(options("protocol"))
    assert set(build(compose(["protocol=few_shot"]).protocol, task=digits, draw=Draw(1, 1)).targets) == {"test"}
    own = build(compose([]).protocol, task=digits, draw=Draw(1, 1))
    assert own == base_to_novel(digits, Draw(1, 1))
    assert own.targets["novel"].classes == base_novel(digits)[1].classes


def test_targets_are_cards_or_folders_with_keys_of_their_own(tmp_path):
    from PIL import Image

    for split, name in itertools.product(("train", "test"), ("cat", "dog")):
        (tmp_path / split / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / split / name / "0.png")
    read = reader_of_targets(None)
    task = read({"name": "xray", "path": str(tmp_path), "templates": ["an x-ray of a {}."]})
    assert task.name == "xray"
    assert task.classes == ClassNames(("cat", "dog"), ("an x-ray of a {}.",))
    assert len(read("digits").test) == 540
    with pytest.raises(ConfigError, match="Did you mean 'digits'"):
        read("digit")
    with pytest.raises(ConfigError, match="unknown key of the data card"):
        read({"nmae": "xray"})
    with pytest.raises(DataError, match="there is no folder /nowhere"):
        read({"path": "/nowhere"})
