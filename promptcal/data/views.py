"""From an image to the pixels a model takes: the centre crop for evaluation, seeded random crops for training."""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from promptcal.errors import ConfigError
from promptcal.models.clip import ImageTransform

ATTEMPTS = 10


@dataclass(frozen=True)
class Augment:
    """A random resized crop and a horizontal flip; the defaults are the published augmentation of the CoOp family.

    Attributes:
        scale: least and greatest share of the image's area that a crop covers.
        ratio: least and greatest width of a crop over its height.
        flip: probability of a horizontal flip; 0 where left and right carry the meaning, as in digits.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def __post_init__(self) -> None:
        for name, (low, high), greatest in (("scale", self.scale, 1.0), ("ratio", self.ratio, math.inf)):
            if not 0 < low <= high <= greatest:
                raise ConfigError(f"augment.{name}={[low, high]} is no range of positive numbers, low before high.")
        if not 0 <= self.flip <= 1:
            raise ConfigError(f"augment.flip={self.flip} is no probability.")


def centre_view(image: Image.Image, transform: ImageTransform) -> Float[Tensor, "3 s s"]:
    """The pixels of the evaluation view: resize, centre crop, scale to [0, 1], subtract the mean, divide by the std.

    The same operations, in the same order, as open_clip's own evaluation transform; see :func:`centre_image`.

    Returns:
        Pixels [3, size, size], float32, channels normalised.
    """
    return _normalised(centre_image(image, transform), transform)


def centre_image(image: Image.Image, transform: ImageTransform) -> Image.Image:
    """The image of the evaluation view, size × size, in RGB: resized and cut.

    With ``transform.resize`` ``shortest`` the shorter side is resized to ``size`` and the centre is cut out; with
    ``squash`` both sides are.

    Raises:
        ConfigError: a model that wants its images resized in another way.
    """
    if transform.resize not in ("shortest", "squash"):
        raise ConfigError(f"images cannot be resized by '{transform.resize}'; only shortest and squash are known.")
    image, size = image.convert("RGB"), transform.size
    width, height = size, size
    if transform.resize == "shortest":
        shorter = min(image.size)
        width, height = (int(size * side / shorter) for side in image.size)
    resized = image.resize((width, height), _filter(transform))
    left, top = round((width - size) / 2), round((height - size) / 2)
    return resized.crop((left, top, left + size, top + size))


def augmented_view(
    image: Image.Image, transform: ImageTransform, augment: Augment, *, view_seed: int, key: str, view: int
) -> Float[Tensor, "3 s s"]:
    """The pixels of one training view: a random resized crop and a flip drawn for (view_seed, key, view) alone.

    All random numbers come from a NumPy generator seeded by a hash of the three, so a view is the same whatever the
    batch, the order, the number of workers or the machine. The crop follows Szegedy et al., "Going Deeper with
    Convolutions", CVPR 2015, arXiv 1409.4842, as torchvision's RandomResizedCrop does it: ten attempts at an area and a
    log-uniform ratio, else the largest centre crop within the ratio.

    Args:
        image: the image in any mode.
        transform: the model's transform; its ``resize`` has no part in a crop.
        augment: ranges of the crop and probability of the flip.
        view_seed: the seed all views of a run share.
        key: what names the image, its digest.
        view: the number of the view, such as the epoch.

    Returns:
        Pixels [3, size, size], float32, channels normalised.
    """
    image = image.convert("RGB")
    rng = view_rng(view_seed, key, view)
    top, left, height, width = crop_box(image.height, image.width, augment, rng)
    flipped = rng.random() < augment.flip
    crop = image.crop((left, top, left + width, top + height))
    crop = crop.resize((transform.size, transform.size), _filter(transform))
    return _normalised(crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flipped else crop, transform)


def crop_box(height: int, width: int, augment: Augment, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Top, left, height and width in pixels of a random resized crop."""
    areas = height * width * rng.uniform(*augment.scale, ATTEMPTS)
    low, high = augment.ratio
    ratios = np.exp(rng.uniform(math.log(low), math.log(high), ATTEMPTS))
    widths, heights = np.rint(np.sqrt(areas * ratios)), np.rint(np.sqrt(areas / ratios))
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    if fits.any():
        first = int(np.argmax(fits))
        w, h = int(widths[first]), int(heights[first])
        return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
    w, h = min(width, round(height * high)), min(height, round(width / low))
    return (height - h) // 2, (width - w) // 2, h, w


def view_rng(view_seed: int, key: str, view: int) -> np.random.Generator:
    """The generator that everything random in one view comes from."""
    digest = hashlib.sha256(f"{view_seed}\n{key}\n{view}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def _normalised(image: Image.Image, transform: ImageTransform) -> Tensor:
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float() / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (transform.mean, transform.std))
    return (pixels - mean) / std


def _filter(transform: ImageTransform) -> Image.Resampling:
    return Image.Resampling.BILINEAR if transform.interpolation == "bilinear" else Image.Resampling.BICUBIC
