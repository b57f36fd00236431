"""The way of the images to the classifier."""

import weakref

import torch

from promptcal.data.sources import ArrayImages
from promptcal.data.views import Augment
from promptcal.training import images as image_side
from promptcal.training.images import ImageSide
from promptcal.training.settings import Features, Training
from promptcal.types import ClassNames, Sample, Task


def test_views_are_held_once(tiny_clip, monkeypatch):
    """All views of all images are the largest thing of a CoOp run on ImageNet: 200 of 8,000 images take 3.3 GB."""
    samples = tuple(Sample(str(row), row % 2) for row in range(4))
    task = Task(
        "t", ClassNames(("cat", "dog")), samples, (), (), ArrayImages(torch.zeros(4, 8, 8, 3).byte().numpy(), {})
    )
    made, most = [], []

    def features(clip, images, paths, *, view, **others):
        most.append(sum(one() is not None for one in made))
        found = torch.full((len(paths), clip.embed_dim), float(view))
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(image_side, "image_features", features)
    side = ImageSide(tiny_clip, task.images, Augment(), "w", None, prompted=False, quiet=True)
    batches = side.batches(task, Training(epochs=5, batch_size=4), Features(), seed=1)
    assert max(most) <= 1, "a view that has its place is let go"
    assert [next(batches.epoch(number)).features.unique().tolist() for number in range(6)] == [
        [view] for view in (0.0, 1.0, 2.0, 3.0, 4.0, 0.0)
    ]
