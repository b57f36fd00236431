"""Look at data sets and at the feature cache.

promptcal data list                          the data sets promptcal has a card for
promptcal data show dtd --root /data         what a card says, and whether the files on disk agree with it
promptcal data show folder --path /my/images the same for your own images
promptcal data cache [--clear]               how much the image-feature cache holds; empty it
"""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptcal.data import Card

HELP = "list and check data sets; look at or clear the feature cache"
SHOWN_NAMES = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions of ``promptcal data``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="the data sets promptcal has a card for")
    show = actions.add_parser("show", help="one data set: its card, classes, halves, sizes and missing images")
    show.add_argument("name", metavar="NAME", help="a name from 'promptcal data list'")
    show.add_argument("--root", metavar="FOLDER", help="the parent folder of all data sets (data.root)")
    show.add_argument("--path", metavar="FOLDER", help="the folder of this data set (dataset.path)")
    cache = actions.add_parser("cache", help="how much the image-feature cache holds")
    cache.add_argument("--folder", metavar="FOLDER", help="the cache; by default that of the configuration")
    cache.add_argument("--clear", action="store_true", help="remove every cached feature")


def run(arguments: argparse.Namespace) -> int:
    """Do one action; returns 0."""
    if arguments.action == "list":
        _list()
    elif arguments.action == "show":
        _show(arguments.name, arguments.root, arguments.path)
    else:
        _cache(arguments.folder, clear=arguments.clear)
    return 0


def _list() -> None:
    from promptcal.console import say
    from promptcal.data.cards import SIZES, card_named, card_names

    cards = [card_named(name) for name in card_names()]
    say(f"{'name':14} {'classes':>7} {'train':>7} {'val':>7} {'test':>7}  title")
    for card in cards:
        sizes = "".join(f"{card.sizes.get(key, '-'):>{width}}" for key, width in zip(SIZES, (7, 8, 8, 8), strict=True))
        say(f"{card.name:14} {sizes}  {card.title}{'' if card.folder else ' (needs no files)'}")


def _show(name: str, root: str | None, path: str | None) -> None:
    from dataclasses import replace

    from promptcal.console import say
    from promptcal.data import base_novel, check_images, load_task, size_warnings
    from promptcal.data.cards import card_named

    card = card_named(name)
    card = card if path is None else replace(card, path=path)
    _say_card(card)
    if card.folder is not None and root is None and path is None:
        below = "" if card.folder == "." else f"--root FOLDER (holding '{card.folder}') or "
        say(f"on disk     not looked at; add {below}--path FOLDER")
        return
    task = load_task(card, root)
    say(f"on disk     {len(task.classes)} classes; {len(task.train)} train, {len(task.val)} val, {len(task.test)} test")
    halves = base_novel(task) if len(task.classes) > 1 else (task,)
    for half in halves:
        names = half.classes.names
        more = f", ... {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
        label = half.name.rpartition("/")[2] if len(halves) > 1 else "classes"
        say(f"{label:11} {len(names)}: {', '.join(names[:SHOWN_NAMES])}{more}")
    for warning in size_warnings(card, task):
        say(f"warning     {warning}")
    check_images(task)
    say("images      all there")


def _say_card(card: "Card") -> None:
    from promptcal.console import say

    lines = {
        "name": f"{card.name} ({card.title})",
        "reader": " ".join(
            [str(card.reader["_target_"]).rpartition(".")[2]]
            + [f"{key}={value}" for key, value in card.reader.items() if key != "_target_"]
        ),
        "templates": " | ".join(card.templates),
        "augment": f"scale {card.augment.scale}, ratio {card.augment.ratio}, flip {card.augment.flip}",
        "source": card.source,
        "licence": card.licence,
        "reference": card.reference,
    }
    for key, value in lines.items():
        say(f"{key:11} {value}")


def _cache(folder: str | None, *, clear: bool) -> None:
    from pathlib import Path

    from promptcal.config import compose
    from promptcal.console import say
    from promptcal.data.features import FeatureCache

    where = folder or compose().system.cache
    if where is None:
        say("there is no feature cache: system.cache is null")
        return
    cache = FeatureCache(Path(where))
    size = cache.clear() if clear else cache.size()
    verb = "removed" if clear else "holds"
    say(f"{where}: {verb} {size.features} image features in {size.shards} shards, {size.n_bytes / 2**20:.1f} MiB")
