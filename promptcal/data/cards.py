"""Data cards: one YAML file says what a data set is called, how it is read and what it should hold."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from promptcal.config import asset_path, build
from promptcal.data.class_names import listed
from promptcal.data.views import Augment
from promptcal.errors import ConfigError, DataError, unknown
from promptcal.types import Task

logger = logging.getLogger(__name__)

SIZES = ("classes", "train", "val", "test")


@dataclass(frozen=True)
class Archive:
    """A file to download, and what of it goes where.

    Attributes:
        url: where it lies.
        holds: paths in the archive, also through archives in it, and what they become in the data set's folder; for a
            file that is no archive its name.
        md5: the checksum of the whole file; None where its publisher gives none.
    """

    url: str
    holds: Mapping[str, str]
    md5: str | None = None


@dataclass(frozen=True)
class Card:
    """A data card.

    Attributes:
        name: what the data set is called on the command line and in run folders.
        title: its name in reports.
        reader: what reads it, a node with ``_target_``.
        folder: its folder below ``data.root``; None where it needs no files.
        other_folders: what the folder is called elsewhere; looked for where ``folder`` is not there.
        path: its folder itself, whatever ``data.root`` is.
        templates: the texts its class names stand in.
        augment: how training images are cropped and flipped; the published augmentation where it says nothing.
        sizes: the number of classes and of train, val and test images it should have.
        source: where its files come from.
        licence: the terms its images come under.
        reference: the paper that introduced it.
        annotations: what reads its raw annotations, a node with ``_target_``, for splits of one's own.
        archives: what ``promptcal data prepare`` downloads and where the files go.
        steps: what one has to do by hand.
    """

    name: str
    title: str
    reader: Mapping[str, Any]
    templates: tuple[str, ...]
    folder: str | None = None
    other_folders: tuple[str, ...] = ()
    path: str | None = None
    augment: Augment = field(default_factory=Augment)
    sizes: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    licence: str = ""
    reference: str = ""
    annotations: Mapping[str, Any] | None = None
    archives: tuple[Archive, ...] = ()
    steps: tuple[str, ...] = ()


def read_card(node: Any) -> Card:
    """The card of a configuration node or mapping.

    Raises:
        ConfigError: a key that is missing, unknown or of the wrong kind, named together with its card.
    """
    values: Any = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    if not isinstance(values, Mapping):
        raise ConfigError("the data set is not configured; choose one with dataset=NAME.")
    known = {entry.name for entry in fields(Card)}
    card = values.get("name", "?")
    for key in values:
        if key not in known:
            raise ConfigError(unknown(f"key of the data card '{card}'", str(key), known))
    for key in ("name", "title", "reader", "templates"):
        if not values.get(key):
            raise ConfigError(f"the data card '{card}' has no '{key}'.")
    templates = values["templates"]
    if isinstance(templates, str) or not isinstance(templates, Sequence):
        raise ConfigError(f"the templates of the data card '{card}' must be a list of texts with a {{}}.")
    sizes = values.get("sizes") or {}
    for key in sizes:
        if key not in SIZES:
            raise ConfigError(unknown(f"size of the data card '{card}'", str(key), SIZES))
    augment = _augment(values.get("augment") or {}, card)
    listed = {key: tuple(values.get(key) or ()) for key in ("other_folders", "steps")}
    archives = tuple(_archive(node, card) for node in values.get("archives") or ())
    made = {"templates": tuple(templates), "sizes": sizes, "augment": augment, "archives": archives}
    return Card(**{**values, **listed, **made})


def _archive(values: Any, card: str) -> Archive:
    try:
        return Archive(**values)
    except TypeError as error:
        raise ConfigError(
            f"an archive of the data card '{card}' must be {{url, md5, holds}}, not {values!r}."
        ) from error


def _augment(values: Mapping[str, Any], card: str) -> Augment:
    known = [entry.name for entry in fields(Augment)]
    for key in values:
        if key not in known:
            raise ConfigError(unknown(f"key of 'augment' in the data card '{card}'", str(key), known))
    whole = {**asdict(Augment()), **values}
    try:
        (low, high), (narrow, wide) = whole["scale"], whole["ratio"]
        return Augment((float(low), float(high)), (float(narrow), float(wide)), float(whole["flip"]))
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"the data card '{card}' must give augment as {{scale: [low, high], ratio: [low, high], flip: p}}."
        ) from error


def load_task(card: Card | Mapping[str, Any] | Any, root: str | Path | None = None) -> Task:
    """The task a card describes, with all its classes and images.

    Args:
        card: a Card, or the composed ``dataset`` node.
        root: the folder of all data sets, ``data.root``; the card's ``path`` goes before it.

    Raises:
        ConfigError: a faulty card.
        DataError: a folder, split file or class name that is missing or wrong.
    """
    card = card if isinstance(card, Card) else read_card(card)
    reader = build(card.reader)
    task: Task = reader.read(card.name, data_folder(card, root), card.templates)
    if not task.test:
        raise DataError(f"'{card.name}' has no test images; every task needs some.")
    _report_absent_classes(task)
    return task


def _report_absent_classes(task: Task) -> None:
    """Say in the log which classes a split has no images of; a split without any images is no fault here."""
    everything = set(range(len(task.classes)))
    for split, samples in (("training", task.train), ("validation", task.val), ("test", task.test)):
        absent = sorted(everything - {sample.label for sample in samples})
        if absent and samples:
            names = listed([task.classes.names[label] for label in absent])
            logger.warning("'%s' has no %s images of: %s.", task.name, split, names)


def data_folder(card: Card, root: str | Path | None) -> Path | None:
    """The folder of the data set, or None where its card names none; raises DataError where it is not there."""
    if card.path is not None:
        folder = Path(str(card.path)).expanduser()
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder} for '{card.name}'; correct dataset.path.")
        return folder
    if card.folder is None:
        return None
    if root is None:
        below = "" if card.folder == "." else f"data.root=/parent (its folder there is '{card.folder}') or "
        raise DataError(f"'{card.name}' is read from disk; give {below}dataset.path=/its/folder.")
    places = [Path(root).expanduser() / place for place in (card.folder, *card.other_folders)]
    for folder in places:
        if folder.is_dir():
            return folder
    named = " or ".join(map(str, places))
    raise DataError(f"there is no folder {named} for '{card.name}'; correct data.root or give dataset.path.")


def sizes_of(task: Task) -> dict[str, int]:
    """How many classes and images of each split a task has, by the names of ``SIZES``."""
    return {"classes": len(task.classes), "train": len(task.train), "val": len(task.val), "test": len(task.test)}


def size_warnings(card: Card | Mapping[str, Any] | Any, task: Task) -> list[str]:
    """One sentence, in a list, where the sizes of the whole task differ from its card's; else an empty list."""
    card = card if isinstance(card, Card) else read_card(card)
    found = sizes_of(task)
    wrong = [
        f"{found[key]} {'classes' if key == 'classes' else f'{key} images'} (expected {expected})"
        for key, expected in card.sizes.items()
        if found[key] != expected
    ]
    if not wrong:
        return []
    return [f"'{card.name}' has {', '.join(wrong)}; results do not compare with those published on the whole of it."]


def card_names() -> list[str]:
    """The names of the data cards that ship with promptcal."""
    return sorted(path.stem for path in asset_path("datasets").glob("*.yaml"))


def card_named(name: str) -> Card:
    """A data card that ships with promptcal; raises ConfigError with the nearest name for one that does not."""
    known = card_names()
    if name not in known:
        raise ConfigError(
            f"{unknown('data set', name, known)} Your own images: dataset=folder dataset.path=/my/folder, or "
            f"dataset=split_file with a split file."
        )
    return read_card(OmegaConf.load(asset_path("datasets", f"{name}.yaml")))
