"""Base-to-novel: train on half of the classes, test on both halves."""

from promptcal.config import register
from promptcal.data.protocols.contract import Draw, Splits, drawn
from promptcal.data.splits import base_novel
from promptcal.errors import ConfigError
from promptcal.types import Task


@register("protocol", "base_to_novel")
def base_to_novel(task: Task, draw: Draw, test: str = "split", target: str = "own") -> Splits:
    """Few shots of all classes, then the halves: train on base, test on base and novel.

    The few-shot draw comes before the halves, since train and validation share one random stream over all classes:
    that is what gives exactly the published images.

    With ``target="all"`` every test image is classified among the classes of both halves together, and the splits
    ``base`` and ``novel`` are the images whose true class is in that half; ``all`` are both. Validation images stay
    classified among the base classes: what a calibrator learns there, it carries to the joint classes where it can.

    Args:
        task: the whole task.
        draw: shots, seeds and where validation images come from.
        test: ``split`` = the test split; ``undrawn`` = that and every image neither trained nor calibrated on.
        target: ``own`` = each half among its own classes; ``all`` = among all classes.

    Raises:
        ConfigError: an unknown ``test`` or ``target``. DataError: a task of one class.

    References:
        Zhou et al., "Conditional Prompt Learning for Vision-Language Models", CVPR 2022, arXiv 2203.05557. The joint
        classes: Chao et al., "An Empirical Study and Analysis of Generalized Zero-Shot Learning", ECCV 2016, arXiv
        1605.04253.
    """
    if target not in ("own", "all"):
        raise ConfigError(f"unknown protocol.target '{target}'; choose own or all.")
    few, notes = drawn(task, draw, test)
    base, novel = base_novel(few, draw.split_seed)
    if target == "own":
        return Splits(train=base, targets={"base": base, "novel": novel}, notes=notes)

    def among_all(half: Task) -> Task:
        paths = {sample.path for sample in half.test}
        images = tuple(sample for sample in few.test if sample.path in paths)
        return few.replace(name=half.name, train=(), val=(), test=images)

    note = "test images are classified among base and novel classes together, validation images among the base classes"
    return Splits(
        train=base,
        targets={"base": among_all(base), "novel": among_all(novel)},
        joined={"all": ("base", "novel")},
        notes=(*notes, f"{note}."),
    )
