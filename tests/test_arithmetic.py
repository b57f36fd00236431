"""What runs have to compute: by hand for one run, shared image features once, and the benchmark's count."""

import pytest

from promptcal.arithmetic import ONE_GPU, Machine, Work, count, sentences, towers_of
from promptcal.cli import main
from promptcal.config import compose
from promptcal.sweep import composed, study

VIT = ["model=vit_b16", "dataset=eurosat"]


def test_the_towers_of_vit_b16_have_the_known_operations():
    towers = towers_of(compose(VIT))
    assert towers.image == pytest.approx(2 * 17.6e9, rel=0.01)  # 17.6 G multiply-adds, as published for ViT-B/16
    assert towers.token == pytest.approx(2 * 12 * 12 * 512**2, rel=0.01)
    assert towers_of(compose(["model=rn50", "dataset=eurosat"])) is None


def test_a_run_counted_by_hand():
    towers = towers_of(compose(VIT))
    work = count([compose([*VIT, "method=coop", "training.epochs=10", "features.views=2"])])
    text = towers.token * (5 + 5 * 5)
    assert work.steps == 10 * (16 * 5 // 32)
    images = 16 * 5 * 2 + 8100 + 4 * 5
    assert work.operations == pytest.approx(20 * 3 * text + 2 * text + images * towers.image)
    zero_shot = count([compose([*VIT, "method=zero_shot"])])
    assert zero_shot.steps == 0


def test_runs_share_image_features_and_prompted_towers_do_not():
    def operations(*runs):
        return count([compose([*VIT, *words]) for words in runs]).operations

    towers = towers_of(compose(VIT))
    coop, other = ["method=coop"], ["method=coop", "plugin=[margin]"]
    both, one = operations(coop, other), operations(coop)
    assert both < 1.1 * one
    assert operations(coop, [*coop, "seed=2"]) > 1.4 * one
    maple = operations(["method=maple"], ["method=maple", "plugin=[margin]"]) - operations(["method=maple"])
    assert maple > 16 * 5 * 5 * 3 * towers.image


def test_seconds_are_operations_over_speed_and_steps():
    assert Work(10e12, 100).seconds(ONE_GPU) == pytest.approx(1 + 2)
    lines = sentences([compose([*VIT, "method=coop"])], [Machine("a snail", 1e9)], lambda seconds: f"{seconds:.0f} s")
    assert len(lines) == 1
    assert lines[0].endswith("s on a snail")
    assert not sentences([compose(["dataset=folder"])], [ONE_GPU], str)


def test_the_benchmark_on_eleven_data_sets_is_counted_without_data_or_weights(tmp_path, capsys):
    assert len(study(["experiment=base_to_novel_11"]).runs) == 11 * 4 * 2 * 3
    assert count(composed(study(["experiment=base_to_novel_11", "dataset=dtd", "seed=1"]))).steps > 10_000
    few = ["dataset=dtd", "seed=1", f"data.root={tmp_path}", f"runs={tmp_path}"]
    assert main(["run", "experiment=base_to_novel_11", *few, "--dry"]) == 1
    shown = capsys.readouterr().out
    assert "8 runs: 0 done, 0 to do, 8 broken" in shown
    assert "1 data set, 8 methods, 1 seed" in shown
    assert "on this machine at" in shown
    assert "on one GPU, taken to sustain 10 TFLOP/s" in shown
