"""Calibrators from what people write down: a name, names joined by ``+``, or a configuration node."""

from collections.abc import Mapping
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import OmegaConf
from sklearn.base import clone

from promptcal.calibrators.contract import Calibrator
from promptcal.config import build, options
from promptcal.errors import ConfigError, DataError, unknown
from promptcal.types import Predictions

Described = str | Mapping[str, Any] | Calibrator
"""A calibrator as people write it down: names, a configuration node with ``_target_``, or an object."""


def build_calibrator(described: Described, parameters: Mapping[str, Any] | None = None) -> Calibrator:
    """A new, unfitted calibrator.

    Args:
        described: a registered name; several joined by ``+``, which are applied in that order; a configuration node;
            or a calibrator, which is copied without what it learned.
        parameters: parameters of a single name that differ from their defaults.

    Raises:
        ConfigError: an unknown name or parameter, or a node that does not build a calibrator.

    >>> build_calibrator("dac+temperature")
    Chain(steps=['dac', 'temperature'])
    """
    if isinstance(described, Calibrator):
        copy: Calibrator = clone(described)
        return copy
    if isinstance(described, str):
        if "+" in described:
            steps = [step.strip() for step in described.split("+")]
            described, parameters = "chain", {"steps": steps, **(parameters or {})}
        described = {**_defaults(described), **(parameters or {})}
    made = build(described)
    if not isinstance(made, Calibrator):
        raise ConfigError(f"'{described.get('_target_')}' is not a calibrator.")
    return made


def fit_for(name: str, everything: Mapping[str, Predictions], trained: tuple[str, ...] | None = None) -> Calibrator:
    """A calibrator by name, fitted on the validation rows among the predictions of a run where it learns from rows.

    One that learns from classes alone is fitted on ``val``, or where there is none on a split of the trained classes;
    one that learns from nothing is not fitted.

    Args:
        name: as ``build_calibrator`` takes it.
        everything: by split, the predictions of the run.
        trained: the class names that the run was trained on; those of ``base`` where they are not given.

    Raises:
        ConfigError: an unknown name. DataError: it learns and there is nothing to fit it on.
    """
    calibrator = build_calibrator(name)
    if calibrator.learns_from == "nothing":
        return calibrator
    fitted_on = everything.get("val")
    if fitted_on is None and calibrator.learns_from == "classes":
        if trained is None:
            fitted_on = everything.get("base")
        else:
            fitted_on = next((one for one in everything.values() if one.classes == trained), None)
    if fitted_on is None:
        raise no_validation(name)
    return calibrator.fit(fitted_on)


def no_validation(name: str) -> DataError:
    """The sentence for a calibrator that learns from validation images where there are none."""
    return DataError(
        f"the calibrator '{name}' is fitted on validation images and this data set has none besides its test images; "
        f"use calibrators=[none], calibration.split=from_train, or give the data set a validation split."
    )


def _defaults(name: str) -> dict[str, Any]:
    """The configuration node of a registered calibrator."""
    store = ConfigStore.instance()
    try:
        node = store.load(f"calibrator/{name}.yaml").node
    except HydraException as error:
        known = options("calibrator")  # this also imports the plug-ins
        if name not in known:
            raise ConfigError(unknown("calibrator", name, known)) from error
        node = store.load(f"calibrator/{name}.yaml").node
    return {str(key): value for key, value in OmegaConf.to_container(node).items()}  # type: ignore[union-attr]
