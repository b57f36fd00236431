"""The embedded CLIP: a small CLIP whose weights ship with the package, so that nothing need be downloaded.

It is an ordinary `open_clip.model.CLIP`. The file holds float16 tensors. Of the 49,408 token embeddings only the rows
that were trained are stored; the others are re-created from a seed stored in the file.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from open_clip.model import CLIP

from promptcal.errors import DataError
from promptcal.models.clip import OPENAI_MEAN, OPENAI_STD
from promptcal.storage import load_tensors, save_tensors

MINI_CLIP_CONFIG: Final[dict[str, Any]] = {
    "embed_dim": 128,
    "vision_cfg": {"image_size": 32, "patch_size": 4, "width": 128, "layers": 4, "head_width": 32},
    "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 64, "heads": 4, "layers": 3},
}
FORMAT: Final = 1
ROW_SCHEME: Final = "numpy PCG64 standard_normal((vocab_size, width), float32) * row_std; trained rows overwritten"

_TABLE: Final = "token_embedding.weight"
_ROWS: Final = "token_embedding.trained_rows"
_VALUES: Final = "token_embedding.trained_values"
_FLOAT32: Final = ("logit_scale",)


def untrained_rows(vocab_size: int, width: int, seed: int, std: float) -> NDArray[np.float32]:
    """Token embeddings as they are before training: float32 of shape (vocab_size, width)."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.standard_normal((vocab_size, width), dtype=np.float32) * np.float32(std)


def save_embedded(model: CLIP, path: Path, meta: dict[str, Any]) -> None:
    """Write `model` to `path` as safetensors, atomically and byte-identically for equal inputs.

    `meta` must hold `config` (the arguments of `CLIP`), `trained_rows` (the ids of the token embeddings to store), and
    `row_seed` and `row_std` of the others; everything else in it is kept as it is. Rows outside `trained_rows` are not
    stored, so `load_embedded` returns the untrained rows there.
    """
    needed = {"config", "trained_rows", "row_seed", "row_std"}
    if missing := sorted(needed - meta.keys()):
        raise DataError(f"The metadata of the embedded CLIP lacks {', '.join(missing)}.")
    rows = np.unique(np.asarray(meta["trained_rows"], dtype=np.int32))
    tensors = {name: tensor.detach().cpu().numpy() for name, tensor in model.state_dict().items()}
    table = tensors.pop(_TABLE)
    if len(rows) == 0 or rows[0] < 0 or rows[-1] >= len(table):
        raise DataError(f"The trained token rows must be ids between 0 and {len(table) - 1}, and at least one of them.")
    arrays = {name: tensor.astype(np.float32 if name in _FLOAT32 else np.float16) for name, tensor in tensors.items()}
    arrays[_ROWS] = rows
    arrays[_VALUES] = table[rows].astype(np.float16)
    stored = {
        "image_mean": list(OPENAI_MEAN),
        "image_std": list(OPENAI_STD),
        **{key: value for key, value in meta.items() if key != "trained_rows"},
        "format": FORMAT,
        "row_scheme": ROW_SCHEME,
        "image_size": meta["config"]["vision_cfg"]["image_size"],
        "logit_scale": round(float(np.exp(tensors["logit_scale"])), 4),
    }
    save_tensors(path, arrays, stored)


def read_meta(path: Path) -> dict[str, Any]:
    """The metadata of a file written by `save_embedded`."""
    return _read(path)[1]


def stored_rows(path: Path) -> int:
    """How many token embeddings a file written by `save_embedded` holds."""
    return len(_read(path)[0][_ROWS])


def load_embedded(path: Path) -> CLIP:
    """Load a file written by `save_embedded` as a float32 CLIP in evaluation mode, on the CPU.

    Loading is strict: a missing, extra or wrongly shaped tensor raises a DataError that names it. The state of torch's
    random number generator is left as it was.
    """
    arrays, meta = _read(path)
    with torch.random.fork_rng(devices=[]):
        model = CLIP(**meta["config"])
    # A safetensors file of NumPy arrays holds no scalars: they are stored with shape (1,).
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    wanted = {name: tuple(shape) or (1,) for name, shape in shapes.items()}
    vocab_size, width = wanted.pop(_TABLE)
    rows = arrays.get(_ROWS)
    wanted |= {_ROWS: (0 if rows is None else rows.size,), _VALUES: (0 if rows is None else rows.size, width)}
    _check(path, arrays, wanted)
    if rows is None or rows.size == 0 or rows.min() < 0 or rows.max() >= vocab_size:
        raise DataError(f"{path} holds token ids outside 0..{vocab_size - 1}; the file is not a whole embedded CLIP.")
    table = untrained_rows(vocab_size, width, meta["row_seed"], meta["row_std"])
    table[arrays.pop(_ROWS)] = arrays.pop(_VALUES).astype(np.float32)
    tensors = {name: torch.from_numpy(array.astype(np.float32)).reshape(shapes[name]) for name, array in arrays.items()}
    model.load_state_dict({**tensors, _TABLE: torch.from_numpy(table)})
    return model.eval()


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    arrays, meta = load_tensors(path)
    if meta.get("format") != FORMAT:
        raise DataError(f"{path} has embedded-CLIP format {meta.get('format')}; this version reads format {FORMAT}.")
    return arrays, meta


def _check(path: Path, arrays: dict[str, NDArray[Any]], wanted: dict[str, tuple[int, ...]]) -> None:
    """Raise one DataError that lists every missing, extra or wrongly shaped tensor."""
    faults = [f"missing {name}" for name in sorted(wanted.keys() - arrays.keys())]
    faults += [f"extra {name}" for name in sorted(arrays.keys() - wanted.keys())]
    faults += [
        f"{name} of shape {arrays[name].shape} instead of {wanted[name]}"
        for name in sorted(wanted.keys() & arrays.keys())
        if arrays[name].shape != wanted[name]
    ]
    if faults:
        raise DataError(f"{path} does not fit the embedded CLIP: {'; '.join(faults)}.")
