"""One calibrator for the classes it was fitted on, another for all others."""

from typing import ClassVar

from promptcal.calibrators.building import Described, build_calibrator
from promptcal.calibrators.contract import Calibrator, LearnsFrom
from promptcal.config import register
from promptcal.types import Predictions


@register("calibrator", "route")
class Route(Calibrator):
    """Tuned predictions where the class list is the one it was fitted on (base), zero-shot ones elsewhere (novel).

    The choice is made per split, by its class list: a split with any other list, also one that holds base and novel
    classes together, counts as novel.

    Args:
        base: the calibrator of the base split, by name, node or object; ``none`` leaves it as it is.
        novel: the calibrator of every other split.

    >>> Route().get_params(deep=False)
    {'base': 'none', 'novel': 'zero_shot'}
    """

    name: ClassVar[str] = "route"

    def __init__(self, base: Described = "none", novel: Described = "zero_shot") -> None:
        self.base = base
        self.novel = novel

    @property
    def learns_from(self) -> LearnsFrom:  # type: ignore[override]
        """The class list at least."""
        steps = build_calibrator(self.base), build_calibrator(self.novel)
        return "rows" if any(step.learns_from == "rows" for step in steps) else "classes"

    @property
    def transfers_to_new_classes(self) -> bool:  # type: ignore[override]
        """The calibrator of the novel split transfers."""
        return build_calibrator(self.novel).transfers_to_new_classes

    @property
    def keeps_argmax(self) -> bool:  # type: ignore[override]
        """Both calibrators keep it."""
        return build_calibrator(self.base).keeps_argmax and build_calibrator(self.novel).keeps_argmax

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """What either calibrator needs."""
        return build_calibrator(self.base).needs | build_calibrator(self.novel).needs

    def _learn(self, predictions: Predictions) -> None:
        self.base_ = build_calibrator(self.base).fit(predictions)
        self.novel_ = build_calibrator(self.novel).fit(predictions)

    def _move(self, predictions: Predictions) -> Predictions:
        is_base = predictions.classes == tuple(map(str, self.classes_))
        chosen = self.base_ if is_base else self.novel_
        return chosen.apply(predictions).replace(transformed_by=predictions.transformed_by)

    def _found(self) -> str:
        return f"base by {self.base_.report()}, novel by {self.novel_.report()}"
