"""What sets runs of one method apart: only runs that differ in nothing but their luck may be averaged."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from promptcal.run import IRRELEVANT

APART = ("seed", "split_seed", "shots", "calibrators", "choices", "dataset", "model", *IRRELEVANT)
"""Keys in which runs of one method may differ without being another variant of it."""

NAMED = ("dataset", "model", "protocol", "method", "plugin")
"""Choices that a report names anyway."""


def variants_of(configs: Mapping[str, DictConfig], models: Mapping[str, str]) -> dict[str, str]:
    """For each run, the settings in which runs of one method, data set and model differ, such as ``epochs=200``.

    Runs that differ in their seed or class split alone, or in keys that only repeat these, are no variants.

    Args:
        configs: by run, its resolved configuration.
        models: by run, its model, as ``weights_of`` names it.
    """
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, config in configs.items():
        choices = config.get("choices") or {}
        named = tuple(str(choices.get(group)) for group in NAMED)
        alike[*named, models[name], str((config.get("dataset") or {}).get("path"))].append(name)
    result = {}
    for names in alike.values():
        settings = {name: _settings(configs[name]) for name in names}
        keys = list(dict.fromkeys(key for name in names for key in settings[name]))
        varying = [key for key in keys if len({settings[name].get(key) for name in names}) > 1]
        telling = [key for key in varying if not _follows(key, varying, [settings[name] for name in names])]
        for name in names:
            result[name] = ", ".join(f"{_short(key, keys)}={settings[name].get(key) or 'none'}" for key in telling)
    return result


def weights_of(models: Mapping[str, str], infos: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """For each run, the name of its model, with the weights' digest where runs of one model rest on several.

    Args:
        models: by run, the model as it was chosen.
        infos: by run, its ``run.json``, which holds the digest.
    """
    digests: dict[str, set[str]] = defaultdict(set)
    for name, model in models.items():
        digests[model].add(str(infos[name].get("weights")))
    return {
        name: f"{model} (weights {str(infos[name].get('weights'))[:6]})" if len(digests[model]) > 1 else model
        for name, model in models.items()
    }


def _settings(config: DictConfig) -> dict[str, str]:
    """The flat settings that may make a run a variant: keys, and recipes chosen by name."""
    repeated = {str(config.get("seed")), str(config.get("split_seed"))}
    choices = config.get("choices") or {}
    flat = {str(group): str(choice) for group, choice in choices.items() if group not in NAMED}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for key, value in node.items():
            name = f"{prefix}{key}"
            if name in APART:
                continue
            if isinstance(value, dict) and value:
                walk(value, f"{name}.")
            elif not (key.endswith("seed") and str(value) in repeated):
                flat[name] = str(value)

    container = OmegaConf.to_container(config)
    if isinstance(container, dict):
        walk({str(key): value for key, value in container.items()}, "")
    return flat


def _follows(key: str, varying: Sequence[str], settings: Sequence[Mapping[str, str]]) -> bool:
    """Whether a key varies only because another recipe was chosen for its group: ``head.width`` with ``head``."""
    group, dot, _ = key.partition(".")
    if not dot or group not in varying:
        return False
    pairs = {(one.get(group), one.get(key)) for one in settings}
    return len(pairs) == len({choice for choice, _ in pairs})


def _short(key: str, keys: Sequence[str]) -> str:
    """The last part of a key, or all of it where that would be ambiguous."""
    leaf = key.rpartition(".")[2]
    return leaf if sum(other.rpartition(".")[2] == leaf for other in keys) == 1 else key
