"""Numbers that were published with predictions."""

from pathlib import Path

import pytest

from promptcal.data.prediction_files import read_predictions
from promptcal.metrics import TopLabelPredictions, measure


@pytest.mark.parametrize(
    ("name", "accuracy", "ece", "mce"),
    [
        ("probs_resnet110_c10_logits.csv", 0.9356, 0.047503518641, 0.295798957348),
        ("probs_resnet110_c100_logits.csv", 0.7148, 0.184804543945, 0.398817125148),
    ],
)
def test_resnet110(test_data: Path, name: str, accuracy: float, ece: float, mce: float):
    """Kull et al., "Beyond temperature scaling", NeurIPS 2019, arXiv 1910.12656: the networks' published values."""
    predictions = read_predictions(test_data / "logits" / name)
    assert isinstance(predictions, TopLabelPredictions)
    rows = {(row.metric, row.bins): row.value for row in measure(predictions)}
    assert rows["accuracy", None] == pytest.approx(accuracy, abs=1e-12)
    assert rows["ece", 15] == pytest.approx(ece, abs=1e-7)
    assert rows["mce", 15] == pytest.approx(mce, abs=1e-6)
    assert ("nll", None) not in rows


@pytest.mark.parametrize(
    ("name", "ece"), [("wideresnet-16-4-cifar-10.npz", 0.0537), ("wideresnet-16-4-cifar-100.npz", 0.0581)]
)
def test_wide_resnet(test_data: Path, name: str, ece: float):
    rows = measure(read_predictions(test_data / "logits" / name))
    assert next(row.value for row in rows if row.metric == "ece") == pytest.approx(ece, abs=1e-4)
