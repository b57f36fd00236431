"""A toy data set in the CoOp layout: 6 classes of 12 small images, 6 train, 2 val and 4 test each."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CLASSES = ("apple pie", "big_dog", "cat", "deer", "egg", "fox")


def write_image(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    Image.fromarray(rng.integers(0, 256, (10, 14, 3), dtype=np.uint8)).save(path)


def write_toy(folder: Path) -> Path:
    splits = {"train": [], "val": [], "test": []}
    for label, name in enumerate(CLASSES):
        for number in range(12):
            path = f"{name.replace(' ', '_')}/{number:02d}.png"
            write_image(folder / "images" / path, 100 * label + number)
            split = "train" if number < 6 else "val" if number < 8 else "test"
            splits[split].append([path, label, name])
    (folder / "split.json").write_text(json.dumps(splits))
    return folder


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A fresh copy of the toy data set."""
    return write_toy(tmp_path / "toy")


@pytest.fixture
def toy_card(toy: Path) -> dict:
    """Its card, as a plain mapping."""
    return {
        "name": "toy",
        "title": "Toy",
        "reader": {
            "_target_": "promptcal.data.readers.split_json.SplitJson",
            "split": "split.json",
            "images": "images",
        },
        "path": str(toy),
        "templates": ["a photo of a {}."],
        "sizes": {"classes": 6, "train": 36, "val": 12, "test": 24},
    }


@pytest.fixture
def toy_task(toy_card: dict):
    from promptcal.data import load_task

    return load_task(toy_card)
