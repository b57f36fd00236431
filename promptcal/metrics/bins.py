"""Bins and what is summed in them: the ground under every binned calibration error.

Edges are k/B in float64. ``closed="right"`` bins are (a, b] (Guo et al.), ``closed="left"`` bins [a, b); either way 0
is in the first bin and 1 in the last, so every sample counts once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from promptcal.errors import ConfigError, unknown

Binning = Callable[[np.ndarray], tuple[np.ndarray, int]]
"""From confidences [n] to the bin of each and the number of bins."""

BLOCK_ELEMENTS = 1 << 22
"""How many probabilities are looked at together where a [n, C] table is walked in blocks of rows."""


@dataclass(frozen=True)
class BinSums:
    """Per bin: the number of samples, the sum of their confidences and the sum of their outcomes.

    The last axis is the bin. Leading axes are replicates (resampled data, simulated outcomes), and the errors below
    then have those axes; without them they are plain numbers.
    """

    count: Float[np.ndarray, "*c B"]
    confidence: Float[np.ndarray, "*f B"]
    outcome: Float[np.ndarray, "*o B"]

    @property
    def weight(self) -> Float[np.ndarray, "*c B"]:
        """The share of the samples in each bin."""
        result: np.ndarray = self.count / self.count.sum(axis=-1, keepdims=True)
        return result

    @property
    def accuracy(self) -> Float[np.ndarray, "*o B"]:
        """The mean outcome of each bin, 0 where it is empty."""
        result: np.ndarray = self.outcome / np.maximum(self.count, 1.0)
        return result

    @property
    def gap(self) -> Float[np.ndarray, "*o B"]:
        """Mean confidence minus mean outcome of each bin, 0 where it is empty."""
        result: np.ndarray = (self.confidence - self.outcome) / np.maximum(self.count, 1.0)
        return result


def l1(sums: BinSums) -> np.ndarray:
    """The weighted mean of the absolute gaps."""
    return np.asarray((sums.weight * np.abs(sums.gap)).sum(axis=-1))


def kept_l1(sums: BinSums) -> np.ndarray:
    """The weighted mean of the absolute gaps, where the samples of the last bin weigh but their gap is left out."""
    return np.asarray((sums.weight * np.abs(sums.gap))[..., :-1].sum(axis=-1))


def l2(sums: BinSums) -> np.ndarray:
    """The root of the weighted mean of the squared gaps."""
    return np.asarray(np.sqrt((sums.weight * sums.gap**2).sum(axis=-1)))


def maximum(sums: BinSums) -> np.ndarray:
    """The largest absolute gap, unweighted."""
    return np.asarray(np.abs(sums.gap).max(axis=-1))


def weighted_maximum(sums: BinSums) -> np.ndarray:
    """The largest absolute gap times its share of the samples."""
    return np.asarray((sums.weight * np.abs(sums.gap)).max(axis=-1))


def average(sums: BinSums) -> np.ndarray:
    """The unweighted mean absolute gap of the bins that are not empty."""
    return np.asarray(np.abs(sums.gap).sum(axis=-1) / np.count_nonzero(sums.count, axis=-1))


def over(sums: BinSums) -> np.ndarray:
    """The weighted sum of the positive gaps."""
    return np.asarray((sums.weight * np.maximum(sums.gap, 0.0)).sum(axis=-1))


def under(sums: BinSums) -> np.ndarray:
    """The weighted sum of the negative gaps, as a positive number."""
    return np.asarray((sums.weight * np.maximum(-sums.gap, 0.0)).sum(axis=-1))


def debiased_l2_squared(sums: BinSums) -> np.ndarray:
    """The weighted mean of squared gaps, each less A(1 - A)/(n_b - 1); it may be negative."""
    bias = sums.accuracy * (1.0 - sums.accuracy) / np.maximum(sums.count - 1.0, 1.0)
    return np.asarray((sums.weight * (sums.gap**2 - bias)).sum(axis=-1))


NORMS: dict[str, Callable[[BinSums], np.ndarray]] = {"l1": l1, "l2": l2, "max": maximum}


def inner_edges(bins: int) -> Float[np.ndarray, " edges"]:
    """The edges k/B between equal-width bins; raises ConfigError for fewer than one bin."""
    if bins < 1:
        raise ConfigError(f"bins={bins} makes no sense; ask for at least one bin.")
    result: np.ndarray = np.arange(1, bins) / bins
    return result


def side_of(closed: str) -> Literal["left", "right"]:
    """numpy.searchsorted's ``side`` for bins closed on the right or the left; raises ConfigError for others."""
    if closed not in ("right", "left"):
        raise ConfigError(unknown("closure", closed, ("right", "left")))
    return "left" if closed == "right" else "right"


