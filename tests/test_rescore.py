"""Other calibrators on stored predictions: the rows a run would have written, and the run left as it was."""

import pytest

from promptcal import experiment
from promptcal.cli import main
from promptcal.config import compose
from promptcal.run import find_runs

FAST = ["method=coop", "training.epochs=1", "features.views=1", "shots=4", "system.threads=1"]


def contents(place):
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    words = [*FAST, f"system.cache={place / 'cache'}"]
    experiment.run(compose([*words, "calibrators=[none]", f"runs={place / 'runs'}"]), quiet=True)
    both = "calibrators=[none,histogram,dac+temperature]"
    experiment.run(compose([*words, both, f"runs={place / 'both'}"]), quiet=True)
    return place


def test_rescoring_gives_what_a_run_gives_and_leaves_the_run_alone(place, tmp_path, capsys):
    before = contents(place / "runs")
    command = ["rescore", str(place / "runs"), "--calibrators", "histogram,dac+temperature", "--out", str(tmp_path)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert (tmp_path / "index.html").is_file()
    assert "page: " in shown
    (rescored,) = find_runs(tmp_path)
    (as_run,) = find_runs(place / "both")
    (run,) = find_runs(place / "runs")
    assert (rescored.path / "metrics.jsonl").read_bytes() == (as_run.path / "metrics.jsonl").read_bytes()
    assert rescored.path.relative_to(tmp_path / "runs") == run.path.relative_to(place / "runs")
    assert rescored.config.calibrators == ["none", "histogram", "dac+temperature"]
    assert contents(place / "runs") == before
    assert main(command) == 0  # a second time, over what the first has written
    assert len(find_runs(tmp_path)) == 1
    assert contents(place / "runs") == before


def test_mistakes_are_named_and_other_runs_still_reported(place, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    assert main(["rescore", str(place / "runs"), "--calibrators", "histogramm", *out]) == 2
    assert "Did you mean 'histogram'" in capsys.readouterr().err
    assert main(["rescore", str(tmp_path / "nowhere"), "--calibrators", "none", *out]) == 2
    capsys.readouterr()
    (run,) = find_runs(place / "runs")
    broken = tmp_path / "broken" / "digits" / "coop" / "deadbeef"
    for path, content in contents(run.path).items():
        copy = broken / path.relative_to(run.path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
    (broken / "predictions" / "val.safetensors").unlink()
    both = ["rescore", str(place / "runs"), str(tmp_path / "broken"), "--calibrators", "temperature", *out]
    assert main(both) == 1
    error = capsys.readouterr().err
    assert "1 of 2 runs could not be rescored" in error
    assert "fitted on validation images" in error
    assert len(find_runs(tmp_path / "out")) == 1
