"""A temperature per row, log-linear in what the row shows without its label."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from promptcal.calibrators.contract import Calibrator, LearnsFrom
from promptcal.calibrators.instance_features import Reference, columns_of, design, needs_of
from promptcal.calibrators.instance_fit import LogLinearMap, Rows, fit_mean, temperature_scaling
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.types import Predictions


@register("calibrator", "loglinear")
class LogLinear(Calibrator):
    """z' = z / s(x) with log s(x) = log T + clip(sum_k w_k (φ_k(x) - m_k)) and a clip to ± log of ``clip``.

    The features φ of a row are named in ``FEATURES``: ``range`` (log of the tuned over the zero-shot logit range),
    ``dac`` (-log of DAC's factor of the predicted class), ``cosine`` (to the mean image), ``margin`` and ``entropy`` of
    the zero-shot answer, ``kl`` from it to the tuned one; ``norm`` of the image feature, ``tokens`` (whitened scores),
    and ``confidence`` (zero-shot over tuned, mean of the rows at hand). m is their mean over the fitted rows, so that T
    is the temperature of an average row; T0 = T·exp(-sum_k w_k m_k) is that of a row whose features are all 0.

    Fitted are T and w of least (mean NLL + penalty·‖w‖²): what holds back is temperature scaling, not T = 1. The family
    contains its relatives: w = 0 is temperature scaling, T = 1 with a single weight of 1 is SaLS (``range``) or DAC
    (``dac``). On the base classes ``dac`` is 0 and learns nothing: ``promptcal head`` fits with classes left out.

    Args:
        features: which features, by name.
        weights: fixed w, one for each column, with m = 0; by default fitted.
        temperature: a fixed T, together with fixed weights; by default fitted.
        penalty: of the squared weights.
        clip: how many times as high or low as T a temperature may become; ``inf`` for any.
        tokens: how many scores the feature ``tokens`` has.

    Attributes:
        temperature_: T.
        weights_: w, [K].
        centre_: m, [K].
        dac_: DAC fitted on the base texts, or None.
        mean_image_: the mean of the fitted images' unit features, [D], or None.
        token_axes_: the axes of ``tokens``, [D, k], or None.
        held_out_: what ``fit_held_out`` saw; absent after a plain ``fit``.

    Raises:
        ConfigError: an unknown feature, a clip below 1, a negative penalty, or weights of another number than columns.
        DataError: a row without a zero-shot logit range, or too few images for the token scores.

    Of this project. Its relatives: Guo et al., ICML 2017, arXiv 1706.04599 (temperature scaling); Murugesan et al.,
    ECCV 2024, arXiv 2407.13588 (SaLS); Wang et al., ICML 2024, arXiv 2402.04655 (DAC).

    >>> LogLinear(["range"], weights=[1.0], temperature=1.0).keeps_argmax  # SaLS
    True
    """

    name: ClassVar[str] = "loglinear"

    def __init__(
        self,
        features: Sequence[str] = ("range", "dac", "cosine", "margin", "entropy", "kl"),
        weights: Sequence[float] | None = None,
        temperature: float | None = None,
        penalty: float = 0.01,
        clip: float = 4.0,
        tokens: int = 3,
    ) -> None:
        self.features = features
        self.weights = weights
        self.temperature = temperature
        self.penalty = penalty
        self.clip = clip
        self.tokens = tokens

    @property
    def learns_from(self) -> LearnsFrom:  # type: ignore[override]
        """The rows, unless weights and temperature are given."""
        return "classes" if self.weights is not None and self.temperature is not None else "rows"

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """What the features read."""
        return needs_of(self.features)

    @property
    def reads_other_rows(self) -> bool:  # type: ignore[override]
        """The feature ``confidence`` is a mean over them."""
        return "confidence" in self.features

    @property
    def columns(self) -> list[str]:
        """A name for each weight."""
        return columns_of(self.features, self.tokens)

    def _learn(self, predictions: Predictions) -> None:
        self._check()
        self.__dict__.pop("held_out_", None)
        reference = Reference.of(predictions, self.features, self.tokens)
        self.dac_, self.mean_image_ = reference.dac, reference.mean_image
        self.token_axes_ = reference.token_axes
        rows = self.rows_of(predictions, reference)
        self.adopt(fit_mean(rows, self.penalty, self.clip) if self.weights is None else self._given(rows))

    def _given(self, rows: Rows) -> LogLinearMap:
        """The map of the given weights, with the temperature given or fitted behind them."""
        weights = np.asarray(self.weights, dtype=np.float64)
        fixed = LogLinearMap(self.temperature or 1.0, 0.0, weights, np.zeros(len(weights)), self.clip)
        if self.temperature is not None:
            return fixed
        divided = replace(rows, logits=rows.logits / fixed.temperatures(rows.features)[:, None])
        scaling = temperature_scaling(divided, self.clip).scaling
        return LogLinearMap(scaling, 0.0, weights, fixed.centre, self.clip)

    def adopt(self, found: LogLinearMap) -> None:
        """Take a map that was fitted elsewhere; the base texts and images stay those of ``fit``."""
        self.temperature_ = float(found.scaling * np.exp(found.shift))
        self.weights_, self.centre_ = found.weights, found.centre

    @property
    def reference_(self) -> Reference:
        """What rows are compared with."""
        return Reference(self.dac_, self.mean_image_, self.token_axes_)

    def rows_of(self, predictions: Predictions, reference: Reference) -> Rows:
        """Rows of some predictions, with the features that they have beside a reference."""
        features = design(predictions, self.features, reference)
        names = np.array(predictions.classes)[predictions.labels]
        return Rows(current_logits(predictions), predictions.labels, features, names)

    def temperatures(self, predictions: Predictions) -> Float[np.ndarray, " n"]:
        """The temperature of each row, by which the current logits are to be divided."""
        self._check_fitted()
        found = LogLinearMap(self.temperature_, 0.0, self.weights_, self.centre_, self.clip)
        return found.temperatures(design(predictions, self.features, self.reference_))

    def _move(self, predictions: Predictions) -> Predictions:
        return divide_rows(predictions, self.temperatures(predictions))

    def _found(self) -> str:
        weights = ", ".join(f"{name} {weight:+.3f}" for name, weight in zip(self.columns, self.weights_, strict=True))
        found = f"T = {self.temperature_:.4f}, weights {weights or 'none'}"
        seen: Mapping[str, float] | None = getattr(self, "held_out_", None)
        if seen is None:
            return found
        if "kept" not in seen:
            return f"{found}, fitted on {seen['base_rows']} held-out rows of {seen['episodes']} trainings"
        gain = f"classes left out gain {seen['gain']:.4f} nats over TS (90 % lower bound {seen['low']:.4f})"
        said = found if seen["kept"] else f"T = {self.temperature_:.4f}, which is temperature scaling: the gate is shut"
        return f"{said}; {gain} in {seen['episodes']} trainings"

    def _check(self) -> None:
        columns = self.columns
        if not self.clip >= 1.0:
            raise ConfigError(f"clip={self.clip} would forbid every temperature; give at least 1, or inf for no clip.")
        if not self.penalty >= 0.0:
            raise ConfigError(f"penalty={self.penalty} would reward large weights; give at least 0.")
        if self.weights is not None and len(self.weights) != len(columns):
            raise ConfigError(f"{len(self.weights)} weights for {len(columns)} features ({', '.join(columns)}).")
        if self.temperature is not None and (self.weights is None or not self.temperature > 0.0):
            raise ConfigError(
                f"temperature={self.temperature} must be above 0 and come with weights; leave both out to fit them."
            )