def bin_index(values: Float[np.ndarray, "..."], bins: int, closed: str = "right") -> Int[np.ndarray, "..."]:
    """The equal-width bin of each value in [0, 1]: 0 to ``bins`` - 1.

    Raises:
        ConfigError: fewer than one bin, or an unknown closure.
    """
    result: np.ndarray = np.searchsorted(inner_edges(bins), values, side=side_of(closed))
    return result


def bin_sums(
    confidence: Float[np.ndarray, " n"], outcome: Float[np.ndarray, "*r n"], index: Int[np.ndarray, " n"], bins: int
) -> BinSums:
    """Counts, confidence sums and outcome sums of the samples, given the bin of each."""
    replicates = outcome.shape[:-1]
    cells = np.arange(math.prod(replicates))[:, None] * bins + index
    sums = np.bincount(cells.ravel(), weights=outcome.ravel(), minlength=cells.shape[0] * bins)
    return BinSums(
        count=np.bincount(index, minlength=bins).astype(np.float64),
        confidence=np.bincount(index, weights=confidence, minlength=bins).astype(np.float64, copy=False),
        outcome=sums.astype(np.float64, copy=False).reshape(*replicates, bins),
    )


def width_bins(bins: int = 15, closed: str = "right") -> Binning:
    """Equal-width bins: k/B is the edge between bins k - 1 and k."""
    return lambda confidence: (bin_index(confidence, bins, closed), bins)


def mass_edges(confidence: Float[np.ndarray, " n"], bins: int) -> Float[np.ndarray, " edges"]:
    """Edges between which about equally many samples lie: the sorted confidences interpolated at ranks k·n/B."""
    n = len(confidence)
    edges: np.ndarray = np.interp(np.linspace(0, n, bins + 1), np.arange(n), np.sort(confidence))
    return edges


def mass_bins(bins: int = 15) -> Binning:
    """Up to ``bins`` equal-mass bins (a, b]: ties stay whole, repeated edges merge, the minimum is in the first bin."""

    def assign(confidence: np.ndarray) -> tuple[np.ndarray, int]:
        edges = np.unique(mass_edges(confidence, bins))
        return np.searchsorted(edges[1:-1], confidence, side="left"), max(len(edges) - 1, 1)

    return assign


def equal_width(
    confidence: Float[np.ndarray, " n"], outcome: Float[np.ndarray, "*r n"], bins: int = 15, closed: str = "right"
) -> BinSums:
    """The sums of ``bins`` equal-width bins."""
    return bin_sums(confidence, outcome, *width_bins(bins, closed)(confidence))


def equal_mass(confidence: Float[np.ndarray, " n"], outcome: Float[np.ndarray, "*r n"], bins: int = 15) -> BinSums:
    """The sums of up to ``bins`` equal-mass bins."""
    return bin_sums(confidence, outcome, *mass_bins(bins)(confidence))


def published_mass_bins(bins: int = 15) -> Binning:
    """Equal-mass bins (a, b], and one more at the end for the samples at the very minimum, which are in none."""

    def assign(confidence: np.ndarray) -> tuple[np.ndarray, int]:
        edges = mass_edges(confidence, bins)
        index = np.searchsorted(edges[1:-1], confidence, side="left")
        return np.where(confidence > edges[0], index, bins), bins + 1

    return assign


def published_adaptive_error(
    confidence: Float[np.ndarray, " n"], outcome: Float[np.ndarray, " n"], bins: int = 15
) -> float:
    """The equal-mass error over bins (a, b] without the samples at the very minimum, weighted by their share of all."""
    return float(kept_l1(bin_sums(confidence, outcome, *published_mass_bins(bins)(confidence))))


def class_sums(
    probs: Float[np.ndarray, "n C"],
    labels: Int[np.ndarray, " n"],
    bins: int,
    closed: str,
    edges: Float[np.ndarray, " edges"] | None = None,
) -> BinSums:
    """One-vs-rest bin sums of every class, flattened class by class [C·B]; inner edges k/B unless given.

    Nearly all probabilities of many classes lie in the first bin, so only the others are sorted into bins.
    """
    n, classes = probs.shape
    edges = inner_edges(bins) if edges is None else edges
    side, lowest = side_of(closed), edges[0] if len(edges) else np.inf
    cells, rows = classes * bins, max(1, BLOCK_ELEMENTS // classes)
    count, confidence = np.zeros(cells), np.zeros(cells)
    for start in range(0, n, rows):
        block = probs[start : start + rows]
        first = block <= lowest if closed == "right" else block < lowest
        values, columns = block[~first], np.nonzero(~first)[1]
        index = columns * bins + np.searchsorted(edges, values, side=side)
        count += np.bincount(index, minlength=cells)
        confidence += np.bincount(index, weights=values, minlength=cells)
        count[::bins] += first.sum(axis=0)
        confidence[::bins] += block.sum(axis=0, dtype=np.float64, where=first)
    true = labels * bins + np.searchsorted(edges, probs[np.arange(n), labels], side=side)
    return BinSums(count, confidence, np.bincount(true, minlength=cells).astype(np.float64))
