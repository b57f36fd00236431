"""ViT-Calibrator's stages on tiny timm models."""

import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from promptcal.errors import ConfigError, DataError
from promptcal.explain import relevance
from promptcal.explain.dimensions import class_means, dimension_masks, dimension_relevance
from promptcal.models.vit_calibrator import CalibratedViT
from promptcal.types import Batch

TINY = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 4, "num_heads": 2, "num_classes": 5}
NAMES = (
    "vit_tiny_patch16_224",
    "deit_tiny_patch16_224",
    "deit3_small_patch16_224",
    "eva02_tiny_patch14_224",
    "vit_small_patch16_dinov3",
)


def tiny(name="vit_tiny_patch16_224", **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False, **(TINY | changes))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def batches(n=40, size=20):
    generator = torch.Generator().manual_seed(1)
    pixels, labels = torch.randn(n, 3, 16, 16, generator=generator), torch.randint(5, (n,), generator=generator)
    return [Batch(labels=labels[i : i + size], pixels=pixels[i : i + size]) for i in range(0, n, size)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gate", ["learned", "rollout", "none"])
def test_at_the_start_the_logits_are_those_of_the_model_bit_for_bit(name, gate):
    model = tiny(name)
    pixels = batches()[0].pixels
    plain = model(pixels)
    for target in (1, 2):
        calibrated = CalibratedViT(model, "both", sources=3, target=target, gate=gate).train()
        assert torch.equal(calibrated(pixels), plain)
        assert torch.equal(
            calibrated.forward_head(calibrated.forward_features(pixels), pre_logits=True),
            model.forward_head(model.forward_features(pixels), pre_logits=True),
        )


def test_a_distilled_model_takes_feedback_but_no_masks():
    model = tiny("deit_tiny_distilled_patch16_224")
    pixels = batches()[0].pixels
    assert torch.equal(CalibratedViT(model, "token", target=2, gate="rollout")(pixels), model(pixels))
    with pytest.raises(ConfigError, match="averages 2 classifiers"):
        CalibratedViT(model, "dimension")


@pytest.mark.parametrize("stage", ["token", "dimension", "both"])
def test_gradients_reach_what_is_learned_and_nothing_else(stage):
    calibrated = CalibratedViT(tiny(), stage, target=2).train()
    assert not calibrated.backbone.training
    batch = batches()[0]
    before = {name: tensor.clone() for name, tensor in calibrated.backbone.state_dict().items()}
    learned = [parameter for parameter in calibrated.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(learned, lr=0.5)
    losses = []
    for _ in range(8):
        loss = functional.cross_entropy(calibrated(batch.pixels), batch.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in learned)
    assert all(torch.equal(before[name], tensor) for name, tensor in calibrated.backbone.state_dict().items())
    names = {name.split(".")[0] for name, parameter in calibrated.named_parameters() if parameter.requires_grad}
    assert names == {"token": {"feedback"}, "dimension": {"correction"}, "both": {"feedback", "correction"}}[stage]


@pytest.mark.parametrize("gate", ["learned", "rollout", "none"])
def test_feedback_is_the_formula(gate):
    model, pixels = tiny(), batches()[0].pixels[:3]
    calibrated = CalibratedViT(model, "token", sources=2, target=2, gate=gate)
    with torch.no_grad():
        for parameter in calibrated.feedback.parameters():
            parameter.copy_(
                0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            )
        tokens = [model.norm_pre(model._pos_embed(model.patch_embed(pixels)))]
        weights = []
        for block in model.blocks:
            q, k, _ = block.attn.qkv(block.norm1(tokens[-1])).reshape(3, 17, 3, 2, 12).permute(2, 0, 3, 1, 4)
            weights.append((q @ k.mT / 12**0.5).softmax(dim=-1).mean(dim=1))
            tokens.append(block(tokens[-1]))
        change = sum(
            functional.layer_norm(seen, (24,)) @ layer.weight.T + layer.bias
            for layer, seen in zip(calibrated.feedback.projections, tokens[3:], strict=True)
        )
        if gate == "learned":
            layer = calibrated.feedback.gate
            change = change / (1 + (-(change @ layer.weight.T + layer.bias)).exp())
        if gate == "rollout":
            flow = torch.eye(17)
            for weight in weights:
                flow = (weight + torch.eye(17)) / 2 @ flow
            share = flow[:, 0, 1:] / flow[:, 0, 1:].max(dim=1, keepdim=True).values
            change = change * torch.cat([torch.ones(3, 1), share], dim=1)[..., None]
        again = tokens[1] + change
        for block in list(model.blocks)[1:]:
            again = block(again)
        expected = model.head(model.norm(again)[:, 0])
        torch.testing.assert_close(calibrated(pixels), expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(expected, model(pixels), atol=1e-3)
    assert calibrated.second_pass == 0.75
    assert CalibratedViT(model, "dimension").second_pass == 0


def test_one_by_one_is_as_good_as_a_batch():
    calibrated = CalibratedViT(tiny(), "both", target=2, gate="rollout")
    with torch.no_grad():
        for layer in (*calibrated.feedback.projections, calibrated.correction[2]):
            layer.weight.normal_(generator=torch.Generator().manual_seed(2)).mul_(0.1)
        pixels = batches()[0].pixels
        alone = torch.cat([calibrated(pixels[i : i + 1]) for i in range(len(pixels))])
        torch.testing.assert_close(alone, calibrated(pixels), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="unknown stage 'tokens'"):
        CalibratedViT(tiny(), "tokens")
    with pytest.raises(ConfigError, match="unknown gate 'roll_out'"):
        CalibratedViT(tiny(), "token", target=2, gate="roll_out")
    with pytest.raises(ConfigError, match="the last 3 of 4 blocks cannot feed back to block 3"):
        CalibratedViT(tiny(), "token", sources=3, target=3)
    assert CalibratedViT(tiny(), "token").target == 2
    assert CalibratedViT(tiny(depth=6), "token").target == 3
    shallow = CalibratedViT(tiny(depth=3), "token")
    assert (shallow.sources, shallow.target) == (2, 2)
    with pytest.raises(ConfigError, match="keep is 0"):
        CalibratedViT(tiny(), "dimension", keep=0.0)
    calibrated = CalibratedViT(tiny(), "dimension")
    pixels = batches()[0].pixels
    wrong = (calibrated(pixels).argmax(dim=1) + 1) % 5
    with pytest.raises(DataError, match="no training image rightly"):
        calibrated.study([Batch(labels=wrong, pixels=pixels)])


def test_masks_are_of_the_images_classified_rightly_sparse_and_of_their_class():
    model = tiny()
    calibrated = CalibratedViT(model, "dimension", keep=0.8)
    shown = batches()
    for batch in shown:
        batch.labels.copy_(torch.where(torch.arange(20) % 2 == 0, model(batch.pixels).argmax(dim=1), batch.labels))
    calibrated.study(shown)
    pixels, labels = torch.cat([b.pixels for b in shown]), torch.cat([b.labels for b in shown])
    right = model(pixels).argmax(dim=1) == labels
    by_rules = relevance(model, pixels[right], labels[right]).features
    z = model.forward_head(model.forward_features(pixels[right]), pre_logits=True)
    torch.testing.assert_close(dimension_relevance(z, model.head.weight, labels[right]), by_rules, rtol=1e-3, atol=1e-6)
    for label in labels[right].unique():
        mean = by_rules[labels[right] == label].mean(dim=0)
        kept = calibrated.masks[label] > 0
        assert mean[kept].sum() >= 0.8 - 1e-5
        assert mean[kept].sum() - mean[kept].min() < 0.8
        assert kept.sum() < 24
    several = calibrated.masks[labels[right].unique()]
    assert len(several) > 1
    assert len(several.unique(dim=0)) == len(several)
    absent = [label for label in range(5) if label not in labels[right]]
    assert all(calibrated.masks[label].all() for label in absent)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0))
def test_a_mask_keeps_the_fewest_dimensions_that_reach_the_share(seed, keep):
    means = torch.rand(4, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    means[3] = 0
    masks = dimension_masks(means, keep)
    assert masks[3].all()
    for mean, mask in zip(means[:3], masks[:3], strict=True):
        total, kept = mean.sum(), mean[mask > 0]
        assert kept.sum() >= keep * total - 1e-12
        assert kept.sum() - kept.min() < keep * total
        assert mask.all() or kept.min() >= mean[mask == 0].max()


def test_relevance_of_dimensions_is_the_share_of_the_positive_products():
    features = torch.tensor([[1.0, -2.0, 3.0], [1.0, 1.0, 1.0]])
    weight = torch.tensor([[2.0, -1.0, -5.0], [-1.0, -1.0, -1.0]])
    found = dimension_relevance(features, weight, torch.tensor([0, 1]))
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]))
    means = class_means(found, torch.tensor([0, 0]), 3)
    torch.testing.assert_close(means[0], torch.tensor([0.25, 0.25, 0.0]))
    assert means[1:].abs().sum() == 0
