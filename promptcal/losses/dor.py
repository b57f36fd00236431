"""Dynamic outlier regularisation: tuned texts of words that are no training class stay near their frozen ones."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar
from zlib import crc32

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cosine_similarity

from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.learners.contract import Learner
from promptcal.losses.nouns import best_source, nouns
from promptcal.models.classifier import Classifier
from promptcal.models.clip import FrozenClip
from promptcal.models.reference import Reference
from promptcal.types import ClassNames, Outputs

FOUND_SOURCE = best_source()
"""The source of nouns that is there; part of a run's configuration, so that another one is another run."""


@register("loss", "dor")
class DynamicOutlierRegularisation:
    """L = 1 − mean_o cos(T_o, T⁰_o) over B outlier words o, drawn anew in every step from a pool of K nouns.

    T_o is the text feature of the word under the learned prompts, T⁰_o its frozen one under the texts that the recipe
    refers to, computed once. The pool holds the nouns with the largest mean cosine of T⁰_o with the frozen texts of the
    training classes; left out are nouns that are a class name, or its plural or singular, and those so long that they
    may not fit beside a context. Where the prompts depend on the image, the mean runs over the images of the batch too.

    Args:
        classifier: the learner and the frozen model.
        classes: the training classes.
        generator: its seed decides the draws.
        weight: 8 for CoOp, 2 for every other method in the paper.
        source: ``wordnet``, or ``imagenet`` for the 1,000 names that open_clip carries; by default what is there.
        pool: K, 5,000 in the paper; more than there are takes all of them.
        batch: B, words a step. The paper's number is not known; 32 by default.

    Raises:
        ConfigError: a learner with prompts for its own classes alone, an unknown source, a pool or batch below 1, or no
            noun that is not a class.

    References:
        "Understanding and Mitigating Miscalibration in Prompt Tuning for Vision-Language Models" (DOR), ICML 2025,
        arXiv 2410.02681, with the nouns of WordNet. Deviation: the draw is seeded by the logits of the batch, so that a
        training that was stopped and goes on draws as one that was not.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = True

    def __init__(
        self,
        classifier: Classifier,
        classes: ClassNames,
        generator: torch.Generator,
        weight: float = 8.0,
        source: str = FOUND_SOURCE,
        pool: int = 5000,
        batch: int = 32,
    ) -> None:
        if classifier.learner.tied_classes is not None:
            raise ConfigError(
                f"{type(classifier.learner).__name__} has prompts for its own classes alone, so there are none for the "
                f"outlier words of DOR; leave the plug-in out."
            )
        if pool < 1 or batch < 1:
            raise ConfigError(f"pool={pool} and batch={batch} of DOR must be at least 1.")
        self.weight, self.classifier, self.templates = weight, classifier, classes.templates
        self.batch, self.seed = batch, generator.initial_seed()
        words, features = _frozen(classifier.clip, source, classes.templates, classifier.reference)
        taken = {form for name in classes.names for form in forms(name)}
        free = torch.tensor([index for index, word in enumerate(words) if not taken & forms(word)])
        if not len(free):
            raise ConfigError(
                f"every noun of source={source} is a training class, so DOR has no outliers; take another."
            )
        centre = classifier.bind(classes).reference_text_features.mean(dim=0)
        likeness = features[free.to(features.device)] @ centre
        kept = free[likeness.topk(min(pool, len(free))).indices.cpu()]
        self.words = tuple(words[index] for index in kept.tolist())
        self.frozen = features[kept.to(features.device)]

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value for the words of this step; the labels are not read."""
        del labels
        chosen, learner = self.draw(outputs), self.classifier.learner
        frozen = self.frozen[chosen.to(self.frozen.device)]
        images = outputs.require("zero_shot_image_features") if learner.reads_image else None
        prompts = learner(images, frozen if learner.reads_classes else None)
        bound = self.classifier.bind(ClassNames(tuple(self.words[index] for index in chosen.tolist()), self.templates))
        return 1 - cosine_similarity(bound.text_features(prompts), frozen, dim=-1).mean()

    def draw(self, outputs: Outputs) -> Int[Tensor, " B"]:
        """The indices of the words of this step, without repetition; the same for the same logits."""
        bits = outputs.logits.detach().float().cpu().numpy().tobytes()
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + crc32(bits)) % 2**32)
        return torch.randperm(len(self.words), generator=generator)[: self.batch]

    @staticmethod
    def remarks(settings: Mapping[str, Any], batch_size: int) -> list[str]:
        """What the reader of a report must know of the nouns."""
        del batch_size
        if settings["source"] == "imagenet":
            return ["the outliers of DOR are class names of ImageNet, as open_clip carries them, not nouns of WordNet."]
        return []


@lru_cache(maxsize=1)
def _frozen(
    clip: FrozenClip, source: str, templates: tuple[str, ...], reference: Reference
) -> tuple[tuple[str, ...], Float[Tensor, "N D"]]:
    """The nouns that fit beside a context, and their frozen features; the last are kept for the runs of a sweep."""
    room = clip.context_length // 2 - 4
    words = tuple(word for word in nouns(source) if len(clip.tokens.encode(word)) <= room)
    frozen = Classifier(clip, Learner(), reference=reference).bind(ClassNames(words, templates))
    return words, frozen.reference_text_features


def forms(name: str) -> set[str]:
    """A name in lower case with single spaces, and its plural by the regular endings."""
    name = " ".join(name.lower().replace("_", " ").replace("-", " ").split())
    plural = f"{name[:-1]}ies" if name.endswith("y") else f"{name}es"
    return {name, f"{name}s", plural}
