"""Prediction: a bound classifier over one split, stored as numpy."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch.nn.functional import normalize

from promptcal.errors import DataError
from promptcal.precision import autocast
from promptcal.training.loop import Trainable, require_finite
from promptcal.types import Batch, Predictions, Sample

ROWS = ("logits", "image_features", "temperature", "norms", "norms_before")
"""What predictions hold of every image, where the model has it."""


def predict(
    bound: Trainable,
    batches: Iterable[Batch],
    samples: Sequence[Sample],
    *,
    split: str,
    precision: str = "float32",
) -> Predictions:
    """The predictions of a split, with everything a calibrator may ask for.

    Text features that depend on the image are stored as their mean over the images, normalised again; a model without
    a text side has none.

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
    columns: dict[str, list[np.ndarray]] = {}
    text: torch.Tensor | None = None
    frozen: torch.Tensor | None = None
    with torch.no_grad():
        for batch in batches:
            with autocast(bound.device, precision):
                part = bound(batch, needs={"zero_shot_logits"})
            require_finite(part.logits, f"the logits of the split '{split}'")
            found = {name: getattr(part, name) for name in ROWS}
            if part.zero_shot_image_features is not None:
                found["zero_shot_logits"] = part.zero_shot_logits
            for name, column in found.items():
                if column is not None:
                    columns.setdefault(name, []).append(_numpy(column))
            frozen = part.zero_shot_text_features
            if part.text_features is not None:
                each = part.text_features
                text = each if each.ndim == 2 else each.double().sum(dim=0) + (0.0 if text is None else text)
    stacked = {name: np.concatenate(column) for name, column in columns.items()}
    return Predictions(
        logits=stacked["logits"],
        zero_shot_logits=stacked.get("zero_shot_logits"),
        image_features=stacked["image_features"],
        labels=np.array([sample.label for sample in samples], dtype=np.int64),
        classes=bound.classes.names,
        temperature=stacked.get("temperature"),
        norms=stacked.get("norms"),
        norms_before=stacked.get("norms_before"),
        text_features=None if text is None else _numpy(_unit(text)),
        zero_shot_text_features=None if frozen is None else _numpy(frozen),
        paths=tuple(sample.path for sample in samples),
        split=split,
    )


def _unit(features: torch.Tensor) -> torch.Tensor:
    """L2-normalised features; those that are already are left bit for bit."""
    norms = features.norm(dim=-1)
    return features if torch.allclose(norms, torch.ones_like(norms), atol=1e-6) else normalize(features, dim=-1)


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().float().cpu().numpy()
    return array
