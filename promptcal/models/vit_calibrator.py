"""ViT-Calibrator: a frozen vision transformer, feedback from deep blocks to a shallow one, and a corrected class token.

Chen et al., "ViT-Calibrator: Decision Stream Calibration for Vision Transformer", AAAI 2024, arXiv 2304.04354. It mends
what the decision rests on, and with it accuracy; it makes no claim about probabilities. There is no public code and the
formulas could not be read: beyond "feedback from deep to shallow layers" and "self-distillation through masks of
class-relevant dimensions" everything here is inferred. docs/vit_calibrator.md says what is what.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from promptcal.errors import ConfigError, DataError, unknown
from promptcal.explain.dimensions import class_means, dimension_masks, dimension_relevance
from promptcal.explain.recording import Pass, blocks_of, classifiers_of, record
from promptcal.explain.rollout import rollout
from promptcal.explain.tokens import patch_scores, read_range
from promptcal.types import Batch

GATES = ("learned", "rollout", "none")
STAGES = ("token", "dimension", "both")


class TokenFeedback(nn.Module):
    """Stage 1: what deep blocks saw, handed back to the tokens before a shallower one.

    U = Σ_l P_l(LN(X_l)) over the source blocks l, and Δ = g·U for each token, with P_l linear and zero at the start, so
    that the model is unchanged, bit for bit, until it is trained. The gate g of a token is 1 (``none``), the sigmoid of
    a learned linear map of U (``learned``), or for a patch the share of the attention rollout that the classifier reads
    of it, over the largest of the image (``rollout``); class and register tokens then have gate 1.

    Args:
        width: D, the width of the tokens.
        sources: how many source blocks there are.
        gate: ``learned``, ``rollout`` or ``none``.
    """

    def __init__(self, width: int, sources: int, gate: str = "learned") -> None:
        super().__init__()
        if gate not in GATES:
            raise ConfigError(unknown("gate", gate, GATES))
        self.rolls_out = gate == "rollout"
        self.projections = nn.ModuleList(_zero(width, width) for _ in range(sources))
        self.gate = _zero(width, 1) if gate == "learned" else None

    def forward(
        self, sources: Sequence[Float[Tensor, "b N D"]], shares: Float[Tensor, "b N"] | None = None
    ) -> Float[Tensor, "b N D"]:
        """Δ from the tokens after the source blocks; ``shares`` in [0, 1] is the gate where it comes of a rollout."""
        parts = [
            projection(functional.layer_norm(tokens, tokens.shape[-1:]))
            for projection, tokens in zip(self.projections, sources, strict=True)
        ]
        change = torch.stack(parts).sum(dim=0)
        if shares is not None:
            return change * shares[..., None]
        return change if self.gate is None else change * self.gate(change).sigmoid()


class CalibratedViT(nn.Module):
    """A frozen timm vision transformer with stage 1 (``feedback``) and stage 2 (``correction``), used as timm's are.

    The feedback runs the frozen model once, adds Δ to the tokens before block ``target`` and goes on from there: a
    second pass of (L − target + 1)/L of the blocks. The correction is a residual bottleneck x + W₂·GELU(W₁x) on the
    tokens that the classifier reads, after the last norm, zero at the start. Nothing else is learned. The class masks
    of stage 2 (``masks`` [C, D]) are those of ``study``; they are used in training alone, since at test time the class
    is not known.

    Args:
        backbone: a timm ViT, DeiT, FlexiViT or EVA with a classifier; it is frozen, in evaluation mode.
        stage: ``token``, ``dimension`` or ``both``.
        sources: how many of the last blocks feed back; the paper's ablation goes from 1 to 3. None = 3, and in a model
            of few blocks all but the first.
        target: the block, counted from 1, whose input is changed; 1 harms in the paper's ablation. None = 3, or in a
            model of few blocks the last one that the sources do not come before.
        gate: see ``TokenFeedback``.
        hidden: the width of the bottleneck.
        keep: the share of its relevance that a class's mask keeps.
        confidence: images count for the masks from this confidence in their class on.
        generator: the random numbers of W₁.

    Raises:
        ConfigError: an unknown stage or gate, a source block before the target, or, for stage 2, two classifiers.
    """

    def __init__(
        self,
        backbone: nn.Module,
        stage: str = "both",
        sources: int | None = None,
        target: int | None = None,
        gate: str = "learned",
        hidden: int = 32,
        keep: float = 0.9,
        confidence: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if stage not in STAGES:
            raise ConfigError(unknown("stage", stage, STAGES))
        depth, classifiers = len(blocks_of(backbone)), classifiers_of(backbone)
        sources = max(1, min(3, depth - 1)) if sources is None else sources
        if target is None:
            target = min(3, depth - sources + 1)
        if stage != "dimension" and not (sources >= 1 and 1 <= target <= depth - sources + 1):
            raise ConfigError(
                f"the last {sources} of {depth} blocks cannot feed back to block {target}; choose sources of at least "
                f"1 and a target from 1 to {depth} - sources + 1."
            )
        if stage != "token" and len(classifiers) != 1:
            raise ConfigError(
                f"this {type(backbone).__name__} averages {len(classifiers)} classifiers, so no class has one mask of "
                f"dimensions; use stage=token, or a model with one classifier."
            )
        dimension_masks(torch.zeros(1, 1), keep)  # refuses an impossible share now
        self.backbone = backbone.requires_grad_(False).eval()
        self.sources, self.target, self.keep, self.confidence = sources, target, keep, confidence
        width = int(backbone.embed_dim)  # type: ignore[arg-type]
        self.feedback = None if stage == "dimension" else TokenFeedback(width, sources, gate)
        self.correction = None if stage == "token" else _bottleneck(width, hidden, generator)
        self.masks: Tensor
        if stage != "token":
            self.register_buffer("masks", torch.ones_like(classifiers[0].weight))

    @property
    def num_prefix_tokens(self) -> int:
        """How many tokens come before the patches."""
        return int(self.backbone.num_prefix_tokens)  # type: ignore[arg-type]

    @property
    def global_pool(self) -> str:
        """How the classifier reads the tokens, as timm names it."""
        return str(self.backbone.global_pool)

    @property
    def cls_token(self) -> Tensor | None:
        """The class token, where there is one."""
        return self.backbone.cls_token  # type: ignore[return-value]

    @property
    def second_pass(self) -> float:
        """How much of the blocks run a second time: (L − target + 1)/L, 0 without feedback."""
        depth = len(blocks_of(self.backbone))
        return 0.0 if self.feedback is None else (depth - self.target + 1) / depth

    def get_classifier(self) -> nn.Module | tuple[nn.Module, ...]:
        """The classifier of the frozen model, frozen too."""
        return self.backbone.get_classifier()  # type: ignore[no-any-return, operator]

    def train(self, mode: bool = True) -> "CalibratedViT":
        """Training mode of what is learned; the frozen model stays in evaluation mode."""
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b C"]:
        """The logits."""
        return self.forward_head(self.forward_features(pixels))

    def forward_head(self, tokens: Float[Tensor, "b N D"], pre_logits: bool = False) -> Tensor:
        """Logits [b, C] from tokens, or, as ``pre_logits``, the classifier's input z [b, D]."""
        return self.backbone.forward_head(tokens, pre_logits=pre_logits)  # type: ignore[no-any-return, operator]

    def classify(self, z: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        """The logits of a classifier's input, for models with one classifier."""
        (classifier,) = classifiers_of(self.backbone)
        return classifier(z)  # type: ignore[no-any-return]

    def forward_features(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b N D"]:
        """The tokens after the last norm, of the second pass where there is one, corrected where they are."""
        if self.feedback is None:
            with torch.no_grad():
                tokens: Tensor = self.backbone.forward_features(pixels)  # type: ignore[operator]
        else:
            tokens = self._second_pass(pixels, self.feedback)
        if self.correction is None:
            return tokens
        first, last = read_range(self.backbone, tokens.shape[1])
        read = tokens[:, first:last]
        return torch.cat([tokens[:, :first], read + self.correction(read), tokens[:, last:]], dim=1)

    def _second_pass(self, pixels: Tensor, feedback: TokenFeedback) -> Tensor:
        seen = record(self.backbone, pixels, follow="values" if feedback.rolls_out else "tokens")
        shares = self._shares(seen) if feedback.rolls_out else None
        start = self.target - 1
        tokens = seen.tokens[start] + feedback(seen.tokens[-self.sources :], shares)
        for block, options in zip(blocks_of(self.backbone)[start:], seen.options[start:], strict=True):
            tokens = block(tokens, **options)
        return self.backbone.norm(tokens)  # type: ignore[no-any-return, operator]

    def _shares(self, seen: Pass) -> Float[Tensor, "b N"]:
        """The rollout's gate: 1 for prefix tokens, for patches their share over the largest of the image."""
        scores = patch_scores(self.backbone, rollout(torch.stack(seen.maps()))[-1])
        prefix = scores.new_ones(len(scores), self.num_prefix_tokens)
        return torch.cat([prefix, scores / scores.amax(dim=1, keepdim=True)], dim=1)

    @torch.no_grad()
    def study(self, batches: Iterable[Batch]) -> None:
        """Set the class masks from the images that the model classifies rightly; without stage 2 nothing is to be done.

        Raises:
            DataError: no image is classified rightly, or a batch has no pixels.
        """
        if self.correction is None:
            return
        (classifier,) = classifiers_of(self.backbone)
        relevance, classes = [], []
        for batch in batches:
            if batch.pixels is None:
                raise DataError("class masks are studied on pixels, and this batch has none.")
            z = self.forward_head(self.forward_features(batch.pixels), pre_logits=True)
            confidence, predicted = self.classify(z).softmax(dim=1).max(dim=1)
            right = (predicted == batch.labels) & (confidence >= self.confidence)
            relevance.append(dimension_relevance(z[right], classifier.weight, batch.labels[right]))
            classes.append(batch.labels[right])
        if not any(len(found) for found in classes):
            raise DataError("the model classifies no training image rightly, so no class has a mask of dimensions.")
        means = class_means(torch.cat(relevance), torch.cat(classes), len(classifier.weight))
        self.masks.copy_(dimension_masks(means, self.keep))


def _zero(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that answers 0 until it is trained."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _bottleneck(width: int, hidden: int, generator: torch.Generator | None) -> nn.Sequential:
    """W₂·GELU(W₁x), with W₁ uniform within ±1/√width and W₂ zero."""
    inner = _zero(width, hidden)
    bound = width**-0.5
    with torch.no_grad():
        inner.weight.copy_((2 * torch.rand(inner.weight.shape, generator=generator) - 1) * bound)
    return nn.Sequential(inner, nn.GELU(), _zero(hidden, width))
