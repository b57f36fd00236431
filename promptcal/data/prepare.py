"""Downloading data sets into the layout that readers expect; where an attempt was stopped, the next one goes on."""

import hashlib
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from http.client import HTTPException
from pathlib import Path, PurePosixPath

from promptcal.data.cards import Archive
from promptcal.errors import DataError

CHUNK = 1 << 20
TIMEOUT = 60
UNPACKED = (".zip", ".tar", ".tgz", ".tar.gz")

Bar = Callable[[Iterable[bytes], str, int], Iterable[bytes]]
"""What shows progress: it is given blocks of a file, a label and their number, and gives the blocks back."""


def fetch(archive: Archive, folder: Path, *, say: Callable[[str], None], bar: Bar) -> None:
    """Download an archive, compare its checksum, and lay what it holds into the folder of its data set.

    What is there already is left alone; files appear under their names when they are whole. The archive is taken from
    the folder where somebody has put it there, and is removed once it has been unpacked.

    Args:
        archive: one of a card's.
        folder: of the data set; made where it is not there.
        say: told what is being done.
        bar: shows progress over blocks of a file.

    Raises:
        DataError: a download that failed or that has another checksum, an archive that is broken or holds other files,
            a folder that cannot be written.
    """
    targets = ", ".join(archive.holds.values())
    if all((folder / target).exists() for target in archive.holds.values()):
        say(f"{targets}: there already")
        return
    file = folder / PurePosixPath(archive.url).name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if file.exists():
            _compare(file, archive, say, bar)
        else:
            say(f"downloading {archive.url}")
            download(archive, file, say=say, bar=bar)
        say(f"unpacking {file.name}")
        lay(file, archive, folder)
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be written ({error.strerror or error}).") from error


def download(archive: Archive, file: Path, *, say: Callable[[str], None], bar: Bar) -> None:
    """Download a file, going on where an earlier attempt stopped, and compare its checksum.

    Raises:
        DataError: the download failed (what came of it is kept), or its checksum is another (it is removed).
    """
    part = file.with_name(f"{file.name}.part")
    try:
        _receive(archive.url, part, bar)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{archive.url} cannot be downloaded ({reason}); the same command goes on from what has come, or put the "
            f"file into {file.parent} by hand."
        ) from error
    try:
        _compare(part, archive, say, bar)
    except DataError:
        part.unlink()
        raise
    part.rename(file)


def _compare(file: Path, archive: Archive, say: Callable[[str], None], bar: Bar) -> None:
    """Compare the checksum of a file with the published one, or say its own where none is published."""
    md5, sha256 = _checksums(file, bar)
    name = PurePosixPath(archive.url).name
    if archive.md5 is None:
        say(f"{name} has no published checksum; its SHA-256 is {sha256}")
    elif md5 != archive.md5:
        raise DataError(
            f"{name} has the MD5 checksum {md5} instead of {archive.md5}, as a broken download has; try again, or put "
            f"the right file into {file.parent} by hand."
        )


def _receive(url: str, part: Path, bar: Bar) -> None:
    """Append to ``part`` what it lacks of the file at ``url``; raises OSError where the connection ends early."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "promptcal"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing lies beyond what there is
            return
        raise
    with response:
        going_on = response.status == 206
        length = response.headers.get("Content-Length")
        left = int(length) if length is not None else 0
        with part.open("ab" if going_on else "wb") as out:
            came = 0
            blocks = iter(lambda: response.read(CHUNK), b"")
            for block in bar(blocks, f"{PurePosixPath(url).name} (MiB)", -(-left // CHUNK)):
                out.write(block)
                came += len(block)
    if length is not None and came < left:
        raise OSError(f"the connection ended after {came} of {left} bytes")


def _checksums(file: Path, bar: Bar) -> tuple[str, str]:
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with file.open("rb") as content:
        blocks = iter(lambda: content.read(CHUNK), b"")
        for block in bar(blocks, "checksum (MiB)", -(-file.stat().st_size // CHUNK)):
            md5.update(block)
            sha256.update(block)
    return md5.hexdigest(), sha256.hexdigest()


def lay(file: Path, archive: Archive, folder: Path) -> None:
    """Move what an archive holds to its places in the folder, and remove the archive.

    Raises:
        DataError: an archive that is broken, or that does not hold what its card says.
    """
    if not _is_archive(file):
        (target,) = archive.holds.values()
        file.rename(folder / target)
        return
    work = folder / f".{file.name}.unpacked"
    shutil.rmtree(work, ignore_errors=True)
    try:
        _unpack(file, work)
        for source, target in archive.holds.items():
            place = folder / target
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                _found(work, source, file).rename(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    file.unlink()


def _found(work: Path, source: str, file: Path) -> Path:
    """The place of ``source`` below ``work``; archives on the way are unpacked."""
    place = work
    for part in PurePosixPath(source).parts:
        if place.is_file() and _is_archive(place):
            inner = place.with_name(f"{place.name}.unpacked")
            if not inner.exists():
                _unpack(place, inner)
            place = inner
        place = place / part
    if not place.exists():
        raise DataError(f"{file} does not hold '{source}'; unpack it by hand, or remove it and try again.")
    return place


def _is_archive(file: Path) -> bool:
    return file.name.endswith(UNPACKED)


def _unpack(file: Path, to: Path) -> None:
    """Unpack an archive; members that would land outside ``to`` are refused."""
    try:
        if file.name.endswith(".zip"):
            with zipfile.ZipFile(file) as archive:
                archive.extractall(to)
        else:
            with tarfile.open(file) as archive:
                archive.extractall(to, filter="data")
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DataError(f"{file} cannot be unpacked ({error}); remove it and try again.") from error
