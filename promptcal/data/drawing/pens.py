"""Handwriting-like digits: skeletons of control points, bent at random and drawn with a round pen."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Stroke = NDArray[np.float64]

# One entry per way of writing a digit: strokes parted by semicolons, each the control points x,y in hundredths of the
# unit square, y downwards. A "line" joins its points by straight lines, most of the time; a "curve" runs smoothly.
_SKELETONS: Final[dict[str, tuple[str, ...]]] = {
    "0": (
        "curve 50,0 12,20 5,55 25,95 60,100 92,70 90,30 50,0",
        "curve 60,2 25,10 10,50 25,95 65,98 85,50 70,10 40,4",
    ),
    "1": (
        "line 50,0 50,100",
        "line 20,25 55,0 55,100",
        "line 20,25 50,0 50,100; line 15,100 85,100",
        "line 65,0 40,100",
    ),
    "2": (
        "curve 8,25 35,0 80,8 82,40 45,75 5,100; line 5,100 95,98",
        "curve 10,20 45,0 85,20 70,55 30,90 8,85 25,75 60,95 95,95",
    ),
    "3": (
        "curve 10,12 50,0 85,20 70,42 40,48; curve 40,48 80,55 90,78 55,100 8,90",
        "line 10,2 85,2 45,42; curve 45,42 85,55 88,80 50,100 8,92",
    ),
    "4": (
        "line 30,0 8,60 95,60; line 70,20 65,100",
        "line 70,100 70,0 5,68 98,68",
        "curve 15,0 10,40 40,50 80,42; line 82,0 78,100",
    ),
    "5": (
        "line 90,2 25,2 20,45; curve 20,45 60,38 90,65 60,98 8,92",
        "curve 90,0 35,5 20,40 55,42 88,62 70,95 10,100",
    ),
    "6": (
        "curve 75,0 35,25 12,65 30,98 75,95 85,65 50,50 15,70",
        "curve 35,0 15,40 10,80 45,100 85,80 60,55 15,70",
    ),
    "7": (
        "line 8,4 92,4 40,100",
        "line 8,4 92,4 45,100; line 30,52 85,48",
        "curve 8,12 50,2 90,6 60,50 45,100",
    ),
    "8": (
        "curve 80,12 40,0 15,22 50,48 88,75 50,100 12,78 50,48 82,22 60,2",
        "curve 50,0 20,22 50,46 80,22 50,0; curve 50,46 10,75 50,100 90,75 50,46",
    ),
    "9": (
        "curve 85,20 50,0 12,22 35,50 80,35; line 86,10 70,100",
        "curve 82,15 40,0 15,30 50,48 82,20 85,60 60,95 15,95",
    ),
}


def _strokes(way: str) -> list[tuple[bool, Stroke]]:
    """The strokes of an entry: whether it is a line, and its control points of shape (n, 2) in the unit square."""
    strokes = []
    for stroke in way.split("; "):
        kind, *points = stroke.split(" ")
        strokes.append((kind == "line", np.array([point.split(",") for point in points], dtype=np.float64) / 100))
    return strokes


def _smooth(points: Stroke, steps: int = 8) -> Stroke:
    """A Catmull-Rom curve through control points of shape (n, 2)."""
    padded = np.concatenate([2 * points[:1] - points[1:2], points, 2 * points[-1:] - points[-2:-1]])
    t = (np.arange(steps) / steps)[:, None, None]
    before, start, end, after = (padded[i : len(padded) - 3 + i] for i in range(4))
    curve = 0.5 * (
        2 * start
        + (end - before) * t
        + (2 * before - 5 * start + 4 * end - after) * t**2
        + (3 * start - before - 3 * end + after) * t**3
    )
    return np.concatenate([curve.transpose(1, 0, 2).reshape(-1, 2), points[-1:]])


def draw_pen_digit(digit: str, rng: np.random.Generator, side: int) -> Image.Image:
    """The ink mask, an "L" image of `side` x `side` pixels, of one hand-drawn digit that fills most of the square."""
    ways = _SKELETONS[digit]
    way = ways[int(rng.integers(len(ways)))]
    wobble = rng.uniform(0.015, 0.06)
    aspect = rng.uniform(0.5, 0.85)
    slant = rng.normal(0.0, 0.14)
    angle = rng.normal(0.0, 0.07)
    bend = rng.normal(0.0, 0.06, 2)
    width = max(2, round(side * rng.uniform(0.06, 0.15)))
    mask = Image.new("L", (side, side), 0)
    pen = ImageDraw.Draw(mask)
    for straight, control in _strokes(way):
        points = control + rng.normal(0.0, wobble, (len(control), 2))
        curve = points if straight and rng.random() < 0.7 else _smooth(points)
        x, y = (curve - 0.5).T
        x = x * aspect - slant * y + bend[0] * np.sin(2 * np.pi * y)
        y = y + bend[1] * np.sin(2 * np.pi * x)
        x, y = x * np.cos(angle) - y * np.sin(angle), y * np.cos(angle) + x * np.sin(angle)
        placed = np.stack([x, y], axis=1) * side * 0.78 + side / 2
        corners = [(float(a), float(b)) for a, b in placed]
        pen.line(corners, fill=255, width=width, joint="curve")
        for a, b in (corners[0], corners[-1]):
            radius = width / 2
            pen.ellipse((a - radius, b - radius, a + radius, b + radius), fill=255)
    return mask
