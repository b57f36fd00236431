"""How other people's tools bin the top label, faults included: what ``promptcal.metrics.peers`` is made of."""

import numpy as np
import torch

from promptcal.metrics.bins import Binning, BinSums, kept_l1, l1, weighted_maximum
from promptcal.metrics.contract import Binned


def float32_edges(bins: int) -> np.ndarray:
    """Edges as torch.linspace makes them in float32; several differ from k/B in the last digit."""
    edges: np.ndarray = torch.linspace(0, 1, bins + 1).numpy()
    return edges


def left_closed(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The bin [a, b) of each value; the last edge itself is one bin further."""
    index: np.ndarray = np.searchsorted(edges, values, side="right") - 1
    return index


def right_closed_bins(edges: np.ndarray) -> Binning:
    """Bins (a, b], in the precision of the edges, and one more at the end for values in none, such as exactly 0."""

    def assign(values: np.ndarray) -> tuple[np.ndarray, int]:
        index, bins = np.searchsorted(edges, values.astype(edges.dtype), side="left") - 1, len(edges) - 1
        return np.where((index >= 0) & (index < bins), index, bins), bins + 1

    return assign


def torchmetrics_bins(bins: int) -> Binning:
    """Bins [a, b) in float32, and one more bin for values of exactly 1."""
    return lambda values: (left_closed(values.astype(np.float32), float32_edges(bins)), bins + 1)


def netcal_clipped(confidence: np.ndarray) -> np.ndarray:
    """The confidences less the very ends of [0, 1]."""
    margin = np.finfo(np.float64).eps
    result: np.ndarray = np.clip(confidence, margin, 1.0 - margin)
    return result


def netcal_edges(confidence: np.ndarray, bins: int, equal_intervals: bool) -> np.ndarray | None:
    """The edges of equal-width or equal-mass bins; None, an error, where quantiles are equal."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    if not equal_intervals:
        edges = np.quantile(netcal_clipped(confidence), edges)
        edges[0], edges[-1] = 0.0, 1.0
    return None if (np.diff(edges) <= 0).any() else edges


def focal_form(bins: int) -> Binned:
    """Bins (a, b] with float32 edges; what is in none counts in the total."""
    return Binned(right_closed_bins(float32_edges(bins)), kept_l1)


def dac_l1(sums: BinSums) -> np.ndarray:
    """The weighted mean of the absolute gaps, where the last bin weighs in the one before it but has no part in it."""
    weight = sums.weight[..., :-1].copy()
    weight[..., -1] += sums.weight[..., -1]
    return np.asarray((weight * np.abs(sums.gap[..., :-1])).sum(axis=-1))


def dac_form(bins: int) -> Binned:
    """Bins [a, b), and one more for confidences of exactly 1."""
    return Binned(lambda values: (left_closed(values, np.linspace(0.0, 1.0, bins + 1)), bins + 1), dac_l1)


def dac_mce_form(bins: int) -> Binned:
    """Bins [a, b), the last of them [a, 1]."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    return Binned(lambda values: (np.minimum(left_closed(values, edges), bins - 1), bins), weighted_maximum)


def dac_adaptive_form(bins: int) -> Binned:
    """Bins [a, b) between averaged-inverted-cdf quantiles, repeated edges merged (scikit-learn's KBins)."""

    def assign(values: np.ndarray) -> tuple[np.ndarray, int]:
        edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, bins + 1), method="averaged_inverted_cdf"))
        return np.searchsorted(edges[1:-1], values, side="right"), max(len(edges) - 1, 1)

    return Binned(assign, l1)


def ctpt_form(bins: int) -> Binned:
    """Bins (a, b] with numpy.linspace edges; what is in none counts in the total."""
    return Binned(right_closed_bins(np.linspace(0.0, 1.0, bins + 1)), kept_l1)


def calattn_bins(bins: int) -> Binning:
    """The bins floor(confidence · B) in float32."""
    return lambda values: (
        np.minimum((values.astype(np.float32) * np.float32(bins)).astype(np.int64), bins - 1),
        bins,
    )


def calattn_count_bins(bins: int) -> Binning:
    """Equal counts: sorted samples cut at floor(k·n/B), which splits ties by row order."""

    def assign(values: np.ndarray) -> tuple[np.ndarray, int]:
        n, index = len(values), np.empty(len(values), dtype=np.int64)
        cuts = np.arange(1, bins) * n // bins
        index[np.argsort(values, kind="stable")] = np.searchsorted(cuts, np.arange(n), side="right")
        return index, bins

    return assign
