"""Where checkpoints lie and what their folders say."""

from pathlib import Path

import pytest

from promptcal.errors import DataError
from promptcal.imports.checkpoints import find_checkpoint, folder_names


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_file_its_folder_and_the_folder_of_the_run_will_do(tmp_path):
    file = touch(tmp_path / "seed1" / "prompt_learner" / "model.pth.tar-50")
    touch(tmp_path / "seed1" / "log.txt")
    for place in (file, file.parent, file.parent.parent):
        assert find_checkpoint(place) == file


def test_the_last_of_several_is_the_one_that_is_noted(tmp_path):
    first, last = (touch(tmp_path / "VLPromptLearner" / f"model.pth.tar-{epoch}") for epoch in (5, 20))
    with pytest.raises(DataError, match=r"2 checkpoints; name one of them.*tar-20.*tar-5"):
        find_checkpoint(tmp_path)
    last.with_name("checkpoint").write_text("model.pth.tar-20\n")
    assert find_checkpoint(tmp_path) == last
    assert find_checkpoint(first) == first
    touch(tmp_path / "tempscaling" / "model-calibrated.pth.tar-20")
    assert find_checkpoint(tmp_path) == last


def test_the_wrong_level_lists_what_is_nearby(tmp_path):
    file = touch(tmp_path / "dtd" / "CoOp" / "cfg" / "seed1" / "prompt_learner" / "model-best.pth.tar")
    with pytest.raises(DataError, match=r"there is no checkpoint \(.*\) in .*; there is .*model-best\.pth\.tar\."):
        find_checkpoint(tmp_path / "dtd")
    with pytest.raises(DataError, match=r"there is no checkpoint .*model\.pth\.tar-9; there is .*model-best"):
        find_checkpoint(file.with_name("model.pth.tar-9"))
    with pytest.raises(DataError, match=r"there is no checkpoint /nowhere/at/all\."):
        find_checkpoint(Path("/nowhere/at/all"))


@pytest.mark.parametrize(
    ("path", "trainer", "position", "overrides"),
    [
        (
            "output/caltech101/CoOp/rn50_ep50_16shots/nctx16_cscFalse_ctpmiddle/seed2/prompt_learner/model.pth.tar-50",
            "CoOp",
            "middle",
            {"dataset": "caltech101", "model": "rn50", "shots": "16", "seed": "2", "protocol": "few_shot"},
        ),
        (
            "base2new/train_base/oxford_pets/shots_4/CoCoOp/vit_b16_c4_ep10_batch1_ctxv1/seed3/x/model.pth.tar-10",
            "CoCoOp",
            "",
            {"dataset": "oxford_pets", "model": "vit_b16", "shots": "4", "seed": "3", "protocol": "base_to_novel"},
        ),
        (
            "train_base/describable_textures/shots_16_8.0/KgCoOp/vit_b32_ep100_ctxv1/seed1/x/model.pth.tar-100",
            "KgCoOp",
            "",
            {"dataset": "dtd", "model": "vit_b32", "shots": "16", "seed": "1", "protocol": "base_to_novel"},
        ),
        (
            "weights/eurosat/base/seed1/MultiModalPromptLearner/model.pth.tar-5",
            "",
            "",
            {"dataset": "eurosat", "seed": "1"},
        ),
        ("some/where/model.pth.tar-5", "", "", {}),
    ],
)
def test_folders_tell_what_they_are_named_after(path, trainer, position, overrides):
    found = folder_names(Path("/data") / path)
    assert (found.trainer, found.position) == (trainer, position)
    assert found.overrides == overrides
