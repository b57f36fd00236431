"""Calibrators on disk: safetensors with one metadata key, never a pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from promptcal.calibrators.building import build_calibrator
from promptcal.calibrators.contract import Calibrator
from promptcal.errors import DataError
from promptcal.storage import load_tensors, save_tensors


def save_calibrator(path: str | Path, calibrator: Calibrator) -> None:
    """Write the parameters and everything learned by a calibrator to one safetensors file."""
    arrays: dict[str, np.ndarray] = {}
    described = _pack(calibrator, "", arrays)
    save_tensors(Path(path), arrays, {"calibrator": described})


def load_calibrator(path: str | Path) -> Calibrator:
    """Read a calibrator written by ``save``; it transforms exactly as the one that was saved.

    Raises:
        DataError: the file is missing, broken, or holds no calibrator.
        ConfigError: it holds a calibrator that is not known here, such as one of a plug-in that is not installed.
    """
    arrays, metadata = load_tensors(Path(path))
    if not isinstance(metadata.get("calibrator"), dict):
        raise DataError(f"{path} holds no calibrator; give a file that 'promptcal calibrate' wrote.")
    loaded: Calibrator = _unpack(metadata["calibrator"], arrays)
    return loaded


def _pack(value: Any, key: str, arrays: dict[str, np.ndarray]) -> Any:
    """JSON for a value; its arrays go into ``arrays`` under keys that begin with ``key``."""
    if isinstance(value, Calibrator):
        learned = {name: item for name, item in vars(value).items() if name.endswith("_")}
        return {
            "name": value.name,
            "parameters": {k: _pack(v, f"{key}{k}.", arrays) for k, v in value.get_params(deep=False).items()},
            "learned": {k: _pack(v, f"{key}{k}.", arrays) for k, v in learned.items()},
        }
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "U":
            return {"strings": value.tolist()}
        arrays[key.rstrip(".")] = value
        return {"array": key.rstrip(".")}
    if isinstance(value, Mapping):
        return {"mapping": {k: _pack(v, f"{key}{k}.", arrays) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        return [_pack(item, f"{key}{index}.", arrays) for index, item in enumerate(value)]
    return value


def _unpack(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value that ``_pack`` described."""
    if isinstance(value, list):
        return [_unpack(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "strings" in value:
        return np.array(value["strings"])
    if "mapping" in value:
        return {k: _unpack(v, arrays) for k, v in value["mapping"].items()}
    calibrator = build_calibrator(value["name"], {k: _unpack(v, arrays) for k, v in value["parameters"].items()})
    for name, item in value["learned"].items():
        setattr(calibrator, name, _unpack(item, arrays))
    return calibrator
