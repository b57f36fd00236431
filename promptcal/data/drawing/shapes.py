"""Coloured, patterned shapes such as a red striped circle."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

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
from promptcal.data.drawing.vocabulary import COLOURS, PATTERNS, SHAPES, STYLES, Style, check_choice, check_severity

Points = NDArray[np.float64]
_OVERSAMPLING: Final = 4


def _regular(corners: int, start: float, radius: float = 1.0) -> Points:
    angles = start + 2 * np.pi * np.arange(corners) / corners
    return np.asarray(radius * np.stack([np.cos(angles), np.sin(angles)], axis=1))


def _star() -> Points:
    outline = np.empty((10, 2))
    outline[0::2] = _regular(5, -np.pi / 2, 1.1)
    outline[1::2] = _regular(5, -np.pi / 2 + np.pi / 5, 0.45)
    return outline


def _heart() -> Points:
    t = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    return np.stack([x / 16, -(y + 2.5) / 14.5], axis=1)


def _moon() -> Points:
    outer = np.linspace(0.22 * np.pi, 1.78 * np.pi, 32)
    tip_x, tip_y = np.cos(outer[0]), np.sin(outer[0])
    centre = 0.55
    radius = np.hypot(tip_x - centre, tip_y)
    reach = np.arctan2(tip_y, tip_x - centre)
    inner = np.linspace(2 * np.pi - reach, reach, 24)
    points = np.concatenate(
        [
            np.stack([np.cos(outer), np.sin(outer)], axis=1),
            np.stack([centre + radius * np.cos(inner), radius * np.sin(inner)], axis=1),
        ]
    )
    return np.asarray(points + np.array([0.15, 0.0]))


def _drop() -> Points:
    angles = np.linspace(-0.2 * np.pi, 1.2 * np.pi, 32)
    belly = np.stack([0.68 * np.cos(angles), 0.35 + 0.68 * np.sin(angles)], axis=1)
    return np.concatenate([belly, [[0.0, -1.15]]])


_ARM: Final = 0.34
_OUTLINES: Final[dict[str, Points]] = {
    "circle": _regular(48, 0.0, 0.95),
    "square": np.array([[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]]),
    "triangle": np.array([[0.0, -1.0], [1.0, 0.8], [-1.0, 0.8]]),
    "diamond": np.array([[0.0, -1.15], [0.68, 0.0], [0.0, 1.15], [-0.68, 0.0]]),
    "hexagon": _regular(6, 0.0, 1.0),
    "star": _star(),
    "heart": _heart(),
    "cross": np.array(
        [
            *([-_ARM, -1.0], [_ARM, -1.0], [_ARM, -_ARM], [1.0, -_ARM], [1.0, _ARM], [_ARM, _ARM]),
            *([_ARM, 1.0], [-_ARM, 1.0], [-_ARM, _ARM], [-1.0, _ARM], [-1.0, -_ARM], [-_ARM, -_ARM]),
        ]
    ),
    "moon": _moon(),
    "arrow": np.array([[-1.0, -0.32], [0.1, -0.32], [0.1, -0.85], [1.05, 0.0], [0.1, 0.85], [0.1, 0.32], [-1.0, 0.32]]),
    "house": np.array(
        [[0.0, -1.05], [1.0, -0.2], [0.68, -0.2], [0.68, 0.9], [-0.68, 0.9], [-0.68, -0.2], [-1.0, -0.2]]
    ),
    "drop": _drop(),
}


def _placed_outline(shape: str, rng: np.random.Generator, style: Style) -> Points:
    """The outline of a shape in units of the image side: scaled, stretched, turned and moved at random."""
    largest_turn = np.pi / 9 if style == "pretrain" else np.pi / 7
    smallest = 0.27 if style == "pretrain" else 0.24
    angle = rng.uniform(-largest_turn, largest_turn)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    scale = rng.uniform(smallest, 0.43)
    stretch = np.exp(rng.uniform(-0.12, 0.12))
    points = (_OUTLINES[shape] * [stretch, 1 / stretch]) @ turn.T * scale
    slack = max(0.02, 0.5 - scale)
    return np.asarray(points + 0.5 + rng.uniform(-0.6, 0.6, 2) * slack)


def _coverage(points: Points, size: int, thickness: float | None) -> Canvas:
    """The (size, size) share of each pixel inside the outline, or on its line when a thickness is given."""
    side = size * _OVERSAMPLING
    mask = Image.new("L", (side, side), 0)
    pen = ImageDraw.Draw(mask)
    corners = [(float(x), float(y)) for x, y in points * side]
    if thickness is None:
        pen.polygon(corners, fill=255)
    else:
        pen.line([*corners, *corners[:2]], fill=255, width=max(1, round(thickness * side)), joint="curve")
    return np.asarray(mask.reduce(_OVERSAMPLING), dtype=np.float32) / 255.0


def _pattern(pattern: str, rng: np.random.Generator, size: int) -> Canvas:
    """The (size, size) share of each pixel that carries the second ink of a striped or dotted pattern."""
    fine = 2 * size
    axis = (np.arange(fine, dtype=np.float32) + 0.5) / fine
    angle = rng.uniform(0, np.pi)
    along = axis[None, :] * np.float32(np.cos(angle)) + axis[:, None] * np.float32(np.sin(angle))
    period = rng.uniform(0.15, 0.24)
    first = (along / period + rng.random()) % 1.0
    if pattern == "striped":
        marks = first < rng.uniform(0.35, 0.5)
    else:
        across = axis[:, None] * np.float32(np.cos(angle)) - axis[None, :] * np.float32(np.sin(angle))
        second = (across / period + rng.random()) % 1.0
        marks = (first - 0.5) ** 2 + (second - 0.5) ** 2 < rng.uniform(0.27, 0.34) ** 2
    return np.asarray(marks.reshape(size, 2, size, 2).mean(axis=(1, 3)), dtype=np.float32)


def _second_ink(colour: str, ink: Colour, rng: np.random.Generator) -> Colour:
    """A near-white or near-black ink that stands out against the main ink."""
    if colour in ("white", "grey", "black", "yellow"):
        light = float(ink.mean()) < 0.5
    else:
        light = float(rng.random()) < 0.5 or colour in ("purple", "brown")
    return named_colour("white" if light else "black", rng)


def draw_shape(
    colour: str,
    pattern: str,
    shape: str,
    rng: np.random.Generator,
    *,
    size: int = 32,
    style: Style = "pretrain",
    severity: int = 0,
    background: str | None = None,
) -> Image.Image:
    """Draw one composition, for example a red striped circle, as an RGB image of `size` x `size` pixels.

    `style` says whose backgrounds are used: those of the pre-training corpus, or the shifted ones of the benchmark,
    where the object is also hidden in part. `severity` (0..5) sets the strength of blur, noise, loss of contrast and,
    when shifted, of occlusion. `background` fixes the kind of background, otherwise drawn at random. The image depends
    on the arguments and on the state of `rng` alone.
    """
    check_choice("colour", colour, COLOURS)
    check_choice("pattern", pattern, PATTERNS)
    check_choice("shape", shape, SHAPES)
    check_choice("style", style, STYLES)
    check_severity(severity)
    kinds = background_names(style)
    kind = background or kinds[int(rng.integers(len(kinds)))]
    check_choice("background", kind, kinds)

    ink = named_colour(colour, rng)
    canvas = draw_background(kind, rng, size, random_colour(rng, ink), ink)
    points = _placed_outline(shape, rng, style)
    thickness = rng.uniform(0.08, 0.12) if pattern == "hollow" else None
    coverage = _coverage(points, size, thickness)[..., None]
    fill = np.broadcast_to(ink, canvas.shape)
    if pattern in ("striped", "dotted"):
        marks = _pattern(pattern, rng, size)[..., None]
        fill = ink + (_second_ink(colour, ink, rng) - ink) * marks
    canvas = (canvas + (fill - canvas) * coverage).astype(np.float32)
    if style == "shifted":
        canvas = occlude(canvas, rng, severity)
    return degrade(canvas, rng, severity)
