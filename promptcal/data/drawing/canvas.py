"""What lies behind and over the drawn object: backgrounds, occluders, blur, noise and loss of contrast.

Canvases are float32 arrays of shape (size, size, 3) with values in 0..1.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from promptcal.data.drawing.vocabulary import COLOUR_VALUES, Style

Canvas = NDArray[np.float32]
Colour = NDArray[np.float32]

_COLOURS: Final[Canvas] = np.asarray(list(COLOUR_VALUES.values()), dtype=np.float32) / 255.0

# Strengths of the degradations for severities 0..5; lengths are fractions of the image side.
_BLUR: Final = (0.0, 0.012, 0.018, 0.024, 0.030, 0.037)
_OCCLUSION: Final = (0.0, 0.16, 0.22, 0.28, 0.34, 0.40)
_NOISE: Final = (0.0, 0.02, 0.033, 0.046, 0.06, 0.075)
_CONTRAST: Final = (1.0, 0.94, 0.88, 0.81, 0.74, 0.66)


def _grid(size: int, angle: float = 0.0) -> tuple[Canvas, Canvas]:
    """Two (size, size) arrays: pixel coordinates along and across a direction, in units of the image side."""
    axis: Canvas = ((np.arange(size) + 0.5) / size - 0.5).astype(np.float32)
    cosine, sine = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    along, across = axis[None, :] * cosine + axis[:, None] * sine, axis[:, None] * cosine - axis[None, :] * sine
    return along.astype(np.float32), across.astype(np.float32)


def random_colour(rng: np.random.Generator, away_from: Colour | None = None, distance: float = 0.45) -> Colour:
    """An RGB colour in 0..1, at least `distance` (Euclidean) from `away_from` when that is given."""
    colour = rng.random(3, dtype=np.float32)
    while away_from is not None and float(np.linalg.norm(colour - away_from)) < distance:
        colour = rng.random(3, dtype=np.float32)
    return colour


def _blend(weight: Canvas, first: Colour, second: Colour) -> Canvas:
    return (first + (second - first) * weight[..., None]).astype(np.float32)


def _plain(rng: np.random.Generator, size: int, first: Colour, second: Colour) -> Canvas:
    return np.broadcast_to(first, (size, size, 3)).astype(np.float32)


def _gradient(rng: np.random.Generator, size: int, first: Colour, second: Colour) -> Canvas:
    along, _ = _grid(size, rng.uniform(0, 2 * np.pi))
    return _blend(np.clip(along + 0.5, 0, 1), first, second)


def _noisy(rng: np.random.Generator, size: int, first: Colour, second: Colour) -> Canvas:
    return first + rng.standard_normal((size, size, 3), dtype=np.float32) * np.float32(rng.uniform(0.05, 0.2))


def _lined(rng: np.random.Generator, size: int, first: Colour, second: Colour) -> Canvas:
    along, _ = _grid(size, rng.uniform(0, np.pi))
    wave = np.sin(2 * np.pi * (along * rng.uniform(2, 5) + rng.random()))
    return _blend((wave > 0).astype(np.float32), first, second)


def _cluttered(rng: np.random.Generator, size: int, first: Colour, second: Colour) -> Canvas:
    image = Image.new("RGB", (2 * size, 2 * size), _to_bytes(first))
    pen = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(4, 12))):
        x, y = rng.uniform(0, 2 * size, 2)
        radius = rng.uniform(0.03, 0.09) * 2 * size
        ink = _to_bytes(random_colour(rng))
        if rng.random() < 0.5:
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)
        else:
            turn = rng.uniform(-2, 2, 2) * radius
            pen.line((x, y, x + turn[0], y + turn[1]), fill=ink, width=max(1, int(radius * 0.6)))
    return np.asarray(image.reduce(2), dtype=np.float32) / 255.0


def _checked(rng: np.random.Generator, size: int, first: Colour, second: Colour) -> Canvas:
    along, across = _grid(size, rng.uniform(0, np.pi / 2))
    period = rng.uniform(2, 5)
    cells = np.floor(along * period + rng.random()) + np.floor(across * period + rng.random())
    return _blend((cells % 2).astype(np.float32), first, second)


def _cloudy(rng: np.random.Generator, size: int, first: Colour, second: Colour) -> Canvas:
    coarse = rng.random((6, 6, 3), dtype=np.float32) * 255
    image = Image.fromarray(coarse.astype(np.uint8)).resize((size, size), Image.Resampling.BICUBIC)
    cloud = np.asarray(image, dtype=np.float32) / 255.0
    return (0.45 * first + 0.55 * cloud).astype(np.float32)


def _ringed(rng: np.random.Generator, size: int, first: Colour, second: Colour) -> Canvas:
    along, across = _grid(size)
    x, y = rng.uniform(-0.4, 0.4, 2)
    radius = np.hypot(along - x, across - y)
    return _blend((np.sin(2 * np.pi * radius * rng.uniform(3, 6)) > 0).astype(np.float32), first, second)


def _bricked(rng: np.random.Generator, size: int, first: Colour, second: Colour) -> Canvas:
    along, across = _grid(size)
    rows = (across + 0.5) * rng.uniform(3, 6)
    columns = (along + 0.5) * rng.uniform(2, 4) + 0.5 * (np.floor(rows) % 2)
    joints = ((rows % 1) < 0.22) | ((columns % 1) < 0.14)
    return _blend(joints.astype(np.float32), first, second)


_Painter = Callable[[np.random.Generator, int, Colour, Colour], Canvas]
PRETRAIN_BACKGROUNDS: Final[dict[str, _Painter]] = {
    "plain": _plain,
    "gradient": _gradient,
    "noisy": _noisy,
    "lined": _lined,
    "cluttered": _cluttered,
}
SHIFTED_BACKGROUNDS: Final[dict[str, _Painter]] = {
    "checked": _checked,
    "cloudy": _cloudy,
    "ringed": _ringed,
    "bricked": _bricked,
}


def background_names(style: Style) -> tuple[str, ...]:
    """The kinds of background that `style` draws from."""
    return tuple(PRETRAIN_BACKGROUNDS if style == "pretrain" else SHIFTED_BACKGROUNDS)


def draw_background(
    name: str, rng: np.random.Generator, size: int, ink: Colour, away_from: Colour | None = None
) -> Canvas:
    """Paint one background.

    `ink` is its main colour; its second colour is drawn at random near it, and never close to `away_from`.
    """
    painter = PRETRAIN_BACKGROUNDS.get(name) or SHIFTED_BACKGROUNDS[name]
    second = random_colour(rng, away_from, 0.4)
    second = ink + (second - ink) * np.float32(rng.uniform(0.3, 0.8))
    return np.clip(painter(rng, size, ink, second), 0, 1)


def occlude(canvas: Canvas, rng: np.random.Generator, severity: int) -> Canvas:
    """Lay one bar or patch, wider as `severity` grows, over the canvas."""
    size = canvas.shape[0]
    extent = _OCCLUSION[severity] * rng.uniform(0.7, 1.1)
    if extent == 0.0:
        return canvas
    along, across = _grid(size, rng.uniform(0, np.pi))
    x, y = rng.uniform(-0.3, 0.3, 2)
    if rng.random() < 0.5:
        hidden = np.abs(along - x) < extent / 4
    else:
        hidden = (np.abs(along - x) < extent / 2) & (np.abs(across - y) < extent / 2)
    return np.where(hidden[..., None], random_colour(rng), canvas).astype(np.float32)


def degrade(canvas: Canvas, rng: np.random.Generator, severity: int) -> Image.Image:
    """Blur, flatten and add noise to a canvas by `severity` (0 leaves it as it is); returns the RGB image."""
    if severity > 0:
        mean = canvas.mean()
        canvas = mean + (canvas - mean) * np.float32(_CONTRAST[severity] * rng.uniform(0.9, 1.1))
        canvas = canvas + np.float32(rng.uniform(-0.02, 0.02) * severity)
    image = to_image(canvas)
    if severity > 0:
        radius = _BLUR[severity] * canvas.shape[0] * rng.uniform(0.7, 1.3)
        blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(radius)), dtype=np.float32) / 255.0
        noise = rng.standard_normal(canvas.shape, dtype=np.float32)
        image = to_image(blurred + noise * np.float32(_NOISE[severity]))
    return image


def to_image(canvas: Canvas) -> Image.Image:
    """The RGB image of a canvas; values outside 0..1 are clipped."""
    return Image.fromarray((np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8))


def named_colour(name: str, rng: np.random.Generator, jitter: float = 0.06) -> Colour:
    """The RGB value of a colour name, moved a little at random."""
    index = list(COLOUR_VALUES).index(name)
    noise = rng.uniform(-jitter, jitter, 3).astype(np.float32)
    colour: Colour = np.clip(_COLOURS[index] + noise, 0, 1).astype(np.float32)
    return colour


def _to_bytes(colour: Colour) -> tuple[int, int, int]:
    red, green, blue = (int(value * 255) for value in colour)
    return red, green, blue
