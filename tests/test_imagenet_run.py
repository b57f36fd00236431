"""The whole command line on all classes of ImageNet, in its layout on disk, on the model that ships with promptcal."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from promptcal.cli import main
from promptcal.report import rescore
from promptcal.run import RunFolder, find_runs

BASE = 500
"""The base half of ImageNet's classes."""
CALIBRATORS = ["none", "temperature", "route", "mix"]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The 1000 class folders, of which few hold images, classnames.txt, and a list of images to draw from."""
    from open_clip import IMAGENET_CLASSNAMES
    from timm.data.imagenet_info import ImageNetInfo

    root = tmp_path_factory.mktemp("data")
    folder, ids = root / "imagenet", ImageNetInfo("imagenet-1k").label_names()
    rng = np.random.default_rng(0)
    for wnid in ids:
        for part in ("train", "val"):
            (folder / "images" / part / wnid).mkdir(parents=True)
    images = [f"train/{ids[label]}/{ids[label]}_{n}.JPEG" for label in (0, 250, 499) for n in (1, 2, 3)]
    images += [f"val/{ids[label]}/ILSVRC2012_val_{label + 1:08d}.JPEG" for label in (0, 250, 499, 500, 744)]
    for path in images:
        Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).save(folder / "images" / path)
    named = zip(ids, IMAGENET_CLASSNAMES, strict=True)
    (folder / "classnames.txt").write_text("".join(f"{wnid} {name}\n" for wnid, name in reversed(list(named))))
    drawn = [
        path.removeprefix("train/") for path in images if path.startswith("train/") and not path.endswith("_1.JPEG")
    ]
    (root / "drawn.txt").write_text("\n".join(drawn))
    return root


def run(root: Path, place: Path, *words: str) -> int:
    shared = ["dataset=imagenet", f"data.root={root}", "plugin=[margin,moments]", "shots=1", "training.epochs=1"]
    where = [f"runs={place / 'runs'}", f"system.cache={place / 'cache'}", "--quiet"]
    return main(["run", *shared, "calibration.split=from_train", *where, *words])


def numbers(folder: RunFolder, split: str) -> dict[str, float]:
    return {
        row["metric"]: row["value"]
        for row in folder.metrics
        if (row["calibrator"], row["split"]) == ("none", split) and row["bins"] in (None, 15)
    }


@pytest.mark.parametrize("method", ["coop", "cocoop", "maple"])
@pytest.mark.filterwarnings("ignore::promptcal.calibrators.CalibrationWarning")
def test_base_to_novel_on_all_classes(root, tmp_path, method, caplog):
    drawn = f"dataset.reader.drawn={root / 'drawn.txt'}"
    assert run(root, tmp_path, f"method={method}", "--no-report", drawn) == 0
    (folder,) = find_runs(tmp_path / "runs" / "imagenet" / f"{method}+margin+moments")
    task = folder.task
    base, novel = (task["targets"][split]["classes"] for split in ("base", "novel"))
    assert task["train"]["classes"] == base
    assert (len(base), len(novel)) == (BASE, BASE)
    assert (base[0], novel[744 - BASE]) == ("tench", "missile")
    assert sorted(label for _, label in task["train"]["train"]) == [0, 250, 499]
    trained = {path for path, _ in task["train"]["train"]}
    assert not any(path.endswith("_1.JPEG") for path in trained), "it is not in the list"
    calibrated = folder.predictions("val")
    assert not trained & set(calibrated.paths)
    assert calibrated.logits.shape == (3, BASE)
    for split, images in (("base", 3), ("novel", 2)):
        found = folder.predictions(split)
        assert found.logits.shape == found.zero_shot_logits.shape == (images, BASE)
        assert numbers(folder, split)["accuracy"] == (found.logits.argmax(1) == found.labels).mean()
    assert numbers(folder, "base+novel")["ece_worst"] == max(numbers(folder, s)["ece"] for s in ("base", "novel"))
    assert folder.info["peak_memory_mb"] > 0
    said = {record.getMessage() for record in caplog.records if "no training images" in record.getMessage()}
    assert [message.partition("brambling")[2] for message in said] == [" and 987 more."]


@pytest.mark.filterwarnings("ignore::promptcal.calibrators.CalibrationWarning")
def test_test_images_among_all_thousand(root, tmp_path, capsys):
    assert run(root, tmp_path, "method=coop", "protocol.target=all") == 0
    assert "ImageNet, model mini, protocol base_to_novel_all, 1 shot" in capsys.readouterr().out
    (folder,) = find_runs(tmp_path / "runs" / "imagenet" / "coop+margin+moments")
    both = folder.predictions("all")
    assert both.logits.shape == (5, 2 * BASE)
    assert both.labels.tolist() == [0, 250, 499, 500, 744]
    tied = [row for row, name in enumerate(both.classes) if name == "missile"]
    assert len(tied) == 2, "as published"
    assert np.array_equal(both.logits[:, tied[0]], both.logits[:, tied[1]])
    assert {row["split"] for row in folder.metrics} == {"base", "novel", "base+novel", "all"}
    assert rescore(folder, CALIBRATORS) == folder.metrics
