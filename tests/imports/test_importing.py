"""An imported checkpoint is the learner it was: the same tensors, the same logits, a run like one of our own."""

import json
import re

import numpy as np
import pytest
import torch

from promptcal import experiment
from promptcal.config import compose
from promptcal.errors import ConfigError, DataError, NumericalError
from promptcal.imports.importing import import_checkpoint
from promptcal.learners.clip_adapter import ClipAdapter
from promptcal.learners.cocoop import CoCoOp
from promptcal.learners.coop import CoOp
from promptcal.learners.deep_language import DeepLanguage
from promptcal.learners.ivlp import IVLP
from promptcal.learners.maple import MaPLe
from promptcal.learners.proda import ProDA
from promptcal.learners.taskres import TaskRes
from promptcal.learners.tcp import TCP
from promptcal.learners.vpt import VPT
from promptcal.models.assembly import classifier_of, reference_of
from promptcal.models.classifier import Classifier
from promptcal.predictor import load
from promptcal.preparation import load_model
from promptcal.report import rescore
from promptcal.run import find_runs
from promptcal.types import Batch, ClassNames

CLASSES = ("red apple", "green pear", "plum")
NAMES = ClassNames(CLASSES, ("a photo of a {}.",))
FAST = ["training.epochs=2", "features.views=1", "shots=4", "system.threads=1", "calibrators=[none,temperature]"]

CONTEXT = {"context": "ctx"}
META = {f"meta_net.linear{i}.{kind}": f"meta_net.linear{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")}
TEXT = {
    "context": "prompt_learner.ctx",
    "deep_text": "text_encoder.transformer.resblocks.{1}.VPT_shallow",
}
IMAGE = {
    "image_context": "image_encoder.VPT",
    "deep_image": "image_encoder.transformer.resblocks.{1}.VPT_shallow",
}
NAMED = {
    **{method: CONTEXT for method in ("coop", "kgcoop", "prograd", "proda")},
    **{method: {**CONTEXT, **META} for method in ("cocoop", "tcp")},
    "maple": {
        "context": "prompt_learner.ctx",
        "projection.weight": "prompt_learner.proj.weight",
        "projection.bias": "prompt_learner.proj.bias",
        "deep_text": "prompt_learner.compound_prompts_text.{0}",
        "deep_projections.weight": "prompt_learner.compound_prompt_projections.{0}.weight",
        "deep_projections.bias": "prompt_learner.compound_prompt_projections.{0}.bias",
    },
    **{method: {**TEXT, **IMAGE} for method in ("ivlp", "promptsrc")},
    "deep_language": TEXT,
    "vpt": IMAGE,
    "taskres": {"residual": "text_feature_residuals"},
    "clip_adapter": {"adapter.linear1.weight": "fc.0.weight", "adapter.linear2.weight": "fc.2.weight"},
}
DROPPED = {
    "maple": {"image_encoder.conv1.weight": torch.zeros(2), "logit_scale": torch.tensor(4.6)},
    "promptsrc": {"prompt_learner.ZS_image_encoder.conv1.weight": torch.zeros(2)},
    "proda": {"nc_token_prefix": torch.zeros(4, 1, 64)},
    "taskres": {"base_text_features": torch.zeros(3, 128)},
    "kgcoop": {"bias_vectors": torch.zeros(1, 64), "meta_net.linear1.weight": torch.zeros(64, 64)},
}


@pytest.fixture(scope="module")
def mini():
    config = compose(["model=mini"])
    return load_model(json.dumps(dict(config.model)), torch.device("cpu"))[0]


