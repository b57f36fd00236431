import pytest
import torch
from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from open_clip.coca_model import CoCa
from open_clip.model import CLIP, CustomTextCLIP
from open_clip.tokenizer import SimpleTokenizer

from promptcal.config import asset_path
from promptcal.errors import ConfigError
from promptcal.models.clip import FrozenClip, ImageTransform
from promptcal.models.embedded import read_meta
from promptcal.models.text_plan import plan
from promptcal.types import Prompts

TEXT = {"context_length": 20, "width": 32, "heads": 2, "layers": 2}
VISION = {"image_size": 16, "patch_size": 8, "width": 64, "layers": 2}
WEIGHTS = asset_path("assets", "mini_clip.safetensors")
NAMES = ["dog", "tabby cat", "great white shark"]


def make_clip(kind=CLIP, text=None, vision=None):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        text, vision = TEXT | (text or {}), VISION | (vision or {})
        if kind is CoCa:
            multimodal = {"context_length": 20, "width": 32, "heads": 2, "layers": 1}
            model = CoCa(24, multimodal, text, vision | {"attentional_pool": True, "output_tokens": True})
        else:
            model = kind(24, vision, text, quick_gelu=True)
        for parameter in model.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    return FrozenClip(model.double(), SimpleTokenizer(context_length=20), ImageTransform(16), "random")


@pytest.fixture(scope="module")
def clip():
    return make_clip()


def test_images_are_normalised_as_openai_does_and_the_embedded_model_agrees():
    transform, meta = ImageTransform(32), read_meta(WEIGHTS)
    assert (transform.mean, transform.std) == (OPENAI_DATASET_MEAN, OPENAI_DATASET_STD)
    assert (tuple(meta["image_mean"]), tuple(meta["image_std"])) == (OPENAI_DATASET_MEAN, OPENAI_DATASET_STD)


TOWERS = {
    "clip": {},
    "custom text": {"kind": CustomTextCLIP},
    "coca": {"kind": CoCa, "text": {"embed_cls": True, "output_tokens": True}},
    "siglip": {
        "kind": CustomTextCLIP,
        "text": {"no_causal_mask": True, "pool_type": "last", "proj_bias": True, "output_tokens": False},
    },
    "first token": {"kind": CustomTextCLIP, "text": {"no_causal_mask": True, "pool_type": "first"}},
}


def test_which_towers_are_plain_causal():
    assert {name for name, tower in TOWERS.items() if make_clip(**tower).is_plain_causal} == {"clip", "custom text"}
    assert not make_clip(text={"qk_norm": True}).is_plain_causal
    assert not make_clip(text={"pool_type": "last"}).is_plain_causal


