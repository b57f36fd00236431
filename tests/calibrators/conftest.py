"""Predictions of a small two-tower model: images near their class text, a frozen and an overconfident tuned head."""

import numpy as np
import pytest

from promptcal.types import Predictions

CLASSES = 12
BASE = 8
WIDTH = 16


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def make_predictions(n, classes, split, seed):
    """``n`` rows of the classes in a range, with every optional field but probabilities; arrays are read-only."""
    towers = np.random.default_rng(0)
    frozen = unit(towers.normal(size=(CLASSES, WIDTH)))
    tuned = unit(frozen + 0.1 * towers.normal(size=frozen.shape))
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(classes), size=n)
    images = unit(frozen[classes][labels] + 0.45 * rng.normal(size=(n, WIDTH)))
    arrays = {
        "logits": (30.0 * images @ tuned[classes].T).astype(np.float32),
        "labels": labels.astype(np.int64),
        "zero_shot_logits": (10.0 * images @ frozen[classes].T).astype(np.float32),
        "image_features": images.astype(np.float32),
        "text_features": tuned[classes].astype(np.float32),
        "zero_shot_text_features": frozen[classes].astype(np.float32),
    }
    for array in arrays.values():
        array.flags.writeable = False
    return Predictions(**arrays, classes=tuple(f"class {index}" for index in classes), split=split)


@pytest.fixture(scope="session")
def val():
    return make_predictions(240, range(BASE), "val", 1)


@pytest.fixture(scope="session")
def base():
    return make_predictions(200, range(BASE), "base", 2)


@pytest.fixture(scope="session")
def novel():
    return make_predictions(150, range(BASE, CLASSES), "novel", 3)


@pytest.fixture(scope="session")
def overconfident():
    """Logits [4000, 5] whose softmax at T = 2.5 is the law of the labels."""
    rng = np.random.default_rng(4)
    logits = 2.0 * rng.normal(size=(4000, 5))
    return 2.5 * logits, draw_labels(logits, rng)


def draw_labels(logits, rng):
    """Labels drawn from the softmax of each row."""
    gumbel = rng.gumbel(size=logits.shape)
    return (logits + gumbel).argmax(axis=1)
