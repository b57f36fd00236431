"""What single learners promise: starts from words, class lists that are refused, chunks of images, caching."""

import pytest
import torch
from hydra.core.config_store import ConfigStore

from promptcal.config import build
from promptcal.errors import ConfigError
from promptcal.learners.coop import CoOp
from promptcal.learners.zero_shot import ZeroShot
from promptcal.models.classifier import Classifier
from promptcal.types import Batch, ClassNames

BASE = ClassNames(("cat", "big red dog", "AC/DC"))
NOVEL = ClassNames(("ship", "air plane"))


def make(name, clip, classes=BASE, **changes):
    node = dict(ConfigStore.instance().repo["learner"][f"{name}.yaml"].node) | changes
    return build(node, clip=clip, classes=classes, generator=torch.Generator().manual_seed(0))


def batch(clip, b=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(b, 3, 32, 32, generator=generator)
    with torch.no_grad():
        features = clip.encode_image(pixels)
    return Batch(labels=torch.arange(b) % 2, pixels=pixels, features=features)


def test_zero_shot_gives_open_clips_logits_bit_for_bit(tiny_clip):
    data = batch(tiny_clip)
    ours = Classifier(tiny_clip, ZeroShot(), text_pass="plain").bind(BASE)(Batch(data.labels, pixels=data.pixels))
    ids = tiny_clip.tokenizer([f"a photo of a {name}." for name in BASE.names])
    with torch.no_grad():
        image = tiny_clip.model.encode_image(data.pixels, normalize=True)
        text = tiny_clip.model.encode_text(ids, normalize=True)
        expected = tiny_clip.logit_scale * (image @ text.T)
    assert torch.equal(ours.logits, expected)


def test_a_template_ensemble_is_normalised_averaged_and_normalised(tiny_clip):
    two = ClassNames(BASE.names, ("a photo of a {}.", "a drawing of the {}."))
    features = Classifier(tiny_clip, ZeroShot()).bind(two).zero_shot_text_features
    parts = []
    for template in two.templates:
        part = tiny_clip.encode_texts([template.format(name) for name in two.names])
        parts.append(part / part.norm(dim=-1, keepdim=True))
    mean = torch.stack(parts).mean(0)
    torch.testing.assert_close(features, mean / mean.norm(dim=-1, keepdim=True))


@pytest.mark.parametrize("words", ["a photo of a", "a centered satellite photo of"])
@pytest.mark.parametrize("text_pass", ["plain", "fast"])
def test_coop_from_the_words_of_a_template_is_that_template(tiny_clip, words, text_pass):
    classes = ClassNames(BASE.names, (words + " {}.",))
    data = batch(tiny_clip)
    coop = Classifier(tiny_clip, CoOp(tiny_clip, init=words), text_pass).bind(classes)(data)
    zero_shot = Classifier(tiny_clip, ZeroShot(), text_pass).bind(classes)(data)
    torch.testing.assert_close(coop.logits, zero_shot.logits, rtol=1e-5, atol=1e-5)


def test_changing_one_class_name_changes_its_row_alone(tiny_clip):
    learner = CoOp(tiny_clip, n_context=4, generator=torch.Generator().manual_seed(1))
    first = Classifier(tiny_clip, learner).bind(BASE)(batch(tiny_clip)).text_features
    changed = ClassNames(("cat", "small dog", "AC/DC"))
    second = Classifier(tiny_clip, learner).bind(changed)(batch(tiny_clip)).text_features
    torch.testing.assert_close(first[[0, 2]], second[[0, 2]], rtol=1e-5, atol=1e-6)
    assert (first[1] - second[1]).abs().max() > 1e-3


def test_class_specific_contexts_refuse_other_classes(tiny_clip):
    learner = make("coop", tiny_clip, class_specific=True, n_context=3)
    assert learner.context.shape == (3, 3, 32)
    assert learner.state_dict().keys() == {"context"}
    Classifier(tiny_clip, learner).bind(BASE)(batch(tiny_clip))
    with pytest.raises(ConfigError, match="cannot serve other classes"):
        Classifier(tiny_clip, learner).bind(NOVEL)
    with pytest.raises(ConfigError, match="class list"):
        CoOp(tiny_clip, class_specific=True)


def test_the_number_of_context_tokens_of_words_is_their_token_count(tiny_clip):
    assert CoOp(tiny_clip, init="a photo of a").context.shape[0] == 4
    with pytest.raises(ConfigError, match="at least one"):
        CoOp(tiny_clip, n_context=0)
    with pytest.raises(ConfigError, match="position"):
        CoOp(tiny_clip, position="centre")


def test_a_name_that_is_too_long_is_refused_with_its_token_count(tiny_clip):
    from promptcal.errors import DataError

    fits = ClassNames(("cat", " ".join(["dog"] * 58)))
    Classifier(tiny_clip, CoOp(tiny_clip, n_context=16)).bind(fits)(batch(tiny_clip))
    long = ClassNames(("cat", " ".join(["dog"] * 59)))
    with pytest.raises(DataError, match=r"60 tokens .* 59 are left"):
        Classifier(tiny_clip, CoOp(tiny_clip, n_context=16)).bind(long)(batch(tiny_clip))


def test_a_zero_shot_text_that_is_too_long_is_refused(tiny_clip):
    from promptcal.errors import DataError

    long = ClassNames(("cat", " ".join(["dog"] * 80)))
    with pytest.raises(DataError, match="87 tokens"):
        Classifier(tiny_clip, ZeroShot()).bind(long)(batch(tiny_clip))


def test_frozen_texts_are_the_same_under_autocast(tiny_clip):
    plain = Classifier(tiny_clip, ZeroShot()).bind(BASE).zero_shot_text_features
    with torch.autocast("cpu", torch.bfloat16):
        again = Classifier(tiny_clip, ZeroShot()).bind(BASE).zero_shot_text_features
    assert torch.equal(plain, again)


def test_static_prompts_are_encoded_once_an_evaluation_and_again_after_a_change(tiny_clip, monkeypatch):
    bound = Classifier(tiny_clip, CoOp(tiny_clip, n_context=4)).bind(BASE)
    data = batch(tiny_clip)
    calls = []
    original = type(bound)._encode
    monkeypatch.setattr(type(bound), "_encode", lambda self, prompts: calls.append(1) or original(self, prompts))
    with torch.no_grad():
        before = bound(data).logits
        bound(data)
        assert len(calls) == 1
        bound.learner.context.add_(torch.randn(bound.learner.context.shape))
        after = bound(data).logits
    assert len(calls) == 2
    assert not torch.allclose(before, after)


def test_a_batch_without_pixels_or_features_is_refused(tiny_clip):
    from promptcal.errors import DataError

    with pytest.raises(DataError, match="neither pixels nor"):
        Classifier(tiny_clip, ZeroShot()).bind(BASE)(Batch(labels=torch.tensor([0])))


@pytest.mark.parametrize("images", [1, 2, 5])
def test_cocoop_is_the_same_in_chunks_of_any_size(tiny_clip, images, monkeypatch):
    from promptcal.models.classifier import BoundClassifier

    learner = make("cocoop", tiny_clip)
    data = batch(tiny_clip, b=5)

    def logits_and_gradient():
        learner.zero_grad()
        logits = Classifier(tiny_clip, learner).bind(BASE)(data).logits
        (logits.square().mean() + logits.var()).backward()
        return logits.detach(), [parameter.grad.clone() for parameter in learner.parameters()]

    whole = logits_and_gradient()
    monkeypatch.setattr(BoundClassifier, "_images_at_once", lambda self, prompts: images)
    parts = logits_and_gradient()
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        evaluated = Classifier(tiny_clip, learner).bind(BASE)(data).logits
    torch.testing.assert_close(evaluated, whole[0], rtol=1e-5, atol=1e-5)
