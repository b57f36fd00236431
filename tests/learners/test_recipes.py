"""Every recipe of configs/method composes, builds on the embedded CLIP and does one step, or is refused by name."""

from dataclasses import dataclass

import pytest
import torch
from omegaconf import OmegaConf

from promptcal.config import asks_for, build, compose, options
from promptcal.errors import ConfigError
from promptcal.losses.cross_entropy import CrossEntropy
from promptcal.losses.proda_upper_bound import ProdaUpperBound
from promptcal.models.assembly import classifier_of
from promptcal.models.load import embedded
from promptcal.training.loop import Recipe, fit
from promptcal.types import Batch, ClassNames

CLASSES = ClassNames(("zero", "one"))


@dataclass(frozen=True)
class OneBatch:
    """A training set of one batch."""

    batch: Batch
    steps: int = 1

    def epoch(self, number):
        del number
        yield self.batch


@pytest.fixture(scope="module")
def clip():
    return embedded()


def training(clip, config):
    """A classifier of two classes, a batch, and what the loop takes, as a run puts them together."""
    generator = torch.Generator().manual_seed(1)
    classifier = classifier_of(config, clip, CLASSES, generator)
    injected = {"clip": clip, "classes": CLASSES, "classifier": classifier, "generator": generator}
    terms = {name: build(node, **injected) for name, node in config.losses.items() if node}
    recipe = Recipe(terms, build(config.gradient_rule), build(config.averaging), config.precision)
    b = min(4, config.training.batch_size)
    pixels = torch.randn(b, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = None if classifier.learner.prompts_image else clip.encode_image(pixels)
    return classifier.bind(CLASSES), OneBatch(Batch(torch.arange(b) % 2, pixels=pixels, features=features)), recipe


@pytest.fixture(scope="module")
def stepped():
    """What recipes of this module have done their step with."""
    return set()


@pytest.mark.parametrize("method", options("method"))
def test_every_recipe_does_one_step(method, clip, stepped):
    config = compose([f"method={method}", "training.epochs=1", "training.warmup_epochs=0"])
    if asks_for(config.learner, "vision"):
        with pytest.raises(ConfigError, match="trains a whole image classifier, and 'mini' is a CLIP"):
            training(clip, config)
        return
    bound, batches, recipe = training(clip, config)
    if bound.learner.n_parameters() == 0:
        assert not recipe.terms
        return
    parts = OmegaConf.to_yaml(OmegaConf.masked_copy(config, ["learner", "losses", "gradient_rule", "reference"]))
    if parts in stepped:  # a variant of another recipe in its epochs alone
        return
    stepped.add(parts)
    assert any(isinstance(term, CrossEntropy | ProdaUpperBound) for term in recipe.terms.values())
    before = {name: tensor.clone() for name, tensor in bound.learner.state_dict().items()}
    (row,) = fit(bound, batches, recipe, build(config.training))
    assert all(torch.isfinite(torch.tensor(row[name])) for name in ("total", *recipe.terms))
    for name, tensor in bound.learner.state_dict().items():
        assert not torch.equal(tensor, before[name]), f"'{name}' did not move"


def test_a_resumed_training_draws_the_prompts_an_undisturbed_one_draws(clip):
    words = ["method=proda", "training.epochs=3", "training.algorithm=adam", "training.batch_size=3"]
    config = compose([*words, "learner.n_prompts=8", "learner.n_context=2", "learner.prompts_per_step=4"])
    states = []
    whole, batches, recipe = training(clip, config)
    fit(whole, batches, recipe, build(config.training), keep=states.append)
    again, batches, recipe = training(clip, config)
    fit(again, batches, recipe, build(config.training), resume=states[0])
    assert torch.equal(again.learner.context, whole.learner.context)
    assert not torch.equal(states[0].learner["context"], whole.learner.context)
