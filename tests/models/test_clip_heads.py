"""Heads beside the prompts of a CLIP: what they read, where they start, and whose gradients go where."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from promptcal.data.features import FeatureCache, image_features
from promptcal.data.sources import ArrayImages
from promptcal.errors import ConfigError, DataError
from promptcal.learners.cocoop import CoCoOp
from promptcal.learners.coop import CoOp
from promptcal.learners.maple import MaPLe
from promptcal.losses.cross_entropy import CrossEntropy
from promptcal.losses.margin import MarginMeanVariance
from promptcal.models.classifier import Classifier
from promptcal.models.image_tokens import SOURCES, encode_image_token, token_width
from promptcal.models.temperature import CalAttn
from promptcal.training.batches import FeatureBatches, feature_batch
from promptcal.training.loop import Recipe, fit
from promptcal.training.settings import Training
from promptcal.types import Batch, ClassNames, Prompts

CLASSES = ClassNames(("cat", "red dog", "ship", "teapot"))
LEARNERS = {"coop": (CoOp, {"n_context": 4}), "cocoop": (CoCoOp, {}), "maple": (MaPLe, {"depth": 2})}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def made(clip, kind="coop", head=None):
    make, options = LEARNERS[kind]
    learner = make(clip=clip, generator=generator(), **options)
    learner.head = head
    return learner


def head_for(clip, source="default", mode="joint", moved=False):
    width = token_width(clip, "projected" if source == "default" else source)
    head = CalAttn(width, generator(3), hidden=8, source=source, mode=mode)
    if moved:
        with torch.no_grad():
            head.outer.weight.copy_(0.3 * torch.randn(head.outer.weight.shape, generator=generator(4)))
    return head


@pytest.fixture(scope="module")
def pixels():
    return torch.randn(6, 3, 32, 32, generator=generator(5))


@pytest.fixture(scope="module")
def labels():
    return torch.tensor([0, 1, 2, 3, 0, 1])


# --- what a head may read --------------------------------------------------------------------------------------------


def hooked(clip, pixels):
    """All tokens behind the last normalisation, by a hook on it."""
    seen = []
    handle = clip.visual.ln_post.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with torch.no_grad():
        features = clip.model.encode_image(pixels)
    handle.remove()
    return features, seen[0]


def test_embeddings_are_those_of_the_towers_own_pass(tiny_clip, pixels):
    features, tokens = hooked(tiny_clip, pixels)
    expected = {
        "projected": features,
        "cls": tokens[:, 0],
        "patch_mean": tokens[:, 1:].mean(dim=1),
        "concat": torch.cat([tokens[:, 0], tokens[:, 1:].mean(dim=1)], dim=1),
    }
    for source in SOURCES:
        with torch.no_grad():
            own, token = encode_image_token(tiny_clip, pixels, None, source)
        assert torch.equal(own, features)
        torch.testing.assert_close(token, expected[source])
        assert token.shape[1] == token_width(tiny_clip, source)


def test_of_a_prompted_tower_the_prompts_are_left_out_of_the_patch_mean(tiny_clip, pixels):
    prompts = Prompts(image=torch.randn(1, 2, tiny_clip.image_width, generator=generator(6)))
    with torch.no_grad():
        features, token = encode_image_token(tiny_clip, pixels, prompts, "concat")
        torch.testing.assert_close(features, tiny_clip.encode_image(pixels, prompts), rtol=1e-5, atol=1e-6)
        x, own = tiny_clip.image_blocks(pixels, prompts, patches=True)
    assert x.shape[1] == own + 2 == 1 + 16 + 2
    width = token_width(tiny_clip, "cls")
    torch.testing.assert_close(token[:, :width] @ tiny_clip.visual.proj, features)
    torch.testing.assert_close(token[:, width:], tiny_clip.visual.ln_post(x)[:, 1:17].mean(dim=1))


def test_embeddings_that_are_not_there_are_refused(tiny_clip, monkeypatch):
    with pytest.raises(ConfigError, match="Did you mean 'patch_mean'"):
        token_width(tiny_clip, "patch_men")
    monkeypatch.setattr(type(tiny_clip), "visual", torch.nn.Linear(2, 2))
    with pytest.raises(ConfigError, match="a Linear without the embedding"):
        token_width(tiny_clip, "cls")


def test_tokens_are_cached_under_their_own_key_from_the_same_pass(tiny_clip, tmp_path, monkeypatch):
    arrays = np.random.default_rng(0).integers(0, 256, (5, 12, 12, 3), dtype=np.uint8)
    images = ArrayImages(arrays, {str(row): row for row in range(5)})
    cache, paths = FeatureCache(tmp_path), list(images.rows)
    plain = image_features(tiny_clip, images, paths)
    passes = []
    blocks = tiny_clip.image_blocks
    monkeypatch.setattr(tiny_clip, "image_blocks", lambda *given, **named: passes.append(1) or blocks(*given, **named))
    both = image_features(tiny_clip, images, paths, cache=cache, token="cls")
    assert len(passes) == 1
    assert cache.size().features == 10
    width = tiny_clip.embed_dim
    assert torch.equal(both[:, :width], plain)
    torch.testing.assert_close(both[:, width:] @ tiny_clip.visual.proj, plain)
    assert torch.equal(image_features(tiny_clip, images, paths, cache=cache), plain)
    assert torch.equal(image_features(tiny_clip, images, paths, cache=cache, token="cls"), both)
    assert len(passes) == 1
    image_features(tiny_clip, images, paths, cache=cache, token="patch_mean")  # the feature is there, the token is not
    assert len(passes) == 2
    assert cache.size().features == 15


def test_cached_rows_are_split_into_feature_and_token(labels):
    rows = torch.arange(12.0).reshape(2, 6)
    batch = feature_batch(labels[:2], rows, 4)
    assert torch.equal(batch.features, rows[:, :4])
    assert torch.equal(batch.tokens, rows[:, 4:])
    assert feature_batch(labels[:2], rows, 6).tokens is None
    assert feature_batch(labels[:2], rows, None).features is rows


# --- where a head starts, and what it never changes ------------------------------------------------------------------


@pytest.mark.parametrize("kind", LEARNERS)
@pytest.mark.parametrize("source", ["default", "concat"])
def test_at_the_start_a_head_changes_no_bit(tiny_clip, pixels, labels, kind, source):
    without = Classifier(tiny_clip, made(tiny_clip, kind)).bind(CLASSES)(Batch(labels, pixels))
    learner = made(tiny_clip, kind, head_for(tiny_clip, source))
    outputs = Classifier(tiny_clip, learner).bind(CLASSES)(Batch(labels, pixels))
    assert torch.equal(outputs.temperature, torch.ones(6))
    assert torch.equal(outputs.calibrated_logits, outputs.logits)
    if kind == "maple" and source == "concat":  # the last block computes all tokens, and rounds otherwise
        torch.testing.assert_close(outputs.logits, without.logits)
        without = outputs
    assert torch.equal(outputs.logits, without.logits)
    torch.testing.assert_close(outputs.norms, without.norms)
    moved = made(tiny_clip, kind, head_for(tiny_clip, source, moved=True))
    changed = Classifier(tiny_clip, moved).bind(CLASSES)(Batch(labels, pixels))
    assert torch.equal(changed.logits, without.logits)
    assert changed.temperature.std() > 0
    assert torch.equal(changed.calibrated_logits.argmax(dim=1), without.logits.argmax(dim=1))


def test_the_order_of_the_classes_does_not_matter(tiny_clip, pixels, labels):
    classifier = Classifier(tiny_clip, made(tiny_clip, head=head_for(tiny_clip, moved=True)))
    turned = ClassNames(CLASSES.names[::-1])
    first, other = (classifier.bind(classes)(Batch(labels, pixels)) for classes in (CLASSES, turned))
    assert torch.equal(first.temperature, other.temperature)
    torch.testing.assert_close(first.calibrated_logits, other.calibrated_logits.flip(1))


def test_features_without_the_token_that_a_head_reads_are_refused(tiny_clip, labels):
    bound = Classifier(tiny_clip, made(tiny_clip, head=head_for(tiny_clip, "cls"))).bind(CLASSES)
    with pytest.raises(DataError, match="the head reads 'cls'"):
        bound(Batch(labels, features=torch.randn(6, tiny_clip.embed_dim)))


# --- whose gradients go where ----------------------------------------------------------------------------------------


def trained(clip, batches, kind="coop", head=None, terms=None, text_pass="plain", epochs=3):
    learner = made(clip, kind, head)
    bound = Classifier(clip, learner, text_pass).bind(CLASSES)
    settings = Training(epochs=epochs, batch_size=3, lr=0.1, warmup_epochs=0)
    fit(bound, batches, Recipe(terms or {"cross_entropy": CrossEntropy()}), settings)
    return learner.state_dict()


class Pixels:
    """Batches of pixels, in the order of ``FeatureBatches``."""

    steps = 2

    def __init__(self, pixels, labels):
        self.pixels, self.labels = pixels, labels

    def epoch(self, number):
        order = FeatureBatches(torch.zeros(1, 6, 1), self.labels, 3, 0).epoch(number)
        rows = FeatureBatches(torch.arange(6.0)[None, :, None], self.labels, 3, 0).epoch(number)
        for batch, index in zip(order, rows, strict=True):
            yield Batch(batch.labels, self.pixels[index.features[:, 0].long()])


def cached(clip, pixels, labels, source):
    with torch.no_grad():
        rows = torch.cat(encode_image_token(clip, pixels, None, source), dim=1)
    rows = rows if source != "projected" else rows[:, : clip.embed_dim]
    return FeatureBatches(rows[None], labels, 3, 0, clip.embed_dim)


@pytest.mark.parametrize("source", ["projected", "concat"])
def test_cached_and_uncached_training_agree(tiny_clip, pixels, labels, source):
    one = trained(tiny_clip, cached(tiny_clip, pixels, labels, source), head=head_for(tiny_clip, source))
    other = trained(tiny_clip, Pixels(pixels, labels), head=head_for(tiny_clip, source))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-5, atol=1e-6)
    fast = trained(
        tiny_clip, cached(tiny_clip, pixels, labels, source), head=head_for(tiny_clip, source), text_pass="fast"
    )
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, fast[name], rtol=1e-3, atol=1e-4)


def test_apart_the_prompts_are_trained_as_if_there_were_no_head(tiny_clip, pixels, labels):
    terms = {"cross_entropy": CrossEntropy(), "margin": MarginMeanVariance()}
    batches = cached(tiny_clip, pixels, labels, "projected")
    without = trained(tiny_clip, batches, terms=terms)
    apart = trained(tiny_clip, batches, head=head_for(tiny_clip, mode="separate"), terms=terms)
    start = head_for(tiny_clip).state_dict()
    for name, tensor in without.items():
        assert torch.equal(apart[name], tensor)
    assert not torch.equal(apart["head.outer.bias"], start["outer.bias"])
    joint = trained(tiny_clip, batches, head=head_for(tiny_clip), terms=terms)
    assert not torch.equal(joint["context"], without["context"])


def test_joint_and_stop_z_are_the_same_where_the_token_is_frozen_and_differ_where_it_is_prompted(
    tiny_clip, pixels, labels
):
    for kind, same in (("coop", True), ("maple", False)):
        states = [
            trained(tiny_clip, Pixels(pixels, labels), kind, head_for(tiny_clip, mode=mode, moved=True), epochs=1)
            for mode in ("joint", "stop_z")
        ]
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0]) is same


def test_a_step_apart_shows_its_terms_the_temperature_and_no_gradient_of_the_prompts(tiny_clip, pixels, labels):
    learner = made(tiny_clip, head=head_for(tiny_clip, mode="separate", moved=True)).train()
    outputs = Classifier(tiny_clip, learner).bind(CLASSES)(Batch(labels, pixels))
    assert outputs.temperature is None
    assert outputs.apart.temperature.requires_grad
    assert outputs.apart.apart is None
    assert torch.equal(outputs.apart.logits, outputs.logits)
    assert not outputs.apart.logits.requires_grad
    assert not outputs.apart.text_features.requires_grad
    learner.eval()
    evaluated = Classifier(tiny_clip, learner).bind(CLASSES)(Batch(labels, pixels))
    assert torch.equal(evaluated.temperature, outputs.apart.temperature)
    assert evaluated.apart is None
    assert replace(evaluated, temperature=None).calibrated_logits is evaluated.logits
