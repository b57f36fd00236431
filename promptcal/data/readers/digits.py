"""scikit-learn's handwritten digits: real handwriting that every installation carries."""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from promptcal.config import register
from promptcal.data.sources import ArrayImages
from promptcal.data.splits import split_by_class
from promptcal.types import ClassNames, Sample, Task

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LEVELS = 16  # the grey levels of the data set run from 0 to 16
FRACTIONS = (0.5, 0.2, 0.3)


@register("reader", "digits")
@dataclass(frozen=True)
class Digits:
    """The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn, 50/20/30 % a class.

    Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998. Images are
    light strokes on black, 16 grey levels stretched to 8 bits; the model's own transform upsamples them.

    Args:
        split_seed: the seed of the split.
    """

    split_seed: int = 0

    def read(self, name: str, folder: Path | None, templates: tuple[str, ...]) -> Task:
        """The task; ``folder`` is not needed."""
        from sklearn.datasets import load_digits

        del folder
        images, labels = load_digits(return_X_y=True)
        grey = np.rint(images.reshape(-1, 8, 8) * (255 / LEVELS)).astype(np.uint8)
        samples = [Sample(f"{NAMES[label]}/{row:04d}", int(label)) for row, label in enumerate(labels)]
        train, val, test = split_by_class(samples, FRACTIONS, random.Random(self.split_seed))
        source = ArrayImages(grey, {sample.path: row for row, sample in enumerate(samples)})
        return Task(name, ClassNames(NAMES, templates), train, val, test, source)
