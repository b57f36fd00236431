"""MaPLe's whole training step, image side included, with the fast text pass against the plain one.

    python scripts/bench_maple_step.py [--classes 50] [--batch 4] [--threads 2] [--rounds 3]

One step is what the training loop does: prompted image tower on the batch, text tower on all classes, cross-entropy,
backward to all learned tensors; ViT-B/16 with random weights (nothing is downloaded). Both arms alternate in one
process. The image side costs the same in both, so the best that the text pass can do is the ratio of all FLOPs, which
are counted while the step runs; printed are the ratio of the times and what share of the FLOP ratio it is.
"""

import argparse
import statistics
import time

import torch
from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from promptcal.learners.maple import MaPLe
from promptcal.models.classifier import BoundClassifier, Classifier
from promptcal.models.load import open_clip_model
from promptcal.types import Batch, ClassNames


def step(bound: BoundClassifier, batch: Batch) -> float:
    """One step; returns its loss."""
    bound.learner.zero_grad(set_to_none=True)
    loss = cross_entropy(bound(batch).logits, batch.labels)
    loss.backward()
    return float(loss.detach())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu, on a machine that others use too"
    )
    wanted = parser.parse_args()
    torch.set_num_threads(wanted.threads)
    clip = open_clip_model("ViT-B-16-quickgelu", "random")
    classes = ClassNames(tuple(dict.fromkeys(IMAGENET_CLASSNAMES))[: wanted.classes])
    generator = torch.Generator().manual_seed(0)
    learner = MaPLe(clip, generator)
    pixels = torch.randn(wanted.batch, 3, 224, 224, generator=generator)
    batch = Batch(torch.arange(wanted.batch) % wanted.classes, pixels=pixels)
    arms = {kind: Classifier(clip, learner, kind).bind(classes) for kind in ("plain", "fast")}
    flops, losses = {}, {}
    for kind, bound in arms.items():
        bound.zero_shot_moments  # noqa: B018  frozen work is done once, before training
        step(bound, batch)
        with FlopCounterMode(display=False) as counter:
            losses[kind] = step(bound, batch)
        flops[kind] = counter.get_total_flops()
    clock = time.process_time if wanted.clock == "cpu" else time.perf_counter
    times: dict[str, list[float]] = {kind: [] for kind in arms}
    for _ in range(wanted.rounds):
        for kind, bound in arms.items():
            start = clock()
            step(bound, batch)
            times[kind].append(clock() - start)
    seconds = {kind: statistics.median(values) for kind, values in times.items()}
    ratio, bound_ratio = seconds["plain"] / seconds["fast"], flops["plain"] / flops["fast"]
    off = abs(losses["plain"] - losses["fast"])
    print(f"C={wanted.classes} batch={wanted.batch} threads={wanted.threads}: losses differ by {off:.1e}")
    for kind in arms:
        print(f"{kind:<6}{seconds[kind]:>8.3f} s{flops[kind] / 1e9:>8.0f} GFLOP")
    print(f"ratio {ratio:.2f}, of FLOPs {bound_ratio:.2f}: {ratio / bound_ratio:.0%}")


if __name__ == "__main__":
    main()
