"""The parts of a run put together, and what they predict."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from promptcal.learners.contract import Learner
from promptcal.metrics.base_novel import together
from promptcal.models.assembly import Bound, classifier_of
from promptcal.models.classifier import Classifier
from promptcal.models.vision import Network
from promptcal.preparation import Prepared, cache_of
from promptcal.training.images import ImageSide
from promptcal.training.pixels import NetworkImages
from promptcal.training.predict import predict
from promptcal.types import Predictions


@dataclass(frozen=True)
class Assembled:
    """The parts of a run, put together.

    Attributes:
        base: the classifier bound to the training classes.
        targets: the classifier bound to the classes of each target; one whose classes the learner cannot serve is left
            out, unless there is no other.
        images: the way the images take.
    """

    base: Bound
    targets: Mapping[str, Bound]
    images: ImageSide | NetworkImages

    @property
    def learner(self) -> Learner | Network:
        """What is learned."""
        return self.base.learner


def assemble(prepared: Prepared, *, quiet: bool) -> Assembled:
    """Build the learner and bind the classifier to the classes of the training and of every target."""
    config, splits, model = prepared.config, prepared.splits, prepared.model
    if config.system.threads:
        torch.set_num_threads(int(config.system.threads))
    generator = torch.Generator().manual_seed(int(config.seed))
    classifier = classifier_of(config, model, splits.train.classes, generator)
    served = splits.targets
    if isinstance(classifier, Classifier):
        served = {name: task for name, task in served.items() if classifier.learner.serves(task.classes)} or served
    targets = {name: classifier.bind(task.classes) for name, task in served.items()}
    return Assembled(classifier.bind(splits.train.classes), targets, images_of(prepared, classifier, quiet=quiet))


def images_of(prepared: Prepared, classifier: Classifier | Network, *, quiet: bool) -> ImageSide | NetworkImages:
    """The way the images take to the classifier."""
    config, card, images, model = prepared.config, prepared.card, prepared.splits.train.images, prepared.model
    if isinstance(classifier, Network):
        memory_gb = float(config.system.memory_gb)
        return NetworkImages(images, classifier.transform, card.augment, model.device, memory_gb, quiet=quiet)
    return ImageSide(
        clip=classifier.clip,
        images=images,
        augment=card.augment,
        weights=prepared.weights,
        cache=cache_of(config, card.name),
        prompted=classifier.learner.prompts_image,
        quiet=quiet,
        token=classifier.learner.token,
    )


def left_out(prepared: Prepared, work: Assembled) -> list[str]:
    """A sentence for each target that the learner cannot serve."""
    learner = type(work.learner).__name__
    return [
        f"{learner} learns something for each of its {len(work.base.classes)} classes and serves no others, so "
        f"'{name}' is left out."
        for name in prepared.splits.targets
        if name not in work.targets
    ]


def predict_all(prepared: Prepared, work: Assembled) -> dict[str, Predictions]:
    """Predictions of the base validation images, of every target's test images, and of targets together."""
    splits = prepared.splits
    wanted = ["val"] if splits.train.val else []
    wanted += [name for name in work.targets if splits.targets[name].test]
    found = {name: predict_split(prepared, work, name) for name in wanted}
    whole = {name: parts for name, parts in splits.joined.items() if all(part in found for part in parts)}
    return found | {name: together([found[part] for part in parts], name) for name, parts in whole.items()}


def predict_split(prepared: Prepared, work: Assembled, split: str) -> Predictions:
    """Predictions of the base validation images (``val``) or of the test images of a target."""
    train = prepared.splits.train
    bound, task = (work.base, train) if split == "val" else (work.targets[split], prepared.splits.targets[split])
    samples = task.val if split == "val" else task.test
    batches = replace(work.images, images=task.images).test_batches(samples)
    return predict(bound, batches, samples, split=split, precision=prepared.config.precision)
