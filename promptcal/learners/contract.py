"""What every learner offers: prompts for a frozen CLIP, changes of its features, and the truth about itself."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from promptcal.errors import ConfigError
from promptcal.models.image_tokens import PROJECTED
from promptcal.models.temperature import Head
from promptcal.types import ClassNames, Prompts


class Learner(nn.Module):
    """One way to make prompts; a subclass overrides ``forward`` or a hook and says what it does.

    The ``state_dict()`` of a learner is its checkpoint: learned tensors only, never class names.

    Attributes:
        learns_text: the text features depend on learned tensors.
        prompts_image: the image tower must run with prompts, so image features cannot be cached.
        reads_image: ``forward`` reads the frozen, normalised image features.
        reads_classes: ``forward`` reads the frozen, normalised text features of the bound classes.
        per_image: the text prompts differ from image to image.
        normalises_mean: the mean of the unit features of several prompts is normalised again.
        templates: texts of its own where it learns no text tokens; empty = the data set's.
        tied_classes: the class names a learner with tensors per class was made for, or None.
        head: what gives every image a temperature and is trained beside the prompts, or None.
    """

    learns_text = False
    prompts_image = False
    reads_image = False
    reads_classes = False
    per_image = False
    normalises_mean = True
    templates: tuple[str, ...] = ()
    tied_classes: tuple[str, ...] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.head: Head | None = None

    @property
    def token(self) -> str:
        """The embedding of the image that the head reads, of ``SOURCES``."""
        return PROJECTED if self.head is None or self.head.source == "default" else self.head.source

    def forward(
        self, image_features: Float[Tensor, "b D"] | None, class_features: Float[Tensor, "C D"] | None = None
    ) -> Prompts:
        """The prompts of this step.

        Args:
            image_features: frozen and L2-normalised.
            class_features: the frozen, L2-normalised texts the recipe refers to; None unless ``reads_classes``.
        """
        del image_features, class_features
        return Prompts()

    def adapt_image(self, features: Float[Tensor, "b D"]) -> Float[Tensor, "b D"]:
        """The image features to classify, before normalisation, from those of the (prompted) image tower."""
        return features

    def adapt_text(self, features: Float[Tensor, "C D"]) -> Float[Tensor, "C D"]:
        """The class features, before normalisation, from the mean of the raw frozen ones over the templates.

        Asked where ``learns_text`` holds and the prompts have no text.
        """
        return features

    def texts_of(self, classes: ClassNames) -> tuple[str, ...]:
        """The templates of a class list where the prompts have no text: those of the learner, else of the classes."""
        return self.templates or classes.templates

    def serves(self, classes: ClassNames) -> bool:
        """Whether it can classify these classes: any, unless it is tied to others."""
        return self.tied_classes is None or self.tied_classes == classes.names

    def nameless(self) -> Prompts:
        """The prompts whose features without any class name a loss term looks at.

        Raises:
            ConfigError: a learner without such prompts.
        """
        raise ConfigError(f"{type(self).__name__} has no prompts without class names, which a loss term asks for.")

    def n_parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)


@runtime_checkable
class DrawsInTraining(Protocol):
    """A learner with random numbers of its own in training: they must follow from its start and the epoch alone."""

    def begin_epoch(self, epoch: int) -> None:
        """Told the epoch, counted from 0, before its first step, also where a training is resumed there."""
        ...


def begin_epoch(learner: nn.Module, epoch: int) -> None:
    """Tell a learner, and its parts, that draw in training which epoch begins."""
    for part in learner.modules():
        if isinstance(part, DrawsInTraining):
            part.begin_epoch(epoch)
