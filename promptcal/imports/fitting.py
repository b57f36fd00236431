"""Whose checkpoint it is: the learned tensors of a file, found by the names and shapes of the table of releases."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from promptcal.errors import ConfigError, DataError
from promptcal.imports.released import RELEASES, Release, Sizes
from promptcal.imports.torch_files import StoredTensor


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
    found: list[str] = []
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
