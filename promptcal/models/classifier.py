"""The classifier: a frozen CLIP, a learner, and, once bound to a class list, everything that depends on it."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

from promptcal.errors import ConfigError, DataError
from promptcal.learners.contract import Learner
from promptcal.models.causal_text import TextPass, text_pass
from promptcal.models.clip import FrozenClip, ImageTransform
from promptcal.models.image_tokens import PROJECTED, encode_image_token
from promptcal.models.reference import Reference
from promptcal.models.temperature import Scaled, scale
from promptcal.models.text_plan import plan
from promptcal.precision import wide
from promptcal.types import Batch, ClassMoments, ClassNames, Outputs, Prompts


@dataclass(frozen=True)
class Classifier:
    """A frozen CLIP and a learner; ``bind`` it to a class list to classify.

    Attributes:
        clip: the frozen model.
        learner: what makes the prompts; its ``state_dict()`` is the checkpoint and knows no class names.
        text_pass: ``fast`` (exact, shares what the classes have in common) or ``plain`` (every class at full length).
        memory_gb: how much a text pass may hold at once, where every image has one of its own.
        reference: the frozen texts that the recipe's terms look at.
        fixed_temperature: a constant that divides all tuned logits, in training and afterwards; None = none.
    """

    clip: FrozenClip
    learner: Learner
    text_pass: str = "fast"
    memory_gb: float = 8.0
    reference: Reference = field(default_factory=Reference)
    fixed_temperature: float | None = None

    def __post_init__(self) -> None:
        if self.fixed_temperature is not None and not self.fixed_temperature > 0:
            raise ConfigError(f"fixed_temperature={self.fixed_temperature} must be above 0, as it divides the logits.")

    def bind(self, classes: ClassNames) -> "BoundClassifier":
        """The classifier of these classes; refused for a learner tied to other classes."""
        tied = self.learner.tied_classes
        if tied is not None and not self.learner.serves(classes):
            raise ConfigError(
                f"this {type(self.learner).__name__} has prompts of its own for each of {len(tied)} classes "
                f"({', '.join(tied[:3])}, …) and cannot serve other classes; use a context shared by all classes, or "
                f"evaluate on its own classes only."
            )
        return BoundClassifier(self, classes)


@dataclass(frozen=True)
class BoundClassifier:
    """A classifier of one class list: owns the token plan, the frozen texts and what follows from them."""

    classifier: Classifier
    classes: ClassNames
    _passes: dict[tuple[int, str, str], TextPass] = field(default_factory=dict, repr=False)
    _evaluated: dict[tuple[object, ...], tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    @property
    def clip(self) -> FrozenClip:
        """The frozen model."""
        return self.classifier.clip

    @property
    def learner(self) -> Learner:
        """The learner."""
        return self.classifier.learner

    @property
    def device(self) -> torch.device:
        """Where batches go."""
        return self.clip.device

    @property
    def transform(self) -> ImageTransform:
        """What the model expects of an image."""
        return self.clip.transform

    @property
    def offers(self) -> dict[str, Any]:
        """What a loss term may ask for by name when it is built."""
        return {"clip": self.clip, "classes": self.classes, "classifier": self.classifier}

    @cached_property
    def zero_shot_text_features(self) -> Float[Tensor, "C D"]:
        """The frozen text features: normalised per template, averaged, normalised again; computed once."""
        return self._frozen_texts(self.classes.templates, "normalised")

    @cached_property
    def reference_text_features(self) -> Float[Tensor, "C D"]:
        """The frozen texts that the recipe's terms look at, normalised; computed once."""
        reference = self.classifier.reference
        if not reference.templates and reference.average == "normalised":
            return self.zero_shot_text_features
        return self._frozen_texts(reference.templates or self.classes.templates, reference.average)

    @cached_property
    def zero_shot_moments(self) -> ClassMoments:
        """The moments of the frozen text features over the classes, for terms that keep the tuned ones near them."""
        return ClassMoments.of(self.zero_shot_text_features)

    @cached_property
    def _untuned_text_features(self) -> Float[Tensor, "C D"]:
        """What a learner without text tokens starts from: unit features, or raw means for one that changes them."""
        templates = self.learner.texts_of(self.classes)
        return self._frozen_texts(
            templates, "raw" if self.learner.learns_text else "normalised", unit=not self.learner.learns_text
        )

    def _frozen_texts(self, templates: tuple[str, ...], average: str, *, unit: bool = True) -> Float[Tensor, "C D"]:
        texts = ClassNames(self.classes.names, templates).texts()
        with torch.autocast(self.clip.device.type, enabled=False):
            short = self.classifier.text_pass == "fast"
            each = [wide(self.clip.encode_texts(named, short=short)) for named in texts]
            if average == "normalised":
                each = [normalize(features, dim=-1) for features in each]
                if len(each) == 1:
                    return each[0]
            mean = torch.stack(each).mean(dim=0)
            return normalize(mean, dim=-1) if unit else mean

    def text_features(self, prompts: Prompts) -> Float[Tensor, "... C D"]:
        """Normalised text features [C, D], or [b, C, D] where the prompts depend on the image.

        Several prompts are averaged after normalising each, and normalised again unless the learner says otherwise.
        Without gradients, prompts that do not depend on the image are encoded once until a learned tensor changes.
        """
        return self._texts(prompts)[0]

    def _texts(self, prompts: Prompts) -> tuple[Float[Tensor, "... C D"], Float[Tensor, "B P C D"] | None]:
        """The text features, and those of each prompt."""
        if prompts.text is None:
            if not self.learner.learns_text:
                return self._untuned_text_features, None
            return normalize(wide(self.learner.adapt_text(self._untuned_text_features)), dim=-1), None
        if torch.is_grad_enabled() or self.learner.per_image:
            return self._encode(prompts)
        state = (
            torch.is_autocast_enabled(self.clip.device.type),
            self.learner.training,
            *((id(p), p._version) for p in self.learner.parameters()),
        )
        if state not in self._evaluated:
            self._evaluated.clear()
            self._evaluated[state] = self._encode(prompts)
        return self._evaluated[state]

    def _encode(self, prompts: Prompts) -> tuple[Float[Tensor, "... C D"], Float[Tensor, "B P C D"]]:
        parts = [self._encode_in_chunks(part) for part in (prompts, *prompts.beside)]
        each = normalize(wide(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)), dim=-1)
        features = each
        if each.shape[1] > 1:
            features = each.mean(dim=1, keepdim=True)
            if self.learner.normalises_mean:
                features = normalize(features, dim=-1)
        return features[:, 0] if self.learner.per_image else features[0, 0], each

    @cached_property
    def _nameless(self) -> "BoundClassifier":
        """The same classifier for texts that are a context and a full stop."""
        return BoundClassifier(self.classifier, ClassNames((".",)))

    def _encode_in_chunks(self, prompts: Prompts) -> Float[Tensor, "B P C D"]:
        """One text pass for each image, as many images at once as memory allows.

        Parts that hold activations for the backward pass are checkpointed: each is computed again when its gradient is
        due, so that only one part is held and any loss, also one that mixes images, has its exact gradient.
        """
        encode = self._pass(prompts).encode
        images = 0 if prompts.text is None else prompts.text.shape[0]
        chunk = self._images_at_once(prompts)
        if images <= chunk:
            return encode(prompts)
        parts = [prompts.images(start, start + chunk) for start in range(0, images, chunk)]
        if not torch.is_grad_enabled():
            return torch.cat([encode(part) for part in parts])
        return torch.cat([checkpoint(encode, part, use_reentrant=False) for part in parts])

    def _images_at_once(self, prompts: Prompts) -> int:
        """How many images fit the memory: a token row holds about 12 widths a block for the backward pass."""
        rows = self._pass(prompts).rows(prompts.images(0, 1))
        blocks = self.clip.text_layers if torch.is_grad_enabled() else 1
        held = rows * blocks * 12 * self.clip.text_width * self.clip.dtype.itemsize
        return max(1, int(self.classifier.memory_gb * 2**30 / held))

    def _pass(self, prompts: Prompts) -> TextPass:
        if prompts.text is None:
            raise ConfigError("empty prompts have no text pass of their own.")
        key = (prompts.text.shape[3], prompts.position, prompts.tail or self._tail)
        if key not in self._passes:
            layout = plan(self.classes.names, key[0], self.clip.tokens, position=key[1], tail=key[2])
            self._passes[key] = text_pass(self.clip, layout, self.classifier.text_pass)
        return self._passes[key]

    @property
    def _tail(self) -> str:
        """What the first template of the class list has from the name on."""
        template = self.classes.templates[0]
        return template[template.index("{}") :]

    def __call__(self, batch: Batch, needs: AbstractSet[str] = frozenset()) -> Outputs:
        """Classify a batch; ``needs`` names what the loss terms ask for beyond the logits.

        Gradients flow to the learner's tensors only. Logits and features are float32 or wider whatever the autocast.

        Raises:
            DataError: a batch with neither pixels nor the features this learner can work on.
        """
        raw, token = self._frozen_image_features(batch, needs)
        prompts = self.learner(
            None if raw is None else normalize(wide(raw), dim=-1),
            self.reference_text_features if self.learner.reads_classes else None,
        )
        if self.learner.prompts_image:
            if batch.pixels is None:
                raise DataError(
                    f"{type(self.learner).__name__} prompts the image tower and needs pixels, not features."
                )
            tuned, token = encode_image_token(self.clip, batch.pixels, prompts, self.learner.token)
        elif raw is None:
            raise DataError("the batch holds neither pixels nor image features.")
        else:
            tuned = raw
        text, each = self._texts(prompts)
        nameless = None
        if "nameless_features" in needs:
            nameless = self._nameless._encode(replace(self.learner.nameless(), tail="{}"))[1][0, :, 0]
        tuned = self.learner.adapt_image(tuned)
        constant = self.classifier.fixed_temperature
        with torch.autocast(tuned.device.type, enabled=False):
            image = normalize(wide(tuned), dim=-1)
            text = wide(text)
            cosine = image @ text.T if text.ndim == 2 else torch.einsum("bd,bcd->bc", image, text)
            logits = self.clip.logit_scale * cosine + self.clip.logit_bias
            scaled = scale(self.learner.head, token, logits, training=self.learner.training)
            outputs = Outputs(
                logits=scaled.logits,
                temperature=scaled.temperature if constant is None else torch.full_like(image[:, 0], constant),
                image_features=image,
                norms=wide(tuned).norm(dim=-1),
                text_features=text,
                zero_shot_text_features=self.zero_shot_text_features,
                logit_scale=self.clip.logit_scale,
                logit_bias=self.clip.logit_bias,
                zero_shot_moments=self.zero_shot_moments,
                learns_text=self.learner.learns_text,
                zero_shot_image_features=None if raw is None else normalize(wide(raw), dim=-1),
                reference_text_features=self.reference_text_features,
                prompt_features=None if each is None or self.learner.per_image else each[0],
                nameless_features=nameless,
            )
            return outputs if scaled.apart is None else replace(outputs, apart=_apart(outputs, scaled.apart))

    def _frozen_image_features(
        self, batch: Batch, needs: AbstractSet[str]
    ) -> tuple[Float[Tensor, "b D"] | None, Float[Tensor, "b d"] | None]:
        """Frozen image features, those of the batch or else encoded where someone asks for them; the head's token."""
        token = self.learner.token
        if batch.features is not None:
            if token != PROJECTED and batch.tokens is None:
                raise DataError(f"the head reads '{token}' and the batch holds image features without it.")
            return batch.features, batch.features if token == PROJECTED else batch.tokens
        prompted = self.learner.prompts_image
        wanted = not prompted or self.learner.reads_image or "zero_shot_logits" in needs
        if batch.pixels is None or not wanted:
            return None, None
        with torch.no_grad():  # of a prompted tower, the head reads the prompted token
            return encode_image_token(self.clip, batch.pixels, None, PROJECTED if prompted else token)


def _apart(outputs: Outputs, scaled: Scaled) -> Outputs:
    """What a head is trained on apart from its model: the same outputs, of which it has the temperature alone."""
    kept: dict[str, Any] = {
        field.name: value.detach()
        for field in fields(outputs)
        if isinstance(value := getattr(outputs, field.name), Tensor)
    }
    return replace(outputs, **kept | {"logits": scaled.logits, "temperature": scaled.temperature})
