"""What whole runs on ImageNet take: `promptcal run` over all 1000 classes, on a tree of tiny images made for it.

    python scripts/bench_imagenet.py [--methods coop,cocoop,maple] [--targets own,all] [--train 4] [--test 16]

The tree has ImageNet's layout, all of its class folders and classnames.txt; only some classes have images, so that a
run ends in minutes while every text pass is over the real class list. The model is ViT-B/16 with random weights
(nothing is downloaded), the terms are cross-entropy, margin and moments, batches as published, one epoch. Each command
is a process of its own that does the run and its zero-shot run (the first command alone: the others find it done, and
the image features in the cache) and writes their report. Printed are the peak of `run.json` and that of the whole
process, as resident sets.

The last line is what the number of images adds at the end of a run: every calibrator and metric on predictions of all
50,000 test images, 25,000 of base and 25,000 of novel classes, each among all 1000 classes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from open_clip import IMAGENET_CLASSNAMES
from PIL import Image
from timm.data.imagenet_info import ImageNetInfo

from promptcal.config import compose
from promptcal.evaluation import measure_all
from promptcal.metrics.base_novel import together
from promptcal.run import find_runs
from promptcal.training.memory import peak_memory_mb
from promptcal.types import Predictions

BASE = 500
TEST_IMAGES = 25_000


def make_tree(root: Path, train: int, test: int) -> None:
    """ImageNet's folders with some images.

    Args:
        root: the parent of ``imagenet/``.
        train: base classes with training images, two each: one to train on, one to calibrate on.
        test: base classes with a test image each; of the novel classes an eighth as many have one.
    """
    folder = root / "imagenet"
    names = dict(zip(ImageNetInfo("imagenet-1k").label_names(), IMAGENET_CLASSNAMES, strict=True))
    ids = sorted(names)
    for wnid in ids:
        for part in ("train", "val"):
            (folder / "images" / part / wnid).mkdir(parents=True)
    (folder / "classnames.txt").write_text("".join(f"{wnid} {names[wnid]}\n" for wnid in ids), encoding="utf-8")
    rng = np.random.default_rng(0)

    def put(path: str) -> None:
        Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).save(folder / "images" / path)

    for wnid in ids[:BASE][:: BASE // train][:train]:
        put(f"train/{wnid}/{wnid}_1.JPEG")
        put(f"train/{wnid}/{wnid}_2.JPEG")
    tested = ids[:BASE][:: BASE // test][:test] + ids[BASE:][:: BASE // test][: test // 8]
    for number, wnid in enumerate(tested, start=1):
        put(f"val/{wnid}/ILSVRC2012_val_{number:08d}.JPEG")


def whole_run(root: Path, method: str, target: str) -> None:
    """One command in a process of its own; prints a line."""
    runs = root / target
    words = [
        *("model=vit_b16", "model.pretrained=random", "dataset=imagenet", f"data.root={root}", f"method={method}"),
        *("plugin=[margin,moments]", "shots=1", "training.epochs=1", "calibration.split=from_train"),
        *(f"protocol.target={target}", f"runs={runs}", f"system.cache={root / 'cache'}"),
    ]
    started = time.perf_counter()
    with (root / "log").open("w") as log:
        command = [sys.executable, "-m", "promptcal", "run", *words, "--quiet"]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{(root / 'log').read_text()}")
    seconds = time.perf_counter() - started
    whole = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    (run,) = find_runs(runs / "imagenet" / f"{method}+margin+moments")
    trained, classes = len(run.task["train"]["train"]), len(run.predictions("base").classes)
    print(
        f"{method:<8}target={target:<4}{trained} training images of {len(run.trained_classes or ())} classes, "
        f"{len(run.predictions('base').labels)} + {len(run.predictions('novel').labels)} test images among {classes}: "
        f"{seconds:.0f} s ({usage.ru_utime + usage.ru_stime:.0f} s of CPU), peak {run.info['peak_memory_mb']:,.0f} MB, "
        f"with the report {whole:,.0f} MB",
        flush=True,
    )


def all_test_images() -> None:
    """Calibrators and metrics on random predictions of as many test images as ImageNet has; prints a line."""
    names = tuple(f"class {number}" for number in range(2 * BASE))
    rng = np.random.default_rng(0)

    def predictions(split: str, n: int, classes: tuple[str, ...]) -> Predictions:
        labels = rng.integers(len(classes), size=n)
        right = 8.0 * (np.arange(len(classes)) == labels[:, None])
        logits, frozen = (rng.standard_normal((n, len(classes)), dtype=np.float32) * 3 + right for _ in range(2))
        features, texts, frozen_texts = (
            rng.standard_normal((rows, 512), dtype=np.float32) for rows in (n, len(classes), len(classes))
        )
        return Predictions(
            logits=logits.astype(np.float32),
            labels=labels,
            classes=classes,
            zero_shot_logits=frozen.astype(np.float32),
            image_features=features,
            text_features=texts,
            zero_shot_text_features=frozen_texts,
            split=split,
        )

    everything = {"val": predictions("val", 4 * BASE, names[:BASE])}
    everything |= {split: predictions(split, TEST_IMAGES, names) for split in ("base", "novel")}
    everything["all"] = together([everything["base"], everything["novel"]], "all")
    config = compose(["method=coop", "dataset=imagenet"])
    started = time.perf_counter()
    rows = measure_all(everything, config, names[:BASE])
    print(
        f"metrics {len(rows)} rows of {2 * TEST_IMAGES:,} test images among {len(names)} classes, calibrators "
        f"{', '.join(config.calibrators)}: {time.perf_counter() - started:.0f} s, peak "
        f"{peak_memory_mb(torch.device('cpu')):,.0f} MB",
        flush=True,
    )


def main() -> None:
    """Make the tree and measure each run, then the metrics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="coop,cocoop,maple")
    parser.add_argument("--targets", default="own,all", help="own = each half among its classes, all = among all 1000")
    parser.add_argument("--train", type=int, default=4, help="base classes with training images (1 to 500)")
    parser.add_argument(
        "--test", type=int, default=16, help="base classes with a test image (8 to 500; 256 fill a batch)"
    )
    parser.add_argument("--metrics", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.metrics:
        all_test_images()
        return
    if not (1 <= wanted.train <= BASE and 8 <= wanted.test <= BASE):
        parser.error(f"--train is 1 to {BASE}, --test 8 to {BASE}.")
    with tempfile.TemporaryDirectory() as place:
        make_tree(Path(place), wanted.train, wanted.test)
        for target in wanted.targets.split(","):
            for method in wanted.methods.split(","):
                whole_run(Path(place), method, target)
    subprocess.run([sys.executable, __file__, "--metrics"], check=True)


if __name__ == "__main__":
    main()
