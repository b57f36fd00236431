"""Few-shot classification of all classes."""

from promptcal.config import register
from promptcal.data.protocols.contract import Draw, Splits, drawn
from promptcal.types import Task


@register("protocol", "few_shot")
def few_shot(task: Task, draw: Draw, test: str = "split") -> Splits:
    """Train on few shots of all classes, test on the test images of the same classes: one split, ``test``.

    Args:
        task: the whole task.
        draw: shots (1, 2, 4, 8 and 16 in the paper), seed and where validation images come from.
        test: ``split`` = the test split; ``undrawn`` = that and every image neither trained nor calibrated on.

    Raises:
        ConfigError: an unknown ``test``.

    References:
        Zhou et al., "Learning to Prompt for Vision-Language Models", IJCV 2022, arXiv 2109.01134.
    """
    few, notes = drawn(task, draw, test)
    return Splits(train=few, targets={"test": few}, notes=notes)
