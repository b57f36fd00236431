"""Each preset prints what its peer prints, for predictions whose values under every peer are on record."""

import json
from pathlib import Path

import numpy as np
import pytest

from promptcal.metrics import PRESETS, measure, peers
from promptcal.metrics.contract import Scored, score
from promptcal.metrics.noise import REPLICATES, calibrated_outcomes
from promptcal.types import Predictions

HARDWARE_TIES = {"edges15_top1", "edges16_exact_binary_fractions", "ties_three_levels"}
"""Here the peer's own softmax splits equal confidences by the last bit, which differs from processor to processor."""


@pytest.fixture(scope="module")
def cases(oracles: Path) -> dict[str, tuple[Scored, dict]]:
    expected = json.loads((oracles / "oracles.json").read_text())
    found = {}
    for path in sorted(oracles.glob("*.npz")):
        with np.load(path) as file:
            probs, labels = file["probs"], file["labels"]
        names = tuple(map(str, range(probs.shape[1])))
        given = Predictions(np.zeros(probs.shape), labels, names, probabilities=probs)
        found[path.stem] = (score(given), expected[path.stem], given)
    assert len(found) >= 12
    return found


COLUMNS = [
    *((f"ece_l1_{bins}", "focal_calibration", peers.focal_ece, bins) for bins in (10, 15, 20)),
    ("adaece_15", "focal_calibration", peers.focal_adaptive_ece, 15),
    ("classwise_ece_15", "focal_calibration", peers.focal_classwise_ece, 15),
    *((f"ece_l1_{bins}", "torchmetrics_f64", peers.torchmetrics_ece, bins) for bins in (10, 15, 20)),
    ("rmsce_l2_15", "torchmetrics_f64", peers.torchmetrics_rmsce, 15),
    ("mce_15", "torchmetrics_f64", peers.torchmetrics_mce, 15),
    *((f"ece_l1_{bins}", "netcal", peers.netcal_ece, bins) for bins in (10, 15, 20)),
    ("mce_15", "netcal", peers.netcal_mce, 15),
    ("ace_average_nonempty_bins_15", "netcal_ACE", peers.netcal_ace, 15),
    ("adaece_15", "netcal_ECE_equal_intervals_False", peers.netcal_adaptive_ece, 15),
    *((f"ece_l1_{bins}", "dac_clip_calibration", peers.dac_ece, bins) for bins in (10, 15, 20)),
    ("mce_15", "dac_clip_calibration", peers.dac_mce, 15),
    ("adaece_15", "dac_clip_calibration", peers.dac_adaptive_ece, 15),
    *((f"ece_l1_{bins}", "ctpt", peers.ctpt_ece, bins) for bins in (10, 15, 20)),
    *((f"ece_l1_{bins}", "calattn", peers.calattn_ece, bins) for bins in (10, 15, 20)),
    ("mce_15", "calattn", peers.calattn_mce, 15),
    ("adaece_15", "calattn", peers.calattn_adaptive_ece, 15),
    ("classwise_ece_15", "calattn_predicted_class_partition", peers.calattn_classwise_ece, 15),
]


@pytest.mark.parametrize(
    ("group", "column", "function", "bins"), COLUMNS, ids=[f"{column}-{group}" for group, column, _, _ in COLUMNS]
)
def test_columns(cases, group, column, function, bins):
    compared = 0
    for name, (scored, expected, _) in cases.items():
        if function is peers.focal_adaptive_ece and name in HARDWARE_TIES:
            continue
        theirs = expected[group].get(column)
        theirs = theirs if isinstance(theirs, float) else None
        ours = function(scored, bins)
        assert ours == (None if theirs is None else pytest.approx(theirs, abs=1e-6)), name
        compared += theirs is not None
    assert compared >= 9


def test_binary_column(cases):
    scored, expected, _ = cases["binary_overconfident"]
    theirs = expected["binary_ece_l1_15"]["torchmetrics_binary(P1 vs y)"]
    assert peers.torchmetrics_binary_ece(scored) == pytest.approx(theirs, abs=1e-6)


def test_calattn_smooth_column(cases):
    for name, (scored, expected, _) in cases.items():
        theirs = expected["smece"]["calattn_nadaraya_watson_0.05"]
        assert peers.calattn_smooth_ece(scored) == pytest.approx(theirs, abs=1e-6), name


