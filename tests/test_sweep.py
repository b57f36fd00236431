"""Studies: products, zero-shot rows, experiments, and a sweep that is killed, doubled and broken and loses nothing."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image

import promptcal
from promptcal import experiment
from promptcal.cli import main
from promptcal.config import compose
from promptcal.errors import ConfigError, RunBusy
from promptcal.run import find_runs
from promptcal.sweep import Study, composed, experiments, product, study

FAST = ("training.epochs=3", "features.views=1", "shots=2", "system.threads=1", "calibrators=[none]")
SWEEP = ("method=zero_shot,coop,kgcoop", "dataset=digits,folder", "seed=1,2")


def words(place: Path, *more: str, cache: Path | None = None) -> list[str]:
    places = [f"runs={place / 'runs'}", f"system.cache={cache or place / 'cache'}"]
    return ["run", "-m", *more, *FAST, *places, "--quiet", "--no-report"]


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> str:
    """A folder of images of one's own, as an override; the digits, which need no folder, do not mind it."""
    place = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(0)
    for label, name in enumerate(("cat", "dog", "fish", "owl")):
        (place / name).mkdir()
        for i in range(12):
            pixels = np.clip(rng.normal(60 * label + 30, 20, (40, 48, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(place / name / f"{i}.png")
    return f"dataset.path={place}"


def numbers(place: Path) -> dict[str, bytes]:
    """Every file of every run that holds numbers, by its path below the runs."""
    runs = place / "runs"
    return {
        str(path.relative_to(runs)): path.read_bytes()
        for run in find_runs(runs)
        for path in sorted(run.path.rglob("*"))
        if path.is_file() and path.name not in ("run.json", "config.yaml")
    }


def start(arguments: list[str]) -> subprocess.Popen:
    """The command in a process group of its own, past its first word."""
    environment = {**os.environ, "PYTHONPATH": str(Path(promptcal.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "promptcal", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stderr.readline() == "12 runs\n"
    return process


@dataclass(frozen=True)
class Undisturbed:
    """A sweep that nobody disturbs: its command, numbers, cache of features, and the seconds it took."""

    words: tuple[str, ...]
    numbers: dict[str, bytes]
    cache: Path
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(own, tmp_path_factory) -> Undisturbed:
    place = tmp_path_factory.mktemp("undisturbed")
    started = time.perf_counter()
    assert main(words(place, *SWEEP, own)) == 0
    assert len(find_runs(place / "runs")) == 12
    return Undisturbed((*SWEEP, own), numbers(place), place / "cache", time.perf_counter() - started)


def test_a_sweep_killed_five_times_ends_with_the_same_bytes(undisturbed, tmp_path):
    moments = random.Random(5)
    codes = []
    for _ in range(5):
        process = start(words(tmp_path, *undisturbed.words))
        time.sleep(moments.uniform(0, undisturbed.seconds / 4))
        os.killpg(process.pid, signal.SIGKILL)
        process.stderr.close()
        codes.append(process.wait())
    assert codes[0] == -signal.SIGKILL
    assert set(codes) <= {-signal.SIGKILL, 0}
    assert main(words(tmp_path, *undisturbed.words)) == 0
    assert numbers(tmp_path) == undisturbed.numbers
    assert not list((tmp_path / "runs").rglob("*.partial"))
    assert not list((tmp_path / "runs").rglob("*.lock"))


def test_two_workers_started_at_once_finish_a_sweep_once(undisturbed, tmp_path):
    workers = [start(words(tmp_path, *undisturbed.words)) for _ in range(2)]
    lines = [line for worker in workers for line in worker.communicate()[1].splitlines() if line.startswith("[")]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert len(lines) == 24
    assert sum("is done already" in line for line in lines) == 12
    assert numbers(tmp_path) == undisturbed.numbers


@pytest.mark.parametrize(("name", "module", "more"), [("ray", "ray", ()), ("slurm", "submitit", ("cluster=local",))])
def test_clusters_give_the_same_bytes(name, module, more, undisturbed, tmp_path, monkeypatch):
    pytest.importorskip(module)
    monkeypatch.setenv("PYTHONPATH", str(Path(promptcal.__file__).parents[1]))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    options = [word for option in more for word in ("--option", option)]
    command = words(tmp_path, *undisturbed.words, cache=undisturbed.cache)
    assert main([*command, "--on", name, "--jobs", "2", *options]) == 0
    assert numbers(tmp_path) == undisturbed.numbers


def test_processes_give_the_same_bytes_and_broken_runs_leave_the_others_whole(own, undisturbed, tmp_path, capsys):
    wanted = ("method=zero_shot,coop,kgcoop", "dataset=digits,eurosat,folder", "seed=1,2", own)
    command = words(tmp_path, *wanted, cache=undisturbed.cache)
    command.remove("--no-report")
    assert main([*command, "--jobs", "2", "--out", str(tmp_path / "report")]) == 1
    shown = capsys.readouterr()
    assert "6 of 18 runs failed" in shown.err
    assert "eurosat coop 2 shots seed 1; eurosat" in shown.err.splitlines()[-1]
    assert "split_zhou_EuroSAT.json" in shown.err.splitlines()[-1]
    assert (tmp_path / "report" / "index.html").is_file()
    assert "6 more are not finished" in shown.out
    assert numbers(tmp_path) == undisturbed.numbers


def test_a_broken_card_in_the_middle_of_ones_own_experiment(tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(
        "title: Mine\nsweep: {seed: [1, 2]}\nruns:\n"
        "  - [method=zero_shot, dataset=digits]\n"
        "  - [method=zero_shot, dataset=digits, dataset.templates=oops]\n"
        "  - [method=coop, dataset=digits]\n"
    )
    mine = words(tmp_path, f"experiment={tmp_path / 'mine.yaml'}")
    assert main(mine) == 1
    error = capsys.readouterr().err
    assert "the templates of the data card 'digits' must be a list" in error
    assert len(find_runs(tmp_path / "runs")) == 4
    assert main([*mine, "--dry"]) == 1
    shown = capsys.readouterr().out
    assert "6 runs: 4 done, 0 to do, 2 broken" in shown


def test_what_every_run_refuses_is_one_sentence_and_code_2(tmp_path, capsys):
    assert main(words(tmp_path, "method=coop", "dataset=eurosat", "data.root=/nowhere", "seed=1,2")) == 2
    assert "promptcal run: there is no folder /nowhere/eurosat" in capsys.readouterr().err


def stopped_after(monkeypatch, config, epoch):
    own = experiment.write_state

    def write(path, state, made):
        own(path, state, made)
        if len(state.history) == epoch:
            raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "write_state", write)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(config, quiet=True)
    monkeypatch.undo()
    return experiment.prepare(config).folder


def one(place: Path, *more: str):
    return compose(["method=coop", *FAST, f"runs={place / 'runs'}", f"system.cache={place / 'cache'}", *more])


def test_a_run_goes_on_inside_its_training(tmp_path, monkeypatch):
    whole = experiment.run(one(tmp_path / "whole", "training.evaluate_every=1"), quiet=True)
    config = one(tmp_path / "stopped", "training.evaluate_every=1")
    folder = stopped_after(monkeypatch, config, 2)
    assert [path.name for path in folder.partial.iterdir()] == ["state.safetensors"]
    said = []
    experiment.run(config, quiet=True, say=said.append)
    assert f"{folder.path} goes on after epoch 2" in said
    assert folder.info["resumed_after_epoch"] == 2
    assert whole.info["resumed_after_epoch"] is None
    assert numbers(tmp_path / "stopped") == numbers(tmp_path / "whole")


def test_a_broken_or_foreign_state_is_thrown_away_with_a_word(tmp_path, monkeypatch):
    config = one(tmp_path)
    folder = stopped_after(monkeypatch, config, 1)
    (folder.partial / "left.txt").write_text("over")
    folder.state.write_bytes(folder.state.read_bytes()[:100])
    said = []
    experiment.run(config, quiet=True, say=said.append)
    assert any("starts again from its beginning" in line and "not a whole safetensors file" in line for line in said)
    assert not (folder.path / "left.txt").exists()
    assert [row["epoch"] for row in folder.history] == [1, 2, 3]


def test_a_run_that_another_process_is_at_is_left_alone(tmp_path):
    config = one(tmp_path, "method=zero_shot")
    folder = experiment.prepare(config).folder
    with folder.claimed(), pytest.raises(RunBusy, match="another process"):
        experiment.run(config, wait=False, quiet=True)
    assert not folder.is_done


def test_products():
    assert product(["a=1,2", "b=[x,y]", "c=range(0,2)"]) == (
        ("a=1", "b=[x,y]", "c=0"),
        ("a=1", "b=[x,y]", "c=1"),
        ("a=2", "b=[x,y]", "c=0"),
        ("a=2", "b=[x,y]", "c=1"),
    )
    assert product(["plugin=[],[margin,moments]"]) == (("plugin=[]",), ("plugin=[margin,moments]",))
    assert product(["split_seed=null,3", "x='a,b'"]) == (("split_seed=null", "x='a,b'"), ("split_seed=3", "x='a,b'"))
    with pytest.raises(ConfigError, match="cannot be read"):
        product(["plugin=[margin"])


def test_zero_shot_rows_are_shared_and_not_repeated():
    wanted = study(["method=zero_shot,coop,kgcoop", "seed=1,2", "training.epochs=2"], multirun=True)
    configs = composed(wanted)
    assert [config.choices.method for config in configs].count("zero_shot") == 2
    assert len(configs) == 6
    same = Study("s", "s", (("method=coop", "seed=1"), ("seed=1", "method=coop"), ("method=coop",)))
    assert len(composed(same)) == 1
    alone = composed(study(["method=zero_shot"]))
    beside = composed(study(["method=coop"]))[0]
    assert alone == (beside,)


def test_several_values_need_the_switch():
    with pytest.raises(ConfigError, match="add -m"):
        study(["method=coop", "seed=1,2"])
    assert len(study(["method=coop", "plugin=[margin,moments]"]).runs) == 2


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_is_a_study_of_runs_that_compose(name):
    wanted = study([f"experiment={name}"])
    assert wanted.title != name
    kinds = list(dict.fromkeys(tuple(word for word in run if "seed" not in word) for run in wanted.runs))
    for run in kinds[:: max(1, len(kinds) // 12)]:  # a large product repeats its parts
        compose(run)


def test_runs_that_differ_in_draws_alone_are_composed_as_each_by_itself():
    runs = (
        ("method=coop", "seed=3", "shots=2"),
        ("seed=5", "method=coop", "split_seed=7"),
        ("method=coop", "split_seed=null", "seed=5"),
        ("method=coop", "shots=-1"),
    )
    found = composed(Study("mine", "mine", runs))
    assert [OmegaConf.to_container(config) for config in found] == [
        OmegaConf.to_container(compose(run)) for run in runs
    ]
    with pytest.raises(ConfigError, match="seed must be a whole number, not 'x'"):
        composed(Study("mine", "mine", (("method=coop", "seed=x"),)))


def test_the_class_splits_of_the_digits():
    runs = study(["experiment=digits_splits"]).runs
    assert len(runs) == len(set(runs)) == 240
    few = study(["experiment=digits_splits", "split_seed=3,4", "seed=7"], multirun=True)
    assert len(few.runs) == 8
    assert {(config.seed, config.split_seed) for config in composed(few)} == {(7, 3), (7, 4)}
    assert len(study(["experiment=quickstart", "seed=1,2"], multirun=True).runs) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runs: []", "lists no runs"),
        ("runs: [[method=coop]]\nsweeps: {seed: [1]}", "Did you mean 'sweep'"),
        ("runs: [[method=coop]]\nsweep: {seed: 1}", "must be a list"),
    ],
)
def test_a_faulty_experiment_is_named(text, message, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        study([f"experiment={tmp_path / 'mine.yaml'}"])
    with pytest.raises(ConfigError, match="no experiment file"):
        study(["experiment=/nowhere.yaml"])
