"""How much memory all of ImageNet's classes take: one training step and one evaluation batch of each learner.

    python scripts/bench_memory.py [--classes 1000] [--learners coop,cocoop,maple]

ViT-B/16 with random weights (nothing is downloaded), ImageNet's class names, the published batch sizes, cross-entropy
with both terms of TCPT. Each learner runs in a process of its own; printed is the largest resident set of that process.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator

import torch
from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

from promptcal.config import build, compose
from promptcal.models.classifier import Classifier
from promptcal.models.load import open_clip_model
from promptcal.training.loop import Recipe, fit
from promptcal.training.memory import peak_memory_mb
from promptcal.training.settings import Training
from promptcal.types import Batch, ClassNames

BATCH = {"coop": 32, "cocoop": 1, "maple": 4}
EVALUATED = {"coop": 256, "cocoop": 8, "maple": 8}


class One:
    """A training set of a single batch."""

    steps = 1

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batch, whatever the epoch."""
        del number
        return iter([self.batch])


def measure(method: str, classes: int) -> None:
    """One step and one evaluation batch; prints a line."""
    config = compose([f"method={method}", "plugin=[margin,moments]"])
    clip = open_clip_model("ViT-B-16-quickgelu", "random")
    names = ClassNames(tuple(IMAGENET_CLASSNAMES)[:classes])
    generator = torch.Generator().manual_seed(0)
    learner = build(config.learner, clip=clip, classes=names, generator=generator)
    bound = Classifier(clip, learner).bind(names)
    terms = {name: build(node, clip=clip, classes=names) for name, node in config.losses.items() if node}

    def batch(n: int) -> Batch:
        pixels = torch.randn(n, 3, 224, 224, generator=generator) if learner.prompts_image else None
        features = None if learner.prompts_image else torch.randn(n, clip.embed_dim, generator=generator)
        return Batch(torch.arange(n) % classes, pixels=pixels, features=features)

    start = time.perf_counter()
    fit(bound, One(batch(BATCH[method])), Recipe(terms), Training(epochs=1, batch_size=BATCH[method]))
    trained, training = time.perf_counter() - start, peak_memory_mb(clip.device)
    with torch.no_grad():
        logits = bound(batch(EVALUATED[method])).logits
    print(
        f"{method:<8}C={classes} step of {BATCH[method]} images: {trained:6.1f} s, peak {training:8,.0f} MB; "
        f"evaluation of {len(logits)} images: peak {peak_memory_mb(clip.device):8,.0f} MB",
        flush=True,
    )


def main() -> None:
    """Measure each learner in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--learners", default="coop,cocoop,maple")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.one:
        measure(wanted.one, wanted.classes)
        return
    for method in wanted.learners.split(","):
        subprocess.run([sys.executable, __file__, "--one", method, "--classes", str(wanted.classes)], check=True)


if __name__ == "__main__":
    main()
