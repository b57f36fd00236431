"""Heads: from the embedding of an image to the temperature that divides its logits.

CalAttn (Liang et al., "Calibration Attention: Instance-wise Temperature Scaling for Vision Transformers", 2025,
arXiv 2508.08547) and its controls. A head knows nothing of where the embedding comes from: the image token of
a ViT, the pooled map of a CNN or the image feature of a CLIP.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from promptcal.config import register
from promptcal.errors import ConfigError, unknown
from promptcal.models.layers import seeded_linear
from promptcal.types import ClassNames

MODES = ("joint", "stop_z", "separate")
"""How a head is trained beside its model; see :class:`Head`."""

STARTS = ("one", "torch")

BIAS_OF_ONE = math.log(math.e - 1)
"""The b with softplus(b) = 1."""


class Head(nn.Module):
    """What every head offers: the temperature s [b] of some embeddings z [b, d].

    Attributes:
        source: which embedding of its model the head reads; ``default`` is the model's own choice.
        mode: ``joint`` = one loss of logits / s trains all, and its gradient reaches the model through s too;
            ``stop_z`` = the same, but no gradient passes through z, while that of the logits is still divided by s;
            ``separate`` = the model is trained on the plain logits, the head on logits and z without gradient.
        replaces_logits: the head answers with logits [b, C] of its own instead of a temperature.
    """

    replaces_logits = False

    def __init__(self, source: str = "default", mode: str = "joint") -> None:
        super().__init__()
        if mode not in MODES:
            raise ConfigError(unknown("head.mode", mode, MODES))
        self.source, self.mode = source, mode

    def forward(self, features: Float[Tensor, "b d"]) -> Tensor:
        """The temperatures [b] in float32, positive; logits [b, C] where the head replaces them."""
        raise NotImplementedError


@dataclass(frozen=True)
class Scaled:
    """Logits and the temperature that divides them (None = 1).

    ``apart`` is what the head alone is trained on where it is trained separately: logits without gradient, temperature.
    """

    logits: Float[Tensor, "b C"]
    temperature: Float[Tensor, " b"] | None = None
    apart: "Scaled | None" = None


def scale(
    head: Head | None, features: Float[Tensor, "b d"] | None, logits: Float[Tensor, "b C"], *, training: bool = False
) -> Scaled:
    """Put a head beside the logits of a model, with the gradients of the head's ``mode``.

    Args:
        head: the head, or None for a model without one.
        features: the embeddings z that the head reads; None without a head.
        logits: the model's logits, not divided.
        training: in ``separate`` mode the logits of a training step stay plain, and the head is trained ``apart``.
    """
    if head is None or features is None:
        return Scaled(logits)
    result = head(features if head.mode == "joint" else features.detach())
    separate = head.mode == "separate"
    scaled = Scaled(result) if head.replaces_logits else Scaled(logits.detach() if separate else logits, result)
    if separate and training:
        return Scaled(logits, apart=scaled)
    return scaled


@register("head", "calattn")
class CalAttn(Head):
    """CalAttn: s(z) = max(softplus(w₂·GELU(W₁z + b₁) + b₂), floor), one positive number an image.

    GELU is the exact one. The head computes in float32 whatever the autocast; the softplus is evaluated in float64 and
    rounded, so that s is exactly 1 at the start (w₂ = 0, b₂ = ln(e − 1)) on every processor and the logits of step 0
    are those of the model without a head, bit for bit. With w₂ = 0 the first step moves w₂ and b₂ alone. A head has
    h(d + 2) + 1 parameters. The ranking of the classes is that of the logits, for given weights of the model.

    Args:
        width: d, the width of the embedding it reads.
        generator: the random numbers of W₁ and b₁, uniform within ±1/√d as in ``nn.Linear``.
        hidden: h; the paper claims less than 0.1 % of the backbone, which 32 keeps for DeiT-S and the released 128 not.
        floor: the least temperature; below it the gradient is 0. The released code adds 1e-6 instead.
        source: which embedding it reads.
        mode: how it is trained.
        start: ``one``, or ``torch`` for the default initialisation of the released code, whose first s is about 0.7.

    Raises:
        ConfigError: a width or floor that is not positive, an unknown mode or start.

    References:
        Liang et al., "Calibration Attention: Instance-wise Temperature Scaling for Vision Transformers", 2025,
        arXiv 2508.08547. The paper says that the head starts at 1; the released code does not start it there.
    """

    def __init__(
        self,
        width: int,
        generator: torch.Generator | None = None,
        hidden: int = 32,
        floor: float = 1e-3,
        source: str = "default",
        mode: str = "joint",
        start: str = "one",
    ) -> None:
        super().__init__(source, mode)
        if start not in STARTS:
            raise ConfigError(unknown("head.start", start, STARTS))
        _require_positive(hidden=hidden, floor=floor)
        self.floor = floor
        self.inner = seeded_linear(width, hidden, generator)
        self.outer = seeded_linear(hidden, 1, generator)
        if start == "one":
            _start_at_one(self.outer)

    def forward(self, features: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """The temperatures, in float32."""
        with torch.autocast(features.device.type, enabled=False):
            inner = functional.gelu(self.inner(features.to(self.inner.weight.dtype)))
            return _positive_part(self.outer(inner).squeeze(1), self.floor)


@register("head", "norm")
class NormOnly(Head):
    """A control for CalAttn: the same small network, which sees nothing of z but ‖z‖₂/√d.

    The paper motivates its head by the norm of the class token; if this head does as well, the norm is all it reads.

    Args:
        width: d, the width of the embedding.
        generator: the random numbers of the initialisation.
        hidden: as in CalAttn.
        floor: as in CalAttn.
        source: which embedding it reads.
        mode: how it is trained.
    """

    def __init__(
        self,
        width: int,
        generator: torch.Generator | None = None,
        hidden: int = 32,
        floor: float = 1e-3,
        source: str = "default",
        mode: str = "joint",
    ) -> None:
        super().__init__(source, mode)
        self.width = width
        self.network = CalAttn(1, generator, hidden=hidden, floor=floor)

    def forward(self, features: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """The temperatures, in float32."""
        norms = features.float().norm(dim=1, keepdim=True) / self.width**0.5
        return self.network(norms)  # type: ignore[no-any-return]


@register("head", "global")
class GlobalScale(Head):
    """A control for CalAttn: one learned temperature s = max(softplus(b), floor) for all images, 1 at the start.

    Args:
        floor: as in CalAttn.
        mode: how it is trained; it reads no embedding, so ``joint`` and ``stop_z`` are the same.
    """

    def __init__(self, floor: float = 1e-3, mode: str = "joint") -> None:
        super().__init__(mode=mode)
        _require_positive(floor=floor)
        self.floor = floor
        self.bias = nn.Parameter(torch.tensor([BIAS_OF_ONE]))

    def forward(self, features: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """The same temperature for every image, in float32."""
        return _positive_part(self.bias, self.floor).expand(len(features))


@register("head", "dirichlet")
class DirichletAlpha(Head):
    """An α-head, inferred: p = α/Σα with α = 1 + softplus(V·GELU(W₁z + b₁) + c) [C].

    The paper compares its scalar head with a "Dirichlet α-head" whose formula could not be read; this is our reading:
    the evidence Σα acts as an inverse temperature. It answers with log α, whose softmax is p, so that losses and
    metrics treat it as any logits. The ranking of the classes is its own, not the classifier's.

    Args:
        width: d, the width of the embedding.
        classes: the classes, C of them.
        generator: the random numbers of the initialisation.
        hidden: as in CalAttn.
        source: which embedding it reads.
        mode: how it is trained; in ``separate`` it learns beside a classifier that it does not change.
    """

    replaces_logits = True

    def __init__(
        self,
        width: int,
        classes: ClassNames,
        generator: torch.Generator | None = None,
        hidden: int = 32,
        source: str = "default",
        mode: str = "joint",
    ) -> None:
        super().__init__(source, mode)
        _require_positive(hidden=hidden)
        self.inner = seeded_linear(width, hidden, generator)
        self.outer = seeded_linear(hidden, len(classes), generator)

    def forward(self, features: Float[Tensor, "b d"]) -> Float[Tensor, "b C"]:
        """Log α, in float32."""
        with torch.autocast(features.device.type, enabled=False):
            inner = functional.gelu(self.inner(features.to(self.inner.weight.dtype)))
            return torch.log1p(functional.softplus(self.outer(inner)))


def _start_at_one(layer: nn.Linear) -> None:
    """Make the layer answer b = ln(e − 1), whatever it is shown."""
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(BIAS_OF_ONE)


def _positive_part(x: Float[Tensor, " b"], floor: float) -> Float[Tensor, " b"]:
    return functional.softplus(x.double()).to(x.dtype).clamp(min=floor)


def _require_positive(**values: float | int) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"head.{name} is {value}; it must be positive.")
