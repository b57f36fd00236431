"""One registry, composed configurations, and objects built from them.

A learner, loss term, calibrator, reader or setting is a class with ``@register(group, name)``; its signature is its
configuration. Recipes are YAML files under ``configs/`` and data cards under ``datasets/``; Hydra's compose API puts
them together, and unknown names are answered with the nearest known one.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import promptcal
from promptcal.checking import check_keys, check_value
from promptcal.errors import ConfigError, unknown

Registered = TypeVar("Registered", bound=Callable[..., Any])

INJECTED = frozenset(
    {"clip", "classes", "classifier", "draw", "generator", "head_node", "reference", "root", "task", "vision", "width"}
)
"""Parameters that the program hands over; they never appear in a configuration."""

PLUGIN_PACKAGES = (
    *("learners", "losses", "calibrators", "training"),
    *("models.temperature", "models.vision", "heads", "data.protocols"),
)
TRUSTED = ["promptcal."]
"""Prefixes of the targets ``build`` accepts; the packages of declared plug-ins are added."""


def register(group: str, name: str) -> Callable[[Registered], Registered]:
    """Make a class or function available as ``group=name``; its parameters and defaults become its configuration."""

    def wrap(target: Registered) -> Registered:
        node: dict[str, Any] = {"_target_": f"{target.__module__}.{target.__qualname__}"}
        for parameter in inspect.signature(target).parameters.values():
            if parameter.name in INJECTED or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            default = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
            node[parameter.name] = list(default) if isinstance(default, tuple) else default
        if not _recipe(group, name).is_file():  # a recipe that ships says the same, with a word on each key
            ConfigStore.instance().store(group=group, name=name, node=node)
        return target

    return wrap


def _recipe(group: str, name: str) -> Path:
    """Where the recipe of a choice is, if there is one."""
    return asset_path("configs") / group / f"{name}.yaml"


@cache
def discover() -> None:
    """Import every module that may register something: our own folders and the ``promptcal.plugins`` entry points."""
    for package_name in PLUGIN_PACKAGES:
        package = importlib.import_module(f"promptcal.{package_name}")
        for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
            importlib.import_module(f"promptcal.{package_name}.{module.name}")
    for entry_point in entry_points(group="promptcal.plugins"):
        TRUSTED.append(f"{entry_point.module.split('.')[0]}.")
        entry_point.load()


def asset_path(*parts: str) -> Path:
    """A folder or file that ships with promptcal: inside the installed package, else at the repository root."""
    package = Path(promptcal.__file__).parent
    for base in (package, package.parent):
        candidate = base.joinpath(*parts)
        if candidate.exists():
            return candidate
    raise ConfigError(f"'{'/'.join(parts)}' does not ship with this installation of promptcal; reinstall it.")


PREPARATION = ("annotations", "archives", "steps")
"""Keys of a data card that ``promptcal data`` alone reads; no part of a run's configuration."""


@cache
def _store_cards() -> None:
    """Put every data card of ``datasets/`` into Hydra's group ``dataset``."""
    for path in sorted(asset_path("datasets").glob("*.yaml")):
        card: Any = OmegaConf.load(path)
        node = OmegaConf.create({key: value for key, value in card.items() if key not in PREPARATION})
        ConfigStore.instance().store(group="dataset", name=path.stem, node=node)


def options(group: str) -> list[str]:
    """The names one can choose from in a group: recipes, data cards and registered classes."""
    discover()
    _store_cards()
    stored = ConfigStore.instance().repo.get(group)
    found = {name.removesuffix(".yaml") for name in stored} if isinstance(stored, dict) else set()
    return sorted(found | {path.stem for path in (asset_path("configs") / group).glob("*.yaml")})


def groups() -> list[str]:
    """The groups one can choose from on the command line."""
    folders = {path.name for path in asset_path("configs").iterdir() if path.is_dir() and path.name != "experiment"}
    return sorted(folders | {"averaging", "dataset", "gradient_rule", "learner"})


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """The resolved configuration of one run.

    Args:
        overrides: Hydra overrides such as ``method=coop``, ``training.epochs=10`` or ``plugin=[margin,moments]``.

    Raises:
        ConfigError: an unknown group, option or key (the nearest known one is named), or a value Hydra cannot read.
    """
    discover()
    _store_cards()
    for override in overrides:
        _check_choice(override)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(asset_path("configs")), version_base="1.3"):
            try:
                config = hydra_compose("config", overrides=list(overrides), return_hydra_config=True)
            except ConfigCompositionException as error:
                raise ConfigError(_explain_key(str(error), overrides)) from error
        choices = {group: config.hydra.runtime.choices.get(group) for group in groups()}
        choices["plugin"] = _plugins(overrides)  # Hydra records no choice for a group that takes a list
        OmegaConf.set_struct(config, False)
        del config["hydra"]
        config.choices = choices
        OmegaConf.resolve(config)
        OmegaConf.set_struct(config, True)
    except (HydraException, OmegaConfBaseException) as error:
        first_line = str(error).splitlines()[0]
        raise ConfigError(f"the configuration cannot be composed: {first_line}") from error
    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        raise ConfigError(f"the key '{missing[0]}' has no value; give it as {missing[0]}=VALUE.")
    check_keys(config)
    return config


