"""The tables of docs/calibrators.md are what the code gives on the real files."""

from pathlib import Path

import numpy as np
import pytest

from promptcal.calibrators import build_calibrator
from promptcal.data.prediction_files import read_predictions
from promptcal.metrics import accuracy, brier, ece, nll
from promptcal.metrics.base_novel import take

PAGE = Path(__file__).parents[2] / "docs" / "calibrators.md"
QUICK = ("none", "temperature", "temperature_ece", "ensemble_temperature", "isotonic", "multi_isotonic", "spline")


def documented(classes):
    """The four numbers of each calibrator in the table of one file."""
    table = PAGE.read_text(encoding="utf-8").split(f"wideresnet-16-4-cifar-{classes}.npz`)")[1].split("\n\n")[1]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return {row[0]: [float(value) for value in row[1:5]] for row in cells}


@pytest.mark.parametrize("classes", [10, 100])
def test_the_documented_table_is_reproduced(test_data, classes):
    path = test_data / "logits" / f"wideresnet-16-4-cifar-{classes}.npz"
    if not path.is_file():
        pytest.skip(f"there is no {path.name} below PROMPTCAL_TEST_DATA")
    predictions = read_predictions(path)
    first, second = take(predictions, np.arange(5000)), take(predictions, np.arange(5000, 10_000))
    table = documented(classes)
    for name in QUICK if classes == 10 else QUICK[:4]:
        found = build_calibrator(name).fit(first).apply(second)
        numbers = [metric(found.probs(), found.labels) for metric in (accuracy, ece, nll, brier)]
        assert numbers == pytest.approx(table[name], abs=1e-4), name
