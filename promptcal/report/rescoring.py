"""Metric rows of a finished run under other calibrators than it measured."""

from collections.abc import Sequence

from omegaconf import OmegaConf

from promptcal.errors import ConfigError
from promptcal.evaluation import BASE_AND_NOVEL, measure_all
from promptcal.report.results import Rows
from promptcal.run import RunFolder


def rescore(folder: RunFolder, calibrators: Sequence[str]) -> Rows:
    """Fit calibrators on the stored validation predictions of a run and measure its stored test predictions.

    A class-tied calibrator leaves out splits of other classes, with a CalibrationWarning.

    Raises:
        ConfigError: no or unknown calibrators. DataError: predictions are missing or broken.
    """
    if not calibrators:
        raise ConfigError("there is no calibrator to apply; name some, such as none,temperature.")
    config = folder.config
    OmegaConf.set_struct(config, False)
    config.calibrators = list(calibrators)
    stored = ["val"] if (folder.path / "predictions" / "val.safetensors").is_file() else []
    splits = dict.fromkeys([*stored, *(row["split"] for row in folder.metrics)])
    everything = {split: folder.predictions(split) for split in splits if split != BASE_AND_NOVEL}
    return measure_all(everything, config, folder.trained_classes)