def _plugins(overrides: Sequence[str]) -> list[str]:
    """The plug-ins that the last ``plugin=`` names, in order."""
    values = [value for key, _, value in (override.partition("=") for override in overrides) if key == "plugin"]
    return [name.strip() for name in values[-1].strip("[]").split(",") if name.strip()] if values else []


def _check_choice(override: str) -> None:
    """Refuse ``group=option`` where the option is unknown, and words that are no override at all."""
    key, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"'{override}' is not an override; write key=value, for example method=coop or seed=2.")
    if key not in groups():
        return
    known = options(key)
    choices = [choice.strip() for choice in value.strip("[]").split(",") if choice.strip()]
    for place, choice in enumerate(choices):
        if choice not in known:
            raise ConfigError(unknown(key, choice, known))
        if choice in choices[:place]:
            raise ConfigError(f"{override} names '{choice}' twice; once is enough.")


def _explain_key(message: str, overrides: Sequence[str]) -> str:
    """A sentence for an override whose key does not exist, with the nearest key that does."""
    chosen = [override for override in overrides if override.partition("=")[0] in groups()]
    known = sorted({*_flat_keys(hydra_compose("config", overrides=chosen)), *groups()})
    for override in overrides:
        key = override.partition("=")[0]
        if override not in chosen and key.lstrip("+~") not in known and f"'{key}'" in message:
            close = [name for name in known if name.rpartition(".")[0] == key.rpartition(".")[0]]
            return unknown("key", key, known).split(" Known:")[0] + (
                f" Keys beside it: {', '.join(close)}." if close else ""
            )
    return f"the configuration cannot be composed: {message.splitlines()[0]}"


def _flat_keys(config: Any, prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key in config:
        name = f"{prefix}{key}"
        keys.append(name)
        value = None if OmegaConf.is_missing(config, key) else config[key]
        if isinstance(value, DictConfig):
            keys += _flat_keys(value, f"{name}.")
    return keys


def build(config: Any, **injected: Any) -> Any:
    """The object that a configuration node describes by its ``_target_``.

    Only targets of promptcal and of declared plug-in packages are accepted. Of ``injected``, the
    target gets the parameters it asks for.

    Raises:
        ConfigError: the target is not trusted or unknown, or it refuses its arguments.
    """
    node = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(f"there is no '_target_' to build in {node!r}.")
    arguments = {str(key): value for key, value in node.items() if key != "_target_"}
    target = locate(str(node["_target_"]))
    parameters = inspect.signature(target).parameters
    arguments |= {name: value for name, value in injected.items() if name in parameters}
    unexpected = sorted(set(arguments) - set(parameters))
    if unexpected:
        raise ConfigError(unknown(f"key of {node['_target_']}", unexpected[0], parameters))
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and parameter.kind not in variable and name not in arguments:
            if name in INJECTED:
                raise ConfigError(f"{node['_target_']} needs '{name}', which this kind of model lacks; leave it out.")
            raise ConfigError(f"{node['_target_']} needs '{name}'; give it a value.")
    for name, value in arguments.items():
        if name not in injected:
            check_value(f"{target.__name__}.{name}", parameters[name].annotation, value)
        if parameters[name].annotation is float and isinstance(value, int) and not isinstance(value, bool):
            arguments[name] = float(value)
    return target(**arguments)


def asks_for(config: Any, name: str) -> bool:
    """Whether what a configuration node describes takes a parameter of this name."""
    return name in inspect.signature(locate(str(config["_target_"]))).parameters


def locate(path: str) -> Callable[..., Any]:
    """What a ``_target_`` names.

    Raises:
        ConfigError: a target that is not trusted, or nothing.
    """
    if not path.startswith(tuple(TRUSTED)):
        raise ConfigError(f"'{path}' may not be built: only {', '.join(TRUSTED)} and declared plug-ins are trusted.")
    module, _, name = path.rpartition(".")
    try:
        target: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"there is nothing at '{path}' to build ({error}).") from error
    return target
