"""A finished run as something to classify images with: names, probabilities, calibrated."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image

from promptcal.calibrators import Calibrator, fit_for, load_calibrator
from promptcal.config import build
from promptcal.data.class_names import normalise_class_names
from promptcal.data.sources import FolderImages
from promptcal.data.views import centre_view
from promptcal.errors import ConfigError, DataError
from promptcal.models.assembly import Bound, Model, classifier_of
from promptcal.preparation import device_of
from promptcal.run import RunFolder, find_runs
from promptcal.training.predict import predict
from promptcal.types import Batch, ClassNames, Predictions, Sample

Picture = str | Path | Image.Image | np.ndarray
"""A file, a PIL image, or an array [h, w] or [h, w, 3]: uint8, or floats in [0, 1]."""

BATCH = 64


@dataclass(frozen=True)
class Predictor:
    """A trained classifier with its calibrator, ready for images.

    Attributes:
        bound: the classifier bound to the classes it answers with.
        calibrator: fitted on the run's base validation images.
        precision: as the run was trained.
        head: the head that was fitted behind the training, or None; it comes before the calibrator.
    """

    bound: Bound
    calibrator: Calibrator
    precision: str = "float32"
    head: Calibrator | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """The names, in the order of the columns."""
        return self.bound.classes.names

    def predictions(self, images: Sequence[Picture]) -> Predictions:
        """Everything about some images before calibration; their labels are unknown and stand as 0."""
        if not images:
            raise DataError("there is no image to classify; give at least one.")
        transform, device = self.bound.transform, self.bound.device
        named = [str(image) if isinstance(image, str | Path) else f"image {row}" for row, image in enumerate(images)]
        samples = [Sample(name, 0) for name in named]

        def batches() -> "list[Batch]":
            made = []
            for start in range(0, len(images), BATCH):
                views = [centre_view(as_image(image), transform) for image in images[start : start + BATCH]]
                labels = torch.zeros(len(views), dtype=torch.long, device=device)
                made.append(Batch(labels, pixels=torch.stack(views).to(device)))
            return made

        seen = predict(self.bound, batches(), samples, split="images", precision=self.precision)
        return seen if self.head is None else self.head.apply(seen)

    def predict_proba(self, images: Sequence[Picture]) -> Float[np.ndarray, "n C"]:
        """Calibrated probabilities [n, C]; the columns follow ``classes``.

        Raises:
            DataError: no image, a file that is missing or no image, or an array of another shape, kind or range.
        """
        return self.calibrator.transform(self.predictions(images)).probs()


def load(
    run: str | Path,
    *,
    classes: Sequence[str] | None = None,
    split: str | None = None,
    calibrator: str | None = None,
) -> Predictor:
    """The classifier of a finished run.

    Args:
        run: the run's folder, or a folder that holds exactly one run.
        classes: class names to answer with instead of the run's own.
        split: whose classes and texts to answer with: a target of the run, such as ``base`` or ``novel``; by default
            the one that was trained on.
        calibrator: a calibrator by name; by default the first one the run used, else none.

    Raises:
        DataError: no such run, several runs, weights that are not those of the run, or no validation images to fit on.
        ConfigError: an unknown split or calibrator.
    """
    folder = one_run(Path(run))
    config, info = folder.config, folder.info
    model: Model = build(config.model)
    model.to(device_of(config))
    if model.weights_digest() != info["weights"]:
        raise DataError(f"the weights of '{model.name}' are not those {folder.path} was trained on; restore them.")
    targets = folder.task["targets"]
    trained_on = folder.task["train"]["name"]
    split = split or next((name for name in ("base", "test", trained_on) if name in targets), next(iter(targets)))
    if split not in targets:
        raise ConfigError(f"the run has no classes '{split}'; it has {', '.join(targets)}.")
    names = normalise_class_names(list(classes)) if classes else tuple(targets[split]["classes"])
    trained = ClassNames(tuple(folder.task["train"]["classes"]), tuple(config.dataset.templates))
    own_texts = ClassNames(names, tuple(targets[split]["templates"]))
    bound = classifier_of(config, model, trained, torch.Generator()).bind(own_texts)
    bound.learner.load_state_dict(folder.learner_state())
    bound.learner.eval()
    wanted = calibrator or next((name for name in config.calibrators if name != "none"), "none")
    kept = [name for name in ("val", *targets) if (folder.path / "predictions" / f"{name}.safetensors").is_file()]
    stored = {name: folder.predictions(name) for name in (["val"] if "val" in kept else kept)}
    fitted = fit_for(wanted, stored, trained.names)
    behind = folder.path / "head.safetensors"
    return Predictor(bound, fitted, config.precision, load_calibrator(behind) if behind.is_file() else None)


def one_run(place: Path) -> RunFolder:
    """The run at or below a place, where there is exactly one."""
    runs = find_runs(place)
    if len(runs) > 1:
        listed = ", ".join(str(folder.path) for folder in runs[:4])
        raise DataError(f"{place} holds {len(runs)} runs; name one of them: {listed}{', …' if len(runs) > 4 else ''}.")
    return runs[0]


def as_image(picture: Picture) -> Image.Image:
    """An RGB image from a file, a PIL image or an array.

    Raises:
        DataError: a file that is missing or no image; an array that is not uint8 or floats in [0, 1].
    """
    if isinstance(picture, Image.Image):
        return picture.convert("RGB")
    if isinstance(picture, np.ndarray):
        return _from_array(picture)
    path = Path(picture)
    return FolderImages(path.parent).open(path.name)


def _from_array(array: np.ndarray) -> Image.Image:
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] != 3):
        raise DataError(f"an image array must be [h, w] or [h, w, 3], not {list(array.shape)}.")
    if np.issubdtype(array.dtype, np.floating):
        if not np.isfinite(array).all():
            raise DataError("a float image holds NaN or infinity; it must lie in [0, 1].")
        if array.min() < 0 or array.max() > 1:
            raise DataError(f"a float image must lie in [0, 1]; this one spans {array.min():g} to {array.max():g}.")
        array = np.round(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise DataError(f"an image array must be uint8 or floats in [0, 1], not {array.dtype}.")
    return Image.fromarray(array).convert("RGB")
