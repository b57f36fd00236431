"""The front door: help, versions, unknown commands, and a quick start of the interpreter."""

import subprocess
import sys

import pytest

import promptcal
from promptcal.cli import _modules, main


def test_help_lists_every_command(capsys):
    assert main([]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, module in _modules().items():
        assert name in shown
        assert module.HELP in shown


@pytest.mark.parametrize("command", sorted(_modules()))
def test_every_command_has_complete_help(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert f"promptcal {command}" in shown
    assert "xample" in shown or command in ("data",)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from promptcal.cli import main; main([]); "
        "heavy = {'torch', 'open_clip', 'hydra', 'pandas', 'matplotlib', 'sklearn', 'scipy'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_command_names_the_nearest(capsys):
    assert main(["runn"]) == 2
    assert "unknown command 'runn'. Did you mean 'run'" in capsys.readouterr().err


def test_the_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert promptcal.__version__ in capsys.readouterr().out
