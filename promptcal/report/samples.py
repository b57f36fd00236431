"""The scored images of a run, from its stored predictions: what intervals, tests and figures are made of."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from promptcal.calibrators import CalibrationWarning, fit_for
from promptcal.metrics.contract import score
from promptcal.metrics.presets import nll_rows
from promptcal.report.results import Run
from promptcal.types import Predictions


@dataclass(frozen=True)
class Scores:
    """The images of one split under one calibrator: which they are, and how each was scored."""

    images: tuple[str, ...]
    confidence: Float[np.ndarray, " n"]
    correct: Float[np.ndarray, " n"]
    nll: Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Samples:
    """All splits of a run under all its calibrators.

    Attributes:
        scores: by calibrator and split, where the calibrator serves the classes of the split.
        margin_spread: by split, the standard deviation of z_y - max of the other logits (times the logit scale).
        temperature: the T of temperature scaling, where the run has it.
        instance_temperature: by split, the temperature of each image, where the run's head gives one.
        fitted: one line for each calibrator that learned from validation images.
        classes: by split, the names of its classes.
    """

    scores: Mapping[tuple[str, str], Scores]
    margin_spread: Mapping[str, float]
    temperature: float | None
    instance_temperature: Mapping[str, Float[np.ndarray, " n"]]
    fitted: tuple[str, ...]
    classes: Mapping[str, tuple[str, ...]]


def read_samples(run: Run) -> Samples:
    """Refit the run's calibrators on its stored validation predictions and score its test splits.

    Raises:
        DataError: the run's predictions are missing or broken, such as those a calibrator is fitted on.
    """
    splits = {split: run.folder.predictions(split) for split in run.counts}
    stored = ["val"] if (run.folder.path / "predictions" / "val.safetensors").is_file() else []
    everything = splits | {split: run.folder.predictions(split) for split in stored}
    scores, fitted, temperature = {}, [], None
    for name in run.calibrators:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)  # the run has said it already
            calibrator = fit_for(name, everything, run.folder.trained_classes)
            fitted += [calibrator.report()] if calibrator.learns_from == "rows" else []
            for split, predictions in splits.items():
                if calibrator.serves(predictions):
                    scores[name, split] = scores_of(calibrator.transform(predictions))
        if name == "temperature":
            temperature = float(calibrator.temperature_)
    spread = {split: margin_spread(predictions) for split, predictions in splits.items()}
    instance = {s: p.temperature for s, p in splits.items() if p.temperature is not None}
    classes = {split: predictions.classes for split, predictions in splits.items()}
    return Samples(scores, spread, temperature, instance, tuple(fitted), classes)


def scores_of(predictions: Predictions) -> Scores:
    """Confidence, correctness and NLL of each image."""
    scored = score(predictions)
    names = predictions.paths or tuple(f"{predictions.split} {row}" for row in range(len(scored)))
    return Scores(names, scored.confidence, scored.correct, nll_rows(scored))


def margin_spread(predictions: Predictions) -> float:
    """The standard deviation over images of z_y - max of the other logits; 0 where there is one class."""
    logits, rows = predictions.logits.astype(np.float64), np.arange(len(predictions.labels))
    if logits.shape[1] == 1:
        return 0.0
    true = logits[rows, predictions.labels]
    logits[rows, predictions.labels] = -np.inf
    return float((true - logits.max(axis=1)).std())
