import doctest
import importlib

import numpy as np
import pytest


@pytest.mark.parametrize("name", ["names", "resampling"])
def test_examples_in_docstrings_hold(name):
    failed, tried = doctest.testmod(importlib.import_module(f"promptcal.report.{name}"), extraglobs={"np": np})
    assert tried > 0
    assert failed == 0
