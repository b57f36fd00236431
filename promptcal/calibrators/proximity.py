"""How close an image is to the images a calibrator was fitted on."""

import numpy as np
from jaxtyping import Float
from sklearn.neighbors import NearestNeighbors

from promptcal.errors import DataError


def proximity(
    features: Float[np.ndarray, "n D"], reference: Float[np.ndarray, "m D2"], neighbours: int
) -> Float[np.ndarray, " n"]:
    """exp(-mean Euclidean distance to the K nearest reference features), in (0, 1].

    Fewer than K reference features: all of them.

    Raises:
        DataError: features of another width.
    """
    if features.shape[1] != reference.shape[1]:
        raise DataError(f"image features have {features.shape[1]} numbers, those fitted on have {reference.shape[1]}.")
    distances, _ = _neighbours(reference, min(neighbours, len(reference))).kneighbors(features)
    result: np.ndarray = np.exp(-distances.mean(axis=1))
    return result


def own_proximity(features: Float[np.ndarray, "n D"], neighbours: int) -> Float[np.ndarray, " n"]:
    """``proximity`` of each feature to the others, itself left out.

    Raises:
        DataError: fewer than two rows, where nobody has a neighbour.
    """
    if len(features) < 2:
        raise DataError("one row has no neighbours; fit calibrators that use proximity on two rows or more.")
    distances, _ = _neighbours(features, min(neighbours, len(features) - 1)).kneighbors()
    result: np.ndarray = np.exp(-distances.mean(axis=1))
    return result


def _neighbours(reference: np.ndarray, count: int) -> NearestNeighbors:
    return NearestNeighbors(n_neighbors=count, algorithm="brute").fit(reference)
