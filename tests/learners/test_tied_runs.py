"""A learner that is tied to its classes is run on base alone, and says so."""

import pytest

from promptcal import experiment
from promptcal.config import compose
from promptcal.errors import ConfigError
from promptcal.predictor import load
from promptcal.report import write_report
from promptcal.run import find_runs

FAST = ["training.epochs=1", "features.views=0", "shots=2", "system.threads=1", "calibrators=[none]"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("tied")
    for method in ("taskres", "zero_shot"):
        words = [*FAST, f"method={method}", f"runs={place / 'runs'}", f"system.cache={place / 'cache'}"]
        experiment.run(compose(words), quiet=True)
    return place / "runs"


def test_novel_is_left_out_with_a_sentence(runs):
    (folder,) = find_runs(runs / "digits" / "taskres")
    assert {row["split"] for row in folder.metrics} == {"base"}
    assert folder.info["notes"] == [
        "TaskRes learns something for each of its 5 classes and serves no others, so 'novel' is left out."
    ]
    assert not (folder.path / "predictions" / "novel.safetensors").exists()
    assert load(folder.path).classes == ("zero", "one", "two", "three", "four")
    with pytest.raises(ConfigError, match="cannot serve other classes"):
        load(folder.path, split="novel")


def test_a_report_has_it_beside_runs_with_novel_classes(runs, tmp_path):
    write_report(find_runs(runs), tmp_path / "report", title="Two runs")
    table = next((tmp_path / "report").glob("*.md")).read_text(encoding="utf-8")
    assert "TaskRes" in table
    assert "zero-shot CLIP" in table
