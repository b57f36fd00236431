"""Zero-shot CLIP: no prompts at all, the templates of the data card."""

from promptcal.config import register
from promptcal.learners.contract import Learner


@register("learner", "zero_shot")
class ZeroShot(Learner):
    """The frozen model with the card's templates; several templates are an ensemble.

    References:
        Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021,
        arXiv 2103.00020.
    """
