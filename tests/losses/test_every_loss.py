"""What holds for every registered loss term, on real outputs: prompts in both towers of the embedded model, digits."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from hydra.core.config_store import ConfigStore

from promptcal.config import build, compose, discover, options
from promptcal.data import load_task, read_card
from promptcal.data.views import centre_view
from promptcal.errors import ConfigError, MissingField
from promptcal.learners.ivlp import IVLP
from promptcal.losses.contract import LossTerm
from promptcal.models.classifier import Classifier
from promptcal.precision import autocast
from promptcal.types import Batch, Outputs

discover()
OF_CLASS_MASKS = {"masked_distillation", "suppression"}
"""Terms on the class masks of a vision transformer, which have tests of their own."""
FORWARD = {"dor"}
"""Terms that run the text encoder themselves, which autocast may make coarse, on words that the batch decides."""


@pytest.fixture(scope="module")
def real():
    """IVLP, which prompts both towers, bound to the ten digits, and a batch of twelve images."""
    config = compose(["method=coop", "dataset=digits"])
    clip = build(config.model)
    task = load_task(read_card(config.dataset), None)
    samples = task.train[:: len(task.train) // 12][:12]
    pixels = torch.stack([centre_view(task.images.open(sample.path), clip.transform) for sample in samples])
    learner = IVLP(clip, torch.Generator().manual_seed(0), n_context=4, text_depth=2, image_depth=2, init="")
    bound = Classifier(clip, learner).bind(task.classes)
    return bound, Batch(torch.tensor([sample.label for sample in samples]), pixels=pixels)


@pytest.fixture(params=sorted(set(options("loss")) - OF_CLASS_MASKS), scope="module")
def term(request, real):
    node = ConfigStore.instance().repo["loss"][f"{request.param}.yaml"].node
    bound = real[0]
    return build(
        node,
        clip=bound.clip,
        classes=bound.classes,
        classifier=bound.classifier,
        generator=torch.Generator().manual_seed(0),
    )


@pytest.fixture(scope="module")
def classify(real):
    """A function that gives the outputs a term asks for, of some images, each kind computed once."""
    bound, batch = real

    @cache
    def outputs(needs, images, precision):
        part = Batch(batch.labels[:images], pixels=batch.pixels[:images])
        try:
            with autocast(torch.device("cpu"), precision):
                return bound(part, needs)
        except ConfigError as error:
            return error

    def give(term, images=12, precision="float32"):
        found = outputs(term.needs, images, precision)
        if isinstance(found, ConfigError):
            pytest.skip(f"IVLP does not give what it needs: {found}")
        return found

    return give


@pytest.fixture
def outputs(term, classify):
    return classify(term)


def name_of(term):
    return next(name for name in options("loss") if node_of(name)._target_.endswith(f".{type(term).__name__}"))


def node_of(name):
    return ConfigStore.instance().repo["loss"][f"{name}.yaml"].node


def test_a_finite_number_in_float32_that_reaches_the_learned_tensors(term, real, outputs):
    assert isinstance(term, LossTerm)
    value = term(outputs, real[1].labels)
    assert value.shape == ()
    assert value.dtype == torch.float32
    assert torch.isfinite(value)
    gradients = torch.autograd.grad(value, list(real[0].learner.parameters()), allow_unused=True, retain_graph=True)
    reached = [gradient for gradient in gradients if gradient is not None]
    assert all(torch.isfinite(gradient).all() for gradient in reached)
    assert sum(float(gradient.abs().sum()) for gradient in reached) > 0


def test_the_same_under_autocast(term, real, outputs):
    plain = term(outputs, real[1].labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = term(outputs, real[1].labels)
    assert value.dtype == torch.float32
    if name_of(term) in FORWARD:
        torch.testing.assert_close(value, plain, rtol=0.05, atol=0.05)
    else:
        torch.testing.assert_close(value, plain, rtol=1e-6, atol=1e-7)


def test_outputs_of_a_model_in_autocast(term, real, classify):
    value = term(classify(term, precision="bfloat16"), real[1].labels)
    assert value.dtype == torch.float32
    assert torch.isfinite(value)


def test_coarse_outputs_give_a_number_in_float32(term, real, outputs):
    tensors = {name: getattr(outputs, name) for name in Outputs.__dataclass_fields__}
    coarse = replace(
        outputs,
        zero_shot_moments=None,
        **{name: value.bfloat16() for name, value in tensors.items() if isinstance(value, torch.Tensor)},
    )
    assert term(coarse, real[1].labels).dtype == torch.float32


def test_the_order_of_the_batch_does_not_matter(term, real, outputs):
    if name_of(term) in FORWARD:
        pytest.skip("it draws its words by the batch")
    labels = real[1].labels
    frozen = outputs.zero_shot_image_features
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    shuffled = replace(
        outputs,
        logits=outputs.logits[order],
        image_features=outputs.image_features[order],
        zero_shot_image_features=None if frozen is None else frozen[order],
    )
    torch.testing.assert_close(term(shuffled, labels[order]), term(outputs, labels), rtol=1e-5, atol=1e-6)


def test_a_batch_of_one(term, real, classify):
    assert torch.isfinite(term(classify(term, images=1), real[1].labels[:1]))


def test_a_model_without_text_is_told_what_is_missing(term, real):
    bare = Outputs(
        logits=torch.zeros(3, 4).fill_diagonal_(1.0),
        image_features=torch.zeros(3, 2),
        logit_scale=1.0,
        learns_text=False,
    )
    labels = torch.tensor([0, 1, 2])
    if (term.of_text and name_of(term) not in FORWARD) or term.needs:
        with pytest.raises(MissingField, match="no"):
            term(bare, labels)
    elif name_of(term) not in FORWARD:
        assert torch.isfinite(term(bare, labels))
