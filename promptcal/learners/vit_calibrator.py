"""ViT-Calibrator as a learner: a trained vision transformer, frozen, with feedback and a corrected class token."""

from collections.abc import Mapping
from typing import Any

import torch

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.models.vision import Network, VisionModel
from promptcal.models.vit_calibrator import CalibratedViT
from promptcal.types import ClassNames


@register("learner", "vit_calibrator")
class ViTCalibrator(Network):
    """A network whose backbone is the model, trained before and frozen now, with the stages of ViT-Calibrator.

    Args:
        vision: the model, with trained weights.
        classes: the classes it tells apart, those its weights were made for.
        generator: the random numbers of the initialisation.
        head_node: configuration of an instance temperature beside it.
        stage: ``token``, ``dimension`` or ``both``.
        sources: how many of the last blocks feed back; None = 3, and in a shallow model all but the first.
        target: the block, counted from 1, that they feed; None = 3, or what the sources leave of a shallow model.
        gate: ``learned``, ``rollout`` or ``none``.
        hidden: the width of the correction's bottleneck.
        keep: the share of its relevance that a class's mask keeps.
        confidence: images count for the masks from this confidence on.

    Raises:
        ConfigError: a model with random weights, or for other classes, or one that cannot have these stages.

    References:
        Chen et al., "ViT-Calibrator: Decision Stream Calibration for Vision Transformer", AAAI 2024, arXiv 2304.04354;
        inferred, see ``promptcal.models.vit_calibrator``.
    """

    def __init__(
        self,
        vision: VisionModel,
        classes: ClassNames,
        generator: torch.Generator | None = None,
        head_node: Mapping[str, Any] | None = None,
        stage: str = "both",
        sources: int | None = None,
        target: int | None = None,
        gate: str = "learned",
        hidden: int = 32,
        keep: float = 0.9,
        confidence: float = 0.0,
    ) -> None:
        if vision.weights == "random":
            raise ConfigError(
                f"ViT-Calibrator mends a trained model, but '{vision.name}' starts from random weights; train it first "
                f"(promptcal run protocol=train model=… dataset=…) and give that run's folder as model.weights=RUN."
            )
        if vision.made_for != len(classes):
            raise ConfigError(
                f"ViT-Calibrator leaves the classifier as it is, and the weights of '{vision.name}' tell "
                f"{vision.made_for} classes apart, not {len(classes)}; train it on these classes first."
            )

        def make(n_classes: int) -> CalibratedViT:
            return CalibratedViT(vision.make(n_classes), stage, sources, target, gate, hidden, keep, confidence)

        mended = VisionModel(make, vision.transform, vision.name, vision.weights, vision.made_for).to(vision.device)
        super().__init__(mended, classes, generator, head_node)
