"""Run folders with the layout of real ones, and numbers that a seed decides."""

import hashlib
import warnings
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from promptcal.calibrators import CalibrationWarning
from promptcal.evaluation import measure_all
from promptcal.run import RunFolder
from promptcal.storage import save_predictions, save_tensors, write_json, write_jsonl
from promptcal.types import Predictions

TEMPER = {"zero_shot": (2.2, 1.0), "coop": (3.4, 2.4), "coop+margin+moments": (3.2, 1.5)}
"""By method: how well the true class stands out, and how much the logits exaggerate."""


def predictions(split: str, seed: int, n: int, signal: float, heat: float, classes: int = 5, data_seed: int = 0):
    """Logits around a hidden truth; the images and their luck depend on the data seed, the method's own on ``seed``."""
    images = np.random.default_rng([data_seed, len(split)])
    labels = images.integers(classes, size=n)
    noise = images.standard_normal((n, classes))
    own = np.random.default_rng([seed, len(split), 7]).standard_normal((n, classes))
    target = np.eye(classes)[labels]
    zero_shot = (2.0 * target + noise).astype(np.float32)
    logits = (heat * (signal * target + noise + 0.3 * own)).astype(np.float32)
    return Predictions(
        logits=zero_shot if heat == 1.0 else logits,
        labels=labels,
        classes=tuple(f"{'novel' if split == 'novel' else 'base'} {c}" for c in range(classes)),
        zero_shot_logits=zero_shot,
        paths=tuple(f"{split}/{row}.png" for row in range(n)),
        split=split,
    )


@cache
def measured_splits(
    method: str, seed: int, split_seed: int | None, dataset: str, calibrators: tuple[str, ...], val: bool
):
    """The predictions of a run and its metric rows; measuring is what takes time, so each is done once."""
    signal, heat = TEMPER[method]
    data_seed = zlib.crc32(dataset.encode()) + 1000 * (split_seed or 0)
    everything = {
        "val": predictions("val", seed, 20, signal, heat, data_seed=data_seed + seed),
        "base": predictions("base", seed, 120, signal, heat, data_seed=data_seed),
        "novel": predictions("novel", seed, 150, signal * 0.7, heat, data_seed=data_seed),
    }
    if not val:
        del everything["val"]
    choices = {"dataset": dataset, "model": "mini", "method": method, "plugin": []}
    config = {"calibrators": list(calibrators), "choices": choices, "seed": seed, "split_seed": split_seed, "shots": 16}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # few validation images can be fitted too well
        return everything, measure_all(everything, OmegaConf.create(config))


def write_run(
    root: Path,
    method: str = "coop",
    *,
    seed: int = 1,
    split_seed: int | None = None,
    shots: int = 16,
    dataset: str = "digits",
    calibrators: tuple[str, ...] = ("none", "temperature", "route", "mix"),
    extra: dict | None = None,
    name: str | None = None,
    val: bool = True,
) -> RunFolder:
    """Write one finished run and return its folder."""
    recipe, *plugins = method.split("+")
    if recipe == "zero_shot":
        calibrators = ("none", "temperature")
    config = OmegaConf.create(
        {
            "seed": seed,
            "split_seed": split_seed,
            "shots": shots,
            "calibrators": list(calibrators),
            "choices": {"dataset": dataset, "model": "mini", "method": recipe, "plugin": plugins},
            "dataset": {"name": dataset, "title": dataset.capitalize(), "path": None, "sizes": {"classes": 10}},
            "training": {"epochs": 50},
            "features": {"view_seed": seed},
            "runs": str(root),
        }
    )
    config = OmegaConf.merge(config, OmegaConf.create(extra or {}))
    everything, numbers = measured_splits(method, seed, split_seed, dataset, calibrators, val)
    about = {
        "dataset": dataset,
        "method": method,
        "model": "mini",
        "seed": seed,
        "split_seed": split_seed,
        "shots": shots,
    }
    what = repr((method, seed, split_seed, shots, dataset, extra))
    folder = RunFolder(root / dataset / method / (name or hashlib.sha256(what.encode()).hexdigest()[:8]))
    folder.begin()
    folder.write_config(config)
    for split, one in everything.items():
        save_predictions(folder.partial / "predictions" / f"{split}.safetensors", one)
    save_tensors(folder.partial / "learner.safetensors", {}, {"learner": recipe})
    write_jsonl(folder.partial / "history.jsonl", [])
    write_jsonl(folder.partial / "metrics.jsonl", [row | about for row in numbers])
    info = {"seconds": 12.5, "train_seconds": 11.0, "learned_parameters": 2048, "device": "cpu", "commit": "abc123"}
    write_json(folder.partial / "run.json", {"schema": 1, "promptcal": "0.1.0", "packages": {"torch": "2.9"}, **info})
    folder.finish()
    return folder


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunFolder]:
    """``write_run`` below the test's own folder."""
    return partial(write_run, tmp_path / "runs")


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """Three methods, three seeds each, on one data set."""
    root = tmp_path_factory.mktemp("study") / "runs"
    return [write_run(root, method, seed=seed) for method in TEMPER for seed in (1, 2, 3)]
