"""The records that flow through promptcal, and nothing else.

    card → Task → few-shot draw → base/novel halves → bound classifier → Outputs → loss terms → learned tensors
         → Predictions → calibrators → metric rows → report

Every record is frozen. Shapes: b images, C classes, D embedding width, d token width, n context tokens, P prompts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor

from promptcal.errors import DataError, MissingField
from promptcal.precision import outside_autocast


@dataclass(frozen=True)
class ClassNames:
    """Class names in label order, and the templates that turn them into text (several = an ensemble)."""

    names: tuple[str, ...]
    templates: tuple[str, ...] = ("a photo of a {}.",)

    def __post_init__(self) -> None:
        if not self.names:
            raise DataError("the class list is empty; a task needs at least one class.")
        for template in self.templates:
            if "{}" not in template:
                raise DataError(f"the template '{template}' has no '{{}}' for the class name.")

    def __len__(self) -> int:
        return len(self.names)

    def texts(self) -> list[list[str]]:
        """The texts of every template: ``texts()[t][c]`` is class ``c`` in template ``t``."""
        return [[template.format(name) for name in self.names] for template in self.templates]


@dataclass(frozen=True)
class Sample:
    """One image: its path relative to the data root (POSIX) and its label."""

    path: str
    label: int


@runtime_checkable
class ImageSource(Protocol):
    """Where the images of a task come from: a folder on disk, arrays in memory, a drawing rule."""

    def open(self, path: str) -> Image.Image:
        """The RGB image of a sample; raises DataError naming the file when it is missing or broken."""
        ...

    def digest(self, path: str) -> str:
        """A hash of the image's bytes (or of the rule that draws it), for the feature cache."""
        ...


