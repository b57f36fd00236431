"""The whole line on the embedded model: runs, the second time, byte-identity, and what happens when things go wrong."""

import json
from pathlib import Path

import numpy as np
import pytest

from promptcal import experiment
from promptcal.cli import main
from promptcal.config import compose
from promptcal.errors import DataError
from promptcal.metrics import ece
from promptcal.report import rescore
from promptcal.run import RunFolder, find_runs
from promptcal.storage import load_predictions

FAST = ["training.epochs=2", "features.views=1", "shots=4", "system.threads=1"]


def overrides(tmp_path: Path, *more: str) -> list[str]:
    return [*FAST, f"runs={tmp_path / 'runs'}", f"system.cache={tmp_path / 'cache'}", *more]


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("run.json", "config.yaml")
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> RunFolder:
    place = tmp_path_factory.mktemp("finished")
    return experiment.run(compose(overrides(place, "method=coop", "plugin=[margin,moments]")), quiet=True)


def test_a_run_leaves_everything_it_should(finished):
    names = set(files(finished.path))
    assert names == {
        "task.json",
        "learner.safetensors",
        "history.jsonl",
        "metrics.jsonl",
        "diagnostics.jsonl",
        *(f"predictions/{split}.safetensors" for split in ("val", "base", "novel")),
    }
    assert not finished.partial.exists()
    assert [row["epoch"] for row in finished.history] == [1, 2]
    assert {"cross_entropy", "margin", "moments", "total", "lr", "accuracy"} <= finished.history[0].keys()
    info = finished.info
    assert info["packages"]["torch"]
    assert info["promptcal"]
    assert info["learned_parameters"] == finished.learner_state()["context"].numel()
    rows = finished.metrics
    assert {row["calibrator"] for row in rows} == {"none", "temperature", "route", "mix"}
    assert {row["split"] for row in rows} == {"base", "novel", "base+novel"}
    assert {row["bins"] for row in rows if row["metric"] == "ece"} == {10, 15, 20}
    assert not any("second" in key or "/" in str(value) for row in rows for key, value in row.items())
    assert all(np.isfinite(row["value"]) for row in rows if row["value"] is not None)


def test_the_stored_predictions_give_the_stored_metrics(finished):
    predictions = load_predictions(finished.path / "predictions" / "base.safetensors")
    accuracy = (predictions.logits.argmax(1) == predictions.labels).mean()
    (row,) = [
        row
        for row in finished.metrics
        if (row["metric"], row["split"], row["calibrator"]) == ("accuracy", "base", "none")
    ]
    assert row["value"] == pytest.approx(accuracy)
    assert row["n"] == len(predictions.labels)
    assert predictions.classes == ("zero", "one", "two", "three", "four")
    assert finished.task["train"]["classes"] == list(predictions.classes)
    assert not {path for path, _ in finished.task["train"]["train"]} & set(predictions.paths)


def test_base_and_novel_read_together_are_rows_of_every_calibrator(finished):
    for calibrator in ("none", "temperature", "route", "mix"):
        known = {
            (row["split"], row["metric"]): row["value"]
            for row in finished.metrics
            if row["calibrator"] == calibrator and row["bins"] in (None, 15)
        }
        base, novel = known["base", "accuracy"], known["novel", "accuracy"]
        assert known["base+novel", "accuracy_harmonic_mean"] == pytest.approx(2 / (1 / base + 1 / novel))
        assert known["base+novel", "ece_worst"] == max(known["base", "ece"], known["novel", "ece"])


def test_rescoring_with_its_own_calibrators_gives_the_rows_of_the_run(finished):
    assert rescore(finished, ["none", "temperature", "route", "mix"]) == finished.metrics


def test_the_same_command_gives_the_same_bytes_and_a_done_run_is_found(finished, tmp_path):
    again = experiment.run(compose(overrides(tmp_path, "method=coop", "plugin=[margin,moments]")), quiet=True)
    assert files(again.path) == files(finished.path)
    assert again.path.name == finished.path.name
    stamp = (again.path / "run.json").stat().st_mtime_ns
    said = []
    experiment.run(compose(overrides(tmp_path, "method=coop", "plugin=[margin,moments]")), quiet=True, say=said.append)
    assert said == [f"{again.path} is done already"]
    assert (again.path / "run.json").stat().st_mtime_ns == stamp


def test_the_hash_covers_numbers_and_nothing_else(tmp_path):
    def name(*more):
        return experiment.prepare(compose(overrides(tmp_path, "method=coop", *more))).folder.path.name

    plain = name()
    assert name("system.memory_gb=1", f"runs={tmp_path / 'elsewhere'}", "data.root=/nowhere") == plain
    changes = ("seed=2", "training.lr=0.1", "split_seed=0", "shots=8", "precision=bfloat16")
    assert len({plain, *map(name, changes)}) == 6


def test_a_run_that_breaks_leaves_nothing_half_written(tmp_path, monkeypatch):
    config = compose(overrides(tmp_path, "method=coop"))

    def broken(*args, **kwargs):
        raise DataError("the disk is gone.")

    monkeypatch.setattr(experiment, "measure_all", broken)
    with pytest.raises(DataError, match="disk is gone"):
        experiment.run(config, quiet=True)
    folder = experiment.prepare(config).folder
    assert not folder.path.exists()
    with pytest.raises(DataError, match="no finished run"):
        find_runs(tmp_path / "runs")
    monkeypatch.undo()
    assert experiment.run(config, quiet=True).is_done


