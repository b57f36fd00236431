"""What a row shows without its label: the features from which a log-linear head reads a temperature.

Each is of order one and is meant to say how far the tuned model has moved from the frozen one, or how hard the row is.
None depends on the order of the classes or of the rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import log_softmax

from promptcal.calibrators.dac import DAC
from promptcal.calibrators.rewrite import current_logits
from promptcal.errors import ConfigError, DataError, unknown
from promptcal.types import Predictions


@dataclass(frozen=True)
class Reference:
    """What rows are compared with: the texts and images of the base classes.

    Attributes:
        dac: DAC fitted on the texts of the base classes.
        mean_image: the mean of the base images' unit features, [D].
        token_axes: directions whose scores have mean 0 and variance 1 over the base images, [D, k].
    """

    dac: DAC | None = None
    mean_image: Float[np.ndarray, " D"] | None = None
    token_axes: Float[np.ndarray, "D k"] | None = None

    @staticmethod
    def of(base: Predictions, names: Sequence[str], tokens: int) -> "Reference":
        """The reference that some features ask for, taken from predictions of the base classes.

        Raises:
            ConfigError: an unknown feature. DataError: too few rows for so many token scalars.
        """
        asked = needs_of(names)
        if "image_features" not in asked:
            return Reference(DAC().fit(base) if "dac" in names else None)
        images = base.require("image_features").astype(np.float64)
        mean = images.mean(axis=0)
        axes = _whitening(images - mean, tokens) if "tokens" in names else None
        return Reference(DAC().fit(base) if "dac" in names else None, mean, axes)


class Feature(NamedTuple):
    """The optional fields of Predictions that a feature reads, and the feature [n] or [n, k]."""

    needs: frozenset[str]
    of: Callable[[Predictions, Reference], np.ndarray]


def _range(predictions: Predictions, reference: Reference) -> Float[np.ndarray, " n"]:
    """The log of (max z - min z) / (max z0 - min z0); 0 where the tuned logits are all equal."""
    tuned, frozen = np.ptp(current_logits(predictions), axis=1), np.ptp(_frozen(predictions), axis=1)
    flat = (frozen == 0) & (tuned > 0)
    if flat.any():
        raise DataError(f"row {int(flat.argmax())} has zero-shot logits that are all equal, which have no range.")
    return np.log(np.where(tuned > 0, tuned, 1.0) / np.where(tuned > 0, frozen, 1.0))


def _dac(predictions: Predictions, reference: Reference) -> Float[np.ndarray, " n"]:
    """-log a_c of the predicted class c: how much farther its tuned text is from the base classes than its frozen one.

    It is 0 where DAC's rule takes the class for a base class.
    """
    if reference.dac is None:
        raise ConfigError("the feature 'dac' needs the texts of the base classes.")
    logs = -np.log(reference.dac.factors(predictions))
    of_rows: np.ndarray = logs[current_logits(predictions).argmax(axis=1)]
    return of_rows


def _norm(predictions: Predictions, reference: Reference) -> Float[np.ndarray, " n"]:
    """The log of the norm of the image feature before it was normalised."""
    return np.log(predictions.require("norms").astype(np.float64))


def _cosine(predictions: Predictions, reference: Reference) -> Float[np.ndarray, " n"]:
    """The cosine between the image feature and the mean one of the base images."""
    if reference.mean_image is None:
        raise ConfigError("the feature 'cosine' needs the images of the base classes.")
    images = predictions.require("image_features").astype(np.float64)
    cosine: np.ndarray = images @ (reference.mean_image / np.linalg.norm(reference.mean_image))
    return cosine


def _margin(predictions: Predictions, reference: Reference) -> Float[np.ndarray, " n"]:
    """log(1 + the largest zero-shot logit less the second largest); 0 for one class."""
    frozen = _frozen(predictions)
    if frozen.shape[1] == 1:
        return np.zeros(len(frozen))
    top = np.partition(frozen, -2, axis=1)[:, -2:]
    margin: np.ndarray = np.log1p(top[:, 1] - top[:, 0])
    return margin


def _entropy(predictions: Predictions, reference: Reference) -> Float[np.ndarray, " n"]:
    """The entropy of the zero-shot probabilities over log C; 0 for one class."""
    logs = log_softmax(_frozen(predictions), axis=1)
    entropy: np.ndarray = -np.einsum("nc,nc->n", np.exp(logs), logs) / np.log(max(logs.shape[1], 2))
    return entropy


def _kl(predictions: Predictions, reference: Reference) -> Float[np.ndarray, " n"]:
    """KL(p0 || p) of the zero-shot probabilities p0 and the tuned ones, in nats."""
    frozen, tuned = (log_softmax(logits, axis=1) for logits in (_frozen(predictions), current_logits(predictions)))
    divergence: np.ndarray = np.einsum("nc,nc->n", np.exp(frozen), frozen - tuned)
    return divergence


def _confidence(predictions: Predictions, reference: Reference) -> Float[np.ndarray, " n"]:
    """log(mean zero-shot confidence / mean tuned confidence) of all the rows at hand, without labels, the same for all.

    Rows that are calibrated together share it, so it is transductive: one row alone is another batch.
    """
    frozen, tuned = (
        np.exp(log_softmax(logits, axis=1)).max(axis=1).mean()
        for logits in (_frozen(predictions), current_logits(predictions))
    )
    return np.full(len(predictions.labels), np.log(frozen / tuned))


def _tokens(predictions: Predictions, reference: Reference) -> Float[np.ndarray, "n k"]:
    """Scores of the image feature on the leading principal axes of the base images, each of variance 1 there."""
    if reference.mean_image is None or reference.token_axes is None:
        raise ConfigError("the feature 'tokens' needs the images of the base classes.")
    centred = predictions.require("image_features").astype(np.float64) - reference.mean_image
    scores: np.ndarray = centred @ reference.token_axes
    return scores


_ZERO_SHOT = frozenset({"zero_shot_logits"})
_IMAGES = frozenset({"image_features"})
FEATURES = {
    "range": Feature(_ZERO_SHOT, _range),
    "dac": Feature(DAC.needs, _dac),
    "norm": Feature(frozenset({"norms"}), _norm),
    "cosine": Feature(_IMAGES, _cosine),
    "margin": Feature(_ZERO_SHOT, _margin),
    "entropy": Feature(_ZERO_SHOT, _entropy),
    "kl": Feature(_ZERO_SHOT, _kl),
    "confidence": Feature(_ZERO_SHOT, _confidence),
    "tokens": Feature(_IMAGES, _tokens),
}


def needs_of(names: Sequence[str]) -> frozenset[str]:
    """The optional fields of Predictions that some features read.

    Raises:
        ConfigError: an unknown feature, or one that is named twice.
    """
    for name in names:
        if name not in FEATURES:
            raise ConfigError(unknown("feature", name, FEATURES))
        if list(names).count(name) > 1:
            raise ConfigError(f"the feature '{name}' is named twice.")
    return frozenset().union(*(FEATURES[name].needs for name in names))


def columns_of(names: Sequence[str], tokens: int) -> list[str]:
    """A name for each column of ``design``."""
    return [
        column
        for name in names
        for column in ([f"token {index + 1}" for index in range(tokens)] if name == "tokens" else [name])
    ]


def design(predictions: Predictions, names: Sequence[str], reference: Reference) -> Float[np.ndarray, "n K"]:
    """The features of every row, float64, in the order of their names."""
    parts = [FEATURES[name].of(predictions, reference).reshape(len(predictions.labels), -1) for name in names]
    return np.concatenate([np.zeros((len(predictions.labels), 0)), *parts], axis=1)


def _frozen(predictions: Predictions) -> Float[np.ndarray, "n C"]:
    return predictions.require("zero_shot_logits").astype(np.float64)


def _whitening(centred: Float[np.ndarray, "n D"], tokens: int) -> Float[np.ndarray, "D k"]:
    """The leading principal axes of centred rows, each over the standard deviation along it."""
    if tokens < 1:
        raise ConfigError(f"tokens={tokens} leaves the feature 'tokens' without a column; ask for at least one.")
    _, deviations, axes = np.linalg.svd(centred / np.sqrt(len(centred)), full_matrices=False)
    if len(deviations) < tokens or deviations[tokens - 1] <= 1e-9 * deviations[0]:
        raise DataError(f"the {len(centred)} images of the base split span fewer than {tokens} directions.")
    # The sign of an axis is free: the entry of largest size is made positive, so that equal data give equal axes.
    axes = axes[:tokens] * np.sign(axes[np.arange(tokens), np.abs(axes[:tokens]).argmax(axis=1)])[:, None]
    whitened: np.ndarray = (axes / deviations[:tokens, None]).T
    return whitened
