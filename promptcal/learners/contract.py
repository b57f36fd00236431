"""What every learner offers: prompts for a frozen CLIP, and the truth about itself."""

from jaxtyping import Float
from torch import Tensor, nn

from promptcal.types import Prompts


class Learner(nn.Module):
    """One way to make prompts; a subclass overrides ``forward`` and says what it does.

    The ``state_dict()`` of a learner is its checkpoint: learned tensors only, never class names.

    Attributes:
        learns_text: the text features depend on learned tensors.
        prompts_image: the image tower must run with prompts, so image features cannot be cached.
        reads_image: ``forward`` reads the frozen, normalised image features.
        per_image: the text prompts differ from image to image.
        tied_classes: the class names a learner with tensors per class was made for, or None.
    """

    learns_text = False
    prompts_image = False
    reads_image = False
    per_image = False
    tied_classes: tuple[str, ...] | None = None

    def forward(self, image_features: Float[Tensor, "b D"] | None) -> Prompts:
        """The prompts of this step; ``image_features`` are frozen and L2-normalised."""
        del image_features
        return Prompts()

    def n_parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)
