"""What every loss term offers, and which terms go together."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import locate
from promptcal.errors import ConfigError
from promptcal.types import Outputs


@runtime_checkable
class LossTerm(Protocol):
    """One additive term: a weight and a scalar value of a batch, in float32 or wider.

    ``needs`` names what it reads beyond logits and features (``zero_shot_logits``); ``replaces_cross_entropy`` says
    that the term stands in for cross-entropy; ``of_text`` that it acts on learned text features. A class may also have
    a static method ``remarks(settings, batch_size)``: what the reader of a report must know, see ``remarks``.
    """

    weight: float
    needs: frozenset[str]
    replaces_cross_entropy: bool
    of_text: bool

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The unweighted value of the term."""
        ...


def check_terms(terms: Mapping[str, LossTerm], *, learns_text: bool, n_classes: int) -> None:
    """Refuse combinations that cannot mean anything, before a model is trained on them.

    Raises:
        ConfigError: no term, two terms that replace cross-entropy, a text term where no text is learned, one class.
    """
    if not terms:
        raise ConfigError("there is no loss term; a method that trains needs one, such as losses.cross_entropy.")
    replacers = [name for name, term in terms.items() if term.replaces_cross_entropy]
    if len(replacers) > 1:
        raise ConfigError(
            f"both '{replacers[0]}' and '{replacers[1]}' stand in for cross-entropy; keep one of them: "
            f"losses.{replacers[0]}=null switches a term off."
        )
    if n_classes < 2:
        raise ConfigError("training needs at least two classes: with one, every probability is 1 whatever is learned.")
    for name, term in terms.items():
        if term.of_text and not learns_text:
            raise ConfigError(
                f"the term '{name}' acts on learned text features, but this learner learns no text; leave it out."
            )


def remarks(nodes: Iterable[Mapping[str, Any]], batch_size: int) -> list[str]:
    """What the terms of these configuration nodes have to say of their settings and of the batch size."""
    said: list[str] = []
    for node in nodes:
        own = getattr(locate(str(node["_target_"])), "remarks", None)
        said += own(node, batch_size) if own else []
    return said
