"""What a training step sees: batches of cached features or of fresh pixels, in an order that a seed decides."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from promptcal.data.views import Augment, augmented_view, centre_view
from promptcal.models.clip import ImageTransform
from promptcal.types import Batch, ImageSource, Sample


@runtime_checkable
class Batches(Protocol):
    """The training set as batches."""

    @property
    def steps(self) -> int:
        """Steps an epoch."""
        ...

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch, counted from 0; the same number gives the same batches."""
        ...


def centre_batches(
    images: ImageSource, samples: Sequence[Sample], transform: ImageTransform, device: torch.device, size: int
) -> Iterator[Batch]:
    """Samples in order as pixels, by the test transform, so many at once."""
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        pixels = torch.stack([centre_view(images.open(sample.path), transform) for sample in part])
        labels = torch.tensor([sample.label for sample in part], device=device)
        yield Batch(labels=labels, pixels=pixels.to(device))


def epoch_order(n: int, batch_size: int, seed: int, epoch: int) -> list[Int[Tensor, " b"]]:
    """The samples of each step of an epoch: shuffled, the last smaller batch dropped unless it is the only one.

    The shuffle depends on (seed, epoch) alone, so that a resumed run sees what an undisturbed one sees.
    """
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    order = torch.randperm(n, generator=generator)
    steps = max(1, n // batch_size)
    return [order[step * batch_size : (step + 1) * batch_size] for step in range(steps)]


@dataclass(frozen=True)
class FeatureBatches:
    """Batches of frozen image features: epoch e shows view e mod K of each image.

    Attributes:
        views: features before normalisation, and the tokens that a head reads, if any [K, n, D + d].
        labels: [n].
        batch_size: samples a step.
        seed: of the order.
        width: D; None where there are no tokens.
    """

    views: Float[Tensor, "K n D"]
    labels: Int[Tensor, " n"]
    batch_size: int
    seed: int
    width: int | None = None

    @property
    def steps(self) -> int:
        """Steps an epoch."""
        return max(1, len(self.labels) // self.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        features = self.views[number % len(self.views)]
        for index in epoch_order(len(self.labels), self.batch_size, self.seed, number):
            yield feature_batch(self.labels[index], features[index], self.width)


def feature_batch(labels: Int[Tensor, " b"], rows: Float[Tensor, "b D"], width: int | None) -> Batch:
    """A batch of rows of ``image_features``, whose columns behind the first ``width`` are the tokens of a head."""
    if width is None or width == rows.shape[1]:
        return Batch(labels=labels, features=rows)
    return Batch(labels=labels, features=rows[:, :width], tokens=rows[:, width:])


@dataclass(frozen=True)
class PixelBatches:
    """Batches of pixels, for learners that prompt the image tower: epoch e shows view e mod K of each image.

    Attributes:
        samples: the training samples.
        images: where they are.
        transform: what the model expects.
        augment: the augmentation.
        views: how many different views, K; 0 = the centre crop.
        view_seed: seed of the augmentations.
        batch_size: samples a step.
        seed: of the order.
        device: where the batches go.
    """

    samples: tuple[Sample, ...]
    images: ImageSource
    transform: ImageTransform
    augment: Augment
    views: int
    view_seed: int
    batch_size: int
    seed: int
    device: torch.device

    @property
    def steps(self) -> int:
        """Steps an epoch."""
        return max(1, len(self.samples) // self.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch; the images of the next step are read while this one trains."""
        orders = epoch_order(len(self.samples), self.batch_size, self.seed, number)
        with ThreadPoolExecutor(max_workers=1) as reader:
            following = reader.submit(self._read, orders[0], number)
            for order in [*orders[1:], None]:
                batch = following.result()
                if order is not None:
                    following = reader.submit(self._read, order, number)
                yield batch

    def _read(self, index: Int[Tensor, " b"], epoch: int) -> Batch:
        samples = [self.samples[i] for i in index.tolist()]
        pixels = torch.stack([self._view(sample.path, epoch) for sample in samples])
        labels = torch.tensor([sample.label for sample in samples])
        return Batch(labels=labels.to(self.device), pixels=pixels.to(self.device))

    def _view(self, path: str, epoch: int) -> Float[Tensor, "3 h w"]:
        image = self.images.open(path)
        if self.views == 0:
            return centre_view(image, self.transform)
        return augmented_view(
            image,
            self.transform,
            self.augment,
            view_seed=self.view_seed,
            key=self.images.digest(path),
            view=epoch % self.views,
        )
