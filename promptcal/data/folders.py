"""Looking into folders of images: class folders and their files, system files passed over."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
JUNK = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


def class_folders(folder: Path) -> list[Path]:
    """The visible folders of a folder, in name order; none where it is not there."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not is_junk(path.name))


def visible_files(folder: Path) -> list[str]:
    """The visible files at any depth below a folder, in the order of their parts, relative and POSIX."""
    return sorted(_walk(str(folder), ""), key=lambda path: path.split("/"))


def image_files(folder: Path) -> list[str]:
    """The image files at any depth below a folder, in the order of their parts, relative and POSIX."""
    return [path for path in visible_files(folder) if is_image(path)]


def is_image(path: str) -> bool:
    """Whether the name ends as those of images do."""
    return PurePosixPath(path).suffix.lower() in SUFFIXES


def is_junk(name: str) -> bool:
    """Whether a name is hidden or one that systems leave behind."""
    return name.startswith(".") or name.lower() in JUNK


def _walk(folder: str, prefix: str) -> Iterator[str]:
    """Files below a folder; what a directory says of its entries suffices, as data sets have a million of them."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_junk(entry.name):
                continue
            if entry.is_dir():
                yield from _walk(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file():
                yield f"{prefix}{entry.name}"
