"""What every calibrator offers: fit on one split, transform another, and the truth about itself.

A subclass is one file with ``@register("calibrator", name)``. It writes ``_learn`` (set the learned attributes, whose
names end in ``_``) and ``_move`` (the transformed predictions); everything around them is here and is the same for all.
"""

import warnings
from pathlib import Path
from typing import ClassVar, Literal, TypeVar, overload

import numpy as np
from jaxtyping import Float, Int, UInt64
from sklearn.base import BaseEstimator, ClassifierMixin

from promptcal.calibrators.rewrite import log_probs
from promptcal.errors import DataError, NotFitted
from promptcal.metrics.inputs import check_labels
from promptcal.types import Predictions

LearnsFrom = Literal["rows", "classes", "nothing"]
Fitted = TypeVar("Fitted", bound="Calibrator")


class CalibrationWarning(UserWarning):
    """A calibrator did what was asked, but the result deserves a second look."""


class InSampleWarning(CalibrationWarning):
    """A calibrator transforms rows that it was fitted on, so that a score of the result flatters it."""


class Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A post-hoc map of predictions, shaped like a scikit-learn estimator.

    ``fit`` takes Predictions, or an array of logits [n, C] and labels [n]; ``transform`` returns Predictions, or for an
    array an array of log-probabilities (which are logits again); ``predict_proba`` returns probabilities. The
    parameters of ``__init__`` are the configuration and are never changed by ``fit``.

    Attributes:
        name: the name it is registered under, appended to ``Predictions.transformed_by``.
        transfers_to_new_classes: it may transform classes that it was not fitted on.
        keeps_argmax: the predicted class of a row never changes.
        learns_from: ``rows`` of the fitting split; its ``classes`` and texts alone, so that no score is in-sample;
            or ``nothing``, so that it may transform without ``fit``.
        reads_other_rows: what becomes of a row depends on the rows that it is transformed with.
        needs: optional fields of Predictions that it reads, at fit and at transform.
        n_fit_: how many rows it was fitted on.
        classes_: the classes it was fitted on: names, or 0 … C-1 after a fit on an array.
        fit_split_: the split it was fitted on, as the predictions call it.
        fit_rows_: a key of each row it was fitted on, by which ``rows_seen`` recognises them.
    """

    name: ClassVar[str]
    learns_from: LearnsFrom = "rows"
    transfers_to_new_classes: bool = True
    keeps_argmax: bool = True
    reads_other_rows: bool = False
    needs: frozenset[str] = frozenset()

    n_fit_: int
    classes_: np.ndarray
    fit_split_: str
    fit_rows_: UInt64[np.ndarray, " n"]

    def _learn(self, predictions: Predictions) -> None:
        """Set the learned attributes; the predictions are checked. The default learns nothing."""

    def _move(self, predictions: Predictions) -> Predictions:
        """The transformed predictions; fitted, checked, and of classes that are allowed."""
        raise NotImplementedError

    def _found(self) -> str:
        """What was learned, in a few words for people."""
        return ""

    def fit(self: Fitted, predictions: Predictions | np.ndarray, y: np.ndarray | None = None) -> Fitted:
        """Learn from one split and return self.

        Raises:
            DataError: no rows, a logit that is not finite, a label out of range, or an array without labels.
            MissingField: the predictions lack a field that ``needs`` names.
        """
        known = self._checked(_as_predictions(predictions, y))
        check_labels(known.labels, *known.logits.shape)
        self._learn(known)
        self.n_fit_ = len(known.labels)
        named = isinstance(predictions, Predictions)
        self.classes_ = np.array(known.classes) if named else np.arange(len(known.classes))
        self.fit_split_ = known.split
        self.fit_rows_ = row_keys(known)
        return self

    @overload
    def transform(self, predictions: Predictions) -> Predictions: ...
    @overload
    def transform(self, predictions: np.ndarray) -> np.ndarray: ...
    def transform(self, predictions: Predictions | np.ndarray) -> Predictions | np.ndarray:
        """The calibrated predictions of another split, a new record; the input is never changed.

        Predictions of rows that it was fitted on are transformed too, with an InSampleWarning that counts them.

        Raises:
            NotFitted: before ``fit``.
            DataError: no rows, a logit that is not finite, or classes it was not fitted on where it is class-tied.
            MissingField: the predictions lack a field that ``needs`` names.
        """
        if not isinstance(predictions, Predictions):
            return log_probs(self._of_array(predictions))
        self._check_fitted()
        self._check_classes(predictions)
        seen = self.rows_seen(predictions)
        if seen:
            warnings.warn(
                f"{seen} of these {len(predictions.labels)} rows are among the {self.n_fit_} that '{self.name}' was "
                f"fitted on; a score of them is in-sample, so fit on another split.",
                InSampleWarning,
                stacklevel=2,
            )
        return self.apply(predictions)

    def apply(self, predictions: Predictions) -> Predictions:
        """``transform`` for steps of a larger map: no word about classes or rows it was fitted on."""
        moved = self._move(self._checked(predictions))
        return moved.replace(transformed_by=(*predictions.transformed_by, self.name))

    def predict_proba(self, predictions: Predictions | np.ndarray) -> Float[np.ndarray, "n C"]:
        """The calibrated probabilities [n, C]; each row sums to one."""
        if isinstance(predictions, Predictions):
            return self.transform(predictions).probs()
        return self._of_array(predictions).probs()

    def _of_array(self, predictions: np.ndarray) -> Predictions:
        """The calibrated predictions of an array of logits, which has the classes of the fit if it has as many."""
        self._check_fitted()
        known = _as_predictions(predictions, np.zeros(len(predictions), dtype=np.int64))
        if hasattr(self, "classes_") and len(known.classes) == len(self.classes_):
            known = known.replace(classes=tuple(map(str, self.classes_)))
        self._check_classes(known)
        return self.apply(known)

    def predict(self, predictions: Predictions | np.ndarray) -> Int[np.ndarray, " n"]:
        """The index of the most probable class of each row (the first of equals)."""
        chosen: np.ndarray = self.predict_proba(predictions).argmax(axis=1)
        return chosen

    def rows_seen(self, predictions: Predictions) -> int:
        """How many of these rows have exactly the logits of a row that the calibrator learned from."""
        if self.learns_from != "rows":
            return 0
        return int(np.isin(row_keys(predictions), self.fit_rows_).sum())

    def report(self) -> str:
        """One line for people: what was learned, and from how many rows of which split."""
        self._check_fitted()
        found = self._found() or "nothing to learn"
        if self.learns_from != "rows":
            return f"{self.name}: {found}"
        split = f" of {self.fit_split_}" if self.fit_split_ else ""
        return f"{self.name}: {found}; fitted on {self.n_fit_} rows{split}"

    def save(self, path: str | Path) -> None:
        """Write the parameters and everything learned as one safetensors file (see ``load_calibrator``)."""
        from promptcal.calibrators.saving import save_calibrator

        save_calibrator(path, self)

    def _check_fitted(self) -> None:
        if self.learns_from != "nothing" and not hasattr(self, "n_fit_"):
            raise NotFitted(f"'{self.name}' is not fitted; call fit on the predictions of a validation split first.")

    def serves(self, predictions: Predictions) -> bool:
        """Whether a fitted calibrator may transform predictions of these classes: always, unless it is class-tied."""
        return self.transfers_to_new_classes or tuple(map(str, self.classes_)) == predictions.classes

    def _check_classes(self, predictions: Predictions) -> None:
        if self.serves(predictions):
            return
        fitted, given = tuple(map(str, self.classes_)), predictions.classes
        if sorted(fitted) == sorted(given):
            detail = "these predictions have them in another order"
        else:
            strange = next((name for name in given if name not in fitted), None)
            detail = f"'{strange}' is not one of them" if strange else f"these predictions have {len(given)} of them"
        raise DataError(
            f"'{self.name}' is tied to the {len(fitted)} classes it was fitted on, and {detail}; "
            f"use one that transfers to new classes, such as temperature, or 'route' around it."
        )

    def _checked(self, predictions: Predictions) -> Predictions:
        if len(predictions.labels) == 0:
            raise DataError(f"there are no rows to calibrate{_of(predictions)}.")
        tables = {"logits": predictions.logits}
        tables |= {field: predictions.require(field) for field in sorted(self.needs)}
        current = {"temperature": predictions.temperature, "probabilities": predictions.probabilities}
        tables |= {field: table for field, table in current.items() if table is not None}
        for field, table in tables.items():
            finite = np.isfinite(table).reshape(len(table), -1).all(axis=1)
            if not finite.all():
                raise DataError(f"row {int(finite.argmin())} of {field}{_of(predictions)} holds a NaN or an infinity.")
        if predictions.temperature is not None and not (predictions.temperature > 0).all():
            row = int((predictions.temperature > 0).argmin())
            raise DataError(f"row {row} of temperature{_of(predictions)} is not above zero, so nothing can be divided.")
        return predictions


def row_keys(predictions: Predictions) -> UInt64[np.ndarray, " n"]:
    """A 64-bit key of the logits of each row: equal for equal rows, and next to never for others."""
    bits = np.ascontiguousarray(predictions.logits, dtype=np.float64).view(np.uint64)
    multipliers = np.random.default_rng(0).integers(1, 2**63, size=bits.shape[1], dtype=np.uint64)
    mixed: np.ndarray = bits ^ (bits >> np.uint64(32))
    keys: np.ndarray = mixed @ (multipliers * np.uint64(2) + np.uint64(1))
    return keys


def _of(predictions: Predictions) -> str:
    return f" of {predictions.split}" if predictions.split else ""


def _as_predictions(logits: Predictions | np.ndarray, labels: np.ndarray | None) -> Predictions:
    """Predictions as they are, or made from an array of logits and an array of labels."""
    if isinstance(logits, Predictions):
        if labels is not None:
            raise DataError("predictions bring their own labels; leave y out.")
        return logits
    if labels is None:
        raise DataError("an array of logits needs labels: fit(logits, y).")
    table = np.asarray(logits)
    if table.ndim != 2 or table.dtype.kind not in "fiu":
        raise DataError(f"logits must be numbers of shape [n, C], not {table.dtype} of shape {table.shape}.")
    if table.dtype.kind != "f":
        table = table.astype(np.float64)
    labels = check_labels(labels, *table.shape)
    return Predictions(table, labels, classes=tuple(map(str, range(table.shape[1]))))
