"""Print the tables of docs/calibrators.md: calibrators fitted on one half of real predictions, scored on the other.

    python scripts/table_calibrators.py wideresnet-16-4-cifar-10.npz wideresnet-16-4-cifar-100.npz

Each file holds the softmax (``predictions``) of a classifier for 10,000 test images, and their labels
(``ground_truth``). Calibrators that need more than probabilities are left out.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

from promptcal.calibrators import build_calibrator
from promptcal.config import options
from promptcal.data.prediction_files import read_predictions
from promptcal.metrics import accuracy, brier, ece, nll
from promptcal.metrics.base_novel import take

HEAD = ("calibrator", "accuracy", "ECE", "NLL", "Brier", "keeps the class", "learned")


def rows_of(path: Path) -> list[tuple[str, ...]]:
    """A row for each calibrator: its name, four metrics, and what it learned."""
    predictions = read_predictions(path)
    half = len(predictions.labels) // 2
    first = take(predictions, np.arange(half))
    second = take(predictions, np.arange(half, 2 * half))
    names = ["none", *(name for name in options("calibrator") if name != "none")]
    rows = []
    for name in names:
        calibrator = build_calibrator(name)
        if calibrator.needs:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = calibrator.fit(first).transform(second)
        numbers = [metric(found.probs(), found.labels) for metric in (accuracy, ece, nll, brier)]
        learned = calibrator.report().removeprefix(f"{name}: ").split("; fitted")[0]
        keeps = "yes" if calibrator.keeps_argmax else "no"
        rows.append((name, *(f"{number:.4f}" for number in numbers), keeps, learned))
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """One markdown table a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    for path in parser.parse_args().files:
        lines = [HEAD, ("---",) * len(HEAD), *rows_of(path)]
        print(f"\n{path.name}\n")
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))


if __name__ == "__main__":
    main()
