"""From a model and a configuration to what is trained and answers for classes: a prompted CLIP or a whole network."""

from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from promptcal.config import asks_for, build
from promptcal.errors import ConfigError
from promptcal.learners.contract import Learner
from promptcal.models.classifier import BoundClassifier, Classifier
from promptcal.models.clip import FrozenClip
from promptcal.models.image_tokens import PROJECTED, token_width
from promptcal.models.reference import Reference
from promptcal.models.temperature import Head
from promptcal.models.vision import BoundNetwork, Network, VisionModel
from promptcal.types import ClassNames

Model = FrozenClip | VisionModel
Bound = BoundClassifier | BoundNetwork


def classifier_of(
    config: DictConfig, model: Model, classes: ClassNames, generator: torch.Generator
) -> Classifier | Network:
    """The classifier of a configuration, on the model's device, with what it learns at its start.

    Args:
        config: of the run.
        model: a frozen CLIP that prompts are learned for, or a network that is trained whole.
        classes: the training classes.
        generator: the random numbers of the initialisation.

    Raises:
        ConfigError: a method that does not go with the model, or a head that does not.
    """
    whole = asks_for(config.learner, "vision")
    if isinstance(model, VisionModel):
        if not whole:
            raise ConfigError(
                f"'{model.name}' is an image classifier without a text tower, and method={config.choices.method} "
                f"learns prompts; use method=classifier."
            )
        if str(config.head["_target_"]).startswith("promptcal.heads."):
            raise ConfigError(
                f"head={config.choices.head} reads how far logits moved from those of a frozen CLIP, which "
                f"'{model.name}' is not; use head=calattn."
            )
        head: Any = OmegaConf.to_container(config.head, resolve=True)
        network: Network = build(config.learner, vision=model, classes=classes, generator=generator, head_node=head)
        return network.to(model.device)
    if whole:
        raise ConfigError(
            f"method={config.choices.method} trains a whole image classifier, and '{model.name}' is a CLIP; choose a "
            f"model such as vit_mini, or a method that learns prompts."
        )
    reference = reference_of(config)
    learner: Learner = build(config.learner, clip=model, classes=classes, reference=reference, generator=generator)
    learner.head = head_of(config, model, classes, generator)
    learner.to(model.device)
    fixed = config.fixed_temperature
    return Classifier(
        model,
        learner,
        text_pass=config.text_pass,
        memory_gb=float(config.system.memory_gb),
        reference=reference,
        fixed_temperature=None if fixed is None else float(fixed),
    )


def head_of(config: DictConfig, clip: FrozenClip, classes: ClassNames, generator: torch.Generator) -> Head | None:
    """The head that is trained beside the prompts of a CLIP; None for none, and for one that is fitted afterwards.

    Raises:
        ConfigError: an embedding that the image tower does not have, or a head that is tied to its classes.
    """
    if config.head["_target_"] is None:
        return None
    source = str(config.head.get("source", "default"))
    width = token_width(clip, PROJECTED if source == "default" else source)
    head = build(config.head, width=width, classes=classes, generator=generator)
    if not isinstance(head, Head):
        return None
    if head.replaces_logits:
        raise ConfigError(
            f"head={config.choices.head} has an output for each training class and cannot serve the classes of other "
            f"prompts; use head=calattn."
        )
    if config.fixed_temperature is not None:
        raise ConfigError(
            f"head={config.choices.head} divides the logits of every image, and fixed_temperature divides them "
            f"already; leave one out."
        )
    return head


def reference_of(config: DictConfig) -> Reference:
    """The frozen texts that the recipe's terms look at, on the data set of the run."""
    node = config.reference
    templates = node.by_dataset.get(config.choices.dataset) or node.templates
    return Reference((templates,) if isinstance(templates, str) else tuple(templates), str(node.average))
