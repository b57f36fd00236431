"""Diagnostics of heads against direct computations."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import rankdata

from promptcal.diagnostics import correlations, diagnose, head_row, linear_cka, residual_temperature
from promptcal.errors import DataError
from promptcal.types import Predictions


@pytest.fixture(scope="module")
def predictions():
    rng = np.random.default_rng(0)
    logits = (3 * rng.standard_normal((400, 4))).astype(np.float32)
    labels = np.array([rng.choice(4, p=np.exp(log_softmax(row / 2))) for row in logits])
    temperature = rng.uniform(0.5, 1.5, 400).astype(np.float32)
    return Predictions(
        logits=logits,
        labels=labels,
        classes=("a", "b", "c", "d"),
        temperature=temperature,
        norms=(temperature + rng.uniform(0, 1, 400)).astype(np.float32),
    )


def test_correlations_are_those_of_plain_confidence(predictions):
    rows = {(row["quantity"], row["with"]): row for row in correlations(predictions)}
    assert set(rows) == {(q, o) for q in ("norm", "s") for o in ("confidence", "correct")} | {("norm", "s")}
    confidence = np.exp(log_softmax(predictions.logits.astype(float), axis=1)).max(axis=1)
    found = rows["norm", "confidence"]
    assert found["pearson"] == pytest.approx(np.corrcoef(predictions.norms, confidence)[0, 1])
    ranks = np.corrcoef(rankdata(predictions.norms), rankdata(predictions.temperature))[0, 1]
    assert rows["norm", "s"]["spearman"] == pytest.approx(ranks)
    constant = predictions.replace(temperature=np.ones(400, dtype=np.float32))
    assert {row["pearson"] for row in correlations(constant) if row["with"] == "s"} == {None}


def test_the_residual_temperature_minimises_the_nll(predictions):
    divided = predictions.logits.astype(float) / predictions.temperature[:, None].astype(float)

    def nll(log_t):
        return -log_softmax(divided / np.exp(log_t), axis=1)[np.arange(400), predictions.labels].mean()

    expected = np.exp(minimize_scalar(nll, bounds=(-2, 3), method="bounded", options={"xatol": 1e-10}).x)
    assert residual_temperature(predictions) == pytest.approx(expected, rel=1e-5)
    row = head_row(predictions, "val")
    assert row["val_s_cv"] == pytest.approx(predictions.temperature.std() / predictions.temperature.mean(), rel=1e-5)
    assert row["val_norm_q50"] == pytest.approx(np.median(predictions.norms))
    plain = predictions.replace(temperature=None, norms=None)
    assert head_row(plain, "val") == {}
    assert diagnose({"val": plain}) == []
    assert {row["kind"] for row in diagnose({"val": predictions})} == {"summary", "correlation"}


def test_linear_cka_is_the_normalised_hsic_of_linear_kernels():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((30, 5)), rng.standard_normal((30, 7))
    centre = np.eye(30) - 1 / 30

    def hsic(a, b):
        return np.trace(a @ a.T @ centre @ b @ b.T @ centre)

    assert linear_cka(x, y) == pytest.approx(hsic(x, y) / np.sqrt(hsic(x, x) * hsic(y, y)))
    rotation, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    assert linear_cka(x, 3 * x @ rotation + 1) == pytest.approx(1)
    with pytest.raises(DataError, match="30 and 29"):
        linear_cka(x, y[:29])
    with pytest.raises(DataError, match="same for all"):
        linear_cka(x, np.ones((30, 2)))
