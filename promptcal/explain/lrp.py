"""Layer-wise relevance propagation of a class logit to tokens, dimensions and attention of a vision transformer."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from promptcal.errors import DataError
from promptcal.explain.recording import Pass, record
from promptcal.explain.tokens import patch_scores


@dataclass(frozen=True)
class Relevance:
    """The relevance of everything for one class of each image; each image's sums to 1 at every depth.

    Attributes:
        classes: the classes [b] it speaks for.
        tokens: [L + 1, b, N, D], at the input of each block and after the last one.
        features: [b, F], at the classifier's input: the class token's dimensions (of a distilled DeiT, two tokens').
        attention: for each block the relevance [b, heads, N, N] of each of its attention maps.
    """

    classes: Int[Tensor, " b"]
    tokens: Float[Tensor, "M b N D"]
    features: Float[Tensor, "b F"]
    attention: tuple[tuple[Tensor, ...], ...]

    def of_tokens(self) -> Float[Tensor, "M b N"]:
        """The relevance of each token at each depth, summed over its dimensions."""
        return self.tokens.sum(dim=-1)


def relevance(
    model: nn.Module, pixels: Float[Tensor, "b c h w"], classes: Int[Tensor, " b"] | None = None
) -> Relevance:
    """The relevance of each token, dimension and attention for a class of each image; a batch is as good as one by one.

    Starts with 1 at the class's logit and goes back by the rules of ``promptcal.explain.rules``. In float32 the sums
    are kept to about 1e-3 (near-cancelling products of the z-rule), of a ``model.double()`` to 1e-6.

    Args:
        model: a timm vision transformer.
        pixels: transformed images.
        classes: the classes to explain; by default the predicted ones.

    Raises:
        ConfigError: an operation of the model has no rule; it is named.
        DataError: classes that do not fit the images or the model.

    References:
        Chefer, Gur and Wolf, "Transformer Interpretability Beyond Attention Visualization", CVPR 2021,
        arXiv 2012.09838.
    """
    seen = record(model, pixels, follow="relevance")
    classes = _checked(seen, classes)
    maps = [found for block in seen.attention for found in block]
    start = functional.one_hot(classes, seen.logits.shape[1]).to(seen.logits)
    found = torch.autograd.grad(seen.logits, [*seen.tokens, *seen.features, *maps], grad_outputs=start)
    depths, heads = len(seen.tokens), len(seen.features)
    of_maps = iter(found[depths + heads :])
    return Relevance(
        classes=classes,
        tokens=torch.stack(found[:depths]),
        features=torch.cat(found[depths : depths + heads], dim=1),
        attention=tuple(tuple(next(of_maps) for _ in block) for block in seen.attention),
    )


def attribution(
    model: nn.Module, pixels: Float[Tensor, "b c h w"], classes: Int[Tensor, " b"] | None = None
) -> Float[Tensor, "b n"]:
    """How much each of the n patches speaks for a class: Chefer, Gur and Wolf's transformer attribution.

    C_l = I + mean over heads of relu(∇A_l ⊙ R_{A_l}), with ∇ the gradient of the class's logit and R the relevance of
    the attention map; the product C_L … C_1, read where the classifier reads. For the arguments and errors see
    ``relevance``; blocks need exactly one attention map.
    """
    seen = record(model, pixels, follow="gradient")
    classes = _checked(seen, classes)
    gradients = torch.autograd.grad(seen.logits.gather(1, classes[:, None]).sum(), seen.maps())
    flow = None
    for gradient, (of_map,) in zip(gradients, relevance(model, pixels, classes).attention, strict=True):
        step = torch.eye(gradient.shape[-1]).to(gradient) + (gradient * of_map).clamp(min=0).mean(dim=1)
        flow = step if flow is None else step @ flow
    if flow is None:
        raise DataError("the model has no blocks.")
    return patch_scores(model, flow)


def _checked(seen: Pass, classes: Int[Tensor, " b"] | None) -> Int[Tensor, " b"]:
    """The classes to explain, checked against the logits."""
    images, width = seen.logits.shape
    if classes is None:
        return seen.logits.argmax(dim=1)
    if classes.shape != (images,) or bool(((classes < 0) | (classes >= width)).any()):
        raise DataError(f"{images} images need {images} classes from 0 to {width - 1}, not {classes.tolist()[:8]}.")
    return classes.to(seen.logits.device)
