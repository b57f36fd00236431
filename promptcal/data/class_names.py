"""The one normaliser of class names: what every reader applies before a name reaches a template."""

import html
import logging
import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from promptcal.errors import DataError

logger = logging.getLogger(__name__)

SPECIAL_TOKEN = re.compile(r"<\|?(start|end)_?of_?text\|?>", re.IGNORECASE)
"""How CLIP's tokenizers write their start and end tokens; a name that holds one would end its own text early."""


LISTED = 10
"""How many names a message lists before it counts the others."""


def listed(names: Sequence[str]) -> str:
    """Names for a message: the first ten, and how many more there are.

    >>> listed([f"class {label}" for label in range(12)])[-27:]
    'class 8, class 9 and 2 more'
    """
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def normalise_class_names(raw: Sequence[str], *, duplicates: Literal["refuse", "say"] = "refuse") -> tuple[str, ...]:
    """Class names as they enter the templates: underscores become spaces, runs of white space one space, ends trimmed.

    Unicode is brought to its composed form (NFC). Case, hyphens and slashes stay; the tokenizer lower-cases later.

    Args:
        raw: the names in label order, as the data set spells them.
        duplicates: what to do about equal names: refuse them, or say in the log that their logits will be tied, for
            published lists that have such names.

    Raises:
        DataError: a name that is empty, that holds a special token of the tokenizer, or that equals another one up to
            case (their texts, hence their logits, would be identical); the labels at fault are named.
    """
    names = tuple(" ".join(unicodedata.normalize("NFC", name).replace("_", " ").split()) for name in raw)
    seen: dict[str, int] = {}
    for label, name in enumerate(names):
        if not name:
            raise DataError(f"class {label} has an empty name ({raw[label]!r}); give it one.")
        if SPECIAL_TOKEN.search(html.unescape(html.unescape(raw[label]))):  # the tokenizers unescape twice
            raise DataError(
                f"the name of class {label}, {raw[label]!r}, holds a token of the tokenizer's own; rename it."
            )
        other = seen.setdefault(name.lower(), label)
        if other != label and duplicates == "say":
            logger.warning("classes %d and %d are both called '%s'; their logits are tied.", other, label, name)
        elif other != label:
            raise DataError(
                f"classes {other} ({raw[other]!r}) and {label} ({raw[label]!r}) have the same name '{name}' once "
                f"underscores, spaces and case are set aside; rename one."
            )
    return names
