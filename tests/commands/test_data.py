import json

import numpy as np
import pytest
from PIL import Image

from promptcal.cli import main
from promptcal.data.feature_cache import FeatureCache


@pytest.fixture
def folder(tmp_path):
    """Three classes of four images."""
    for name in ("cat", "big_dog", "fox"):
        (tmp_path / "own" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (4, 4), (number, 9, 9)).save(tmp_path / "own" / name / f"{number}.png")
    return tmp_path / "own"


def test_list(capsys):
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:5] == ["eurosat", "10", "13500", "5400", "8100"] for line in lines)
    assert any(line.startswith("digits") and "needs no files" in line for line in lines)


def test_show_ones_own_folder(folder, capsys):
    assert main(["data", "show", "folder", "--path", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "3 classes; 6 train, 3 val, 3 test" in out
    assert "base        2: big dog, cat" in out
    assert "novel       1: fox" in out
    assert "all there" in out


def test_show_without_files_needs_no_folder(capsys):
    assert main(["data", "show", "digits"]) == 0
    assert "novel       5: five, six, seven, eight, nine" in capsys.readouterr().out


def test_show_says_how_to_point_at_the_files(capsys):
    assert main(["data", "show", "dtd"]) == 0
    assert "add --root FOLDER (holding 'dtd')" in capsys.readouterr().out


def test_show_finds_missing_images(tmp_path, folder, capsys):
    split = [[f"{name}/{number}.png", label, name] for label, name in enumerate(["cat", "fox"]) for number in range(5)]
    (folder / "split.json").write_text(json.dumps({"train": split, "test": split}))
    assert main(["data", "show", "split_file", "--path", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "2 of 10 images of 'split_file' are missing" in captured.err
    assert "cat/4.png" in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "eurosta"], "Did you mean 'eurosat'?"),
        (["show", "dtd", "--root", "/nowhere"], "no folder /nowhere/dtd"),
        (["show", "folder", "--path", "/nowhere"], "no folder /nowhere"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(arguments, words, capsys):
    assert main(["data", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_the_cache_is_shown_and_cleared(tmp_path, capsys):
    cache = FeatureCache(tmp_path)
    cache.store("s" * 32, np.ones((3, 32), np.uint8), np.ones((3, 2), np.float32), {})
    assert main(["data", "cache", "--folder", str(tmp_path)]) == 0
    assert "holds 3 image features in 1 shards" in capsys.readouterr().out
    assert main(["data", "cache", "--folder", str(tmp_path), "--clear"]) == 0
    assert "removed 3 image features" in capsys.readouterr().out
    assert cache.size().shards == 0


def test_the_default_cache_is_that_of_the_configuration(capsys):
    from promptcal.config import compose

    assert main(["data", "cache"]) == 0
    assert str(compose().system.cache) in capsys.readouterr().out
