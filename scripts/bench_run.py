"""A whole CoOp run both ways: images and texts encoded at every step, against cached features and the fast text pass.

The plain way is what the released codes do: every step runs the image tower on its batch and the text tower on all
classes at full length. The product encodes each view of each image once, keeps the features on disk, and shares what
the classes have in common. Both arms train the same learner on the same views in the same order, in one process, and
must end with the same context; the table shows times as ratios. A size that finishes is measured; the last rows scale
the measured parts to a full run (they are linear in images, steps and epochs) and are marked so.

    python scripts/bench_run.py --model mini
    python scripts/bench_run.py --model vit_b16 --classes 50 --shots 1 --epochs 2
"""

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from promptcal.data.features import FeatureCache
from promptcal.data.sources import ArrayImages
from promptcal.data.views import Augment
from promptcal.learners.coop import CoOp
from promptcal.losses.cross_entropy import CrossEntropy
from promptcal.models.classifier import Classifier
from promptcal.models.clip import FrozenClip
from promptcal.models.load import embedded, open_clip_model
from promptcal.training.images import ImageSide
from promptcal.training.loop import Recipe, fit
from promptcal.training.settings import Features, Training
from promptcal.types import ClassNames, Sample, Task


def make_task(classes: int, shots: int, side: int) -> Task:
    """Random images and real class names (open_clip's ImageNet names)."""
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

    names = tuple(dict.fromkeys(IMAGENET_CLASSNAMES))[:classes]
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(classes * shots, side, side, 3), dtype=np.uint8)
    samples = tuple(Sample(f"{i}", i % classes) for i in range(len(pixels)))
    images = ArrayImages(pixels, {sample.path: row for row, sample in enumerate(samples)})
    return Task("bench", ClassNames(names), samples, (), samples, images)


@dataclass(frozen=True)
class Times:
    """Seconds for what is done once a run, for each view of each image, and for each step."""

    once: float
    images: float
    training: float

    def scaled(self, images: float, steps: float) -> float:
        """The seconds of a run with so many times the views and the steps."""
        return self.once + self.images * images + self.training * steps


def arm(
    clip: FrozenClip, task: Task, settings: Training, cache: FeatureCache | None, kind: str
) -> tuple[Times, torch.Tensor]:
    """The seconds and the trained context of one way."""
    learner = CoOp(clip, n_context=16, generator=torch.Generator().manual_seed(1))
    bound = Classifier(clip, learner, text_pass="plain" if kind == "plain" else "fast").bind(task.classes)
    side = ImageSide(
        clip=clip,
        images=task.images,
        augment=Augment(),
        weights=clip.weights_digest(),
        cache=cache,
        prompted=kind == "plain",  # pixels at every step
        quiet=True,
    )
    started = time.perf_counter()
    bound.zero_shot_moments  # noqa: B018  frozen texts are encoded once a run
    frozen = time.perf_counter() - started
    started = time.perf_counter()
    batches = side.batches(task, settings, Features(), seed=1)
    prepared = time.perf_counter()
    fit(bound, batches, Recipe({"cross_entropy": CrossEntropy()}), settings)
    return Times(frozen, prepared - started, time.perf_counter() - prepared), learner.context.detach().clone()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini", choices=["mini", "vit_b16"], help="vit_b16 has random weights")
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--shots", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--full", type=int, nargs=2, default=(16, 50), metavar=("SHOTS", "EPOCHS"), help="scaled to")
    arguments = parser.parse_args()
    clip = embedded() if arguments.model == "mini" else open_clip_model("ViT-B-16-quickgelu", "random", name="vit_b16")
    task = make_task(arguments.classes, arguments.shots, clip.transform.size)
    settings = Training(epochs=arguments.epochs, batch_size=min(arguments.batch_size, len(task.train)))
    arm(clip, replace(task, train=task.train[: settings.batch_size]), replace(settings, epochs=1), None, "warm-up")
    with tempfile.TemporaryDirectory() as folder:
        cache = FeatureCache(Path(folder))
        plain, plain_context = arm(clip, task, settings, None, "plain")
        first, context = arm(clip, task, settings, cache, "fill")
        later, again = arm(clip, task, settings, cache, "hit")
    difference = float((context - plain_context).norm() / plain_context.norm())
    if not torch.equal(context, again):
        raise SystemExit("the filled and the cached run differ, which they must not.")
    steps = settings.epochs * max(1, len(task.train) // settings.batch_size)
    images = settings.epochs * len(task.train)
    print(
        f"{clip.name}: {arguments.classes} classes x {arguments.shots} shots, {settings.epochs} epochs, {steps} steps"
    )
    print(f"contexts of the two ways differ by {difference:.1e} (relative)")
    print(f"{'way':<34}{'texts s':>9}{'images s':>10}{'training s':>12}{'total s':>10}{'ratio':>8}")
    ways = {"plain: everything at every step": plain, "first run: fills the cache": first, "later runs: cached": later}
    for name, times in ways.items():
        total = times.scaled(1, 1)
        print(
            f"{name:<34}{times.once:>9.2f}{times.images:>10.2f}{times.training:>12.2f}{total:>10.2f}"
            f"{plain.scaled(1, 1) / total:>7.1f}x"
        )
    shots, epochs = arguments.full
    more_images = epochs * arguments.classes * shots / images
    more_steps = epochs * max(1, arguments.classes * shots // arguments.batch_size) / steps
    if settings.batch_size != arguments.batch_size:
        return
    print(
        f"\nscaled to {shots} shots and {epochs} epochs (images x{more_images:.0f}, steps x{more_steps:.0f}; computed)"
    )
    whole = plain.scaled(more_images, more_steps)
    for name, times in ways.items():
        total = times.scaled(more_images, more_steps)
        print(f"{name:<34}{total:>41.1f}{whole / total:>7.1f}x")


if __name__ == "__main__":
    main()
