"""Procedural pictures: coloured, patterned shapes and printed or hand-drawn glyphs on small RGB canvases.

Two users share this package. The pre-training corpus of the embedded CLIP draws with `style="pretrain"`; the `shapes`
benchmark draws the same compositions with `style="shifted"`, whose backgrounds, occlusions and blur the embedded CLIP
has not seen. Every drawing is a pure function of what is drawn and of the NumPy generator it is given.
"""

from promptcal.data.drawing.glyphs import draw_glyph
from promptcal.data.drawing.shapes import draw_shape
from promptcal.data.drawing.vocabulary import COLOURS, DIGIT_NAMES, GLYPHS, MAX_SEVERITY, PATTERNS, SHAPES, STYLES

__all__ = [
    "COLOURS",
    "DIGIT_NAMES",
    "GLYPHS",
    "MAX_SEVERITY",
    "PATTERNS",
    "SHAPES",
    "STYLES",
    "draw_glyph",
    "draw_shape",
]
