import matplotlib.pyplot as plt
import numpy as np
import pytest

from promptcal.errors import DataError
from promptcal.explain.pictures import dimension_relevance, foreground_by_depth, token_relevance


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_scores_lie_over_the_image_scaled_to_the_largest(ax):
    token_relevance(np.zeros((8, 8)), np.array([1.0, -2.0, 0.0, 0.5]), (2, 2), ax, title="a seven")
    picture, overlay = ax.get_images()
    assert list(picture.get_extent()) == list(overlay.get_extent()) == [0.0, 8.0, 8.0, 0.0]
    np.testing.assert_allclose(overlay.get_array(), [[0.5, -1.0], [0.0, 0.25]])
    np.testing.assert_allclose(overlay.get_alpha(), 0.75 * np.abs([[0.5, -1.0], [0.0, 0.25]]))
    with pytest.raises(DataError, match="2 × 2 patches need 4 finite scores; 3 were given"):
        token_relevance(np.zeros((8, 8)), np.ones(3), (2, 2), ax)


def test_dimensions_stand_by_their_class_and_masked_ones_are_white(ax):
    relevance = np.array([[0.1, 0.0, 0.9], [0.0, 0.8, 0.2]])
    dimension_relevance(relevance, ("a", "b"), ax, kept=np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]))
    (drawn,) = ax.get_images()
    np.testing.assert_allclose(drawn.get_array(), [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    with pytest.raises(DataError, match="2 rows of relevance but 1 class names"):
        dimension_relevance(relevance, ("a",), ax)


def test_shares_by_depth_are_means_with_a_band(ax):
    foreground_by_depth({"rollout": np.array([[0.2, 0.4], [0.6, 0.6]])}, ax, area=0.3)
    line, level = ax.get_lines()
    np.testing.assert_allclose(line.get_xdata(), [1, 2])
    np.testing.assert_allclose(line.get_ydata(), [0.3, 0.6])
    assert level.get_ydata()[0] == 0.3
    assert all(tick == round(tick) for tick in ax.get_xticks())
    low, high = (ax.collections[0].get_paths()[0].vertices[:, 1].min(), 0.3 + 1.96 * np.sqrt(0.02) / np.sqrt(2))
    assert low == pytest.approx(0.6 - high)
