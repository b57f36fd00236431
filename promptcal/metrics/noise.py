"""What an error measure reads on a perfectly calibrated model: simulated outcomes, the same for every row order."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from promptcal.errors import ConfigError, unknown
from promptcal.metrics.bins import NORMS, bin_sums, width_bins
from promptcal.metrics.contract import Binned
from promptcal.metrics.inputs import check_probabilities
from promptcal.metrics.smooth import cosine_sums, fixed_point

BLOCK_ELEMENTS = 1 << 22
"""How many simulated outcomes are held at once."""
REPLICATES = 100
FLOOR_COSINES = 500
"""Cosines for the noise floor of smooth ECE: enough down to a bandwidth of 0.0056."""


def blocks(replicates: int, n: int) -> Iterator[int]:
    """Block sizes that sum to ``replicates``, so that a table [block, n] stays within ``BLOCK_ELEMENTS``."""
    step = max(1, BLOCK_ELEMENTS // n)
    for start in range(0, replicates, step):
        yield min(step, replicates - start)


def calibrated_outcomes(
    confidence: Float[np.ndarray, " n"], replicates: int, seed: int = 0
) -> Iterator[Float[np.ndarray, "r n"]]:
    """Blocks of outcomes [r, n] of a perfectly calibrated model: 1 with probability ``confidence``, independently."""
    generator = np.random.default_rng(seed)
    for block in blocks(replicates, len(confidence)):
        yield (generator.random((block, len(confidence))) < confidence).astype(np.float64)


def binned_floors(
    confidence: Float[np.ndarray, " n"], functions: Sequence[Binned], replicates: int = REPLICATES, seed: int = 0
) -> Float[np.ndarray, " functions"]:
    """The mean of each binned error over simulated outcomes."""
    confidence = np.sort(confidence)
    bins = {function.binning: function.binning(confidence) for function in functions}
    total = np.zeros(len(functions))
    for outcomes in calibrated_outcomes(confidence, replicates, seed):
        sums = {binning: bin_sums(confidence, outcomes, *assigned) for binning, assigned in bins.items()}
        total += [float(function.reduce(sums[function.binning]).sum()) for function in functions]
    return total / replicates


def smooth_floor(confidence: Float[np.ndarray, " n"], replicates: int = REPLICATES, seed: int = 0) -> float:
    """The mean smooth ECE over simulated outcomes."""
    confidence = np.sort(confidence)
    total = 0.0
    for outcomes in calibrated_outcomes(confidence, replicates, seed):
        cosines = cosine_sums(confidence, confidence - outcomes, FLOOR_COSINES, terms=1)
        total += float(fixed_point(cosines / len(confidence))[0].sum())
    return total / replicates


def noise_floor(
    probs: Float[np.ndarray, "n C"],
    *,
    bins: int = 15,
    norm: str = "l1",
    closed: str = "right",
    replicates: int = REPLICATES,
    seed: int = 0,
) -> float:
    """The expected top-label ECE of a perfectly calibrated model with these confidences: below it an ECE means nothing.

    The mean of ``ece`` over outcomes drawn as correct with probability equal to the confidence (consistency resampling:
    Bröcker, Smith, "Increasing the Reliability of Reliability Diagrams", Weather and Forecasting 22, 2007).

    >>> noise_floor(np.array([[1.0, 0.0], [1.0, 0.0]]))
    0.0
    """
    if norm not in NORMS:
        raise ConfigError(unknown("norm", norm, NORMS))
    probs, _ = check_probabilities(probs, np.zeros(len(probs), dtype=np.int64))
    confidence = np.minimum(probs.max(axis=1), 1.0)
    function = Binned(width_bins(bins, closed), NORMS[norm])
    return float(binned_floors(confidence, [function], replicates, seed)[0])
