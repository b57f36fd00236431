"""Whole runs of every protocol on real images, one epoch each: what is on disk, in the metrics and in the report."""

import itertools
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from promptcal import experiment
from promptcal.calibrators import CalibrationWarning
from promptcal.cli import main
from promptcal.config import compose
from promptcal.metrics import joint
from promptcal.predictor import load
from promptcal.preparation import prepare
from promptcal.report import rescore
from promptcal.run import RunFolder

FAST = ["method=coop", "training.epochs=1", "features.views=1", "system.threads=1"]
FEW = 2


@pytest.fixture(scope="module")
def images(test_data, tmp_path_factory) -> Path:
    """EuroSAT and DTD with their real images and split files, of which a few test images a class are kept."""
    root = tmp_path_factory.mktemp("root")
    for name in ("eurosat", "dtd"):
        (root / name).mkdir()
        for entry in (test_data / "images" / name).iterdir():
            if entry.is_dir():
                (root / name / entry.name).symlink_to(entry)
            elif entry.suffix == ".json":
                split = json.loads(entry.read_text())
                split["test"] = [row for number, row in enumerate(split["test"]) if number % 10 == 0]
                (root / name / entry.name).write_text(json.dumps(split))
    return root


@pytest.fixture(scope="module")
def runs(images, tmp_path_factory):
    """Carries out a run below one folder, with one feature cache."""
    place = tmp_path_factory.mktemp("runs")

    def run(*words: str) -> RunFolder:
        shared = [*FAST, f"data.root={images}", f"runs={place}", f"system.cache={place / 'cache'}"]
        return experiment.run(compose([*shared, *words]), quiet=True)

    return run


@pytest.fixture(scope="module")
def crossed(runs) -> RunFolder:
    return runs(
        "dataset=eurosat", f"shots={FEW}", "protocol=cross_dataset", "protocol.targets=[dtd]",
        "calibrators=[none,temperature,vector]",
    )  # fmt: skip


@pytest.fixture(scope="module")
def few(runs) -> list[RunFolder]:
    words = ("dataset=eurosat", "protocol=few_shot", "calibrators=[none]")
    return [runs(*words, f"shots={shots}") for shots in (1, FEW)]


@pytest.fixture(scope="module")
def jointly(runs) -> RunFolder:
    calibrators = "calibrators=[none,temperature,vector,dac]"
    return runs("dataset=dtd", f"shots={FEW}", "protocol.target=all", calibrators)


def splits_of(folder: RunFolder) -> dict[str, set[str]]:
    """By calibrator, the splits it has metrics of."""
    found: dict[str, set[str]] = {}
    for row in folder.metrics:
        found.setdefault(row["calibrator"], set()).add(row["split"])
    return found


def value(folder: RunFolder, split: str, metric: str, calibrator: str = "none") -> float:
    (row,) = [
        row
        for row in folder.metrics
        if (row["split"], row["metric"], row["calibrator"]) == (split, metric, calibrator)
        and row.get("bins") in (None, 15)
    ]
    return row["value"]


def test_cross_dataset_tests_both_with_their_own_classes_and_texts(crossed, images):
    targets = crossed.task["targets"]
    assert set(targets) == {"eurosat", "dtd"}
    assert list(dict.fromkeys(row["split"] for row in crossed.metrics)) == ["eurosat", "dtd"]
    assert load(crossed.path).classes == tuple(targets["eurosat"]["classes"])
    assert targets["dtd"]["templates"] == ["{} texture."]
    assert targets["eurosat"]["templates"] == ["a centered satellite photo of {}."]
    assert crossed.task["train"]["classes"] == targets["eurosat"]["classes"]
    dtd = crossed.predictions("dtd")
    assert dtd.classes == tuple(targets["dtd"]["classes"])
    assert value(crossed, "dtd", "accuracy") == pytest.approx((dtd.logits.argmax(1) == dtd.labels).mean())
    assert not (set(crossed.predictions("val").paths) & set(crossed.predictions("eurosat").paths))
    predictor = load(crossed.path, split="dtd", calibrator="temperature")
    again = predictor.predictions([images / "dtd" / dtd.paths[0]])
    assert np.allclose(again.logits[0], dtd.logits[0], atol=1e-3)


