"""Stage 2 of ViT-Calibrator: learn from the same network, shown its class's dimensions alone."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.models.vit_calibrator import CalibratedViT
from promptcal.precision import wide
from promptcal.types import Outputs


def calibrated_vit(classifier: Any, term: str) -> CalibratedViT:
    """The network with class masks behind a classifier.

    Raises:
        ConfigError: the classifier has none, so ``term`` has nothing to act on.
    """
    found = getattr(getattr(classifier, "learner", None), "backbone", None)
    if not isinstance(found, CalibratedViT) or found.correction is None:
        raise ConfigError(
            f"the term '{term}' acts on the class masks of ViT-Calibrator's second stage, which this model has not; "
            f"use method=vit_calibrator or vit_calibrator_dimension, or leave the term out."
        )
    return found


def classifier_input(outputs: Outputs) -> Float[Tensor, "b D"]:
    """What the classifier read: the network's own embedding z, not normalised."""
    return wide(outputs.image_features) * wide(outputs.require("norms"))[:, None]


@register("loss", "masked_distillation")
class MaskedDistillation:
    """T² · mean over images of KL(softmax(l_teacher/T) ‖ softmax(l_student/T)).

    The student's logits are the model's; the teacher's those of its classifier on z ⊙ M_y, the classifier's input of
    the same pass with all dimensions but those of the image's class y set to 0, without gradient.

    Args:
        classifier: the model, with the class masks M [C, D].
        weight: a = 1 here.
        temperature: T.

    Raises:
        ConfigError: a model without class masks, or a temperature that is not positive.

    References:
        Chen et al., "ViT-Calibrator: Decision Stream Calibration for Vision Transformer", AAAI 2024, arXiv 2304.04354.
        The paper's formula could not be read; "mask-based self-distillation" is all that is known, the rest inferred.
    """

    replaces_cross_entropy = False
    of_text = False
    needs: frozenset[str] = frozenset()

    def __init__(self, classifier: Any, weight: float = 1.0, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise ConfigError(f"masked_distillation.temperature is {temperature}; it must be positive.")
        self.model = calibrated_vit(classifier, "masked_distillation")
        self.weight, self.temperature = weight, temperature

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The unweighted value."""
        with torch.no_grad():
            masked = classifier_input(outputs) * self.model.masks[labels]
            teacher = wide(self.model.classify(masked)) / self.temperature
        student = wide(outputs.logits) / self.temperature
        divergence = functional.kl_div(
            student.log_softmax(dim=1), teacher.log_softmax(dim=1), log_target=True, reduction="batchmean"
        )
        return divergence * self.temperature**2
