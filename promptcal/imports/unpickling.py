"""Reading a pickle that runs nothing: every name in it is looked up in a list of ours, never in Python.

A pickle is a program: it names functions and calls them. Here a name means what ``MEANINGS`` or the caller says, stands
for an inert ``Placeholder`` (optimisers, schedulers, NumPy's numbers) or is refused. So the functions that a pickle can
call are those of this package and Python's containers, which build values and do nothing else.
"""

import pickle
import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable, Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Any, ClassVar, Never

from promptcal.errors import DataError


class Placeholder:
    """Stands for an object of another program: takes whatever the pickle fills it with, keeps and does nothing."""

    def __new__(cls, *arguments: Any, **named: Any) -> "Placeholder":
        """Take any arguments."""
        del arguments, named
        return super().__new__(cls)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        del arguments, named

    def fill(self, state: Any) -> None:
        """Forget the attributes."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Forget the item."""

    def append(self, item: Any) -> None:
        """Forget the item."""

    def extend(self, items: Any) -> None:
        """Forget the items."""


def default_mapping(factory: Any = None, *items: Any) -> dict[Any, Any]:
    """A ``defaultdict`` without its default: nothing that a pickle names is called later either."""
    del factory
    return dict(*items)


MEANINGS: Mapping[str, Any] = {
    "collections.OrderedDict": dict,
    "collections.defaultdict": default_mapping,
    **{f"builtins.{kind.__name__}": kind for kind in (dict, list, tuple, set, int, float)},
}
"""What the names of plain containers and numbers mean."""

INERT = (
    *("torch.optim", "dassl.optim"),
    *("numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "_codecs.encode"),
)
"""Names that give a placeholder, with every name below them."""

BROKEN = (
    *(pickle.UnpicklingError, EOFError, AttributeError, IndexError, KeyError, TypeError, ValueError),
    *(MemoryError, OverflowError, RecursionError, AssertionError, struct.error),
)
"""What unpickling raises on bytes that are no whole pickle, or that hand an object what it does not take."""


class RestrictedUnpickler(pickle._Unpickler):
    """Python's unpickler, with names looked up in a list and attributes set on nothing.

    The one written in Python, since only there the setting of attributes can be replaced.

    Args:
        file: the open pickle.
        path: what to call it in messages.
        meanings: what further names mean, as ``module.name``.
        stored: what a persistent id of the pickle stands for: the tensor data beside it.
    """

    proto: int
    stack: list[Any]

    def __init__(
        self,
        file: BufferedIOBase,
        path: Path,
        meanings: Mapping[str, Any],
        stored: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(file)
        self._path, self._meanings, self._stored = path, {**MEANINGS, **meanings}, stored

    def find_class(self, module: str, name: str) -> Any:
        """What a name means here; nothing is imported.

        Raises:
            DataError: a name that is not in the list.
        """
        if self.proto < 3:  # such pickles use the names of Python 2, as torch's do
            module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        asked = f"{module}.{name}"
        if asked in self._meanings:
            return self._meanings[asked]
        if any(f"{asked}.".startswith(f"{inert}.") for inert in INERT):
            return Placeholder
        raise DataError(
            f"{self._path} asks for '{asked}', which a file of tensors has no need of; it was not read further and "
            f"nothing in it was run."
        )

    def persistent_load(self, reference: Any) -> Any:
        """The data that a persistent id stands for."""
        if self._stored is None:
            raise pickle.UnpicklingError("a reference to data outside the pickle")
        return self._stored(reference)

    def load_build(self) -> None:
        """Hand a placeholder its attributes; those of anything else are forgotten."""
        state = self.stack.pop()
        if isinstance(self.stack[-1], Placeholder):
            self.stack[-1].fill(state)

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}


def unpickle(
    file: BufferedIOBase,
    path: Path,
    meanings: Mapping[str, Any],
    stored: Callable[[Any], Any] | None = None,
) -> Any:
    """The value of a pickle, read by ``RestrictedUnpickler``.

    Raises:
        DataError: a name that is refused, or bytes that are no whole pickle.
    """
    try:
        return RestrictedUnpickler(file, path, meanings, stored).load()
    except DataError:
        raise
    except BROKEN as error:
        not_whole(path, error)


def not_whole(path: Path, reason: Exception | str) -> Never:
    """Refuse a file that is cut off or something else."""
    said = str(reason) or type(reason).__name__
    raise DataError(
        f"{path} is not whole, or not what it seems to be ({said.splitlines()[0].rstrip('.')}); get the file again."
    ) from (reason if isinstance(reason, Exception) else None)
