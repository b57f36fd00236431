"""Image classifiers that are trained whole: timm's models behind the interface of the prompted CLIP.

One pass through the backbone gives the logits and the embedding z that a head reads (``promptcal.models.temperature``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from promptcal.config import build, register
from promptcal.errors import ConfigError, DataError, unknown
from promptcal.models.clip import ImageTransform
from promptcal.models.temperature import Head, Scaled, scale
from promptcal.precision import wide
from promptcal.types import Batch, ClassNames, Outputs

SOURCES = ("cls", "patch_mean", "concat", "gap", "attention")
"""The embeddings z a head may read; see :class:`Network`."""


class VisionModel:
    """An image classifier before it knows its classes.

    Args:
        make: the network for a number of classes, drawn from torch's global generator. Like timm's it has
            ``forward_features``, ``forward_head(features, pre_logits)`` and ``get_classifier``.
        transform: what it expects of an image.
        name: what to call it in messages and run folders.
        weights: a digest of its pretrained weights; ``random`` where it has none.
        made_for: how many classes those weights tell apart; None where it has none.
    """

    def __init__(
        self,
        make: Callable[[int], nn.Module],
        transform: ImageTransform,
        name: str,
        weights: str,
        made_for: int | None = None,
    ) -> None:
        self.make, self.transform, self.name, self.weights, self.made_for = make, transform, name, weights, made_for
        self.device = torch.device("cpu")
        self.logit_scale = 1.0

    def to(self, device: torch.device) -> "VisionModel":
        """The same model, to be trained on a device."""
        self.device = device
        return self

    def weights_digest(self) -> str:
        """What decides its start, besides configuration and seed."""
        return self.weights

    def build(self, n_classes: int, generator: torch.Generator | None = None) -> Any:
        """A network for ``n_classes``, its random numbers from ``generator`` alone."""
        seed = int(torch.randint(2**31, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make(n_classes)


@dataclass(frozen=True)
class Seen:
    """What one pass through a network gives.

    Attributes:
        scaled: logits and temperature.
        embedding: the network's own z, not normalised.
        norms_before: ‖z‖₂ read before the network's last normalisation layer; None where there is none.
    """

    scaled: Scaled
    embedding: Float[Tensor, "b D"]
    norms_before: Float[Tensor, " b"] | None


@register("learner", "network")
class Network(nn.Module):
    """A whole image classifier and its temperature head: what a vision run trains.

    The embedding z that the head reads is ``cls`` (the class token after the last normalisation), ``patch_mean`` (the
    mean of all tokens but the prefix: class, distillation and register tokens), ``concat`` (both, 2d wide), ``gap``
    (what the classifier reads: the pooled tokens or map) or ``attention`` (a learned spatial pooling
    Σ_i softmax_i(v·x_i) x_i, the mean at the start). ``default`` is ``cls`` where the classifier reads the class token,
    else ``gap``.

    Args:
        vision: the model.
        classes: the classes it tells apart, to which it is tied.
        generator: the random numbers of the initialisation.
        head_node: configuration of the head; None, or one without ``_target_``, is no head.
        trains: ``all``, or ``classifier`` = the last layer and the head on a frozen backbone (a linear probe).

    Raises:
        ConfigError: a model without the parts that are needed, or an embedding it does not have.
    """

    learns_text = False
    prompts_image = True
    per_image = False

    def __init__(
        self,
        vision: VisionModel,
        classes: ClassNames,
        generator: torch.Generator | None = None,
        head_node: Mapping[str, Any] | None = None,
        trains: str = "all",
    ) -> None:
        super().__init__()
        if trains not in ("all", "classifier"):
            raise ConfigError(unknown("learner.trains", trains, ("all", "classifier")))
        self.name, self.transform, self.tied_classes = vision.name, vision.transform, classes.names
        self.frozen = trains == "classifier"
        self.backbone: Any = vision.build(len(classes), generator)
        widths = self._probe(vision.transform.size, len(classes))
        has_head = head_node is not None and head_node.get("_target_") is not None
        source = str(head_node.get("source", "default")) if head_node is not None else "default"
        self.own = "cls" if "cls" in widths and getattr(self.backbone, "global_pool", "token") == "token" else "gap"
        self.source = self.own if source == "default" else source
        if self.source not in widths:
            known = ", ".join(sorted(widths))
            raise ConfigError(f"'{vision.name}' has no embedding head.source={self.source}; it has {known}.")
        self.head: Head | None = None
        self.pooling: nn.Linear | None = None
        if has_head:
            self.head = build(head_node, width=widths[self.source], classes=classes, generator=generator)
            if self.source == "attention":
                self.pooling = self._pooling(widths["attention"], self.head)
        if self.frozen:
            self.backbone.requires_grad_(False)
            for layer in self._classifiers():
                layer.requires_grad_(True)

    def train(self, mode: bool = True) -> "Network":
        """Training mode; a frozen backbone stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.backbone.train(False)
        return self

    def n_parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def study(self, batches: Iterable[Batch]) -> None:
        """Show the training images, before any training, to a backbone that wants to see them."""
        if hasattr(self.backbone, "study"):
            self.backbone.study(batches)

    def bind(self, classes: ClassNames) -> "BoundNetwork":
        """The classifier of these classes, which must be those it was made for."""
        if classes.names != self.tied_classes:
            raise ConfigError(
                f"'{self.name}' has an output for each of {len(self.tied_classes)} classes "
                f"({', '.join(self.tied_classes[:3])}, …) and cannot serve other classes; use protocol=train."
            )
        return BoundNetwork(self, classes)

    def forward(self, pixels: Float[Tensor, "b 3 h w"]) -> Seen:
        """Logits, temperature and embedding of some images, from one pass through the backbone."""
        with _input_of(getattr(self.backbone, "norm", None)) as before:
            raw = self.backbone.forward_features(pixels)
        logits = wide(self.backbone.forward_head(raw))
        own = wide(self._read(raw, self.own))
        z = None if self.head is None else own if self.source == self.own else wide(self._read(raw, self.source))
        norms = None
        if before and not self.training:
            kind = "patch_mean" if self.own == "gap" else self.own
            norms = wide(self._read(before[0].detach(), kind)).norm(dim=1)
        return Seen(scale(self.head, z, logits, training=self.training), own, norms)

    def _read(self, raw: Tensor, source: str) -> Float[Tensor, "b d"]:
        """The embedding of a kind from the output of the backbone."""
        if source == "gap":
            return self.backbone.forward_head(raw, pre_logits=True)  # type: ignore[no-any-return]
        tokens, prefix = self._tokens(raw)
        patches = tokens[:, prefix:]
        if source == "cls":
            return tokens[:, 0]
        if source == "concat":
            return torch.cat([tokens[:, 0], patches.mean(dim=1)], dim=1)
        if source == "attention" and self.pooling is not None:
            weights = torch.softmax(wide(self.pooling(patches)), dim=1)
            return (weights * patches).sum(dim=1)
        return patches.mean(dim=1)

    def _tokens(self, raw: Tensor) -> tuple[Float[Tensor, "b n d"], int]:
        """The output of the backbone as tokens, and how many of them are a prefix."""
        if raw.ndim == 3:
            return raw, int(getattr(self.backbone, "num_prefix_tokens", 0))
        channels_last = getattr(self.backbone, "output_fmt", "NCHW") == "NHWC"
        return raw.flatten(1, 2) if channels_last else raw.flatten(2).mT, 0

    @torch.no_grad()
    def _probe(self, size: int, n_classes: int) -> dict[str, int]:
        """The width of each embedding this network has, found by showing it a black image."""
        missing = [name for name in ("forward_features", "forward_head") if not hasattr(self.backbone, name)]
        if missing:
            raise ConfigError(f"'{self.name}' has no {' and no '.join(missing)}, so no head can read its embedding.")
        self.backbone.eval()
        raw = self.backbone.forward_features(torch.zeros(1, 3, size, size))
        if not isinstance(raw, Tensor) or raw.ndim not in (3, 4):
            what = f"a tensor of {raw.ndim} dimensions" if isinstance(raw, Tensor) else f"a {type(raw).__name__}"
            raise ConfigError(f"'{self.name}' gives {what} for an image, not tokens or a map; choose another model.")
        logits, pooled = self.backbone.forward_head(raw), self.backbone.forward_head(raw, pre_logits=True)
        if logits.shape != (1, n_classes) or pooled.ndim != 2:
            raise ConfigError(
                f"'{self.name}' gives logits of shape {tuple(logits.shape)} and an embedding of shape "
                f"{tuple(pooled.shape)} for one image; a head needs [1, {n_classes}] and [1, d]."
            )
        widths = {"gap": pooled.shape[1]}
        if raw.ndim == 4 or hasattr(self.backbone, "num_prefix_tokens"):
            tokens, prefix = self._tokens(raw)
            widths |= {"patch_mean": tokens.shape[2], "attention": tokens.shape[2]}
            if prefix and getattr(self.backbone, "cls_token", None) is not None:
                widths |= {"cls": tokens.shape[2], "concat": 2 * tokens.shape[2]}
        self.backbone.train()
        return widths

    def _pooling(self, width: int, head: Head) -> nn.Linear:
        if head.mode != "joint":
            raise ConfigError(
                f"head.source=attention learns its pooling with the head; it needs head.mode=joint, not {head.mode}."
            )
        layer = nn.Linear(width, 1, bias=False)
        nn.init.zeros_(layer.weight)
        return layer

    def _classifiers(self) -> tuple[nn.Module, ...]:
        layers = self.backbone.get_classifier()
        return layers if isinstance(layers, tuple) else (layers,)


