"""Pseudo-novel classes: nothing of a test split, nothing of the novel half."""

from pathlib import Path

import pytest

from promptcal.data.protocols.base_to_novel import base_to_novel
from promptcal.data.protocols.contract import Draw
from promptcal.data.protocols.pseudo_novel import pseudo_novel
from promptcal.data.sources import FolderImages
from promptcal.errors import DataError
from promptcal.types import ClassNames, Sample, Task


@pytest.fixture
def task():
    names = tuple("abcdefgh")

    def samples(split, each):
        return tuple(Sample(f"{split}/{name}{i}.png", label) for label, name in enumerate(names) for i in range(each))

    splits = (samples(name, each) for name, each in (("train", 6), ("val", 5), ("test", 3)))
    return Task("letters", ClassNames(names), *splits, FolderImages(Path()))


@pytest.mark.parametrize(("split_seed", "fold"), [(None, None), (3, None), (3, 7)])
def test_the_base_half_is_halved_again_and_no_test_image_is_read(task, split_seed, fold):
    draw = Draw(shots=4, seed=1, split_seed=split_seed)
    outer, inner = base_to_novel(task, draw), pseudo_novel(task, draw, fold=fold)
    base, novel = inner.targets["base"], inner.targets["novel"]
    assert inner.train.classes == base.classes
    assert sorted(base.classes.names + novel.classes.names) == sorted(outer.train.classes.names)
    assert len(base.classes) == len(novel.classes) == 2
    drawn = {sample.path for sample in (*outer.train.train, *outer.train.val)}
    read = {sample.path for part in (inner.train, base, novel) for sample in (*part.train, *part.val, *part.test)}
    assert read == drawn
    assert not any(path.startswith("test/") for path in read)
    assert len(inner.train.train) == 8
    assert len(novel.test) == 2 * (4 + 4)
    assert {sample.path for sample in base.test} == {sample.path for sample in inner.train.val}
    for part in (base, novel):
        for sample in part.test:
            assert sample.path.split("/")[1][0] == part.classes.names[sample.label]


def test_validation_images_are_needed(task):
    with pytest.raises(DataError, match="there are none"):
        pseudo_novel(task.replace(val=()), Draw(shots=2, seed=1))
