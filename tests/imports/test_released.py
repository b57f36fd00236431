"""The table of released names: each method's own files fit it and nothing else, and what is amiss is told in words."""

import math
from pathlib import Path

import pytest
import torch

from promptcal.errors import ConfigError, DataError
from promptcal.imports.fitting import choose, fit
from promptcal.imports.released import RELEASES
from promptcal.imports.torch_files import Bytes, StoredTensor

NAMES = {"token_prefix": (10, 1, 512), "token_suffix": (10, 60, 512)}
FULL = {
    **{f"prompt_learner.{name}": shape for name, shape in NAMES.items()},
    "image_encoder.conv1.weight": (768, 3, 16, 16),
    "image_encoder.transformer.resblocks.0.mlp.c_fc.weight": (3072, 768),
    "text_encoder.positional_embedding": (77, 512),
    "logit_scale": (),
}


def deep(tower: str, first: int, last: int, *shape: int) -> dict[str, tuple[int, ...]]:
    return {f"{tower}.transformer.resblocks.{block}.VPT_shallow": shape for block in range(first, last)}


META = {"meta_net.linear1.weight": (32, 512), "meta_net.linear1.bias": (32,)}
META |= {"meta_net.linear2.weight": (512, 32), "meta_net.linear2.bias": (512,)}
BOTH = {"prompt_learner.ctx": (2, 512), "image_encoder.VPT": (3, 768), **FULL}
FILES = {
    "coop": ({"ctx": (16, 512), **NAMES}, {"n_context": 16, "class_specific": False}),
    "coop by class": ({"ctx": (10, 16, 512), **NAMES}, {"n_context": 16, "class_specific": True}),
    "kgcoop": (
        {"ctx": (4, 512), "bias_vectors": (1, 512), "meta_net.linear1.weight": (512, 512), **NAMES},
        {"n_context": 4, "class_specific": False},
    ),
    "prograd": ({"ctx": (16, 512), **NAMES}, {"n_context": 16, "class_specific": False}),
    "cocoop": ({"ctx": (4, 512), **META, **NAMES}, {"n_context": 4, "reduction": 16}),
    "tcp": (
        {
            "ctx": (4, 512),
            "meta_net.linear1.weight": (128, 512),
            "meta_net.linear1.bias": (128,),
            "meta_net.linear2.weight": (2048, 128),
            "meta_net.linear2.bias": (2048,),
            **NAMES,
        },
        {"n_context": 4, "reduction": 4},
    ),
    "proda": (
        {"ctx": (32, 16, 512), **NAMES, **{f"nc_{name}": shape for name, shape in NAMES.items()}},
        {"n_prompts": 32, "n_context": 16, "prompts_per_step": 4},
    ),
    "maple": (
        {
            "prompt_learner.ctx": (2, 512),
            "prompt_learner.proj.weight": (768, 512),
            "prompt_learner.proj.bias": (768,),
            **{f"prompt_learner.compound_prompts_text.{i}": (2, 512) for i in range(8)},
            **{f"prompt_learner.compound_prompt_projections.{i}.weight": (768, 512) for i in range(8)},
            **{f"prompt_learner.compound_prompt_projections.{i}.bias": (768,) for i in range(8)},
            **FULL,
        },
        {"n_context": 2, "depth": 9},
    ),
    "ivlp": (
        {**BOTH, **deep("image_encoder", 1, 12, 3, 768), **deep("text_encoder", 1, 9, 2, 512)},
        {"n_context": 2, "n_image": 3, "text_depth": 9, "image_depth": 12},
    ),
    "promptsrc": (
        {
            **BOTH,
            **deep("image_encoder", 1, 9, 3, 768),
            **deep("text_encoder", 1, 9, 2, 512),
            "prompt_learner.ZS_image_encoder.conv1.weight": (768, 3, 16, 16),
        },
        {"n_context": 2, "n_image": 3, "text_depth": 9, "image_depth": 9},
    ),
    "deep_language": (
        {"prompt_learner.ctx": (4, 512), **deep("text_encoder", 1, 12, 4, 512), **FULL},
        {"n_context": 4, "depth": 12},
    ),
    "vpt": (
        {
            "image_encoder.VPT": (8, 768),
            **deep("image_encoder", 1, 12, 8, 768),
            "image_encoder.conv1.weight": (768, 3, 16, 16),
            "text_encoder.positional_embedding": (77, 512),
            "logit_scale": (),
        },
        {"n_context": 8, "depth": 12},
    ),
    "taskres": ({"base_text_features": (10, 512), "text_feature_residuals": (10, 512)}, {}),
    "clip_adapter": ({"fc.0.weight": (128, 512), "fc.2.weight": (512, 128)}, {"reduction": 4}),
}


def shaped(shapes: dict[str, tuple[int, ...]]) -> dict[str, StoredTensor]:
    def stored(shape):
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return StoredTensor(Bytes(Path("x"), torch.float16, math.prod(shape), "0"), 0, shape, strides)

    return {name: stored(shape) for name, shape in shapes.items()}


