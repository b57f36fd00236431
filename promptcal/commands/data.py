"""Look at data sets, fetch them, and look at the feature cache.

promptcal data list                          the data sets promptcal has a card for
promptcal data show dtd --root /data         what a card says, and whether the files on disk agree with it
promptcal data show folder --path /my/images the same for your own images
promptcal data check /data                   every data set below a folder: what is missing, broken, of the wrong size
promptcal data prepare dtd /data             download a data set into the layout that is read, or say how to
promptcal data split dtd /data --seed 1      a split file of your own, where the published one is not to be had
promptcal data cache [--clear]               how much the image-feature cache holds; empty it

'check' ends with exit code 1 where something is wrong. 'prepare' goes on where it was stopped. 'split' writes one file,
where it says; nothing else here writes into the folder of a data set.
"""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from promptcal.data import Card
    from promptcal.data.condition import Condition

HELP = "list, check and fetch data sets; look at or clear the feature cache"
SHOWN_NAMES = 60
SHOWN_PATHS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions of ``promptcal data``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="the data sets promptcal has a card for")
    show = actions.add_parser("show", help="one data set: its card, classes, halves, sizes and missing images")
    show.add_argument("name", metavar="NAME", help="a name from 'promptcal data list'")
    show.add_argument("--root", metavar="FOLDER", help="the parent folder of all data sets (data.root)")
    show.add_argument("--path", metavar="FOLDER", help="the folder of this data set (dataset.path)")
    check = actions.add_parser("check", help="the data sets below a folder: missing and broken images, wrong sizes")
    check.add_argument("root", metavar="ROOT", help="the parent folder of all data sets (data.root)")
    check.add_argument("names", nargs="*", metavar="NAME", help="these data sets alone, which then have to be there")
    check.add_argument("--quick", action="store_true", help="see whether images are there without opening them")
    check.add_argument("--quiet", action="store_true", help="no progress bars")
    prepare = actions.add_parser("prepare", help="download a data set, or say step by step how to get it")
    prepare.add_argument("name", metavar="NAME", help="a name from 'promptcal data list'")
    prepare.add_argument("root", metavar="ROOT", help="the parent folder of all data sets (data.root)")
    prepare.add_argument("--quiet", action="store_true", help="no progress bars")
    split = actions.add_parser("split", help="a split file of your own by the published rule")
    split.add_argument("name", metavar="NAME", help="a name from 'promptcal data list'")
    split.add_argument("root", metavar="ROOT", help="the parent folder of all data sets (data.root)")
    split.add_argument("--seed", type=int, required=True, metavar="S", help="what chance begins with")
    split.add_argument("--out", metavar="FILE", help="where the split file goes (default: NAME_split_seedS.json here)")
    cache = actions.add_parser("cache", help="how much the image-feature cache holds")
    cache.add_argument("--folder", metavar="FOLDER", help="the cache; by default that of the configuration")
    cache.add_argument("--clear", action="store_true", help="remove every cached feature")


def run(arguments: argparse.Namespace) -> int:
    """Do one action; returns 0, or 1 where a check has found something wrong."""
    match arguments.action:
        case "list":
            _list()
        case "show":
            _show(arguments.name, arguments.root, arguments.path)
        case "check":
            return _check(arguments.root, arguments.names, opening=not arguments.quick, quiet=arguments.quiet)
        case "prepare":
            return _prepare(arguments.name, arguments.root, quiet=arguments.quiet)
        case "split":
            _split(arguments.name, arguments.root, arguments.seed, arguments.out)
        case _:
            _cache(arguments.folder, clear=arguments.clear)
    return 0


def _list() -> None:
    from promptcal.console import say
    from promptcal.data.cards import SIZES, card_named, card_names

    cards = [card_named(name) for name in card_names()]
    say(f"{'name':15} {'classes':>7} {'train':>7} {'val':>7} {'test':>7}  title")
    for card in cards:
        sizes = "".join(f"{card.sizes.get(key, '-'):>{width}}" for key, width in zip(SIZES, (7, 8, 8, 8), strict=True))
        say(f"{card.name:15} {sizes}  {card.title}{'' if card.folder else ' (needs no files)'}")


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


