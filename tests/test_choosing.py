"""Choosing weights on pseudo-novel classes: which runs, which point, and what the study is then done with."""

import json

import pytest

from promptcal import sweep
from promptcal.choosing import choose, decided, read_grids, record, trials
from promptcal.cli import main
from promptcal.errors import ConfigError

GRIDS = {"plugin=[margin,moments]": (("a=1", "b=1"), ("a=2", "b=2")), "plugin=[mbls]": (("c=1",), ("c=2",))}
RUNS = [("method=coop", f"seed={seed}", *plugin) for seed in (1, 2) for plugin in ((), ("plugin=[margin, moments]",))]


def finished(place, trial, nll):
    path = place / str(abs(hash(trial)))
    path.mkdir()
    row = {"calibrator": "none", "split": "novel", "metric": "nll", "value": nll}
    (path / "metrics.jsonl").write_text(
        json.dumps({**row, "split": "base", "value": -9.0}) + "\n" + json.dumps(row) + "\n"
    )
    return path


def test_every_run_with_a_grid_is_tried_at_every_point_on_pseudo_novel_classes():
    found = trials(RUNS, GRIDS)
    assert len(found) == 4
    assert {trial.point for trial in found} == set(GRIDS["plugin=[margin,moments]"])
    assert all(trial.overrides[-2:] == ("protocol=pseudo_novel", "calibrators=[none]") for trial in found)
    assert len({trial.cell for trial in found}) == 1


def test_what_the_person_sets_is_not_chosen():
    assert trials([("method=coop", "plugin=[mbls]", "c=5")], GRIDS) == []


def test_the_lowest_mean_over_seeds_is_chosen(tmp_path):
    nll = {("a=1", "b=1"): [0.5, 0.1], ("a=2", "b=2"): [0.2, 0.2]}
    found = trials(RUNS, GRIDS)
    seen = {point: iter(values) for point, values in nll.items()}
    chosen = choose({trial: finished(tmp_path, trial, next(seen[trial.point])) for trial in found})
    assert [one.point for one in chosen] == [("a=2", "b=2")]
    assert chosen[0].scores[("a=1", "b=1")] == pytest.approx(0.3)
    runs = decided(RUNS, chosen)
    assert runs == (
        ("method=coop", "seed=1"),
        ("method=coop", "seed=1", "plugin=[margin, moments]", "a=2", "b=2"),
        ("method=coop", "seed=2"),
        ("method=coop", "seed=2", "plugin=[margin, moments]", "a=2", "b=2"),
    )
    assert json.loads(record(chosen))[0]["chosen"] == ["a=2", "b=2"]
    assert "pseudo-novel NLL" in chosen[0].sentence()
    assert chosen[0].sentence({"method=coop"}).startswith("plugin=[margin, moments]: a=2 b=2 (")


def test_grids_have_one_size():
    with pytest.raises(ConfigError, match=r"differ in size .*x: 1, y: 2"):
        read_grids("mine", {"x": [["a=1"]], "y": [["b=1"], ["b=2"]]})
    with pytest.raises(ConfigError, match="must be a list of lists"):
        read_grids("mine", {"x": ["a=1"]})


def test_the_table_of_tcpt_has_every_rival_on_every_learner():
    study = sweep.study(["experiment=tcpt_table", "seed=1"])
    assert len(study.runs) == 57
    assert len(trials(study.runs, study.grids)) == 7 * 6 * 3
    sweep.composed(study)


def test_a_swept_key_of_the_persons_leaves_the_runs_that_set_it_alone():
    study = sweep.study(["experiment=tcpt_table", "method=kgcoop", "seed=1"])
    methods = [next(word for word in run if word.startswith("method=")) for run in study.runs]
    assert methods == ["method=zero_shot", *["method=kgcoop"] * 8]
    assert len(trials(study.runs, study.grids)) == 6 * 3
    two = sweep.study(["experiment=tcpt_table", "method=kgcoop,coop_ep50", "seed=1"], multirun=True)
    assert len(two.runs) == 17


def test_a_study_chooses_and_then_runs(tmp_path, capsys):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "overrides: [dataset=digits, shots=4, training.epochs=2, training.batch_size=16, features.views=0]\n"
        "choose:\n  'plugin=[moments]':\n    - [losses.moments.weight=1]\n    - [losses.moments.weight=50]\n"
        "runs:\n  - [method=coop]\n  - [method=coop, 'plugin=[moments]']\n"
    )
    words = [f"experiment={mine}", f"runs={tmp_path}/runs", f"system.cache={tmp_path}/cache", "--quiet"]
    assert main(["run", *words]) == 0
    said = capsys.readouterr()
    assert "2 runs on pseudo-novel classes choose weights" in said.err
    (chosen,) = json.loads(next((tmp_path / "runs" / "reports").rglob("chosen.json")).read_text())
    best = min(chosen["pseudo_novel_nll"], key=lambda row: row["nats"])
    assert chosen["chosen"] == best["point"]
    assert main(["run", *words, "--dry"]) == 0
    assert "2 runs on pseudo-novel classes choose weights first" in capsys.readouterr().out