@dataclass(frozen=True)
class Task:
    """A classification task: named classes and its train, validation and test samples."""

    name: str
    classes: ClassNames
    train: tuple[Sample, ...]
    val: tuple[Sample, ...]
    test: tuple[Sample, ...]
    images: ImageSource

    def replace(self, **changes: Any) -> "Task":
        """A copy with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Prompts:
    """What a learner hands the frozen CLIP; every field empty means zero-shot.

    Attributes:
        text: context tokens [B|1, P|1, C|1, n, d]: per image, prompt and class where they differ; None = templates.
        text_deep: {block index: tokens like ``text``}; before that block they replace the context positions.
        image: tokens appended after CLS and patches, before ``ln_pre`` [B|1, n, width].
        image_deep: {block index: tokens like ``image``}; before that block they replace the appended positions.
        position: where the class name stands: ``end`` (context first), ``middle`` or ``front`` (name first).
        tail: the fixed words that carry the name, e.g. ``{}.`` (CoOp) or ``of a {}.`` (MaPLe); empty = what the first
            template of the class list has from the name on, e.g. ``{}, a type of pet.`` (TCP).
        beside: further text prompts of the same classes, at another position say; they follow on the axis P.
    """

    text: Float[Tensor, "B P C n d"] | None = None
    text_deep: Mapping[int, Tensor] = field(default_factory=dict)
    image: Float[Tensor, "B m w"] | None = None
    image_deep: Mapping[int, Tensor] = field(default_factory=dict)
    position: str = "end"
    tail: str = "{}."
    beside: "tuple[Prompts, ...]" = ()

    def images(self, start: int, stop: int) -> "Prompts":
        """The prompts of some images of the batch; what all images share stays as it is."""

        def part(tokens: Tensor) -> Tensor:
            return tokens if tokens.shape[0] == 1 else tokens[start:stop]

        return replace(
            self,
            text=None if self.text is None else part(self.text),
            text_deep={index: part(tokens) for index, tokens in self.text_deep.items()},
            image=None if self.image is None else part(self.image),
            image_deep={index: part(tokens) for index, tokens in self.image_deep.items()},
            beside=tuple(prompts.images(start, stop) for prompts in self.beside),
        )


@dataclass(frozen=True)
class Batch:
    """A training or evaluation batch: labels and either pixels or frozen image features (before normalisation).

    ``tokens`` come with features, where a head reads another embedding of the image than these.
    """

    labels: Int[Tensor, " b"]
    pixels: Float[Tensor, "b 3 h w"] | None = None
    features: Float[Tensor, "b D"] | None = None
    tokens: Float[Tensor, "b d"] | None = None


@dataclass(frozen=True)
class ClassMoments:
    """First and second moments over the classes of text features [..., C, D].

    Attributes:
        mean: [..., D].
        centred: the features less their mean.
        gram: products of the centred features: [..., C, C] where C < D, else [..., D, D].
    """

    mean: Float[Tensor, "... D"]
    centred: Float[Tensor, "... C D"]
    gram: Float[Tensor, "... g g"]

    @staticmethod
    def of(features: Float[Tensor, "... C D"]) -> "ClassMoments":
        """The moments of some features."""
        mean = features.mean(dim=-2)
        centred = features - mean[..., None, :]
        small = centred if features.shape[-2] < features.shape[-1] else centred.mT
        return ClassMoments(mean, centred, small @ small.mT)


@dataclass(frozen=True)
class Outputs:
    """One batch through a bound classifier, in torch, float32 or wider.

    Features are L2-normalised. A model without a text side leaves the text fields None; ask by ``require``.

    Attributes:
        logits: exp(logit_scale)·cosine, never divided.
        image_features: tuned image features.
        logit_scale: exp of the model's logit scale; 1 for a model without one.
        learns_text: the text features depend on learned tensors.
        text_features: tuned text features [C, D], or [b, C, D] where the prompts depend on the image. The mean over
            several prompts is normalised again, except where the learner says that it is not.
        zero_shot_text_features: the frozen ones, of the data set's templates.
        temperature: the instance temperature, or None.
        zero_shot_image_features: the frozen ones (needs ``zero_shot_logits``).
        logit_bias: the bias of sigmoid-trained models.
        zero_shot_moments: the moments of ``zero_shot_text_features``.
        reference_text_features: frozen texts of the recipe's own templates, which its terms keep near; the zero-shot
            ones where the recipe names none.
        prompt_features: text features of each prompt [P, C, D], where prompts do not depend on the image.
        nameless_features: features of the prompts without a class name (needs ``nameless_features``).
        norms: ‖z‖₂ of the embeddings that ``image_features`` are the directions of.
        norms_before: the same before the model's last normalisation layer.
        apart: what a head that is trained separately is trained on: logits without gradient, and their temperature.
    """

    logits: Float[Tensor, "b C"]
    image_features: Float[Tensor, "b D"]
    logit_scale: float
    learns_text: bool
    text_features: Float[Tensor, "... C D"] | None = None
    zero_shot_text_features: Float[Tensor, "C D"] | None = None
    temperature: Float[Tensor, " b"] | None = None
    zero_shot_image_features: Float[Tensor, "b D"] | None = None
    logit_bias: float = 0.0
    zero_shot_moments: ClassMoments | None = None
    reference_text_features: Float[Tensor, "C D"] | None = None
    prompt_features: Float[Tensor, "P C D"] | None = None
    nameless_features: Float[Tensor, "Q D"] | None = None
    norms: Float[Tensor, " b"] | None = None
    norms_before: Float[Tensor, " b"] | None = None
    apart: "Outputs | None" = None

    def require(self, name: str) -> Tensor:
        """An optional tensor by name.

        Raises:
            MissingField: these outputs do not carry it.
        """
        value: Tensor | None = getattr(self, name)
        if value is None:
            raise MissingField(
                f"these outputs carry no '{name}': the model has none, or no term declares that it needs it."
            )
        return value

    @property
    def calibrated_logits(self) -> Float[Tensor, "b C"]:
        """The logits divided by the instance temperature (the logits themselves without one)."""
        return self.logits if self.temperature is None else self.logits / self.temperature[:, None]

    @property
    def zero_shot_logits(self) -> Float[Tensor, "b C"]:
        """The frozen model's logits of the same images and classes, times the logit scale, without gradient."""
        return self._frozen_logits(self.require("zero_shot_text_features"))

    @property
    def reference_logits(self) -> Float[Tensor, "b C"]:
        """The frozen model's logits with the texts of ``reference_text_features``, times the logit scale."""
        reference = self.reference_text_features
        return self.zero_shot_logits if reference is None else self._frozen_logits(reference)

    def _frozen_logits(self, text: Float[Tensor, "C D"]) -> Float[Tensor, "b C"]:
        if self.zero_shot_image_features is None:
            raise MissingField("these outputs carry no zero-shot image features; declare needs={'zero_shot_logits'}.")
        with outside_autocast(text.device):
            return self.logit_scale * (self.zero_shot_image_features @ text.T) + self.logit_bias


