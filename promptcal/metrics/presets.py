"""Which metrics ``measure`` computes, under which convention: ours, and those of other people's tools."""

from collections.abc import Callable

import numpy as np

from promptcal.errors import MissingField
from promptcal.metrics import bins, peers, proper, selective
from promptcal.metrics.binned import classwise_ece
from promptcal.metrics.contract import Metric, Scored, binned_metric, level_metric, mean_metric
from promptcal.metrics.kde import kernel_error
from promptcal.metrics.neighbours import proximity, proximity_error
from promptcal.metrics.smooth import lipschitz_supremum, smooth_error


def nll_rows(scored: Scored) -> np.ndarray:
    """-log p of the label for each row: from logits where there are some, else from clipped probabilities."""
    return proper.row_nll(scored.probs, scored.labels) if scored.nll is None else scored.nll


def _clipped(scored: Scored) -> float:
    return 0.0 if scored.logits is not None else float(proper.clipped(scored.probs, scored.labels))


def _piece(scored: Scored) -> float:
    if scored.image_features is None:
        raise MissingField(
            "'piece' needs image features; 'promptcal run' saves them, probabilities alone do not have them."
        )
    return proximity_error(scored.confidence, scored.correct, proximity(scored.image_features))


def _hcfp(kind: str, threshold: float) -> Metric:
    def rows(scored: Scored) -> np.ndarray:
        return selective.confident_error_rows(scored.confidence, scored.correct, threshold, kind)

    return mean_metric(f"hcfp_{kind}@{threshold:g}", rows)


ALWAYS = (
    mean_metric("accuracy", lambda scored: scored.correct),
    mean_metric("nll", nll_rows, unit="nats", all_classes=True),
    mean_metric("brier", lambda scored: proper.row_brier(scored.probs, scored.labels), "score", all_classes=True),
    mean_metric("confidence", lambda scored: scored.confidence),
    mean_metric("signed_gap", lambda scored: scored.confidence - scored.correct),
)
"""What every preset reports beside its own numbers: an ECE alone says little."""

GUO15 = (
    binned_metric("ece", bins.l1, 15, norm="l1"),
    binned_metric("ece", bins.l1, 10, norm="l1"),
    binned_metric("ece", bins.l1, 20, norm="l1"),
    binned_metric("rmsce", bins.l2, 15, norm="l2"),
    binned_metric("debiased_ece_squared", bins.debiased_l2_squared, 15, norm="l2", unit="squared fraction"),
    binned_metric("mce", bins.maximum, 15, norm="max"),
    binned_metric("mce_weighted", bins.weighted_maximum, 15, norm="max"),
    binned_metric("overconfidence", bins.over, 15, norm="l1"),
    binned_metric("underconfidence", bins.under, 15, norm="l1"),
    binned_metric("adaptive_ece", bins.l1, 15, norm="l1", binning=bins.mass_bins(15)),
    Metric(
        "classwise_ece",
        lambda scored: classwise_ece(scored.probs, scored.labels),
        bins=15,
        norm="l1",
        closed="right",
        all_classes=True,
    ),
    Metric("smooth_ece", lambda scored: smooth_error(scored.confidence, scored.correct)),
    Metric("macro_f1", lambda scored: proper.macro_f1_of(scored.predicted, scored.labels)),
    level_metric("auroc", selective.roc_area),
    level_metric("aurc", selective.risk_coverage_area),
    level_metric("eaurc", selective.excess_area),
    level_metric("augrc", selective.generalised_area),
    _hcfp("joint", 0.9),
    _hcfp("given_confident", 0.9),
    _hcfp("given_wrong", 0.9),
    mean_metric("saturated", lambda scored: (scored.confidence == 1.0).astype(np.float64)),
    Metric("nll_clipped", _clipped, unit="rows", all_classes=True),
)

