"""Prediction: a bound classifier over one split, stored as numpy."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch.nn.functional import normalize

from promptcal.errors import DataError
from promptcal.models.classifier import BoundClassifier
from promptcal.precision import autocast
from promptcal.training.loop import require_finite
from promptcal.types import Batch, Outputs, Predictions, Sample


def predict(
    bound: BoundClassifier,
    batches: Iterable[Batch],
    samples: Sequence[Sample],
    *,
    split: str,
    precision: str = "float32",
) -> Predictions:
    """The predictions of a split, with everything a calibrator may ask for.

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
    outputs: list[Outputs] = []
    with torch.no_grad():
        for batch in batches:
            with autocast(bound.clip.device, precision):
                outputs.append(bound(batch, needs={"zero_shot_logits"}))
    logits = torch.cat([part.logits for part in outputs])
    require_finite(logits, f"the logits of the split '{split}'")
    temperatures = [part.temperature for part in outputs if part.temperature is not None]
    return Predictions(
        logits=_numpy(logits),
        labels=np.array([sample.label for sample in samples], dtype=np.int64),
        classes=bound.classes.names,
        temperature=_numpy(torch.cat(temperatures)) if temperatures else None,
        zero_shot_logits=_numpy(torch.cat([part.zero_shot_logits for part in outputs])),
        image_features=_numpy(torch.cat([part.image_features for part in outputs])),
        text_features=_numpy(_mean_text(outputs)),
        zero_shot_text_features=_numpy(bound.zero_shot_text_features),
        paths=tuple(sample.path for sample in samples),
        split=split,
    )


def _mean_text(outputs: Sequence[Outputs]) -> torch.Tensor:
    """The tuned text features [C, D]; where they depend on the image, their mean over images, normalised again."""
    first = outputs[0].text_features
    if first.ndim == 2:
        return first
    total = torch.stack([part.text_features.double().sum(dim=0) for part in outputs]).sum(dim=0)
    return normalize(total, dim=-1).float()


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().float().cpu().numpy()
    return array
