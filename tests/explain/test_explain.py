"""Attention rollout and relevance on tiny vision transformers, against a re-computation layer by layer."""

import numpy as np
import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from promptcal.errors import ConfigError, DataError
from promptcal.explain import (
    attention_maps,
    attribution,
    foreground_patches,
    foreground_share,
    patch_grid,
    patch_scores,
    read_tokens,
    record,
    relevance,
    rollout,
)
from promptcal.explain.rules import apply_rule, safe_divide

TINY = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 2, "num_classes": 5}
FAMILIES = {
    "vit": ("vit_tiny_patch16_224", {}),
    "unfused layer scale, qk norm": ("vit_tiny_patch16_224", {"init_values": 0.5, "qk_norm": True}),
    "distilled deit": ("deit_tiny_distilled_patch16_224", {}),
    "registers, averaged": ("vit_tiny_patch16_224", {"reg_tokens": 2, "global_pool": "avg"}),
    "no class token": ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}),
    "eva: rotary, swiglu": ("eva02_tiny_patch14_224", {}),
    "eva: no rotary": ("eva_large_patch14_196", {"mlp_ratio": 2.0}),
    "parallel": ("vit_small_patch16_18x2_224", {}),
}


def tiny(family="vit", seed=0, **changes):
    name, options = FAMILIES[family]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = timm.create_model(name, pretrained=False, **(TINY | options | changes))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval().double()


