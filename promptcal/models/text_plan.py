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
from torch import Tensor

from promptcal.errors import ConfigError, DataError
from promptcal.types import Prompts

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

    def learned(self, prompts: Prompts) -> dict[int, Tensor]:
        """The learned text tokens of prompts that fit this plan: the context under -1, deep prompts under their block.

        Raises:
            ConfigError: no text context, or tokens of another number, or for another number of classes.
        """
        if prompts.text is None:
            raise ConfigError("there is no text context to encode; empty prompts use the templates instead.")
        tokens = {-1: prompts.text, **prompts.text_deep}
        classes, n = self.context.shape
        for index, tensor in tokens.items():
            what = "the text context" if index < 0 else f"the deep text prompt of block {index}"
            if tensor.ndim != 5 or tensor.shape[3] != n or tensor.shape[2] not in (1, classes):
                raise ConfigError(
                    f"{what} has shape {list(tensor.shape)}, but this plan takes [images or 1, prompts or 1, {classes} "
                    f"classes or 1, {n} tokens, width]; make the prompts and the plan with the same classes and tokens."
                )
        return tokens

    def groups(self, prompts: Prompts) -> tuple[int, int]:
        """How many images and how many prompts there are; every pair of them has learned tokens of its own.

        Raises:
            ConfigError: prompts that do not fit this plan, or tensors that disagree on a number.
        """
        shapes = {tuple(tensor.shape[:2]) for tensor in self.learned(prompts).values()}
        images, count = max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)
        for shape in shapes:
            if shape[0] not in (1, images) or shape[1] not in (1, count):
                raise ConfigError(
                    f"the text prompts disagree: one is for {shape[0]} images and {shape[1]} prompts, another for "
                    f"{images} and {count}; each number must be 1 or the same everywhere."
                )
        return images, count


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