def chosen(shapes, *, trainer: str = "", recipe: str = "", learner: str = ""):
    return choose(shaped(shapes), where="FILE", trainer=trainer, recipe=recipe, learner=learner)


@pytest.mark.parametrize("name", FILES)
def test_every_file_fits_its_own_release(name):
    shapes, settings = FILES[name]
    (release,) = [release for release in RELEASES if release.recipe == name.split()[0]]
    fitted = fit(release, shaped(shapes))
    assert release.settings(fitted.sizes) == settings
    learned = set(fitted.released_names.values())
    assert learned | set(fitted.dropped) == set(shapes)
    assert not any("token_" in key or key.endswith(("conv1.weight", "logit_scale")) for key in learned)
    assert {own: tensor.shape for own, tensor in fitted.tensors.items()} == {
        own: shapes[key] for own, key in fitted.released_names.items()
    }


def test_lists_are_numbered_anew_and_in_order():
    shapes, _ = FILES["ivlp"]
    (release,) = [release for release in RELEASES if release.recipe == "ivlp"]
    names = fit(release, shaped(shapes)).released_names
    assert names["deep_text.0"] == "text_encoder.transformer.resblocks.1.VPT_shallow"
    assert names["deep_image.10"] == "image_encoder.transformer.resblocks.11.VPT_shallow"
    assert len(names) == 2 + 8 + 11


SHARED = ("coop", "coop by class", "prograd")


@pytest.mark.parametrize("name", [name for name in FILES if name not in SHARED])
def test_names_and_shapes_alone_tell_what_only_one_method_has(name):
    assert chosen(FILES[name][0]).release.recipe == name


@pytest.mark.parametrize("name", SHARED)
def test_a_context_alone_may_be_of_several_and_is_asked_about(name):
    shapes, _ = FILES[name]
    with pytest.raises(ConfigError, match=r"several methods \(coop, kgcoop, prograd\).*--method"):
        chosen(shapes)
    assert chosen(shapes, trainer="ProGrad").release.recipe == "prograd"
    assert chosen(shapes, recipe="kgcoop", learner="coop").release.recipe == "kgcoop"
    assert chosen(shapes, recipe="coop_ep50", learner="coop").release.learner == "coop"
    assert chosen(shapes, trainer="KgCoOp", recipe="coop_ep50", learner="coop").release.recipe == "kgcoop"


def test_a_folder_of_another_method_does_not_overrule_the_names():
    assert chosen(FILES["cocoop"][0], trainer="KgCoOp").release.recipe == "cocoop"


def test_a_file_without_its_mark_is_taken_where_it_is_asked_for():
    shapes = {"ctx": (32, 16, 512), **NAMES}
    assert chosen(shapes, recipe="proda", learner="proda").sizes["P"] == 32
    assert chosen(FILES["ivlp"][0], recipe="promptsrc", learner="ivlp").release.recipe == "promptsrc"


def test_what_is_amiss_is_told_with_the_shape_that_belongs():
    shapes, _ = FILES["maple"]
    maple = {"recipe": "maple", "learner": "maple"}

    def told(changed, match, **asked):
        with pytest.raises(DataError, match=match):
            chosen(changed, **asked)

    without = {key: shape for key, shape in shapes.items() if key != "prompt_learner.proj.bias"}
    told(without, r"^FILE lacks 'prompt_learner.proj.bias', which MaPLe learns, of shape \[768\]\.$", **maple)
    told(without, r"lacks 'prompt_learner.proj.bias'", trainer="MaPLe")
    wrong = {**shapes, "prompt_learner.compound_prompts_text.3": (2, 500)}
    told(wrong, r"'prompt_learner.compound_prompts_text.3' of shape \[2, 500\] where \[2, 512\] belongs", **maple)
    gap = {key: shape for key, shape in shapes.items() if key != "prompt_learner.compound_prompts_text.3"}
    told(gap, r"holds 'prompt_learner.compound_prompts_text.4' and 3 more, which MaPLe does not learn", **maple)
    told({**shapes, "prompt_learner.ctx2": (2, 512)}, "holds 'prompt_learner.ctx2', which", **maple)
    told({"weight": (2, 2)}, r"fits no method that promptcal knows \(it holds weight\)")
    told({"ctx": (2,)}, r"'ctx' of shape \[2\] where \[n, d\] or \[C, n, d\] belongs", recipe="coop", learner="coop")
    meta = {**FILES["cocoop"][0], "meta_net.linear2.weight": (500, 32)}
    told(meta, r"of shape \[500, 32\] where \[512, 32\] belongs", recipe="cocoop", learner="cocoop")


def test_a_method_without_released_files_is_told():
    with pytest.raises(ConfigError, match=r"'zero_shot' has no released checkpoints.*maple"):
        chosen(FILES["coop"][0], recipe="zero_shot", learner="zero_shot")