def randomised(learner):
    """A learner whose every tensor is random, rounded to half precision as the released files are."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in learner.parameters():
            tensor.copy_((0.05 * torch.randn(tensor.shape, generator=generator)).half().float())
    return learner.eval()


LEARNERS = {
    "coop": lambda clip: CoOp(clip, n_context=5),
    "kgcoop": lambda clip: CoOp(clip, n_context=4),
    "prograd": lambda clip: CoOp(clip, n_context=7),
    "proda": lambda clip: ProDA(clip, n_prompts=4, n_context=3),
    "cocoop": lambda clip: CoCoOp(clip, init="", n_context=3, reduction=8),
    "tcp": lambda clip: TCP(clip, n_context=2, reduction=2),
    "maple": lambda clip: MaPLe(clip, n_context=3, depth=2),
    "ivlp": lambda clip: IVLP(clip, n_context=3, n_image=2, text_depth=3, image_depth=2),
    "promptsrc": lambda clip: IVLP(clip, n_context=4, n_image=4, text_depth=2, image_depth=4),
    "deep_language": lambda clip: DeepLanguage(clip, n_context=4, depth=3),
    "vpt": lambda clip: VPT(clip, n_context=5, depth=3),
    "taskres": lambda clip: TaskRes(clip, NAMES),
    "clip_adapter": lambda clip: ClipAdapter(clip, reduction=8),
}


def as_released(method: str, learner) -> dict[str, torch.Tensor]:
    """The state of a learner under the names that the released code of a method has for it."""
    state, lists = learner.state_dict(), r"(deep_text|deep_image|deep_projections)\.(\d+)"
    found = {}
    for own, tensor in state.items():
        listed = re.match(lists, own)
        number = int(listed[2]) if listed else 0
        name = NAMED[method][re.sub(lists, r"\1", own)].format(number, number + 1)
        found[name] = tensor.half()
    return found | DROPPED.get(method, {})


def logits(bound) -> torch.Tensor:
    pixels = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return bound(Batch(torch.zeros(4, dtype=torch.long), pixels=pixels)).logits


@pytest.mark.parametrize("method", LEARNERS)
def test_the_learner_is_the_one_that_was_saved(tmp_path, mini, save, name_buffers, method):
    """Number of tokens, depth and hidden width are not the recipe's and are read from the shapes."""
    learner = randomised(LEARNERS[method](mini))
    buffers = name_buffers(3, 4, 64) if "ctx" in NAMED[method].values() else {}
    file = save(tmp_path / "model.pth.tar-7", as_released(method, learner) | buffers, epoch=7, wrapped="module.")
    folder = import_checkpoint(file, ["model=mini", f"method={method}", f"runs={tmp_path / 'runs'}"], classes=CLASSES)
    stored = folder.learner_state()
    for name, tensor in learner.state_dict().items():
        assert stored[name].dtype == torch.float32
        torch.testing.assert_close(stored[name], tensor, rtol=0, atol=0)
    found = classifier_of(folder.config, mini, NAMES, torch.Generator()).bind(NAMES)
    found.learner.load_state_dict(stored)
    found.learner.eval()
    bound = Classifier(mini, learner, reference=reference_of(folder.config)).bind(NAMES)
    torch.testing.assert_close(logits(found), logits(bound), rtol=0, atol=0)
    assert folder.config.choices.method == method
    assert folder.config.training.epochs == 7
    assert folder.info["imported"]["epoch"] == 7
    assert "the recipe's, not the file's" in folder.info["notes"][0]


