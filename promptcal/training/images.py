"""How images reach the classifier: as cached features where the image tower is frozen, else as pixels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from promptcal.console import progress
from promptcal.data.features import FeatureCache, image_features
from promptcal.data.views import Augment
from promptcal.models.clip import FrozenClip
from promptcal.models.image_tokens import PROJECTED
from promptcal.training.batches import Batches, FeatureBatches, PixelBatches, centre_batches, feature_batch
from promptcal.training.settings import Features, Settings
from promptcal.types import Batch, ImageSource, Sample, Task


@dataclass(frozen=True)
class ImageSide:
    """Where the images are and which way they take.

    Attributes:
        clip: the frozen model.
        images: the images of the task.
        augment: the augmentation of training views.
        weights: digest of the model's weights, for the cache's keys.
        cache: the feature cache on disk, or None.
        prompted: the image tower runs with prompts, so pixels are needed at every step.
        test_batch: images a test batch.
        quiet: no progress bars.
        token: the embedding that a head reads, of ``SOURCES``.
    """

    clip: FrozenClip
    images: ImageSource
    augment: Augment
    weights: str
    cache: FeatureCache | None
    prompted: bool
    test_batch: int = 256
    quiet: bool = False
    token: str = PROJECTED

    def batches(self, task: Task, settings: Settings, features: Features, seed: int) -> Batches:
        """The training images of a task, ready for the loop."""
        views = features.count(settings.epochs)
        view_seed = seed if features.view_seed is None else features.view_seed
        if self.prompted:
            return PixelBatches(
                samples=task.train,
                images=self.images,
                transform=self.clip.transform,
                augment=self.augment,
                views=views,
                view_seed=view_seed,
                batch_size=settings.batch_size,
                seed=seed,
                device=self.clip.device,
            )
        labels = torch.tensor([sample.label for sample in task.train], device=self.clip.device)
        wanted: list[int | None] = list(range(views)) if views else [None]
        bar = progress(wanted, f"image features, {len(wanted)} views", quiet=self.quiet)
        stacked = torch.empty(0)
        for row, view in enumerate(bar):  # each to its place at once: 200 views of ImageNet's shots are not held twice
            encoded = self._features(task.train, view, view_seed)
            stacked = stacked if row else encoded.new_empty(len(wanted), *encoded.shape)
            stacked[row] = encoded
        return FeatureBatches(stacked, labels, settings.batch_size, seed, self.clip.embed_dim)

    def test_batches(self, samples: Sequence[Sample]) -> Iterator[Batch]:
        """A split in order, by the test transform."""
        if self.prompted:
            yield from centre_batches(self.images, samples, self.clip.transform, self.clip.device, self.test_batch)
            return
        features = self._features(samples, None, 0)
        labels = torch.tensor([sample.label for sample in samples], device=self.clip.device)
        for start in range(0, len(samples), self.test_batch):
            part = slice(start, start + self.test_batch)
            yield feature_batch(labels[part], features[part], self.clip.embed_dim)

    def describe(self, settings: Settings, features: Features) -> str:
        """One phrase that says which way the training images take."""
        epochs = settings.epochs
        views = features.count(epochs)
        if self.prompted:
            return "the image tower is prompted and runs at every step"
        if views == 0:
            return "image features are encoded once, centre crop (features.views=0: not the published augmentation)"
        kind = "a fresh view each epoch, as published" if views == epochs else f"{views} views reused over the epochs"
        return f"image features are encoded once, {kind}"

    def _features(self, samples: Sequence[Sample], view: int | None, view_seed: int) -> Float[Tensor, "n D"]:
        return image_features(
            self.clip,
            self.images,
            [sample.path for sample in samples],
            view=view,
            view_seed=view_seed,
            augment=self.augment,
            cache=self.cache,
            weights=self.weights,
            quiet=self.quiet or view is not None,
            token=self.token,
        ).to(self.clip.device)
