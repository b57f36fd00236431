"""Stage 2 of ViT-Calibrator: what does not speak for an image's class is to be small."""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.losses.masked_distillation import calibrated_vit, classifier_input
from promptcal.types import Outputs


@register("loss", "suppression")
class Suppression:
    """The mean over images of ‖(1 − M_y) ⊙ z‖² / D: the dimensions outside the mask of the image's class y, squared.

    Args:
        classifier: the model, with the class masks M [C, D].
        weight: b = 0.1 here.

    Raises:
        ConfigError: a model without class masks.

    References:
        Chen et al., "ViT-Calibrator: Decision Stream Calibration for Vision Transformer", AAAI 2024, arXiv 2304.04354.
        The paper says that class-irrelevant dimensions are suppressed; this formula is inferred.
    """

    replaces_cross_entropy = False
    of_text = False
    needs: frozenset[str] = frozenset()

    def __init__(self, classifier: Any, weight: float = 0.1) -> None:
        self.model = calibrated_vit(classifier, "suppression")
        self.weight = weight

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The unweighted value."""
        outside = classifier_input(outputs) * (1 - self.model.masks[labels])
        return outside.square().mean(dim=1).mean()
