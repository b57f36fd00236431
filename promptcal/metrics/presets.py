"""Which metrics ``measure`` computes, under which convention: ours, and those of other people's tools."""

from functools import partial

import numpy as np

from promptcal.metrics import bins, proper, selective
from promptcal.metrics.binned import classwise_ece
from promptcal.metrics.contract import Metric, Scored, binned_metric, mean_metric


def _nll_rows(scored: Scored) -> np.ndarray:
    if scored.logits is not None:
        return proper.row_nll_from_logits(scored.logits, scored.labels)
    return proper.row_nll(scored.probs, scored.labels)


def _clipped(scored: Scored) -> float:
    return 0.0 if scored.logits is not None else float(proper.clipped(scored.probs, scored.labels))


def _hcfp(kind: str, threshold: float) -> Metric:
    def value(scored: Scored) -> float | None:
        return selective.confident_errors(scored.confidence, scored.correct, threshold, kind).rate

    return Metric(f"hcfp_{kind}@{threshold:g}", value, resample=True)


ALWAYS = (
    mean_metric("accuracy", lambda scored: scored.correct),
    mean_metric("nll", _nll_rows, unit="nats", all_classes=True),
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
    binned_metric("adaptive_ece", bins.l1, 15, norm="l1", sums=partial(bins.equal_mass, bins=15)),
    Metric(
        "classwise_ece",
        lambda scored: classwise_ece(scored.probs, scored.labels),
        bins=15,
        norm="l1",
        closed="right",
        all_classes=True,
    ),
    Metric("macro_f1", lambda scored: proper.macro_f1_of(scored.predicted, scored.labels), resample=True),
    Metric("auroc", lambda scored: selective.area_under_roc(scored.confidence, scored.correct), resample=True),
    Metric("aurc", lambda scored: selective.area_under_risk_coverage(scored.confidence, scored.correct), resample=True),
    Metric("eaurc", lambda scored: selective.excess_area(scored.confidence, scored.correct), resample=True),
    Metric("augrc", lambda scored: selective.generalised_area(scored.confidence, scored.correct), resample=True),
    _hcfp("joint", 0.9),
    _hcfp("given_confident", 0.9),
    _hcfp("given_wrong", 0.9),
    mean_metric("saturated", lambda scored: (scored.confidence == 1.0).astype(np.float64)),
    Metric("nll_clipped", _clipped, unit="rows", all_classes=True),
)

PRESETS: dict[str, tuple[Metric, ...]] = {"guo15": ALWAYS + GUO15}
