"""Configurations compose, and mistakes are answered with the nearest known name."""

import pytest

from promptcal.config import asset_path, build, compose, locate, options
from promptcal.errors import ConfigError
from promptcal.sweep import study

METHODS = sorted(path.stem for path in (asset_path("configs") / "method").glob("*.yaml"))
PLUGINS = sorted(path.stem for path in (asset_path("configs") / "plugin").glob("*.yaml"))


def composed(method, plugins):
    config = compose([f"method={method}", f"plugin=[{','.join(plugins)}]"])
    assert config.choices.method == method
    assert list(config.choices.plugin) == plugins
    return config


@pytest.mark.parametrize("method", METHODS)
def test_every_method_composes_with_none_and_all_of_the_plugins(method):
    for plugins in ([], PLUGINS):
        for node in composed(method, plugins).losses.values():
            assert node is None or callable(locate(node["_target_"]))


@pytest.mark.parametrize("dataset", options("dataset"))
def test_every_data_card_composes(dataset):
    config = compose([f"dataset={dataset}"] + (["dataset.path=/x"] if dataset == "folder" else []))
    assert config.dataset.name == dataset
    assert all("{}" in template for template in config.dataset.templates)


@pytest.mark.parametrize("model", options("model"))
def test_every_model_composes(model):
    assert compose([f"model={model}"]).model.name == model


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["method=cop"], "unknown method 'cop'. Did you mean 'coop'"),
        (["dataset=digit"], "unknown dataset 'digit'. Did you mean 'digits'"),
        (["plugin=[margn]"], "unknown plugin 'margn'. Did you mean 'margin'"),
        (["training.epoch=3"], "unknown key 'training.epoch'. Did you mean 'training.epochs'"),
        (["trainin.epochs=3"], "unknown key 'trainin.epochs'. Did you mean 'training.epochs'"),
        (["learner.n_ctx=4"], "unknown key 'learner.n_ctx'"),
        (["seeds=1"], "unknown key 'seeds'. Did you mean 'seed'"),
        (["epochs"], "'epochs' is not an override"),
    ],
)
def test_a_typo_names_the_nearest(overrides, message):
    with pytest.raises(ConfigError) as caught:
        compose(overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_overrides_win_over_recipes_and_recipes_over_signatures():
    assert compose(["method=coop"]).training.epochs == 200
    assert compose(["method=coop", "training.epochs=3"]).training.epochs == 3
    assert compose(["method=coop"]).losses.cross_entropy.weight == 1.0
    assert compose(["plugin=[moments]"]).losses.moments.weight == 5.0
    assert compose(["plugin=[moments]", "losses.moments.weight=2"]).losses.moments.weight == 2


def test_only_trusted_targets_are_built():
    with pytest.raises(ConfigError, match="may not be built"):
        build({"_target_": "os.system", "command": "true"})
    with pytest.raises(ConfigError, match="nothing at"):
        build({"_target_": "promptcal.losses.margin.Nothing"})
    with pytest.raises(ConfigError, match="unknown key"):
        build({"_target_": "promptcal.losses.margin.MarginMeanVariance", "alhpa": 1})
    with pytest.raises(ConfigError, match="needs 'split'"):
        build({"_target_": "promptcal.data.readers.split_json.SplitJson"})


def test_a_command_line_becomes_runs():
    assert study([]).name == "quickstart"
    assert study(["seed=2"]).runs[0][-1] == "seed=2"
    single = study(["method=coop", "dataset=digits", "training.epochs=3", "seed=2"])
    zero_shot, trained = single.runs
    assert set(zero_shot) == {"dataset=digits", "seed=2", "method=zero_shot", "calibrators=[none,temperature]"}
    assert trained == ("method=coop", "dataset=digits", "training.epochs=3", "seed=2")
    assert len(study(["method=zero_shot"]).runs) == 1
    with pytest.raises(ConfigError, match="Did you mean 'quickstart'"):
        study(["experiment=quikstart"])


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("shots=abc", "shots must be a whole number, not 'abc'"),
        ("seed=1.5", "seed must be a whole number, not 1.5"),
        ("split_seed=x", "split_seed must be a whole number or null, not 'x'"),
        ("calibrators=[]", "calibrators=[] measures nothing"),
        ("calibrators=3", "calibrators must be a list of names, not 3"),
        ("system.memory_gb=nan", "system.memory_gb must be a finite number, not nan"),
        ("plugin=[margin,margin]", "names 'margin' twice"),
    ],
)
def test_values_of_the_wrong_kind_are_told_in_words(override, sentence):
    with pytest.raises(ConfigError) as caught:
        compose(["method=coop", override])
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("group", "override", "sentence"),
    [
        ("training", "training.lr=nan", "Training.lr must be a finite number, not nan"),
        ("training", "training.lr=fast", "Training.lr must be a finite number, not 'fast'"),
        ("training", "training.epochs=2.5", "Training.epochs must be a whole number, not 2.5"),
        ("training", "training.lr=-1", "training.lr is -1.0; it must not be negative"),
        ("features", "features.views=many", "Features.views must be a whole number or null, not 'many'"),
    ],
)
def test_settings_of_the_wrong_kind_are_told_in_words(group, override, sentence):
    with pytest.raises(ConfigError) as caught:
        build(compose(["method=coop", override])[group])
    assert sentence in str(caught.value)


def test_one_name_stands_for_a_list_of_one():
    assert list(compose(["method=coop", "calibrators=temperature"]).calibrators) == ["temperature"]
