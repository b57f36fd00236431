"""Pictures of what a vision transformer's decision rests on: data in, matplotlib Axes out."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from promptcal.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#4878a8", "#d1605e", "#6a9a58", "#9a6ab0", "#c98f3c")


def token_relevance(
    image: Float[np.ndarray, "h w *c"],
    scores: Float[np.ndarray, " n"],
    grid: tuple[int, int],
    ax: "Axes",
    *,
    title: str | None = None,
) -> "Axes":
    """The scores of an image's patches laid over it: red speaks for the class, blue against it, clear says nothing.

    Args:
        image: grey values [h, w] or colours [h, w, 3], in [0, 1].
        scores: a score of each patch, row by row; colours are scaled to the largest in size.
        grid: rows and columns of patches.
        ax: where to draw.
        title: what to write above.

    Raises:
        DataError: as many scores as patches are needed, and finite ones.
    """
    rows, columns = grid
    if scores.shape != (rows * columns,) or not np.isfinite(scores).all():
        raise DataError(f"{rows} × {columns} patches need {rows * columns} finite scores; {len(scores)} were given.")
    height, width = image.shape[:2]
    strength = scores.reshape(grid) / max(float(np.abs(scores).max()), np.finfo(np.float64).tiny)
    extent = (0.0, float(width), float(height), 0.0)
    ax.imshow(np.clip(image, 0, 1), cmap="gray", vmin=0, vmax=1, extent=extent)
    ax.imshow(
        strength, cmap="bwr", vmin=-1, vmax=1, alpha=0.75 * np.abs(strength), extent=extent, interpolation="nearest"
    )
    ax.set_axis_off()
    if title is not None:
        ax.set_title(title)
    return ax


def dimension_relevance(
    relevance: Float[np.ndarray, "C D"],
    classes: Sequence[str],
    ax: "Axes",
    *,
    kept: Float[np.ndarray, "C D"] | None = None,
) -> "Axes":
    """The relevance of the class token's dimensions for each class, a row a class.

    Dimensions stand in the order of their most relevant class, so that each class's own ones lie together. Those that a
    mask ``kept`` (1 = kept) leaves out are drawn white.

    Raises:
        DataError: one name a class is needed.
    """
    if len(classes) != len(relevance):
        raise DataError(f"{len(relevance)} rows of relevance but {len(classes)} class names.")
    shown = np.abs(relevance) / np.abs(relevance).max(axis=1, keepdims=True).clip(min=np.finfo(np.float64).tiny)
    order = np.lexsort((-shown.max(axis=0), shown.argmax(axis=0)))
    if kept is not None:
        shown = np.where(kept > 0, shown, 0)
    ax.imshow(shown[:, order], aspect="auto", cmap="Reds", vmin=0, vmax=1, interpolation="nearest")
    ax.set_yticks(range(len(classes)), classes)
    ax.set_xlabel("dimension of the class token, by its most relevant class")
    ax.set_ylabel("class")
    return ax


def foreground_by_depth(
    shares: Mapping[str, Float[np.ndarray, "L b"]], ax: "Axes", *, area: float | None = None
) -> "Axes":
    """The share of token relevance on the foreground at each depth: the mean over images and its 95 % interval.

    Args:
        shares: by name of what is measured, the share of each image at each depth (``foreground_share``).
        ax: where to draw.
        area: the mean share of patches that are foreground: what scores spread evenly would give.
    """
    for colour, (name, share) in zip(COLOURS * len(shares), shares.items(), strict=False):
        depth = np.arange(1, len(share) + 1)
        middle = share.mean(axis=1)
        half = 1.96 * share.std(axis=1, ddof=1) / np.sqrt(share.shape[1]) if share.shape[1] > 1 else 0 * middle
        ax.plot(depth, middle, color=colour, marker="o", label=name)
        ax.fill_between(depth, middle - half, middle + half, color=colour, alpha=0.2, linewidth=0)
    if area is not None:
        ax.axhline(area, color="#555555", linestyle="--", label="share of the patches")
    ax.locator_params(axis="x", integer=True)
    ax.set_xlabel("depth in blocks")
    ax.set_ylabel("share on the foreground")
    ax.set_ylim(0, 1)
    ax.legend()
    return ax
