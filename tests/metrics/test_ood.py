"""The area under the ROC curve of confidence, inside against outside."""

import numpy as np
import pytest

from promptcal.errors import DataError
from promptcal.metrics import ood_auroc


def test_it_is_the_share_of_pairs_in_the_right_order():
    rng = np.random.default_rng(0)
    inside, outside = rng.dirichlet(np.ones(4), 30).round(1), rng.dirichlet(3 * np.ones(3), 20).round(1)
    first, second = inside.max(axis=1), outside.max(axis=1)
    pairs = [(a > b) + 0.5 * (a == b) for a in first for b in second]
    assert ood_auroc(inside, outside) == pytest.approx(np.mean(pairs))
    assert ood_auroc(inside, inside) == 0.5
    sklearn = pytest.importorskip("sklearn.metrics")
    labels = np.r_[np.zeros(30), np.ones(20)]
    assert ood_auroc(inside, outside) == pytest.approx(sklearn.roc_auc_score(labels, -np.r_[first, second]))


def test_bad_input_is_refused():
    probs = np.full((2, 2), 0.5)
    with pytest.raises(DataError, match="outside"):
        ood_auroc(probs, np.zeros((0, 2)))
    with pytest.raises(DataError, match="inside"):
        ood_auroc(3 * probs, probs)
    with pytest.raises(DataError, match="outside"):
        ood_auroc(probs, probs * np.nan)