@dataclass(frozen=True)
class Predictions:
    """One evaluated split, in numpy: what every calibrator, metric and report works on.

    Attributes:
        logits: [n, C], times the logit scale, not divided by any temperature.
        labels: [n], int64.
        classes: class names in label order.
        temperature: instance temperature [n] or None.
        zero_shot_logits: [n, C] of the frozen model, times the logit scale.
        image_features: [n, D], L2-normalised.
        text_features: [C, D], L2-normalised tuned text features (the mean over images where they depend on the image).
        zero_shot_text_features: [C, D], L2-normalised.
        norms: ‖z‖₂ of the embeddings that ``image_features`` are the directions of [n].
        norms_before: the same before the model's last normalisation layer [n].
        paths: the samples' paths relative to the data root.
        split: which split this is, such as ``val``, ``base`` or ``novel``.
        transformed_by: names of the calibrators already applied, in order.
        probabilities: [n, C] once a calibrator has replaced the softmax of the logits.
    """

    logits: Float[np.ndarray, "n C"]
    labels: Int[np.ndarray, " n"]
    classes: tuple[str, ...]
    temperature: Float[np.ndarray, " n"] | None = None
    zero_shot_logits: Float[np.ndarray, "n C"] | None = None
    image_features: Float[np.ndarray, "n D"] | None = None
    text_features: Float[np.ndarray, "C D"] | None = None
    zero_shot_text_features: Float[np.ndarray, "C D"] | None = None
    norms: Float[np.ndarray, " n"] | None = None
    norms_before: Float[np.ndarray, " n"] | None = None
    probabilities: Float[np.ndarray, "n C"] | None = None
    paths: tuple[str, ...] | None = None
    split: str = ""
    transformed_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n, classes = self.logits.shape
        if len(self.labels) != n:
            raise DataError(f"{n} rows of logits but {len(self.labels)} labels.")
        if len(self.classes) != classes:
            raise DataError(f"{classes} columns of logits but {len(self.classes)} class names.")

    @property
    def calibrated_logits(self) -> Float[np.ndarray, "n C"]:
        """Float64 logits divided by the instance temperature where there is one."""
        logits = self.logits.astype(np.float64)
        return logits if self.temperature is None else logits / self.temperature.astype(np.float64)[:, None]

    def probs(self) -> Float[np.ndarray, "n C"]:
        """Float64 probabilities: those a calibrator set, else the softmax of ``calibrated_logits``."""
        if self.probabilities is not None:
            return self.probabilities
        logits = self.calibrated_logits
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        result: np.ndarray = exponentials / exponentials.sum(axis=1, keepdims=True)
        return result

    def require(self, name: str) -> np.ndarray:
        """An optional field by name, or one sentence that says who saves it."""
        value: np.ndarray | None = getattr(self, name)
        if value is None:
            raise MissingField(
                f"these predictions{f' ({self.split})' if self.split else ''} carry no '{name}'; "
                f"'promptcal run' saves it, a file with probabilities or logits alone does not."
            )
        return value

    def replace(self, **changes: Any) -> "Predictions":
        """A copy with some fields changed."""
        return replace(self, **changes)
