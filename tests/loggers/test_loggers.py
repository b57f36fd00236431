"""Loggers: what they are told, that they are closed, and what is said where a package is missing."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from promptcal.errors import ConfigError
from promptcal.loggers.contract import About, log_epoch, log_metrics, names, open_loggers

CONFIG = {
    "choices": {"dataset": "digits", "model": "mini", "method": "coop", "plugin": []},
    "seed": 1,
    "split_seed": None,
    "shots": 2,
}
EPOCH = {"epoch": 2, "lr": 0.1, "steps": 3, "total": 1.5, "accuracy": 0.5}
METRICS = [
    {"calibrator": "none", "split": "base", "metric": "ece", "bins": 10, "value": 0.3},
    {"calibrator": "none", "split": "base", "metric": "ece", "bins": 15, "value": 0.25},
    {"calibrator": "none", "split": "novel", "metric": "accuracy", "bins": None, "value": 0.75},
    {"calibrator": "none", "split": "novel", "metric": "auroc", "bins": None, "value": None},
]
EXPECTED = [
    ("train/lr", 0.1, 2),
    ("train/total", 1.5, 2),
    ("train/accuracy", 0.5, 2),
    ("none/base/ece", 0.25, 2),
    ("none/novel/accuracy", 0.75, 2),
]


@pytest.fixture
def about(tmp_path) -> About:
    return About("digits/coop/1a2b3c4d", CONFIG, tmp_path / "logs")


def logged(name: str, about: About) -> None:
    with open_loggers([name], about) as loggers:
        log_epoch(loggers, EPOCH)
        log_metrics(loggers, METRICS, 2)


class FakeWandb(ModuleType):
    def __init__(self):
        super().__init__("wandb")
        self.settings, self.seen, self.finished = {}, [], 0

    def init(self, **settings):
        self.settings = settings
        return self

    def log(self, values, step):
        self.seen += [(name, value, step) for name, value in values.items()]

    def finish(self):
        self.finished += 1


class FakeMlflow(ModuleType):
    def __init__(self):
        super().__init__("mlflow")
        self.runs, self.params, self.seen, self.ended = [], {}, [], 0
        self.MlflowClient = lambda: self

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id="7") if self.runs else None

    def create_experiment(self, name):
        return "7"

    def search_runs(self, experiments, filter_string):
        return [run for run in self.runs if run.tag in filter_string]

    def create_run(self, experiment, run_name, tags):
        run = SimpleNamespace(tag=f"'{tags['promptcal.run']}'", info=SimpleNamespace(run_id=f"r{len(self.runs)}"))
        self.runs.append(run)
        return run

    def log_param(self, run, key, value):
        self.params[key] = value

    def log_metric(self, run, name, value, step):
        self.seen.append((name, value, step))

    def set_terminated(self, run):
        self.ended += 1


def test_wandb_gets_every_number_once(about, monkeypatch):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    logged("wandb", about)
    assert wandb.seen == EXPECTED
    assert wandb.finished == 1
    assert wandb.settings["id"] == "digits-coop-1a2b3c4d"
    assert wandb.settings["resume"] == "allow"


def test_mlflow_gets_every_number_once_and_goes_on_with_its_run(about, monkeypatch):
    mlflow = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    logged("mlflow", about)
    assert mlflow.seen == EXPECTED
    assert mlflow.params["method"] == "coop"
    logged("mlflow", about)
    assert len(mlflow.runs) == 1
    assert mlflow.ended == 2


def test_tensorboard_writes_event_files(about):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged("tensorboard", about)
    events = EventAccumulator(str(about.folder / "tensorboard")).Reload()
    found = [(name, pytest.approx(e.value), e.step) for name in events.Tags()["scalars"] for e in events.Scalars(name)]
    assert sorted(found, key=lambda row: row[0]) == sorted(EXPECTED)


def test_a_logger_is_closed_when_the_run_breaks(about, monkeypatch):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(RuntimeError), open_loggers("wandb", about):
        raise RuntimeError
    assert wandb.finished == 1


@pytest.mark.parametrize("name", names())
def test_a_missing_package_is_one_sentence(name, about, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install 'promptcal\[{name}\]'"), open_loggers([name], about):
        pass


def test_an_unknown_logger_names_the_nearest(about):
    with pytest.raises(ConfigError, match="Did you mean 'tensorboard'"), open_loggers("tensorbord", about):
        pass


def test_nothing_is_logged_where_nothing_is_wanted(about):
    with open_loggers(None, about) as loggers:
        log_epoch(loggers, EPOCH)
    assert not Path(about.folder).exists()