ON_REQUEST = {
    "kde_ece": Metric("kde_ece", lambda scored: kernel_error(scored.confidence, scored.correct), norm="l1"),
    "smooth_calibration_error": Metric(
        "smooth_calibration_error", lambda scored: lipschitz_supremum(scored.confidence, scored.correct)
    ),
    "piece": Metric("piece", _piece, bins=10, norm="l1", closed="right"),
}
"""Slow metrics, computed when they are asked for."""


def _peer(name: str, function: Callable[[Scored, int], float | None], bins_: int, closed: str = "left") -> Metric:
    """A peer's metric with its bin count, and its noise floor where it is one of the top label."""
    norm = "max" if name.startswith("mce") else "l2" if name == "rmsce" else "l1"
    return Metric(
        name,
        lambda scored: function(scored, bins_),
        bins=bins_,
        norm=norm,
        closed=closed,
        all_classes=True,
        floor=lambda scored: peers.top_label_form(function, scored, bins_),
    )


def _eces(function: Callable[[Scored, int], float | None], headline: int, closed: str = "left") -> tuple[Metric, ...]:
    """A peer's ECE at the number of bins it prints, then at the other usual ones."""
    counts = (headline, *(count for count in (10, 15, 20) if count != headline))
    return tuple(_peer("ece", function, count, closed) for count in counts)


PRESETS: dict[str, tuple[Metric, ...]] = {
    "guo15": ALWAYS + GUO15,
    "focal_calibration": (
        *ALWAYS,
        *_eces(peers.focal_ece, 15, "right"),
        _peer("adaptive_ece", peers.focal_adaptive_ece, 15, "right"),
        _peer("classwise_ece", peers.focal_classwise_ece, 15, "right"),
    ),
    "torchmetrics": (
        *ALWAYS,
        *_eces(peers.torchmetrics_ece, 15),
        _peer("rmsce", peers.torchmetrics_rmsce, 15),
        _peer("mce", peers.torchmetrics_mce, 15),
        _peer("binary_ece", peers.torchmetrics_binary_ece, 15),
    ),
    "netcal": (
        *ALWAYS,
        *_eces(peers.netcal_ece, 10),
        _peer("mce", peers.netcal_mce, 10),
        _peer("average_calibration_error", peers.netcal_ace, 10),
        _peer("adaptive_ece", peers.netcal_adaptive_ece, 10),
    ),
    "dac10": (
        *ALWAYS,
        *_eces(peers.dac_ece, 10),
        _peer("mce_weighted", peers.dac_mce, 10),
        _peer("adaptive_ece", peers.dac_adaptive_ece, 10),
    ),
    "tcpt10": (
        *ALWAYS,
        *(binned_metric("ece", bins.l1, count, norm="l1") for count in (10, 15, 20)),
        binned_metric("mce_weighted", bins.weighted_maximum, 10, norm="max"),
        _peer("adaptive_ece", peers.dac_adaptive_ece, 10),
    ),
    "ctpt20": (*ALWAYS, *_eces(peers.ctpt_ece, 20, "right")),
    "calattn_repo": (
        *ALWAYS,
        *_eces(peers.calattn_ece, 15),
        _peer("mce", peers.calattn_mce, 15),
        _peer("adaptive_ece", peers.calattn_adaptive_ece, 15),
        _peer("classwise_ece", peers.calattn_classwise_ece, 15),
        Metric("smooth_ece_nadaraya_watson", peers.calattn_smooth_ece),
    ),
}
"""Our numbers (guo15), and what other people's tools print for the same predictions.

focal_calibration: Mukhoti et al., NeurIPS 2020, arXiv 2002.09437. torchmetrics 1.9. netcal 1.4. dac10: Wang et al.,
ICML 2024, arXiv 2402.04655. tcpt10: Sharifdeen et al., CVPR 2026, arXiv 2602.19024. ctpt20: Yoon et al., ICLR 2024,
arXiv 2403.14119. calattn_repo: the code published with CalAttn, arXiv 2508.08547.
"""
