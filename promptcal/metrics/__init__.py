"""Metrics: plain functions of probabilities [n, C] and labels [n], in float64; fractions unless they say otherwise."""

from promptcal.metrics.base_novel import harmonic_mean, joint, pair
from promptcal.metrics.binned import (
    adaptive_ece,
    adaptive_ece_published,
    average_calibration_error,
    binary_ece,
    classwise_ece,
    classwise_errors,
    debiased_ece_squared,
    ece,
    mce,
    mce_weighted,
    overconfidence,
    signed_gap,
    underconfidence,
)
from promptcal.metrics.comparison import Comparison, compare, holm
from promptcal.metrics.contract import Measurement, TopLabelPredictions
from promptcal.metrics.inputs import TopLabel, check_probabilities, top_label
from promptcal.metrics.intervals import CalibrationTest, calibration_test
from promptcal.metrics.kde import kde_ece
from promptcal.metrics.measurement import measure
from promptcal.metrics.neighbours import piece, proximity
from promptcal.metrics.noise import noise_floor
from promptcal.metrics.ood import ood_auroc
from promptcal.metrics.presets import PRESETS
from promptcal.metrics.proper import (
    BrierParts,
    accuracy,
    brier,
    brier_decomposition,
    clipped,
    macro_f1,
    nll,
    nll_from_logits,
)
from promptcal.metrics.selective import (
    ConfidentErrors,
    augrc,
    aurc,
    auroc,
    eaurc,
    hcfp,
    threshold_for_budget,
)
from promptcal.metrics.smooth import smooth_calibration_error, smooth_ece
from promptcal.metrics.state import CalibrationState

__all__ = [
    "PRESETS",
    "BrierParts",
    "CalibrationState",
    "CalibrationTest",
    "Comparison",
    "ConfidentErrors",
    "Measurement",
    "TopLabel",
    "TopLabelPredictions",
    "accuracy",
    "adaptive_ece",
    "adaptive_ece_published",
    "augrc",
    "aurc",
    "auroc",
    "average_calibration_error",
    "binary_ece",
    "brier",
    "brier_decomposition",
    "calibration_test",
    "check_probabilities",
    "classwise_ece",
    "classwise_errors",
    "clipped",
    "compare",
    "debiased_ece_squared",
    "eaurc",
    "ece",
    "harmonic_mean",
    "hcfp",
    "holm",
    "joint",
    "kde_ece",
    "macro_f1",
    "mce",
    "mce_weighted",
    "measure",
    "nll",
    "nll_from_logits",
    "noise_floor",
    "ood_auroc",
    "overconfidence",
    "pair",
    "piece",
    "proximity",
    "signed_gap",
    "smooth_calibration_error",
    "smooth_ece",
    "threshold_for_budget",
    "top_label",
    "underconfidence",
]
