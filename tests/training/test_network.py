"""The settings of a network's training, and its images."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from promptcal.config import build, compose
from promptcal.data.sources import ArrayImages
from promptcal.data.views import Augment, centre_view
from promptcal.errors import ConfigError
from promptcal.models.clip import ImageTransform
from promptcal.training.network import NetworkTraining
from promptcal.training.pixels import NetworkImages, cut_out
from promptcal.training.settings import Features
from promptcal.types import ClassNames, Sample, Task


def test_the_published_schedule_and_a_cosine():
    published = build(compose(["model=vit_mini", "training=published"]).training)
    assert [published.lr_at(epoch) for epoch in (0, 149, 150, 249, 250, 349)] == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )
    assert (published.epochs, published.batch_size, published.clip_norm, published.nesterov) == (350, 128, 5.0, True)
    cosine = NetworkTraining(epochs=10, lr=1.0, warmup_epochs=2)
    expected = [1 / 3, 2 / 3] + [0.5 * (1 + math.cos(math.pi * e / 8)) for e in range(8)]
    assert [cosine.lr_at(epoch) for epoch in range(10)] == pytest.approx(expected)


def test_the_optimiser_spares_vectors_and_clips_the_gradient():
    layer = nn.Linear(4, 3)
    settings = NetworkTraining(algorithm="sgd", lr=1.0, momentum=0.0, weight_decay=0.5, clip_norm=2.0)
    optimiser = settings.optimiser(list(layer.parameters()))
    assert [(len(g["params"]), g["weight_decay"]) for g in optimiser.param_groups] == [(1, 0.5), (1, 0.0)]
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    layer.weight.grad, layer.bias.grad = torch.full_like(weight, 3.0), torch.full_like(bias, 4.0)
    norm = math.sqrt(12 * 9 + 3 * 16)
    optimiser.step()
    torch.testing.assert_close(layer.bias, bias - 4 * 2 / norm)
    torch.testing.assert_close(layer.weight, weight - (3 * 2 / norm + 0.5 * weight))
    everything = NetworkTraining(decays="all").optimiser(list(layer.parameters()))
    assert len(everything.param_groups) == 1


def test_settings_that_cannot_be_are_refused():
    for wrong, word in (
        ({"epochs": 0}, "epochs"),
        ({"lr": -1.0}, "lr"),
        ({"crop": "pads"}, "pad"),
        ({"algorithm": "adam"}, "adamw"),
    ):
        with pytest.raises(ConfigError, match=word):
            NetworkTraining(**wrong)


def test_a_cut_is_a_square_of_the_padded_image():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (5, 3, 6, 6), generator=generator, dtype=torch.uint8)
    corners = torch.randint(5, (5, 2), generator=generator)
    found = cut_out(pixels, corners, 2)
    padded = np.pad(pixels.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)))
    for row, (top, left) in enumerate(corners.tolist()):
        assert np.array_equal(found[row].numpy(), padded[row, :, top : top + 6, left : left + 6])


@pytest.fixture(scope="module")
def task():
    arrays = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    images = ArrayImages(arrays, {str(row): row for row in range(12)})
    samples = tuple(Sample(str(row), row % 3) for row in range(12))
    return Task("grey", ClassNames(("a", "b", "c")), samples, samples[:3], samples, images)


def test_images_in_memory_are_those_of_the_test_transform_and_crops_depend_on_the_epoch_alone(task):
    transform = ImageTransform(16, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    side = NetworkImages(task.images, transform, Augment(flip=0.5), torch.device("cpu"), quiet=True)
    plain = side.batches(task, NetworkTraining(batch_size=5, crop="none"), Features(), seed=3)
    assert plain.steps == 2
    labels = []
    for batch in plain.epoch(0):
        labels += batch.labels.tolist()
        for pixels in batch.pixels:
            assert any(
                torch.equal(pixels, centre_view(task.images.open(sample.path), transform)) for sample in task.train
            )
    assert len(labels) == 10
    test = torch.cat([batch.pixels for batch in side.test_batches(task.test)])
    expected = torch.stack([centre_view(task.images.open(sample.path), transform) for sample in task.test])
    assert torch.equal(test, expected)

    small, large = (side.batches(task, NetworkTraining(batch_size=size), Features(), seed=3) for size in (4, 12))
    seen = {size: torch.cat([batch.pixels for batch in made.epoch(1)]) for size, made in ((4, small), (12, large))}
    assert torch.equal(seen[4], seen[12])
    assert not torch.equal(seen[4], torch.cat([batch.pixels for batch in small.epoch(2)]))


def test_images_that_do_not_fit_are_refused_with_the_way_out(task):
    side = NetworkImages(task.images, ImageTransform(16), Augment(), torch.device("cpu"), memory_gb=1e-6, quiet=True)
    with pytest.raises(ConfigError, match=r"crop=resized"):
        side.batches(task, NetworkTraining(), Features(), seed=1)
    streamed = side.batches(task, NetworkTraining(batch_size=12, crop="resized"), Features(), seed=1)
    assert next(iter(streamed.epoch(0))).pixels.shape == (12, 3, 16, 16)
