"""Pseudo-novel classes: the base half alone, halved again; for choosing without looking at a test image."""

from promptcal.config import register
from promptcal.data.protocols.base_to_novel import base_to_novel
from promptcal.data.protocols.contract import Draw, Splits
from promptcal.data.splits import base_novel
from promptcal.errors import DataError
from promptcal.types import Task


@register("protocol", "pseudo_novel")
def pseudo_novel(task: Task, draw: Draw, test: str = "split", target: str = "own", fold: int | None = None) -> Splits:
    """Train on half of the base classes; the other half stands for classes that are new.

    The draw and the base half are those of ``base_to_novel`` with the same seeds, and no image beyond it is read: the
    split ``novel`` is the drawn training and validation images of the classes left out, the split ``base`` the
    validation images of those trained on.

    Args:
        task: the whole task.
        draw: shots, seeds and where validation images come from.
        test: as in ``base_to_novel``, whose draw is taken.
        target: as in ``base_to_novel``; each half is classified among its own classes here whatever it says.
        fold: None = the first half of the base labels is trained on; a number = a seeded random half of them.

    Raises:
        DataError: no validation images, or fewer than two base classes.
    """
    del target
    base = base_to_novel(task, draw, test).train
    if not base.val:
        raise DataError("the protocol pseudo_novel tests on base validation images, and there are none.")
    seen, left_out = base_novel(base, fold)
    note = "novel classes are base classes that were left out of the training; no test image was looked at."
    seen = seen.replace(test=seen.val)
    return Splits(
        train=seen,
        targets={"base": seen, "novel": left_out.replace(test=left_out.train + left_out.val)},
        notes=(note,),
    )
