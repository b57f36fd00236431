"""Where the checkpoints of the CoOp family lie, and what the names of their folders say of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from promptcal.data.cards import card_names
from promptcal.errors import DataError
from promptcal.imports.released import RELEASES
from promptcal.imports.torch_files import StoredTensor, named_tensors, read_torch_file

PATTERNS = ("model.pth.tar-*", "model-best.pth.tar")
LISTED = 4

DATA_SETS = {"describable_textures": "dtd"}
"""Data sets that a folder may call otherwise than their card."""

OWN_CARDS = ("folder", "split_file")
"""Cards of people's own data, after which no folder is named."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: its tensors, not yet read, and the epoch it was saved after, where it says so."""

    path: Path
    tensors: Mapping[str, StoredTensor]
    epoch: int | None


@dataclass(frozen=True)
class FolderNames:
    """What the folders of a checkpoint are named after.

    Attributes:
        trainer: the method in the words of the released code, or empty.
        position: where the class name stands, or empty.
        overrides: choices and keys of our configuration.
    """

    trainer: str = ""
    position: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict)


def read_checkpoint(place: Path) -> Checkpoint:
    """The checkpoint at a path: the file, or the only one in a folder of a run.

    Raises:
        DataError: no or several checkpoints, listed; a file that is refused, cut off or something else.
    """
    path = find_checkpoint(place)
    content = read_torch_file(path)
    tensors = named_tensors(path, content)
    return Checkpoint(path, tensors, _epoch(path, content))


def _epoch(path: Path, content: Any) -> int | None:
    said = content.get("epoch") if isinstance(content, dict) else None
    if type(said) is int and said > 0:
        return said
    number = re.search(r"-(\d+)$", path.name)
    return int(number[1]) if number else None


def find_checkpoint(place: Path) -> Path:
    """The file at a path, or the checkpoint below a folder: the last one where its ``checkpoint`` file names it.

    Raises:
        DataError: nothing there, or several, listed.
    """
    if place.is_file():
        return place
    if not place.is_dir():
        nearby = _below(place.parent) if place.parent.is_dir() else []
        raise DataError(f"there is no checkpoint {place}{_list(nearby)}.")
    found = [path for pattern in PATTERNS for folder in (place, *_folders(place)) for path in folder.glob(pattern)]
    if len(found) > 1:
        found = [path for path in found if _named_last(path)] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{place} holds {len(found)} checkpoints; name one of them{_list(sorted(found))}.")
    raise DataError(f"there is no checkpoint ({' or '.join(PATTERNS)}) in {place}{_list(_below(place))}.")


def _folders(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_dir())


def _named_last(path: Path) -> bool:
    """Whether the file ``checkpoint`` beside a checkpoint names it."""
    note = path.with_name("checkpoint")
    return note.is_file() and note.read_text(encoding="utf-8", errors="replace").strip() == path.name


def _below(place: Path) -> list[Path]:
    return sorted(path for pattern in PATTERNS for path in place.rglob(pattern))


def _list(paths: list[Path]) -> str:
    if not paths:
        return ""
    more = ", …" if len(paths) > LISTED else ""
    return f"; there {'is' if len(paths) == 1 else 'are'} {', '.join(map(str, paths[:LISTED]))}{more}"


def folder_names(path: Path) -> FolderNames:
    """What the folders of a checkpoint say: data set, shots, seed, model, method, and where the class name stands.

    Known are ``DATASET/TRAINER/rn50_ep50_16shots/nctx16_cscFalse_ctpend/seed1/…`` (all classes; Zhou et al., IJCV 2022)
    and ``train_base/DATASET/shots_16/TRAINER/vit_b16_…/seed1/…`` (base classes; CVPR 2022 and the works built on it);
    folders nearer to the file go before others.
    """
    trainers = {release.trainer.lower(): release.trainer for release in RELEASES}
    data_sets = {**DATA_SETS, **{name: name for name in card_names() if name not in OWN_CARDS}}
    trainer, position, found = "", "", {}
    for part in path.absolute().parts[:-1]:
        plain = part.lower().replace("-", "_")
        trainer = trainers.get(plain, trainer)
        if plain in data_sets:
            found["dataset"] = data_sets[plain]
        if match := re.search(r"(?:^|_)(rn50|rn101|vit_b16|vit_b32|vit_l14)(?:_|$)", plain):
            found["model"] = match[1]
        if match := re.search(r"(?:^|_)(?:shots_(\d+)|(\d+)_?shots?)(?:_|$)", plain):
            found["shots"] = match[1] or match[2]
            found["protocol"] = "base_to_novel" if match[1] else "few_shot"
        if match := re.fullmatch(r"seed_?(\d+)", plain):
            found["seed"] = match[1]
        if match := re.search(r"(?:^|_)ctp_?(end|middle|front)(?:_|$)", plain):
            position = match[1]
    return FolderNames(trainer, position, found)
