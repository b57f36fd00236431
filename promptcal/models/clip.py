"""A frozen CLIP that takes prompts: the only file that knows the inside of open_clip.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021, arXiv 2103.00020.
With empty prompts both encoders call open_clip's own methods; with prompts the same blocks run with learned tokens
inserted. Nothing in here is trained: gradients reach prompts and no parameter of CLIP.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from promptcal.errors import ConfigError, DataError
from promptcal.models.image_blocks import frozen_block
from promptcal.models.text_plan import TextPlan, Tokens
from promptcal.types import Prompts

OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
"""The channel means, of pixels in [0, 1], that images of OpenAI's CLIP are normalised with."""

OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)
"""The channel standard deviations that they are normalised with."""


@dataclass(frozen=True)
class ImageTransform:
    """What a model expects of an image: side length in pixels, channel mean and std, how to resize.

    ``interpolation`` is ``bicubic`` or ``bilinear``; ``resize`` is ``shortest`` (shorter side to size, centre crop) or
    ``squash`` (both sides to size).
    """

    size: int
    mean: tuple[float, float, float] = OPENAI_MEAN
    std: tuple[float, float, float] = OPENAI_STD
    interpolation: str = "bicubic"
    resize: str = "shortest"


class FrozenClip(nn.Module):
    """An open_clip model, frozen, with prompts on both sides.

    Args:
        model: an open_clip ``CLIP`` or ``CustomTextCLIP``; its parameters are set to ``requires_grad=False``.
        tokenizer: open_clip's tokenizer of that model.
        transform: the image transform of the model.
        name: what to call it in messages and run folders.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, transform: ImageTransform, name: str) -> None:
        super().__init__()
        self.model: Any = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.transform = transform
        self.name = name

    def train(self, mode: bool = True) -> "FrozenClip":
        """Frozen means frozen: the model stays in evaluation mode."""
        del mode
        return super().train(False)

    # --- what the model is -----------------------------------------------------------------------------------------

    @property
    def text(self) -> Any:
        """The text tower: ``CLIP`` inlines it, ``CustomTextCLIP`` keeps it as ``.text``."""
        return getattr(self.model, "text", self.model)

    @property
    def visual(self) -> Any:
        """The image tower."""
        return self.model.visual

    @property
    def logit_scale(self) -> float:
        """Exp of the model's own ``logit_scale`` parameter: 100 for OpenAI's weights."""
        return float(self.model.logit_scale.detach().double().exp().mean())

    @property
    def logit_bias(self) -> float:
        """The bias of sigmoid-trained models, 0 for CLIP."""
        bias = getattr(self.model, "logit_bias", None)
        return 0.0 if bias is None else float(bias.detach().double().mean())

    @property
    def context_length(self) -> int:
        """Tokens a text may have, start and end included: 77 for OpenAI's CLIP."""
        return int(self.model.context_length)

    @property
    def text_width(self) -> int:
        """Width of a text token."""
        return int(self.text.token_embedding.weight.shape[1])

    @property
    def text_layers(self) -> int:
        """Number of blocks of the text tower."""
        return len(self.text.transformer.resblocks)

    @property
    def image_width(self) -> int:
        """Width of an image token; refused where the image tower has no tokens."""
        self.require_image_tokens()
        return int(self.visual.class_embedding.shape[0])

    @property
    def image_layers(self) -> int:
        """Number of blocks of the image tower; refused where it has no tokens."""
        self.require_image_tokens()
        return len(self.visual.transformer.resblocks)

    @cached_property
    def embed_dim(self) -> int:
        """Width D of the joint embedding."""
        return int(self.visual.output_dim)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the text tower's weights."""
        return self.text.token_embedding.weight.dtype  # type: ignore[no-any-return]

    @property
    def device(self) -> torch.device:
        """The device the model is on."""
        return self.text.token_embedding.weight.device  # type: ignore[no-any-return]

    @cached_property
    def tokens(self) -> Tokens:
        """The parts of the tokenizer a text plan needs."""
        try:
            start, end = int(self.tokenizer.sot_token_id), int(self.tokenizer.eot_token_id)
        except AttributeError as error:
            raise ConfigError(
                f"the tokenizer of '{self.name}' has no start and end tokens; prompts need them."
            ) from error
        return Tokens(self.tokenizer.encode, start, end, self.context_length)

    @cached_property
    def is_plain_causal(self) -> bool:
        """Whether the text tower is causal, reads the end token and has open_clip's standard blocks."""
        text = self.text
        pool = getattr(text, "text_pool_type", getattr(text, "pool_type", ""))
        blocks = getattr(getattr(text, "transformer", None), "resblocks", ())
        standard = all(type(block).__name__ == "ResidualAttentionBlock" for block in blocks)
        return bool(
            getattr(text, "attn_mask", None) is not None
            and pool in ("argmax", "eos")
            and getattr(text, "cls_emb", None) is None
            and len(blocks)
            and standard
        )

    def weights_digest(self) -> str:
        """SHA-256 over the names, shapes and bytes of all weights: what decides features."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def require_image_tokens(self) -> None:
        """Refuse image prompts on towers without tokens, such as ResNets."""
        if not hasattr(self.visual, "class_embedding"):
            raise ConfigError(
                f"the image tower of '{self.name}' is a {type(self.visual).__name__} without tokens, so it takes no "
                f"image prompts; choose a ViT or a learner that prompts the text alone."
            )

    # --- encoding --------------------------------------------------------------------------------------------------

    def embed_words(self, words: str) -> Float[Tensor, "n d"]:
        """The token embeddings of some words, to start a context from."""
        ids = torch.tensor(self.tokens.encode(words), device=self.device)
        return self.text.token_embedding(ids).detach().clone()  # type: ignore[no-any-return]

    def encode_texts(self, texts: Sequence[str], *, chunk: int = 512, short: bool = False) -> Float[Tensor, "n D"]:
        """open_clip's own features of whole texts, before normalisation, without gradient.

        ``short`` leaves out what follows the end of the longest text of a chunk, which no token of a causal tower sees:
        the same features up to rounding, several times faster. Other towers run at full length whatever it says.
        """
        with torch.no_grad():
            parts = []
            self.require_room(texts)
            for start in range(0, len(texts), chunk):
                ids = self.tokenizer(list(texts[start : start + chunk]), context_length=self.context_length)
                ids = ids.to(self.device)
                shortened = short and self.is_plain_causal
                parts.append(self._encode_short(ids) if shortened else self.model.encode_text(ids, normalize=False))
            return torch.cat(parts)

    def _encode_short(self, ids: Int[Tensor, "n L"]) -> Float[Tensor, "n D"]:
        text = self.text
        ends = (ids == self.tokens.end).int().argmax(dim=-1)
        length = int(ends.max()) + 1
        x = text.token_embedding(ids[:, :length]).to(self.dtype) + text.positional_embedding[:length].to(self.dtype)
        for block in text.transformer.resblocks:
            x = block(x, attn_mask=text.attn_mask[:length, :length])
        return self.project_text(text.ln_final(x[torch.arange(len(x), device=x.device), ends]))

    def require_room(self, texts: Sequence[str]) -> None:
        """Refuse a text that the tokenizer would cut off; raises DataError with its token count."""
        encode = getattr(self.tokenizer, "encode", None)
        if encode is None:
            return
        for text in texts:
            count = len(encode(text)) + 2
            if count > self.context_length:
                raise DataError(
                    f"the text '{text}' takes {count} tokens with start and end, but '{self.name}' reads "
                    f"{self.context_length}; shorten the class name or the template."
                )

    def encode_plan(self, plan: TextPlan, prompts: Prompts) -> Float[Tensor, "B P C D"]:
        """Features of prompted class texts by the plain full-length pass, before normalisation.

        This is the reference for the fast pass: every class, all positions, every step.
        """
        learned, (images, count) = plan.learned(prompts), plan.groups(prompts)
        tower = self.text
        if not hasattr(tower, "token_embedding"):
            raise ConfigError(f"the text tower of '{self.name}' is a {type(tower).__name__}, which takes no prompts.")
        ids, context, eot = (torch.as_tensor(a, device=self.device) for a in (plan.ids, plan.context, plan.eot))
        classes, length = ids.shape
        x = tower.token_embedding(ids).expand(images, count, -1, -1, -1)
        x = _place(x, learned[-1], context).flatten(0, 2)
        appended = getattr(tower, "cls_emb", None)
        if appended is not None:
            x = torch.cat([x, appended.to(x.dtype).expand(len(x), 1, -1)], dim=1)
        x = x + tower.positional_embedding[: x.shape[1]].to(x.dtype)
        mask = self._text_mask(ids.scatter(1, context, -1), images * count, x.shape[1])
        for index, block in enumerate(tower.transformer.resblocks):
            if index in learned:
                own = _place(x[:, :length].unflatten(0, (images, count, classes)), learned[index], context).flatten(
                    0, 2
                )
                x = torch.cat([own, x[:, length:]], dim=1)
            x = block(x, attn_mask=mask)
        pool = "last" if appended is not None else getattr(tower, "text_pool_type", getattr(tower, "pool_type", ""))
        places = {"argmax": eot, "eos": eot, "first": torch.zeros_like(eot), "last": torch.full_like(eot, -1)}
        if pool not in places:
            raise ConfigError(f"the text tower of '{self.name}' pools by '{pool}'; prompts need one token to read.")
        x = x.unflatten(0, (images, count, classes))[:, :, torch.arange(classes, device=self.device), places[pool]]
        return self.project_text(tower.ln_final(x))

    def _text_mask(self, ids: Int[Tensor, "C L"], copies: int, length: int) -> Tensor | None:
        """The additive attention mask of the text tower; a token appended to the text (CoCa) does not see padding."""
        tower = self.text
        causal: Tensor | None = None if tower.attn_mask is None else tower.attn_mask[:length, :length]
        if getattr(tower, "cls_emb", None) is None:
            return causal
        padding: Tensor = tower._build_additive_mask(ids, length, self.dtype).repeat(copies, 1, 1)
        return padding if causal is None else padding + causal

    def project_text(self, x: Float[Tensor, "... w"]) -> Float[Tensor, "... D"]:
        """The text projection onto the joint embedding."""
        projection = self.text.text_projection
        if projection is None:
            return x
        return projection(x) if isinstance(projection, nn.Linear) else x @ projection  # type: ignore[no-any-return]

    def encode_image(self, pixels: Float[Tensor, "b 3 h w"], prompts: Prompts | None = None) -> Float[Tensor, "b D"]:
        """Image features before normalisation; with image prompts the tokens are appended after CLS and patches."""
        if prompts is None or (prompts.image is None and not prompts.image_deep):
            return self.model.encode_image(pixels, normalize=False)  # type: ignore[no-any-return]
        x, _ = self.image_blocks(pixels, prompts, patches=False)
        return self.project_image(self.visual._pool(x)[0])

    def image_blocks(
        self, pixels: Float[Tensor, "b 3 h w"], prompts: Prompts, *, patches: bool
    ) -> tuple[Float[Tensor, "b n d"], int]:
        """The tokens behind the last block, and how many of them (class token, patches) are the tower's own.

        Without ``patches`` a prompted tower that is read at its class token gives that one alone.
        """
        self.require_image_tokens()
        visual = self.visual
        if prompts.image is None and not prompts.image_deep:
            x = visual.transformer(visual._embeds(pixels))
            return x, x.shape[1]
        x = visual.conv1(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([visual.class_embedding.expand(len(x), 1, -1).to(x.dtype), x], dim=1)
        x = x + visual.positional_embedding.to(x.dtype)
        own = x.shape[1]
        if prompts.image is not None:
            x = torch.cat([x, prompts.image.expand(len(x), -1, -1).to(x.dtype)], dim=1)
        x = visual.ln_pre(x)
        blocks = visual.transformer.resblocks
        reads_first = visual.pool_type == "tok" and visual.attn_pool is None and not patches
        for index, block in enumerate(blocks):
            if index in prompts.image_deep:
                deep = prompts.image_deep[index].expand(len(x), -1, -1).to(x.dtype)
                x = torch.cat([x[:, :own], deep], dim=1)
            x = frozen_block(block, x, first_only=reads_first and index == len(blocks) - 1)
        return x, own

    def project_image(self, pooled: Float[Tensor, "b d"]) -> Float[Tensor, "b D"]:
        """The image projection onto the joint embedding."""
        projection = self.visual.proj
        return pooled if projection is None else pooled @ projection


def _place(
    x: Float[Tensor, "B P C L d"], tokens: Float[Tensor, "b p c n d"], context: Int[Tensor, "C n"]
) -> Float[Tensor, "B P C L d"]:
    """``x`` with the tokens at the context positions of each class; ``x`` itself is left alone."""
    images, count, classes, _, width = x.shape
    images, count = max(images, tokens.shape[0]), max(count, tokens.shape[1])
    x = x.expand(images, count, -1, -1, -1)
    tokens = tokens.to(x.dtype).expand(images, count, classes, -1, -1)
    index = context[None, None, :, :, None].expand(images, count, -1, -1, width)
    return x.scatter(3, index, tokens)