@pytest.mark.parametrize("tower", TOWERS.values(), ids=TOWERS)
def test_context_of_words_is_open_clips_encode_text(tower):
    clip = make_clip(**tower)
    words = clip.embed_words("a photo of a")
    layout = plan(NAMES, len(words), clip.tokens)
    got = clip.encode_plan(layout, Prompts(text=words[None, None, None]))
    expected = clip.encode_texts([f"a photo of a {name}." for name in NAMES])
    torch.testing.assert_close(got[0, 0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tower", TOWERS.values(), ids=TOWERS)
def test_every_image_prompt_and_class_has_features_of_its_own_tokens(tower):
    clip = make_clip(**tower)
    generator = torch.Generator().manual_seed(0)
    text, deep = (torch.randn(2, 3, 3, 2, 32, generator=generator, dtype=torch.float64) for _ in range(2))
    layout = plan(NAMES, 2, clip.tokens, position="middle")
    together = clip.encode_plan(layout, Prompts(text=text, text_deep={1: deep}))
    for image, prompt, label in ((0, 0, 0), (1, 2, 1), (0, 1, 2)):
        alone = clip.encode_plan(
            plan(NAMES[label : label + 1], 2, clip.tokens, position="middle"),
            Prompts(
                text=text[image, prompt, label][None, None, None],
                text_deep={1: deep[image, prompt, label][None, None, None]},
            ),
        )
        torch.testing.assert_close(together[image, prompt, label], alone[0, 0, 0], rtol=1e-10, atol=1e-12)


def test_gradients_reach_prompts_and_no_weight(clip):
    text = torch.zeros(1, 1, 1, 2, 32, dtype=torch.float64, requires_grad=True)
    clip.encode_plan(plan(NAMES, 2, clip.tokens), Prompts(text=text)).sum().backward()
    assert text.grad.abs().sum() > 0
    assert not any(parameter.requires_grad or parameter.grad is not None for parameter in clip.parameters())


def test_it_stays_in_evaluation_mode():
    assert not any(module.training for module in make_clip().train().modules())


def test_texts_in_chunks_are_the_same_texts(clip):
    texts = [f"a {name}" for name in NAMES * 3]
    torch.testing.assert_close(clip.encode_texts(texts, chunk=2), clip.encode_texts(texts), rtol=1e-12, atol=1e-12)


def test_the_digest_sees_every_weight():
    one, two = make_clip(), make_clip()
    assert one.weights_digest() == two.weights_digest()
    with torch.no_grad():
        two.text.ln_final.bias[0] += 1e-9
    assert one.weights_digest() != two.weights_digest()


def test_sizes_are_read_from_the_model(clip):
    assert (clip.text_width, clip.text_layers, clip.image_width, clip.image_layers) == (32, 2, 64, 2)
    assert (clip.context_length, clip.embed_dim, clip.dtype) == (20, 24, torch.float64)


def test_image_prompts_are_appended_and_replaced_before_deep_blocks(clip):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(2, 3, 16, 16, generator=generator, dtype=torch.float64)
    tokens, deep = torch.randn(2, 1, 3, 64, generator=generator, dtype=torch.float64)
    got = clip.encode_image(pixels, Prompts(image=tokens, image_deep={1: deep}))
    visual = clip.visual
    patches = visual.conv1(pixels).flatten(2).transpose(1, 2)
    x = torch.cat([visual.class_embedding.expand(2, 1, -1), patches], 1) + visual.positional_embedding
    x = visual.ln_pre(torch.cat([x, tokens.expand(2, -1, -1)], 1))
    x = visual.transformer.resblocks[0](x)
    x = visual.transformer.resblocks[1](torch.cat([x[:, :-3], deep.expand(2, -1, -1)], 1))
    torch.testing.assert_close(got, visual.ln_post(x[:, 0]) @ visual.proj, rtol=1e-10, atol=1e-12)


def test_no_image_prompts_is_open_clips_encode_image(clip):
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = clip.model.encode_image(pixels)
    assert torch.equal(clip.encode_image(pixels, Prompts()), expected)
    empty = torch.zeros(1, 0, 64, dtype=torch.float64)
    torch.testing.assert_close(clip.encode_image(pixels, Prompts(image=empty)), expected, rtol=1e-10, atol=1e-12)


def test_a_resnet_takes_no_image_prompts():
    clip = make_clip(vision={"layers": [1, 1, 1, 1], "width": 8, "image_size": 32, "patch_size": None})
    with pytest.raises(ConfigError, match=r"ModifiedResNet without tokens.*choose a ViT"):
        clip.encode_image(torch.zeros(1, 3, 32, 32).double(), Prompts(image=torch.zeros(1, 2, 64)))
    with pytest.raises(ConfigError, match="without tokens"):
        _ = clip.image_width


def test_a_tokenizer_without_start_and_end_is_refused():
    clip = make_clip()
    clip.tokenizer = object()
    with pytest.raises(ConfigError, match="no start and end tokens"):
        _ = clip.tokens


def test_a_tower_that_reads_no_single_token_is_refused():
    clip = make_clip(CustomTextCLIP, {"pool_type": "none"})
    prompts = Prompts(text=torch.zeros(1, 1, 1, 2, 32))
    with pytest.raises(ConfigError, match="pools by 'none'"):
        clip.encode_plan(plan(NAMES, 2, clip.tokens), prompts)


@pytest.mark.parametrize("kind", [CLIP, CustomTextCLIP])
def test_short_texts_have_the_features_of_full_length_ones(kind):
    clip = make_clip(kind)
    texts = ["a photo of a dog.", "cat", "a photo of a great white shark in the sea."]
    full = clip.encode_texts(texts)
    torch.testing.assert_close(clip.encode_texts(texts, short=True), full, rtol=1e-12, atol=1e-12)
