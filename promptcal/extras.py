"""Packages that only some people need."""

import importlib
from typing import Any

from promptcal.errors import ConfigError


def extra(module: str, name: str, purpose: str) -> Any:
    """An optional module.

    Args:
        module: what to import.
        name: the extra of promptcal that installs it.
        purpose: what needs it, for the message.

    Raises:
        ConfigError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ConfigError(
            f"{purpose} needs the package '{package}', which is not here ({error}); pip install 'promptcal[{name}]'."
        ) from error
