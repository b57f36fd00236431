"""Cross-dataset transfer: train on one data set, test on others."""

from collections.abc import Sequence

from promptcal.config import register
from promptcal.data.protocols.contract import Described, Draw, Splits, drawn, named_targets
from promptcal.errors import ConfigError
from promptcal.types import Task


@register("protocol", "cross_dataset")
def cross_dataset(task: Task, draw: Draw, targets: Sequence[Described] = (), test: str = "split") -> Splits:
    """Train on few shots of all classes, test on the same data set and on others, each with its own classes and texts.

    The splits have the names of the data sets; the one that is trained on comes first.

    Args:
        task: the data set to train on.
        draw: shots, seed, where validation images come from, and what reads the others.
        targets: the data sets to test on: names of cards, or mappings such as ``{name: xray, path: /my/xray}``.
        test: ``split`` = the test split of the trained data set; ``undrawn`` = that and what was not drawn of it.

    Raises:
        ConfigError: no targets, an unknown one, or two of one name. DataError: one that cannot be read.

    References:
        Zhou et al., "Conditional Prompt Learning for Vision-Language Models", CVPR 2022, arXiv 2203.05557.
    """
    if not targets:
        raise ConfigError("there is nothing to test on; name data sets, such as protocol.targets=[dtd,eurosat].")
    few, notes = drawn(task, draw, test)
    others = [draw.read(described).replace(train=(), val=()) for described in targets]
    return Splits(train=few, targets=named_targets([few, *others]), notes=notes)
