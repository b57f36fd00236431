"""CoOp, CoCoOp, MaPLe and KgCoOp equal plain re-computations from the equations of their papers."""

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from promptcal.learners.cocoop import CoCoOp
from promptcal.learners.coop import CoOp
from promptcal.learners.maple import MaPLe
from promptcal.losses.knowledge import Knowledge
from promptcal.models.classifier import Classifier
from promptcal.models.clip import FrozenClip
from promptcal.types import Batch, ClassNames

CLASSES = ClassNames(("cat", "big red dog", "AC/DC", "ship"))
LABELS = torch.tensor([0, 3, 1])


@pytest.fixture(params=["float32", "float64"])
def setting(request, tiny_clip):
    if request.param == "float32":
        return tiny_clip, 1e-5
    clip = FrozenClip(copy.deepcopy(tiny_clip.model).double(), tiny_clip.tokenizer, tiny_clip.transform, "double")
    return clip, 1e-10


def data(clip):
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=clip.dtype)
    with torch.no_grad():
        return Batch(LABELS, pixels=pixels, features=clip.encode_image(pixels))


def official_text(clip, texts, context_at, context, deep=None):
    """The text tower as the papers run it: 77 tokens of every class, context slots filled, read at the end token."""
    model = clip.model
    ids = clip.tokenizer(texts)
    x = model.token_embedding(ids).clone()
    x = torch.cat([x[:, :1], context.expand(len(texts), -1, -1).to(x.dtype), x[:, 1 + context_at :]], dim=1)
    x = x + model.positional_embedding
    for index, block in enumerate(model.transformer.resblocks):
        if deep and index in deep:
            tokens = deep[index].expand(len(texts), -1, -1).to(x.dtype)
            x = torch.cat([x[:, :1], tokens, x[:, 1 + context_at :]], dim=1)
        x = block(x, attn_mask=model.attn_mask)
    x = model.ln_final(x)[torch.arange(len(texts)), ids.argmax(dim=-1)] @ model.text_projection
    return normalize(x, dim=-1)


def compare(learner, ours, theirs, tolerance):
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=tolerance, atol=20 * tolerance)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    parameters = list(learner.parameters())
    first = torch.autograd.grad((ours.double() * weights).sum(), parameters, retain_graph=True)
    second = torch.autograd.grad((theirs.double() * weights).sum(), parameters)
    for mine, plain in zip(first, second, strict=True):
        scale = plain.abs().max().clamp(min=1e-12)
        assert ((mine - plain).abs().max() / scale) < 10 * tolerance


def as_dtype(learner, clip):
    return learner.to(clip.dtype)


def generator():
    return torch.Generator().manual_seed(5)


def test_coop(setting):
    clip, tolerance = setting
    learner = as_dtype(CoOp(clip, n_context=4, generator=generator()), clip)
    batch = data(clip)
    ours = Classifier(clip, learner).bind(CLASSES)(batch).logits
    texts = [f"X X X X {name}." for name in CLASSES.names]
    text = official_text(clip, texts, 4, learner.context)
    theirs = clip.logit_scale * normalize(batch.features, dim=-1) @ text.T
    compare(learner, ours, theirs, tolerance)


def test_cocoop(setting):
    clip, tolerance = setting
    learner = as_dtype(CoCoOp(clip, generator=generator()), clip)
    batch = data(clip)
    ours = Classifier(clip, learner).bind(CLASSES)(batch).logits
    texts = [f"a photo of a {name}." for name in CLASSES.names]
    rows = []
    for feature in normalize(batch.features, dim=-1):  # one text pass an image, as published
        hidden = torch.relu(learner.meta_net["linear1"](feature))
        text = official_text(clip, texts, 4, learner.context + learner.meta_net["linear2"](hidden))
        rows.append(clip.logit_scale * feature @ text.T)
    compare(learner, ours, torch.stack(rows), tolerance)


def test_maple(setting):
    clip, tolerance = setting
    learner = as_dtype(MaPLe(clip, generator=generator(), depth=2), clip)
    batch = data(clip)
    ours = Classifier(clip, learner).bind(CLASSES)(batch).logits
    texts = [f"a photo of a {name}." for name in CLASSES.names]
    text = official_text(clip, texts, 2, learner.context, deep={1: learner.deep_text[0]})
    visual = clip.visual
    x = visual.conv1(batch.pixels).flatten(2).transpose(1, 2)
    x = torch.cat([visual.class_embedding.expand(3, 1, -1), x], dim=1) + visual.positional_embedding
    tokens = x.shape[1]
    x = visual.ln_pre(torch.cat([x, learner.projection(learner.context).expand(3, -1, -1)], dim=1))
    x = visual.transformer.resblocks[0](x)
    deep = learner.deep_projections[0](learner.deep_text[0]).expand(3, -1, -1)
    x = visual.transformer.resblocks[1](torch.cat([x[:, :tokens], deep], dim=1))
    image = normalize(visual.ln_post(x)[:, 0] @ visual.proj, dim=-1)
    compare(learner, ours, clip.logit_scale * image @ text.T, tolerance)


def test_maple_counts_its_parameters_as_published():
    """ViT-B/16, depth 9: ctx and 8 deep prompts of 2 x 512, nine maps from 512 to 768; read from the model."""

    class Shape(FrozenClip):
        def __init__(self):
            torch.nn.Module.__init__(self)

        text_width, image_width, text_layers, image_layers = 512, 768, 12, 12

        def require_image_tokens(self):
            pass

        def embed_words(self, words):
            return torch.zeros(len(words.split()), 512)

    learner = MaPLe(Shape())
    assert learner.n_parameters() == 9 * (512 * 768 + 768) + 18 * 512
    assert learner.tail == "of a {}."


def test_kgcoop_is_coop_with_the_knowledge_term(setting):
    clip, tolerance = setting
    learner = as_dtype(CoOp(clip, init="a photo of a"), clip)
    with torch.no_grad():
        learner.context += 0.05 * torch.randn(learner.context.shape, generator=generator(), dtype=clip.dtype)
    batch = data(clip)
    outputs = Classifier(clip, learner).bind(CLASSES)(batch)
    ours = cross_entropy(outputs.logits, LABELS) + 8.0 * Knowledge()(outputs, LABELS)
    texts = [f"a photo of a {name}." for name in CLASSES.names]
    text = official_text(clip, texts, 4, learner.context)
    with torch.no_grad():
        frozen = normalize(clip.model.encode_text(clip.tokenizer(texts)), dim=-1)
    logits = clip.logit_scale * normalize(batch.features, dim=-1) @ text.T
    score = torch.nn.functional.cosine_similarity(text, frozen, dim=-1)
    theirs = cross_entropy(logits, LABELS) + 8.0 * (1 - score.mean())
    compare(learner, ours, theirs, 10 * tolerance)
