"""Every command of the README works: run lines are composed, others run; CI runs its two commands as written."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from promptcal.cli import main

README = Path(__file__).parent.parent / "README.md"
INSTALLS = ("pip install", "pytest", "git clone", "cd ")


def commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [part.strip() for line in lines for part in line.split("&&") if part.strip() and not part.startswith("#")]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    """A folder with the files the README speaks of: predictions, a finished run, an image."""
    from PIL import Image

    from promptcal import experiment
    from promptcal.config import compose

    place = tmp_path_factory.mktemp("readme")
    rng = np.random.default_rng(0)
    for name in ("val", "test", "a", "b"):
        logits = 2 * rng.normal(size=(400, 5))
        probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        labels = np.array([rng.choice(5, p=row) for row in probs])
        if name == "b":
            labels = np.load(place / "a.npz")["labels"]
        np.savez(place / f"{name}.npz", logits=logits, labels=labels)
    Image.fromarray(rng.integers(0, 256, size=(40, 40, 3), dtype=np.uint8)).save(place / "photo.png")
    quick = ["training.epochs=1", "features.views=1", "shots=2", "system.cache=null"]
    words = ["method=coop", *quick, f"runs={place}/runs"]
    run = experiment.run(compose(words), quiet=True)
    run.path.rename(place / "my_run")
    return place


@pytest.mark.parametrize("command", commands())
def test_command(command, workplace, monkeypatch, capsys):
    if command.startswith(INSTALLS):
        pytest.skip("run by CI")
    words = shlex.split(command)
    assert words[0] == "promptcal", f"the README shows a command that is no promptcal: {command}"
    monkeypatch.chdir(workplace)
    if words[1] == "run":
        assert main([*words[1:], "--show"]) == 0
        assert "_target_" in capsys.readouterr().out
        return
    renamed = [str(workplace / "my_run") if word.startswith("runs") else word for word in words[1:]]
    assert main(renamed) == 0
    assert capsys.readouterr().out.strip()


def test_the_readme_names_its_two_commands():
    shown = commands()
    assert any(command.startswith("pip install") for command in shown)
    assert "promptcal run" in shown
    assert "pytest" in shown


def test_files_that_the_readme_shows_are_there():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(((?!https?:|#)[^)]+)\)", text):
        assert (README.parent / target).exists(), target