def _check(root: str, names: list[str], *, opening: bool, quiet: bool) -> int:
    """Say in what condition the data sets below a folder are; returns 1 where one is faulty or a named one absent."""
    from promptcal.console import progress, say
    from promptcal.data.cards import card_named, card_names
    from promptcal.data.condition import condition

    place = _existing(root)
    cards = [card_named(name) for name in names or card_names()]
    cards = [card for card in cards if card.folder is not None and (names or card.folder != ".")]
    found = []
    say(f"{'name':15} {'state':7} {'classes':>7} {'train':>7} {'val':>7} {'test':>7}  images")
    for card in cards:
        one = condition(
            card,
            place,
            opening=opening,
            bar=lambda items, label, total: progress(items, label, total=total, quiet=quiet),
        )
        _say_condition(one, card)
        found.append(one)
    states = [one.state for one in found]
    say()
    counted = ", ".join(f"{states.count(state)} {state}" for state in ("whole", "faulty", "absent"))
    say(f"{counted}, in {place}")
    if not opening:
        say("images were not opened; without --quick broken ones are found, too")
    return 1 if "faulty" in states or (names and "absent" in states) or set(states) == {"absent"} else 0


def _existing(root: str) -> "Path":
    """The parent folder of all data sets, which has to be there: a typing error shall not start a download."""
    from pathlib import Path

    from promptcal.errors import DataError

    place = Path(root).expanduser()
    if not place.is_dir():
        raise DataError(f"there is no folder {place}; give the parent folder of all data sets.")
    return place


def _say_condition(one: "Condition", card: "Card") -> None:
    from promptcal.console import say

    if one.folder is None:
        say(f"{one.name:15} absent  no folder {' or '.join((str(card.folder), *card.other_folders))}")
        return
    numbers = " ".join(f"{one.counts.get(key, '-'):>7}" for key in ("classes", "train", "val", "test"))
    say(f"{one.name:15} {one.state:7} {numbers}  {one.images} in {one.folder}")
    for fault in one.faults:
        say(f"    {fault}")
    if one.missing:
        say(f"    {len(one.missing)} of {one.images} images are missing: {_first(one.missing)}")
    if one.broken:
        say(f"    {len(one.broken)} of {one.images} images are broken: {_first(one.broken, between=' ')}")


def _first(items: "tuple[str, ...]", between: str = ", ") -> str:
    return between.join(items[:SHOWN_PATHS]) + (f"{between}..." if len(items) > SHOWN_PATHS else "")


def _prepare(name: str, root: str, *, quiet: bool) -> int:
    """Fetch what can be fetched, and say what is left to do; returns 1 where something is."""
    from promptcal.console import progress, say
    from promptcal.data.cards import card_named
    from promptcal.data.condition import condition
    from promptcal.data.prepare import fetch
    from promptcal.errors import ConfigError, DataError

    card = card_named(name)
    if card.folder is None or not (card.archives or card.steps):
        raise ConfigError(f"'{name}' has nothing to fetch.")
    place = _existing(root)
    places = [place / folder for folder in (card.folder, *card.other_folders)]
    folder = next((place for place in places if place.is_dir()), places[0])
    say(f"{card.title}, {card.licence}: {card.source}")
    for archive in card.archives:
        try:
            fetch(archive, folder, say=say, bar=lambda blocks, label, n: progress(blocks, label, total=n, quiet=quiet))
        except DataError as error:
            say(str(error))
    found = condition(card, place, opening=False, bar=lambda items, label, total: items)
    if found.state == "whole":
        say(f"{folder}: all {found.images} images are there")
        return 0
    say(f"left to do in {folder}:")
    for number, step in enumerate(card.steps, start=1):
        say(f"  {number}. {step}")
    for fault in found.faults:
        say(f"because {fault}")
    if found.missing:
        say(f"because {len(found.missing)} of {found.images} images are missing: {_first(found.missing)}")
    return 1


def _split(name: str, root: str, seed: int, out: str | None) -> None:
    """Write a split file of one's own, and say that it is not the published one."""
    import json
    from pathlib import Path

    from promptcal.console import say
    from promptcal.data.cards import card_named, data_folder
    from promptcal.data.making import split_of_ones_own
    from promptcal.data.readers.split_json import NOTE, SPLITS
    from promptcal.errors import ConfigError, DataError
    from promptcal.storage import write_text

    file = Path(out or f"{name}_split_seed{seed}.json").expanduser().absolute()
    if file.exists():
        raise ConfigError(f"{file} is there already; remove it, or give another --out.")
    card = card_named(name)
    folder = data_folder(card, root)
    if folder is None:
        raise DataError(f"'{name}' lies in no folder that could be split.")
    content = split_of_ones_own(card, folder, seed)
    try:
        write_text(file, json.dumps(content, ensure_ascii=False) + "\n")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror}); give another --out.") from error
    say(f"{file}: {', '.join(f'{len(content[split])} {split}' for split in SPLITS)}")
    say(f"{content[NOTE]}")
    say(f"use it with: dataset={name} data.root={root} dataset.reader.split={file}")


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
