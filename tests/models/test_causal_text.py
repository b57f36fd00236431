import copy
import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.coca_model import CoCa
from open_clip.model import CLIP, CustomTextCLIP
from open_clip.tokenizer import SimpleTokenizer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from promptcal.errors import ConfigError
from promptcal.models.causal_text import CausalText, PlainText, text_pass
from promptcal.models.clip import FrozenClip, ImageTransform
from promptcal.models.text_plan import plan
from promptcal.types import Prompts

NAMES = ["dog", "cat", "tabby cat", "tabby dog", "dog", "great white shark of the sea"]
VISION = {"image_size": 16, "patch_size": 16, "width": 64, "layers": 1}
LONG = "a dog and a cat and a bird and a fish by the old house in a wood near the sea at noon"
WORDS = LONG.split()


def make_clip(*, kind=CLIP, layers=3, width=32, heads=2, quick_gelu=True, dtype=torch.float64, **text):
    """A random CLIP whose LayerNorm weights and biases all differ, so that a folding error shows."""
    text = {"context_length": 77, "width": width, "heads": heads, "layers": layers} | text
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(24, VISION, text, quick_gelu=quick_gelu)
        for parameter in model.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    tokenizer = SimpleTokenizer(context_length=text["context_length"])
    return FrozenClip(model.to(dtype), tokenizer, ImageTransform(16), "random")


@pytest.fixture(scope="module")
def clip():
    return make_clip()


@pytest.fixture(scope="module")
def vit_b_text():
    """The text tower of ViT-B/16 in its real shape."""
    return make_clip(layers=12, width=512, heads=8, dtype=torch.float32)


def draw(clip, *, n=4, position="end", tail="{}.", images=1, count=1, classes=1, deep=(), seed=0):
    generator = torch.Generator().manual_seed(seed)

    def tokens():
        shape = (images, count, classes, n, clip.text_width)
        return torch.randn(shape, generator=generator, dtype=torch.float64).mul(0.3).to(clip.dtype).requires_grad_()

    return Prompts(text=tokens(), text_deep={i: tokens() for i in deep}, position=position, tail=tail)


def arrange(clip, names, prompts):
    return plan(names, prompts.text.shape[3], clip.tokens, position=prompts.position, tail=prompts.tail)


def gradients_of(features, prompts):
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(features.shape, generator=generator, dtype=torch.float64).to(features.dtype)
    return torch.autograd.grad((features * weights).sum(), [prompts.text, *prompts.text_deep.values()])


def features_and_gradients(passed, prompts):
    features = passed.encode(prompts)
    return features, gradients_of(features, prompts)


def relative(got, expected):
    return ((got - expected).double().norm() / expected.double().norm().clamp(min=1e-30)).item()


def assert_equal_passes(clip, names, prompts, tolerance=1e-12, gradient_tolerance=1e-12):
    layout = arrange(clip, names, prompts)
    plain, plain_gradients = features_and_gradients(PlainText(clip, layout), prompts)
    fast, fast_gradients = features_and_gradients(CausalText(clip, layout), prompts)
    assert fast.shape == plain.shape
    assert fast.dtype == plain.dtype
    assert relative(fast, plain) < tolerance
    for got, expected in zip(fast_gradients, plain_gradients, strict=True):
        assert relative(got, expected) < gradient_tolerance


# --- exactness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["end", "middle", "front"])
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"n": 1, "tail": "{}"},
        {"images": 3, "tail": "of a {}."},
        {"images": 2, "count": 3},
        {"classes": len(NAMES)},
        {"images": 2, "classes": len(NAMES), "deep": (2,)},
        {"deep": (1,)},
        {"deep": (1, 2), "tail": "of a {}."},
        {"deep": (0, 1, 2), "images": 2},
    ],
    ids=str,
)
def test_features_and_gradients_equal_the_plain_pass(clip, position, shape):
    assert_equal_passes(clip, NAMES, draw(clip, position=position, **shape))


@settings(deadline=None, max_examples=25)
@given(
    names=st.lists(st.lists(st.sampled_from(WORDS[:9]), min_size=1, max_size=7).map(" ".join), min_size=1, max_size=9),
    n=st.integers(1, 6),
    position=st.sampled_from(["end", "middle", "front"]),
    tail=st.sampled_from(["{}", "{}.", "of a {}.", "{} by the sea"]),
    images=st.integers(1, 3),
    count=st.integers(1, 3),
    per_class=st.booleans(),
    deep=st.sets(st.integers(0, 2)),
    seed=st.integers(0, 9),
)
def test_any_prompts_equal_the_plain_pass(clip, names, n, position, tail, images, count, per_class, deep, seed):
    shape = {"n": n, "images": images, "count": count, "classes": len(names) if per_class else 1}
    prompts = draw(clip, position=position, tail=tail, deep=sorted(deep), seed=seed, **shape)
    assert_equal_passes(clip, names, prompts)


