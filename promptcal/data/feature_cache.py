"""Image features on disk: written whole, read through a memory map, shared by runs and bounded in size."""

import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, UInt8
from safetensors import SafetensorError, safe_open

from promptcal.errors import ConfigError, DataError
from promptcal.locks import locked
from promptcal.storage import save_tensors

logger = logging.getLogger(__name__)

SUFFIX = ".safetensors"
STALE_SECONDS = 3600.0


@dataclass(frozen=True)
class CacheSize:
    """What a cache holds: shards, features (an image counts once in each view) and bytes."""

    shards: int
    features: int
    n_bytes: int


@dataclass(frozen=True)
class FeatureCache:
    """A folder of feature shards.

    A *space* is the hash of everything besides the image that decides a feature: weights, transform, precision, view
    and augmentation. A shard is one immutable safetensors file of a space: ``keys`` [n, 32], the SHA-256 digests of its
    images, and ``features`` [n, D], float32. A shard appears by a rename, so a killed write leaves none; processes that
    fill a space at once write shards of their own and read each other's.

    Attributes:
        folder: where the shards lie; made when the first one is written.
        max_bytes: where the shards exceed it, those unused for longest are removed; the newest one stays.
        name: of the data set; processes that lack features of one space and data set take turns, so that they are
            encoded once.
    """

    folder: Path
    max_bytes: int = 20 * 2**30
    name: str = "images"

    def __post_init__(self) -> None:
        if self.max_bytes <= 0:
            raise ConfigError(f"a feature cache of {self.max_bytes} bytes holds nothing; switch it off instead.")

    def lookup(
        self, space: str, digests: UInt8[np.ndarray, "n 32"]
    ) -> tuple[Bool[np.ndarray, " n"], Float[np.ndarray, "m D"]]:
        """Which images of a space are cached, and the features of those, in order; a broken shard counts as absent."""
        wanted = _as_keys(digests)
        shard_of, row_of = np.full(len(wanted), -1), np.zeros(len(wanted), dtype=np.int64)
        parts: list[np.ndarray] = []
        for shard in sorted(self.folder.glob(f"{space}-*{SUFFIX}"), reverse=True):
            missing = np.flatnonzero(shard_of < 0)
            if not len(missing):
                break
            content = _read(shard)
            if content is None:
                continue
            keys, features = content
            order = np.argsort(keys)
            place = order[np.minimum(np.searchsorted(keys, wanted[missing], sorter=order), len(keys) - 1)]
            hit = keys[place] == wanted[missing]
            if hit.any():
                shard_of[missing[hit]], row_of[missing[hit]] = len(parts), place[hit]
                parts.append(features)
                with suppress(OSError):
                    os.utime(shard)
        found = shard_of >= 0
        if not parts:
            return found, np.zeros((0, 0), dtype=np.float32)
        starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
        rows: np.ndarray = np.concatenate(parts)[starts[shard_of[found]] + row_of[found]]
        return found, rows

    @contextmanager
    def filling(self, space: str) -> Iterator[None]:
        """Keep other processes from encoding the same images while the block does; look them up again inside it.

        Raises:
            DataError: the folder cannot be written.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder / f"{space}.{self.name}.lock"))
            except OSError as error:
                raise self._unwritable(error) from error
            yield

    def store(
        self,
        space: str,
        digests: UInt8[np.ndarray, "n 32"],
        features: Float[np.ndarray, "n D"],
        about: Mapping[str, object],
    ) -> None:
        """Write features as one shard, then keep to the size limit.

        Args:
            space: the hash from ``space_of``.
            digests: the images' SHA-256 digests.
            features: their features.
            about: what the hash stands for, kept in the shard for whoever looks.

        Raises:
            DataError: the folder cannot be written.
        """
        shard = self.folder / f"{space}-{time.time_ns():020d}-{uuid.uuid4().hex[:8]}{SUFFIX}"
        try:
            save_tensors(shard, {"keys": digests, "features": features.astype(np.float32)}, about)
        except OSError as error:
            raise self._unwritable(error) from error
        self._evict(keep=shard)

    def _unwritable(self, error: OSError) -> DataError:
        return DataError(
            f"the feature cache {self.folder} cannot be written ({error.strerror}); set system.cache to another "
            f"folder, or to null for none."
        )

    def size(self) -> CacheSize:
        """What the cache holds now."""
        shards = list(self._shards())
        return CacheSize(len(shards), sum(_count(shard) for shard, _, _ in shards), sum(size for _, size, _ in shards))

    def clear(self) -> CacheSize:
        """Remove every shard; returns what there was. Other files in the folder are left alone."""
        before = self.size()
        for shard, _, _ in self._shards():
            shard.unlink(missing_ok=True)
        self._remove_stale()
        return before

    def _shards(self) -> Iterator[tuple[Path, int, float]]:
        """Every shard with its size in bytes and time of last use; those that vanish meanwhile are left out."""
        for shard in self.folder.glob(f"*-*-*{SUFFIX}"):
            with suppress(FileNotFoundError):
                stat = shard.stat()
                yield shard, stat.st_size, stat.st_mtime

    def _evict(self, keep: Path) -> None:
        self._remove_stale()
        shards = sorted(self._shards(), key=lambda entry: entry[2])
        total = sum(size for _, size, _ in shards)
        for shard, size, _ in shards:
            if total <= self.max_bytes:
                return
            if shard != keep:
                shard.unlink(missing_ok=True)
                total -= size

    def _remove_stale(self) -> None:
        """Remove what killed writes left behind: temporary files that nobody has touched for an hour."""
        for temporary in self.folder.glob(f".*{SUFFIX}.*.tmp"):
            with suppress(FileNotFoundError):
                if time.time() - temporary.stat().st_mtime > STALE_SECONDS:
                    temporary.unlink()


def space_of(about: Mapping[str, object]) -> str:
    """The hash of everything besides the image that decides a feature."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def _as_keys(digests: UInt8[np.ndarray, "n 32"]) -> np.ndarray:
    """Digests as fixed-width byte strings, which NumPy sorts and compares whole."""
    return np.ascontiguousarray(digests).view("S32").reshape(-1)


def _read(shard: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Keys and features of a shard; None, and the file removed, where it is broken."""
    try:
        with safe_open(shard, framework="numpy") as file:
            keys, features = _as_keys(file.get_tensor("keys")), file.get_tensor("features")
    except FileNotFoundError:
        return None
    except (SafetensorError, OSError, ValueError) as error:
        logger.warning("the cached features %s are broken (%s); they are removed and computed anew.", shard, error)
        with suppress(OSError):
            shard.unlink(missing_ok=True)
        return None
    return (keys, features) if len(keys) else None


def _count(shard: Path) -> int:
    try:
        with safe_open(shard, framework="numpy") as file:
            return int(file.get_slice("keys").get_shape()[0])
    except (SafetensorError, OSError):
        return 0
