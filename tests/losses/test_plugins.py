"""Plug-ins on the command line: what they add, what they replace, their weights, and two real runs."""

from pathlib import Path

import numpy as np
import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from promptcal import experiment
from promptcal.config import asset_path, build, compose, locate, options
from promptcal.errors import ConfigError
from promptcal.learners.contract import Learner
from promptcal.losses.contract import check_terms
from promptcal.models.classifier import Classifier
from promptcal.storage import load_predictions, read_jsonl

NO_TERM = {"fixed_temperature"}


def active(config):
    return {name: node for name, node in config.losses.items() if node}


def terms_of(config):
    return {name: build(node) for name, node in active(config).items()}


def loss_of(plugin):
    return OmegaConf.load(asset_path("configs") / "plugin" / f"{plugin}.yaml").defaults[0][f"/loss@losses.{plugin}"]


def replaces(plugin):
    node = ConfigStore.instance().repo["loss"][f"{loss_of(plugin)}.yaml"].node
    return locate(node._target_).replaces_cross_entropy


PLUGINS = sorted(set(options("plugin")) - NO_TERM)
REPLACING = [plugin for plugin in PLUGINS if replaces(plugin)]


def test_additive_plugins_are_terms_of_their_names_with_weights_of_the_command_line():
    plugins = [plugin for plugin in PLUGINS if plugin not in REPLACING]
    assert len(plugins) >= 16
    weights = {plugin: 0.5 + index for index, plugin in enumerate(plugins)}
    config = compose(
        [
            "method=kgcoop",
            f"plugin=[{','.join(plugins)}]",
            *(f"losses.{name}.weight={w}" for name, w in weights.items()),
        ]
    )
    assert {name: node.weight for name, node in active(config).items() if name in plugins} == weights
    assert set(active(config)) == {*plugins, "cross_entropy", "knowledge"}


@pytest.mark.parametrize("plugin", REPLACING)
def test_a_replacement_switches_cross_entropy_off(plugin):
    config = compose(["method=kgcoop", f"plugin={plugin}", f"losses.{plugin}.weight=0.25"])
    assert set(active(config)) == {plugin, "knowledge"}
    assert config.losses[plugin].weight == 0.25
    check_terms(terms_of(config), learns_text=True, n_classes=5)


def test_the_page_names_every_plugin_and_its_weight():
    page = (Path(__file__).parents[2] / "docs" / "losses.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    named = {name.strip("` "): row for row in rows for name in row[0].split(",")}
    assert set(named) == set(PLUGINS)
    assert f"plugin={next(iter(NO_TERM))}" in page
    for plugin, row in named.items():
        loss = ConfigStore.instance().repo["loss"][f"{loss_of(plugin)}.yaml"].node
        if plugin not in REPLACING:
            assert float(row[2]) == loss.weight
        assert {option.strip("` ") for option in row[-2].split(",") if option} <= set(loss)


def test_additive_and_replacing_plugins_go_together():
    config = compose(["method=coop", "plugin=[mbls,focal,dca]"])
    check_terms(terms_of(config), learns_text=True, n_classes=5)
    assert set(active(config)) == {"mbls", "focal", "dca"}


def test_two_replacements_are_refused():
    config = compose(["method=coop", "plugin=[brier,focal]"])
    with pytest.raises(ConfigError, match="both 'brier' and 'focal' stand in for cross-entropy"):
        check_terms(terms_of(config), learns_text=True, n_classes=5)


def test_a_model_without_text_has_no_outlier_words():
    node = compose(["method=coop", "plugin=dor"]).losses.dor
    with pytest.raises(ConfigError, match="needs 'classifier', which this kind of model lacks"):
        build(node, classes=("a", "b"), generator=None)


def test_any_term_can_be_switched_off():
    config = compose(["method=kgcoop", "losses.knowledge=null"])
    assert set(active(config)) == {"cross_entropy"}


def test_a_run_with_many_plugins(tmp_path):
    plugins = ["mbls", "dca", "penalty", "mmce_weighted", "dor", "text_orthogonality", "moments_covariance", "zs_norm"]
    words = ["method=coop", f"plugin=[{','.join([*plugins, 'fixed_temperature'])}]", "losses.dor.batch=4"]
    quick = ["dataset=digits", "training.epochs=1", "features.views=1", "shots=2", "system.cache=null"]
    config = compose([*words, *quick, "fixed_temperature=1.5", "calibrators=[none,cots,cots_val]", f"runs={tmp_path}"])
    folder = experiment.run(config, quiet=True)
    (epoch,) = read_jsonl(folder.path / "history.jsonl")
    assert set(plugins) <= set(epoch)
    assert "cross_entropy" not in epoch
    weights = OmegaConf.load(folder.path / "config.yaml").losses
    assert epoch["total"] == pytest.approx(sum(weights[name].weight * epoch[name] for name in plugins), rel=1e-5)
    if weights.dor.source == "imagenet":
        assert any("ImageNet" in note for note in folder.info["notes"])
    rows = read_jsonl(folder.path / "metrics.jsonl")
    assert {row["calibrator"] for row in rows} == {"none", "cots", "cots_val"}
    novel = load_predictions(folder.path / "predictions" / "novel.safetensors")
    assert np.array_equal(novel.temperature, np.full(len(novel.labels), 1.5, dtype=np.float32))
    exponentials = np.exp(novel.logits.astype(np.float64) / 1.5)
    assert novel.probs() == pytest.approx(exponentials / exponentials.sum(axis=1, keepdims=True), abs=1e-12)


def test_a_fixed_temperature_must_be_above_zero(tiny_clip):
    with pytest.raises(ConfigError, match="must be above 0"):
        Classifier(tiny_clip, Learner(), fixed_temperature=0.0)
