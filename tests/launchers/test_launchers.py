"""Every launcher: one outcome a job, whatever becomes of its worker."""

import os
import sys

import pytest

from promptcal.errors import ConfigError
from promptcal.jobs import Job
from promptcal.launchers.contract import Resources, launcher, names, with_threads
from promptcal.launchers.processes import visible_devices

MODULES = {"ray": "ray", "slurm": "submitit"}
OPTIONS = {"slurm": {"cluster": "local"}}
CONFIG = {"system": {"threads": None}}


class Deadly:
    """Ends the process that unpickles it, as a process ends that runs out of memory."""

    def __reduce__(self):
        return (os._exit, (7,))


def job(number, **more):
    return Job(number, "a run", {**CONFIG, **more}, "/there/is/no/such/folder")


def launched(name, jobs, n, tmp_path):
    return list(launcher(name)(jobs, Resources(n, OPTIONS.get(name, {}), tmp_path), lambda line: None))


@pytest.mark.parametrize(("name", "n"), [("processes", 1), *((name, 2) for name in names())])
def test_every_job_gets_one_outcome_and_every_failure_its_sentence(name, n, tmp_path):
    if name in MODULES:
        pytest.importorskip(MODULES[name])
    outcomes = launched(name, [job(number) for number in range(5)], n, tmp_path)
    assert sorted(outcome.number for outcome in outcomes) == list(range(5))
    assert all("/there/is/no/such/folder" in outcome.error for outcome in outcomes)
    assert not any(outcome.path or outcome.busy or outcome.found or outcome.mistake for outcome in outcomes)


def test_a_process_that_dies_takes_its_own_job_alone(tmp_path):
    jobs = [job(0), job(1, bomb=Deadly()), job(2), job(3)]
    outcomes = {outcome.number: outcome.error for outcome in launched("processes", jobs, 2, tmp_path)}
    assert "exit code 7" in outcomes[1]
    assert all("/there/is/no/such/folder" in outcomes[number] for number in (0, 2, 3))


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_missing_package_is_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, MODULES[name], None)
    with pytest.raises(ConfigError, match=rf"pip install 'promptcal\[{name}\]'"):
        launched(name, [job(0)], 1, tmp_path)


def test_slurm_without_slurm_is_one_sentence(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="submitit cannot submit"):
        list(launcher("slurm")([job(0)], Resources(1, {}, tmp_path), lambda line: None))


def test_unknown_words_name_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'slurm'"):
        launcher("slrum")
    with pytest.raises(ConfigError, match="unknown option"):
        list(launcher("processes")([job(0)], Resources(1, {"partition": "gpu"}, tmp_path), lambda line: None))
    with pytest.raises(ConfigError, match="at least 1"):
        Resources(0)


def test_threads_are_shared_unless_the_run_says_how_many():
    assert with_threads(job(0), 3).config["system"]["threads"] == 3
    told = Job(0, "", {"system": {"threads": 2}}, "")
    assert with_threads(told, 3).config["system"]["threads"] == 2


def test_the_gpus_are_those_this_process_may_use(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-1a")
    assert visible_devices() == ["2", "GPU-1a"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_devices() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert visible_devices() == ["0", "1"]
