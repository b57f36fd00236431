"""What sets runs apart: only runs that differ in nothing but their luck may be averaged."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from promptcal.run import IRRELEVANT

READER = ("dataset.reader.", "protocol.", "calibration.")
"""What decides the images that are tested and calibrated on: runs that differ in it are of different data."""

APART = (
    *("seed", "split_seed", "shots", "calibrators", "choices", "model", "imported.tensors", *IRRELEVANT),
    *(f"dataset.{key}" for key in ("name", "title", "folder", "sizes", "source", "licence", "reference")),
)
"""Keys in which runs of one method on the same images may differ without being another variant of it."""

NAMED = ("dataset", "model", "protocol", "method", "plugin")
"""Choices that a report names anyway."""

DEFAULT_PROTOCOL = "base_to_novel"

LUCK = ("seed", "split_seed")
"""The keys of a run's own luck."""


def readings_of(configs: Mapping[str, DictConfig], datasets: Mapping[str, str]) -> dict[str, str]:
    """For each run, the settings in which its data set was read otherwise than in other runs, such as ``severity=5``.

    Runs of another protocol are no such others: a report keeps them apart anyway.

    Args:
        configs: by run, its resolved configuration.
        datasets: by run, the name of its data set.
    """
    alike: dict[tuple[str, str], dict[str, DictConfig]] = defaultdict(dict)
    for name, config in configs.items():
        alike[datasets[name], protocol_of(config)][name] = config
    return {name: told for some in alike.values() for name, told in _differences(some, reader=True).items()}


def variants_of(
    configs: Mapping[str, DictConfig], datasets: Mapping[str, str], models: Mapping[str, str]
) -> dict[str, str]:
    """For each run, the settings in which runs of one method, data set and model differ, such as ``epochs=200``.

    Runs that differ in their seed or class split alone, or in keys that only repeat these, are no variants.

    Args:
        configs: by run, its resolved configuration.
        datasets: by run, the name of its data set, with the settings it was read by.
        models: by run, its model, as ``weights_of`` names it.
    """
    alike: dict[tuple[str, ...], dict[str, DictConfig]] = defaultdict(dict)
    for name, config in configs.items():
        choices = config.get("choices") or {}
        named = tuple(str(choices.get(group)) for group in ("method", "plugin"))
        alike[*named, protocol_of(config), datasets[name], models[name]][name] = config
    return {name: told for some in alike.values() for name, told in _differences(some, reader=False).items()}


def protocol_of(config: DictConfig) -> str:
    """The protocol of a run, with ``_all`` where base and novel are classified among all classes together."""
    chosen = str((config.get("choices") or {}).get("protocol") or DEFAULT_PROTOCOL)
    return f"{chosen}_all" if (config.get("protocol") or {}).get("target") == "all" else chosen


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
    """The flat settings that may set a run apart: keys, and recipes chosen by name."""
    choices = config.get("choices") or {}
    flat = {str(group): str(choice) for group, choice in choices.items() if group not in NAMED}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for key, value in node.items():
            name = f"{prefix}{key}"
            if name in APART:
                continue
            if isinstance(value, dict) and value:
                walk(value, f"{name}.")
            else:
                flat[name] = str(value)

    container = OmegaConf.to_container(config)
    if isinstance(container, dict):
        walk({str(key): value for key, value in container.items()}, "")
    return flat


def _differences(configs: Mapping[str, DictConfig], *, reader: bool) -> dict[str, str]:
    """For each run, the settings in which these runs differ, in one phrase: empty where they differ by luck alone.

    Args:
        configs: by run, its resolved configuration.
        reader: look at the settings that decide the images, or at all the others.
    """
    settings = {name: _settings(config) for name, config in configs.items()}
    keys = list(dict.fromkeys(key for one in settings.values() for key in one if key.startswith(READER) == reader))
    varying = [
        key
        for key in keys
        if len({one.get(key) for one in settings.values()}) > 1 and not _repeats_luck(key, settings, configs)
    ]
    telling = [key for key in varying if not _follows(key, varying, list(settings.values()))]
    return {
        name: ", ".join(f"{_short(key, [*keys, *LUCK])}={one.get(key) or 'none'}" for key in telling)
        for name, one in settings.items()
    }


def _repeats_luck(key: str, settings: Mapping[str, Mapping[str, str]], configs: Mapping[str, DictConfig]) -> bool:
    """Whether a key is a seed that in every run is the run's own."""
    return key.endswith("seed") and all(
        one.get(key) in {str(configs[name].get(luck)) for luck in LUCK} for name, one in settings.items()
    )


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
