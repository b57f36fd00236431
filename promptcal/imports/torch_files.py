"""Files that ``torch.save`` wrote, zipped or in the older form, read without torch's unpickler.

Nothing is imported or called that the file names (see ``unpickling``), and a tensor's numbers are read when they are
asked for: of a file with a whole CLIP in it only the learned tensors are.
"""

import io
import math
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from promptcal.errors import DataError
from promptcal.imports.unpickling import Placeholder, not_whole, unpickle

MAGIC = 0x1950A86A20F9469CFC6C
"""The number at the start of a file in torch's older form."""

KINDS = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
"""What the storages of torch hold."""


@dataclass(frozen=True)
class Kind:
    """The kind of a storage, as its class is named in the file."""

    dtype: torch.dtype


@dataclass(frozen=True)
class Bytes:
    """Where the numbers of a storage lie: ``count`` of them, in a member of a zip file or from ``start`` on.

    Attributes:
        file: the file on disk.
        dtype: what the numbers are.
        count: how many the file says there are.
        member: the name within the zip file; None in the older form.
        places: in the older form, the place of every storage by its key, known once the pickle has been read.
        key: the key of this storage.
    """

    file: Path
    dtype: torch.dtype
    count: int
    key: str
    member: str | None = None
    places: dict[str, int] = field(default_factory=dict)

    def read(self) -> Tensor:
        """The numbers [count].

        Raises:
            DataError: fewer or more bytes than the file says.
        """
        size = self.count * self.dtype.itemsize
        try:
            if self.member is not None:
                with zipfile.ZipFile(self.file) as archive:
                    if archive.getinfo(self.member).file_size != size:
                        raise ValueError(f"'{self.member}' does not hold {size} bytes")
                    content = archive.read(self.member)
            else:
                with self.file.open("rb") as file:
                    file.seek(self.places[self.key])
                    content = file.read(size)
        except (OSError, KeyError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
            not_whole(self.file, error)
        if len(content) != size:
            not_whole(self.file, f"storage {self.key} is cut off")
        return torch.frombuffer(bytearray(content), dtype=self.dtype) if size else torch.empty(0, dtype=self.dtype)


class StoredTensor:
    """A tensor of a file: its shape is known, its numbers are read by ``read``."""

    __slots__ = ("_offset", "_storage", "_stride", "shape")

    def __init__(self, storage: Any, offset: Any, shape: Any, stride: Any, *more: Any) -> None:
        del more  # requires_grad and hooks
        numbers = (offset, *shape, *stride)
        if not isinstance(storage, Bytes) or not all(type(number) is int and number >= 0 for number in numbers):
            raise TypeError("a tensor that is not made of a storage and whole numbers")
        if len(shape) != len(stride):
            raise ValueError("a tensor with more dimensions than strides")
        last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        if math.prod(shape) > storage.count or (math.prod(shape) and last >= storage.count):
            raise ValueError("a tensor that is larger than its storage")
        self._storage, self._offset, self.shape, self._stride = storage, offset, tuple(shape), tuple(stride)

    def read(self) -> Tensor:
        """The tensor, on the CPU, as it was saved; raises DataError where its numbers are cut off."""
        return self._storage.read().as_strided(self.shape, self._stride, self._offset).clone()


def parameter(data: Any, *more: Any) -> Any:
    """A parameter is its tensor."""
    del more
    return data


def size(shape: Any = ()) -> tuple[Any, ...]:
    """A ``torch.Size`` is a tuple."""
    return tuple(shape)


MEANINGS: Mapping[str, Any] = {
    **{f"torch.{name}": Kind(dtype) for name, dtype in KINDS.items()},
    "torch._utils._rebuild_tensor": StoredTensor,
    "torch._utils._rebuild_tensor_v2": StoredTensor,
    "torch._utils._rebuild_parameter": parameter,
    "torch._utils._rebuild_parameter_with_state": parameter,
    "torch.Size": size,
    "torch.device": Placeholder,
    **{f"torch.{name}": Placeholder for name in ("float16", "float32", "float64", "bfloat16", "int64")},
}
"""What the names of torch mean."""


def read_torch_file(path: Path) -> Any:
    """The content of a file of ``torch.save``, with a ``StoredTensor`` where it holds a tensor.

    Raises:
        DataError: no such file, a name that is refused, a cut-off file, or one that is something else.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}.")
    try:
        with path.open("rb") as file:
            if zipfile.is_zipfile(file):
                return _read_zipped(path)
            file.seek(0)
            return _read_older(path, file)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error


def _read_zipped(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.partition("/")[2]: name for name in archive.namelist()}
            if "constants.pkl" in members:
                raise DataError(f"{path} is a TorchScript program, not a checkpoint; give the file of the trainer.")
            if "data.pkl" not in members:
                raise DataError(f"{path} is a zip file without tensors of torch; give the checkpoint of the trainer.")
            order = archive.read(members["byteorder"]) if "byteorder" in members else sys.byteorder.encode()
            pickled = archive.read(members["data.pkl"])
    except (RuntimeError, NotImplementedError, EOFError, zipfile.BadZipFile) as error:
        not_whole(path, error)
    _check_order(path, order.decode("ascii", "replace"))

    def stored(reference: Any) -> Bytes:
        _, kind, key, _, count = reference
        if not isinstance(kind, Kind) or not isinstance(key, str) or type(count) is not int:
            raise TypeError("a storage of a kind that is not known")
        return Bytes(path, kind.dtype, count, key, members.get(f"data/{key}", f"data/{key}"))

    return unpickle(io.BytesIO(pickled), path, MEANINGS, stored)


def _read_older(path: Path, file: BufferedIOBase) -> Any:
    """The older form: four pickles (magic number, version, machine, content), the keys, then storage by storage."""
    start = file.read(2)
    if start == b"PK":
        not_whole(path, "a zip file without its end")
    if start[:1] != b"\x80":
        raise DataError(f"{path} is not a file of torch; give the checkpoint of the trainer.")
    file.seek(0)
    if unpickle(file, path, {}) != MAGIC:
        raise DataError(f"{path} is a pickle, but not one of torch; give the checkpoint of the trainer.")
    unpickle(file, path, {})
    machine = unpickle(file, path, {})
    little = machine.get("little_endian", True) if isinstance(machine, dict) else True
    _check_order(path, "little" if little else "big")
    storages: dict[str, Bytes] = {}
    places: dict[str, int] = {}

    def stored(reference: Any) -> Bytes:
        _, kind, key, _, count, view = reference
        if view is not None or not isinstance(kind, Kind) or not isinstance(key, str) or type(count) is not int:
            raise TypeError("a storage of a kind that is not known")
        return storages.setdefault(key, Bytes(path, kind.dtype, count, key, places=places))

    content = unpickle(file, path, MEANINGS, stored)
    keys = unpickle(file, path, {})
    for key in keys if isinstance(keys, list) else []:
        if not isinstance(key, str) or key not in storages:
            not_whole(path, "a storage that no tensor uses")
        count = int.from_bytes(file.read(8), "little")
        if count != storages[key].count:
            not_whole(path, f"storage {key} is cut off")
        places[key] = file.tell()
        file.seek(count * storages[key].dtype.itemsize, io.SEEK_CUR)
    if file.tell() > path.stat().st_size:
        not_whole(path, "its last storage is cut off")
    return content


def _check_order(path: Path, order: str) -> None:
    if order != sys.byteorder:
        raise DataError(f"{path} was written on a machine of the other byte order ({order}); save it again on this.")


def tensors_of(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint by name: its ``state_dict``, or the whole content where that is one.

    ``module.`` and ``_orig_mod.``, which wrappers put before the names, are taken off.

    Raises:
        DataError: as ``read_torch_file``, and a file that holds no named tensors.
    """
    return named_tensors(path, read_torch_file(path))


def named_tensors(path: Path, content: Any) -> dict[str, StoredTensor]:
    """The tensors of a checkpoint that has been read, by name."""
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    found = (
        {name: value for name, value in state.items() if isinstance(name, str) and isinstance(value, StoredTensor)}
        if isinstance(state, dict)
        else {}
    )
    if not found:
        raise DataError(f"{path} holds no named tensors; give the checkpoint of the trainer.")
    return {_unwrapped(name): value for name, value in found.items()}


def _unwrapped(name: str) -> str:
    for wrapper in ("module.", "_orig_mod."):
        name = name.removeprefix(wrapper)
    return name
