"""Every default metric equals an independently computed value to 1e-9."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from promptcal import metrics
from promptcal.metrics.smooth import smooth_error

CASES = (
    "dirichlet_calibrated",
    "overconfident_x3",
    "underconfident_x0.4",
    "digits_logreg",
    "binary_overconfident",
    "edges15_top1",
    "edges16_exact_binary_fractions",
    "ties_three_levels",
    "n1_correct",
    "class3_absent",
    "all_correct",
    "all_wrong",
)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, oracles: Path) -> tuple[np.ndarray, np.ndarray, dict]:
    with np.load(oracles / f"{request.param}.npz") as file:
        expected = json.loads((oracles / "oracles.json").read_text())[request.param]
        return file["probs"], file["labels"], expected


def close(value: float | None, expected: float | None) -> bool:
    if value is None or expected is None:
        return value is expected
    return math.isclose(value, expected, rel_tol=0, abs_tol=1e-9)


@pytest.mark.parametrize("closed", ["right", "left"])
def test_binned_errors(case, closed):
    probs, labels, expected = case
    for bins in (10, 15, 20):
        value = metrics.ece(probs, labels, bins=bins, closed=closed)
        assert close(value, expected[f"ece_l1_{bins}"][f"own_{closed}_closed_edges_k_over_B"])
    assert close(metrics.ece(probs, labels, norm="l2", closed=closed), expected["rmsce_l2_15"][f"own_{closed}_closed"])
    assert close(metrics.mce(probs, labels, closed=closed), expected["mce_15"][f"own_{closed}_closed_max"])


def test_other_top_label_errors(case):
    probs, labels, expected = case
    adaptive, average = expected["adaece_15"], expected["ace_average_nonempty_bins_15"]
    weighted = expected["mce_15"]["own_right_closed_weighted_max(TCPT/DAC style)"]
    assert close(metrics.mce_weighted(probs, labels), weighted)
    assert close(metrics.debiased_ece_squared(probs, labels), expected["debiased_l2_squared_15"]["own_right_closed"])
    assert close(metrics.adaptive_ece(probs, labels), adaptive["own_focal_edges_min_included"])
    assert close(metrics.adaptive_ece_published(probs, labels), adaptive["own_focal_edges"])
    assert close(metrics.average_calibration_error(probs, labels), average["own_right_closed"])
    gap = expected["mean_confidence"] - expected["accuracy"]
    assert close(metrics.signed_gap(probs, labels), gap)


def test_classwise_errors(case):
    probs, labels, expected = case
    expected = expected["classwise_ece_15"]
    assert close(metrics.classwise_ece(probs, labels), expected["own_all_classes_mean"])
    assert close(metrics.classwise_ece(probs, labels, closed="left"), expected["own_all_classes_left"])
    assert close(metrics.classwise_ece(probs, labels, present_only=True), expected["own_present_classes"])


def test_smooth_error_and_its_bandwidth(case):
    probs, labels, expected = case
    value, bandwidth = smooth_error(*metrics.top_label(probs, labels))
    assert close(metrics.smooth_ece(probs, labels), expected["smece"]["own_cosine_series"])
    assert close(value, expected["smece"]["own_cosine_series"])
    assert close(bandwidth, expected["smece"]["own_cosine_series_sigma"])


def test_kernel_error_at_two_bandwidths(case):
    probs, labels, expected = case
    if len(labels) == 1:
        pytest.skip("a kernel error of one sample does not exist")
    for bandwidth in (0.02, 0.1):
        value = metrics.kde_ece(probs, labels, bandwidth=bandwidth)
        peer = expected["kde_ece_top_label_l1"][f"popordanoska_bw{bandwidth}"]
        assert value == pytest.approx(peer, abs=2e-3 if expected["share_conf_exactly_1"] else 1e-5)


def test_proper_scores(case):
    probs, labels, expected = case
    assert close(metrics.accuracy(probs, labels), expected["accuracy"])
    assert close(metrics.brier(probs, labels), expected["brier_sum"]["own"])
    assert close(metrics.nll(probs, labels), expected["nll"]["own_eps_finfo64"])
    assert (metrics.clipped(probs, labels) > 0) == (expected["nll"]["own_no_clip"] == "inf")
    assert close(sum_of_parts(metrics.brier_decomposition(probs, labels)), expected["brier_sum"]["own"])


def sum_of_parts(parts: metrics.BrierParts) -> float:
    return parts.reliability - parts.resolution + parts.uncertainty + parts.within_bin


def test_selective_metrics(case):
    probs, labels, expected = case
    assert close(metrics.auroc(probs, labels), expected["auroc_correctness"]["sklearn"])
    assert close(metrics.aurc(probs, labels), expected["aurc"]["own_mean_tie_averaged"])
    assert close(metrics.eaurc(probs, labels), expected["aurc"]["own_eaurc"])
    assert close(metrics.augrc(probs, labels), expected["aurc"]["own_augrc_mean"])
    for threshold, rates in expected["hcfp"].items():
        for kind, name in (("joint", "joint"), ("given_confident", "given_high_conf"), ("given_wrong", "given_wrong")):
            assert close(metrics.hcfp(probs, labels, threshold=float(threshold), kind=kind).rate, rates[name])


def test_measure_returns_the_same_numbers(case):
    from promptcal.types import Predictions

    probs, labels, expected = case
    names = tuple(map(str, range(probs.shape[1])))
    given = Predictions(np.zeros(probs.shape), labels, names, probabilities=probs)
    rows = {(row.metric, row.bins): row for row in metrics.measure(given)}
    assert close(rows["ece", 15].value, expected["ece_l1_15"]["own_right_closed_edges_k_over_B"])
    assert close(rows["ece", 10].value, expected["ece_l1_10"]["own_right_closed_edges_k_over_B"])
    assert close(rows["adaptive_ece", 15].value, expected["adaece_15"]["own_focal_edges_min_included"])
    assert close(rows["classwise_ece", 15].value, expected["classwise_ece_15"]["own_all_classes_mean"])
    assert close(rows["smooth_ece", None].value, expected["smece"]["own_cosine_series"])
    assert close(rows["saturated", None].value, expected["share_conf_exactly_1"])
    assert close(rows["nll", None].value, expected["nll"]["own_eps_finfo64"])
    assert close(rows["hcfp_given_wrong@0.9", None].value, expected["hcfp"]["0.9"]["given_wrong"])