def test_a_class_tied_calibrator_is_left_out_where_the_classes_are_others(crossed, tmp_path, capsys):
    found = splits_of(crossed)
    assert found == {"none": {"eurosat", "dtd"}, "temperature": {"eurosat", "dtd"}, "vector": {"eurosat"}}
    note = "'vector' is tied to the classes it was fitted on and left out on 'dtd', which has others."
    assert note in crossed.info["notes"]
    with pytest.warns(CalibrationWarning, match="'matrix' is tied"):
        rows = rescore(crossed, ["matrix"])
    assert {row["split"] for row in rows} == {"eurosat"}
    words = ["rescore", str(crossed.path), "--calibrators", "none,vector", "--out", str(tmp_path / "report")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert f"note: {note}" in shown
    assert "Cross-dataset calibration, rescored" in (tmp_path / "report" / "index.html").read_text()


def test_one_report_of_all_protocols_with_their_targets_and_curves(crossed, few, jointly, tmp_path, capsys):
    places = [str(folder.path) for folder in (crossed, *few, jointly)]
    assert main(["report", *places, "--out", str(tmp_path / "report")]) == 0
    shown = capsys.readouterr().out
    assert "EuroSAT, model mini, protocol cross_dataset, 2 shots" in shown
    heads = next(line for line in shown.splitlines() if "- eurosat -" in line)
    assert "- dtd -" in heads
    assert "Lowest dtd ECE" in shown
    assert "EuroSAT, model mini, protocol few_shot, 1 shot" in shown
    assert "Describable Textures, model mini, protocol base_to_novel_all, 2 shots: accuracy" in shown
    page = (tmp_path / "report" / "index.html").read_text()
    assert "<h1>Calibration</h1>" in page
    assert "Accuracy, ECE and NLL against shots: eurosat, model mini, protocol few_shot" in page
    assert "NLL, nats" in page


def test_few_shot_trains_and_tests_on_all_classes(few):
    for folder in few:
        assert set(folder.task["targets"]) == {"test"}
        assert len(folder.task["train"]["classes"]) == 10
        assert splits_of(folder)["none"] == {"test"}
    assert load(few[1].path).classes == few[1].predictions("test").classes
    assert len(few[1].task["train"]["train"]) == FEW * 10


def test_base_and_novel_among_all_classes(runs, jointly):
    folder = jointly
    both = folder.predictions("all")
    assert not (folder.path / "predictions" / "all.safetensors").exists()
    assert len(both.classes) == 10
    assert folder.predictions("val").classes == both.classes[:5]
    expected = joint(both, both.classes[:5])
    for split in ("all", "base", "novel"):
        for row in expected[split]:
            if row.metric in ("accuracy", "nll", "ece") and row.bins in (None, 15):
                assert value(folder, split, row.metric) == pytest.approx(row.value)
    found = splits_of(folder)
    assert "vector" not in found
    assert found["dac"] == found["temperature"] == {"base", "novel", "base+novel", "all"}
    assert any("'vector' is tied" in note for note in folder.info["notes"])
    assert any("among base and novel classes together" in note for note in folder.info["notes"])
    usual = runs("dataset=dtd", f"shots={FEW}", "calibrators=[none]")
    assert usual.task["train"] == folder.task["train"]
    assert value(usual, "base", "accuracy") >= value(folder, "base", "accuracy")


@pytest.mark.parametrize("kind", ["own", "source"])
def test_domain_shift_of_two_folders(runs, test_data, tmp_path, kind):
    cifar = some_of(test_data / "images" / "cifar10", tmp_path / "cifar10", 10)
    natural, other = tmp_path / "natural", tmp_path / "other"
    for place, names in ((natural, ("cat", "dog", "frog")), (other, ("frog", "cat"))):
        for split, name in itertools.product(("train", "test"), names):
            (place / split).mkdir(parents=True, exist_ok=True)
            (place / split / name).symlink_to(cifar / split / name)
    folder = runs(
        "dataset=folder", f"dataset.path={natural}", "dataset.name=natural", f"shots={FEW}", "protocol=domain_shift",
        f"protocol.targets=[{{name: medical, path: {other}}}]", f"protocol.classes={kind}", "calibrators=[none,vector]",
        "calibration.split=from_train",
    )  # fmt: skip
    assert set(folder.task["targets"]) == {"natural", "medical"}
    assert folder.task["targets"]["medical"]["classes"] == (
        ["cat", "frog"] if kind == "own" else ["cat", "dog", "frog"]
    )
    assert splits_of(folder)["vector"] == ({"natural"} if kind == "own" else {"natural", "medical"})
    assert len(folder.predictions("val").labels) == FEW * 3


def some_of(folder: Path, place: Path, count: int) -> Path:
    """A folder with the first images of each class of both splits of another."""
    for source in (path for split in ("train", "test") for path in (folder / split).iterdir()):
        own = place / source.parent.name / source.name
        own.mkdir(parents=True)
        for image in sorted(source.iterdir())[:count]:
            (own / image.name).symlink_to(image)
    return place


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_own_folders_of_cifar10_and_mnist(runs, test_data, tmp_path, name):
    own = some_of(test_data / "images" / name, tmp_path / name, 10)
    found = runs("dataset=folder", f"dataset.path={own}", "shots=1", "protocol=few_shot", "calibrators=[none]")
    assert len(found.task["train"]["classes"]) == 10
    assert len(found.predictions("test").labels) == 100
    assert value(found, "test", "accuracy") > 0.05


def test_a_source_whose_validation_images_are_its_test_images_is_refused_where_one_learns(images, tmp_path, capsys):
    root = tmp_path / "root"
    (root / "eurosat").mkdir(parents=True)
    for entry in (images / "eurosat").iterdir():
        (root / "eurosat" / entry.name).symlink_to(entry.resolve())
    split = next((root / "eurosat").glob("*.json"))
    content = json.loads(split.read_text())
    split.unlink()
    split.write_text(json.dumps(content | {"val": content["test"]}))
    words = [*FAST, f"data.root={root}", f"runs={tmp_path}", "dataset=eurosat", "shots=1", "protocol=few_shot"]
    assert main(["run", *words, "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "'temperature' is fitted on validation images and this data set has none besides its test images" in error
    assert "calibration.split=from_train" in error
    prepared = prepare(compose([*words, "calibrators=[none]"]))
    assert not prepared.splits.train.val
    assert "are test images, too" in prepared.splits.notes[0]
    assert prepare(compose([*words, "calibration.split=from_train"])).splits.train.val


def test_a_moved_target_is_the_same_run_and_mistakes_are_sentences(images, tmp_path, capsys):
    def name(place):
        target = f"protocol.targets=[{{card: dtd, path: {place}}}]"
        words = [*FAST, f"data.root={images}", f"runs={tmp_path}", "dataset=eurosat", "protocol=cross_dataset", target]
        return prepare(compose(words)).folder.path.name

    (tmp_path / "elsewhere").symlink_to(images / "dtd")
    assert name(images / "dtd") == name(tmp_path / "elsewhere")
    words = ["run", *FAST, f"data.root={images}", f"runs={tmp_path}", "dataset=eurosat", "protocol=cross_dataset"]
    for target, message in (
        ("[]", "protocol.targets=[dtd,eurosat]"),
        ("[dtdd]", "Did you mean 'dtd'"),
        ("[oxford_pets]", "there is no folder"),
        ("[eurosat]", "two data sets to test on are called 'eurosat'"),
    ):
        assert main([*words, f"protocol.targets={target}", "--quiet"]) == 2
        assert message in capsys.readouterr().err


def test_nothing_is_said_where_all_calibrators_serve_all_splits(crossed):
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        rescore(crossed, ["none"])
