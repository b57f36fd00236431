"""Plug-ins on the command line: what they add, what they replace, their weights, and two real runs."""

import json

import numpy as np
import pytest
from omegaconf import OmegaConf

from promptcal import experiment
from promptcal.config import build, compose, locate, options
from promptcal.errors import ConfigError
from promptcal.losses.contract import check_terms
from promptcal.storage import load_predictions

NO_TERM = {"fixed_temperature"}
QUICK = ["dataset=digits", "training.epochs=1", "features.views=1", "shots=2", "system.cache=null"]


def active(config):
    return {name: node for name, node in config.losses.items() if node}


def terms_of(config):
    return {name: build(node) for name, node in active(config).items()}


@pytest.mark.parametrize("plugin", sorted(set(options("plugin")) - NO_TERM))
@pytest.mark.parametrize("method", ["coop", "kgcoop"])
def test_a_plugin_is_one_term_of_its_name_and_replaces_cross_entropy_where_it_says_so(method, plugin):
    config = compose([f"method={method}", f"plugin={plugin}", f"losses.{plugin}.weight=0.25"])
    expected = {*compose([f"method={method}"]).losses, plugin}
    if locate(config.losses[plugin]._target_).replaces_cross_entropy:
        expected.remove("cross_entropy")
    assert set(active(config)) == expected
    assert config.losses[plugin].weight == 0.25
    assert list(config.choices.plugin) == [plugin]


def test_several_plugins_go_together_whatever_their_order():
    for plugins in ("mbls,focal,dca", "focal,dca,mbls"):
        config = compose(["method=coop", f"plugin=[{plugins}]"])
        check_terms(terms_of(config), learns_text=True, n_classes=5)
        assert set(active(config)) == {"mbls", "focal", "dca"}


def test_two_replacements_are_refused():
    config = compose(["method=coop", "plugin=[brier,focal]"])
    with pytest.raises(ConfigError, match="both 'brier' and 'focal' stand in for cross-entropy"):
        check_terms(terms_of(config), learns_text=True, n_classes=5)


def test_any_term_can_be_switched_off():
    config = compose(["method=kgcoop", "losses.knowledge=null"])
    assert set(active(config)) == {"cross_entropy"}


def run_of(words, tmp_path):
    folder = experiment.run(compose([*words, *QUICK, f"runs={tmp_path}"]), quiet=True)
    history = [json.loads(line) for line in (folder.path / "history.jsonl").read_text().splitlines()]
    return folder, history


def test_a_run_with_additive_terms(tmp_path):
    plugins = ["mbls", "dca", "penalty", "mmce_weighted", "dor", "orthogonality", "moments_covariance"]
    words = ["method=coop", f"plugin=[{','.join(plugins)}]", "calibrators=[none,cots,cots_val]", "losses.dor.batch=4"]
    folder, history = run_of(words, tmp_path)
    assert set(plugins) | {"cross_entropy"} <= set(history[0])
    weights = OmegaConf.load(folder.path / "config.yaml").losses
    total = sum(weights[name].weight * history[0][name] for name in [*plugins, "cross_entropy"])
    assert history[0]["total"] == pytest.approx(total, rel=1e-5)
    if weights.dor.source == "imagenet":
        assert any("ImageNet" in note for note in folder.info["notes"])
    rows = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert {row["calibrator"] for row in rows} == {"none", "cots", "cots_val"}


def test_a_run_with_a_replacement_and_a_fixed_temperature(tmp_path):
    words = ["method=coop", "plugin=[zs_norm,fixed_temperature]", "fixed_temperature=1.5", "calibrators=[none]"]
    folder, history = run_of(words, tmp_path)
    assert "zs_norm" in history[0]
    assert "cross_entropy" not in history[0]
    novel = load_predictions(folder.path / "predictions" / "novel.safetensors")
    assert np.array_equal(novel.temperature, np.full(len(novel.labels), 1.5, dtype=np.float32))
    exponentials = np.exp(novel.logits.astype(np.float64) / 1.5)
    assert novel.probs() == pytest.approx(exponentials / exponentials.sum(axis=1, keepdims=True), abs=1e-12)
    with pytest.raises(ConfigError, match="must be above 0"):
        experiment.run(compose(["method=zero_shot", "fixed_temperature=0", *QUICK, f"runs={tmp_path}"]), quiet=True)