def pictures(n=3, seed=1, channels=3):
    return torch.randn(n, channels, 16, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("family", FAMILIES)
def test_recording_and_rules_leave_the_logits_and_the_model_as_they_are(family):
    model = tiny(family).train()
    model.head.weight.requires_grad_(False)
    plain = model.eval()(pictures())
    model.train()
    for follow in ("tokens", "values", "gradient", "relevance"):
        seen = record(model, pictures(), follow=follow)
        torch.testing.assert_close(seen.logits, plain, rtol=1e-12, atol=1e-12)
        assert len(seen.tokens) == 4
    assert model.training
    assert model.blocks[0].training
    assert not model.head.weight.requires_grad
    assert model.cls_token is None or model.cls_token.requires_grad
    assert torch.equal(record(model, pictures()).logits, model.eval()(pictures()))


@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_is_conserved_at_every_depth_and_a_batch_is_as_good_as_one_by_one(family):
    model, images, classes = tiny(family), pictures(), torch.tensor([0, 3, 4])
    found = relevance(model, images, classes)
    ones = torch.ones(3, dtype=torch.float64)
    for depth in found.of_tokens().sum(dim=-1):
        torch.testing.assert_close(depth, ones, rtol=0, atol=1e-6)
    torch.testing.assert_close(found.features.sum(dim=1), ones, rtol=0, atol=1e-6)
    for index in range(3):
        alone = relevance(model, images[index : index + 1], classes[index : index + 1])
        torch.testing.assert_close(alone.tokens[:, 0], found.tokens[:, index], rtol=1e-5, atol=1e-8)
    other = relevance(model, images, torch.tensor([1, 3, 4]))
    assert not torch.allclose(other.tokens[0, 0], found.tokens[0, 0], atol=1e-4)
    torch.testing.assert_close(other.tokens[0, 1:], found.tokens[0, 1:], rtol=1e-9, atol=1e-12)


def test_relevance_in_float32_conserves_to_a_thousandth():
    found = relevance(tiny().float(), pictures().float())
    assert float((found.of_tokens().sum(dim=-1) - 1).abs().max()) < 1e-3


# The same, by hand: the contribution of each input to each output, layer by layer, of one image.


def _linear(x, layer, of_output):
    contributions = (x[:, None, :] * layer.weight[None]).clamp(min=0)  # [n, out, in]
    return torch.einsum("noi,no->ni", contributions / contributions.sum(dim=2, keepdim=True), of_output)


def _matmul(a, b, of_output):
    contributions = a[..., :, :, None] * b[..., None, :, :]  # [..., i, k, j]
    shares = contributions / contributions.sum(dim=-2, keepdim=True) * of_output[..., :, None, :]
    return shares.sum(dim=-1) / 2, shares.sum(dim=-3) / 2


def _add(a, b, of_output):
    parts = [part / (a + b) * of_output for part in (a, b)]
    sizes = [abs(float(part.sum())) for part in parts]
    total = float(of_output.sum())
    return [part * size / sum(sizes) * total / float(part.sum()) for part, size in zip(parts, sizes, strict=True)]


def _block(block, x, of_output):
    """Relevance at the input of a block, and of its attention map."""
    attention, heads = block.attn, block.attn.num_heads
    y = block.norm1(x)
    q, k, v = attention.qkv(y).reshape(len(x), 3, heads, -1).permute(1, 2, 0, 3)
    weights = (q @ k.mT * attention.scale).softmax(dim=-1)
    joined = (weights @ v).transpose(0, 1).reshape(len(x), -1)
    branch = attention.proj(joined)
    middle = x + branch
    hidden = block.mlp.act(block.mlp.fc1(block.norm2(middle)))
    to_middle, to_mlp = _add(middle, block.mlp.fc2(hidden), of_output)
    to_middle = to_middle + _linear(block.norm2(middle), block.mlp.fc1, _linear(hidden, block.mlp.fc2, to_mlp))
    to_x, to_branch = _add(x, branch, to_middle)
    to_joined = _linear(joined, attention.proj, to_branch).reshape(len(x), heads, -1).transpose(0, 1)
    to_weights, to_v = _matmul(weights, v, to_joined)
    to_q, to_kt = _matmul(q, k.mT, to_weights)
    to_qkv = torch.stack([to_q, to_kt.mT, to_v]).permute(2, 0, 1, 3).reshape(len(x), -1)
    return to_x + _linear(y, attention.qkv, to_qkv), to_weights


def test_relevance_is_the_published_rules_by_hand():
    model, image = tiny(), pictures(1)
    with torch.no_grad():
        seen = record(model, image)
        z = model.norm(seen.tokens[-1][0])[0]
        part = (z * model.head.weight[2]).clamp(min=0)
        at = torch.zeros_like(seen.tokens[-1][0])
        at[0] = part / part.sum()
        expected, maps = [at], []
        for block, tokens in zip(reversed(model.blocks), reversed(seen.tokens[:-1]), strict=True):
            at, of_map = _block(block, tokens[0], at)
            expected.append(at)
            maps.append(of_map)
    found = relevance(model, image, torch.tensor([2]))
    torch.testing.assert_close(found.features[0], part / part.sum(), rtol=1e-6, atol=1e-9)
    for by_hand, tokens in zip(reversed(expected), found.tokens[:, 0], strict=True):
        torch.testing.assert_close(tokens, by_hand, rtol=1e-4, atol=1e-6)
    for by_hand, (of_map,) in zip(reversed(maps), found.attention, strict=True):
        torch.testing.assert_close(of_map[0], by_hand, rtol=1e-4, atol=1e-6)


def test_attribution_is_the_product_of_gradients_and_relevance():
    model, images, classes = tiny(), pictures(2), torch.tensor([1, 4])
    seen = record(model, images, follow="gradient")
    gradients = torch.autograd.grad(seen.logits[[0, 1], classes].sum(), seen.maps())
    flow = torch.eye(17, dtype=torch.float64).repeat(2, 1, 1)
    for gradient, (of_map,) in zip(gradients, relevance(model, images, classes).attention, strict=True):
        flow = flow + torch.einsum("bhqk,bkt->bqt", functional.relu(gradient * of_map), flow) / 2
    torch.testing.assert_close(attribution(model, images, classes), flow[:, 0, 1:])


def _conserves(operation, *operands, **options):
    leaves = [operand.clone().requires_grad_() for operand in operands]
    result = apply_rule(operation, tuple(leaves), options)
    torch.testing.assert_close(result, operation(*operands, **options))
    start = torch.rand(result.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    parts = torch.autograd.grad(result, leaves, start)
    of_inputs = sum(part.reshape(len(part), -1).sum(dim=1) for part in parts)
    torch.testing.assert_close(of_inputs, start.reshape(len(start), -1).sum(dim=1), rtol=1e-5, atol=1e-4)
    return parts


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_each_rule_conserves_the_relevance_of_each_image(seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, 3, 4, 6, generator=generator, dtype=torch.float64).unbind()
    weight = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    x = a.clone().requires_grad_()
    result = apply_rule(functional.linear, (x, weight, torch.ones(5).double()), {})
    (of_x,) = torch.autograd.grad(result, x, torch.ones_like(result))
    spoken_for = (a[:, :, None] * weight).gt(0).any(dim=3).sum(dim=2)  # outputs that something speaks for
    torch.testing.assert_close(of_x.sum(dim=2), spoken_for.double(), rtol=1e-6, atol=1e-6)
    _conserves(torch.matmul, a, b.mT)
    _conserves(torch.add, a, b)
    _conserves(torch.sub, a, b)
    _conserves(torch.mul, a, b)
    _conserves(torch.mean, a, dim=1)
    _conserves(torch.sum, a, dim=(1, 2))
    _conserves(functional.gelu, a)
    _conserves(torch.neg, a)


def test_a_residual_keeps_its_images_apart_and_follows_the_larger_part():
    a = torch.tensor([[1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    b = torch.tensor([[0.0, 0.0], [3.0, 3.0]], dtype=torch.float64)
    of_a, of_b = _conserves(torch.add, a, b)
    assert float(of_b[0].abs().sum()) == 0
    torch.testing.assert_close(of_a[1].sum() * 3, of_b[1].sum())


def test_division_by_zero_gives_zero():
    quotient = safe_divide(torch.tensor([1.0, 1.0, -1.0]), torch.tensor([0.0, 2.0, -4.0]))
    torch.testing.assert_close(quotient, torch.tensor([0.0, 0.5, 0.25]))


def test_what_the_rules_do_not_cover_is_refused_by_name():
    model = tiny()
    model.blocks[1].mlp.act = torch.nn.Softplus()
    with pytest.raises(ConfigError, match="VisionTransformer uses the operation 'softplus' in block 2, Block"):
        relevance(model, pictures())
    attention_maps(model, pictures())
    swin = timm.create_model("swin_tiny_patch4_window7_224", img_size=32, window_size=2, embed_dim=8, depths=(1, 1))
    with pytest.raises(ConfigError, match="SwinTransformer does not keep one sequence of tokens"):
        attention_maps(swin, torch.zeros(1, 3, 32, 32))
    with pytest.raises(ConfigError, match="2 attention maps"):
        attention_maps(tiny("parallel"), pictures())
    with pytest.raises(ConfigError, match="no linear classifier"):
        record(tiny(num_classes=0), pictures())
    with pytest.raises(DataError, match="3 images need 3 classes from 0 to 4"):
        relevance(tiny(), pictures(), torch.tensor([0, 1, 5]))


def test_rollout_is_the_product_of_mixed_attention_and_its_rows_sum_to_one():
    model, images = tiny(), pictures(2)
    maps = attention_maps(model, images)
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones_like(maps[..., 0]))
    flow = rollout(maps)
    torch.testing.assert_close(flow.sum(dim=-1), torch.ones_like(flow[..., 0]))
    product = np.eye(17)
    for block in maps[:, 1].numpy():
        product = (block.mean(axis=0) + np.eye(17)) / 2 @ product
    np.testing.assert_allclose(flow[-1, 1].numpy(), product, atol=1e-12)
    torch.testing.assert_close(rollout(attention_maps(model, images[1:]))[:, 0], flow[:, 1])
    for block in model.blocks:
        block.attn.fused_attn = False
    torch.testing.assert_close(attention_maps(model, images), maps)


def test_what_the_classifier_reads():
    assert read_tokens(tiny(), 17).tolist() == [1.0] + [0.0] * 16
    assert read_tokens(tiny("distilled deit"), 18)[:3].tolist() == [0.5, 0.5, 0.0]
    weights = read_tokens(tiny("registers, averaged"), 19)
    assert weights[:3].tolist() == [0, 0, 0]
    torch.testing.assert_close(weights[3:], torch.full((16,), 1 / 16))
    with pytest.raises(ConfigError, match="pooling 'map'"):
        read_tokens(tiny(global_pool="map", class_token=False), 16)


def test_foreground_of_a_drawn_square_and_its_share():
    image = torch.zeros(1, 3, 16, 16)
    image[:, :, 4:8, 0:4] = 1.0
    model = tiny()
    foreground = foreground_patches(image, patch_grid(model))
    assert foreground[0].nonzero().flatten().tolist() == [4]
    scores = torch.ones(2, 1, 16)
    scores[1, 0, 4] = -16.0
    torch.testing.assert_close(foreground_share(scores, foreground)[:, 0], torch.tensor([1 / 16, 16 / 31]))
    assert patch_scores(model, rollout(attention_maps(model, pictures()))).shape == (3, 3, 16)
    with pytest.raises(DataError, match="all zero"):
        foreground_share(torch.zeros(1, 16), foreground)
