"""How the released code of each method names its learned tensors: one table, and what fits it.

Buffers of class names (``token_prefix``, ``token_suffix``, …), the frozen CLIP and modules that are saved but never
used are dropped; every other name in a file must be a learned tensor, and every learned tensor must be there.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from promptcal.errors import ConfigError, DataError
from promptcal.imports.torch_files import StoredTensor

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
        lambda sizes: {"n_prompts": sizes["P"], "n_context": sizes["n"]},
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


@dataclass(frozen=True)
class Fitted:
    """A file that a release fits: its learned tensors by our names, by its own names, and the sizes in them."""

    release: Release
    tensors: Mapping[str, StoredTensor]
    released_names: Mapping[str, str]
    sizes: Sizes
    dropped: tuple[str, ...]


def fit(release: Release, tensors: Mapping[str, StoredTensor]) -> Fitted:
    """The learned tensors of a file, under our names.

    Args:
        release: whose file it is.
        tensors: everything in the file by name.

    Raises:
        DataError: a learned tensor that is missing or has another shape, or one that does not belong; in words that
            follow the name of the file.
    """
    ours: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for released, (own, *shapes) in release.tensors.items():
        names = _listed(released, tensors)
        if not names and "{" not in released:
            raise DataError(f"lacks '{released}', which {release.trainer} learns, of shape {_said(shapes, sizes)}")
        for index, name in enumerate(names):
            _match(name, tensors[name].shape, shapes, sizes)
            ours[re.sub(r"\{0\}", str(index), own)] = name
        if "{" in released:
            sizes[own.partition(".")[0]] = len(names)
    used = set(ours.values())
    strange = [name for name in tensors if name not in used and not re.fullmatch(release.beside, name)]
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise DataError(f"holds '{strange[0]}'{more}, which {release.trainer} does not learn")
    return Fitted(
        release,
        {own: tensors[name] for own, name in ours.items()},
        ours,
        sizes,
        tuple(name for name in tensors if name not in used),
    )


def _marked(release: Release, names: Collection[str]) -> bool:
    return not release.marks or any(re.fullmatch(release.marks, name) for name in names)


def _listed(released: str, names: Collection[str]) -> list[str]:
    """The names that a released name stands for: itself, or a list from its first number on without a gap."""
    before, brace, rest = released.partition("{")
    if not brace:
        return [released] if released in names else []
    first, _, after = rest.partition("}")
    found = []
    while (name := f"{before}{int(first) + len(found)}{after}") in names:
        found.append(name)
    return found


def _match(name: str, shape: tuple[int, ...], shapes: Collection[str], sizes: dict[str, int]) -> None:
    """Take the sizes of a tensor's letters, or raise where they contradict those that are known."""
    for wanted in (words.split() for words in shapes):
        if len(wanted) != len(shape):
            continue
        found = dict(sizes)
        for letter, size in zip(wanted, shape, strict=True):
            known = math.prod(found[part] for part in letter.split("*")) if "*" in letter else None
            if size != (found.setdefault(letter, size) if known is None else known):
                break
        else:
            sizes |= found
            return
    raise DataError(f"has '{name}' of shape {list(shape)} where {_said(shapes, sizes)} belongs")


def _said(shapes: Collection[str], sizes: Sizes) -> str:
    """Shapes with numbers in place of the letters that are known."""

    def size(letter: str) -> str:
        parts = letter.split("*")
        return str(math.prod(sizes[part] for part in parts)) if all(part in sizes for part in parts) else letter

    return " or ".join(f"[{', '.join(size(letter) for letter in words.split())}]" for words in shapes)


def choose(tensors: Mapping[str, StoredTensor], *, where: str, trainer: str, recipe: str, learner: str) -> Fitted:
    """Whose file it is: as asked, else what alone fits, else what its folder is called.

    Args:
        tensors: everything in the file by name.
        where: what to call the file.
        trainer: the method that a folder of the file is named after, or empty.
        recipe: ours, where it was asked for, or empty.
        learner: that of the recipe.

    Raises:
        DataError: nothing fits, or what was asked for does not.
        ConfigError: several fit and no folder says which; they are listed.
    """
    asked = [release for release in RELEASES if not recipe or release.learner == learner]
    if not asked:
        known = ", ".join(sorted({release.recipe for release in RELEASES}))
        raise ConfigError(f"'{recipe}' has no released checkpoints to import; methods that have: {known}.")
    fits, faults = [], {}
    for release in asked:
        try:
            fits.append(fit(release, tensors))
        except DataError as error:
            faults[release.recipe] = str(error)
    if not recipe:  # a file without the mark of a release is rather of another that fits
        fits = [one for one in fits if _marked(one.release, tensors)]
        fits = [one for one in fits if one.release.trainer == trainer] or fits
    if len(fits) > 1 and not recipe:
        names = ", ".join(one.release.recipe for one in fits)
        raise ConfigError(f"{where} may be of several methods ({names}) and no folder says which; add --method NAME.")
    named = [one for one in fits if one.release.recipe == recipe or one.release.trainer == trainer]
    if fits:
        return (named or fits)[0]
    likely = recipe or next((release.recipe for release in RELEASES if release.trainer == trainer), "")
    fault = faults.get(likely) or (next(iter(faults.values())) if recipe else "")
    if fault:
        raise DataError(f"{where} {fault}.")
    held = ", ".join(list(tensors)[:4]) + (", …" if len(tensors) > 4 else "")
    raise DataError(f"{where} fits no method that promptcal knows (it holds {held}); --method NAME says what is amiss.")
