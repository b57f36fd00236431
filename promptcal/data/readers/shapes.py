"""Drawn compositions of colour, pattern and shape: unlimited data whose difficulty is a key."""

import hashlib
import random
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import PIL
from PIL import Image

from promptcal.config import register
from promptcal.data import drawing
from promptcal.data.sources import DrawnImages
from promptcal.errors import ConfigError
from promptcal.types import ClassNames, Sample, Task

TEST_SIZES = {"standard": 2000, "large": 10_000}


@register("reader", "shapes")
@dataclass(frozen=True)
class Shapes:
    """Pictures of one composition each, such as a red striped circle, drawn from a seed when they are asked for.

    The classes are a seeded random sample of all compositions in random order, so that the first half of the labels,
    the base classes, is a random half. Every image is a pure function of (seed, severity, size, style, split, class,
    number), and of no draw before it.

    Args:
        seed: what the compositions and every image are drawn from.
        classes: how many compositions; None takes all of them.
        severity: 1 (mild) to 5 (strong) occlusion, blur, noise and loss of contrast; 0 for none of them.
        test: ``standard`` for 2,000 test images a half, ``large`` for 10,000.
        train_images: training images a class to draw shots from.
        val_images: validation images a class.
        size: side length in pixels.
        style: whose backgrounds: ``shifted``, which the embedded CLIP has not seen, or ``pretrain``.
    """

    seed: int = 0
    classes: int | None = 40
    severity: int = 2
    test: str = "standard"
    train_images: int = 64
    val_images: int = 16
    size: int = 32
    style: Literal["shifted", "pretrain"] = "shifted"

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task; ``folder`` is not needed. Raises ConfigError naming an option that is out of range."""
        del folder
        compositions = self._compositions()
        count = len(compositions)
        halves = [TEST_SIZES[self.test]] * 2
        split = (count + 1) // 2
        test_counts = [*_shares(halves[0], split), *_shares(halves[1], count - split)]
        names = [f"{colour} {pattern} {shape}" for colour, pattern, shape in compositions]
        return Task(
            name=name,
            classes=ClassNames(tuple(names), templates),
            train=_samples("train", names, [self.train_images] * count),
            val=_samples("val", names, [self.val_images] * count),
            test=_samples("test", names, test_counts),
            images=DrawnImages(self._draw, self._rule()),
        )

    def _compositions(self) -> list[tuple[str, str, str]]:
        everything = list(product(drawing.COLOURS, drawing.PATTERNS, drawing.SHAPES))
        count = len(everything) if self.classes is None else self.classes
        for key, value, low, high in (
            ("classes", count, 2, len(everything)),
            ("severity", self.severity, 0, drawing.MAX_SEVERITY),
            ("train_images", self.train_images, 1, 1_000_000),
            ("val_images", self.val_images, 0, 1_000_000),
            ("size", self.size, 8, 1024),
        ):
            if not low <= value <= high:
                raise ConfigError(f"dataset.reader.{key}={value} is out of range; give {low} to {high}.")
        if self.test not in TEST_SIZES:
            raise ConfigError(f"dataset.reader.test={self.test} is unknown; choose {' or '.join(TEST_SIZES)}.")
        if self.style not in drawing.STYLES:
            raise ConfigError(f"dataset.reader.style={self.style} is unknown; choose {' or '.join(drawing.STYLES)}.")
        return random.Random(self.seed).sample(everything, count)

    def _draw(self, path: str) -> Image.Image:
        colour, pattern, shape = path.split("/")[1].split("-")
        entropy = hashlib.sha256(f"{self.seed}\n{path}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(entropy[:16], "little"))
        return drawing.draw_shape(colour, pattern, shape, rng, size=self.size, style=self.style, severity=self.severity)

    def _rule(self) -> str:
        return (
            f"shapes seed={self.seed} severity={self.severity} size={self.size} style={self.style} "
            f"code={_drawing_code()} numpy={np.__version__} pillow={PIL.__version__}"
        )


def _shares(total: int, parts: int) -> list[int]:
    """``total`` shared out evenly, the first parts taking one more where it does not divide."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def _samples(split: str, names: list[str], counts: list[int]) -> tuple[Sample, ...]:
    return tuple(
        Sample(f"{split}/{name.replace(' ', '-')}/{number:05d}", label)
        for label, (name, count) in enumerate(zip(names, counts, strict=True))
        for number in range(count)
    )


@cache
def _drawing_code() -> str:
    """A hash of the code that draws: features of older drawings must not be taken for those of newer ones."""
    folder = Path(drawing.__file__).parent
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))).hexdigest()[:16]
