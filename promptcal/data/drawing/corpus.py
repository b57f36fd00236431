"""The pre-training corpus: random pictures of shapes, digits and letters with the facts that captions may state."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from promptcal.data.drawing.captions import (
    BACKGROUND,
    BACKGROUNDS,
    BLURRY,
    CASE,
    CHARACTER,
    CLEAR,
    COLOUR,
    FACTS,
    FONT,
    PATTERN,
    PEN,
    QUALITY,
    SHAPE,
    SOURCE,
    UNKNOWN,
    Facts,
    glyph_facts,
    glyph_of,
)
from promptcal.data.drawing.glyphs import draw_glyph
from promptcal.data.drawing.shapes import draw_shape
from promptcal.data.drawing.vocabulary import COLOURS, GLYPHS, PATTERNS, SHAPES

SHAPE_SHARE: Final = 0.50
DIGIT_SHARE: Final = 0.35
_SEVERITY_ODDS: Final = (0.45, 0.25, 0.15, 0.15)


def _random_facts(rng: np.random.Generator) -> Facts:
    facts = np.full(len(FACTS), UNKNOWN, dtype=np.int16)
    kind = rng.random()
    if kind < SHAPE_SHARE:
        facts[SHAPE] = rng.integers(len(SHAPES))
        facts[PATTERN] = rng.integers(len(PATTERNS))
        facts[COLOUR] = rng.integers(len(COLOURS))
    else:
        digit = kind < SHAPE_SHARE + DIGIT_SHARE
        glyph = GLYPHS[int(rng.integers(10) if digit else rng.integers(10, len(GLYPHS)))]
        facts[CHARACTER], facts[CASE] = glyph_facts(glyph)
        facts[SOURCE] = PEN if digit and rng.random() < 0.5 else FONT
        if rng.random() < 0.35:
            facts[COLOUR] = rng.integers(len(COLOURS))
    if facts[COLOUR] != UNKNOWN:
        facts[BACKGROUND] = rng.integers(len(BACKGROUNDS))
    return facts


def draw_corpus(count: int, seed: int, first: int = 0) -> tuple[NDArray[np.uint8], Facts]:
    """Pictures `first` to `first + count - 1` of the corpus of a seed.

    Returns uint8 images of shape (count, 32, 32, 3) and their facts, int16 of shape (count, len(FACTS)). Every picture
    has a generator of its own, so parts drawn in several processes join to the same corpus.
    """
    images = np.empty((count, 32, 32, 3), dtype=np.uint8)
    rows = np.empty((count, len(FACTS)), dtype=np.int16)
    for index in range(count):
        rng = np.random.default_rng([seed, first + index])
        facts = _random_facts(rng)
        severity = int(rng.choice(len(_SEVERITY_ODDS), p=_SEVERITY_ODDS))
        facts[QUALITY] = BLURRY if severity >= 2 else CLEAR
        colour = None if facts[COLOUR] == UNKNOWN else COLOURS[facts[COLOUR]]
        background = None if facts[BACKGROUND] == UNKNOWN else BACKGROUNDS[facts[BACKGROUND]]
        if facts[SHAPE] != UNKNOWN and colour is not None:
            image = draw_shape(
                colour,
                PATTERNS[facts[PATTERN]],
                SHAPES[facts[SHAPE]],
                rng,
                severity=severity,
                background=background,
            )
        else:
            image = draw_glyph(
                glyph_of(facts),
                rng,
                source="pen" if facts[SOURCE] == PEN else "font",
                colour=colour,
                severity=severity,
                background=background,
            )
        images[index] = np.asarray(image)
        rows[index] = facts
    return images, rows
