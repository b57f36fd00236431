"""Values of a configuration against the types they are meant to have, in words."""

import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from promptcal.errors import ConfigError

KEYS: Mapping[str, Any] = {
    "seed": int,
    "shots": int,
    "split_seed": int | None,
    "precision": str,
    "text_pass": str,
    "calibrators": tuple[str, ...],
    "calibration.split": str,
    "data.root": str | None,
    "data.missing": str,
    "runs": str,
    "system.device": str,
    "system.threads": int | None,
    "system.cache": str | None,
    "system.cache_gb": float,
    "system.memory_gb": float,
    "system.log": tuple[str, ...],
}
"""The types of the keys that belong to no object; those of objects are in their signatures."""

LISTS = ("calibrators", "system.log")
"""Lists for which a single name may stand."""

_WORDS = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", types.NoneType: "null"}


def check_keys(config: DictConfig) -> None:
    """Refuse values of the wrong kind in a composed configuration; a name that stands for a list becomes one.

    Raises:
        ConfigError: names the key, what it must be, and the value.
    """
    for key in LISTS:
        value = OmegaConf.select(config, key)
        if isinstance(value, str):
            OmegaConf.update(config, key, [value])
    for key, kind in KEYS.items():
        check_value(key, kind, OmegaConf.select(config, key))
    if not config.calibrators:
        raise ConfigError("calibrators=[] measures nothing; write calibrators=[none] for the model as it is.")


def check_value(key: str, kind: Any, value: Any) -> None:
    """Refuse a value that is not of a kind made of int, float, str, bool, None and tuples; other kinds are not judged.

    Raises:
        ConfigError: names the key, what it must be, and the value.
    """
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value)
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    known = [one for one in kinds if one in _WORDS or typing.get_origin(one) is tuple]
    if len(known) == len(kinds) and not any(_is(one, value) for one in known):
        raise ConfigError(f"{key} must be {' or '.join(map(_words, known))}, not {value!r}.")


def _is(kind: Any, value: Any) -> bool:
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)
        return isinstance(value, list | tuple) and (
            inner[-1] is not ... or inner[0] not in _WORDS or all(_is(inner[0], one) for one in value)
        )
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is not tuple:
        return _WORDS[kind]
    return "a list of names" if typing.get_args(kind)[0] is str else "a list"
