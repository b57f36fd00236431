"""The images of a network that is trained whole: small ones are held in memory, large ones read as they come."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn import functional

from promptcal.console import progress
from promptcal.data.views import Augment, centre_image
from promptcal.errors import ConfigError
from promptcal.models.clip import ImageTransform
from promptcal.training.batches import Batches, PixelBatches, centre_batches, epoch_order
from promptcal.training.network import NetworkTraining
from promptcal.training.settings import Features
from promptcal.types import Batch, ImageSource, Sample, Task


@dataclass(frozen=True)
class ResidentBatches:
    """Batches of images that are held in memory, padded, cut out at random and flipped.

    The cut and the flip of an image depend on (seed, epoch, its place in the training set) alone, so they are the same
    whatever the batches.

    Attributes:
        pixels: the training images after resizing, 8 bits a channel.
        labels: [n].
        transform: the mean and deviation they are normalised with.
        pad: black pixels added on each side before a cut of the old size; 0 = no cut.
        flip: probability of a horizontal flip.
        batch_size: samples a step.
        seed: of order, cuts and flips.
        device: where the batches go.
    """

    pixels: UInt8[Tensor, "n 3 s s"]
    labels: Int[Tensor, " n"]
    transform: ImageTransform
    pad: int
    flip: float
    batch_size: int
    seed: int
    device: torch.device

    @property
    def steps(self) -> int:
        """Steps an epoch."""
        return max(1, len(self.labels) // self.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        digest = hashlib.sha256(f"crops\n{self.seed}\n{number}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
        corners = torch.randint(2 * self.pad + 1, (len(self.labels), 2), generator=generator)
        flips = torch.rand(len(self.labels), generator=generator) < self.flip
        for index in epoch_order(len(self.labels), self.batch_size, self.seed, number):
            cut = cut_out(self.pixels[index], corners[index], self.pad)
            cut = torch.where(flips[index, None, None, None], cut.flip(3), cut)
            yield Batch(
                labels=self.labels[index].to(self.device), pixels=normalised(cut, self.transform).to(self.device)
            )


@dataclass(frozen=True)
class NetworkImages:
    """Where the images of a network are and which way they take; it asks the card for flips and resized crops.

    Attributes:
        images: the images of the task.
        transform: what the network expects.
        augment: the card's augmentation.
        device: where batches go.
        memory_gb: how much the training images may take, where they are held in memory.
        test_batch: images a test batch.
        quiet: no progress bars.
    """

    images: ImageSource
    transform: ImageTransform
    augment: Augment
    device: torch.device
    memory_gb: float = 8.0
    test_batch: int = 256
    quiet: bool = False

    def batches(self, task: Task, settings: NetworkTraining, features: Features, seed: int) -> Batches:
        """The training images of a task, ready for the loop.

        Raises:
            ConfigError: padded crops of more images than memory holds.
        """
        view_seed = seed if features.view_seed is None else features.view_seed
        if settings.crop == "resized":
            return PixelBatches(
                samples=task.train,
                images=self.images,
                transform=self.transform,
                augment=self.augment,
                views=settings.epochs,
                view_seed=view_seed,
                batch_size=settings.batch_size,
                seed=seed,
                device=self.device,
            )
        gigabytes = len(task.train) * 3 * self.transform.size**2 / 2**30
        if gigabytes > self.memory_gb:
            raise ConfigError(
                f"training.crop={settings.crop} holds the training images in memory, and {len(task.train)} of "
                f"{self.transform.size} pixels take {gigabytes:.1f} GB; raise system.memory_gb or use "
                f"training.crop=resized."
            )
        bar = progress(task.train, "training images", total=len(task.train), quiet=self.quiet)
        arrays = [np.asarray(centre_image(self.images.open(sample.path), self.transform)) for sample in bar]
        return ResidentBatches(
            pixels=torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous(),
            labels=torch.tensor([sample.label for sample in task.train]),
            transform=self.transform,
            pad=settings.pad if settings.crop == "pad" else 0,
            flip=0.0 if settings.crop == "none" else self.augment.flip,
            batch_size=settings.batch_size,
            seed=view_seed,
            device=self.device,
        )

    def test_batches(self, samples: Sequence[Sample]) -> Iterator[Batch]:
        """A split in order, by the test transform."""
        return centre_batches(self.images, samples, self.transform, self.device, self.test_batch)

    def describe(self, settings: NetworkTraining, features: Features) -> str:
        """One phrase that says which way the training images take."""
        del features
        crops = {"pad": "padded crops", "resized": "random resized crops", "none": "the test transform"}
        return f"trained on {crops[settings.crop]} of {self.transform.size} pixels"


def cut_out(pixels: UInt8[Tensor, "b 3 s s"], corners: Int[Tensor, "b 2"], pad: int) -> UInt8[Tensor, "b 3 s s"]:
    """Squares of the old size out of images padded with black; ``corners`` are the top and left of each."""
    if pad == 0:
        return pixels
    padded = functional.pad(pixels, (pad, pad, pad, pad))
    along = torch.arange(pixels.shape[2])
    rows, columns = (corners[:, axis, None] + along for axis in (0, 1))
    image = torch.arange(len(pixels))[:, None, None]
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def normalised(pixels: UInt8[Tensor, "b 3 s s"], transform: ImageTransform) -> Float[Tensor, "b 3 s s"]:
    """The pixels a network takes: scaled to [0, 1], less the mean, divided by the deviation; as ``centre_view``'s."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (transform.mean, transform.std))
    return (pixels.float() / 255 - mean) / std
