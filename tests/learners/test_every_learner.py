"""Every registered learner on every kind of CLIP: shapes, gradients, checkpoints, other class lists."""

import itertools

import pytest
import torch
from hydra.core.config_store import ConfigStore
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer

from promptcal.config import build, locate, options
from promptcal.errors import ConfigError
from promptcal.learners.contract import Learner
from promptcal.models.classifier import Classifier
from promptcal.models.clip import FrozenClip, ImageTransform
from promptcal.models.load import embedded
from promptcal.models.reference import Reference
from promptcal.types import Batch, ClassNames

BASE = ClassNames(("cat", "big red dog", "AC/DC"), ("a photo of a {}, a type of thing.",))
NOVEL = ClassNames(("ship", "air plane"), ("a photo of a {}.",))
CLIPS = ("mini", "vit", "resnet")


def node(name):
    return dict(ConfigStore.instance().repo["learner"][f"{name}.yaml"].node)


LEARNERS = [name for name in options("learner") if issubclass(locate(node(name)["_target_"]), Learner)]
"""Those of a frozen CLIP; whole networks have tests of their own."""


def make_resnet():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CLIP(
            32,
            {"image_size": 32, "patch_size": None, "width": 8, "layers": [1, 1, 1, 1]},
            {"context_length": 77, "width": 32, "heads": 2, "layers": 2},
            quick_gelu=True,
        )
    return FrozenClip(model, SimpleTokenizer(), ImageTransform(32), "resnet")


@pytest.fixture(scope="module")
def clips(tiny_clip):
    return {"mini": embedded(), "vit": tiny_clip, "resnet": make_resnet()}


def make(name, clip, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return build(node(name), clip=clip, classes=BASE, reference=Reference(), generator=generator)


def batch(clip, b=3):
    pixels = torch.randn(b, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = clip.encode_image(pixels)
    return Batch(labels=torch.arange(b) % 2, pixels=pixels, features=features)


@pytest.fixture(scope="module", params=list(itertools.product(LEARNERS, CLIPS)), ids="-".join)
def case(request, clips):
    """A learner away from its start, its CLIP and a batch; a learner that refuses this CLIP must say why."""
    name, kind = request.param
    clip = clips[kind]
    try:
        learner = make(name, clip)
    except ConfigError as error:
        if kind != "resnet" or "without tokens" not in str(error):
            raise
        return None
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    return name, clip, learner, batch(clip)


def test_shapes_gradients_and_checkpoint(case):
    if case is None:
        return
    name, clip, learner, data = case
    needs = {"zero_shot_logits"}
    outputs = Classifier(clip, learner).bind(BASE)(data, needs)
    assert outputs.logits.shape == outputs.zero_shot_logits.shape == (3, 3)
    assert outputs.logits.dtype == torch.float32
    assert torch.isfinite(outputs.logits).all()
    if learner.n_parameters():
        outputs.logits.square().sum().backward()
    for parameter in learner.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in clip.parameters())
    assert (outputs.text_features.requires_grad, learner.learns_text) in {(True, True), (False, False)}

    state = learner.state_dict()
    assert sum(tensor.numel() for tensor in state.values()) == learner.n_parameters()
    assert state.keys() == dict(learner.named_parameters()).keys()
    assert not any(word in key for key in state for word in ("cat", "dog", "token_prefix"))

    other = make(name, clip, seed=7)
    other.load_state_dict(state)
    with torch.no_grad():
        first = Classifier(clip, learner.eval()).bind(BASE)(data).logits
        again = Classifier(clip, other.eval()).bind(BASE)(data).logits
    assert torch.equal(first, again)


def test_other_class_lists(case):
    if case is None:
        return
    _, clip, learner, data = case
    classifier, order = Classifier(clip, learner.eval()), [2, 0, 1]
    turned = ClassNames(tuple(BASE.names[i] for i in order), BASE.templates)
    with torch.no_grad():
        base = classifier.bind(BASE)(data)
        if learner.tied_classes is not None:
            for classes in (turned, NOVEL):
                with pytest.raises(ConfigError, match="cannot serve other classes"):
                    classifier.bind(classes)
            return
        again = classifier.bind(turned)(data)
        torch.testing.assert_close(again.logits, base.logits[:, order], rtol=1e-5, atol=1e-4)
        novel = classifier.bind(NOVEL)(data)
        alone = classifier.bind(ClassNames(NOVEL.names[1:], NOVEL.templates))(data)
    assert torch.isfinite(novel.logits).all()
    torch.testing.assert_close(alone.logits[:, 0], novel.logits[:, 1], rtol=1e-5, atol=1e-4)


def test_a_learner_is_the_same_from_the_same_seed(case):
    if case is None:
        return
    name, clip, _, _ = case
    one, two = make(name, clip, seed=3), make(name, clip, seed=3)
    for key, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[key]), key
