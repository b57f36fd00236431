"""Other people's packages, where they are installed, on random and adversarial predictions."""

import numpy as np
import pytest

from promptcal import metrics
from promptcal.metrics import measure, peers
from promptcal.metrics.contract import Scored, score
from promptcal.types import Predictions

KINDS = ("random", "confident", "edges", "ties", "saturated", "float32", "binary", "one label", "two rows")


def draw(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    n, classes = (2, 3) if kind == "two rows" else (200, 2 if kind == "binary" else 5)
    probs = generator.dirichlet(np.full(classes, 0.2 if kind == "confident" else 1.0), n)
    labels = generator.integers(0, classes, n)
    if kind == "edges":
        probs = np.full((n, classes), 0.0)
        probs[:, 0] = generator.integers(1, 16, n) / 16
        probs[:, 1] = 1.0 - probs[:, 0]
    if kind == "ties":
        probs = generator.dirichlet(np.ones(classes), 3)[generator.integers(0, 3, n)]
    if kind == "saturated":
        probs[::2] = np.eye(classes)[generator.integers(0, classes, (n + 1) // 2)]
    if kind == "float32":
        probs = (probs.astype(np.float32) / probs.astype(np.float32).sum(axis=1, keepdims=True)).astype(np.float64)
    if kind == "one label":
        labels[:] = 1
    return probs, labels


@pytest.fixture(params=KINDS)
def data(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray, Scored]:
    probs, labels = draw(request.param, KINDS.index(request.param))
    names = tuple(map(str, range(probs.shape[1])))
    return probs, labels, score(Predictions(np.zeros(probs.shape), labels, names, probabilities=probs))


def test_torchmetrics(data):
    pytest.importorskip("torchmetrics")
    import torch
    from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

    probs, labels, scored = data
    tensor, target, classes = torch.tensor(probs), torch.tensor(labels), probs.shape[1]
    for norm, function in (
        ("l1", peers.torchmetrics_ece),
        ("l2", peers.torchmetrics_rmsce),
        ("max", peers.torchmetrics_mce),
    ):
        for bins in (10, 15, 20):
            theirs = float(multiclass_calibration_error(tensor, target, classes, n_bins=bins, norm=norm))
            assert function(scored, bins) == pytest.approx(theirs, abs=2e-6)
    if classes == 2:
        theirs = float(binary_calibration_error(tensor[:, 1].contiguous(), target, n_bins=15))
        assert peers.torchmetrics_binary_ece(scored) == pytest.approx(theirs, abs=2e-6)


def test_netcal(data):
    pytest.importorskip("netcal")
    from netcal.metrics import ACE, ECE, MCE

    probs, labels, scored = data
    for bins in (10, 15):
        for make, function in (
            (ECE(bins), peers.netcal_ece),
            (MCE(bins), peers.netcal_mce),
            (ACE(bins), peers.netcal_ace),
            (ECE(bins, equal_intervals=False), peers.netcal_adaptive_ece),
        ):
            try:
                theirs = make.measure(probs, labels)
            except (RuntimeError, ValueError):
                theirs = None
            ours = function(scored, bins)
            assert ours == (None if theirs is None else pytest.approx(theirs, abs=1e-9))


def test_relplot_where_nothing_is_saturated(data):
    relplot = pytest.importorskip("relplot")
    probs, labels, scored = data
    if (scored.confidence > 0.999).any():
        pytest.skip("relplot half-weights confidences of exactly 1")
    theirs = relplot.smECE(scored.confidence, scored.correct)
    assert metrics.smooth_ece(probs, labels) == pytest.approx(theirs, abs=3e-3, rel=0.02)


@pytest.mark.filterwarnings("ignore:The y_prob values do not sum to one")
def test_scikit_learn(data):
    from sklearn.metrics import accuracy_score, brier_score_loss, f1_score, log_loss, roc_auc_score

    probs, labels, scored = data
    classes = list(range(probs.shape[1]))
    assert metrics.accuracy(probs, labels) == accuracy_score(labels, probs.argmax(axis=1))
    assert metrics.nll(probs, labels) == pytest.approx(log_loss(labels, probs, labels=classes), abs=1e-9)
    theirs = f1_score(labels, probs.argmax(axis=1), labels=np.unique(labels), average="macro", zero_division=0)
    assert metrics.macro_f1(probs, labels) == pytest.approx(theirs, abs=1e-12)
    brier = brier_score_loss(labels, probs[:, 1]) * 2 if len(classes) == 2 else None
    if brier is not None:
        assert metrics.brier(probs, labels) == pytest.approx(brier, abs=1e-12)
    if 0 < scored.correct.mean() < 1:
        theirs = roc_auc_score(scored.correct, scored.confidence)
        assert metrics.auroc(probs, labels) == pytest.approx(theirs, abs=1e-12)


def test_ours_equals_torchmetrics_away_from_edges():
    """The conventions differ only at bin edges and at confidences of exactly 1."""
    probs, labels = draw("random", 0)
    names = tuple(map(str, range(probs.shape[1])))
    given = Predictions(np.zeros(probs.shape), labels, names, probabilities=probs)
    ours = {(row.metric, row.bins): row.value for row in measure(given)}
    theirs = {(row.metric, row.bins): row.value for row in measure(given, "torchmetrics")}
    for key in (("ece", 10), ("ece", 15), ("ece", 20), ("rmsce", 15), ("mce", 15)):
        assert ours[key] == pytest.approx(theirs[key], abs=1e-6)
