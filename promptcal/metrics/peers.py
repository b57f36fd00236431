"""Other people's conventions, digit by digit, faults included: to compare with a number that somebody printed.

Each function takes a checked split and gives what the named tool would print, as a fraction, or None where the tool
raises. None of this is recommended; ``promptcal.metrics`` has the metrics to use.
"""

from collections.abc import Callable

import numpy as np

from promptcal.metrics.bins import (
    BinSums,
    average,
    bin_sums,
    class_sums,
    kept_l1,
    l1,
    l2,
    maximum,
    published_adaptive_error,
    published_mass_bins,
)
from promptcal.metrics.contract import Binned, Scored
from promptcal.metrics.peer_bins import (
    calattn_bins,
    calattn_count_bins,
    ctpt_form,
    dac_adaptive_form,
    dac_form,
    dac_mce_form,
    float32_edges,
    focal_form,
    left_closed,
    netcal_clipped,
    netcal_edges,
    torchmetrics_bins,
)


def _top(probs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(np.float64)


def _error(form: Binned, values: np.ndarray, outcome: np.ndarray) -> float:
    """An error from its form; the bins are those of the values in their own precision."""
    return float(form.reduce(bin_sums(values.astype(np.float64), outcome, *form.binning(values))))


# --- focal_calibration: Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020 -----------


def focal_ece(scored: Scored, bins: int = 15) -> float:
    """ECE over (a, b] with float32 edges; a confidence of 0 is dropped."""
    return _error(focal_form(bins), *_top(scored.softmax_probs, scored.labels))


def focal_adaptive_ece(scored: Scored, bins: int = 15) -> float:
    """Adaptive ECE without the samples of the smallest confidence."""
    confidence, correct = _top(scored.softmax_probs, scored.labels)
    return published_adaptive_error(confidence.astype(np.float64), correct, bins)


def focal_classwise_ece(scored: Scored, bins: int = 15) -> float:
    """Classwise ECE over the classes up to the largest label; probabilities of 0 are dropped."""
    probs, labels = scored.softmax_probs, scored.labels
    sums = class_sums(probs, labels, bins, "right", float32_edges(bins)[1:-1])
    dropped = labels[probs[np.arange(len(labels)), labels] == 0.0]
    outcome = sums.outcome - np.bincount(dropped * bins, minlength=len(sums.outcome))
    errors = np.abs(sums.confidence - outcome).reshape(-1, bins).sum(axis=1) / len(labels)
    return float(errors[: labels.max() + 1].mean())


# --- torchmetrics 1.9: multiclass and binary calibration error -------------------------------------------------------


def torchmetrics_sums(values: np.ndarray, outcome: np.ndarray, bins: int) -> BinSums:
    """The sums of those bins, of values in float32."""
    confidence = values.astype(np.float32)
    return bin_sums(confidence.astype(np.float64), outcome, *torchmetrics_bins(bins)(confidence))


def torchmetrics_ece(scored: Scored, bins: int = 15) -> float:
    """Multiclass calibration error, norm l1."""
    return float(l1(torchmetrics_sums(*_top(scored.single_probs, scored.labels), bins)))


def torchmetrics_rmsce(scored: Scored, bins: int = 15) -> float:
    """Multiclass calibration error, norm l2."""
    return float(l2(torchmetrics_sums(*_top(scored.single_probs, scored.labels), bins)))


def torchmetrics_mce(scored: Scored, bins: int = 15) -> float:
    """Multiclass calibration error, norm max."""
    return float(maximum(torchmetrics_sums(*_top(scored.single_probs, scored.labels), bins)))


def torchmetrics_binary_ece(scored: Scored, bins: int = 15) -> float | None:
    """Binary calibration error of P(class 1) against the label; None unless there are two classes."""
    if scored.probs.shape[1] != 2:
        return None
    return float(l1(torchmetrics_sums(scored.probs[:, 1], scored.labels.astype(np.float64), bins)))


# --- netcal 1.4: Küppers et al., "Multivariate Confidence Calibration for Object Detection", CVPR Workshops 2020 ------


def netcal_sums(scored: Scored, bins: int, equal_intervals: bool = True) -> BinSums | None:
    """Bins [a, b) of clipped confidences; with at most two distinct labels those of P(class 1), or an error (None)."""
    confidence, outcome = scored.confidence, scored.correct
    if len(np.unique(scored.labels)) <= 2:
        if scored.probs.shape[1] > 2:
            return None
        confidence, outcome = scored.probs[:, -1], scored.labels.astype(np.float64)
    edges, confidence = netcal_edges(confidence, bins, equal_intervals), netcal_clipped(confidence)
    return None if edges is None else bin_sums(confidence, outcome, left_closed(confidence, edges), bins)


def netcal_form(
    reduce: Callable[[BinSums], np.ndarray], scored: Scored, bins: int, equal_intervals: bool = True
) -> Binned | None:
    """The form of its errors of the top label; None where it takes P(class 1) or raises."""
    edges = netcal_edges(scored.confidence, bins, equal_intervals)
    if edges is None or len(np.unique(scored.labels)) <= 2:
        return None
    return Binned(lambda values: (left_closed(netcal_clipped(values), edges), bins), reduce)


def netcal_ece(scored: Scored, bins: int = 10) -> float | None:
    """ECE()."""
    sums = netcal_sums(scored, bins)
    return None if sums is None else float(l1(sums))


def netcal_mce(scored: Scored, bins: int = 10) -> float | None:
    """MCE()."""
    sums = netcal_sums(scored, bins)
    return None if sums is None else float(maximum(sums))


def netcal_ace(scored: Scored, bins: int = 10) -> float | None:
    """ACE(): the average gap of the bins that are not empty, nothing adaptive."""
    sums = netcal_sums(scored, bins)
    return None if sums is None else float(average(sums))


def netcal_adaptive_ece(scored: Scored, bins: int = 10) -> float | None:
    """ECE(equal_intervals=False): quantile edges; repeated ones raise."""
    sums = netcal_sums(scored, bins, equal_intervals=False)
    return None if sums is None else float(l1(sums))


# --- dac10, tcpt10: Wang et al., "Open-Vocabulary Calibration for Fine-tuned CLIP", ICML 2024, arXiv 2402.04655 -------


def dac_ece(scored: Scored, bins: int = 10) -> float:
    """ECE over [a, b); a confidence of exactly 1 weighs in the last bin but is left out of that bin's means."""
    return _error(dac_form(bins), scored.confidence, scored.correct)


def dac_mce(scored: Scored, bins: int = 10) -> float:
    """The largest gap times its share of the samples."""
    return _error(dac_mce_form(bins), scored.confidence, scored.correct)


def dac_adaptive_ece(scored: Scored, bins: int = 10) -> float:
    """ECE over those bins."""
    return _error(dac_adaptive_form(bins), scored.confidence, scored.correct)


# --- ctpt20: Yoon et al., "C-TPT: Calibrated Test-Time Prompt Tuning", ICLR 2024, arXiv 2403.14119 --------------------


def ctpt_ece(scored: Scored, bins: int = 20) -> float:
    """ECE over (a, b] with numpy.linspace edges; a confidence of 0 is dropped."""
    return _error(ctpt_form(bins), scored.confidence, scored.correct)


# --- calattn_repo: the code published with CalAttn, arXiv 2508.08547 --------------------------------------------------


def calattn_ece(scored: Scored, bins: int = 15) -> float:
    """ECE over those bins."""
    return _error(Binned(calattn_bins(bins), l1), *_top(scored.single_probs, scored.labels))


def calattn_mce(scored: Scored, bins: int = 15) -> float:
    """The largest gap of those bins (the tool's summary leaves it out silently)."""
    return _error(Binned(calattn_bins(bins), maximum), *_top(scored.single_probs, scored.labels))


def calattn_adaptive_ece(scored: Scored, bins: int = 15) -> float:
    """ECE over those bins."""
    return _error(Binned(calattn_count_bins(bins), l1), *_top(scored.single_probs, scored.labels))


def calattn_classwise_ece(scored: Scored, bins: int = 15) -> float:
    """The top-label ECE among samples of each predicted class, averaged over the predicted classes."""
    probs = scored.single_probs
    confidence, correct = _top(probs, scored.labels)
    index, _ = calattn_bins(bins)(confidence)
    _, group, size = np.unique(probs.argmax(axis=1), return_inverse=True, return_counts=True)
    sums = bin_sums(confidence.astype(np.float64), correct, group * bins + index, len(size) * bins)
    gaps = np.abs(sums.confidence - sums.outcome).reshape(len(size), bins)
    return float((gaps.sum(axis=1) / size).mean())


def calattn_smooth_ece(scored: Scored, bandwidth: float = 0.05) -> float:
    """Mean |Nadaraya-Watson accuracy - confidence| with a fixed Gaussian bandwidth, on at most 5000 samples."""
    rows = np.linspace(0, len(scored) - 1, min(len(scored), 5000)).astype(np.int64)
    confidence, correct = scored.confidence[rows], scored.correct[rows]
    kernel = np.exp(-((confidence[:, None] - confidence) ** 2) / (2.0 * bandwidth**2))
    return float(np.abs(kernel @ correct / kernel.sum(axis=1) - confidence).mean())


# --- what they read on a calibrated model -----------------------------------------------------------------------------

FORMS: dict[Callable[[Scored, int], float | None], Callable[[Scored, int], Binned | None]] = {
    focal_ece: lambda scored, bins: focal_form(bins),
    focal_adaptive_ece: lambda scored, bins: Binned(published_mass_bins(bins), kept_l1),
    torchmetrics_ece: lambda scored, bins: Binned(torchmetrics_bins(bins), l1),
    torchmetrics_rmsce: lambda scored, bins: Binned(torchmetrics_bins(bins), l2),
    torchmetrics_mce: lambda scored, bins: Binned(torchmetrics_bins(bins), maximum),
    netcal_ece: lambda scored, bins: netcal_form(l1, scored, bins),
    netcal_mce: lambda scored, bins: netcal_form(maximum, scored, bins),
    netcal_ace: lambda scored, bins: netcal_form(average, scored, bins),
    netcal_adaptive_ece: lambda scored, bins: netcal_form(l1, scored, bins, equal_intervals=False),
    dac_ece: lambda scored, bins: dac_form(bins),
    dac_mce: lambda scored, bins: dac_mce_form(bins),
    dac_adaptive_ece: lambda scored, bins: dac_adaptive_form(bins),
    ctpt_ece: lambda scored, bins: ctpt_form(bins),
    calattn_ece: lambda scored, bins: Binned(calattn_bins(bins), l1),
    calattn_mce: lambda scored, bins: Binned(calattn_bins(bins), maximum),
    calattn_adaptive_ece: lambda scored, bins: Binned(calattn_count_bins(bins), l1),
}
"""The errors of the top label as functions of its confidence and correctness alone."""


def top_label_form(function: Callable[[Scored, int], float | None], scored: Scored, bins: int) -> Binned | None:
    """The form of a peer's error on a split; None where it is not one of the top label."""
    form = FORMS.get(function)
    return form and form(scored, bins)
