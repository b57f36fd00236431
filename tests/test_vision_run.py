"""A run of a network from the command's configuration to its folder, and back into a predictor."""

import json

import numpy as np
import pytest

from promptcal import predictor
from promptcal.config import compose
from promptcal.errors import ConfigError
from promptcal.experiment import run
from promptcal.metrics import nll

TINY = ["training.epochs=2", "model.options={patch_size: 16, embed_dim: 16, depth: 1, num_heads: 2}", "shots=8"]


def configured(tmp_path, *overrides):
    return compose(["protocol=train", "model=vit_mini", "dataset=digits", f"runs={tmp_path}", *TINY, *overrides])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    modes = {
        "none": [],
        "joint": ["head=calattn"],
        "separate": ["head=calattn", "head.mode=separate", "averaging=best_on_val"],
    }
    return {name: run(configured(place, *chosen), quiet=True) for name, chosen in modes.items()}


def test_a_network_leaves_the_folder_that_a_clip_leaves(folders):
    folder = folders["joint"]
    assert folder.path.parts[-3:-1] == ("digits", "classifier+calattn")
    assert {row["calibrator"] for row in folder.metrics} == {"none", "temperature", "temperature_ece"}
    assert {row["split"] for row in folder.metrics} == {"test"}
    test = folder.predictions("test")
    assert test.temperature is not None
    assert test.zero_shot_logits is None
    assert len(test.norms) == len(test.norms_before) == len(test.labels) == 540
    np.testing.assert_allclose(np.linalg.norm(test.image_features, axis=1), 1, rtol=1e-5)
    reported = next(row["value"] for row in folder.metrics if row["calibrator"] == "none" and row["metric"] == "nll")
    assert reported == pytest.approx(nll(test.probs(), test.labels), abs=1e-9)
    history = folder.history
    assert len(history) == 2
    assert {"val_nll", "val_ece", "val_accuracy", "val_s_cv", "val_norm_mean", "val_residual_temperature"} <= set(
        history[-1]
    )
    rows = [json.loads(line) for line in (folder.path / "diagnostics.jsonl").read_text().splitlines()]
    assert {row["split"] for row in rows} == {"val", "test"}
    assert folders["none"].path.parts[-2] == "classifier"
    assert folders["none"].predictions("test").temperature is None


def test_a_separate_head_leaves_the_backbone_to_cross_entropy(folders):
    state, plain = folders["separate"].learner_state(), folders["none"].learner_state()
    assert folders["separate"].path.parts[-2] == "classifier+calattn_separate"
    history = folders["separate"].history
    assert "head_cross_entropy" in history[0]
    last_is_best = history[-1]["val_nll"] < history[0]["val_nll"]
    same = [np.array_equal(state[name].numpy(), plain[name].numpy()) for name in plain]
    assert all(same) == last_is_best
    assert {name for name in state if name not in plain} == {
        "head.inner.weight",
        "head.inner.bias",
        "head.outer.weight",
        "head.outer.bias",
    }


def test_a_run_becomes_a_predictor(folders):
    loaded = predictor.load(folders["joint"].path, split="test", calibrator="none")
    stored = folders["joint"].predictions("test")
    images = [np.full((8, 8), 0.5), np.random.default_rng(0).random((8, 8))]
    found = loaded.predictions(images)
    assert found.logits.shape == (2, 10)
    assert found.temperature.shape == (2,)
    assert loaded.classes == stored.classes


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["method=coop"], "method=classifier"),
        (["model=mini", "method=classifier"], "choose a model such as vit_mini"),
        (["calibrators=[none,mix]"], "zero_shot_logits"),
        (["protocol=base_to_novel", "calibrators=[none]"], "protocol=train"),
        (["head=calattn", "head.source=clss"], r"head\.source"),
    ],
)
def test_what_does_not_go_together_is_refused_before_training(tmp_path, overrides, word):
    base = ["protocol=train", "dataset=digits", f"runs={tmp_path}"]
    chosen = (
        overrides if any(word.startswith("model=") for word in overrides) else ["model=vit_mini", *TINY, *overrides]
    )
    with pytest.raises(ConfigError, match=word):
        run(compose([*base, *chosen]), quiet=True)


def test_the_presets_are_small_enough():
    import torch

    from promptcal.config import build
    from promptcal.models.assembly import classifier_of
    from promptcal.types import ClassNames

    for name in ("vit_mini", "swin_mini"):
        config = compose([f"model={name}", "head=calattn"])
        network = classifier_of(
            config, build(config.model), ClassNames(tuple("abcdefghij")), torch.Generator().manual_seed(0)
        )
        assert network.n_parameters() < 500_000
