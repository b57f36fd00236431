"""The procedural renderer: pure in its generator, distinct for every composition, and true to its severities."""

import itertools

import numpy as np
import pytest

from promptcal.data.drawing import COLOURS, GLYPHS, MAX_SEVERITY, PATTERNS, SHAPES, STYLES, draw_glyph, draw_shape
from promptcal.data.drawing.captions import UNKNOWN, holds, near_miss, write_caption
from promptcal.data.drawing.corpus import draw_corpus


def pixels(*composition: str, seed: int = 0, **options: object) -> np.ndarray:
    return np.asarray(draw_shape(*composition, np.random.default_rng(seed), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("style", STYLES)
def test_same_generator_state_draws_the_same_picture(style: str) -> None:
    first = pixels("red", "striped", "circle", style=style, severity=3)
    assert first.shape == (32, 32, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, pixels("red", "striped", "circle", style=style, severity=3))
    assert not np.array_equal(first, pixels("red", "striped", "circle", style=style, severity=3, seed=1))


def test_every_composition_draws_and_differs() -> None:
    drawn = {pixels(*composition).tobytes() for composition in itertools.product(COLOURS, PATTERNS, SHAPES)}
    assert len(drawn) == len(COLOURS) * len(PATTERNS) * len(SHAPES)


def test_colour_is_the_colour_of_the_object() -> None:
    red, blue = (
        pixels(colour, "solid", "circle", size=64)[28:36, 28:36].mean(axis=(0, 1)) for colour in ("red", "blue")
    )
    assert red[0] > red[2] + 80
    assert blue[2] > blue[0] + 80


def test_severities_change_the_picture() -> None:
    clean = pixels("green", "dotted", "star", style="shifted").astype(int)
    changes = [
        np.abs(pixels("green", "dotted", "star", style="shifted", severity=level).astype(int) - clean).mean()
        for level in range(1, MAX_SEVERITY + 1)
    ]
    assert min(changes) > 1
    assert changes[-1] > changes[0]


def test_styles_differ_and_size_is_obeyed() -> None:
    assert not np.array_equal(pixels("pink", "hollow", "heart"), pixels("pink", "hollow", "heart", style="shifted"))
    assert pixels("pink", "hollow", "heart", size=48).shape == (48, 48, 3)


def test_glyphs_draw_and_differ() -> None:
    printed = {np.asarray(draw_glyph(glyph, np.random.default_rng(3))).tobytes() for glyph in GLYPHS}
    assert len(printed) == len(GLYPHS)
    pens = {np.asarray(draw_glyph(str(digit), np.random.default_rng(3), source="pen")).tobytes() for digit in range(10)}
    assert len(pens) == 10


@pytest.mark.parametrize(
    ("composition", "options", "message"),
    [
        (("crimson", "solid", "circle"), {}, "Unknown colour 'crimson'"),
        (("red", "plaid", "circle"), {}, "Unknown pattern 'plaid'"),
        (("red", "solid", "sphere"), {}, "Unknown shape 'sphere'"),
        (("red", "solid", "circle"), {"severity": 6}, "Severity 6 is out of range"),
    ],
)
def test_unknown_names_are_refused(composition: tuple[str, ...], options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pixels(*composition, **options)


def test_the_pen_refuses_letters() -> None:
    with pytest.raises(ValueError, match="digits alone"):
        draw_glyph("a", np.random.default_rng(0), source="pen")


def test_corpus_parts_join_and_captions_are_true() -> None:
    images, facts = draw_corpus(40, seed=5)
    later, later_facts = draw_corpus(10, seed=5, first=30)
    assert np.array_equal(images[30:], later)
    assert np.array_equal(facts[30:], later_facts)
    rng = np.random.default_rng(0)
    captions = [write_caption(row, rng) for row in facts]
    stated = np.stack([row for _, row in captions])
    assert holds(facts, stated).diagonal().all()
    assert (stated != UNKNOWN).any(axis=1).all()
    assert all("{" not in text for text, _ in captions)
    assert all((near_miss(row, rng) != row).sum() == 1 for row in facts)
