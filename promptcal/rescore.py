"""Other calibrators on the predictions that a run has stored."""

import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from promptcal.calibrators import CalibrationWarning
from promptcal.experiment import measure_all
from promptcal.run import RunFolder, method_label
from promptcal.storage import write_jsonl


def rescore(
    folder: RunFolder, calibrators: Sequence[str], place: Path, say: Callable[[str], None] = lambda line: None
) -> RunFolder:
    """A copy of a finished run whose metrics are those of other calibrators.

    Args:
        folder: the run, which stays as it is.
        calibrators: names; ``a+b`` applies a, then b.
        place: the copy is ``place/<dataset>/<method>/<hash>``; its large files are hard links where the disk allows.
        say: told what the calibrators have to say.

    Raises:
        PromptcalError: an unknown calibrator, no validation predictions to fit on, or a field that was not stored.
    """
    config = folder.config
    config.calibrators = list(calibrators)
    splits = ("val", *folder.task["targets"])
    stored = {split: folder.path / "predictions" / f"{split}.safetensors" for split in splits}
    everything = {
        split: folder.predictions(split) for split, file in stored.items() if split != "val" or file.is_file()
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        rows = measure_all(everything, config)
    for note in dict.fromkeys(str(warning.message) for warning in caught):
        say(f"{method_label(config)}: {note}")

    copy = RunFolder(place.joinpath(*folder.path.resolve().parts[-3:]))
    with copy.claimed():
        copy.begin(fresh=True)
        for file in folder.path.rglob("*.safetensors"):
            target = copy.partial / file.relative_to(folder.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file, target)
            except OSError:
                shutil.copyfile(file, target)
        for name in ("task.json", "history.jsonl", "run.json"):
            shutil.copyfile(folder.path / name, copy.partial / name)
        copy.write_config(config)
        write_jsonl(copy.partial / "metrics.jsonl", rows)
        copy.finish()
    return copy
