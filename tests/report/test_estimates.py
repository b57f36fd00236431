"""Means and their intervals."""

import numpy as np

from promptcal.report.estimates import estimate


def test_an_interval_is_cut_at_zero_where_the_number_has_no_sign():
    values, replicates = np.array([0.01, 0.03]), np.linspace(0.02, 0.08, 1001)
    found = estimate(values, replicates)
    assert found.value == 0.02
    assert found.low == 0.0
    assert 0.0 < found.high < 0.02
    assert estimate(values, replicates, signed=True).low < -0.03
    assert estimate(values, None).low is None
