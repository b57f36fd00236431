"""Prediction: a bound classifier over one split, stored as numpy."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch.nn.functional import normalize

from promptcal.errors import DataError
from promptcal.models.classifier import BoundClassifier
from promptcal.precision import autocast
from promptcal.training.loop import require_finite
from promptcal.types import Batch, Predictions, Sample


def predict(
    bound: BoundClassifier,
    batches: Iterable[Batch],
    samples: Sequence[Sample],
    *,
    split: str,
    precision: str = "float32",
) -> Predictions:
    """The predictions of a split, with everything a calibrator may ask for.

    Text features that depend on the image are stored as their mean over the images, normalised again.

    Args:
        bound: the classifier bound to the classes of the split.
        batches: the split in the order of ``samples``.
        samples: the samples, for paths and labels.
        split: what to call it.
        precision: ``float32``, or autocast in ``bfloat16`` or ``float16``.

    Raises:
        DataError: an empty split.
        NumericalError: logits that are not finite.
    """
    if not samples:
        raise DataError(f"the split '{split}' has no images to predict.")
    columns: dict[str, list[np.ndarray]] = {name: [] for name in ("logits", "zero_shot_logits", "image_features")}
    temperatures: list[np.ndarray] = []
    text = torch.zeros(())
    with torch.no_grad():
        for batch in batches:
            with autocast(bound.clip.device, precision):
                part = bound(batch, needs={"zero_shot_logits"})
            require_finite(part.logits, f"the logits of the split '{split}'")
            for name, column in columns.items():
                column.append(_numpy(getattr(part, name)))
            if part.temperature is not None:
                temperatures.append(_numpy(part.temperature))
            text = part.text_features if part.text_features.ndim == 2 else text + part.text_features.double().sum(dim=0)
    logits, zero_shot_logits, image_features = (np.concatenate(column) for column in columns.values())
    return Predictions(
        logits=logits,
        zero_shot_logits=zero_shot_logits,
        image_features=image_features,
        labels=np.array([sample.label for sample in samples], dtype=np.int64),
        classes=bound.classes.names,
        temperature=np.concatenate(temperatures) if temperatures else None,
        text_features=_numpy(normalize(text, dim=-1)) if bound.learner.per_image else _numpy(text),
        zero_shot_text_features=_numpy(bound.zero_shot_text_features),
        paths=tuple(sample.path for sample in samples),
        split=split,
    )


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().float().cpu().numpy()
    return array
