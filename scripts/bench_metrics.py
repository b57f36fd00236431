"""Seconds of CPU time per metric, ours and other packages', on the same predictions in one run.

    python scripts/bench_metrics.py [--n 50000] [--classes 1000]

Ratios say how many times longer the other package takes. Packages that are not installed are left out.
"""

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from promptcal import metrics
from promptcal.metrics.smooth import smooth_error
from promptcal.types import Predictions


def draw(n: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits [n, C] of an overconfident model that is right on about seven of ten samples, and labels [n]."""
    generator = np.random.default_rng(0)
    logits = (3.0 * generator.standard_normal((n, classes), dtype=np.float32)).astype(np.float32)
    labels = generator.integers(0, classes, n)
    easy = np.nonzero(generator.random(n) < 0.7)[0]
    logits[easy, labels[easy]] += 12.0
    return logits, labels


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU time of a few calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def peers(probs: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, Callable[[], object]]]:
    """By metric and package, the other implementations that are installed."""
    found: dict[str, dict[str, Callable[[], object]]] = {"ece": {}, "mce": {}, "smooth_ece": {}}
    if find_spec("torchmetrics"):
        import torch
        from torchmetrics.functional.classification import multiclass_calibration_error

        tensor, target, classes = torch.from_numpy(probs), torch.from_numpy(labels), probs.shape[1]
        for name, norm in (("ece", "l1"), ("mce", "max")):
            found[name]["torchmetrics"] = lambda norm=norm: multiclass_calibration_error(
                tensor, target, classes, n_bins=15, norm=norm
            )
    if find_spec("netcal"):
        from netcal.metrics import ECE, MCE

        found["ece"]["netcal"] = lambda: ECE(15).measure(probs, labels)
        found["mce"]["netcal"] = lambda: MCE(15).measure(probs, labels)
    if find_spec("relplot"):
        import relplot

        confidence, correct = metrics.top_label(probs, labels)
        found["smooth_ece"]["relplot"] = lambda: relplot.smECE(confidence, correct)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1000)
    arguments = parser.parse_args()
    logits, labels = draw(arguments.n, arguments.classes)
    given = Predictions(logits, labels, tuple(map(str, range(arguments.classes))))
    print(f"{arguments.n} x {arguments.classes}, CPU seconds")
    print(f"measure, everything but what is on request   {seconds(lambda: metrics.measure(given), 1):8.3f}")
    probs = given.probs()
    confidence, correct = metrics.top_label(probs, labels)
    ours: dict[str, Callable[[], object]] = {
        "ece": lambda: metrics.ece(probs, labels),
        "mce": lambda: metrics.mce(probs, labels),
        "adaptive_ece": lambda: metrics.adaptive_ece(probs, labels),
        "classwise_ece": lambda: metrics.classwise_ece(probs, labels),
        "smooth_ece": lambda: smooth_error(confidence, correct),
        "smooth_calibration_error": lambda: metrics.smooth_calibration_error(probs, labels),
        "nll": lambda: metrics.nll(probs, labels),
        "brier": lambda: metrics.brier(probs, labels),
        "aurc": lambda: metrics.aurc(probs, labels),
    }
    others = peers(probs, labels)
    for name, function in ours.items():
        mine = seconds(function)
        theirs = {package: seconds(call, 1) for package, call in others.get(name, {}).items()}
        shown = "  ".join(f"{package} {value:.3f} (x{value / mine:.1f})" for package, value in theirs.items())
        print(f"{name:<44} {mine:8.3f}  {shown}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
