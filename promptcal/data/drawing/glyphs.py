"""Digits and letters, printed in the fonts that come with matplotlib or drawn with a pen, often at low resolution."""

from functools import lru_cache
from pathlib import Path
from typing import Final

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from scipy.ndimage import map_coordinates

from promptcal.data.drawing.canvas import (
    Canvas,
    Colour,
    background_names,
    degrade,
    draw_background,
    named_colour,
    occlude,
    random_colour,
)
from promptcal.data.drawing.pens import draw_pen_digit
from promptcal.data.drawing.vocabulary import (
    COLOURS,
    GLYPHS,
    STYLES,
    Source,
    Style,
    check_choice,
    check_severity,
)

# Fonts of matplotlib with upright or slanted Latin letters and digits; the mathematical symbol fonts are left out.
FONTS: Final[tuple[str, ...]] = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)
_SIDE: Final = 64
_RESAMPLERS: Final = (Image.Resampling.NEAREST, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)


@lru_cache(maxsize=256)
def _font(name: str, pixels: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"), pixels)


def _printed(glyph: str, rng: np.random.Generator) -> Image.Image:
    """The ink mask of a glyph in a random font, stretched and slanted, its strokes made thicker or thinner."""
    font = _font(FONTS[int(rng.integers(len(FONTS)))], int(rng.integers(9, 15)) * 4)
    left, top, right, bottom = font.getbbox(glyph)
    mask = Image.new("L", (_SIDE, _SIDE), 0)
    corner = ((_SIDE - left - right) / 2, (_SIDE - top - bottom) / 2)
    ImageDraw.Draw(mask).text(corner, glyph, fill=255, font=font)
    choice = rng.random()
    if choice < 0.25:
        mask = mask.filter(ImageFilter.MaxFilter(3 if choice < 0.15 else 5))
    elif choice < 0.35:
        mask = mask.filter(ImageFilter.MinFilter(3))
    angle, shear, stretch = rng.normal(0.0, 0.09), rng.normal(0.0, 0.12), np.exp(rng.normal(0.0, 0.12))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = turn @ np.array([[stretch, shear], [0.0, 1.0]])
    half = _SIDE / 2
    shift = half - matrix @ np.array([half, half])
    coefficients = (*matrix[0], shift[0], *matrix[1], shift[1])
    return mask.transform(mask.size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)


def _warped(mask: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The mask bent by a smooth random displacement of a few pixels."""
    strength = rng.uniform(0.5, 3.0)
    moves = []
    for _ in range(2):
        coarse = Image.fromarray(rng.standard_normal((5, 5), dtype=np.float32) * np.float32(strength))
        moves.append(np.asarray(coarse.resize(mask.size, Image.Resampling.BICUBIC)))
    rows, columns = np.mgrid[0:_SIDE, 0:_SIDE].astype(np.float32)
    ink = map_coordinates(np.asarray(mask), [rows + moves[0], columns + moves[1]], order=1, mode="constant")
    return Image.fromarray(ink)


def _framed(mask: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The mask cut to its ink and placed on a square frame so that it fills between half and all of the height."""
    box = mask.getbbox() or (0, 0, _SIDE, _SIDE)
    inked = mask.crop(box)
    height = int(_SIDE * rng.uniform(0.5, 1.0))
    width = max(4, min(_SIDE, round(inked.width / inked.height * height * np.exp(rng.normal(0.0, 0.1)))))
    inked = inked.resize((width, height), Image.Resampling.BILINEAR)
    frame = Image.new("L", (_SIDE, _SIDE), 0)
    slack = np.array([_SIDE - width, _SIDE - height])
    left, top = (slack * rng.uniform(0.25, 0.75, 2)).astype(int)
    frame.paste(inked, (int(left), int(top)))
    return frame


def _coverage(mask: Image.Image, rng: np.random.Generator, size: int, coarse: bool) -> Canvas:
    """The (size, size) share of ink per pixel; when `coarse`, passed through a grid of 8 to 16 pixels first."""
    if coarse:
        cells = int(rng.integers(8, 17))
        mask = mask.resize((cells, cells), Image.Resampling.BOX)
        mask = mask.resize((size, size), _RESAMPLERS[int(rng.integers(len(_RESAMPLERS)))])
    else:
        mask = mask.resize((size, size), Image.Resampling.BOX)
    return np.asarray(mask, dtype=np.float32) / 255.0


def _inks(rng: np.random.Generator, colour: str | None) -> tuple[Colour, Colour]:
    """Ink and paper: the named colour on paper unlike it, or else light on dark or dark on light greys."""
    if colour is not None:
        ink = named_colour(colour, rng)
        return ink, random_colour(rng, ink, 0.6)
    dark, light = rng.uniform(0.0, 0.2), rng.uniform(0.75, 1.0)
    if rng.random() < 0.5:
        dark, light = 0.0, 1.0
    pair = np.full(3, light, dtype=np.float32), np.full(3, dark, dtype=np.float32)
    return pair if rng.random() < 0.6 else (pair[1], pair[0])


def draw_glyph(
    glyph: str,
    rng: np.random.Generator,
    *,
    source: Source = "font",
    colour: str | None = None,
    size: int = 32,
    style: Style = "pretrain",
    severity: int = 0,
    background: str | None = None,
) -> Image.Image:
    """Draw one digit or Latin letter as an RGB image of `size` x `size` pixels.

    `source` "font" prints it in a random font, "pen" (digits alone) draws it by a wobbly pen. Without a `colour` the
    picture is grey on a plain ground; with one, the ink has that colour and lies on a background of `style`. `severity`
    (0..5) acts as for `draw_shape`. The image depends on the arguments and on the state of `rng` alone.
    """
    check_choice("glyph", glyph, GLYPHS)
    check_choice("source", source, ("font", "pen"))
    check_choice("style", style, STYLES)
    check_severity(severity)
    if source == "pen" and not glyph.isdigit():
        raise ValueError(f"The pen draws digits alone, not {glyph!r}: use the source 'font'.")
    if colour is not None:
        check_choice("colour", colour, COLOURS)
    kinds = background_names(style)
    mask = draw_pen_digit(glyph, rng, _SIDE) if source == "pen" else _printed(glyph, rng)
    if rng.random() < 0.5:
        mask = _warped(mask, rng)
    coverage = _coverage(_framed(mask, rng), rng, size, coarse=bool(rng.random() < 0.5))[..., None]
    ink, paper = _inks(rng, colour)
    if colour is None:
        canvas = np.broadcast_to(paper, (size, size, 3)).astype(np.float32)
    else:
        kind = background or kinds[int(rng.integers(len(kinds)))]
        check_choice("background", kind, kinds)
        canvas = draw_background(kind, rng, size, paper, ink)
    canvas = (canvas + (ink - canvas) * coverage).astype(np.float32)
    if style == "shifted":
        canvas = occlude(canvas, rng, severity)
    return degrade(canvas, rng, severity)
