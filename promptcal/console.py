"""What the command line says: lines to standard output, progress to standard error."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def say(text: str = "") -> None:
    """Write one line to standard output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def progress(items: Iterable[Item], label: str, *, total: int | None = None, quiet: bool = False) -> Iterator[Item]:
    """The items, with a progress bar on standard error while they are walked."""
    from tqdm import tqdm

    yield from tqdm(items, desc=label, total=total, disable=quiet, leave=False, dynamic_ncols=True, mininterval=0.5)


def columns(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
