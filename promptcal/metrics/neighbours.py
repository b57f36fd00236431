"""Proximity: calibration among images that have, and that lack, near neighbours."""

import numpy as np
from jaxtyping import Float, Int

from promptcal.errors import DataError
from promptcal.metrics.bins import bin_index, bin_sums, l1
from promptcal.metrics.inputs import top_label


def proximity(
    features: Float[np.ndarray, "n D"], reference: Float[np.ndarray, "m D2"] | None = None, *, neighbours: int = 10
) -> Float[np.ndarray, " n"]:
    """exp(-mean Euclidean distance to the nearest reference features): 1 in a crowd, near 0 for an outlier.

    Without a reference the features are compared with each other, each without itself. Fewer references than
    ``neighbours`` are all used.

    Xiong et al., "Proximity-Informed Calibration for Deep Neural Networks", NeurIPS 2023, arXiv 2306.04590.

    Raises:
        DataError: nothing to compare with, or a reference of another width.

    >>> proximity(np.array([[0.0], [0.0]]))
    array([1., 1.])
    """
    from sklearn.neighbors import NearestNeighbors

    others = len(features) - 1 if reference is None else len(reference)
    if others < 1:
        raise DataError("proximity needs at least one other feature vector to compare with; give more rows.")
    if reference is not None and reference.shape[1] != features.shape[1]:
        raise DataError(f"features have {features.shape[1]} numbers, those to compare with {reference.shape[1]}.")
    index = NearestNeighbors(n_neighbors=min(neighbours, others))
    index.fit(features if reference is None else reference)
    distances, _ = index.kneighbors(None if reference is None else features)
    result: np.ndarray = np.exp(-distances.mean(axis=1, dtype=np.float64))
    return result


def piece(
    probs: Float[np.ndarray, "n C"],
    labels: Int[np.ndarray, " n"],
    proximities: Float[np.ndarray, " n"],
    *,
    groups: int = 10,
    bins: int = 10,
) -> float:
    """Proximity-informed ECE: sum over proximity groups and confidence bins of n_gb/n · |mean confidence - accuracy|.

    Groups are (a, b] between quantiles of the proximity, ties whole; bins are of equal width. Never below the ECE.

    Xiong et al., "Proximity-Informed Calibration for Deep Neural Networks", NeurIPS 2023, arXiv 2306.04590.

    Raises:
        DataError: see ``check_probabilities``; not one finite proximity per row.

    >>> round(piece(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1]), np.array([0.1, 0.9])), 9)
    0.5
    """
    return proximity_error(*top_label(probs, labels), proximities, groups, bins)


def proximity_error(
    confidence: Float[np.ndarray, " n"],
    outcome: Float[np.ndarray, " n"],
    proximities: np.ndarray,
    groups: int = 10,
    bins: int = 10,
) -> float:
    """The proximity-informed error of forecasts of a 0/1 outcome."""
    if proximities.shape != confidence.shape or not np.isfinite(proximities).all():
        raise DataError(f"{len(confidence)} rows need as many finite proximities, not shape {proximities.shape}.")
    edges = np.quantile(proximities, np.arange(1, groups) / groups)
    group = np.searchsorted(edges, proximities, side="left")
    index = group * bins + bin_index(confidence, bins)
    return float(l1(bin_sums(confidence, outcome, index, groups * bins)))
