"""Folds of images and of classes: who is trained on what, and what is predicted."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptcal.data.sources import FolderImages
from promptcal.errors import ConfigError, DataError
from promptcal.heads.folds import cross_fit, image_folds, leave_classes_out
from promptcal.types import ClassNames, Sample, Task


def make_task(counts):
    samples = tuple(Sample(f"{label}/{row}", label) for label, n in enumerate(counts) for row in range(n))
    order = np.random.default_rng(1).permutation(len(samples))
    names = ClassNames(tuple(f"class {label}" for label in range(len(counts))))
    val = tuple(Sample(f"val/{label}", label) for label in range(len(counts)))
    return Task("toy", names, tuple(samples[i] for i in order), val, samples[:1], FolderImages(Path()))


def named(task, samples):
    return {(sample.path, task.classes.names[sample.label]) for sample in samples}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=2, max_size=7), st.integers(2, 6), st.integers(0, 99))
def test_image_folds_hold_every_class_evenly(counts, folds, seed):
    task = make_task(counts)
    fold_of = image_folds(task, folds, seed)
    labels = np.array([sample.label for sample in task.train])
    used = min(folds, min(counts))
    table = np.array([[((labels == label) & (fold_of == fold)).sum() for fold in range(used)] for label in set(labels)])
    assert table.sum() == sum(counts)
    assert (np.ptp(table, axis=1) <= 1).all()
    assert table.min() >= 1


def test_cross_fit_predicts_every_training_image_once_and_never_trains_on_it():
    task = make_task([5, 4, 6])
    splits = cross_fit(task, 4, 0)
    assert len(splits) == 4
    seen = [named(task, split.targets["base"].test) for split in splits]
    assert sorted(pair for part in seen for pair in part) == sorted(named(task, task.train))
    for split, part in zip(splits, seen, strict=True):
        assert named(task, split.train.train) == named(task, task.train) - part
        assert split.train.val == task.val
        assert split.train.test == split.targets["base"].train == ()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 6), min_size=4, max_size=9), st.integers(2, 6), st.integers(1, 3), st.integers(0, 99))
def test_classes_left_out_are_unseen_and_come_once_in_each_repeat(counts, folds, repeats, seed):
    task = make_task(counts)
    everything = named(task, task.train)
    splits = leave_classes_out(task, folds, repeats, 3, seed)
    assert len(splits) == repeats * min(folds, len(counts) // 2)
    gone = []
    for split in splits:
        novel, base, train = split.targets["novel"], split.targets["base"], split.train
        left_out = set(novel.classes.names)
        gone += sorted(left_out)
        assert len(left_out) >= 2
        assert len(train.classes) >= 2
        assert left_out.isdisjoint(train.classes.names)
        assert train.classes == base.classes
        unseen, held, used = named(novel, novel.test), named(base, base.test), named(train, train.train)
        assert unseen == {pair for pair in everything if pair[1] in left_out}
        assert held.isdisjoint(used)
        assert held | used | unseen == everything
        assert {name for _, name in used} == set(train.classes.names)
        assert held
        assert {name for _, name in named(train, train.val)} == set(train.classes.names)
    assert sorted(gone) == sorted(task.classes.names * repeats)


def test_what_cannot_be_folded_is_refused():
    for task, call, error, message in (
        (make_task([1, 4]), lambda t: cross_fit(t, 2, 0), DataError, "'class 0' has 1 training images"),
        (make_task([3, 3]), lambda t: cross_fit(t, 1, 0), ConfigError, "leaves nothing to train on"),
        (make_task([3, 3, 3]), lambda t: leave_classes_out(t, 2, 1, 2, 0), DataError, "3 training classes"),
        (make_task([3] * 4), lambda t: leave_classes_out(t, 1, 1, 2, 0), ConfigError, "at least 2 folds"),
    ):
        with pytest.raises(error, match=message):
            call(task)
