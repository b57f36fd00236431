"""Other people's conventions, digit by digit, faults included: to compare with a number that somebody printed.

Each function takes a checked split and gives what the named tool would print, as a fraction, or None where the tool
raises. None of this is recommended; ``promptcal.metrics`` has the metrics to use.
"""

import numpy as np
import torch

from promptcal.metrics.bins import BinSums, average, bin_sums, class_sums, l1, l2, maximum, published_adaptive_error
from promptcal.metrics.contract import Scored


def float32_edges(bins: int) -> np.ndarray:
    """Edges as torch.linspace makes them in float32; several differ from k/B in the last digit."""
    edges: np.ndarray = torch.linspace(0, 1, bins + 1).numpy()
    return edges


def left_closed(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The bin [a, b) of each value; the last edge itself is one bin further."""
    index: np.ndarray = np.searchsorted(edges, values, side="right") - 1
    return index


def _top(probs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(np.float64)


def _right_closed_error(values: np.ndarray, outcome: np.ndarray, edges: np.ndarray) -> float:
    """The l1 error over bins (a, b]; a value of exactly 0 is in none, but counts in the total."""
    index = np.searchsorted(edges, values, side="left") - 1
    kept = (index >= 0) & (index < len(edges) - 1)
    sums = bin_sums(values[kept].astype(np.float64), outcome[kept], index[kept], len(edges) - 1)
    return float(np.abs(sums.confidence - sums.outcome).sum() / len(values))


# --- focal_calibration: Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020 -----------


def focal_ece(scored: Scored, bins: int = 15) -> float:
    """ECE over (a, b] with float32 edges; a confidence of 0 is dropped."""
    return _right_closed_error(*_top(scored.softmax_probs, scored.labels), float32_edges(bins))


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
    """Bins [a, b) in float32, and one more bin for values of exactly 1."""
    confidence = values.astype(np.float32)
    return bin_sums(confidence.astype(np.float64), outcome, left_closed(confidence, float32_edges(bins)), bins + 1)


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
    margin = np.finfo(np.float64).eps
    confidence = np.clip(confidence, margin, 1.0 - margin)
    edges = np.linspace(0.0, 1.0, bins + 1)
    if not equal_intervals:
        edges = np.quantile(confidence, edges)
        edges[0], edges[-1] = 0.0, 1.0
        if (np.diff(edges) <= 0).any():
            return None
    return bin_sums(confidence, outcome, left_closed(confidence, edges), bins)


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
    index = left_closed(scored.confidence, np.linspace(0.0, 1.0, bins + 1))
    inside = index < bins
    gap = bin_sums(scored.confidence[inside], scored.correct[inside], index[inside], bins).gap
    weight = np.bincount(np.minimum(index, bins - 1), minlength=bins) / len(scored)
    return float(weight @ np.abs(gap))


def dac_mce(scored: Scored, bins: int = 10) -> float:
    """The largest gap times its share of the samples."""
    index = np.minimum(left_closed(scored.confidence, np.linspace(0.0, 1.0, bins + 1)), bins - 1)
    sums = bin_sums(scored.confidence, scored.correct, index, bins)
    return float((sums.weight * np.abs(sums.gap)).max())


def dac_adaptive_ece(scored: Scored, bins: int = 10) -> float:
    """ECE over [a, b) between averaged-inverted-cdf quantiles, repeated edges merged (scikit-learn's KBins)."""
    quantiles = np.quantile(scored.confidence, np.linspace(0.0, 1.0, bins + 1), method="averaged_inverted_cdf")
    edges = np.unique(quantiles)
    index = np.searchsorted(edges[1:-1], scored.confidence, side="right")
    return float(l1(bin_sums(scored.confidence, scored.correct, index, max(len(edges) - 1, 1))))


# --- ctpt20: Yoon et al., "C-TPT: Calibrated Test-Time Prompt Tuning", ICLR 2024, arXiv 2403.14119 --------------------


def ctpt_ece(scored: Scored, bins: int = 20) -> float:
    """ECE over (a, b] with numpy.linspace edges; a confidence of 0 is dropped."""
    return _right_closed_error(scored.confidence, scored.correct, np.linspace(0.0, 1.0, bins + 1))


# --- calattn_repo: the code published with CalAttn, arXiv 2508.08547 --------------------------------------------------


def _calattn_sums(scored: Scored, bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    probs = scored.single_probs
    confidence, correct = _top(probs, scored.labels)
    index = np.minimum((confidence * np.float32(bins)).astype(np.int64), bins - 1)
    return probs, confidence.astype(np.float64), correct, index


def calattn_ece(scored: Scored, bins: int = 15) -> float:
    """ECE over the bins floor(confidence · B) in float32."""
    _, confidence, correct, index = _calattn_sums(scored, bins)
    return float(l1(bin_sums(confidence, correct, index, bins)))


def calattn_mce(scored: Scored, bins: int = 15) -> float:
    """The largest gap of those bins (the tool's summary leaves it out silently)."""
    _, confidence, correct, index = _calattn_sums(scored, bins)
    return float(maximum(bin_sums(confidence, correct, index, bins)))


def calattn_adaptive_ece(scored: Scored, bins: int = 15) -> float:
    """Equal counts: sorted samples cut at floor(k·n/B), which splits ties by row order."""
    _, confidence, correct, _ = _calattn_sums(scored, bins)
    order = np.argsort(confidence, kind="stable")
    running = np.concatenate([[0.0], np.cumsum((confidence - correct)[order])])
    cuts = np.arange(bins + 1) * len(scored) // bins
    return float(np.abs(np.diff(running[cuts])).sum() / len(scored))


def calattn_classwise_ece(scored: Scored, bins: int = 15) -> float:
    """The top-label ECE among samples of each predicted class, averaged over the predicted classes."""
    probs, confidence, correct, index = _calattn_sums(scored, bins)
    _, group, size = np.unique(probs.argmax(axis=1), return_inverse=True, return_counts=True)
    sums = bin_sums(confidence, correct, group * bins + index, len(size) * bins)
    gaps = np.abs(sums.confidence - sums.outcome).reshape(len(size), bins)
    return float((gaps.sum(axis=1) / size).mean())


def calattn_smooth_ece(scored: Scored, bandwidth: float = 0.05) -> float:
    """Mean |Nadaraya-Watson accuracy - confidence| with a fixed Gaussian bandwidth, on at most 5000 samples."""
    rows = np.linspace(0, len(scored) - 1, min(len(scored), 5000)).astype(np.int64)
    confidence, correct = scored.confidence[rows], scored.correct[rows]
    kernel = np.exp(-((confidence[:, None] - confidence) ** 2) / (2.0 * bandwidth**2))
    return float(np.abs(kernel @ correct / kernel.sum(axis=1) - confidence).mean())
