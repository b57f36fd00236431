"""Readers: one file = one way to turn a folder, a split file or a rule into a Task."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
