"""The examples in the docstrings are true."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

from promptcal import calibrators

MODULES = [f"promptcal.calibrators.{module.name}" for module in pkgutil.iter_modules(calibrators.__path__)]


@pytest.mark.filterwarnings("ignore::promptcal.calibrators.CalibrationWarning")
@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name):
    failed, _ = doctest.testmod(importlib.import_module(name), extraglobs={"np": np})
    assert failed == 0


def test_every_calibrator_has_an_example():
    classes = [getattr(calibrators, name) for name in calibrators.__all__]
    missing = [
        one.__name__
        for one in classes
        if isinstance(one, type)
        and issubclass(one, calibrators.Calibrator)
        and one is not calibrators.Calibrator
        and not doctest.DocTestFinder().find(one)[0].examples
    ]
    assert missing == []
