"""What a temperature head and the norm of an embedding do: functions of stored predictions.

The paper on CalAttn (arXiv 2508.08547) motivates its head by the norm of the class token and follows the temperatures
over the epochs; these are the numbers to look at for that.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import pearsonr, spearmanr

from promptcal.calibrators.temperature import best_temperature
from promptcal.errors import DataError
from promptcal.types import Predictions

QUANTILES = (0.05, 0.5, 0.95)


def head_row(predictions: Predictions, prefix: str) -> dict[str, float]:
    """Mean, standard deviation, coefficient of variation and quantiles of s and of ‖z‖, and the residual T*.

    The residual T* is the one temperature that would still lower the NLL of the logits already divided by s: 1 where
    the head has done all that a single temperature can do. Standard deviations are those of the images at hand.

    Args:
        predictions: of a split.
        prefix: what the names begin with, such as ``val``.
    """
    row: dict[str, float] = {}
    for short, name in (("s", "temperature"), ("norm", "norms"), ("norm_before", "norms_before")):
        values = getattr(predictions, name)
        if values is None:
            continue
        values = values.astype(np.float64)
        row |= {f"{prefix}_{short}_mean": float(values.mean()), f"{prefix}_{short}_std": float(values.std())}
        row[f"{prefix}_{short}_cv"] = float(values.std() / values.mean())
        low, middle, high = np.quantile(values, QUANTILES)
        row |= {f"{prefix}_{short}_q05": float(low), f"{prefix}_{short}_q50": float(middle)}
        row[f"{prefix}_{short}_q95"] = float(high)
    if row:
        row[f"{prefix}_residual_temperature"] = residual_temperature(predictions)
    return row


def residual_temperature(predictions: Predictions) -> float:
    """The temperature that minimises the NLL of these very predictions, on top of the instance temperature."""
    return best_temperature(predictions.calibrated_logits, predictions.labels).temperature


def correlations(predictions: Predictions) -> list[dict[str, Any]]:
    """Pearson's r and Spearman's ρ of ‖z‖ and of s with confidence, correctness and s.

    Confidence is the largest probability of the plain logits, so that s has no part in it. A quantity that does not
    vary has no correlation: None.
    """
    plain = predictions.replace(temperature=None).probs()
    against = {"confidence": plain.max(axis=1), "correct": (plain.argmax(axis=1) == predictions.labels).astype(float)}
    if predictions.temperature is not None:
        against["s"] = predictions.temperature.astype(np.float64)
    rows = []
    for quantity, name in (("norm", "norms"), ("norm_before", "norms_before"), ("s", "temperature")):
        values = getattr(predictions, name)
        for other, compared in against.items() if values is not None else ():
            if other != quantity:
                r, rho = _correlated(values.astype(np.float64), compared)
                rows.append({"quantity": quantity, "with": other, "pearson": r, "spearman": rho, "n": len(compared)})
    return rows


def diagnose(everything: Mapping[str, Predictions]) -> list[dict[str, Any]]:
    """The rows of ``diagnostics.jsonl``: for each split, what :func:`head_row` and :func:`correlations` say."""
    rows: list[dict[str, Any]] = []
    for split, predictions in everything.items():
        summary = {name.removeprefix("_"): value for name, value in head_row(predictions, "").items()}
        if summary:
            rows.append({"split": split, "kind": "summary", **summary})
        rows += [{"split": split, "kind": "correlation", **row} for row in correlations(predictions)]
    return rows


def linear_cka(first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "m e"]) -> float:
    """Linear centred kernel alignment ‖X̃ᵀỸ‖²_F / (‖X̃ᵀX̃‖_F ‖ỸᵀỸ‖_F) of two embeddings of the same images, in [0, 1].

    1 where one is a rotation and a scaling of the other; X̃ and Ỹ are centred over the images.

    Raises:
        DataError: another number of images, or an embedding that does not vary.

    References:
        Kornblith, Norouzi, Lee, Hinton, "Similarity of Neural Network Representations Revisited", ICML 2019,
        arXiv 1905.00414.

    >>> turned = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> points = np.array([[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]])
    >>> round(linear_cka(points, 7 * points @ turned), 6)
    1.0
    """
    if len(first) != len(second):
        raise DataError(f"{len(first)} and {len(second)} rows: CKA compares two embeddings of the same images.")
    x, y = (array.astype(np.float64) - array.astype(np.float64).mean(axis=0) for array in (first, second))
    scale = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    if scale == 0:
        raise DataError("an embedding that is the same for all images has no alignment with another.")
    return float(np.linalg.norm(x.T @ y) ** 2 / scale)


def _correlated(first: np.ndarray, second: np.ndarray) -> tuple[float | None, float | None]:
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None, None
    return float(pearsonr(first, second).statistic), float(spearmanr(first, second).statistic)
