"""What a learner may change besides tokens, and what the recipe's terms are shown."""

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from promptcal.errors import ConfigError
from promptcal.learners.contract import Learner
from promptcal.learners.coop import CoOp
from promptcal.learners.zero_shot import ZeroShot
from promptcal.losses.knowledge import Knowledge
from promptcal.models.classifier import Classifier
from promptcal.models.reference import Reference
from promptcal.types import Batch, ClassNames, Prompts

CLASSES = ClassNames(("cat", "red dog", "ship"), ("a photo of a {}.", "art of the {}."))


class Mixed(Learner):
    """Several prompts at two positions."""

    learns_text = True

    def __init__(self, clip, normalises_mean=True):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.context = nn.Parameter(torch.randn(5, 4, clip.text_width, generator=generator))
        self.normalises_mean = normalises_mean

    def forward(self, image_features, class_features=None):
        front = Prompts(text=self.context[None, 3:, None], position="front")
        return Prompts(text=self.context[None, :3, None], beside=(front,))

    def nameless(self):
        return Prompts(text=self.context[None, :, None])


class Residual(Learner):
    """A number added to text and image features before normalisation."""

    learns_text = True

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.tensor(0.5))

    def adapt_text(self, features):
        return features + self.shift

    def adapt_image(self, features):
        return features * 2 + self.shift


def batch(clip, n=4):
    generator = torch.Generator().manual_seed(1)
    return Batch(torch.arange(n) % 3, features=torch.randn(n, clip.embed_dim, generator=generator))


def templates(clip, *texts, unit):
    each = [clip.encode_texts([text.format(name) for name in CLASSES.names]) for text in texts]
    return torch.stack([normalize(part, dim=-1) if unit else part for part in each]).mean(dim=0)


@pytest.mark.parametrize("normalises", [True, False])
@pytest.mark.parametrize("text_pass", ["fast", "plain"])
def test_prompts_at_several_positions_are_averaged(tiny_clip, normalises, text_pass):
    learner = Mixed(tiny_clip, normalises)
    bound = Classifier(tiny_clip, learner, text_pass).bind(CLASSES)
    singles = []
    for row, position in enumerate(["end"] * 3 + ["front"] * 2):
        one = CoOp(tiny_clip, n_context=4, position=position)
        one.context = nn.Parameter(learner.context[row].detach())
        singles.append(Classifier(tiny_clip, one, "plain").bind(CLASSES).text_features(one(None)))
    outputs = bound(batch(tiny_clip))
    torch.testing.assert_close(outputs.prompt_features, torch.stack(singles), rtol=1e-5, atol=1e-6)
    mean = torch.stack(singles).mean(dim=0)
    expected = normalize(mean, dim=-1) if normalises else mean
    torch.testing.assert_close(outputs.text_features, expected, rtol=1e-5, atol=1e-6)
    assert (outputs.text_features.norm(dim=-1).max() < 0.999) is not normalises


def test_prompts_without_names(tiny_clip):
    learner = Mixed(tiny_clip)
    bound = Classifier(tiny_clip, learner).bind(CLASSES)
    assert bound(batch(tiny_clip)).nameless_features is None
    found = bound(batch(tiny_clip), needs={"nameless_features"}).nameless_features
    assert found.shape == (5, tiny_clip.embed_dim)
    text, context = tiny_clip.text, learner.context.detach()
    start, stop, end = (
        torch.full((5, 1), token)
        for token in (tiny_clip.tokens.start, *tiny_clip.tokens.encode("."), tiny_clip.tokens.end)
    )
    x = torch.cat([text.token_embedding(start), context, text.token_embedding(stop), text.token_embedding(end)], dim=1)
    x = x + text.positional_embedding[:7]
    for block in text.transformer.resblocks:
        x = block(x, attn_mask=text.attn_mask[:7, :7])
    expected = normalize(tiny_clip.project_text(text.ln_final(x[:, -1])), dim=-1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match="CoOp has no prompts without class names"):
        Classifier(tiny_clip, CoOp(tiny_clip)).bind(CLASSES)(batch(tiny_clip), needs={"nameless_features"})


def test_features_can_be_changed_before_normalisation(tiny_clip):
    learner = Residual()
    outputs = Classifier(tiny_clip, learner).bind(CLASSES)(batch(tiny_clip))
    text = normalize(templates(tiny_clip, *CLASSES.templates, unit=False) + 0.5, dim=-1)
    torch.testing.assert_close(outputs.text_features, text)
    torch.testing.assert_close(outputs.image_features, normalize(batch(tiny_clip).features * 2 + 0.5, dim=-1))
    outputs.logits.sum().backward()
    assert learner.shift.grad is not None


def test_a_learner_may_bring_its_own_texts(tiny_clip):
    learner = ZeroShot()
    learner.templates = ("itap of a {}.",)
    outputs = Classifier(tiny_clip, learner).bind(CLASSES)(batch(tiny_clip))
    torch.testing.assert_close(outputs.text_features, templates(tiny_clip, "itap of a {}.", unit=True))
    own = normalize(templates(tiny_clip, *CLASSES.templates, unit=True), dim=-1)
    torch.testing.assert_close(outputs.zero_shot_text_features, own)


@pytest.mark.parametrize("average", ["normalised", "raw"])
def test_terms_look_at_the_recipes_own_reference(tiny_clip, average):
    reference = Reference(("a texture of {}.", "one {}."), average)
    bound = Classifier(tiny_clip, CoOp(tiny_clip), reference=reference).bind(CLASSES)
    outputs = bound(batch(tiny_clip), needs={"zero_shot_logits"})
    expected = normalize(templates(tiny_clip, *reference.templates, unit=average == "normalised"), dim=-1)
    torch.testing.assert_close(outputs.reference_text_features, expected)
    image = normalize(batch(tiny_clip).features, dim=-1)
    torch.testing.assert_close(outputs.reference_logits, tiny_clip.logit_scale * image @ expected.T)
    cosine = (outputs.text_features * expected).sum(dim=-1)
    torch.testing.assert_close(Knowledge()(outputs, batch(tiny_clip).labels), 1 - cosine.mean())
    assert not torch.allclose(expected, outputs.zero_shot_text_features)


def test_a_reference_without_a_name_or_average_is_refused():
    with pytest.raises(ConfigError, match=r"has no '\{\}'"):
        Reference(("a photo.",))
    with pytest.raises(ConfigError, match="Did you mean 'normalised'"):
        Reference(average="normalized")
