"""Metric rows of predictions, and those that join base and novel."""

import numpy as np
import pytest
from omegaconf import OmegaConf

from promptcal.calibrators import CalibrationWarning
from promptcal.evaluation import measure_all
from promptcal.types import Predictions

SPLITS = {"base": ("cat", "dog"), "novel": ("owl", "elk")}


def sure(split: str, confidence: float, right: int, zero_shot: float = 0.6) -> Predictions:
    """Four images of which so many are classified rightly, each with the same confidence; zero-shot always right."""
    labels = np.array([0, 0, 1, 1])
    predicted = np.where(np.arange(4) < right, labels, 1 - labels)
    return Predictions(
        logits=np.log(np.where(np.eye(2, dtype=bool)[predicted], confidence, 1 - confidence)),
        zero_shot_logits=np.log(np.where(np.eye(2, dtype=bool)[labels], zero_shot, 1 - zero_shot)),
        labels=labels,
        classes=SPLITS[split],
        split=split,
    )


def measured(everything: dict[str, Predictions], *calibrators: str) -> list[dict]:
    choices = {"dataset": "pets", "model": "mini", "method": "coop", "plugin": []}
    config = {"calibrators": list(calibrators), "choices": choices, "seed": 1, "split_seed": None, "shots": 16}
    return measure_all(everything, OmegaConf.create(config), SPLITS["base"])


def joined(rows: list[dict], calibrator: str) -> dict[str, float]:
    return {
        row["metric"]: row["value"]
        for row in rows
        if (row["calibrator"], row["split"]) == (calibrator, "base+novel") and row["bins"] in (None, 15)
    }


def test_base_and_novel_are_read_together_for_each_calibrator():
    rows = measured({"base": sure("base", 0.8, 3), "novel": sure("novel", 0.9, 2)}, "none", "route")
    plain, routed = joined(rows, "none"), joined(rows, "route")
    assert plain["accuracy_harmonic_mean"] == pytest.approx(2 * 0.75 * 0.5 / 1.25)
    assert plain["accuracy_worst"] == 0.5
    assert plain["ece_worst"] == pytest.approx(0.4)  # |0.8 - 3/4| = 0.05 on base
    assert plain["ece_novel_minus_base"] == pytest.approx(0.35)
    assert plain["signed_gap_worst"] == pytest.approx(0.4)
    assert plain["nll_novel_minus_base"] == pytest.approx(-np.log(0.9 * 0.1) / 2 + (3 * np.log(0.8) + np.log(0.2)) / 4)
    assert routed["accuracy_harmonic_mean"] == pytest.approx(2 * 0.75 * 1.0 / 1.75)
    assert routed["ece_worst"] == pytest.approx(0.4)  # |0.6 - 1| on novel
    assert routed["signed_gap_worst"] == pytest.approx(-0.4)
    assert {row["n"] for row in rows if row["split"] == "base+novel"} == {8}
    assert {row["method"] for row in rows} == {"coop"}


def test_nothing_is_joined_where_one_half_is_missing():
    both = {"val": sure("base", 0.7, 3), "base": sure("base", 0.8, 3), "novel": sure("novel", 0.9, 2)}
    with pytest.warns(CalibrationWarning, match="'vector' is tied"):
        rows = measured(both, "none", "vector")
    assert joined(rows, "none")
    assert not joined(rows, "vector")
    assert {row["split"] for row in measured({"base": both["base"]}, "none")} == {"base"}
    few_shot = measured({"test": both["base"], "pets": both["base"]}, "none")
    assert {row["split"] for row in few_shot} == {"test", "pets"}
