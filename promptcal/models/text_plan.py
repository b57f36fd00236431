"""Where every token of a prompted class list stands: pure functions of a tokenizer, no weights.

The layout is CoOp's (Zhou et al., "Learning to Prompt for Vision-Language Models", IJCV 2022, arXiv 2109.01134):

    end     [SOT | ctx ... | tail with NAME | EOT]
    middle  [SOT | first half of ctx | NAME | second half of ctx | rest of the tail | EOT]
    front   [SOT | NAME | ctx ... | rest of the tail | EOT]

where ``tail``, such as ``{}.``, carries the class name and the fixed words around it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from promptcal.errors import ConfigError, DataError

POSITIONS = ("end", "middle", "front")


@dataclass(frozen=True)
class Tokens:
    """The parts of a tokenizer a plan needs: ``encode`` gives the ids of a text without SOT and EOT."""

    encode: Callable[[str], list[int]]
    start: int
    end: int
    context_length: int


@dataclass(frozen=True)
class TextPlan:
    """Token ids and the places of the learned context for C classes.

    Attributes:
        ids: [C, L] token ids, zero-padded to the context length L; context places hold 0.
        context: [C, n] positions of the n learned tokens.
        eot: [C] position of the end-of-text token, where the feature is read.
        names: the class names, for messages.
    """

    ids: np.ndarray
    context: np.ndarray
    eot: np.ndarray
    names: tuple[str, ...]


def plan(names: Sequence[str], n_context: int, tokens: Tokens, *, position: str = "end", tail: str = "{}.") -> TextPlan:
    """Lay out ``n_context`` learned tokens and each class name.

    Raises:
        ConfigError: an unknown position or a tail without ``{}``.
        DataError: a class name that is empty or does not fit, with its token count and the room there is.
    """
    if position not in POSITIONS:
        raise ConfigError(f"unknown position '{position}'; the class name can stand at: {', '.join(POSITIONS)}.")
    if "{}" not in tail:
        raise ConfigError(f"the tail '{tail}' has no '{{}}' for the class name.")
    rows, contexts = [], []
    room = tokens.context_length - 2 - n_context
    for name in names:
        if not name.strip():
            raise DataError("a class name is empty; every class needs a name to make text of.")
        words = tokens.encode(tail.format(name))
        if len(words) > room:
            raise DataError(
                f"the class name '{name}' takes {len(words)} tokens with '{tail}', but {room} are left of the model's "
                f"{tokens.context_length} after start, end and {n_context} context tokens; shorten it or use fewer "
                f"context tokens."
            )
        before = {"end": 0, "middle": _name_end(name, tail, tokens), "front": _name_end(name, tail, tokens)}[position]
        first = {"end": n_context, "middle": n_context // 2, "front": 0}[position]
        hole = [0] * n_context
        row = [tokens.start, *hole[:first], *words[:before], *hole[first:], *words[before:], tokens.end]
        places = [*range(1, 1 + first), *range(1 + first + before, 1 + before + n_context)]
        rows.append(row + [0] * (tokens.context_length - len(row)))
        contexts.append(places)
    ids = np.array(rows, dtype=np.int64)
    return TextPlan(
        ids=ids,
        context=np.array(contexts, dtype=np.int64).reshape(len(rows), n_context),
        eot=np.array([n_context + 1 + len(tokens.encode(tail.format(name))) for name in names], dtype=np.int64),
        names=tuple(names),
    )


def _name_end(name: str, tail: str, tokens: Tokens) -> int:
    """How many tokens of the filled tail come up to the end of the class name."""
    return len(tokens.encode(tail.split("{}")[0] + name))
