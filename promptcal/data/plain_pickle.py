"""Pickles of plain values and numpy arrays, as old data sets come in; anything else in them is refused."""

import pickle
from pathlib import Path
from typing import Any

from promptcal.errors import DataError

ALLOWED = {
    *((module, "_reconstruct") for module in ("numpy.core.multiarray", "numpy._core.multiarray")),
    *((module, "_frombuffer") for module in ("numpy.core.numeric", "numpy._core.numeric")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
"""What such a pickle may name: what numpy makes arrays with."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


def read_plain_pickle(path: Path) -> dict[str, Any]:
    """The mapping in a pickle of plain values and numpy arrays; nothing in it is run.

    Raises:
        DataError: a file that is missing, broken, no mapping, or holds anything else.
    """
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file, encoding="latin1").load()
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}.") from error
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is no pickle of plain values and arrays ({error}); fetch the file again.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no mapping; fetch the file again.")
    return {str(key): value for key, value in content.items()}
