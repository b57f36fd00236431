"""How well confidence tells images of the known classes from others."""

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from promptcal.errors import DataError


def ood_auroc(inside: Float[np.ndarray, "n C"], outside: Float[np.ndarray, "m K"]) -> float:
    """P(confidence inside > confidence outside) + ½·P(equal): the area under the ROC curve of 1 − max_k p_k.

    0.5 says that confidence does not tell them apart. ``outside`` are the probabilities of images that are none of the
    classes (or of the same classes after a shift, which is then the detection of a shift and not of new classes).

    Raises:
        DataError: no rows, or a value outside [0, 1].

    References:
        Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
        Networks", ICLR 2017, arXiv 1610.02136.

    >>> ood_auroc(np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([[0.4, 0.6], [0.5, 0.5]]))
    0.875
    """
    for name, probs in (("inside", inside), ("outside", outside)):
        if not len(probs):
            raise DataError(f"there are no probabilities of images {name}; give at least one row of each.")
        if not (np.isfinite(probs).all() and probs.min() >= 0 and probs.max() <= 1 + 1e-6):
            raise DataError(f"the probabilities of images {name} must lie in [0, 1].")
    first, second = inside.max(axis=1), outside.max(axis=1)
    ranks = rankdata(np.concatenate([first, second]))[: len(first)]
    wins = float(ranks.sum()) - len(first) * (len(first) + 1) / 2
    return wins / (len(first) * len(second))
