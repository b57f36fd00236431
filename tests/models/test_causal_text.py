import pytest
import torch
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer

from promptcal.models.causal_text import CausalText, PlainText
from promptcal.models.clip import FrozenClip, ImageTransform
from promptcal.models.text_plan import plan
from promptcal.types import Prompts

NAMES = ["dog", "cat", "tabby cat", "tabby dog", "dog", "great white shark of the sea"]


def make_clip(*, context_length=77, layers=3, width=32, quick_gelu=True, dtype=torch.float64):
    """A random CLIP whose LayerNorm weights and biases all differ, so that a folding error shows."""
    vision = {"image_size": 16, "patch_size": 16, "width": 64, "layers": 1}
    text = {"context_length": context_length, "width": width, "heads": 2, "layers": layers}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CLIP(24, vision, text, quick_gelu=quick_gelu)
        for parameter in model.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    tokenizer = SimpleTokenizer(context_length=context_length)
    return FrozenClip(model.to(dtype), tokenizer, ImageTransform(16), "random")


@pytest.fixture(scope="module")
def clip():
    return make_clip()


def random_prompts(clip, *, n, position, tail, images=1, count=1, classes=1, deep=(), seed=0):
    generator = torch.Generator().manual_seed(seed)

    def tokens():
        shape = (images, count, classes, n, clip.text_width)
        return torch.randn(shape, dtype=clip.dtype, generator=generator).mul(0.3).requires_grad_()

    return Prompts(text=tokens(), text_deep={i: tokens() for i in deep}, position=position, tail=tail)


def features_and_gradients(passed, prompts):
    features = passed.encode(prompts)
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(features.shape, generator=generator, dtype=features.dtype)
    return features, torch.autograd.grad((features * weights).sum(), [prompts.text, *prompts.text_deep.values()])


def relative(a, b):
    return ((a - b).norm() / b.norm().clamp(min=1e-30)).item()


def assert_equal_passes(clip, names, prompts, tolerance=1e-12, gradient_tolerance=1e-12):
    layout = plan(names, prompts.text.shape[3], clip.tokens, position=prompts.position, tail=prompts.tail)
    plain, plain_gradients = features_and_gradients(PlainText(clip, layout), prompts)
    fast, fast_gradients = features_and_gradients(CausalText(clip, layout), prompts)
    assert fast.shape == plain.shape
    assert relative(fast, plain) < tolerance
    for got, expected in zip(fast_gradients, plain_gradients, strict=True):
        assert relative(got, expected) < gradient_tolerance


@pytest.mark.parametrize("position", ["end", "middle", "front"])
@pytest.mark.parametrize("tail", ["{}.", "of a {}."])
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"images": 3},
        {"images": 2, "count": 3},
        {"classes": len(NAMES)},
        {"deep": (1,)},
        {"deep": (0, 1), "images": 2, "classes": len(NAMES)},
    ],
)
def test_fast_equals_plain(clip, position, tail, shape):
    assert_equal_passes(clip, NAMES, random_prompts(clip, n=4, position=position, tail=tail, **shape))
