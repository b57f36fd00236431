"""Where outlier words come from: the nouns of a WordNet that is installed, else the class names of ImageNet."""

import os
import sys
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from promptcal.errors import ConfigError, unknown

SOURCES = ("wordnet", "imagenet")
INDEX = "index.noun"
"""The file of a WordNet database that lists its nouns, one lemma at the start of each line."""

SYSTEM = (
    *(Path(sys.prefix) / part / "nltk_data/corpora/wordnet" for part in ("", "share", "lib")),
    *(Path(part) / "nltk_data/corpora/wordnet" for part in ("/usr/share", "/usr/local/share", "/usr/lib")),
    Path.home() / "nltk_data/corpora/wordnet",
    Path("/usr/share/wordnet"),
)
"""Where NLTK and systems put WordNet databases."""


def best_source() -> str:
    """``wordnet`` where a WordNet database is installed, else ``imagenet``."""
    return "wordnet" if wordnet_file() else "imagenet"


@cache
def nouns(source: str) -> tuple[str, ...]:
    """Distinct nouns, with spaces between words.

    Args:
        source: ``wordnet``: all noun lemmas of the WordNet database that is installed (NLTK's corpus, or one of the
            system); ``imagenet``: the 1,000 class names that open_clip carries.

    Raises:
        ConfigError: an unknown source, or a WordNet that is not there.
    """
    if source not in SOURCES:
        raise ConfigError(unknown("source of nouns", source, SOURCES))
    if source == "imagenet":
        from open_clip import IMAGENET_CLASSNAMES

        return tuple(dict.fromkeys(IMAGENET_CLASSNAMES))
    path = wordnet_file()
    if path is None:
        raise ConfigError(
            "there is no WordNet here; install NLTK's (nltk.download('wordnet')), set WNSEARCHDIR to the folder of a "
            "WordNet database, or take nouns=imagenet."
        )
    return tuple(dict.fromkeys(_lemmas(path)))


def wordnet_file() -> Path | None:
    """The noun index of an installed WordNet, or NLTK's archive of one, where there is any."""
    for folder in _wordnet_folders():
        for candidate in (folder / INDEX, folder.with_suffix(".zip")):
            if candidate.is_file():
                return candidate
    return None


def _wordnet_folders() -> Iterator[Path]:
    """Where WordNet databases may lie, those that environment variables name first."""
    if "WNSEARCHDIR" in os.environ:
        yield Path(os.environ["WNSEARCHDIR"])
    if "WNHOME" in os.environ:
        yield Path(os.environ["WNHOME"]) / "dict"
    for root in os.environ.get("NLTK_DATA", "").split(os.pathsep):
        if root:
            yield Path(root) / "corpora/wordnet"
    yield from SYSTEM


def _lemmas(path: Path) -> Iterable[str]:
    """The lemmas of a noun index; lines that begin with a space are its licence."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            text = archive.read(f"wordnet/{INDEX}").decode("utf-8")
    else:
        text = path.read_text(encoding="utf-8")
    return (line.split(" ", 1)[0].replace("_", " ") for line in text.splitlines() if line and line[0] != " ")
