from promptcal.calibrators import build_calibrator
from promptcal.config import options
from promptcal.report.names import (
    CALIBRATORS,
    INSTEAD,
    METHODS,
    METRICS,
    PLUGINS,
    calibrator_name,
    method_name,
    metric_name,
)


def test_every_method_recipe_has_a_name_and_no_name_is_left_over():
    assert set(METHODS) == set(options("method"))
    assert method_name("coop_ep50+margin") == "CoOp (TCPT recipe) + margin"


def test_plugins_that_are_named_exist_and_are_no_methods():
    assert set(PLUGINS) <= set(options("plugin"))
    assert set(PLUGINS).isdisjoint(METHODS)
    assert method_name("coop+mbls+label_smoothing") == "CoOp + MbLS + label smoothing"


def test_every_calibrator_has_a_name_and_no_name_is_left_over():
    assert set(CALIBRATORS).isdisjoint(INSTEAD)
    assert {"none", *CALIBRATORS, *INSTEAD} == set(options("calibrator"))
    assert calibrator_name("none") == ""
    assert calibrator_name("temperature_ece") == "+ TS (by ECE)"


def test_names_are_told_apart():
    for names in (METHODS, PLUGINS, CALIBRATORS, METRICS):
        assert len(set(names.values())) == len(names)


def test_a_chain_is_named_as_its_steps_are():
    assert calibrator_name("chain") == calibrator_name("+".join(build_calibrator("chain").steps))


def test_bins_of_a_metric_are_named_where_they_are_not_the_headline_ones():
    assert metric_name("ece@10") == "ECE, 10 bins"
    assert metric_name("hcfp_joint@0.9") == "hcfp joint@0.9"
