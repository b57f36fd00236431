"""TaskRes: a learned residual on the frozen text feature of each class."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.config import register
from promptcal.learners.contract import Learner
from promptcal.models.clip import FrozenClip
from promptcal.types import ClassNames


@register("learner", "taskres")
class TaskRes(Learner):
    """Text features t_c = t⁰_c + α·x_c, then normalised; x [C, D] starts at zero.

    t⁰_c is the mean over the templates of the frozen features before normalisation. A residual belongs to a class, so
    this learner is refused on other classes.

    Args:
        clip: the frozen model, of any kind.
        classes: the classes to learn residuals for.
        alpha: α.

    References:
        Yu, Lu, Jin, Chen, Wang, "Task Residual for Tuning Vision-Language Models", CVPR 2023, arXiv 2211.10277.
        Deviation: the released code calls a text classifier that was tuned first "enhanced base"; there is none here.
    """

    learns_text = True

    def __init__(self, clip: FrozenClip, classes: ClassNames, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha, self.tied_classes = alpha, classes.names
        self.residual = nn.Parameter(torch.zeros(len(classes), clip.embed_dim))

    def adapt_text(self, features: Float[Tensor, "C D"]) -> Float[Tensor, "C D"]:
        """The text features with their residuals, before normalisation."""
        return features + self.alpha * self.residual
