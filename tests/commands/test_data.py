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


def a_data_set(root, *, split=True):
    """Food-101 in little: two classes of ten images, in the second of its two folders."""
    for name in ("apple_pie", "sushi"):
        (root / "food101/images" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (4, 4), (number, 9, 9)).save(root / "food101/images" / name / f"{number}.png")
    if split:
        entries = [
            [f"{name}/{n}.png", label, name] for label, name in enumerate(["apple_pie", "sushi"]) for n in range(10)
        ]
        content = {"train": entries[::2], "val": entries[1:8:2], "test": entries[9::2]}
        (root / "food101/split_zhou_Food101.json").write_text(json.dumps(content))
    return root / "food101/images"


def others() -> int:
    """How many more data sets have a folder of their own."""
    from promptcal.data.cards import card_named, card_names

    return sum(card_named(name).folder not in (None, ".") for name in card_names()) - 1


def checked(capsys, *arguments):
    code = main(["data", "check", *map(str, arguments), "--quiet"])
    return code, capsys.readouterr().out


def test_check_counts_what_is_missing_broken_and_of_the_wrong_size(tmp_path, capsys):
    images = a_data_set(tmp_path)
    for number in (0, 3, 5, 7):
        (images / "sushi" / f"{number}.png").unlink()
    (images / "apple_pie/2.png").write_bytes((images / "apple_pie/2.png").read_bytes()[:40])
    code, out = checked(capsys, tmp_path)
    assert code == 1
    assert "4 of 20 images are missing: images/sushi/0.png, images/sushi/3.png, images/sushi/5.png, ..." in out
    assert "1 of 20 images are broken" in out
    assert "apple_pie/2.png is broken" in out
    assert "2 classes (expected 101)" in out
    assert f"0 whole, 1 faulty, {others()} absent" in out
    code, out = checked(capsys, tmp_path, "--quick")
    assert code == 1
    assert "broken" not in out.replace("broken ones", "")


def test_check_passes_what_is_whole(tmp_path, capsys, monkeypatch):
    from dataclasses import replace

    from promptcal.data import cards

    a_data_set(tmp_path)
    small = replace(cards.card_named("food101"), sizes={"classes": 2, "train": 10, "val": 4, "test": 6})
    known = cards.card_named
    monkeypatch.setattr(cards, "card_named", lambda name: small if name == "food101" else known(name))
    code, out = checked(capsys, tmp_path)
    assert code == 0
    assert "food101         whole" in out
    assert f"1 whole, 0 faulty, {others()} absent" in out
    assert checked(capsys, tmp_path, "food101")[0] == 0
    code, out = checked(capsys, tmp_path, "food101", "dtd")
    assert code == 1
    assert "dtd             absent" in out


def test_check_of_a_folder_without_data_sets_fails(tmp_path, capsys):
    assert checked(capsys, tmp_path)[0] == 1


def test_check_tells_a_missing_split_file(tmp_path, capsys):
    a_data_set(tmp_path, split=False)
    code, out = checked(capsys, tmp_path)
    assert code == 1
    assert "there is no split file" in out


def test_split_writes_where_it_says_and_the_file_is_read(tmp_path, capsys, monkeypatch):
    from promptcal.data.cards import card_named, load_task

    images = a_data_set(tmp_path / "data", split=False)
    monkeypatch.chdir(tmp_path)
    before = sorted((tmp_path / "data").rglob("*"))
    assert main(["data", "split", "food101", str(tmp_path / "data"), "--seed", "5"]) == 0
    out = capsys.readouterr().out
    file = tmp_path / "food101_split_seed5.json"
    assert f"{file}: 10 train, 4 val, 6 test" in out
    assert "not the published split of Food-101" in out
    assert f"dataset.reader.split={file}" in out
    assert sorted((tmp_path / "data").rglob("*")) == before
    card = card_named("food101")
    from dataclasses import replace

    task = load_task(replace(card, reader={**card.reader, "split": str(file)}), tmp_path / "data")
    assert len(task.train) == 10
    assert task.images.open(task.train[0].path).size == (4, 4)
    assert images.is_dir()
    assert main(["data", "split", "food101", str(tmp_path / "data"), "--seed", "5"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_prepare_says_step_by_step_what_cannot_be_fetched(tmp_path, capsys):
    assert main(["data", "prepare", "imagenet", str(tmp_path), "--quiet"]) == 1
    out = capsys.readouterr().out
    assert f"left to do in {tmp_path / 'imagenet'}" in out
    assert "1. Ask for access at https://image-net.org/download.php" in out
    assert "classnames.txt" in out
    assert not list(tmp_path.iterdir())


def test_prepare_finds_what_is_there_and_asks_for_the_split_file(tmp_path, capsys):
    a_data_set(tmp_path, split=False)
    (tmp_path / "food101/meta").mkdir()
    assert main(["data", "prepare", "food101", str(tmp_path), "--quiet"]) == 1
    out = capsys.readouterr().out
    assert "images, meta: there already" in out
    assert "1. Put the published split_zhou_Food101.json here" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "/nowhere"], "there is no folder /nowhere"),
        (["check", "/tmp", "eurosta"], "Did you mean 'eurosat'?"),
        (["prepare", "dtd", "/nowhere"], "there is no folder /nowhere"),
        (["prepare", "digits", "/tmp"], "'digits' has nothing to fetch"),
        (["prepare", "oxfordpets", "/tmp"], "Did you mean 'oxford_pets'?"),
        (["split", "dtd", "/nowhere", "--seed", "1"], "no folder /nowhere/dtd"),
        (["split", "imagenet", "/nowhere", "--seed", "1"], "no folder /nowhere/imagenet"),
    ],
)
def test_mistakes_of_the_newer_actions(arguments, words, capsys):
    assert main(["data", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_prepare_says_what_is_left_to_do_where_a_download_fails(tmp_path, capsys, monkeypatch):
    from dataclasses import replace

    from promptcal.data import cards

    dead = cards.Archive("http://127.0.0.1:9/sun.zip", {"SUN397": "SUN397"})
    card = replace(cards.card_named("sun397"), archives=(dead, dead))
    monkeypatch.setattr(cards, "card_named", lambda name: card)
    assert main(["data", "prepare", "sun397", str(tmp_path), "--quiet"]) == 1
    out = capsys.readouterr().out
    assert out.count("sun.zip cannot be downloaded") == 2
    assert "1. Put the published split_zhou_SUN397.json here" in out
