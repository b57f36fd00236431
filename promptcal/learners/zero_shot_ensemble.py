"""Zero-shot CLIP with an ensemble of templates."""

from collections.abc import Sequence

from promptcal.config import register
from promptcal.learners.contract import Learner
from promptcal.types import ClassNames

SELECT = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)
"""The seven templates that OpenAI's notebook on prompt engineering selects for ImageNet from its eighty."""


@register("learner", "zero_shot_ensemble")
class ZeroShotEnsemble(Learner):
    """The frozen model with several templates and those of the data set: unit features, averaged, normalised again.

    Args:
        templates: the templates.
        with_own: the data set's templates, too, where they are not among ``templates``; the released code leaves them
            out for ImageNet.

    References:
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021,
        arXiv 2103.00020; the select ensemble is ``ZeroshotCLIP2`` of Zhou et al., "Learning to Prompt for
        Vision-Language Models", IJCV 2022, arXiv 2109.01134, whose released code adds the data set's template to a
        list that all models of a process share; here nothing is changed.
    """

    def __init__(self, templates: Sequence[str] = SELECT, with_own: bool = True) -> None:
        super().__init__()
        self.templates, self.with_own = tuple(templates), with_own

    def texts_of(self, classes: ClassNames) -> tuple[str, ...]:
        """The ensemble for a class list."""
        own = classes.templates if self.with_own else ()
        return tuple(dict.fromkeys((*self.templates, *own)))