@pytest.mark.parametrize("position", ["end", "front"])
@pytest.mark.parametrize("classes", [1, 2, 5, 76, 77, 78])
def test_names_of_1_to_40_tokens(clip, classes, position):
    names = [" ".join((WORDS * 2)[i % 7 : i % 7 + 1 + (11 * i) % 39]) for i in range(classes)]
    assert_equal_passes(clip, names, draw(clip, n=16, position=position))


@pytest.mark.parametrize("shape", [{}, {"position": "middle"}, {"classes": 1000, "n": 2}], ids=str)
def test_a_thousand_classes(shape):
    clip = make_clip(context_length=32, layers=2, width=16)
    names = [f"{WORDS[i % 23]} {WORDS[i % 19]} {WORDS[i % 7]}" for i in range(999)] + [LONG]
    assert_equal_passes(clip, names, draw(clip, **shape))


@pytest.mark.parametrize(
    "tower",
    [
        {"quick_gelu": False},
        {"ls_init_value": 0.5},
        {"quick_gelu": False, "ls_init_value": 0.5, "kind": CustomTextCLIP, "proj_bias": True},
        {"context_length": 32, "mlp_ratio": 2.5, "heads": 4},
        {"layers": 1},
        {"layers": 6, "width": 24, "heads": 3},
        {"pool_type": "eos", "eos_id": 49407},
        {"proj_type": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [{}, {"position": "front", "images": 2}], ids=str)
def test_every_kind_of_causal_tower(tower, shape):
    clip = make_clip(**tower)
    deep = (1,) if clip.text_layers > 1 else ()
    assert isinstance(text_pass(clip, plan(NAMES, 2, clip.tokens)), CausalText)
    assert_equal_passes(clip, NAMES, draw(clip, deep=deep, **shape))


@pytest.mark.parametrize("shape", [{}, {"position": "middle", "images": 2}, {"deep": (1, 2)}, {"classes": 6}], ids=str)
def test_float32(shape):
    clip = make_clip(dtype=torch.float32)
    assert_equal_passes(clip, NAMES, draw(clip, **shape), 1e-5, 1e-4)


def test_the_shape_of_vit_b_in_float32(vit_b_text):
    assert_equal_passes(vit_b_text, NAMES, draw(vit_b_text, n=16), 1e-5, 1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_is_as_close_to_the_truth_as_the_plain_pass(clip, dtype, autocast):
    half = make_clip(dtype=torch.float32 if autocast else dtype)
    half.load_state_dict(clip.state_dict())
    truth = copy.deepcopy(half).double() if not autocast else clip
    prompts = draw(half, deep=(1,))
    wide = Prompts(
        text=prompts.text.detach().double().requires_grad_(),
        text_deep={i: t.detach().double().requires_grad_() for i, t in prompts.text_deep.items()},
    )
    layout = arrange(clip, NAMES, prompts)
    features, gradients = features_and_gradients(PlainText(truth, layout), wide)
    errors = []
    for kind in (PlainText, CausalText):
        with torch.autocast("cpu", dtype, enabled=autocast):
            got = kind(half, layout).encode(prompts)
        got_gradients = gradients_of(got, prompts)
        assert got.dtype == dtype
        errors.append([relative(a, b) for a, b in zip((got, *got_gradients), (features, *gradients), strict=True)])
    for plain, fast in zip(*errors, strict=True):
        assert fast < 2 * plain


def test_autocast_around_the_backward_pass_alone_costs_precision_and_no_more():
    clip = make_clip(dtype=torch.float32)
    prompts = draw(clip, deep=(1,))
    fast = CausalText(clip, arrange(clip, NAMES, prompts))
    expected = gradients_of(fast.encode(prompts), prompts)
    features = fast.encode(prompts)
    with torch.autocast("cpu", torch.bfloat16):
        got = gradients_of(features, prompts)
    assert all(relative(a, b) < 0.03 for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("shape", [{}, {"images": 2, "deep": (1, 2)}], ids=str)
def test_a_checkpointed_pass_has_the_same_gradients(clip, shape):
    prompts = draw(clip, **shape)
    fast = CausalText(clip, arrange(clip, NAMES, prompts))
    features, gradients = features_and_gradients(fast, prompts)
    again = checkpoint(fast.encode, prompts, use_reentrant=False)
    assert torch.equal(again, features)
    for got, expected in zip(gradients_of(again, prompts), gradients, strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("layers", [1, 3])
def test_without_context_it_is_open_clips_encode_text(layers):
    clip = make_clip(layers=layers)
    expected = clip.encode_texts([f"of a {name}." for name in NAMES])
    prompts = draw(clip, n=0, tail="of a {}.")
    got = CausalText(clip, arrange(clip, NAMES, prompts)).encode(prompts)
    assert relative(got[0, 0], expected) < 1e-12


def test_the_words_themselves_as_context_are_open_clips_encode_text(clip):
    words = clip.embed_words("a photo of a").view(1, 1, 1, -1, clip.text_width)
    prompts = Prompts(text=words)
    got = CausalText(clip, arrange(clip, NAMES, prompts)).encode(prompts)
    assert relative(got[0, 0], clip.encode_texts([f"a photo of a {name}." for name in NAMES])) < 1e-12


def test_equal_names_have_equal_features(clip):
    prompts = draw(clip)
    features = CausalText(clip, arrange(clip, NAMES, prompts)).encode(prompts)[0, 0]
    assert relative(features[0], features[4]) < 1e-12  # rows of a product may be summed in other orders


def test_32_prompts_at_once(clip):
    assert_equal_passes(clip, NAMES[:2], draw(clip, count=32, n=16))


def test_tensors_that_differ_in_images_and_prompts_broadcast(clip):
    text, deep = draw(clip, images=3).text, draw(clip, count=2, seed=1).text
    assert_equal_passes(clip, NAMES, Prompts(text=text, text_deep={2: deep}))


# --- constants -------------------------------------------------------------------------------------------------------


def test_constants_follow_the_weights():
    clip = make_clip()
    prompts = draw(clip, position="front")
    layout = arrange(clip, NAMES, prompts)
    fast, plain = CausalText(clip, layout), PlainText(clip, layout)
    bound = fast._bind(prompts)
    assert fast._bind(prompts) is bound
    with torch.no_grad():
        clip.text.transformer.resblocks[0].attn.in_proj_weight.mul_(1.1)
    assert relative(fast.encode(prompts), plain.encode(prompts)) < 1e-12
    clip.load_state_dict({name: 1.05 * tensor for name, tensor in clip.state_dict().items()})
    assert relative(fast.encode(prompts), plain.encode(prompts)) < 1e-12
    clip.to(torch.float32)
    assert fast.encode(prompts).dtype == torch.float32
    assert relative(fast.encode(prompts), plain.encode(prompts)) < 1e-5


def test_evaluating_first_does_not_spoil_training(clip):
    prompts = draw(clip)
    fast = CausalText(clip, arrange(clip, NAMES, prompts))
    with torch.inference_mode():
        first = fast.encode(prompts)
    features, gradients = features_and_gradients(fast, prompts)
    assert torch.equal(features, first)
    assert gradients[0].abs().sum() > 0


def test_no_parameter_of_clip_gets_a_gradient(clip):
    prompts = draw(clip, deep=(1,))
    CausalText(clip, arrange(clip, NAMES, prompts)).encode(prompts).sum().backward()
    assert prompts.text.grad is not None
    assert all(parameter.grad is None for parameter in clip.parameters())


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_rows_are_those_of_the_token_tree(vit_b_text):
    clip, names = vit_b_text, ["dog", "cat", "tabby cat", "tabby dog", "dog"]

    def rows(**shape):
        prompts = draw(clip, **shape)
        layout = arrange(clip, names, prompts)
        return CausalText(clip, layout).rows(prompts), PlainText(clip, layout).rows(prompts)

    own = 2 * 3 + (1 + 2 * 3)  # dog and cat, then tabby with two children, each name with a stop and an end
    assert rows() == (4 + own, 5 * 77)
    assert rows(tail="of a {}.") == (4 + 2 + own, 5 * 77)
    assert rows(images=3, count=2) == (6 * (4 + own), 6 * 5 * 77)
    assert rows(position="front", images=3)[0] == 3 * 4 * (4 + 2)
    assert rows(position="middle")[0] == 2 + (1 + 1 + 3) + 4 * (2 + 2)
    assert rows(classes=5)[0] == 5 * (4 + 3) + 2


SHAPES = [{}, {"deep": (1, 2), "n": 6}, {"position": "front", "images": 2}, {"classes": 6, "deep": (2,)}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", [CausalText, PlainText])
def test_flops_are_those_that_torch_counts(clip, kind, shape):
    prompts = draw(clip, **shape)
    passed = kind(clip, arrange(clip, NAMES, prompts))
    passed.rows(prompts)  # builds the constants
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        passed.encode(prompts).sum().backward()
    assert passed.flops(prompts) == counter.get_total_flops()


def held_bytes(passed, prompts, clip):
    """Bytes of the tensors that a forward pass keeps for the backward pass, weights left out."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in clip.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        features = passed.encode(prompts)
    assert features.requires_grad
    return sum(kept.values())


FIFTY = [f"{WORDS[i % 23]} {WORDS[(5 * i) % 19]}" for i in range(50)]


@pytest.mark.parametrize(("classes", "ratio"), [(10, 14), (50, 19)])
@pytest.mark.parametrize("n", [4, 16])
def test_flops_of_vit_b_fall_by_the_rows_that_are_shared(vit_b_text, classes, ratio, n):
    prompts = draw(vit_b_text, n=n)
    layout = arrange(vit_b_text, FIFTY[:classes], prompts)
    fast, plain = CausalText(vit_b_text, layout), PlainText(vit_b_text, layout)
    assert plain.flops(prompts) > ratio * fast.flops(prompts)


def test_fifty_classes_hold_a_twentieth_of_the_bytes():
    clip = make_clip(layers=4, width=128, dtype=torch.float32)
    prompts = draw(clip, n=16)
    layout = arrange(clip, FIFTY, prompts)
    fast, plain = CausalText(clip, layout), PlainText(clip, layout)
    fast.rows(prompts)  # builds the constants
    held = held_bytes(fast, prompts, clip)
    assert held_bytes(plain, prompts, clip) > 20 * held
    assert held < fast.rows(prompts) * clip.text_layers * 14 * clip.text_width * 4


# --- choosing --------------------------------------------------------------------------------------------------------


def make_coca():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        text = {"context_length": 20, "width": 32, "heads": 2, "layers": 2, "embed_cls": True, "output_tokens": True}
        multimodal = {"context_length": 20, "width": 32, "heads": 2, "layers": 1, "vocab_size": 49408}
        model = CoCa(24, multimodal, text, VISION | {"attentional_pool": True, "output_tokens": True})
    return FrozenClip(model.double(), SimpleTokenizer(context_length=20), ImageTransform(16), "coca")


def test_other_towers_go_through_the_plain_pass_and_the_log_says_so_once(clip, caplog):
    coca = make_coca()
    layout = plan(NAMES, 2, coca.tokens)
    with caplog.at_level(logging.WARNING):
        assert isinstance(text_pass(coca, layout), PlainText)
        assert isinstance(text_pass(coca, layout), PlainText)
    assert [record.getMessage() for record in caplog.records].count(
        "the text tower of 'coca' is not a plain causal one, so its texts go through the full pass."
    ) == 1
    with pytest.raises(ConfigError, match="'coca' is not a plain causal one"):
        CausalText(coca, layout)
    assert text_pass(coca, layout).encode(draw(coca, n=2)).shape == (1, 1, len(NAMES), 24)


def test_the_kind_is_chosen_by_name(clip):
    layout = plan(NAMES, 2, clip.tokens)
    assert isinstance(text_pass(clip, layout), CausalText)
    assert isinstance(text_pass(clip, layout, "plain"), PlainText)
    with pytest.raises(ConfigError, match=r"unknown text pass 'fats'. Did you mean 'fast'\?"):
        text_pass(clip, layout, "fats")


@pytest.mark.parametrize("kind", ["fast", "plain"])
def test_prompts_that_do_not_fit_the_plan_are_refused(clip, kind):
    passed = text_pass(clip, plan(NAMES, 3, clip.tokens), kind)
    with pytest.raises(ConfigError, match="no text context"):
        passed.encode(Prompts())
    with pytest.raises(ConfigError, match="the text context has shape"):
        passed.encode(draw(clip, n=4))
    with pytest.raises(ConfigError, match="6 classes or 1"):
        passed.encode(draw(clip, n=3, classes=5))
