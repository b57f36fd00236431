"""Files on disk: written whole or not at all, and byte-identical from run to run."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as safetensors_bytes

from promptcal.errors import DataError
from promptcal.types import Predictions

METADATA_KEY = "promptcal"
ARRAYS = (
    "logits",
    "labels",
    "temperature",
    "zero_shot_logits",
    "image_features",
    "text_features",
    "zero_shot_text_features",
    "norms",
    "norms_before",
    "probabilities",
)


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` atomically: a temporary file beside it, then a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, content: str) -> None:
    """Write UTF-8 text atomically."""
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON with sorted keys atomically."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line, keys sorted, atomically."""
    write_text(path, "".join(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in rows))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """All rows of a JSON-lines file; raises DataError naming the line that is broken."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {number}, is not JSON ({error.msg}).") from error
    return rows


def save_tensors(path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
    """Write arrays as safetensors with ONE metadata key holding sorted JSON (several keys come out in random order)."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())}
    text = json.dumps(dict(metadata), sort_keys=True, ensure_ascii=False)
    write_bytes(path, safetensors_bytes(contiguous, metadata={METADATA_KEY: text}))


def load_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read arrays and metadata written by ``save_tensors``; raises DataError naming a missing or broken file."""
    if not path.is_file():
        raise DataError(f"there is no file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            metadata = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
    except (SafetensorError, json.JSONDecodeError) as error:
        raise DataError(f"{path} is not a whole safetensors file of promptcal ({error}).") from error
    return arrays, metadata


def save_predictions(path: Path, predictions: Predictions) -> None:
    """Write the predictions of one split."""
    arrays = {name: value for name in ARRAYS if (value := getattr(predictions, name)) is not None}
    metadata = {
        "classes": list(predictions.classes),
        "paths": None if predictions.paths is None else list(predictions.paths),
        "split": predictions.split,
        "transformed_by": list(predictions.transformed_by),
    }
    save_tensors(path, arrays, metadata)


def load_predictions(path: Path) -> Predictions:
    """Read predictions written by ``save_predictions``; raises DataError where a field is missing."""
    arrays, metadata = load_tensors(path)
    for name in ("logits", "labels"):
        if name not in arrays:
            raise DataError(f"{path} has no '{name}'; it is not a prediction file of promptcal.")
    paths = metadata.get("paths")
    return Predictions(
        **{name: arrays.get(name) for name in ARRAYS},  # type: ignore[arg-type]
        classes=tuple(metadata.get("classes") or map(str, range(arrays["logits"].shape[1]))),
        paths=None if paths is None else tuple(paths),
        split=metadata.get("split", ""),
        transformed_by=tuple(metadata.get("transformed_by", ())),
    )
