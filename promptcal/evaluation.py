"""From stored predictions to metric rows, and what their reader must know."""

import warnings
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from promptcal.calibrators import CalibrationWarning, fit_for
from promptcal.losses import contract as terms
from promptcal.metrics import measure, pair
from promptcal.run import method_label
from promptcal.types import Predictions

BASE_AND_NOVEL = "base+novel"
"""In place of a split: the rows of what ``promptcal.metrics.pair`` says of the splits ``base`` and ``novel``."""


def measure_all(
    everything: Mapping[str, Predictions], config: DictConfig, trained: tuple[str, ...] | None = None
) -> list[dict[str, Any]]:
    """Metric rows of every calibrator on every target; calibrators are fitted on base validation alone.

    Where a calibrator has rows of both ``base`` and ``novel``, the rows of the split ``base+novel`` say what
    ``promptcal.metrics.pair`` does: the harmonic mean of the accuracies, of every metric the worse of its two values,
    and novel minus base. A calibrator that is tied to its classes has no rows where a split has others, and a
    CalibrationWarning says so.

    Args:
        everything: by split, the predictions of a run.
        config: its configuration.
        trained: the class names that it was trained on.
    """
    rows = []
    for name in config.calibrators:
        calibrator = fit_for(name, everything, trained)
        found = {}
        for split, predictions in everything.items():
            if split == "val":
                continue
            if not calibrator.serves(predictions):
                note = f"'{name}' is tied to the classes it was fitted on and left out on '{split}', which has others."
                warnings.warn(note, CalibrationWarning, stacklevel=2)
                continue
            found[split] = measure(calibrator.transform(predictions))
        if {"base", "novel"} <= found.keys():
            found[BASE_AND_NOVEL] = pair(found["base"], found["novel"])
        rows += [{"calibrator": name, "split": split, **one.row()} for split, some in found.items() for one in some]
    about = {
        "dataset": config.choices.dataset,
        "method": method_label(config),
        "model": config.choices.model,
        "seed": config.seed,
        "split_seed": config.split_seed,
        "shots": config.shots,
    }
    return [{**about, **row} for row in rows]


def remarks(config: DictConfig) -> list[str]:
    """What a reader of the report must know of how this configuration trains, or where it is from."""
    if config.get("imported"):
        return [f"{config.imported.origin}, imported: the settings of its training are the recipe's, not the file's."]
    notes = terms.remarks([node for node in config.losses.values() if node], int(config.training.batch_size))
    if config.choices.averaging == "best_on_val":
        notes.append(
            f"the epoch with the best {config.averaging.metric} on the base validation images is deployed; calibrators "
            f"are fitted on the same images."
        )
    return notes
