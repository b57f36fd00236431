"""Locks between processes: a file that one process holds at a time, and that is free again when the process dies."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file ``path`` while the block runs; the file is removed afterwards.

    The lock is ``flock``'s: the system takes it back when its holder dies, however it dies. It works between the
    processes of one machine, and between machines where their shared file system passes ``flock`` on (NFS of Linux
    does); where a file system or system knows no such locks, everybody is let in.

    Args:
        path: the lock file; its folder is made where there is none.
        wait: wait for another holder to end; else go on at once.

    Yields:
        Whether the lock is held: always True after waiting.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _take(path, wait)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            with suppress(OSError):
                path.unlink()  # while it is held: whoever waits for this very file sees that it is gone and starts anew
            os.close(handle)


def _take(path: Path, wait: bool) -> int | None:
    """An open handle that holds the lock; None where another process holds it and nobody wants to wait."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        kept = False
        try:
            if not _flock(handle, wait):
                return None
            kept = _is_still(handle, path)
            if kept:
                return handle
        finally:
            if not kept:
                os.close(handle)


def _flock(handle: int, wait: bool) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # the file system knows no locks
        return True
    return True


def _is_still(handle: int, path: Path) -> bool:
    """Whether the file behind the handle is still the one at the path: its last holder may have removed it."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
