"""How the released code of each method names its learned tensors: one table.

Buffers of class names (``token_prefix``, ``token_suffix``, …), the frozen CLIP and modules that are saved but never
used are dropped; every other name in a file must be a learned tensor, and every learned tensor must be there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd

Sizes = Mapping[str, int]
"""What a shape's letters are in a file: d, D, w the widths of text tokens, of the joint embedding and of image tokens;
n and m the numbers of text and image tokens; C classes, P prompts, h a hidden width. A list of tensors gives its length
by our name.
"""

TOKENS = r"(prompt_learner\.)?token_(prefix|suffix|midfix)"
UNUSED = rf"{TOKENS}|bias_vectors|meta_net\.linear1\..*|[aA]dapter.*"
FROZEN = r"(image_encoder|text_encoder)\.(?!.*VPT).*|logit_scale"


@dataclass(frozen=True)
class Release:
    """The files of one method's released code.

    Attributes:
        trainer: the name of the method in that code and in its folders.
        recipe: ours.
        learner: ours.
        tensors: by released name, our name and the shapes it may have; ``{1}`` numbers a list from 1 on, ``n*d`` is a
            product.
        settings: the learner's settings that the sizes tell.
        beside: what the files hold besides, a regular expression.
        marks: a name that these files alone hold; empty where there is none.
        keeps_words: words of ``init`` beyond the learned ones stay in the text, so that they are no mere start.
    """

    trainer: str
    recipe: str
    learner: str
    tensors: Mapping[str, tuple[str, ...]]
    settings: Callable[[Sizes], dict[str, int | bool]]
    beside: str = TOKENS
    marks: str = ""
    keeps_words: bool = False


CONTEXT = {"ctx": ("context", "n d", "C n d")}
FULL_CONTEXT = {"prompt_learner.ctx": ("context", "n d")}
DEEP_TEXT = {"text_encoder.transformer.resblocks.{1}.VPT_shallow": ("deep_text.{0}", "n d")}
DEEP_IMAGE = {
    "image_encoder.VPT": ("image_context", "m w"),
    "image_encoder.transformer.resblocks.{1}.VPT_shallow": ("deep_image.{0}", "m w"),
}


def _context(sizes: Sizes) -> dict[str, int | bool]:
    return {"n_context": sizes["n"], "class_specific": "C" in sizes}


def _both_towers(sizes: Sizes) -> dict[str, int | bool]:
    return {
        "n_context": sizes["n"],
        "n_image": sizes["m"],
        "text_depth": sizes["deep_text"] + 1,
        "image_depth": sizes["deep_image"] + 1,
    }


RELEASES = (
    Release("CoOp", "coop", "coop", CONTEXT, _context),
    Release(
        "KgCoOp", "kgcoop", "coop", CONTEXT, _context, rf"{TOKENS}|bias_vectors|meta_net\.linear1\..*|[aA]dapter.*"
    ),
    Release("ProGrad", "prograd", "coop", CONTEXT, _context),
    Release(
        "CoCoOp",
        "cocoop",
        "cocoop",
        {
            "ctx": ("context", "n d"),
            "meta_net.linear1.weight": ("meta_net.linear1.weight", "h D"),
            "meta_net.linear1.bias": ("meta_net.linear1.bias", "h"),
            "meta_net.linear2.weight": ("meta_net.linear2.weight", "d h"),
            "meta_net.linear2.bias": ("meta_net.linear2.bias", "d"),
        },
        lambda sizes: {"n_context": sizes["n"], "reduction": sizes["D"] // sizes["h"]},
    ),
    Release(
        "TCP",
        "tcp",
        "tcp",
        {
            "ctx": ("context", "n d"),
            "meta_net.linear1.weight": ("meta_net.linear1.weight", "h D"),
            "meta_net.linear1.bias": ("meta_net.linear1.bias", "h"),
            "meta_net.linear2.weight": ("meta_net.linear2.weight", "n*d h"),
            "meta_net.linear2.bias": ("meta_net.linear2.bias", "n*d"),
        },
        lambda sizes: {"n_context": sizes["n"], "reduction": sizes["D"] // sizes["h"]},
    ),
    Release(
        "ProDA",
        "proda",
        "proda",
        {"ctx": ("context", "P n d")},
        lambda sizes: {"n_prompts": sizes["P"], "n_context": sizes["n"], "prompts_per_step": gcd(sizes["P"], 4)},
        rf"{TOKENS}|nc_{TOKENS}",
        marks=r"nc_token_.*",
    ),
    Release(
        "MaPLe",
        "maple",
        "maple",
        {
            **FULL_CONTEXT,
            "prompt_learner.proj.weight": ("projection.weight", "w d"),
            "prompt_learner.proj.bias": ("projection.bias", "w"),
            "prompt_learner.compound_prompts_text.{0}": ("deep_text.{0}", "n d"),
            "prompt_learner.compound_prompt_projections.{0}.weight": ("deep_projections.{0}.weight", "w d"),
            "prompt_learner.compound_prompt_projections.{0}.bias": ("deep_projections.{0}.bias", "w"),
        },
        lambda sizes: {"n_context": sizes["n"], "depth": sizes["deep_text"] + 1},
        rf"{TOKENS}|{FROZEN}",
        keeps_words=True,
    ),
    Release(
        "IVLP",
        "ivlp",
        "ivlp",
        {**FULL_CONTEXT, **DEEP_TEXT, **DEEP_IMAGE},
        _both_towers,
        rf"{TOKENS}|{FROZEN}",
        keeps_words=True,
    ),
    Release(
        "PromptSRC",
        "promptsrc",
        "ivlp",
        {**FULL_CONTEXT, **DEEP_TEXT, **DEEP_IMAGE},
        _both_towers,
        rf"{TOKENS}|{FROZEN}|prompt_learner\.ZS_image_encoder\..*",
        marks=r"prompt_learner\.ZS_image_encoder\..*",
        keeps_words=True,
    ),
    Release(
        "IVLP",
        "deep_language",
        "deep_language",
        {**FULL_CONTEXT, **DEEP_TEXT},
        lambda sizes: {"n_context": sizes["n"], "depth": sizes["deep_text"] + 1},
        rf"{TOKENS}|{FROZEN}",
        keeps_words=True,
    ),
    Release(
        "VPT",
        "vpt",
        "vpt",
        DEEP_IMAGE,
        lambda sizes: {"n_context": sizes["m"], "depth": sizes["deep_image"] + 1},
        FROZEN,
    ),
    Release(
        "TaskRes",
        "taskres",
        "taskres",
        {"text_feature_residuals": ("residual", "C D")},
        lambda sizes: {},
        r"base_text_features",
    ),
    Release(
        "CLIP_Adapter",
        "clip_adapter",
        "clip_adapter",
        {"fc.0.weight": ("adapter.linear1.weight", "h D"), "fc.2.weight": ("adapter.linear2.weight", "D h")},
        lambda sizes: {"reduction": sizes["D"] // sizes["h"]},
    ),
)
