"""Every number of one split in one call, each with the convention that produced it."""

from promptcal.errors import ConfigError, unknown
from promptcal.metrics.contract import Measurement, TopLabelPredictions, score
from promptcal.metrics.presets import PRESETS
from promptcal.types import Predictions


def measure(predictions: Predictions | TopLabelPredictions, preset: str = "guo15") -> list[Measurement]:
    """Every metric of a preset on one split, with its bins, norm, closure, unit and noise floor.

    Metrics that need the probabilities of all classes are left out where only the top label is known.

    Raises:
        DataError: what ``check_probabilities`` refuses. ConfigError: an unknown preset.
    """
    if preset not in PRESETS:
        raise ConfigError(unknown("preset", preset, PRESETS))
    scored = score(predictions)
    return [
        Measurement(
            metric.name, metric.value(scored), len(scored), metric.bins, metric.norm, metric.closed, metric.unit, preset
        )
        for metric in PRESETS[preset]
        if scored.probabilities is not None or not metric.all_classes
    ]