@dataclass(frozen=True)
class BoundNetwork:
    """A network of one class list; the same call as the bound CLIP's."""

    learner: Network
    classes: ClassNames

    @property
    def transform(self) -> ImageTransform:
        """What the network expects of an image."""
        return self.learner.transform

    @property
    def device(self) -> torch.device:
        """Where batches go."""
        return next(self.learner.parameters()).device

    @property
    def offers(self) -> dict[str, Any]:
        """What a loss term may ask for by name when it is built."""
        return {"classes": self.classes, "classifier": self}

    def __call__(self, batch: Batch, needs: AbstractSet[str] = frozenset()) -> Outputs:
        """Classify a batch of pixels; a network has no text and no zero-shot classifier, whatever ``needs`` says.

        Raises:
            DataError: a batch without pixels.
        """
        del needs
        if batch.pixels is None:
            raise DataError(f"'{self.learner.name}' is trained whole and needs pixels, not features.")
        seen = self.learner(batch.pixels)
        with torch.autocast(batch.pixels.device.type, enabled=False):
            apart = seen.scaled.apart
            return self._outputs(seen, seen.scaled, None if apart is None else self._outputs(seen, apart, None))

    def _outputs(self, seen: Seen, scaled: Scaled, apart: Outputs | None) -> Outputs:
        return Outputs(
            logits=scaled.logits,
            temperature=scaled.temperature,
            image_features=normalize(seen.embedding, dim=1),
            norms=seen.embedding.norm(dim=1),
            norms_before=seen.norms_before,
            logit_scale=1.0,
            learns_text=False,
            apart=apart,
        )


@contextmanager
def _input_of(layer: nn.Module | None) -> Iterator[list[Tensor]]:
    """Collects what a layer is shown while the block runs; nothing where there is no such layer."""
    seen: list[Tensor] = []
    if layer is None or isinstance(layer, nn.Identity):
        yield seen
        return
    handle = layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()
