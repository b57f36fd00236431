"""ViT-Calibrator from a finished run to a finished run."""

import numpy as np
import pytest
import torch

from promptcal.assembled import assemble
from promptcal.config import build, compose
from promptcal.errors import ConfigError
from promptcal.experiment import run
from promptcal.preparation import prepare
from promptcal.types import ClassNames

SMALL = [
    "protocol=train",
    "model=vit_mini",
    "dataset=digits",
    "model.options={patch_size: 16, embed_dim: 32, depth: 2, num_heads: 2}",
    "shots=8",
    "training.epochs=1",
    "calibrators=[none]",
]
MEND = ["learner.sources=1", "learner.target=2"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    return runs, run(compose([*SMALL, f"runs={runs}", "training.epochs=6"]), quiet=True)


def mended(base, *overrides):
    runs, folder = base
    return compose([*SMALL, f"runs={runs}", f"model.weights={folder.path}", *MEND, *overrides])


@pytest.mark.parametrize(("method", "head"), [("vit_calibrator_token", "calattn"), ("vit_calibrator", "none")])
def test_at_the_start_it_is_the_base_and_the_head_is_one(base, method, head):
    prepared = prepare(mended(base, f"method={method}", f"head={head}"))
    work = assemble(prepared, quiet=True)
    backbone = work.learner.backbone.backbone.state_dict()
    assert all(torch.equal(backbone[name.removeprefix("backbone.")], v) for name, v in base[1].learner_state().items())
    batch = next(iter(work.images.test_batches(prepared.splits.targets["test"].test[:32])))
    work.learner.eval()
    with torch.no_grad():
        outputs = work.base(batch)
    stored = base[1].predictions("test").logits[:32]
    np.testing.assert_allclose(outputs.logits.numpy(), stored, rtol=1e-4, atol=1e-5)
    assert (outputs.temperature is None) == (head == "none")
    assert outputs.temperature is None or bool((outputs.temperature == 1).all())
    learned = {name for name, parameter in work.learner.named_parameters() if parameter.requires_grad}
    assert all(name.startswith(("backbone.feedback", "backbone.correction", "head")) for name in learned)


def test_a_run_of_both_stages_leaves_the_base_alone_and_keeps_its_masks(base):
    folder = run(mended(base, "method=vit_calibrator", "head=calattn"), quiet=True)
    state, before = folder.learner_state(), base[1].learner_state()
    for name, value in before.items():
        assert torch.equal(state[f"backbone.{name}"], value)
    masks = state["backbone.masks"]
    assert set(masks.unique().tolist()) == {0.0, 1.0}
    assert {"cross_entropy", "masked_distillation", "suppression"} <= set(folder.history[0])
    assert state["backbone.feedback.projections.0.weight"].abs().sum() > 0
    assert folder.predictions("test").temperature is not None


def test_what_cannot_be_mended_is_refused(base):
    few = ClassNames(("one", "two"))
    config = compose([*SMALL, "method=vit_calibrator"])
    with pytest.raises(ConfigError, match="starts from random weights; train it first"):
        build(config.learner, vision=build(config.model), classes=few)
    config.model.weights = str(base[1].path)
    with pytest.raises(ConfigError, match="tell 10 classes apart, not 2"):
        build(config.learner, vision=build(config.model), classes=few)
    config.model.weights = "nowhere"
    with pytest.raises(ConfigError, match="there is no weights file or run nowhere"):
        build(config.model)
