"""``promptcal import`` on the command line."""

import os

import pytest
import torch

from promptcal.cli import main


class Call:
    def __reduce__(self):
        return os.system, ("touch marker",)


@pytest.fixture
def checkpoint(tmp_path):
    file = tmp_path / "CoOp" / "seed1" / "prompt_learner" / "model.pth.tar-5"
    file.parent.mkdir(parents=True)
    torch.save({"state_dict": {"ctx": torch.zeros(4, 64).half()}, "epoch": 5}, file)
    return file


def test_it_says_where_the_run_is_and_predicts(checkpoint, tmp_path, capsys):
    from PIL import Image

    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")
    words = ["import", str(checkpoint), "--model", "mini", "--classes", "red apple,plum", f"runs={tmp_path / 'runs'}"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "without predictions" in err
    assert main(["predict", out.strip(), str(tmp_path / "red.png")]) == 0
    assert "red.png" in capsys.readouterr().out
    assert main(words) == 0
    assert "is done already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {"ctx": torch.zeros(4, 64)}, "scheduler": Call()}, "asks for 'posix.system'"),
        ({"state_dict": {"weight": torch.zeros(4)}}, "lacks 'ctx', which CoOp learns"),
        ("text", "no named tensors"),
    ],
)
def test_a_refusal_is_one_sentence_and_leaves_nothing(checkpoint, tmp_path, monkeypatch, capsys, content, message):
    monkeypatch.chdir(tmp_path)
    file = checkpoint.with_name("model.pth.tar-9")
    torch.save(content, file)
    assert main(["import", str(file), "--classes", "a,b", "model=mini"]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert not (tmp_path / "marker").exists()
    assert not (tmp_path / "runs").exists()


def test_mistakes_on_the_command_line(checkpoint, tmp_path, capsys):
    cut = checkpoint.with_name("cut")
    cut.write_bytes(checkpoint.read_bytes()[:300])
    for words, message in (
        ([str(tmp_path / "nowhere")], "there is no checkpoint"),
        ([str(cut)], "is not whole"),
        ([str(checkpoint), "--method", "kopcoop"], "Did you mean 'kgcoop'"),
        ([str(checkpoint), "--method", "maple", "--model", "mini"], "lacks 'prompt_learner.ctx'"),
        ([str(checkpoint), "--model", "minni"], "Did you mean 'mini'"),
        ([str(checkpoint)], "as no CLIP of promptcal's recipes has"),
    ):
        assert main(["import", *words, "--classes", "a,b"]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["import", str(checkpoint), "--model", "mini", "--unknown"])
