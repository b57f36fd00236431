"""Base-to-novel: the draw before the halves, and no image that is trained or calibrated on is tested on."""

import itertools

import pytest

from promptcal.config import compose
from promptcal.data import load_task
from promptcal.data.protocols import base_to_novel
from promptcal.errors import ConfigError


@pytest.fixture(scope="module")
def digits():
    return load_task(compose(["dataset=digits"]).dataset, None)


@pytest.mark.parametrize(("calibration", "test"), itertools.product(["few_shot_val", "full_val"], ["split", "undrawn"]))
def test_what_is_tested_is_neither_trained_nor_calibrated_on(digits, calibration, test):
    splits = base_to_novel(digits, 16, 1, calibration_split=calibration, test=test)
    used = {sample.path for target in splits.targets.values() for sample in (*target.train, *target.val)}
    tested = {sample.path for target in splits.targets.values() for sample in target.test}
    assert not used & tested
    assert len(splits.train.train) == 16 * 5
    assert len(splits.train.val) == (4 * 5 if calibration == "few_shot_val" else 180)
    assert len(tested) == (540 if test == "split" else 1797 - len(used))


def test_the_training_images_do_not_depend_on_what_is_calibrated_on(digits):
    first = base_to_novel(digits, 16, 1)
    second = base_to_novel(digits, 16, 1, calibration_split="full_val")
    assert first.train.train == second.train.train


def test_unknown_choices_are_refused(digits):
    with pytest.raises(ConfigError, match=r"calibration\.split 'val'"):
        base_to_novel(digits, 16, 1, calibration_split="val")
    with pytest.raises(ConfigError, match=r"protocol\.test 'all'"):
        base_to_novel(digits, 16, 1, test="all")