def test_base_and_novel_can_be_measured_every_epoch(tmp_path):
    run = experiment.run(compose(overrides(tmp_path, "method=coop", "training.evaluate_every=1")), quiet=True)
    for row in run.history:
        assert {"base_accuracy", "base_ece", "novel_accuracy", "novel_ece"} <= row.keys()
    for split in ("base", "novel"):
        predictions = run.predictions(split)
        assert run.history[-1][f"{split}_ece"] == pytest.approx(ece(predictions.probs(), predictions.labels, bins=15))


def test_run_shows_a_table_and_a_page_and_the_second_time_at_once(tmp_path, capsys):
    words = ["run", "method=coop", *overrides(tmp_path), "--quiet"]
    assert main(words) == 0
    first = capsys.readouterr()
    assert "novel" in first.out
    page = next(Path(line.split(": ")[1]) for line in first.out.splitlines() if line.startswith("page: "))
    assert page.is_file()
    assert main(words) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert second.err.count("is done already") == 2


def test_the_quickstart_lists_its_runs(tmp_path, capsys):
    assert main(["run", "--dry", *overrides(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    methods = ["zero_shot", "coop", "coop+margin+moments"]
    assert [line[8:].split("  ")[0] for line in lines[:3]] == [f"digits {method} 4 shots seed 1" for method in methods]
    assert all(line.startswith("to do ") for line in lines[:3])
    assert lines[3] == "3 runs: 0 done, 3 to do"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["method=cop"], "Did you mean 'coop'"),
        (["dataset=oxford_pets"], "data.root"),
        (["dataset=oxford_pets", "data.root=/nowhere"], "there is no folder /nowhere/oxford_pets"),
        (["dataset=folder", "dataset.path=/nowhere"], "there is no folder /nowhere"),
        (["model=vit_b16"], "model.download=true"),
        (["model=vit_b16", "model.architecture=ViT-B-16"], "model.architecture=ViT-B-16-quickgelu"),
        (["model=vit_b16", "model.weights=/nowhere.pt"], "no weights file /nowhere.pt"),
        (["method=coop", "precision=fp16"], "unknown precision 'fp16'"),
        (["method=coop", "calibration.split=val"], "unknown calibration.split 'val'"),
        (["method=coop", "system.device=gpu"], "unknown device 'gpu'"),
        (["method=coop", "calibrators=[temprature]"], "Did you mean 'temperature'"),
    ],
)
def test_mistakes_are_one_sentence_and_a_code(tmp_path, words, message, capsys):
    assert main(["run", *overrides(tmp_path), *words, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.rglob("run.json"))


def make_folder(place: Path, classes=("cat", "dog", "fish", "owl"), n=12) -> Path:
    from PIL import Image

    rng = np.random.default_rng(0)
    for label, name in enumerate(classes):
        (place / name).mkdir(parents=True)
        for i in range(n):
            pixels = np.clip(rng.normal(60 * label + 30, 20, (40, 48, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(place / name / f"{i}.png")
    return place


def test_other_images_under_the_same_names_are_another_run(tmp_path):
    def name():
        config = compose(overrides(tmp_path, "method=coop", "dataset=folder", f"dataset.path={own}", "shots=2"))
        return experiment.prepare(config).folder.path.name

    own = make_folder(tmp_path / "own")
    first = name()
    moved = own.rename(tmp_path / "moved")
    own = moved
    assert name() == first
    for path in (own / "cat").iterdir():
        path.write_bytes((own / "dog" / path.name).read_bytes())
    assert name() != first


def test_text_terms_are_refused_where_nothing_is_learned(tmp_path, capsys):
    assert main(["run", *overrides(tmp_path), "method=zero_shot", "plugin=[moments]", "--quiet"]) != 0
    assert "learns nothing" in capsys.readouterr().err


def test_own_images_in_a_folder(tmp_path):
    own = make_folder(tmp_path / "own")
    config = compose(overrides(tmp_path, "method=coop", "dataset=folder", f"dataset.path={own}", "shots=2"))
    run = experiment.run(config, quiet=True)
    assert run.task["targets"]["base"]["classes"] == ["cat", "dog"]
    assert run.task["targets"]["novel"]["classes"] == ["fish", "owl"]


def test_a_broken_image_stops_with_its_name(tmp_path, capsys):
    own = make_folder(tmp_path / "own")
    for path in (own / "cat").glob("*.png"):
        path.write_bytes(b"not an image")
    words = overrides(tmp_path, "method=coop", "dataset=folder", f"dataset.path={own}", "shots=2")
    assert main(["run", *words, "--quiet"]) == 2
    assert "cat/" in capsys.readouterr().err
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize(("dataset", "classes"), [("eurosat", 5), ("dtd", 5)])
def test_real_layouts_run_through_the_same_command(dataset, classes, test_data, tmp_path, capsys):
    words = overrides(tmp_path, f"dataset={dataset}", f"data.root={test_data / 'images'}", "method=coop", "shots=1")
    assert main(["run", *words, "--quiet"]) == 0
    run = next(run for run in find_runs(tmp_path / "runs" / dataset) if "coop" in str(run.path))
    assert len(run.task["targets"]["novel"]["classes"]) == classes
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["cocoop", "maple", "kgcoop"])
def test_every_method_runs_end_to_end(method, tmp_path):
    config = compose(
        overrides(tmp_path, f"method={method}", "plugin=[margin,moments]", "training.epochs=1", "calibrators=[none]")
    )
    run = experiment.run(config, quiet=True)
    assert {row["split"] for row in run.metrics} == {"base", "novel", "base+novel"}
    assert json.loads((run.path / "run.json").read_text())["learned_parameters"] > 0