def test_contexts_by_class_are_for_their_classes(tmp_path, mini, save):
    learner = randomised(CoOp(mini, NAMES, n_context=4, class_specific=True, position="middle"))
    bound = Classifier(mini, learner).bind(NAMES)
    file = save(tmp_path / "CoOp" / "model.pth.tar-5", {"ctx": learner.context.half()}, legacy=True)
    words = ["model=mini", f"runs={tmp_path / 'runs'}", "learner.position=middle"]
    folder = import_checkpoint(file, words, classes=CLASSES)
    found = load(folder.path)
    assert found.classes == CLASSES
    torch.testing.assert_close(logits(found.bound), logits(bound), rtol=0, atol=0)
    with pytest.raises(
        DataError, match=r"\[3, 4, 64\] where \[2, 4, 64\] belongs.*trained on 3 classes and there are 2"
    ):
        import_checkpoint(file, words, classes=CLASSES[:2])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of our own on the digits."""
    place = tmp_path_factory.mktemp("trained")
    words = [*FAST, "method=coop", f"runs={place}/runs", f"system.cache={place}/cache"]
    return experiment.run(compose(words), quiet=True)


@pytest.fixture(scope="module")
def imported(trained, tmp_path_factory, save):
    """The same learned tensors from a released file, in the folders of the released scripts."""
    place = tmp_path_factory.mktemp("imported")
    state = trained.learner_state()
    scheme = place / "train_base" / "x" / "shots_4" / "CoOp" / "vit_ep2_ctxv1" / "seed1" / "prompt_learner"
    save(scheme / "model.pth.tar-2", {"ctx": state["context"]}, epoch=2)
    said = []
    folder = import_checkpoint(
        scheme.parent,
        [
            *FAST[1:],
            "model=mini",
            "dataset=digits",
            f"runs={place}/runs",
            f"system.cache={trained.config.system.cache}",
        ],
        say=said.append,
    )
    return folder, said


def test_with_its_data_it_is_predicted_and_measured_as_our_own(trained, imported):
    folder, said = imported
    for split in ("val", "base", "novel"):
        ours, theirs = trained.predictions(split), folder.predictions(split)
        np.testing.assert_array_equal(ours.logits, theirs.logits)
        assert (ours.classes, ours.paths) == (theirs.classes, theirs.paths)
    assert [row["value"] for row in folder.metrics] == [row["value"] for row in trained.metrics]
    assert folder.task == trained.task
    assert folder.history == []
    assert folder.path.name != trained.path.name
    assert folder.config.shots == 4
    assert folder.config.learner.init == "a photo of a"
    assert any("256 learned numbers in 1 tensors" in line for line in said)


def test_it_is_rescored_reported_and_used_as_our_own(trained, imported, tmp_path, capsys):
    from promptcal.cli import main

    folder, _ = imported
    assert rescore(folder, ["none", "mix"]) != []
    both = [str(trained.path), str(folder.path)]
    assert main(["report", *both, "--out", str(tmp_path / "report")]) == 0
    told = capsys.readouterr().out
    assert "released CoOp" in told
    images = np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3), dtype=np.uint8)
    probs = [load(path).predict_proba(list(images)) for path in both]
    np.testing.assert_allclose(probs[0], probs[1], rtol=1e-12)


def test_seeds_of_one_release_are_averaged(imported, trained, tmp_path, save):
    """Their tensors differ, which is their luck and no setting."""
    from promptcal.report.results import read_results

    folder, _ = imported
    cache = f"system.cache={trained.config.system.cache}"
    other = save(tmp_path / "CoOp" / "seed2" / "model.pth.tar-2", {"ctx": torch.randn(4, 64) / 50}, epoch=2)
    second = import_checkpoint(other, [*FAST[1:], "model=mini", "dataset=digits", f"runs={tmp_path}/runs", cache])
    assert second.config.seed == 2
    results = read_results([folder, second])
    assert {run.variant for run in results.runs} == {""}


def test_without_its_data_it_predicts_and_says_so(tmp_path, mini, save):
    learner = randomised(CoOp(mini, n_context=4))
    file = save(tmp_path / "dtd" / "CoOp" / "seed1" / "model.pth.tar-5", {"ctx": learner.context})
    words = ["model=mini", f"runs={tmp_path / 'runs'}"]
    with pytest.raises(ConfigError, match=r"'dtd' is not at hand; add data\.root=FOLDER .*--classes"):
        import_checkpoint(file, words)
    said = []
    folder = import_checkpoint(file, words, classes=["banded", "dotted"], say=said.append)
    assert any("without predictions" in line for line in said)
    assert folder.path.parts[-3:-1] == ("dtd", "coop")
    assert folder.config.dataset.templates == ["{} texture."]
    assert not (folder.path / "predictions").exists()
    with pytest.raises(DataError, match="was imported without images"):
        rescore(folder, ["none"])
    nameless = save(tmp_path / "CoOp" / "model.pth.tar-5", {"ctx": learner.context})
    with pytest.raises(ConfigError, match="no folder says which data set"):
        import_checkpoint(nameless, words)
    assert import_checkpoint(nameless, words, classes=["a b", "c"]).path.parts[-3:-1] == ("imported", "coop")


def test_where_the_images_are_missing_the_class_names_are_kept(tmp_path, mini, save):
    learner = randomised(CoOp(mini, n_context=4))
    rows = {split: [[f"{split}{i}.png", i, f"class {i}"] for i in range(4)] for split in ("train", "val", "test")}
    (tmp_path / "split.json").write_text(json.dumps(rows))
    file = save(tmp_path / "CoOp" / "seed1" / "model.pth.tar-5", {"ctx": learner.context})
    data = ["dataset=split_file", f"dataset.path={tmp_path}", "dataset.reader.split=split.json", "shots=1"]
    said = []
    folder = import_checkpoint(file, [*data, "model=mini", f"runs={tmp_path / 'runs'}"], say=said.append)
    assert any("are missing" in line and "without predictions" in line for line in said)
    assert load(folder.path, split="novel").classes == ("class 2", "class 3")


REFUSED = {
    "another width": (
        lambda state: {"ctx": torch.zeros(4, 512)},
        ConfigError,
        r"width of 512 for text tokens, the model 'mini' has 64; choose the model",
    ),
    "a key is missing": (lambda state: {"ctxx": state["ctx"]}, DataError, r"lacks 'ctx', which CoOp learns"),
    "a key is strange": (
        lambda state: state | {"deep.0": torch.zeros(4, 64)},
        DataError,
        r"holds 'deep\.0', which CoOp",
    ),
    "another shape": (lambda state: {"ctx": torch.zeros(64)}, DataError, r"\[64\] where \[n, d\] or \[C, n, d\]"),
    "not finite": (lambda state: {"ctx": state["ctx"] * float("nan")}, NumericalError, r"NaN or infinity in 'ctx'"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_does_not_fit_leaves_nothing_behind(tmp_path, save, fault):
    change, kind, match = REFUSED[fault]
    file = save(tmp_path / "CoOp" / "seed1" / "model.pth.tar-5", change({"ctx": torch.zeros(4, 64)}))
    with pytest.raises(kind, match=match) as told:
        import_checkpoint(file, ["model=mini", f"runs={tmp_path / 'runs'}"], classes=CLASSES)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "runs").exists()


def test_the_model_is_told_by_widths_where_only_one_has_them(tmp_path, save):
    """The configuration is composed before weights are looked for, which these models have none of here."""
    from promptcal.imports.backbones import guess_model
    from promptcal.imports.checkpoints import read_checkpoint
    from promptcal.imports.fitting import choose

    def guess(tensors, recipe):
        checkpoint = read_checkpoint(save(tmp_path / "model.pth.tar-5", tensors))
        fitted = choose(checkpoint.tensors, where="FILE", trainer="", recipe=recipe, learner=recipe)
        return guess_model(fitted, checkpoint.tensors, "FILE")

    def maple(width, image, patch):
        tensors = {"prompt_learner.ctx": torch.zeros(2, width), "prompt_learner.proj.weight": torch.zeros(image, width)}
        kernel = {"image_encoder.conv1.weight": torch.zeros(image, 3, patch, patch)}
        return tensors | {"prompt_learner.proj.bias": torch.zeros(image)} | kernel

    assert guess(maple(512, 768, 16), "maple") == "vit_b16"
    assert guess(maple(512, 768, 32), "maple") == "vit_b32"
    assert guess(maple(768, 1024, 14), "maple") == "vit_l14"
    assert guess({"ctx": torch.zeros(4, 768)}, "coop") == "vit_l14"
    with pytest.raises(ConfigError, match=r"width of 512 for text tokens, as rn101, rn50, vit_b16, vit_b32 have"):
        guess({"ctx": torch.zeros(4, 512)}, "coop")
    with pytest.raises(ConfigError, match=r"as no CLIP of promptcal's recipes has"):
        guess({"ctx": torch.zeros(4, 100)}, "coop")
    adapter = {"fc.0.weight": torch.zeros(256, 1024), "fc.2.weight": torch.zeros(1024, 256)}
    assert guess(adapter, "clip_adapter") == "rn50"


def test_words_are_kept_where_they_stay_in_the_text(tmp_path, mini, save):
    """Two learned tokens of "a photo of a" leave "of a" before the name; a context of another length has no words."""
    runs = f"runs={tmp_path / 'runs'}"
    learner = randomised(MaPLe(mini, n_context=2, depth=3))
    file = save(tmp_path / "MaPLe" / "model.pth.tar-5", as_released("maple", learner))
    assert import_checkpoint(file, ["model=mini", runs], classes=CLASSES).config.learner.init == "a photo of a"
    longer = save(tmp_path / "CoOp" / "model.pth.tar-5", {"ctx": torch.zeros(9, 64)})
    config = import_checkpoint(longer, ["model=mini", runs], classes=CLASSES).config
    assert (config.learner.init, config.learner.n_context) == ("", 9)


def test_a_done_import_is_found(imported, trained):
    folder, _ = imported
    stamp = (folder.path / "run.json").stat().st_mtime_ns
    assert find_runs(folder.path.parent)[0].path == folder.path
    assert (folder.path / "run.json").stat().st_mtime_ns == stamp