@pytest.mark.parametrize(
    ("preset", "column"),
    [
        ("focal_calibration", "focal_calibration"),
        ("torchmetrics", "torchmetrics_f64"),
        ("netcal", "netcal"),
        ("dac10", "dac_clip_calibration"),
        ("ctpt20", "ctpt"),
        ("calattn_repo", "calattn"),
        ("tcpt10", "own_right_closed_edges_k_over_B"),
        ("guo15", "own_right_closed_edges_k_over_B"),
    ],
)
def test_measure_with_a_preset(cases, preset, column):
    headline = {"dac10": 10, "tcpt10": 10, "netcal": 10, "ctpt20": 20}.get(preset, 15)
    for _, expected, given in cases.values():
        rows = [row for row in measure(given, preset) if row.metric == "ece"]
        assert rows[0].bins == headline
        assert {row.preset for row in rows} == {preset}
        for row in rows:
            theirs = expected[f"ece_l1_{row.bins}"][column]
            assert row.value == (pytest.approx(theirs, abs=1e-6) if isinstance(theirs, float) else None)


def test_every_preset_reports_accuracy_and_proper_scores_too():
    probs = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
    given = Predictions(np.log(probs), np.array([0, 1, 2, 0]), ("a", "b", "c"))
    for preset in PRESETS:
        names = [row.metric for row in measure(given, preset)]
        assert {"accuracy", "nll", "brier", "confidence", "signed_gap", "ece"} <= set(names)


def test_known_faults_of_peers_without_any_data():
    """Hard one-hot predictions, one in five wrong: two tools print 0 (the truth is 0.2)."""
    probs, labels = np.eye(3)[[0, 1, 2, 0, 1]], np.array([0, 1, 2, 0, 2])
    given = score(Predictions(np.zeros((5, 3)), labels, ("a", "b", "c"), probabilities=probs))
    assert peers.dac_ece(given) == 0.0
    assert peers.focal_adaptive_ece(given) == 0.0
    assert peers.ctpt_ece(given) == pytest.approx(0.2)
    assert peers.torchmetrics_ece(given) == pytest.approx(0.2)
    assert peers.netcal_ece(given) == pytest.approx(0.2)


def test_focal_takes_the_softmax_of_float32_logits():
    logits = np.array([[10.0, 0.0, 1.0], [2.0, 3.0, 0.5]])
    given = score(Predictions(logits, np.array([0, 1]), ("a", "b", "c")))
    assert given.softmax_probs.dtype == np.float32
    assert peers.focal_ece(given) == pytest.approx(measure_ece(given), abs=1e-6)


def measure_ece(scored: Scored) -> float:
    return float(np.abs(scored.confidence - 1.0).sum() / len(scored))


@pytest.mark.parametrize(("tied", "expected"), [(True, 28), (False, 29)])
def test_the_noise_floor_of_a_peer_is_its_mean_over_labels_of_a_calibrated_model(tied, expected):
    generator, names = np.random.default_rng(0), tuple("abcd")
    probs = generator.dirichlet(np.full(4, 0.5), 300)
    if tied:
        probs[:90] = np.eye(4)[generator.integers(4, size=90)]  # confidences of exactly 1
        probs[90:110] = probs[110:130]
    probs = probs[np.argsort(probs.max(axis=1))]  # so that the outcomes below are those of the noise floor itself
    top = probs.argmax(axis=1)
    given = Predictions(np.zeros(probs.shape), top, names, probabilities=probs)
    floors = {
        metric: row.noise_floor
        for preset, metrics in PRESETS.items()
        for metric, row in zip(metrics, measure(given, preset), strict=True)
        if preset != "guo15" and metric.binned is None and row.noise_floor is not None
    }
    assert len(floors) == expected
    values = []
    for outcome in np.concatenate(list(calibrated_outcomes(score(given).confidence, REPLICATES))):
        simulated = score(given.replace(labels=np.where(outcome == 1.0, top, (top + 1) % 4)))
        values.append([metric.value(simulated) for metric in floors])
    for (metric, floor), mean in zip(floors.items(), np.mean(values, axis=0), strict=True):
        assert floor == pytest.approx(mean, rel=1e-5), (metric.name, metric.bins)


def test_peers_whose_error_is_not_one_of_the_top_label_have_no_noise_floor():
    probs = np.array([[0.7, 0.3], [0.1, 0.9], [0.6, 0.4]])
    given = Predictions(np.log(probs), np.array([0, 1, 1]), ("a", "b"))
    floors = {
        (preset, row.metric): row.noise_floor
        for preset in ("netcal", "torchmetrics", "focal_calibration")
        for row in measure(given, preset)
    }
    assert floors["netcal", "ece"] is None, "with two labels it bins P(class 1)"
    assert floors["torchmetrics", "binary_ece"] is None
    assert floors["focal_calibration", "classwise_ece"] is None
    assert floors["torchmetrics", "ece"] > 0
